//! The decision about one maintenance. [`crate::decide::steps`] has the order in which it is applied.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::Value;

use crate::api::pod_reference::PodReference;
use crate::api::status::{NodeMaintenanceStatus, truncated};
use crate::cluster::disruption_budget::{BudgetKey, BudgetVersion};
use crate::cluster::node_lease::LeaseWrite;
use crate::cluster::pod::DrainPod;
use crate::drain::budget_allowance::AllowedDisruption;
use crate::drain::node_patch::NodePatch;
use crate::drain::surge::{Restart, WorkloadKey};
use crate::gate::ownership::Adoption;

/// The next steps. Each is optional; an empty decision changes nothing.
#[expect(clippy::struct_excessive_bools, reason = "independent steps")]
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Whether the maintenance has its node and works on it.
    pub at_work: bool,
    /// Whether the steps rely on the node as it was observed, without a patch of it, which would be refused if it has changed.
    pub verify_node: bool,
    /// First: adds our finalizer and the owner reference to the object.
    pub add_finalizer: Option<Adoption>,
    /// The write that takes or renews the node's lease, before the node is changed.
    pub lease: Option<LeaseWrite>,
    /// A patch for the node.
    pub node: Option<NodePatch>,
    /// The new count of restored cordons, if that patch restores one.
    pub recordon_count: Option<u32>,
    /// The new status.
    pub status: Option<NodeMaintenanceStatus>,
    /// The conditions to publish on the node (`--node-conditions`). Nothing waits for them.
    pub node_conditions: Option<Vec<NodeCondition>>,
    /// The evictions to request.
    pub evictions: Vec<Eviction>,
    /// Pods for which no eviction is requested, because a budget would refuse it.
    pub blocked_by_budget: Vec<(Arc<DrainPod>, BudgetKey)>,
    /// The `ReplicaSet`s of pods that their Deployments may replace first, whose state the next decision needs. None if this
    /// maintenance does not decide that.
    pub workloads: Option<HashSet<WorkloadKey>>,
    /// The Deployments to restart, after the status shows that their pods are surging.
    pub restarts: Vec<Restart>,
    /// The uids of the pods that may be evicted; queued requests for others are dropped. None if this maintenance does not
    /// decide that: another has the node, or the pods are not known.
    pub evictable: Option<HashSet<String>>,
    /// The Deployments that are replacing pods of the node: a restart of another that is in progress for it is withdrawn. None
    /// if this maintenance does not decide that.
    pub surging: Option<HashSet<WorkloadKey>>,
    /// Whether no maintenance has the node any more. All requests for it stop before any other step.
    pub node_released: bool,
    /// Our lease, to be deleted once the node has returned to service.
    pub release_lease: Option<LeaseRelease>,
    /// Whether KubeVirt may have been asked to migrate virtual machines, which may now stay.
    pub end_evacuations: bool,
    /// Last: a merge patch that removes our finalizer from the object.
    pub remove_finalizer: Option<Value>,
    /// The events to publish after these steps.
    pub events: Vec<PendingEvent>,
    /// When to reconcile again without an event.
    pub requeue_after: Option<Duration>,
}

/// A restart that was refused, or that the watch does not show, is requested again after this time.
pub const RESTART_RETRY_INTERVAL: Duration = Duration::from_secs(10);

impl Decision {
    /// Restarts Deployments, and reconciles again in case the watch does not show it.
    pub fn restart(&mut self, deployments: Vec<Restart>) {
        if !deployments.is_empty() {
            self.restarts = deployments;
            self.requeue_in(RESTART_RETRY_INTERVAL);
        }
    }

    /// Reconciles again after `wait`, or sooner if that is decided already.
    pub fn requeue_in(&mut self, wait: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(wait, |sooner| sooner.min(wait)));
    }
}

/// Our lease on a node.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseRelease {
    /// As it was observed.
    Observed(Arc<Lease>),
    /// None was observed, but one may exist: the answer to its creation may be lost, and the watch late.
    Unobserved,
}

