//! What a maintenance waits for as a whole, before its first eviction and before it returns its node.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::condition::{self, ConditionReason, ConditionType, whole_seconds};
use crate::api::hold::{Hold, Hook, MAX_HOOKS};
use crate::api::maintenance::{DrainSpec, NodeMaintenance};
use crate::api::status::NodeMaintenanceStatus;
use crate::decide::drain_status::is_counted;
use crate::drain::node_patch;
use crate::gate::ownership;

/// What the drain waits for before its first eviction; none if it may have evicted already. Then a new hook would come too
/// late. The status shows whether it waited until now: that it no longer does is stored before the first eviction. A definition
/// that prunes it does not show that, and hooks hold at any time.
pub fn before_eviction(
    maintenance: &NodeMaintenance,
    spec: &DrainSpec,
    excluded_since: Option<Timestamp>,
    prunes_details: bool,
    now: Timestamp,
) -> Option<Hold> {
    let before = maintenance.status.as_ref();
    let has_conditions = before.and_then(drained).is_some();
    let may_have_evicted = is_counted(before) && !is_held(before) && has_conditions && !prunes_details;
    if may_have_evicted {
        return None;
    }
    let cordoned = before.and_then(NodeMaintenanceStatus::begun_at);
    let since = cordoned.unwrap_or_else(|| whole_seconds(now).0);
    let delay = spec.load_balancers.filter(|balancers| balancers.exclude);
    // Who may write the record may not delay the drain for longer.
    let excluded_since = excluded_since.map_or(since, |at| whole_seconds(at.min(now)).0);
    let until = delay.and_then(|delay| {
        excluded_since.checked_add(SignedDuration::from_secs(delay.delay_seconds)).ok().filter(|at| *at > now)
    });
    let hooks = Hook::before_eviction(&maintenance.metadata);
    hold(since, hooks, until)
}

/// What the maintenance waits for before it returns the node: its own hooks if it has the node, and those of `others`, which
/// wait to return it. It would return the node for them, and has to be there if they cannot.
pub fn before_return(maintenance: &NodeMaintenance, node: &Node, others: &[Hook]) -> Option<Hold> {
    let since = maintenance.metadata.deletion_timestamp.as_ref()?.0;
    let own = hooks_of_return(maintenance, node);
    hold(since, own.into_iter().chain(others.iter().cloned()).take(MAX_HOOKS).collect(), None)
}

/// The hooks because of which a maintenance that is being deleted keeps its node.
pub fn hooks_of_return(maintenance: &NodeMaintenance, node: &Node) -> Vec<Hook> {
    let waits = maintenance.metadata.deletion_timestamp.is_some()
        && ownership::is_adopted(maintenance)
        && has_node(maintenance, node);
    if waits { Hook::before_return(&maintenance.metadata) } else { Vec::new() }
}

/// Whether there is a node to return: it is the one on which the maintenance has begun.
pub fn has_node(maintenance: &NodeMaintenance, node: &Node) -> bool {
    let is_recorded = node_patch::record_names(node, ownership::uid(maintenance));
    is_recorded || (ownership::has_begun(maintenance) && !ownership::is_of_another_node(maintenance, node))
}

/// Whether the status shows that the maintenance waits. A definition of an older version keeps only the conditions.
pub fn is_held(status: Option<&NodeMaintenanceStatus>) -> bool {
    use ConditionReason::{WaitingForHooks, WaitingForLoadBalancers};
    status.is_some_and(|status| {
        let reason = drained(status).and_then(ConditionReason::of);
        status.hold.is_some() || matches!(reason, Some(WaitingForHooks | WaitingForLoadBalancers))
    })
}

/// The condition `Drained`; none if the definition prunes conditions.
fn drained(status: &NodeMaintenanceStatus) -> Option<&Condition> {
    condition::find(&status.conditions, ConditionType::Drained)
}

fn hold(since: Timestamp, hooks: Vec<Hook>, until: Option<Timestamp>) -> Option<Hold> {
    let load_balancers_until = until.map(whole_seconds);
    (!hooks.is_empty() || until.is_some()).then(|| Hold {
        since: whole_seconds(since),
        hooks,
        load_balancers_until,
    })
}
