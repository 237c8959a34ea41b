//! Everything that a decision about one maintenance depends on, as the reconciler observed it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use crate::api::group::Group;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::PodReference;
use crate::cluster::pod::DrainPod;
use crate::cluster::volume_attachment::NodeVolumes;
use crate::drain::budget_allowance::Budgets;
use crate::drain::cordon_backoff::RecordonBackoff;
use crate::drain::evacuation::Evacuations;
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::plan::DaemonSets;
use crate::drain::returning::Returning;
use crate::drain::steady_time::SteadyTime;
use crate::drain::surge::{RestartRefusal, WorkloadKey, WorkloadState};
use crate::gate::Gate;

/// The part of the cluster that concerns one maintenance.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    /// The API group of the maintenance.
    pub group: Group,
    /// Whether the definition of the maintenance prunes our own fields of the status, as those of the older groups and of
    /// the medik8s operator do.
    pub prunes_details: bool,
    /// The node; none if it does not exist.
    pub node: Option<Arc<Node>>,
    /// What keeps the maintenance from beginning.
    pub gate: Gate,
    /// The node's lease, if there is one.
    pub lease: Option<Arc<Lease>>,
    /// The denial, if the API server denies listing leases.
    pub leases_forbidden: Option<AccessDenied>,
    /// The pods on the node; none until they have been listed.
    pub pods: Option<Vec<Arc<DrainPod>>>,
    /// The denial, if the API server denies listing them.
    pub pods_forbidden: Option<AccessDenied>,
    /// The cluster's `DaemonSet`s.
    pub daemon_sets: Arc<DaemonSets>,
    /// The disruption budgets in the pods' namespaces, and the disruptions that remain.
    pub budgets: Budgets,
    /// The virtual machines that KubeVirt is to migrate away.
    pub evacuations: Evacuations,
    /// The volumes attached to the node, if the maintenance waits for them.
    pub volumes: NodeVolumes,
    /// The denial, if the API server denies reading them.
    pub volumes_forbidden: Option<AccessDenied>,
    /// What controls the pods that are replaced first, as far as it is known, by their `ReplicaSet`s.
    pub workloads: HashMap<WorkloadKey, WorkloadState>,
    /// The last restart of each Deployment that the API server refused, and when, until it accepts one.
    pub restart_refusals: HashMap<WorkloadKey, (SteadyTime, RestartRefusal)>,
    /// When this was observed, by the clock that `attempts` and `budgets` use.
    pub steady_now: SteadyTime,
    /// How long nothing may move a budget before the pods that wait for it count as blocked (`--blocked-after`).
    pub blocked_after: Duration,
    /// The evictions of each pod, by its uid.
    pub attempts: HashMap<String, Attempt>,
    /// The pods that returned to the cordoned node.
    pub returning: Returning,
    /// Whether the state of the maintenance is written to the node's conditions (`--node-conditions`).
    pub node_conditions: bool,
    /// The denial, if the API server denies writing these conditions.
    pub node_conditions_forbidden: Option<AccessDenied>,
    /// The reconciler's own pod, if it runs in one.
    pub own_pod: Option<PodReference>,
    /// Other maintenances of the same node that are not being deleted.
    pub competing: Vec<Arc<NodeMaintenance>>,
    /// The uids of all other maintenances of the same node, those being deleted included.
    pub other_uids: HashSet<String>,
    /// Whether one of these was planned and has not begun.
    pub other_was_planned: bool,
    /// How often this process has restored a cordon that another program removed.
    pub recordons: RecordonBackoff,
    /// The maintenances that start together with this one.
    pub batch: StartBatch,
    /// When this process last wrote the status.
    pub status_written: Option<Timestamp>,
}

/// The maintenances that start together. All their nodes are cordoned before the first pod is evicted, so that no pod is
/// moved twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartBatch {
    /// The time since this maintenance was first observed.
    pub age: Duration,
    /// The time since the last maintenance was first observed.
    pub quiet_for: Duration,
    /// Whether a node that should be cordoned is not yet.
    pub uncordoned: bool,
}

impl StartBatch {
    /// The maximum delay of the first eviction.
    pub const MAX_DELAY: Duration = Duration::from_secs(2);
    /// Maintenances begin together if they are created within this time of each other, which is a little more than
    /// `kubectl apply` takes from one object of a file to the next.
    pub const QUIET_PERIOD: Duration = Duration::from_millis(100);

    /// The time for which evictions are delayed; none if they may start.
    pub fn eviction_delay(&self) -> Option<Duration> {
        let remaining = Self::MAX_DELAY.checked_sub(self.age).filter(|left| !left.is_zero())?;
        let quiet = Self::QUIET_PERIOD.saturating_sub(self.quiet_for);
        match (self.uncordoned, quiet.is_zero()) {
            (false, true) => None,
            (false, false) => Some(quiet.min(remaining)),
            (true, _) => Some(Self::QUIET_PERIOD.min(remaining)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(age: u64, quiet: u64, uncordoned: bool, expected: Option<u64>) {
        let ms = Duration::from_millis;
        let batch = StartBatch { age: ms(age), quiet_for: ms(quiet), uncordoned };
        assert_eq!(batch.eviction_delay(), expected.map(ms), "{batch:?}");
    }

    #[test]
    fn the_first_eviction_waits_for_maintenances_that_begin_together_but_not_forever() {
        check(0, 0, false, Some(100));
        check(60, 60, false, Some(40));
        check(100, 100, false, None);
        check(500, 30, false, Some(70));
        check(500, 400, true, Some(100));
        check(1_950, 400, true, Some(50));
        check(2_000, 0, true, None);
        check(60_000, 0, true, None);
    }
}
