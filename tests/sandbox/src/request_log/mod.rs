//! The requests that the API server received, so that tests can count them.
//!
//! The log keeps the newest requests and the total number. A watch is logged when it starts, any other request when it
//! is answered or cancelled.

pub(crate) mod glob;
pub(crate) mod target;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

/// How many requests are kept (about 40 MB). The oldest are dropped first.
const KEPT: usize = 100_000;

/// One request and its response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// When it arrived.
    pub at: Timestamp,
    /// `User-Agent`, or empty.
    pub user_agent: String,
    /// Name of the user.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// API group; empty for the core group and for non-resource paths.
    pub group: String,
    /// Plural name, or the path of a non-resource request.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// `fieldSelector` of a list or a watch, or empty.
    pub field_selector: String,
    /// `labelSelector` of a list or a watch, or empty.
    pub label_selector: String,
    /// Whether only metadata is requested (`PartialObjectMetadata`).
    pub metadata_only: bool,
    /// HTTP status code; zero if there was no response because the connection was closed or the server killed.
    pub code: u16,
    /// Time until the response started; a watch continues after that.
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
    /// A log that keeps at most so many requests.
    fn keeping(kept: usize) -> Self {
        Self { entries: Mutex::default(), kept, total: watch::Sender::new(0) }
    }

    /// Adds a request.
    pub(crate) fn record(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.len() >= self.kept {
            entries.pop_front();
        }
        entries.push_back(entry);
        drop(entries);
        self.total.send_modify(|total| *total += 1);
    }

    /// The requests that are kept, oldest first.
    pub fn all(&self) -> Vec<Entry> {
        self.lock().iter().cloned().collect()
    }

    /// How many of the requests that are kept match `wanted`.
    pub fn count(&self, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.lock().iter().filter(|entry| wanted(entry)).count()
    }

    /// How many requests there were, including those that are no longer kept.
    pub fn total(&self) -> u64 {
        *self.total.borrow()
    }

    /// Waits until a condition holds, as in `log.until(|log| log.count(|entry| entry.verb == "watch") == 2)`. Evaluates it
    /// at once and after every request. There is no timeout.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut grown = self.total.subscribe();
        loop {
            // Marked as seen before the check, so that a request in between wakes this task again.
            grown.borrow_and_update();
            // The log owns the sender, so the channel stays open.
            if holds(self) || grown.changed().await.is_err() {
                return;
            }
        }
    }

    /// Drops all requests, but not the total number.
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
    fn a_full_log_drops_the_oldest_requests_and_still_counts_them() {
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
    async fn waiting_for_a_request_ends_when_it_is_logged() {
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
