//! The transitions between two statuses of a maintenance: pods that became blocked or unblocked, and a finished drain.
//! They are derived from the status, which survives the process that wrote it, so a restart neither repeats nor loses one.

use jiff::{SignedDuration, Timestamp};

use crate::api::status::{BlockedPod, MAX_BLOCKED_PODS, NodeMaintenanceStatus, Phase};
use crate::api::suspension::{Suspension, paused_seconds};

/// What changed with a status.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusTransitions<'a> {
    /// Pods that became blocked, or blocked for another reason.
    pub blocked: Vec<&'a BlockedPod>,
    /// Pods that became unblocked.
    pub unblocked: Vec<&'a BlockedPod>,
    /// Whether the maintenance started to wait.
    pub waits: bool,
    /// The duration of the drain that finished, measured from the cordon, without pauses.
    pub drained_in: Option<SignedDuration>,
}

/// Compares a status with the one that it replaces at `now`.
pub fn transitions<'a>(
    before: &'a NodeMaintenanceStatus,
    after: &'a NodeMaintenanceStatus,
    now: Timestamp,
) -> StatusTransitions<'a> {
    let (old, new) = (&before.blocked_pods, &after.blocked_pods);
    let blocked = new.iter().filter(|pod| find(old, pod).is_none_or(|old| old.reason != pod.reason));
    // A full list says nothing about the pods after its end.
    let end = new.last().filter(|_| new.len() == MAX_BLOCKED_PODS).map(key);
    let listed = |pod: &BlockedPod| end.is_none_or(|end| key(pod) < end);
    let unblocked = old.iter().filter(|pod| find(new, pod).is_none() && listed(pod));
    // During a pause nothing is known of a pod that was refused before.
    let is_paused = Suspension::in_status(after) == Some(Suspension::Paused);
    let unblocked = if is_paused { Vec::new() } else { unblocked.collect() };
    let done = |status: &NodeMaintenanceStatus| status.phase == Some(Phase::Succeeded);
    let waits = |status: &NodeMaintenanceStatus| {
        status.phase == Some(Phase::Pending) && Suspension::in_status(status).is_none()
    };
    let paused = SignedDuration::from_secs(paused_seconds(after, now));
    let begun = after.begun_at().filter(|_| done(after) && !done(before));
    StatusTransitions {
        blocked: blocked.collect(),
        unblocked,
        waits: waits(after) && !waits(before),
        drained_in: begun.map(|begun| now.duration_since(begun) - paused),
    }
}

fn key(pod: &BlockedPod) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

fn find<'a>(pods: &'a [BlockedPod], pod: &BlockedPod) -> Option<&'a BlockedPod> {
    pods.iter().find(|other| key(other) == key(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate};
    use crate::api::status::{BlockFacts, BlockReason};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn blocked(names: &[(&str, BlockReason)]) -> NodeMaintenanceStatus {
        let pod = |(name, reason): &(&str, BlockReason)| BlockedPod {
            namespace: "shop".to_owned(),
            name: (*name).to_owned(),
            reason: *reason,
            message: String::new(),
            since: Time(at(0)),
            attempts: 1,
            facts: BlockFacts::default(),
        };
        let blocked_pods = names.iter().map(pod).collect();
        NodeMaintenanceStatus { blocked_pods, ..NodeMaintenanceStatus::default() }
    }

    fn names(pods: &[&BlockedPod]) -> Vec<String> {
        pods.iter().map(|pod| pod.name.clone()).collect()
    }

    #[test]
    fn a_pod_is_reported_when_it_becomes_blocked_changes_its_reason_or_becomes_unblocked() {
        use BlockReason::{AdmissionWebhook, DisruptionBudget};
        let names_of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let check =
            |before: &[(&str, BlockReason)], after: &[(&str, BlockReason)], new: &[&str], gone: &[&str]| {
                let (before, after) = (blocked(before), blocked(after));
                let found = transitions(&before, &after, at(9));
                assert_eq!((names(&found.blocked), names(&found.unblocked)), (names_of(new), names_of(gone)));
            };
        let (cart, till) = (("cart", DisruptionBudget), ("till", DisruptionBudget));
        check(&[], &[cart], &["cart"], &[]);
        check(&[cart], &[cart, till], &["till"], &[]);
        check(&[cart], &[("cart", AdmissionWebhook)], &["cart"], &[]);
        check(&[cart, till], &[till], &[], &["cart"]);
    }

    #[test]
    fn a_pod_that_a_full_list_leaves_out_is_not_unblocked() {
        let many: Vec<String> = (0..=MAX_BLOCKED_PODS).map(|index| format!("pod-{index:02}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), BlockReason::DisruptionBudget)).collect();
        // The first is new, and the last, blocked or not, falls off the end.
        let (before, after) = (blocked(&many[1..]), blocked(&many[..MAX_BLOCKED_PODS]));
        let found = transitions(&before, &after, at(9));
        assert_eq!((names(&found.blocked), names(&found.unblocked)), (vec!["pod-00".to_owned()], vec![]));
    }

    #[test]
    fn a_drain_is_measured_once_from_the_cordon() {
        let status = |phase| {
            let mut status = NodeMaintenanceStatus { phase: Some(phase), ..NodeMaintenanceStatus::default() };
            let cordoned = ConditionUpdate {
                type_: ConditionType::Cordoned,
                is_true: true,
                reason: ConditionReason::Cordoned,
                message: String::new(),
            };
            condition::record(&mut status.conditions, cordoned, None, at(10));
            status
        };
        let took = |before, after| transitions(&status(before), &status(after), at(52)).drained_in;
        assert_eq!(took(Phase::Running, Phase::Succeeded), Some(SignedDuration::from_secs(42)));
        assert_eq!(took(Phase::Failed, Phase::Succeeded), Some(SignedDuration::from_secs(42)));
        assert_eq!(took(Phase::Succeeded, Phase::Succeeded), None);
        assert_eq!(took(Phase::Running, Phase::Failed), None);
        let paused = NodeMaintenanceStatus { paused_seconds: Some(12), ..status(Phase::Succeeded) };
        let drained_in = transitions(&status(Phase::Running), &paused, at(52)).drained_in;
        assert_eq!(drained_in, Some(SignedDuration::from_secs(30)), "without pauses");
        let waits = |before, after| transitions(&status(before), &status(after), at(52)).waits;
        assert!(waits(Phase::Failed, Phase::Pending) && !waits(Phase::Pending, Phase::Pending));
    }
}
