//! The flags that set `spec.drain`, named as in `kubectl drain` where that has them.
//!
//! A flag that is not given leaves its field alone: a new maintenance gets the default, and an existing maintenance may have
//! any value. Requested and existing values are compared field by field.

use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use nm_shared::api::pod_selector::PodSelector;
use nm_shared::cluster::selector;
use nm_shared::{
    Autoscalers, CompletionSpec, DrainOrder, DrainSpec, LoadBalancers, OnDetachTimeout, ReturningPods,
    SurgePolicy, WaitForVolumeDetach,
};
use serde_json::Value;

use crate::args::{at_least, duration, parse_boolean};

/// The flags that set `spec.drain`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Drain")]
pub struct DrainFlags {
    /// Grace period of each pod, in seconds; -1, the default, uses the pod's own. 0 deletes pods at once, and their
    /// containers may still run when the node is reported as drained
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
        value_parser = at_least::<i64>(-1))]
    grace_period: Option<i64>,

    /// Time limit of the drain, such as 30s or 1h30m; 0, the default, means none. When it expires, the maintenance fails
    /// and the node stays cordoned. With --wait, it limits the wait too; for a node that is already in maintenance, it
    /// limits only the wait
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Evict only pods whose labels match, such as app=web,!canary. An empty selector matches all, as in kubectl drain
    #[arg(long, value_name = "SELECTOR", value_parser = selector::parse)]
    pod_selector: Option<LabelSelector>,

    /// Evict pods that no controller recreates. The default is true; with --force=false they block the drain
    #[arg(long, value_name = "BOOL", value_parser = parse_boolean, num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    force: Option<bool>,

    /// Evict pods with emptyDir volumes, whose data is lost. The default is true; with false they block the drain
    #[arg(long = "delete-emptydir-data", value_name = "BOOL", value_parser = parse_boolean, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    delete_empty_dir_data: Option<bool>,

    /// Delete a pod whose eviction has been refused for this long, regardless of disruption budgets. 0, the default, means
    /// never. nm-reconciler needs a permission for it: `kubectl nm install --grant pod-deletion`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    delete_after: Option<Duration>,

    /// The order in which pods are evicted
    #[arg(long, value_name = "ORDER", ignore_case = true)]
    order: Option<OrderFlag>,

    /// After the last pod is gone, wait until its volumes are detached from the node; with a duration, for no longer than
    /// that. nm-reconciler needs a permission for it: `kubectl nm install --grant volume-detach`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, num_args = 0..=1, require_equals = true,
        default_missing_value = "0")]
    wait_for_volume_detach: Option<Duration>,

    /// What happens to the maintenance if volumes are still attached after that time
    #[arg(long, value_name = "OUTCOME", ignore_case = true, requires = "wait_for_volume_detach")]
    on_detach_timeout: Option<OnDetachTimeoutFlag>,

    /// Wait until the pods of Jobs terminate on their own instead of evicting them; with a selector, wait for the pods
    /// whose labels match instead. Other pods are evicted meanwhile
    #[arg(long, value_name = "SELECTOR", value_parser = parse_completion, num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "no flag, the flag alone, and the flag with a selector")]
    wait_for_completion: Option<Option<LabelSelector>>,

    /// Time limit for --wait-for-completion, measured from the cordon, such as 2h; then the pods are evicted. 0, the
    /// default, means no limit
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "wait_for_completion")]
    completion_timeout: Option<Duration>,

    /// Replace a pod of a Deployment first if its disruption budget never allows its eviction: the Deployment is
    /// restarted, as by kubectl rollout restart, and terminates the pod once its replacement is Ready. nm-reconciler
    /// needs a permission for it: `kubectl nm install --grant surge`
    #[arg(long, value_name = "WHEN", ignore_case = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "WhenBlocked")]
    surge: Option<SurgeFlag>,

    /// How to treat a pod that its owner recreates on the node because it tolerates the taints of the maintenance
    #[arg(long, value_name = "WHAT", ignore_case = true)]
    returning_pods: Option<ReturningPodsFlag>,

    /// Take the node out of load balancers outside the cluster: label the node, and wait this long, by default 30s,
    /// before the first eviction
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, num_args = 0..=1, require_equals = true,
        default_missing_value = "30s")]
    exclude_from_load_balancers: Option<Duration>,

    /// Whether the Kubernetes Cluster Autoscaler and Karpenter may remove the node during the maintenance
    #[arg(long, value_name = "WHAT", ignore_case = true)]
    autoscalers: Option<AutoscalersFlag>,
}

