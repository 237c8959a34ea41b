//! Every request that the API server was asked, for suites that count them and for a person who wonders.
//!
//! The newest are kept, and how many there ever were is counted. A watch is here from when it begins; other requests
//! from when they are answered, or given up.

pub(crate) mod glob;
pub(crate) mod target;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

/// How many requests are remembered, some 40 MB of them; older ones are forgotten first.
const KEPT: usize = 100_000;

/// One request and how it was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// When it came.
    pub at: Timestamp,
    /// `User-Agent`, or empty.
    pub user_agent: String,
    /// Who asked.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// API group; empty for the core group and for paths that are no resource.
    pub group: String,
    /// Plural name, or the whole path where it is no resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// What a list or a watch is narrowed to by `fieldSelector`, or empty.
    pub field_selector: String,
    /// Whether objects are asked for by their metadata alone.
    pub metadata_only: bool,
    /// HTTP status code; zero where no answer was given: the connection was closed, or the server killed.
    pub code: u16,
    /// Until the answer began; a watch goes on after that.
    pub took: Duration,
}

/// The requests so far.
#[derive(Debug)]
pub struct RequestLog {
    entries: Mutex<VecDeque<Entry>>,
    kept: usize,
    total: watch::Sender<u64>,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl RequestLog {
    /// A log of so many requests at most.
    fn keeping(kept: usize) -> Self {
        Self { entries: Mutex::default(), kept, total: watch::Sender::new(0) }
    }

    /// Adds one.
    pub(crate) fn record(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.len() >= self.kept {
            entries.pop_front();
        }
        entries.push_back(entry);
        drop(entries);
        self.total.send_modify(|total| *total += 1);
    }

    /// A copy of everything that is kept, oldest first.
    pub fn all(&self) -> Vec<Entry> {
        self.lock().iter().cloned().collect()
    }

    /// How many there are that `wanted` says yes to, among those that are kept.
    pub fn count(&self, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.lock().iter().filter(|entry| wanted(entry)).count()
    }

    /// How many there ever were, forgotten ones too.
    pub fn total(&self) -> u64 {
        *self.total.borrow()
    }

    /// Waits until something holds, as in `log.until(|log| log.count(|entry| entry.verb == "watch") == 2)`. It is asked
    /// once at the beginning and after every request. There is no bound to the wait but the caller's own.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut grown = self.total.subscribe();
        loop {
            // Marked as seen before the look, so that a request in between wakes again.
            grown.borrow_and_update();
            // The sender is this log's own; it cannot go before the log does.
            if holds(self) || grown.changed().await.is_err() {
                return;
            }
        }
    }

    /// Forgets everything so far, save how much it was.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Entry {
        Entry { name: name.to_owned(), ..Entry::default() }
    }

    #[test]
    fn a_full_log_forgets_the_oldest_and_counts_them_still() {
        let log = RequestLog::keeping(2);
        for name in ["a", "b", "c"] {
            log.record(named(name));
        }
        let names: Vec<String> = log.all().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["b", "c"]);
        log.clear();
        assert_eq!((log.count(|_| true), log.total()), (0, 3));
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_request_that_it_is_for() {
        let log = RequestLog::default();
        let wait = log.until(|log| log.count(|entry| entry.name == "b") == 1);
        let requests = async {
            log.record(named("a"));
            tokio::task::yield_now().await;
            log.record(named("b"));
        };
        tokio::join!(wait, requests);
        log.until(|log| log.total() == 2).await;
    }
}
