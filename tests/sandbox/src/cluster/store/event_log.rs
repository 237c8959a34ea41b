//! The events that controllers have written, so that their number stays limited.
//!
//! An API server drops an event after an hour. Here the oldest is dropped when there are many, and none are written
//! while a large cluster is created.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::cluster::store::key::Key;

/// How many events of controllers are kept.
pub(crate) const KEPT: usize = 5_000;

/// The events of controllers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    closed: bool,
    kept: VecDeque<(String, Key)>,
    /// The last event with each content and object.
    said: HashMap<String, Key>,
    stamp: i128,
}

impl EventLog {
    /// Stops writing events.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Starts writing events again.
    pub(crate) fn open(&mut self) {
        self.closed = false;
    }

    /// Whether events are not written.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The last event with this content.
    pub(crate) fn find(&self, gist: &str) -> Option<&Key> {
        self.said.get(gist)
    }

    /// A unique number for an event's name, derived from the time.
    pub(crate) fn stamp(&mut self, now: Timestamp) -> i128 {
        self.stamp = now.as_nanosecond().max(self.stamp + 1);
        self.stamp
    }

    /// Adds an event. Returns the event to delete, if there are too many.
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
