//! The open watches, so that a test can end or mute them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch as signal;

use crate::request_log::Entry;
use crate::request_log::target::Target;

/// How many more events a watch sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WatchBudget {
    /// All events.
    #[default]
    Everything,
    /// So many events; then it ends cleanly.
    Events(usize),
    /// None, and it does not end.
    Nothing,
    /// All events, each this much later.
    Late(Duration),
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
    /// Registers a watch. It is open until the handle is dropped.
    pub(crate) fn begin(self: &Arc<Self>, entry: &Entry, allowance: WatchBudget) -> WatchControl {
        let (sender, allowance) = signal::channel(allowance);
        let mut open = self.lock();
        open.last += 1;
        let id = open.last;
        open.watches.insert(id, (entry.clone(), sender));
        WatchControl { allowance, id, watches: self.clone() }
    }

    /// Limits the watches that match. Returns their number.
    pub(crate) fn allow(&self, target: &Target, allowance: WatchBudget) -> usize {
        let open = self.lock();
        let mut matching = 0;
        for (_, sender) in open.watches.values().filter(|(entry, _)| target.matches(entry)) {
            sender.send_replace(allowance);
            matching += 1;
        }
        matching
    }

    /// The number of watches that match.
    pub(crate) fn count(&self, target: &Target) -> usize {
        self.lock().watches.values().filter(|(entry, _)| target.matches(entry)).count()
    }

    fn lock(&self) -> MutexGuard<'_, OpenWatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of an open watch.
#[derive(Debug)]
pub(crate) struct WatchControl {
    /// The limit, counted from when it was last set.
    pub(crate) allowance: signal::Receiver<WatchBudget>,
    id: u64,
    watches: Arc<OpenWatches>,
}

impl Drop for WatchControl {
    fn drop(&mut self) {
        self.watches.lock().watches.remove(&self.id);
    }
}
