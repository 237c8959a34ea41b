//! Which volumes a drain would wait for after the last pod, if it is to wait for them.

use std::collections::BTreeSet;
use std::time::Duration;

use nm_shared::cluster::pod;
use nm_shared::forecast::{Forecast, PodOutcome};
use nm_shared::{ClaimReference, OnDetachTimeout, WaitForVolumeDetach};
use serde_json::{Value, json};

use crate::args::duration;
use crate::terminal::text::{Line, counted, first_names};

/// The volumes of a node that the drain would wait for.
#[derive(Debug, PartialEq)]
pub(crate) struct DetachReport {
    /// The claims of the pods that leave, except for those that pods that stay use too.
    pub(crate) claims: Vec<ClaimReference>,
    wait: WaitForVolumeDetach,
}

impl DetachReport {
    pub(crate) fn new(node: &str, wait: WaitForVolumeDetach, forecast: &Forecast) -> Self {
        let (mut leave, mut stay) = (BTreeSet::new(), BTreeSet::new());
        for expected in forecast.pods.iter().filter(|expected| expected.node == node) {
            let namespace = pod::names(&expected.pod).namespace;
            let claims = expected
                .pod
                .claims
                .iter()
                .map(|claim| ClaimReference { namespace: namespace.to_owned(), name: claim.to_string() });
            match expected.fate {
                PodOutcome::Stays(_) => stay.extend(claims),
                _ => leave.extend(claims),
            }
        }
        Self { claims: leave.difference(&stay).cloned().collect(), wait }
    }

    /// `node/n1: waits until the volumes of 2 claims are detached, for 5m at most: shop/data-0, shop/data-1`.
    pub(crate) fn line(&self, node: &str) -> Option<Line> {
        if self.claims.is_empty() {
            return None;
        }
        let names: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        let limit = match u64::try_from(self.wait.timeout_seconds).unwrap_or(0) {
            0 => String::new(),
            seconds => format!(", for {} at most", duration::show(Duration::from_secs(seconds))),
        };
        let then = match self.wait.on_timeout {
            OnDetachTimeout::Fail if !limit.is_empty() => ", and then fails",
            _ => "",
        };
        let claims = counted(names.len(), "claim");
        let names = first_names(&names);
        Some(Line::new(format!(
            "node/{node}: waits until the volumes of {claims} are detached{limit}{then}: {names}"
        )))
    }

    pub(crate) fn document(&self) -> Value {
        json!({"claims": self.claims, "timeoutSeconds": self.wait.timeout_seconds,
            "onTimeout": self.wait.on_timeout})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(claims: usize, timeout_seconds: i64, on_timeout: OnDetachTimeout) -> Option<String> {
        let claim = |number| ClaimReference { namespace: "shop".into(), name: format!("data-{number}") };
        let wait = WaitForVolumeDetach { timeout_seconds, on_timeout };
        let report = DetachReport { claims: (0..claims).map(claim).collect(), wait };
        report.line("n1").map(|line| line.to_string())
    }

    #[test]
    fn the_claims_and_the_limit_are_named() {
        use OnDetachTimeout::{Fail, Succeed};
        assert_eq!(line(0, 60, Fail), None);
        let two = "node/n1: waits until the volumes of 2 claims are detached";
        let names = "shop/data-0, shop/data-1";
        assert_eq!(line(2, 0, Fail), Some(format!("{two}: {names}")));
        assert_eq!(line(2, 300, Succeed), Some(format!("{two}, for 5m at most: {names}")));
        assert_eq!(line(2, 300, Fail), Some(format!("{two}, for 5m at most, and then fails: {names}")));
    }
}
