//! How pods are to be moved, as flags; where kubectl drain has such a flag, by its name.
//!
//! A flag that is not given asks for nothing: for a new maintenance that is the default of its field, and of a
//! maintenance that exists it says nothing. What is asked for and what there is are compared field by field.

use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use nm_shared::cluster::selector;
use nm_shared::{DrainOrder, DrainSpec};
use serde_json::Value;

use crate::args::boolean;
use crate::args::duration;

/// How pods are to be moved.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Drain")]
pub(crate) struct DrainFlags {
    /// Seconds that each pod may take to end; -1 is what the pod says itself, and the default. 0 force-deletes pods: their
    /// containers may still run after the maintenance is drained
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..))]
    grace_period: Option<i64>,

    /// How long the drain may take, such as 30s or 1h30m; it is then given up, and the node stays cordoned. With
    /// --wait it also ends the wait, and of a maintenance that exists already the wait alone. 0, the default, is as long
    /// as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Move only pods whose labels match, such as app=web,!canary; an empty one matches all, as in kubectl drain
    #[arg(long, value_name = "SELECTOR", value_parser = selector::parse)]
    pod_selector: Option<LabelSelector>,

    /// Whether pods that no controller replaces are evicted too, which is the default; if not, they block
    #[arg(long, value_name = "BOOL", value_parser = boolean::parse, num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    force: Option<bool>,

    /// Whether pods with emptyDir volumes, whose data is lost, are evicted, which is the default; if not, they block
    #[arg(long = "delete-emptydir-data", value_name = "BOOL", value_parser = boolean::parse, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    delete_empty_dir_data: Option<bool>,

    /// Delete a pod whose eviction has been refused for so long without a break, past any disruption budget; 0, the
    /// default, is never. It takes a permission of nm-reconciler that is not granted by default
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    delete_after: Option<Duration>,

    /// Which pods go first
    #[arg(long, value_name = "ORDER", ignore_case = true)]
    order: Option<Order>,
}

/// Which pods go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// All at once, which is the default
    #[value(name = "None")]
    None,
    /// Pods of a lower priority are gone before those of the next begin
    #[value(name = "PriorityAscending")]
    PriorityAscending,
}

impl DrainFlags {
    /// How long the drain may take, if that is limited.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.filter(|timeout| !timeout.is_zero())
    }

    /// The same without a limit of the time that the drain may take.
    pub(crate) fn without_timeout(&self) -> Self {
        Self { timeout: None, ..self.clone() }
    }

    /// What a new maintenance is to say; nothing if nothing is asked for.
    pub(crate) fn spec(&self) -> Option<DrainSpec> {
        let default = DrainSpec::default();
        let spec = DrainSpec {
            grace_period_seconds: self.grace_period.unwrap_or(default.grace_period_seconds),
            timeout_seconds: self.timeout.map_or(default.timeout_seconds, seconds),
            pod_selector: self.pod_selector.clone().filter(|selector| *selector != LabelSelector::default()),
            force: self.force.unwrap_or(default.force),
            delete_empty_dir_data: self.delete_empty_dir_data.unwrap_or(default.delete_empty_dir_data),
            delete_after_seconds: self.delete_after.map_or(default.delete_after_seconds, seconds),
            order: match self.order {
                Some(Order::PriorityAscending) => DrainOrder::PriorityAscending,
                Some(Order::None) | None => DrainOrder::None,
            },
            ..default
        };
        (!self.given().is_empty()).then_some(spec)
    }

    /// The fields in which a drain is not what is asked for: their names, what they are, and what is asked for.
    pub(crate) fn differences(&self, existing: Option<&DrainSpec>) -> Vec<(&'static str, Value, Value)> {
        let value =
            |spec: Option<DrainSpec>| serde_json::to_value(spec.unwrap_or_default()).unwrap_or_default();
        let (is, wanted) = (value(existing.cloned()), value(self.spec()));
        let differing = self.given().into_iter().filter(|field| is[field] != wanted[field]);
        differing.map(|field| (field, is[field].clone(), wanted[field].clone())).collect()
    }

    /// The fields that something is asked for.
    fn given(&self) -> Vec<&'static str> {
        let fields = [
            (self.grace_period.is_some(), "gracePeriodSeconds"),
            (self.timeout.is_some(), "timeoutSeconds"),
            (self.pod_selector.is_some(), "podSelector"),
            (self.force.is_some(), "force"),
            (self.delete_empty_dir_data.is_some(), "deleteEmptyDirData"),
            (self.delete_after.is_some(), "deleteAfterSeconds"),
            (self.order.is_some(), "order"),
        ];
        fields.into_iter().filter(|(given, _)| *given).map(|(_, field)| field).collect()
    }
}

/// Whole seconds, and rather one more than one too few.
fn seconds(duration: Duration) -> i64 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(begun)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: DrainFlags,
    }

    fn flags(line: &str) -> DrainFlags {
        Line::try_parse_from(std::iter::once("nm").chain(line.split_whitespace())).unwrap().flags
    }

    #[test]
    fn flags_become_fields_and_what_is_not_asked_for_is_the_default() {
        assert_eq!(flags("").spec(), None);
        let all = "--grace-period 30 --timeout 90s --pod-selector app=web --force=false --delete-emptydir-data=0 \
            --delete-after 1500ms --order priorityascending";
        assert_eq!(
            serde_json::to_value(flags(all).spec()).unwrap(),
            json!({"gracePeriodSeconds": 30, "timeoutSeconds": 90, "podSelector": {"matchLabels": {"app": "web"}},
                "force": false, "deleteEmptyDirData": false, "skipWaitForDeleteTimeoutSeconds": 0,
                "deleteAfterSeconds": 2, "order": "PriorityAscending"})
        );
        for same in
            ["--force", "--force=true", "--grace-period=-1", "--timeout 0", "--order None", "--pod-selector="]
        {
            assert_eq!(flags(same).spec(), Some(DrainSpec::default()), "{same}");
        }
    }

    #[test]
    fn only_what_is_asked_for_can_differ() {
        let patient = DrainSpec { timeout_seconds: 60, force: false, ..DrainSpec::default() };
        assert_eq!(flags("").differences(Some(&patient)), []);
        assert_eq!(flags("--timeout 1m --grace-period -1").differences(Some(&patient)), []);
        assert_eq!(flags("--force").differences(None), []);
        assert_eq!(
            flags("--timeout 2m --force").differences(Some(&patient)),
            [("timeoutSeconds", json!(60), json!(120)), ("force", json!(false), json!(true))]
        );
    }
}
