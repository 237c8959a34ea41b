//! Which pods of a node to evict: the filters of `kubectl drain`, in its order.
//!
//! The first filter that excludes a pod decides. Unlike kubectl, which keeps only the last warning, a pod keeps all of its
//! warnings. And unlike kubectl, which evicts finished pods of a `DaemonSet` and does not look again, they stay: their
//! `DaemonSet` replaces them on the same node, so a drain that lasts would meet another one each time.
//! Source: kubernetes/kubectl `pkg/drain/filters.go`, v0.34.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::maintenance::DrainSpec;
use crate::api::names::ROLL_LABEL;
use crate::api::pod_selector::PodSelector;
use crate::api::status::BlockReason;
use crate::cluster::pod::{self, DrainPod};

/// What to do with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Evict it.
    Evict,
    /// Wait until it is known whether it has to stay.
    Wait,
    /// The pod stays, and the drain does not wait for it.
    Stay(StayReason),
    /// Wait until the pod terminates on its own, for as long as `waitForCompletion` allows.
    AwaitCompletion,
    /// The pod stays because of the drain spec, or because it keeps returning without tolerating the cordon. The drain waits for it.
    Block(BlockReason),
}

/// Why a pod may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayReason {
    /// The owner put the pod back on the node in place of another pod, and the pod tolerates the cordon.
    Returned,
    /// The pod has been terminating for longer than `skipWaitForDeleteTimeoutSeconds`.
    TerminatingTooLong,
    /// The `DaemonSet` of the pod would recreate it at once.
    DaemonSet,
    /// The pod is a mirror pod, which the kubelet runs from a file.
    Mirror,
    /// `podSelector` excludes it.
    NotSelected,
}

impl StayReason {
    /// Why the pod stays, in words.
    pub const fn word(self) -> &'static str {
        match self {
            Self::DaemonSet => "managed by a DaemonSet",
            Self::Mirror => "static pod",
            Self::NotSelected => "not matched by podSelector",
            Self::TerminatingTooLong => "terminating for longer than skipWaitForDeleteTimeoutSeconds",
            Self::Returned => "came to the node after the cordon, which it tolerates",
        }
    }
}

/// A warning about the eviction of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Warning {
    /// The pod stays, because a `DaemonSet` controls it.
    IgnoringDaemonSetPods,
    /// The `DaemonSet` of the pod is gone, so the pod is evicted like any other pod.
    OrphanedFromDaemonSet,
    /// The emptyDir data of the pod is deleted.
    LocalStorage,
    /// No controller replaces it.
    Unmanaged,
}

impl Warning {
    /// The sentence of `kubectl drain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IgnoringDaemonSetPods => "ignoring DaemonSet-managed Pods",
            Self::OrphanedFromDaemonSet => "deleting Pods whose DaemonSet is gone",
            Self::LocalStorage => "deleting Pods with local storage",
            Self::Unmanaged => "deleting Pods that declare no controller",
        }
    }
}

/// A pod and its verdict.
#[derive(Debug, Clone)]
pub struct PlannedPod {
    /// The pod.
    pub pod: Arc<DrainPod>,
    /// What to do with it.
    pub verdict: Verdict,
    /// Warnings about its eviction.
    pub warnings: Vec<Warning>,
}

impl StayReason {
    /// Whether a pod that stays for this reason runs on only because of `podSelector`, and not for the action of a roll.
    pub fn leaves_out(self, pod: &DrainPod) -> bool {
        self == Self::NotSelected
            && pod.deletion.is_none()
            && !(pod::is_finished(pod) || pod::is_mirror(pod) || pod::daemon_set(pod).is_some())
            && !pod.labels.contains_key(ROLL_LABEL)
    }
}

/// The `DaemonSet`s of the cluster.
#[derive(Debug, Clone, Default)]
pub struct DaemonSets {
    /// The namespace and name of each `DaemonSet`.
    pub names: HashSet<(String, String)>,
    /// Whether there may be more than are known. Then none counts as gone, because its pods would be recreated at once.
    pub incomplete: bool,
    /// Whether the watch is interrupted, so that others may have been created since. Then pods of unknown ones are not evicted
    /// until it continues.
    pub interrupted: bool,
}

