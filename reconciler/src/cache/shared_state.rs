//! The one lock of a term.
//!
//! Whoever holds it makes one decision or applies one event, so no two decisions overlap: a decision counts the nodes that are
//! taken, and takes one, and nothing changes in between. The lock cannot be kept across an await. The maintenances that an event
//! concerns are reconciled once it is released.

use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::runtime::reflector::ObjectRef;
use nm_shared::{Group, GroupedMaintenance};
use tokio::sync::watch;

use crate::cache::term_state::TermState;

/// The maintenances to reconcile, per group.
pub(crate) type Triggered = [(Group, UnboundedReceiver<ObjectRef<GroupedMaintenance>>); Group::ALL.len()];

/// The state of a term, for all of its tasks.
pub(crate) struct SharedState {
    state: Mutex<TermState>,
    triggers: [(Group, UnboundedSender<ObjectRef<GroupedMaintenance>>); Group::ALL.len()],
    gate_changes: watch::Sender<()>,
    lists: watch::Sender<()>,
}

/// The state while nobody else sees or changes it.
pub(crate) struct StateGuard<'a> {
    state: MutexGuard<'a, TermState>,
    shared: &'a SharedState,
}

impl SharedState {
    /// Nothing is known yet. Maintenances of these groups are watched, and at most `max_concurrent_evictions` requests are in
    /// progress at once.
    pub(crate) fn new(
        groups: impl IntoIterator<Item = Group>,
        max_concurrent_evictions: NonZeroUsize,
    ) -> (Arc<Self>, Triggered) {
        let channels = Group::ALL.map(|group| (group, unbounded()));
        let triggers = channels.each_ref().map(|(group, (sender, _))| (*group, sender.clone()));
        let shared = Self {
            state: Mutex::new(TermState::new(groups, max_concurrent_evictions)),
            triggers,
            gate_changes: watch::Sender::new(()),
            lists: watch::Sender::new(()),
        };
        (Arc::new(shared), channels.map(|(group, (_, receiver))| (group, receiver)))
    }

    pub(crate) fn lock(&self) -> StateGuard<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard { state, shared: self }
    }

    /// Wakes after every change that may let a maintenance begin, or move it in the queue.
    pub(crate) fn gate_changes(&self) -> watch::Receiver<()> {
        self.gate_changes.subscribe()
    }

    /// Waits until as much `is_known` as wanted, which a list or its refusal decides.
    pub(crate) async fn until_listed(&self, is_known: impl Fn(&TermState) -> bool) {
        let mut lists = self.lists.subscribe();
        while !is_known(&self.lock()) {
            // The sender lives as long as this.
            let _ = lists.changed().await;
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = TermState;

    fn deref(&self) -> &TermState {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut TermState {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let SharedState { triggers, gate_changes, lists, .. } = self.shared;
        for maintenance in self.state.take_triggered() {
            for (_, sender) in triggers.iter().filter(|(group, _)| *group == maintenance.dyntype) {
                // The receiver is gone only when the term ends.
                let _ = sender.unbounded_send(maintenance.clone());
            }
        }
        if self.state.gate.take_change() {
            gate_changes.send_replace(());
        }
        if self.state.take_list() {
            lists.send_replace(());
        }
    }
}
