//! The interface of a controller: without time or I/O of its own. It observes every change of what it watches, keeps
//! the indexes that it needs, and reconciles in one step.
//!
//! Observing and reconciling happen under one lock (`driver`), so a controller always acts on the current state. There
//! are no conflicts and no stale caches.

use jiff::Timestamp;

use crate::cluster::store::{Change, Collection};
use crate::controllers::engine::context::ReconcileContext;

/// The collections that a controller watches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watches {
    /// These collections.
    These(&'static [Collection]),
    /// All collections, including those of custom resources.
    Everything,
}

/// When a controller reconciles next. Every change triggers a reconcile too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// At the next change.
    Change,
    /// At this time, or at the next change.
    At(Timestamp),
    /// At once: there is more to do.
    Now,
}

impl Requeue {
    /// At a time, if there is one.
    pub(crate) fn at(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Change, Self::At)
    }

    /// At once, or at the next change.
    pub(crate) fn now_if(more: bool) -> Self {
        if more { Self::Now } else { Self::Change }
    }
}

/// A controller.
pub(crate) trait Controller: Send + 'static {
    /// The collections that it watches.
    fn watches(&self) -> Watches;

    /// The history of a collection is lost: every object is observed again, as if new.
    fn forget(&mut self, collection: &Collection);

    /// An object was written or removed.
    fn observe(&mut self, collection: &Collection, change: &Change);

    /// Reconciles.
    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue;
}

/// Reconciles what is queued until the queue is empty or the context is full.
pub(crate) fn sync_queue<C, T>(
    controller: &mut C,
    ctx: &mut ReconcileContext<'_>,
    next: impl Fn(&mut C) -> Option<T>,
    reconcile: impl Fn(&mut C, &mut ReconcileContext<'_>, T),
) -> Requeue {
    while !ctx.is_full() {
        let Some(queued) = next(controller) else { return Requeue::Change };
        reconcile(controller, ctx, queued);
    }
    Requeue::Now
}
