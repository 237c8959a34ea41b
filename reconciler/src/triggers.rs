//! How a watch or an eviction wakes the maintenance it concerns.

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::runtime::reflector::{ObjectRef, Store};
use nm_shared::NodeMaintenance;

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

    /// Wakes one maintenance.
    pub(crate) fn wake(&self, maintenance: ObjectRef<NodeMaintenance>) {
        // The receiver is gone only when the program ends.
        let _ = self.sender.unbounded_send(maintenance);
    }

    /// Wakes every maintenance of a node; false if there is none.
    pub(crate) fn wake_node(&self, node: &str) -> bool {
        let maintenances = self.maintenances.state_filter(|maintenance| maintenance.spec.node_name == node);
        for maintenance in &maintenances {
            self.wake(ObjectRef::from_obj(maintenance.as_ref()));
        }
        !maintenances.is_empty()
    }
}
