//! A surge that takes long, as far as the status shows it: its cause takes several requests.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use nm_shared::{NodeMaintenance, SurgingPod};

use crate::maintenance::status;
use crate::terminal::text::counted;

/// New pods are usually Ready after this time.
const USUAL: SignedDuration = SignedDuration::from_secs(30);

/// A surge whose new pods are not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowSurge {
    /// Since when the first pod waits for its replacement.
    since: Timestamp,
    words: String,
}

impl SlowSurge {
    /// The surges of a maintenance whose new pods are not Ready; none if there are none.
    pub fn of(maintenance: &NodeMaintenance) -> Option<Self> {
        let mut deployments: BTreeMap<(&str, &str), (Timestamp, BTreeSet<&str>)> = BTreeMap::new();
        let is_ready = |pod: &&SurgingPod| pod.replacement.as_ref().is_some_and(|pod| pod.ready);
        let surging = status(maintenance).surging_pods.iter().flatten();
        for pod in surging.filter(|pod| !is_ready(pod)) {
            let key = (pod.namespace.as_str(), pod.deployment.as_str());
            let (since, unready) = deployments.entry(key).or_insert((pod.since.0, BTreeSet::new()));
            *since = pod.since.0.min(*since);
            unready.extend(pod.replacement.as_ref().map(|pod| pod.name.as_str()));
        }
        let ((namespace, deployment), (since, unready)) =
            deployments.iter().min_by_key(|(_, (since, _))| *since)?;
        let pods = match unready.len() {
            0 => String::from("it has no new pod yet"),
            1 => String::from("1 of its new pods is not Ready"),
            several => format!("{several} of its new pods are not Ready"),
        };
        let more = match deployments.len() - 1 {
            0 => String::new(),
            more => format!(", and {} surging", counted(more, "more Deployment")),
        };
        Some(Self {
            since: *since,
            words: format!("surge of Deployment {namespace}/{deployment}: {pods}{more}"),
        })
    }

    /// `surge of Deployment shop/web: 2 of its new pods are not Ready`; none before it takes longer than usual.
    pub fn words(&self, now: Timestamp) -> Option<&str> {
        (now.duration_since(self.since) >= USUAL).then_some(self.words.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::objects::with_status;

    fn words(pods: &[(&str, i64, Value)], now: i64) -> Option<String> {
        let pod = |(deployment, since, replacement): &(&str, i64, Value)| {
            json!({"namespace": "shop", "name": format!("{deployment}-{since}"), "deployment": deployment,
                "restarted": true, "replacement": replacement,
                "since": Timestamp::from_second(*since).unwrap()})
        };
        let pods: Vec<Value> = pods.iter().map(pod).collect();
        let object = with_status("n1", json!({"phase": "Running", "surgingPods": pods}));
        SlowSurge::of(&object)?.words(Timestamp::from_second(now).unwrap()).map(str::to_owned)
    }

    #[test]
    fn a_surge_is_reported_once_its_new_pods_are_not_ready_for_long() {
        let new = |name: &str, ready: bool| json!({"name": name, "node": "n2", "ready": ready});
        let stuck = [("web", 0, new("a", false)), ("web", 5, new("b", false)), ("api", 9, Value::Null)];
        assert_eq!(words(&stuck, 29), None);
        let web = "surge of Deployment shop/web: 2 of its new pods are not Ready";
        assert_eq!(words(&stuck, 30), Some(format!("{web}, and 1 more Deployment surging")));
        assert_eq!(words(&stuck[..2], 30).as_deref(), Some(web));
        let none = "surge of Deployment shop/api: it has no new pod yet";
        assert_eq!(words(&stuck[2..], 60).as_deref(), Some(none));
        assert_eq!(words(&[("web", 0, new("a", true))], 60), None);
    }
}
