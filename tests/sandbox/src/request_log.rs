//! Every request that the API server answered, for suites that count them and for a person who wonders.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// How many requests are remembered; older ones are forgotten first.
const KEPT: usize = 500_000;

/// One request and how it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// HTTP status code.
    pub code: u16,
    /// Until the answer began; a watch goes on after that.
    pub took: Duration,
}

/// The requests so far.
#[derive(Debug, Default)]
pub struct RequestLog {
    entries: Mutex<VecDeque<Entry>>,
}

impl RequestLog {
    /// Adds one.
    pub(crate) fn record(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// A copy of everything, oldest first.
    pub fn all(&self) -> Vec<Entry> {
        self.lock().iter().cloned().collect()
    }

    /// How many there are that `wanted` says yes to.
    pub fn count(&self, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.lock().iter().filter(|entry| wanted(entry)).count()
    }

    /// Forgets everything so far.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