impl DaemonSets {
    /// The `DaemonSet`s of a complete list.
    pub fn listed<'a>(all: impl IntoIterator<Item = &'a ObjectMeta>) -> Self {
        let name = |set: &ObjectMeta| {
            (set.namespace.clone().unwrap_or_default(), set.name.clone().unwrap_or_default())
        };
        Self { names: all.into_iter().map(name).collect(), ..Self::default() }
    }

    fn may_exist(&self, namespace: &str, name: &str) -> bool {
        self.incomplete || self.names.contains(&(namespace.to_owned(), name.to_owned()))
    }
}

/// The verdicts on all pods of a node, sorted by namespace and name.
#[derive(Debug, Clone, Default)]
pub struct DrainPlan {
    /// One entry for each pod.
    pub pods: Vec<PlannedPod>,
    /// The time at which completing pods are evicted like any other pod; none if they never are.
    pub completion_ends: Option<Timestamp>,
    /// `skipWaitForDeleteTimeoutSeconds`.
    skip_timeout: SignedDuration,
}

/// A selector in `spec.drain` is not valid.
#[derive(Debug, Clone, thiserror::Error)]
#[error("spec.drain.{field}: {error}")]
pub struct InvalidSelector {
    field: &'static str,
    error: String,
}

/// Whether the selector in a field of `spec.drain` is valid.
pub(super) fn validate(field: &'static str, selector: Option<&PodSelector>) -> Result<(), InvalidSelector> {
    let validated = selector.map_or(Ok(()), PodSelector::validate);
    validated.map_err(|error| InvalidSelector { field, error: error.to_owned() })
}

impl DrainPlan {
    /// Determines the verdict on every pod.
    ///
    /// # Errors
    /// If `podSelector` is not a valid selector. Then no pod may be evicted, because it could be the wrong one.
    pub fn new(
        pods: impl IntoIterator<Item = Arc<DrainPod>>,
        spec: &DrainSpec,
        daemon_sets: &DaemonSets,
        now: Timestamp,
    ) -> Result<Self, InvalidSelector> {
        let filters = PodFilters::new(spec, daemon_sets, now)?;
        let planned = |pod: Arc<DrainPod>| {
            let (verdict, warnings) = filters.judge(&pod);
            PlannedPod { pod, verdict, warnings }
        };
        let mut pods: Vec<PlannedPod> = pods.into_iter().map(planned).collect();
        pods.sort_by(|one, other| by_name(&one.pod).cmp(&by_name(&other.pod)));
        let skip_timeout = SignedDuration::from_secs(spec.skip_wait_for_delete_timeout_seconds);
        Ok(Self { pods, completion_ends: None, skip_timeout })
    }

    /// When a verdict changes without an event: a terminating pod is skipped after a timeout, and a pod is no longer left to
    /// end by itself.
    pub fn next_change(&self, spec: &DrainSpec, now: Timestamp) -> Option<Timestamp> {
        let timeout = SignedDuration::from_secs(spec.skip_wait_for_delete_timeout_seconds);
        let skipped_at = |planned: &PlannedPod| {
            let past = timeout.saturating_add(SignedDuration::from_millis(1));
            pod::deadline(&planned.pod)?.saturating_add(past).ok()
        };
        let skipped = self.pending().filter(|_| !timeout.is_zero()).filter_map(skipped_at);
        let completes = |planned: &PlannedPod| planned.verdict == Verdict::AwaitCompletion;
        let evicted = self.completion_ends.filter(|_| self.pods.iter().any(completes));
        skipped.chain(evicted).filter(|at| *at > now).min()
    }

    /// How many pods were waited for at that time and no longer are, because they have been terminating for too long.
    pub fn given_up_since(&self, at: Timestamp) -> usize {
        let is_given_up = |planned: &&PlannedPod| {
            planned.verdict == Verdict::Stay(StayReason::TerminatingTooLong)
                && pod::overdue(&planned.pod, at).is_some_and(|overdue| overdue <= self.skip_timeout)
        };
        self.pods.iter().filter(is_given_up).count()
    }

    /// The pods that the drain waits for.
    pub fn pending(&self) -> impl Iterator<Item = &PlannedPod> {
        self.pods.iter().filter(|planned| !matches!(planned.verdict, Verdict::Stay(_)))
    }

