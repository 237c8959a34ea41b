//! What a controller is: a machine without time or I/O of its own. It is shown every change of what it watches, keeps
//! the few indexes that it needs, and when it is its turn it acts on the state, all at once.
//!
//! Reading the changes and acting on them happen under one lock (`run`), so a controller always acts on what is,
//! never on what it remembers; there are no conflicts, no expectations and no caches to wait for.

use jiff::Timestamp;

use crate::cluster::store::{Change, Collection};

use crate::controllers::engine::context::ReconcileContext;

/// The collections whose changes a controller is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watches {
    /// These.
    These(&'static [Collection]),
    /// Every collection, those of custom resources too.
    Everything,
}

/// When a controller wants its next turn, beside the one that every change gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// When something changes.
    Change,
    /// At this time, or when something changes.
    At(Timestamp),
    /// At once: there is more to do.
    Now,
}

impl Requeue {
    /// At a time, where there is one.
    pub(crate) fn at(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Change, Self::At)
    }

    /// At once, or when something changes.
    pub(crate) fn now_if(more: bool) -> Self {
        if more { Self::Now } else { Self::Change }
    }
}

/// One of the things that keep a cluster going.
pub(crate) trait Controller: Send + 'static {
    /// What it is shown.
    fn watches(&self) -> Watches;

    /// History of a collection is lost: every object in it is shown again, as if new.
    fn forget(&mut self, collection: &Collection);

    /// An object was written or removed.
    fn observe(&mut self, collection: &Collection, change: &Change);

    /// Does what there is to do.
    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue;
}
