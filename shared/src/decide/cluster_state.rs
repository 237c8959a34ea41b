//! What the reconciler saw, all of it, before a decision is made.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::api::group::Group;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::PodReference;
use crate::drain::attempt::Attempt;
use crate::drain::budget_forecast::Budgets;
use crate::drain::cordon_backoff::RecordonBackoff;
use crate::drain::plan::DaemonSets;
use crate::drain::steady_time::SteadyTime;
use crate::drain::virtual_machine::Evacuations;
use crate::gate::Gate;

/// The surroundings of one maintenance.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    /// The group of the maintenance, by which its node is marked.
    pub group: Group,
    /// The node; none if there is no node of that name.
    pub node: Option<Arc<Node>>,
    /// What keeps the maintenance from beginning.
    pub gate: Gate,
    /// The lease on the node, if there is one.
    pub lease: Option<Arc<Lease>>,
    /// The API server's sentence, if it refuses to list leases.
    pub leases_forbidden: Option<String>,
    /// The pods on the node; none until they have been listed once.
    pub pods: Option<Vec<Arc<Pod>>>,
    /// The API server's sentence, if it refuses to list them.
    pub pods_forbidden: Option<String>,
    /// The cluster's `DaemonSet`s.
    pub daemon_sets: Arc<DaemonSets>,
    /// The disruption budgets of the pods' namespaces, and what is left of them.
    pub budgets: Budgets,
    /// The virtual machines that KubeVirt is to take away.
    pub evacuations: Evacuations,
    /// When all this was seen, by the clock that `attempts` and `budgets` count by.
    pub steady_now: SteadyTime,
    /// The evictions so far, by the pod's uid.
    pub attempts: HashMap<String, Attempt>,
    /// The pods, by uid, whose owner has brought them back too often to be moved again.
    pub respawned: HashSet<String>,
    /// Whether the node is to tell by its conditions where the maintenance stands.
    pub node_conditions: bool,
    /// The API server's sentence, if it refuses to have these conditions written.
    pub node_conditions_forbidden: Option<String>,
    /// The pod that the reconciler itself runs in, if it does.
    pub own_pod: Option<PodReference>,
    /// Other maintenances of the same node that are not being deleted.
    pub competing: Vec<Arc<NodeMaintenance>>,
    /// The uids of all other maintenances of the same node, those being deleted included.
    pub other_uids: HashSet<String>,
    /// How often this process has put the cordon back that someone else removed.
    pub recordons: RecordonBackoff,
    /// The maintenances that began with this one, if the first eviction should wait for them.
    pub batch: StartBatch,
    /// When this process last wrote the status.
    pub status_written: Option<Timestamp>,
}

/// Maintenances that begin together are all cordoned before the first pod is moved, so that no pod moves twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartBatch {
    /// For how long this maintenance has been known.
    pub age: Duration,
    /// For how long no further maintenance has begun.
    pub quiet_for: Duration,
    /// Whether a node that should be cordoned is not yet.
    pub uncordoned: bool,
}

impl StartBatch {
    /// Nobody is waited for longer than this.
    pub const MAX_DELAY: Duration = Duration::from_secs(2);
    /// Maintenances that begin within this of each other begin together: a little more than `kubectl apply` takes
    /// from one object of a file to the next.
    pub const QUIET_PERIOD: Duration = Duration::from_millis(100);

    /// How long to hold evictions back before looking again; none when they may go.
    pub fn eviction_delay(&self) -> Option<Duration> {
        let patience = Self::MAX_DELAY.checked_sub(self.age).filter(|left| !left.is_zero())?;
        let quiet = Self::QUIET_PERIOD.saturating_sub(self.quiet_for);
        match (self.uncordoned, quiet.is_zero()) {
            (false, true) => None,
            (false, false) => Some(quiet.min(patience)),
            (true, _) => Some(Self::QUIET_PERIOD.min(patience)),
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
    fn the_first_eviction_waits_for_those_who_begin_together_but_not_for_ever() {
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
