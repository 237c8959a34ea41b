//! Everything that a decision about one maintenance depends on, as the reconciler observed it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use crate::api::group::Group;
use crate::api::hold::Hook;
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::START_TOGETHER_ANNOTATION;
use crate::api::pod_reference::PodReference;
use crate::cluster::node::{self, Readiness};
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
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
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
    /// The pods of the node that were deleted because their eviction was refused for too long, and that no status counts yet.
    pub deleted: Vec<PodReference>,
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
    /// The hooks of the other maintenances that wait to return the node.
    pub return_hooks: Vec<Hook>,
    /// How often this process has restored a cordon that another program removed.
    pub recordons: RecordonBackoff,
    /// Whether this process has returned the node to service for this maintenance, which ends. What the node has since then
    /// without a record is not ours.
    pub has_returned: bool,
    /// The maintenances that start together with this one.
    pub batch: StartBatch,
    /// When this process last wrote the status.
    pub status_written: Option<Timestamp>,
}

impl ClusterState {
    /// Whether the node is Ready. One that does not exist is not.
    pub fn readiness(&self) -> Readiness {
        self.node.as_deref().map_or(Readiness::NotReady, node::readiness)
    }
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
    /// Whether its creator has announced which maintenances start together.
    pub announced: bool,
    /// Whether some of those are not known yet.
    pub incomplete: bool,
}

/// The maintenances that are created together, as an annotation announces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement<'a> {
    /// The id that they have in common.
    pub id: &'a str,
    /// How many they are.
    pub count: usize,
}

impl<'a> Announcement<'a> {
    /// What a maintenance announces.
    pub fn of(maintenance: &'a NodeMaintenance) -> Option<Self> {
        let value = maintenance.metadata.annotations.as_ref()?.get(START_TOGETHER_ANNOTATION)?;
        let (id, count) = value.rsplit_once('/')?;
        Some(Self { id, count: count.parse().ok()? })
    }

    /// The same, as long as the maintenance is so new that others are awaited.
    pub fn of_new(maintenance: &'a NodeMaintenance, now: Timestamp) -> Option<Self> {
        let age = now.duration_since(maintenance.metadata.creation_timestamp.as_ref()?.0);
        let limit = SignedDuration::try_from(StartBatch::MAX_ANNOUNCED_DELAY).ok()?;
        Self::of(maintenance).filter(|_| age < limit)
    }
}

impl StartBatch {
    /// The maximum delay of the first eviction.
    pub const MAX_DELAY: Duration = Duration::from_secs(2);
    /// The same if it was announced which maintenances start together.
    pub const MAX_ANNOUNCED_DELAY: Duration = Duration::from_secs(10);
    /// Maintenances begin together if they are created within this time of each other, which is a little more than
    /// `kubectl apply` takes from one object of a file to the next.
    pub const QUIET_PERIOD: Duration = Duration::from_millis(100);

    /// The time for which evictions are delayed; none if they may start.
    pub fn eviction_delay(&self) -> Option<Duration> {
        let limit = if self.announced { Self::MAX_ANNOUNCED_DELAY } else { Self::MAX_DELAY };
        let remaining = limit.checked_sub(self.age).filter(|left| !left.is_zero())?;
        let quiet = Self::QUIET_PERIOD.saturating_sub(self.quiet_for);
        match (self.uncordoned || self.incomplete, quiet.is_zero()) {
            (false, true) => None,
            (false, false) => Some(quiet.min(remaining)),
            (true, _) => Some(Self::QUIET_PERIOD.min(remaining)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(age: u64, quiet: u64, uncordoned: bool, expected: Option<u64>) {
        let ms = Duration::from_millis;
        let batch = StartBatch { age: ms(age), quiet_for: ms(quiet), uncordoned, ..StartBatch::default() };
        assert_eq!(batch.eviction_delay(), expected.map(ms), "{batch:?}");
    }

    #[test]
    fn announced_maintenances_are_awaited_for_longer() {
        let ms = Duration::from_millis;
        let check = |age: u64, uncordoned: bool, incomplete: bool, expected: Option<u64>| {
            let batch =
                StartBatch { age: ms(age), quiet_for: ms(400), uncordoned, announced: true, incomplete };
            assert_eq!(batch.eviction_delay(), expected.map(ms), "{batch:?}");
        };
        check(500, false, false, None);
        check(5_000, false, true, Some(100));
        check(5_000, true, false, Some(100));
        check(9_970, true, true, Some(30));
        check(10_000, true, true, None);
    }

    #[test]
    fn an_announcement_holds_for_a_moment_after_the_creation() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let announced = |value: &str, created: &str| {
            let metadata = json!({"name": "n", "creationTimestamp": created,
                "annotations": {START_TOGETHER_ANNOTATION: value}});
            let object: NodeMaintenance =
                serde_json::from_value(json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1",
                    "kind": "NodeMaintenance", "metadata": metadata, "spec": {"nodeName": "n"}}))
                .unwrap();
            Announcement::of_new(&object, now).map(|found| (found.id.to_owned(), found.count))
        };
        let young = "2026-01-01T00:00:01Z";
        assert_eq!(announced("a/b/3", young), Some(("a/b".into(), 3)));
        assert_eq!(announced("a/3", "2026-01-01T00:00:00Z"), None);
        for value in ["", "a", "a/", "a/-1", "a/x"] {
            assert_eq!(announced(value, young), None, "{value:?}");
        }
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
