//! The plan for the pods of one maintenance: the verdicts of its drain spec, corrected for the time and for earlier evictions.

use jiff::Timestamp;

use crate::api::maintenance::{DrainSpec, NodeMaintenance, ReturningPods};
use crate::api::status::BlockReason;
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::drain_status::{completion_ends, deadline};
use crate::drain::plan::{DrainPlan, InvalidSelector};
use crate::drain::returning::{self, Returning};

/// The plan for the pods that were `observed`; none until they have been listed.
///
/// # Errors
/// If a selector in the spec is not valid.
pub fn drain_plan(
    maintenance: &NodeMaintenance,
    spec: &DrainSpec,
    observed: &ClusterState,
    now: Timestamp,
) -> Result<Option<DrainPlan>, InvalidSelector> {
    let Some(pods) = &observed.pods else { return Ok(None) };
    let mut plan = DrainPlan::new(pods.iter().cloned(), spec, &observed.daemon_sets, now)?;
    plan.await_completion(spec, completion_ends(maintenance, spec, now), now)?;
    // The time does not run during a pause, and a drain that has timed out evicts no pod.
    let times_out = deadline(maintenance, spec, now);
    plan.completion_ends = plan
        .completion_ends
        .filter(|ends| !maintenance.spec.suspend && times_out.is_none_or(|times_out| *ends < times_out));
    let Returning { returned, exhausted, .. } = &observed.returning;
    let is_exhausted =
        |pod: &DrainPod| exhausted.contains(pod::uid(pod)) || is_blocked_as_returning(maintenance, pod);
    if spec.returning_pods == ReturningPods::Stay {
        let is_back = |pod: &DrainPod| returned.contains(pod::uid(pod)) || has_returned(maintenance, pod);
        plan.keep_returned(|pod| {
            returning::tolerates_cordon(pod, observed.group.drain_taint())
                && (is_back(pod) || is_exhausted(pod))
        });
    }
    plan.block_returning(is_exhausted);
    Ok(Some(plan))
}

/// Whether the decision depends on the volumes that are attached to the node: the drain waits for them, and no pod has to leave.
pub fn needs_volumes(maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp) -> bool {
    let Some(spec) = maintenance.spec.drain.as_ref().filter(|spec| spec.wait_for_volume_detach.is_some())
    else {
        return false;
    };
    let planned = drain_plan(maintenance, spec, observed, now);
    planned.is_ok_and(|plan| plan.is_some_and(|plan| plan.pending().next().is_none()))
}

/// Whether the status shows that the pod has returned, which survives a restart of the process that saw it.
fn has_returned(maintenance: &NodeMaintenance, pod: &DrainPod) -> bool {
    let mut returned = maintenance.status.iter().flat_map(|status| status.returned_pods.iter().flatten());
    returned.any(|returned| pod::is_named(pod, &returned.namespace, &returned.name))
}

/// Whether the status shows that the pod keeps returning and is not evicted again, which survives a restart of the process.
fn is_blocked_as_returning(maintenance: &NodeMaintenance, pod: &DrainPod) -> bool {
    let blocked = maintenance.status.iter().flat_map(|status| &status.blocked_pods);
    let mut returning = blocked.filter(|blocked| blocked.reason == BlockReason::KeepsReturning);
    returning.any(|blocked| pod::is_named(pod, &blocked.namespace, &blocked.name))
}
