//! The end of a maintenance: what becomes of its node, its lease and its finalizer.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::api::hold::Hold;
use crate::api::maintenance::NodeMaintenance;
use crate::cluster::node_lease;
use crate::decide::Decider;
use crate::decide::decision::{EventReason, EventSubject, LeaseRelease};
use crate::decide::drain_status;
use crate::decide::hold;
use crate::drain::node_patch;
use crate::gate::{GateResult, evaluate, ownership};

impl Decider<'_> {
    /// Returns the node to service, then removes the finalizer.
    pub(super) fn stop(&mut self) {
        let Self { maintenance, observed, .. } = *self;
        // Another maintenance of the node inherits the cordon and the undo record.
        let node = observed.node.as_deref();
        let heir = ownership::heir(&observed.competing);
        let has_record = |rival: &Arc<NodeMaintenance>| {
            node.is_some_and(|node| node_patch::record_names(node, ownership::uid(rival)))
        };
        let inherited = heir.is_some() || observed.competing.iter().any(has_record);
        self.decision.node_released = !inherited;
        // Evictions are withdrawn together with what is known of them, once it is known which migrations they have caused.
        self.decision.surging = Some(HashSet::new()).filter(|_| !inherited);
        if !ownership::is_adopted(maintenance) {
            return;
        }
        if let Some(node) = node.filter(|_| !inherited)
            && let Some(hold) = hold::before_return(maintenance, node, &observed.return_hooks)
        {
            return self.hold_node(node, hold);
        }
        self.decision.remove_finalizer = Some(ownership::release(maintenance));
        self.decision.end_evacuations = self.may_have_evicted() && node.is_some() && !inherited;
        let plan_ends = node.and_then(|node| node_patch::end_plan(node, &self.requester(node)));
        if let (Some(node), None) = (node, &plan_ends) {
            if let Some(heir) = heir {
                self.decision.node = node_patch::hand_over(node, &self.requester(node), heir);
            } else if !inherited {
                self.uncordon(node);
                if self.decision.node.is_none() && self.may_have_sent_cordon() {
                    self.decision.node = node_patch::refuse_late_cordon(node, &self.requester(node));
                }
            }
        } else {
            self.decision.node = plan_ends;
        }
        if !inherited {
            self.decision.release_lease = match observed.lease.clone() {
                Some(lease) if node_lease::is_ours(&lease) => Some(LeaseRelease::Observed(lease)),
                None if node.is_some() => Some(LeaseRelease::Unobserved),
                _ => None,
            };
        }
        self.publish(EventSubject::Maintenance, EventReason::RemovedMaintenance, self.end_note());
    }

    /// Keeps the node, and its lease, until the hooks are removed.
    fn hold_node(&mut self, node: &Node, hold: Hold) {
        let Self { maintenance, observed, now, .. } = *self;
        self.decision.node_released = false;
        self.evict_nothing();
        let lease = observed.lease.as_deref();
        match evaluate(maintenance, node, lease, &observed.gate, now) {
            GateResult::Ours { write, renew_at } => self.keep_lease(write, renew_at),
            GateResult::Lost { next, .. } => self.requeue_at(next),
            GateResult::Waits { .. } | GateResult::Forfeited { .. } => {}
        }
        let uncordoned = hold::has_node(maintenance, node).then(|| self.is_uncordoned());
        let status = drain_status::stopping(maintenance, hold, uncordoned, now);
        self.settle_status(status, observed.status_written);
    }

    /// How the maintenance ends. Its node may have been deleted, and then a new node of this name is left alone.
    fn end_note(&self) -> String {
        let Self { maintenance, observed, .. } = *self;
        let name = &maintenance.spec.node_name;
        let removed = format!("Maintenance of node {name} is removed");
        match observed.node.as_deref() {
            None => format!("{removed}: the node was deleted. A new node of this name is not in maintenance"),
            Some(node)
                if ownership::is_of_another_node(maintenance, node)
                    && !node_patch::record_names(node, ownership::uid(maintenance)) =>
            {
                format!(
                    "{removed}: the node was deleted, and the new node of this name is not in maintenance"
                )
            }
            Some(_) => removed,
        }
    }

    /// Whether a cordon, or the taint of a plan, may be on its way although the node shows none: its sender may have crashed,
    /// or given up waiting for the answer. The lease is written before the cordon.
    fn may_have_sent_cordon(&self) -> bool {
        let is_forbidden = self.maintenance.status.as_ref().is_some_and(|status| status.forbidden.is_some());
        let is_leased = self.observed.lease.as_deref().is_some_and(node_lease::is_ours);
        !is_forbidden && (is_leased || ownership::is_planned(self.maintenance))
    }
}
