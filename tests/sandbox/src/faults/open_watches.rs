//! The watches that are open, so that a test can end or silence them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch as signal;

use crate::request_log::Entry;
use crate::request_log::target::Target;

/// What a watch may still say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WatchBudget {
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
pub(crate) struct OpenWatches(Mutex<OpenWatch>);

#[derive(Debug, Default)]
struct OpenWatch {
    last: u64,
    watches: HashMap<u64, (Entry, signal::Sender<WatchBudget>)>,
}

impl OpenWatches {
    /// A watch begins. It is open until its leash is dropped.
    pub(crate) fn begin(self: &Arc<Self>, entry: &Entry, allowance: WatchBudget) -> WatchControl {
        let (sender, allowance) = signal::channel(allowance);
        let mut open = self.lock();
        open.last += 1;
        let id = open.last;
        open.watches.insert(id, (entry.clone(), sender));
        WatchControl { allowance, id, watches: self.clone() }
    }

    /// Lets those that match say this from now on. Returns how many they are.
    pub(crate) fn allow(&self, target: &Target, allowance: WatchBudget) -> usize {
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

    fn lock(&self) -> MutexGuard<'_, OpenWatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By which an open watch is held.
#[derive(Debug)]
pub(crate) struct WatchControl {
    /// How much it may say, counted from when that was last changed.
    pub(crate) allowance: signal::Receiver<WatchBudget>,
    id: u64,
    watches: Arc<OpenWatches>,
}

impl Drop for WatchControl {
    fn drop(&mut self) {
        self.watches.lock().watches.remove(&self.id);
    }
}
