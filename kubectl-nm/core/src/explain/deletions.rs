//! Pods that are deleted if their evictions are refused for long (`--delete-after`), which nm-reconciler needs a permission for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nm_shared::{BlockFacts, BlockReason, BlockedPod, BudgetFacts, Grant, NodeMaintenance, WaitReason};

use crate::args::duration;
use crate::maintenance::{blocked_pods, is_refused, waiting_pods};

/// Whether a pod is to be deleted, and nm-reconciler has no permission for that.
pub(super) fn is_denied(reason: BlockReason, facts: &BlockFacts) -> bool {
    reason == BlockReason::Forbidden
        && facts.forbidden.as_ref().and_then(Grant::of) == Some(Grant::PodDeletion)
}

/// Whether pods are to be deleted because their evictions are refused, and none of them was denied to be yet.
pub(super) fn are_awaited(maintenance: &NodeMaintenance) -> bool {
    let blocked = blocked_pods(maintenance);
    let is_denied = |pod: &BlockedPod| is_denied(pod.reason, &pod.facts);
    // Those that wait for their turn are deleted, too.
    let waits = waiting_pods(maintenance).iter().any(|pod| pod.reason == WaitReason::BudgetTurn);
    maintenance.spec.drain.as_ref().is_some_and(|drain| drain.delete_after_seconds > 0)
        && (waits || blocked.iter().any(is_refused))
        && !blocked.iter().any(is_denied)
}

/// The budget that refuses the eviction of a pod whose deletion instead (`--delete-after`) is refused as well, which is the reason
/// that the status has. The pod leaves once one of them is allowed.
pub(super) fn budget_of(reason: BlockReason, facts: &BlockFacts) -> Option<&BudgetFacts> {
    facts.budget.as_ref().filter(|_| reason != BlockReason::DisruptionBudget)
}

/// That pods are deleted if their evictions are refused for long, without a full stop; none if nobody asked for that, or if
/// nm-reconciler has no permission for it.
pub fn announced(maintenance: &NodeMaintenance) -> Option<String> {
    let seconds = maintenance.spec.drain.as_ref().map_or(0, |drain| drain.delete_after_seconds);
    let after = u64::try_from(seconds).ok().filter(|_| are_awaited(maintenance))?;
    let after = duration::show(Duration::from_secs(after));
    Some(format!(
        "A pod whose eviction has been refused for {after} is deleted, regardless of disruption budgets (--delete-after)"
    ))
}

/// When a pod is deleted whose eviction is refused since this time, unless it is allowed before.
pub(super) fn time(maintenance: &NodeMaintenance, since: Timestamp) -> Option<Timestamp> {
    let seconds = maintenance.spec.drain.as_ref()?.delete_after_seconds;
    since.checked_add(SignedDuration::from_secs(seconds)).ok()
}
