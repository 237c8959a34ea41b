//! The migrations of virtual machines, as far as they are known.

use std::sync::Arc;

use kube::ResourceExt;
use nm_shared::drain::migration::{EVACUATION_ANNOTATION, VirtualMachineInstanceMigration};

use crate::cache::watched::{Concerns, WatchUpdate, Watched};

/// What is known while the watch on migrations runs.
#[derive(Default)]
pub(crate) struct KnownMigrations {
    objects: Watched<VirtualMachineInstanceMigration>,
    /// Whether KubeVirt is known to cancel evacuations.
    pub(crate) cancels: bool,
}

impl KnownMigrations {
    /// Takes in what the watch delivers. A migration concerns the node that it evacuates.
    pub(crate) fn apply(&mut self, update: WatchUpdate<VirtualMachineInstanceMigration>) -> Concerns {
        let concerns = match &update {
            WatchUpdate::Applied(migration) | WatchUpdate::Deleted(migration) => {
                let node = migration.annotations().get(EVACUATION_ANNOTATION);
                node.map_or(Concerns::Nothing, |node| Concerns::Node(node.clone()))
            }
            WatchUpdate::Listed(_) | WatchUpdate::Forbidden(_) => Concerns::All,
            WatchUpdate::Interrupted => Concerns::Nothing,
        };
        self.objects.apply(update);
        concerns
    }

    /// All migrations; none while they are not known, or without access to them.
    pub(crate) fn all(&self) -> Option<Vec<Arc<VirtualMachineInstanceMigration>>> {
        self.objects.is_listed().then(|| self.objects.all())
    }
}
