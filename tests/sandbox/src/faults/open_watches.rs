//! The watches that are open, so that a test can end or silence them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch as signal;

use super::target::Target;
use crate::request_log::Entry;

/// What a watch may still say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// Whatever there is.
    #[default]
    Everything,
    /// So many events; then it ends in good order.
    Events(usize),
    /// Nothing, and it does not end either.
    Nothing,
}

/// The open watches.
#[derive(Debug, Default)]
pub(crate) struct OpenWatches(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    watches: HashMap<u64, (Entry, signal::Sender<Allowance>)>,
}

impl OpenWatches {
    /// A watch begins. It is open until its leash is dropped.
    pub(crate) fn begin(self: &Arc<Self>, entry: &Entry, allowance: Allowance) -> Leash {
        let (sender, allowance) = signal::channel(allowance);
        let mut open = self.lock();
        open.last += 1;
        let id = open.last;
        open.watches.insert(id, (entry.clone(), sender));
        Leash { allowance, id, watches: self.clone() }
    }

    /// Lets those that match say this from now on. Returns how many they are.
    pub(crate) fn allow(&self, target: &Target, allowance: Allowance) -> usize {
        let open = self.lock();
        let mut matching = 0;
        for (_, sender) in open.watches.values().filter(|(entry, _)| target.matches(entry)) {
            sender.send_replace(allowance);
            matching += 1;
        }
        matching
    }

    /// How many match.
    pub(crate) fn count(&self, target: &Target) -> usize {
        self.lock().watches.values().filter(|(entry, _)| target.matches(entry)).count()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By which an open watch is held.
#[derive(Debug)]
pub(crate) struct Leash {
    /// How much it may say, counted from when that was last changed.
    pub(crate) allowance: signal::Receiver<Allowance>,
    id: u64,
    watches: Arc<OpenWatches>,
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.watches.lock().watches.remove(&self.id);
    }
}
