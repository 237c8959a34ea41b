//! How a watch or an eviction wakes the maintenance it concerns.

use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::runtime::reflector::{ObjectRef, Store};
use nm_shared::{NodeMaintenance, Phase};

/// Wakes maintenances. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Triggers {
    maintenances: Store<NodeMaintenance>,
    sender: UnboundedSender<ObjectRef<NodeMaintenance>>,
}

impl Triggers {
    /// The sending end, and the stream that the controller reconciles on.
    pub(crate) fn new(
        maintenances: Store<NodeMaintenance>,
    ) -> (Self, UnboundedReceiver<ObjectRef<NodeMaintenance>>) {
        let (sender, receiver) = unbounded();
        (Self { maintenances, sender }, receiver)
    }

    /// Wakes every maintenance of a node.
    pub(crate) fn wake_node(&self, node: &str) {
        self.wake(self.maintenances.state_filter(|maintenance| maintenance.spec.node_name == node));
    }

    /// Wakes the maintenances that have not begun: what they wait for may be over.
    pub(crate) fn wake_pending(&self) {
        let waits = |maintenance: &NodeMaintenance| {
            maintenance.status.as_ref().and_then(|status| status.phase) == Some(Phase::Pending)
        };
        self.wake(self.maintenances.state_filter(waits));
    }

    /// Wakes every maintenance: after a watch was interrupted nobody knows what was missed.
    pub(crate) fn wake_all(&self) {
        self.wake(self.maintenances.state());
    }

    fn wake(&self, maintenances: Vec<Arc<NodeMaintenance>>) {
        for maintenance in maintenances {
            // The receiver is gone only when the program ends.
            let _ = self.sender.unbounded_send(ObjectRef::from_obj(maintenance.as_ref()));
        }
    }
}