    /// Lets pods stay that were put back on the node. Those that the spec does not move stay too: they were deleted once.
    pub fn keep_returned(&mut self, is_returned: impl Fn(&DrainPod) -> bool) {
        let would_leave = |planned: &&mut PlannedPod| {
            matches!(planned.verdict, Verdict::Evict | Verdict::Block(BlockReason::LocalStorage))
        };
        for planned in self.pods.iter_mut().filter(would_leave) {
            if is_returned(&planned.pod) {
                planned.verdict = Verdict::Stay(StayReason::Returned);
            }
        }
    }

    /// Blocks pods that keep returning.
    pub fn block_returning(&mut self, keeps_returning: impl Fn(&DrainPod) -> bool) {
        for planned in self.pods.iter_mut().filter(|planned| planned.verdict == Verdict::Evict) {
            if keeps_returning(&planned.pod) {
                planned.verdict = Verdict::Block(BlockReason::KeepsReturning);
            }
        }
    }
}

/// The sort key of a pod.
fn by_name(pod: &DrainPod) -> (&str, &str) {
    let names = pod::names(pod);
    (names.namespace, names.name)
}

/// The filters of a drain: the verdict on any pod.
#[derive(Debug)]
pub struct PodFilters<'a> {
    spec: &'a DrainSpec,
    daemon_sets: &'a DaemonSets,
    now: Timestamp,
}

/// One filter; it may add warnings, and decides if it returns a verdict.
type PodFilter<'a> = fn(&PodFilters<'a>, &DrainPod, &mut Vec<Warning>) -> Option<Verdict>;

impl<'a> PodFilters<'a> {
    /// The filters for a drain spec.
    ///
    /// # Errors
    /// If `podSelector` is not a valid selector. Then no pod may be evicted, because it could be the wrong one.
    pub fn new(
        spec: &'a DrainSpec,
        daemon_sets: &'a DaemonSets,
        now: Timestamp,
    ) -> Result<Self, InvalidSelector> {
        validate("podSelector", spec.pod_selector.as_ref())?;
        Ok(Self { spec, daemon_sets, now })
    }

    /// The verdict on a pod, and the warnings about its eviction.
    pub fn judge(&self, pod: &DrainPod) -> (Verdict, Vec<Warning>) {
        let filters: [PodFilter<'a>; 6] = [
            Self::selected,
            Self::terminating_too_long,
            Self::daemon_set,
            Self::mirror,
            Self::local_storage,
            Self::unmanaged,
        ];
        let mut warnings = Vec::new();
        let verdict = filters.iter().find_map(|filter| filter(self, pod, &mut warnings));
        (verdict.unwrap_or(Verdict::Evict), warnings)
    }

    fn selected(&self, pod: &DrainPod, _: &mut Vec<Warning>) -> Option<Verdict> {
        let selector = self.spec.pod_selector.as_ref();
        let is_selected = selector.is_none_or(|selector| selector.matches(&pod.labels));
        (!is_selected).then_some(Verdict::Stay(StayReason::NotSelected))
    }

    fn terminating_too_long(&self, pod: &DrainPod, _: &mut Vec<Warning>) -> Option<Verdict> {
        let timeout = self.spec.skip_wait_for_delete_timeout_seconds;
        let overdue = pod::overdue(pod, self.now)?;
        (timeout > 0 && overdue > SignedDuration::from_secs(timeout))
            .then_some(Verdict::Stay(StayReason::TerminatingTooLong))
    }

    fn daemon_set(&self, pod: &DrainPod, warnings: &mut Vec<Warning>) -> Option<Verdict> {
        let daemon_set = pod::daemon_set(pod)?;
        // In whatever phase: the DaemonSet itself deletes a pod that has failed, and replaces it.
        if self.daemon_sets.may_exist(pod::names(pod).namespace, &daemon_set.name) {
            warnings.push(Warning::IgnoringDaemonSetPods);
            return Some(Verdict::Stay(StayReason::DaemonSet));
        }
        if self.daemon_sets.interrupted {
            return Some(Verdict::Wait);
        }
        if pod::is_finished(pod) {
            return None;
        }
        warnings.push(Warning::OrphanedFromDaemonSet);
        (!self.spec.force).then_some(Verdict::Block(BlockReason::Unmanaged))
    }

    fn mirror(_: &Self, pod: &DrainPod, _: &mut Vec<Warning>) -> Option<Verdict> {
        pod::is_mirror(pod).then_some(Verdict::Stay(StayReason::Mirror))
    }

