//! Which events the cluster itself has written, so that they do not grow without end.
//!
//! An API server forgets an event after an hour. Here the oldest goes when there are many, and a cluster that is filled
//! with more than that says nothing until it stands.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::cluster::store::key::Key;

/// How many events of the cluster's own are kept.
pub(crate) const KEPT: usize = 5_000;

/// The events of the cluster's own, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    closed: bool,
    kept: VecDeque<(String, Key)>,
    /// By what they say and of whom.
    said: HashMap<String, Key>,
    stamp: i128,
}

impl EventLog {
    /// Nothing is written from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Events are written again.
    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// Whether nothing is written.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The event that said this last.
    pub(crate) fn find(&self, gist: &str) -> Option<&Key> {
        self.said.get(gist)
    }

    /// A number for an event's name, from the time, and never the same twice.
    pub(crate) fn stamp(&mut self, now: Timestamp) -> i128 {
        self.stamp = now.as_nanosecond().max(self.stamp + 1);
        self.stamp
    }

    /// Keeps an event; says which other one is to go for it.
    pub(crate) fn keep(&mut self, gist: String, key: Key) -> Option<Key> {
        self.said.insert(gist.clone(), key.clone());
        self.kept.push_back((gist, key));
        if self.kept.len() <= KEPT {
            return None;
        }
        let (gist, oldest) = self.kept.pop_front()?;
        if self.said.get(&gist) == Some(&oldest) {
            self.said.remove(&gist);
        }
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_for_the_newest_and_is_no_longer_known() {
        let mut journal = EventLog::default();
        let key = |number: usize| Key::new("ns", number.to_string());
        for number in 0..KEPT {
            assert_eq!(journal.keep(number.to_string(), key(number)), None);
        }
        assert_eq!(journal.keep("more".into(), key(KEPT)), Some(key(0)));
        assert_eq!((journal.find("0"), journal.find("1")), (None, Some(&key(1))));
        assert_eq!(journal.keep("1".into(), key(0)), Some(key(1)));
        assert_eq!(journal.find("1"), Some(&key(0)), "said again since");
    }

    #[test]
    fn two_events_of_one_instant_have_different_names() {
        let mut journal = EventLog::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let stamps = [journal.stamp(at(5)), journal.stamp(at(5)), journal.stamp(at(4)), journal.stamp(at(6))];
        assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
    }
}