/// The values of `--autoscalers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AutoscalersFlag {
    /// They may, the default
    #[value(name = "Ignore")]
    Ignore,
    /// They may not, and the node is annotated; the default of a roll
    #[value(name = "Protect")]
    Protect,
}

/// The values of `--returning-pods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReturningPodsFlag {
    /// It stays, the default
    #[value(name = "Stay")]
    Stay,
    /// It is evicted again, and blocks the drain after the third time
    #[value(name = "Wait")]
    Wait,
}

/// The values of `--on-detach-timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDetachTimeoutFlag {
    /// It succeeds with a warning, the default
    #[value(name = "Succeed")]
    Succeed,
    /// It fails
    #[value(name = "Fail")]
    Fail,
}

/// The values of `--surge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SurgeFlag {
    /// Pods are only evicted, the default
    #[value(name = "Never")]
    Never,
    /// Pods whose budget never allows their eviction are replaced first
    #[value(name = "WhenBlocked")]
    WhenBlocked,
}

/// The values of `--order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderFlag {
    /// All pods at the same time, the default
    #[value(name = "None")]
    None,
    /// One priority class after another, the lowest first; storage plugins after the pods that mount volumes
    #[value(name = "PriorityAscending")]
    PriorityAscending,
}

impl DrainFlags {
    /// Time limit of the drain from `--timeout`; `None` if the flag is not given or is 0.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.filter(|timeout| !timeout.is_zero())
    }

    pub(crate) fn without_timeout(&self) -> Self {
        Self { timeout: None, ..self.clone() }
    }

    /// The `spec.drain` of a new maintenance; `None` if no flag is given.
    pub fn spec(&self) -> Option<DrainSpec> {
        let default = DrainSpec::default();
        let spec = DrainSpec {
            grace_period_seconds: self.grace_period.unwrap_or(default.grace_period_seconds),
            timeout_seconds: self.timeout.map_or(default.timeout_seconds, seconds),
            pod_selector: self
                .pod_selector
                .clone()
                .filter(|selector| *selector != LabelSelector::default())
                .map(PodSelector::from),
            force: self.force.unwrap_or(default.force),
            delete_empty_dir_data: self.delete_empty_dir_data.unwrap_or(default.delete_empty_dir_data),
            delete_after_seconds: self.delete_after.map_or(default.delete_after_seconds, seconds),
            order: match self.order {
                Some(OrderFlag::PriorityAscending) => DrainOrder::PriorityAscending,
                Some(OrderFlag::None) | None => DrainOrder::None,
            },
            wait_for_volume_detach: self.wait_for_volume_detach.map(|timeout| WaitForVolumeDetach {
                timeout_seconds: seconds(timeout),
                on_timeout: match self.on_detach_timeout {
                    Some(OnDetachTimeoutFlag::Fail) => OnDetachTimeout::Fail,
                    Some(OnDetachTimeoutFlag::Succeed) | None => OnDetachTimeout::Succeed,
                },
            }),
            wait_for_completion: self.wait_for_completion.clone().map(|pod_selector| CompletionSpec {
                pod_selector: pod_selector.map(PodSelector::from),
                timeout_seconds: self.completion_timeout.map_or(0, seconds),
            }),
            surge: match self.surge {
                Some(SurgeFlag::WhenBlocked) => SurgePolicy::WhenBlocked,
                Some(SurgeFlag::Never) | None => SurgePolicy::Never,
            },
            returning_pods: match self.returning_pods {
                Some(ReturningPodsFlag::Wait) => ReturningPods::Wait,
                Some(ReturningPodsFlag::Stay) | None => ReturningPods::Stay,
            },
            load_balancers: self
                .exclude_from_load_balancers
                .map(|delay| LoadBalancers { exclude: true, delay_seconds: seconds(delay) }),
            autoscalers: match self.autoscalers {
                Some(AutoscalersFlag::Protect) => Autoscalers::Protect,
                Some(AutoscalersFlag::Ignore) | None => Autoscalers::Ignore,
            },
            ..default
        };
        (!self.given().is_empty()).then_some(spec)
    }

    /// Whether a flag says what becomes of autoscalers.
    pub fn decides_about_autoscalers(&self) -> bool {
        self.autoscalers.is_some()
    }

    /// The same as [`Self::spec`], with autoscalers kept off the node unless a flag says otherwise.
    pub fn protected_spec(&self) -> DrainSpec {
        let spec = self.spec().unwrap_or_default();
        let decides = self.decides_about_autoscalers();
        let autoscalers = if decides { spec.autoscalers } else { Autoscalers::Protect };
        DrainSpec { autoscalers, ..spec }
    }

    /// The fields in which an existing drain differs from the flags: name, existing value, requested value.
    pub(crate) fn differences(&self, existing: Option<&DrainSpec>) -> Vec<(&'static str, Value, Value)> {
        let value =
            |spec: Option<DrainSpec>| serde_json::to_value(spec.unwrap_or_default()).unwrap_or_default();
        let (existing, requested) = (value(existing.cloned()), value(self.spec()));
        let differing = self.given().into_iter().filter(|field| existing[field] != requested[field]);
        differing.map(|field| (field, existing[field].clone(), requested[field].clone())).collect()
    }

    fn given(&self) -> Vec<&'static str> {
        let fields = [
            (self.grace_period.is_some(), "gracePeriodSeconds"),
            (self.timeout.is_some(), "timeoutSeconds"),
            (self.pod_selector.is_some(), "podSelector"),
            (self.force.is_some(), "force"),
            (self.delete_empty_dir_data.is_some(), "deleteEmptyDirData"),
            (self.delete_after.is_some(), "deleteAfterSeconds"),
            (self.order.is_some(), "order"),
            (self.wait_for_volume_detach.is_some(), "waitForVolumeDetach"),
            (self.wait_for_completion.is_some(), "waitForCompletion"),
            (self.surge.is_some(), "surge"),
            (self.returning_pods.is_some(), "returningPods"),
            (self.exclude_from_load_balancers.is_some(), "loadBalancers"),
            (self.autoscalers.is_some(), "autoscalers"),
        ];
        fields.into_iter().filter(|(given, _)| *given).map(|(_, field)| field).collect()
    }
}

