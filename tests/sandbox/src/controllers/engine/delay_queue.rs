//! Tasks for objects, each with a time; at most one task for each object.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::cluster::store::Key;

/// The tasks in the order of their times.
#[derive(Debug)]
pub(crate) struct DelayQueue<T> {
    entries: HashMap<Key, QueuedItem<T>>,
    order: BTreeSet<(Timestamp, Key)>,
}

#[derive(Debug)]
struct QueuedItem<T> {
    uid: String,
    what: T,
    at: Timestamp,
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<T: PartialEq> DelayQueue<T> {
    /// Schedules a task for an object, replacing its previous one. The same task for the same object is never
    /// postponed, only brought forward. Returns whether it is new.
    pub(crate) fn plan(&mut self, key: Key, uid: &str, what: T, at: Timestamp) -> bool {
        let (mut at, mut is_new) = (at, true);
        if let Some(entry) = self.entries.get(&key)
            && entry.uid == uid
            && entry.what == what
        {
            at = at.min(entry.at);
            is_new = false;
        }
        self.cancel(&key);
        self.order.insert((at, key.clone()));
        let uid = uid.to_owned();
        self.entries.insert(key, QueuedItem { uid, what, at });
        is_new
    }

    /// Removes the task of an object.
    pub(crate) fn cancel(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&(entry.at, key.clone()));
        }
    }

    /// Removes the next task that is due, and returns it with the uid of its object.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Key, String, T)> {
        if self.next_at()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        let entry = self.entries.remove(&key)?;
        Some((key, entry.uid, entry.what))
    }

    /// When the next task is due.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_errand_is_never_put_off_and_another_takes_its_place() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let key = || Key::new("ns", "a");
        let mut timeline = DelayQueue::default();
        timeline.plan(key(), "1", "start", at(5));
        timeline.plan(key(), "1", "start", at(9));
        assert_eq!(timeline.next_at(), Some(at(5)));
        timeline.plan(key(), "1", "stop", at(7));
        assert_eq!(timeline.pop(at(6)), None);
        assert_eq!(timeline.pop(at(7)), Some((key(), "1".into(), "stop")));
        assert_eq!(timeline.next_at(), None);
    }

    #[test]
    fn a_namesake_has_a_time_of_its_own() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut timeline = DelayQueue::default();
        timeline.plan(Key::new("ns", "a"), "1", "start", at(5));
        timeline.plan(Key::new("ns", "a"), "2", "start", at(9));
        assert_eq!(timeline.next_at(), Some(at(9)));
    }
}
