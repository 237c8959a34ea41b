//! The order in which a decision is applied, as data.
//!
//! The order is safe to interrupt between any two steps, because each decision starts from what the API has stored. Work
//! for a node that no longer belongs to the maintenance ends first. The finalizer is written before the lease, the lease
//! before the node, and they are removed in the reverse order. The status is written before the first eviction, because it
//! records how many pods there were. The reconciler performs these steps one after the other and stops at the first that
//! fails; the model checker in `tests` performs the same steps, interrupts them everywhere and mixes them with others.
//!
//! The patches of a node, of the finalizer and of the status carry a resourceVersion, so they fail if the view was outdated.
//! What no such patch verifies in time is read live, with a GET, which a quorum of etcd answers: the maintenance before it
//! takes or releases its node without a patch of the finalizer, and the node before the finalizer is removed, or before a
//! status first shows that the node is cordoned, without a patch of the node. That is one GET when a drain starts and one
//! when the maintenance ends, and another one after the end of evacuations, which takes a second or more. Comparing the
//! resourceVersions of lists would save them, but a restore of etcd lets resourceVersions go back.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::Value;

use crate::api::status::NodeMaintenanceStatus;
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::node_lease::LeaseWrite;
use crate::cluster::pod::DrainPod;
use crate::decide::decision::{Decision, Eviction, LeaseRelease, PendingEvent};
use crate::drain::node_patch::NodePatch;
use crate::drain::surge::{Restart, WorkloadKey};
use crate::gate::ownership::Adoption;

/// One step of a decision. A step is at most one write, so that nothing can happen in the middle of it.
#[derive(Debug, Clone)]
pub enum DecisionStep {
    /// Verifies, before anything is written, that the API server has the maintenance as it was observed. A list that is out of
    /// date can show a maintenance that is gone.
    VerifyMaintenance,
    /// Verifies that the API server has the node as it was observed. After a restore of etcd, nodes and maintenances are
    /// listed separately, so the node may be from before the restore.
    VerifyNode,
    /// Ends all requests and watches for the node: no maintenance has it any more.
    LeaveNode,
    /// Withdraws the requests for pods with other uids.
    WithdrawUnwanted(HashSet<String>),
    /// Withdraws the restarts of other Deployments that are in progress for the node.
    WithdrawRestarts(HashSet<WorkloadKey>),
    /// Withdraws the queued evictions that an earlier version of the spec decided, or another maintenance.
    WithdrawOutdated {
        /// Whether the maintenance has the node, so that evictions of others are withdrawn too.
        has_node: bool,
    },
    /// Adds our finalizer and the owner reference to the object; only the finalizer, if the API server forbids the other.
    AddFinalizer(Adoption),
    /// Takes or renews the lease on the node.
    WriteLease(LeaseWrite),
    /// Cordons or uncordons the node.
    PatchNode(NodePatch),
    /// Remembers that this patch returned the node to service.
    RecordReturn,
    /// Remembers that this patch restored a cordon, and how often that has happened.
    RecordRecordon(u32),
    /// Writes the status.
    WriteStatus(Box<NodeMaintenanceStatus>),
    /// Hands over the conditions to publish on the node.
    PublishConditions(Vec<NodeCondition>),
    /// Remembers that a budget blocks these pods.
    Defer(Vec<(Arc<DrainPod>, BudgetKey)>),
    /// Watches these `ReplicaSet`s and their Deployments, and no others for the node.
    WatchWorkloads(HashSet<WorkloadKey>),
    /// Restarts a Deployment.
    RestartDeployment(Restart),
    /// Queues evictions, which are sent concurrently with the other steps.
    Evict(Vec<Eviction>),
    /// Ends the evacuations of the virtual machines that have not begun to move. The node is uncordoned before: KubeVirt does not
    /// end them while the node has its taint.
    EndEvacuations,
    /// Verifies that the node is still as schedulable as the steps before left it, and has no other undo record.
    VerifyReturned,
    /// Deletes our lease on the node, if there is one.
    DeleteLease(LeaseRelease),
    /// Removes our finalizer from the object.
    RemoveFinalizer(Value),
    /// Removes what is left of the undo record, from the node as the steps before left it.
    RemoveRecord,
    /// Publishes an event.
    PublishEvent(PendingEvent),
}

impl Decision {
    /// The steps, in the order in which they are applied.
    pub fn into_steps(self) -> Vec<DecisionStep> {
        let takes_or_releases_node = self.takes_or_releases_node();
        // Without `..`: a field that is added has to be applied here.
        let Self {
            at_work,
            verify_node,
            add_finalizer,
            lease,
            node,
            recordon_count,
            status,
            node_conditions,
            evictions,
            blocked_by_budget,
            workloads,
            restarts,
            evictable,
            surging,
            node_released,
            release_lease,
            end_evacuations,
            remove_finalizer,
            events,
            requeue_after: _,
        } = self;
        let mut steps = Vec::new();
        // At once: while requests are paused, those that wait would be sent together with the GET of a step below. What is
        // withdrawn because of an outdated view is decided again.
        steps.extend(evictable.map(DecisionStep::WithdrawUnwanted));
        steps.extend(surging.map(DecisionStep::WithdrawRestarts));
        steps.push(DecisionStep::WithdrawOutdated { has_node: at_work });
        if takes_or_releases_node && add_finalizer.is_none() {
            steps.push(DecisionStep::VerifyMaintenance);
        }
        if verify_node {
            steps.push(DecisionStep::VerifyNode);
        }
        if node_released {
            steps.push(DecisionStep::LeaveNode);
        }
        steps.extend(add_finalizer.map(DecisionStep::AddFinalizer));
        steps.extend(lease.map(DecisionStep::WriteLease));
        let returns_node = node.is_some() && node_released && remove_finalizer.is_some();
        steps.extend(node.map(DecisionStep::PatchNode));
        steps.extend(returns_node.then_some(DecisionStep::RecordReturn));
        steps.extend(recordon_count.map(DecisionStep::RecordRecordon));
        steps.extend(status.map(|status| DecisionStep::WriteStatus(Box::new(status))));
        steps.extend(node_conditions.map(DecisionStep::PublishConditions));
        steps.push(DecisionStep::Defer(blocked_by_budget));
        steps.push(DecisionStep::Evict(evictions));
        steps.extend(workloads.map(DecisionStep::WatchWorkloads));
        steps.extend(restarts.into_iter().map(DecisionStep::RestartDeployment));
        if end_evacuations {
            steps.push(DecisionStep::EndEvacuations);
            // That takes a second or more, in which a restore of etcd may have brought the cordon back.
            steps.extend(remove_finalizer.is_some().then_some(DecisionStep::VerifyReturned));
        }
        steps.extend(release_lease.map(DecisionStep::DeleteLease));
        if let Some(patch) = remove_finalizer {
            steps.push(DecisionStep::RemoveFinalizer(patch));
            steps.push(DecisionStep::RemoveRecord);
        }
        steps.extend(events.into_iter().map(DecisionStep::PublishEvent));
        steps
    }

    /// Whether a step changes the node, its lease, or what guarantees that the node returns to service. The patches of the
    /// finalizer and of the node verify their objects themselves: they have a resourceVersion.
    fn takes_or_releases_node(&self) -> bool {
        self.lease.is_some()
            || self.node.is_some()
            || self.release_lease.is_some()
            || self.remove_finalizer.is_some()
    }
}
