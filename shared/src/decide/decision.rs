//! What is to be done for one maintenance, in the order in which it is done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::status::NodeMaintenanceStatus;
use crate::cluster::disruption_budget::{BudgetKey, BudgetVersion};
use crate::cluster::node_lease::LeaseWrite;
use crate::drain::budget_forecast::Allowance;
use crate::drain::node_conditions::WantedCondition;
use crate::drain::node_patch::NodePatch;

/// The next steps. Each is optional; an empty decision means that all is as it should be.
#[derive(Debug, Clone, Default)]
pub struct Decision {
    /// Whether the node is the maintenance's to work on.
    pub at_work: bool,
    /// First: a merge patch that puts our finalizer and the owner reference on the object.
    pub add_finalizer: Option<Value>,
    /// What makes the node's lease ours, or keeps it so, before the node is touched.
    pub lease: Option<LeaseWrite>,
    /// A patch for the node.
    pub node: Option<NodePatch>,
    /// How often the cordon was put back, if that patch puts back what someone else removed.
    pub recordon_count: Option<u32>,
    /// The new status.
    pub status: Option<NodeMaintenanceStatus>,
    /// The conditions by which the node is to tell where the maintenance stands, if it is to. Nothing waits for them.
    pub node_conditions: Option<Vec<WantedCondition>>,
    /// Pods to evict.
    pub evictions: Vec<Eviction>,
    /// Pods that are not asked to go, because a budget would refuse.
    pub blocked_by_budget: Vec<(Arc<Pod>, BudgetKey)>,
    /// The pods, by uid, that may still be asked to go: requests for others that are not sent yet never are. None where
    /// that is not the maintenance's to say: another has the node, or its pods are not known.
    pub evictable: Option<HashSet<String>>,
    /// Whether nobody has the node any more: all that is under way for it stops before anything else is done.
    pub node_released: bool,
    /// Our lease, to be deleted once the node is given back.
    pub release_lease: Option<Arc<Lease>>,
    /// Whether KubeVirt may still be taking virtual machines away that may now stay.
    pub cancel_evacuation: bool,
    /// After all else: a merge patch that takes our finalizer off the object.
    pub remove_finalizer: Option<Value>,
    /// What to tell people, once it is true.
    pub events: Vec<PendingEvent>,
    /// When to look again if nothing happens before.
    pub requeue_after: Option<Duration>,
}

impl Decision {
    /// Looks again after `wait`, or sooner if that was decided already.
    pub fn requeue_in(&mut self, wait: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(wait, |sooner| sooner.min(wait)));
    }
}

/// A pod to be removed from the node.
#[derive(Debug, Clone)]
pub struct Eviction {
    /// The pod; its uid is the precondition.
    pub pod: Arc<Pod>,
    /// By which request.
    pub request: RemovalRequest,
    /// Seconds that it may take; none means its own grace.
    pub grace_period_seconds: Option<i64>,
    /// The budgets that guard it, as they were when this was decided.
    pub guards: Vec<BudgetVersion>,
    /// What it spends of one of them. If that is spent by others when it is to be sent, it is not.
    pub spends: Option<Allowance>,
}

/// The request that removes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalRequest {
    /// An eviction, which budgets and webhooks may refuse.
    Evict,
    /// A deletion with the pod's grace, which passes them.
    Delete,
}

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEvent {
    /// What it is about.
    pub subject: EventSubject,
    /// What happened.
    pub reason: EventReason,
    /// The same for a person.
    pub note: String,
}

/// So many bytes of a note the API server takes; an event with a longer one is refused.
const MAX_NOTE_BYTES: usize = 1024;

impl PendingEvent {
    /// The note as far as an event can hold it; one that is cut ends in an ellipsis.
    pub fn event_note(&self) -> String {
        const ELLIPSIS: &str = "…";
        if self.note.len() <= MAX_NOTE_BYTES {
            return self.note.clone();
        }
        let fits = |end: &usize| self.note.is_char_boundary(*end);
        let end = (0..=MAX_NOTE_BYTES - ELLIPSIS.len()).rev().find(fits).unwrap_or_default();
        format!("{}{ELLIPSIS}", self.note[..end].trim_end())
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSubject {
    /// The maintenance.
    Maintenance,
    /// Its node.
    Node,
}

/// The events of the medik8s node-maintenance-operator, and those of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventReason {
    /// The maintenance began.
    BeginMaintenance,
    /// The node is drained.
    SucceedMaintenance,
    /// The maintenance was given up.
    FailedMaintenance,
    /// The maintenance is over.
    RemovedMaintenance,
    /// The node was given back.
    UncordonNode,
    /// A control-plane node goes into maintenance although etcd may lose its quorum.
    QuorumOverridden,
    /// Someone had uncordoned the node during its maintenance.
    RecordonNode,
}

impl EventReason {
    /// The word in the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeginMaintenance => "BeginMaintenance",
            Self::SucceedMaintenance => "SucceedMaintenance",
            Self::FailedMaintenance => "FailedMaintenance",
            Self::RemovedMaintenance => "RemovedMaintenance",
            Self::UncordonNode => "UncordonNode",
            Self::QuorumOverridden => "QuorumOverridden",
            Self::RecordonNode => "RecordonNode",
        }
    }

    /// Whether the event is a warning.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::FailedMaintenance | Self::QuorumOverridden | Self::RecordonNode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_to_what_an_event_holds_and_between_two_characters() {
        let told = |note: &str| {
            let (subject, reason) = (EventSubject::Maintenance, EventReason::FailedMaintenance);
            PendingEvent { subject, reason, note: note.to_owned() }.event_note()
        };
        let fits = "x".repeat(1024);
        assert_eq!(told(&fits), fits);
        assert_eq!(told(&"x".repeat(1025)), format!("{}…", "x".repeat(1021)));
        let wide = told(&"\u{1f980}".repeat(300));
        assert_eq!(wide, format!("{}…", "\u{1f980}".repeat(255)));
        assert!(wide.len() <= 1024);
        assert_eq!(told(&format!("{} and more", "x".repeat(1020))), format!("{}…", "x".repeat(1020)));
    }
}