/// A selector. As a label, `true` would match no pod, and those of Jobs would be evicted.
fn parse_completion(text: &str) -> Result<LabelSelector, String> {
    if matches!(text, "true" | "false") {
        return Err(String::from(
            "it is a label selector; without a value, the flag makes the drain wait for the pods of Jobs",
        ));
    }
    selector::parse(text)
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> i64 {
    let partial = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(partial)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        flags: DrainFlags,
    }

    fn flags(line: &str) -> DrainFlags {
        TestCommand::try_parse_from(std::iter::once("nm").chain(line.split_whitespace())).unwrap().flags
    }

    #[test]
    fn flags_set_fields_and_other_fields_have_their_defaults() {
        assert_eq!(flags("").spec(), None);
        let all = "--grace-period 30 --timeout 90s --pod-selector app=web --force=false --delete-emptydir-data=0 \
            --delete-after 1500ms --order priorityascending --surge --returning-pods wait";
        assert_eq!(
            serde_json::to_value(flags(all).spec()).unwrap(),
            json!({"gracePeriodSeconds": 30, "timeoutSeconds": 90, "podSelector": {"matchLabels": {"app": "web"}},
                "force": false, "deleteEmptyDirData": false, "skipWaitForDeleteTimeoutSeconds": 0,
                "deleteAfterSeconds": 2, "order": "PriorityAscending", "surge": "WhenBlocked",
                "returningPods": "Wait", "autoscalers": "Ignore"})
        );
        for same in [
            "--force",
            "--force=true",
            "--grace-period=-1",
            "--timeout 0",
            "--order None",
            "--pod-selector=",
            "--surge=never",
            "--returning-pods Stay",
        ] {
            assert_eq!(flags(same).spec(), Some(DrainSpec::default()), "{same}");
        }
    }

    #[test]
    fn volumes_are_waited_for_with_and_without_a_limit() {
        let wait = |line: &str| flags(line).spec().unwrap().wait_for_volume_detach.unwrap();
        let of = |timeout_seconds, on_timeout| WaitForVolumeDetach { timeout_seconds, on_timeout };
        assert_eq!(wait("--wait-for-volume-detach"), of(0, OnDetachTimeout::Succeed));
        let fails = "--wait-for-volume-detach=5m --on-detach-timeout fail";
        assert_eq!(wait(fails), of(300, OnDetachTimeout::Fail));
        let alone = TestCommand::try_parse_from(["nm", "--on-detach-timeout", "Fail"]);
        assert!(alone.is_err(), "without the wait it has no effect");
        let existing =
            DrainSpec { wait_for_volume_detach: Some(of(300, OnDetachTimeout::Fail)), ..Default::default() };
        assert_eq!(flags(fails).differences(Some(&existing)), []);
        assert_eq!(flags("--wait-for-volume-detach").differences(Some(&existing)).len(), 1);
    }

    #[test]
    fn the_pods_to_wait_for_are_those_of_jobs_or_those_of_a_selector() {
        let completion = |line: &str| json!(flags(line).spec().unwrap().wait_for_completion);
        let jobs = json!({"timeoutSeconds": 0});
        assert_eq!(completion("--wait-for-completion"), jobs);
        let batch = json!({"podSelector": {"matchLabels": {"tier": "batch"}}, "timeoutSeconds": 7200});
        assert_eq!(completion("--wait-for-completion=tier=batch --completion-timeout 2h"), batch);
        assert_eq!(completion("--wait-for-completion="), json!({"podSelector": {}, "timeoutSeconds": 0}));
        let refused = |line: &str| {
            let words = std::iter::once("nm").chain(line.split_whitespace());
            TestCommand::try_parse_from(words).map(|_| ()).unwrap_err().to_string()
        };
        let missing = refused("--completion-timeout 2h");
        assert!(missing.contains("--wait-for-completion"), "{missing}");
        assert!(refused("--wait-for-completion=a,(").contains("parenthesis"));
        let waits = flags("--wait-for-completion").spec();
        assert_eq!(flags("--wait-for-completion").differences(waits.as_ref()), []);
        assert_eq!(
            flags("--wait-for-completion --completion-timeout 1m").differences(waits.as_ref()),
            [("waitForCompletion", jobs, json!({"timeoutSeconds": 60}))]
        );
    }

    #[test]
    fn load_balancers_have_half_a_minute_unless_a_duration_is_given() {
        let balancers = |line: &str| json!(flags(line).spec().unwrap().load_balancers);
        assert_eq!(balancers("--exclude-from-load-balancers"), json!({"exclude": true, "delaySeconds": 30}));
        assert_eq!(balancers("--exclude-from-load-balancers=0"), json!({"exclude": true, "delaySeconds": 0}));
        assert_eq!(balancers("--autoscalers protect"), json!(null));
    }

    #[test]
    fn a_protected_node_is_kept_unless_a_flag_says_otherwise() {
        let protects = |line: &str| flags(line).protected_spec().autoscalers;
        assert_eq!(protects("--timeout 1m"), Autoscalers::Protect);
        assert_eq!(protects("--autoscalers Ignore"), Autoscalers::Ignore);
    }

    #[test]
    fn only_fields_of_given_flags_can_differ() {
        let limited = DrainSpec { timeout_seconds: 60, force: false, ..DrainSpec::default() };
        assert_eq!(flags("").differences(Some(&limited)), []);
        assert_eq!(flags("--timeout 1m --grace-period -1").differences(Some(&limited)), []);
        assert_eq!(flags("--force").differences(None), []);
        assert_eq!(
            flags("--timeout 2m --force").differences(Some(&limited)),
            [("timeoutSeconds", json!(60), json!(120)), ("force", json!(false), json!(true))]
        );
    }
}
