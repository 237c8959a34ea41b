//! Frozen statuses: they are not updated, as if their controller had stopped working.

use crate::request_log::target::Target;

/// Whose writes to a frozen status are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Those of the sandbox's controllers and kubelets. Requests still update it.
    Controllers,
    /// All writes. Requests succeed without effect.
    Everybody,
}

/// The frozen statuses.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    entries: Vec<(u64, Target, Writers)>,
}

impl Frozen {
    /// Freezes the status of the objects that match.
    pub(crate) fn add(&mut self, id: u64, target: Target, writers: Writers) {
        self.entries.push((id, target, writers));
    }

    /// Unfreezes a status and returns its target.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Target> {
        let at = self.entries.iter().position(|(known, ..)| *known == id)?;
        Some(self.entries.remove(at).1)
    }

    /// Whether controllers cannot update this object's status.
    pub(crate) fn for_controllers(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.entries.iter().any(|(_, target, _)| target.covers(group, plural, namespace, name))
    }

    /// Whether nobody can update it.
    pub(crate) fn for_everybody(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.entries.iter().any(|(_, target, writers)| {
            *writers == Writers::Everybody && target.covers(group, plural, namespace, name)
        })
    }
}
