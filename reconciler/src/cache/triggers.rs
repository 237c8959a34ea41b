//! How a watch or an eviction wakes the maintenance it concerns.

use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::runtime::reflector::ObjectRef;
use nm_shared::{Group, Grouped, Phase};

use crate::cache::maintenances::Maintenances;

/// Wakes maintenances. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Triggers {
    maintenances: Arc<Maintenances>,
    senders: [(Group, UnboundedSender<ObjectRef<Grouped>>); Group::ALL.len()],
}

impl Triggers {
    /// The sending end, and the streams that the controllers reconcile on, in the order of the groups.
    pub(crate) fn new(
        maintenances: Arc<Maintenances>,
    ) -> (Self, [UnboundedReceiver<ObjectRef<Grouped>>; Group::ALL.len()]) {
        let channels = Group::ALL.map(|group| (group, unbounded()));
        let senders = channels.each_ref().map(|(group, (sender, _))| (*group, sender.clone()));
        (Self { maintenances, senders }, channels.map(|(_, (_, receiver))| receiver))
    }

    /// Wakes every maintenance of a node.
    pub(crate) fn wake_node(&self, node: &str) {
        self.wake(self.maintenances.filter(|maintenance| maintenance.spec.node_name == node));
    }

    /// Wakes the maintenances that have not begun: what they wait for may be over.
    pub(crate) fn wake_pending(&self) {
        let waits = |maintenance: &Grouped| {
            maintenance.status.as_ref().and_then(|status| status.phase) == Some(Phase::Pending)
        };
        self.wake(self.maintenances.filter(waits));
    }

    /// Wakes every maintenance: after a watch was interrupted nobody knows what was missed.
    pub(crate) fn wake_all(&self) {
        self.wake(self.maintenances.seen());
    }

    fn wake(&self, maintenances: Vec<Arc<Grouped>>) {
        for maintenance in maintenances {
            let group = maintenance.group;
            let of_group = self.senders.iter().filter(|(of, _)| *of == group);
            for (_, sender) in of_group {
                // The receiver is gone only when the program ends.
                let _ = sender.unbounded_send(ObjectRef::from_obj_with(maintenance.as_ref(), group));
            }
        }
    }
}
