//! Objects whose status stands still, as when the controller that keeps it has stopped working.

use crate::request_log::target::Target;

/// Whose status writes are not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Those of the sandbox's own controllers and kubelets; requests still write it.
    Controllers,
    /// Everybody's. A request that would write it is answered as if nothing had been different.
    Everybody,
}

/// The statuses that stand still.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    entries: Vec<(u64, Target, Writers)>,
}

impl Frozen {
    /// Freezes what a target covers.
    pub(crate) fn add(&mut self, id: u64, target: Target, writers: Writers) {
        self.entries.push((id, target, writers));
    }

    /// Lets it go again, and says what it was.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Target> {
        let at = self.entries.iter().position(|(known, ..)| *known == id)?;
        Some(self.entries.remove(at).1)
    }

    /// Whether a controller's write of this object's status is not made.
    pub(crate) fn for_controllers(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.entries.iter().any(|(_, target, _)| target.covers(group, plural, namespace, name))
    }

    /// Whether nobody's is.
    pub(crate) fn for_everybody(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.entries.iter().any(|(_, target, writers)| {
            *writers == Writers::Everybody && target.covers(group, plural, namespace, name)
        })
    }
}