/// A pod to be evicted or deleted.
#[derive(Debug, Clone)]
pub struct Eviction {
    /// The pod; its uid is the precondition.
    pub pod: Arc<DrainPod>,
    /// The request.
    pub request: RemovalRequest,
    /// The grace period in seconds; none means the pod's own grace period.
    pub grace_period_seconds: Option<i64>,
    /// The budgets that it is charged to, as they were when this was decided.
    pub guards: Vec<Arc<BudgetVersion>>,
    /// The disruption that it uses. If others have used it by then, the request is not sent.
    pub uses_disruption: Option<AllowedDisruption>,
}

/// The request that removes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRequest {
    /// An eviction, which budgets and webhooks may refuse.
    Evict,
    /// A deletion with the pod's grace period, which budgets do not apply to.
    Delete,
}

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEvent {
    /// The object that it is about.
    pub subject: EventSubject,
    /// The machine-readable reason.
    pub reason: EventReason,
    /// The human-readable message.
    pub note: String,
    /// A pod that it is about too. Of events that are alike but for their messages and times, the first is published, and then
    /// how many there are; those about different pods are not alike.
    pub pod: Option<PodReference>,
}

/// The API server refuses events with longer notes.
const MAX_NOTE_BYTES: usize = 1024;

impl PendingEvent {
    /// The note, cut to the length that an event may have. A cut note ends in an ellipsis.
    pub fn event_note(&self) -> String {
        truncated(self.note.clone(), MAX_NOTE_BYTES)
    }
}

/// The object that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSubject {
    /// The maintenance.
    Maintenance,
    /// Its node.
    Node,
}

/// The events of the medik8s node-maintenance-operator and our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum EventReason {
    /// The maintenance has started.
    BeginMaintenance,
    /// The node is drained.
    SucceedMaintenance,
    /// The maintenance failed.
    FailedMaintenance,
    /// The maintenance was removed.
    RemovedMaintenance,
    /// The node was uncordoned.
    UncordonNode,
    /// The maintenance has ended, and the node stays cordoned.
    CordonKept,
    /// The maintenance of a control-plane node starts although etcd may lose its quorum.
    QuorumOverridden,
    /// Someone uncordoned the node during its maintenance.
    RecordonNode,
    /// The maintenance is planned: it was created suspended.
    PlannedMaintenance,
    /// The maintenance is paused: it was suspended after it had begun.
    PausedMaintenance,
    /// The maintenance continues after a pause.
    ResumedMaintenance,
    /// The maintenance succeeds although volumes are still attached to the node.
    DetachTimedOut,
    /// The API server accepts neither a write that the maintenance needs nor the status that would show it.
    WriteFailed,
    /// The maintenance has ended, and virtual machines leave the node nevertheless.
    MachinesStillLeave,
    /// Pods were deleted because their eviction was refused for longer than `deleteAfterSeconds`.
    DeletedAfterRefusal,
}

impl EventReason {
    /// The value in the event.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the event is a warning.
    pub fn is_warning(self) -> bool {
        matches!(
            self,
            Self::FailedMaintenance
                | Self::QuorumOverridden
                | Self::RecordonNode
                | Self::DetachTimedOut
                | Self::WriteFailed
                | Self::MachinesStillLeave
                | Self::DeletedAfterRefusal
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_to_the_length_of_an_event_between_two_characters() {
        let reported = |note: &str| {
            let (subject, reason) = (EventSubject::Maintenance, EventReason::FailedMaintenance);
            PendingEvent { subject, reason, note: note.to_owned(), pod: None }.event_note()
        };
        let fits = "x".repeat(1024);
        assert_eq!(reported(&fits), fits);
        assert_eq!(reported(&"x".repeat(1025)), format!("{}…", "x".repeat(1021)));
        let wide = reported(&"\u{1f980}".repeat(300));
        assert_eq!(wide, format!("{}…", "\u{1f980}".repeat(255)));
        assert!(wide.len() <= 1024);
        assert_eq!(reported(&format!("{} and more", "x".repeat(1020))), format!("{}…", "x".repeat(1020)));
    }
}
