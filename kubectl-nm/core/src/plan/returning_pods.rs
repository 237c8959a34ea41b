//! Pods that return to their node after each eviction, and block a drain that waits for them.

use nm_shared::ReturningPods;
use nm_shared::api::status::{BlockFacts, BlockReason};
use nm_shared::cluster::node;
use nm_shared::cluster::node_fit;
use nm_shared::cluster::pod;
use nm_shared::drain::blocker::Blocker;
use nm_shared::drain::returning::is_assigned_by_template;
use nm_shared::forecast::failing_jobs;
use nm_shared::forecast::{Forecast, PodForecast, PodOutcome};

use crate::maintenance::node_in_service::ready;
use crate::plan::cluster_snapshot::ClusterSnapshot;

/// Pods that return to their node after each eviction, because they fit on no other one, block a drain that waits for them.
pub(super) fn block_returning(forecast: &mut Forecast, snapshot: &ClusterSnapshot) {
    let (Some(nodes), Some(pods)) = (&snapshot.nodes, &snapshot.pods) else { return };
    let waits = |expected: &&mut PodForecast| {
        let is_evicted = matches!(expected.fate, PodOutcome::Evicted | PodOutcome::WaitsForBudget(_));
        is_evicted && expected.returning == Some(ReturningPods::Wait)
    };
    for expected in forecast.pods.iter_mut().filter(waits) {
        let Some(pod) = pods.find(&expected.node, pod::uid(&expected.pod)) else { continue };
        let volumes = snapshot.volumes.node_selectors(pod);
        let mut others = nodes.iter().filter(|other| node::name(other) != expected.node);
        // One that reboots or is cordoned may take the pod later.
        if others.all(|other| node_fit::check(pod, &volumes, &ready(other)).is_err()) {
            expected.fate = keeps_returning("it tolerates the cordon and fits on no other node");
        }
    }
}

/// Pods that their owners create on the same node again block a drain, unless they may stay because they tolerate the cordon. A Job
/// that fails creates none.
pub(super) fn block_assigned(forecast: &mut Forecast, snapshot: &ClusterSnapshot) {
    let Some(pods) = &snapshot.pods else { return };
    let failing = failing_jobs::failing(forecast, &snapshot.jobs).remove(&None).unwrap_or_default();
    for expected in &mut forecast.pods {
        let is_held = |blocker: &Blocker| expected.leaves && blocker.reason == BlockReason::DisruptionBudget;
        let may_leave = match &expected.fate {
            PodOutcome::Evicted | PodOutcome::WaitsForBudget(_) => true,
            PodOutcome::Blocked(blocker) => is_held(blocker),
            _ => false,
        };
        let stays = expected.returning == Some(ReturningPods::Stay);
        let pod = pods.find(&expected.node, pod::uid(&expected.pod));
        let returns = may_leave
            && expected.is_replaced()
            && !stays
            && !failing_jobs::control(&failing, &expected.pod)
            && pod.is_some_and(|pod| is_assigned_by_template(pod));
        match &mut expected.fate {
            PodOutcome::Blocked(blocker) if returns => {
                blocker.message = format!(
                    "{}; evicted, it would return to the node, because {ASSIGNED}",
                    blocker.message.trim_end_matches('.')
                );
            }
            fate if returns => *fate = keeps_returning(ASSIGNED),
            _ => {}
        }
    }
}

/// Why a pod returns that its template assigns to its node.
const ASSIGNED: &str = "its owner assigns it to this node, bypassing the scheduler";

fn keeps_returning(cause: &str) -> PodOutcome {
    PodOutcome::Blocked(Blocker {
        reason: BlockReason::KeepsReturning,
        message: format!("it returns to the node after each eviction, because {cause}"),
        facts: BlockFacts::default(),
        since: None,
        refusals: 0,
    })
}
