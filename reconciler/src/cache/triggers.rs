//! How a watch or an eviction triggers the reconciles that it concerns.

use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::runtime::reflector::ObjectRef;
use nm_shared::{Group, GroupedMaintenance};

use crate::cache::leader_state::LeaderState;

/// Triggers reconciles. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Triggers {
    state: Arc<LeaderState>,
    senders: [(Group, UnboundedSender<ObjectRef<GroupedMaintenance>>); Group::ALL.len()],
}

impl Triggers {
    /// The sending end, and per group the stream that its controller reconciles on.
    pub(crate) fn new(
        state: Arc<LeaderState>,
    ) -> (Self, [UnboundedReceiver<ObjectRef<GroupedMaintenance>>; Group::ALL.len()]) {
        let channels = Group::ALL.map(|group| (group, unbounded()));
        let senders = channels.each_ref().map(|(group, (sender, _))| (*group, sender.clone()));
        (Self { state, senders }, channels.map(|(_, (_, receiver))| receiver))
    }

    /// Reconciles every maintenance of a node.
    pub(crate) fn node(&self, node: &str) {
        self.send(self.state.received_on(node));
    }

    /// Reconciles every maintenance, as after an interrupted watch, which may have missed anything.
    pub(crate) fn all(&self) {
        self.send(self.state.received());
    }

    /// Reconciles one maintenance.
    pub(crate) fn maintenance(&self, maintenance: &GroupedMaintenance) {
        let group = maintenance.group;
        for (_, sender) in self.senders.iter().filter(|(of, _)| *of == group) {
            // The receiver is gone only when the program ends.
            let _ = sender.unbounded_send(ObjectRef::from_obj_with(maintenance, group));
        }
    }

    fn send(&self, maintenances: impl IntoIterator<Item = Arc<GroupedMaintenance>>) {
        for maintenance in maintenances {
            self.maintenance(&maintenance);
        }
    }
}