    fn local_storage(&self, pod: &DrainPod, warnings: &mut Vec<Warning>) -> Option<Verdict> {
        if !pod.has_empty_dir || pod::is_finished(pod) {
            return None;
        }
        warnings.push(Warning::LocalStorage);
        (!self.spec.delete_empty_dir_data).then_some(Verdict::Block(BlockReason::LocalStorage))
    }

    fn unmanaged(&self, pod: &DrainPod, warnings: &mut Vec<Warning>) -> Option<Verdict> {
        if pod::controller(pod).is_some() || pod::is_finished(pod) {
            return None;
        }
        warnings.push(Warning::Unmanaged);
        (!self.spec.force).then_some(Verdict::Block(BlockReason::Unmanaged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(extra: Value) -> Arc<DrainPod> {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u", "labels": {"app": "a"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": true}]},
            "spec": {"containers": []}, "status": {"phase": "Running"},
        });
        json_merge(&mut pod, extra);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn json_merge(target: &mut Value, patch: Value) {
        match (target, patch) {
            (Value::Object(target), Value::Object(patch)) => {
                for (key, value) in patch {
                    json_merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
            (target, patch) => *target = patch,
        }
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true}])
    }

    #[expect(clippy::needless_pass_by_value, reason = "one-line cases")]
    fn check(extra: Value, spec: &DrainSpec, verdict: Verdict, warnings: &[Warning]) {
        let names = [("ns".to_owned(), "ds".to_owned())].into();
        let daemon_sets = DaemonSets { names, ..DaemonSets::default() };
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let plan = DrainPlan::new([pod(extra.clone())], spec, &daemon_sets, now).unwrap();
        assert_eq!((plan.pods[0].verdict, plan.pods[0].warnings.as_slice()), (verdict, warnings), "{extra}");
    }

    const EVICT: Verdict = Verdict::Evict;

    // Defect kubernetes/kubernetes#31252, kubernetes/kubernetes#41864: Pods whose controller was deleted fail the
    // drain, although it is forced.
    #[test]
    fn by_default_everything_goes_but_daemon_sets_and_mirror_pods() {
        let spec = DrainSpec::default();
        let empty_dir = json!([{"name": "v", "emptyDir": {}}]);
        check(json!({}), &spec, EVICT, &[]);
        check(json!({"metadata": {"ownerReferences": []}}), &spec, EVICT, &[Warning::Unmanaged]);
        check(json!({"spec": {"volumes": empty_dir}}), &spec, EVICT, &[Warning::LocalStorage]);
        check(
            json!({"spec": {"volumes": empty_dir}, "metadata": {"ownerReferences": []}}),
            &spec,
            EVICT,
            &[Warning::LocalStorage, Warning::Unmanaged],
        );
        let ds = json!({"metadata": {"ownerReferences": owner("DaemonSet", "ds")}});
        check(ds, &spec, Verdict::Stay(StayReason::DaemonSet), &[Warning::IgnoringDaemonSetPods]);
        let orphan = json!({"metadata": {"ownerReferences": owner("DaemonSet", "other")}});
        check(orphan, &spec, EVICT, &[Warning::OrphanedFromDaemonSet]);
        let mirror = json!({"metadata": {"annotations": {MIRROR: "x"}, "ownerReferences": []}});
        check(mirror, &spec, Verdict::Stay(StayReason::Mirror), &[]);
    }

    const MIRROR: &str = "kubernetes.io/config.mirror";

    // Defect kubernetes/kubernetes#26080, aws/karpenter-provider-aws#2255: A finished pod blocks the drain.
    #[test]
    fn finished_pods_are_evicted_whatever_they_are() {
        let spec = DrainSpec { force: false, delete_empty_dir_data: false, ..DrainSpec::default() };
        for phase in ["Succeeded", "Failed"] {
            check(
                json!({"status": {"phase": phase}, "metadata": {"ownerReferences": []}}),
                &spec,
                EVICT,
                &[],
            );
            check(
                json!({"status": {"phase": phase}, "metadata": {"ownerReferences": owner("DaemonSet", "other")}}),
                &spec,
                EVICT,
                &[],
            );
            let volumes = json!([{"name": "v", "emptyDir": {}}]);
            check(json!({"status": {"phase": phase}, "spec": {"volumes": volumes}}), &spec, EVICT, &[]);
        }
    }

    #[test]
    fn pods_of_a_daemon_set_stay_in_whatever_phase() {
        for phase in ["Pending", "Running", "Succeeded", "Failed"] {
            check(
                json!({"status": {"phase": phase}, "metadata": {"ownerReferences": owner("DaemonSet", "ds")}}),
                &DrainSpec::default(),
                Verdict::Stay(StayReason::DaemonSet),
                &[Warning::IgnoringDaemonSetPods],
            );
        }
    }

    #[test]
    fn what_the_spec_forbids_blocks() {
        let gentle = DrainSpec { force: false, ..DrainSpec::default() };
        let unmanaged = Verdict::Block(BlockReason::Unmanaged);
        check(json!({"metadata": {"ownerReferences": []}}), &gentle, unmanaged, &[Warning::Unmanaged]);
        let orphan = json!({"metadata": {"ownerReferences": owner("DaemonSet", "other")}});
        check(orphan, &gentle, unmanaged, &[Warning::OrphanedFromDaemonSet]);
        let careful = DrainSpec { delete_empty_dir_data: false, ..DrainSpec::default() };
        let volumes = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        check(volumes, &careful, Verdict::Block(BlockReason::LocalStorage), &[Warning::LocalStorage]);
    }

    #[test]
    fn a_pod_that_terminates_for_too_long_is_not_waited_for() {
        let spec = DrainSpec { skip_wait_for_delete_timeout_seconds: 60, ..DrainSpec::default() };
        let since = |time: &str| json!({"metadata": {"deletionTimestamp": time}});
        check(since("2026-01-01T00:58:59Z"), &spec, Verdict::Stay(StayReason::TerminatingTooLong), &[]);
        check(since("2026-01-01T00:59:00Z"), &spec, EVICT, &[]);
        check(since("2026-01-01T00:00:00Z"), &DrainSpec::default(), EVICT, &[]);
    }

    #[test]
    fn the_end_of_that_patience_is_known_beforehand() {
        let spec = DrainSpec { skip_wait_for_delete_timeout_seconds: 300, ..DrainSpec::default() };
        let stuck = pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:58:00Z"}}));
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let plan = DrainPlan::new([stuck], &spec, &DaemonSets::default(), now).unwrap();
        let next = plan.next_change(&spec, now).unwrap();
        assert_eq!(next.duration_since(now).as_millis(), 180_001);
        assert_eq!(plan.next_change(&DrainSpec::default(), now), None);
    }

    #[test]
    fn no_daemon_set_counts_as_gone_while_not_all_are_known() {
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let ds = pod(json!({"metadata": {"ownerReferences": owner("DaemonSet", "new")}}));
        let plan = DrainPlan::new([ds], &DrainSpec::default(), &daemon_sets, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(plan.pods[0].verdict, Verdict::Stay(StayReason::DaemonSet));
    }

    #[test]
    fn a_daemon_set_that_is_not_known_while_the_watch_is_interrupted_may_be_new() {
        let names = [("ns".to_owned(), "ds".to_owned())].into();
        let daemon_sets = DaemonSets { names, interrupted: true, ..DaemonSets::default() };
        let verdict = |pod| {
            let gentle = DrainSpec { force: false, ..DrainSpec::default() };
            let plan = DrainPlan::new([pod], &gentle, &daemon_sets, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(plan.pending().count(), usize::from(plan.pods[0].verdict == Verdict::Wait));
            plan.pods[0].verdict
        };
        let of = |name: &str| pod(json!({"metadata": {"ownerReferences": owner("DaemonSet", name)}}));
        assert_eq!(verdict(of("ds")), Verdict::Stay(StayReason::DaemonSet));
        assert_eq!(verdict(of("new")), Verdict::Wait);
    }

    #[test]
    fn pods_outside_the_selector_stay_and_a_bad_selector_moves_nobody() {
        let spec = |selector: Value| -> DrainSpec {
            serde_json::from_value(json!({"podSelector": selector})).unwrap()
        };
        check(json!({}), &spec(json!({"matchLabels": {"app": "a"}})), EVICT, &[]);
        let skip = Verdict::Stay(StayReason::NotSelected);
        check(json!({}), &spec(json!({"matchLabels": {"app": "b"}})), skip, &[]);
        let bad = spec(json!({"matchExpressions": [{"key": "app", "operator": "Near"}]}));
        assert!(
            DrainPlan::new([pod(json!({}))], &bad, &DaemonSets::default(), Timestamp::UNIX_EPOCH).is_err()
        );
    }
}
