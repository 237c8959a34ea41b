//! What is to be done to which object at what time, at most one thing an object.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::cluster::store::Key;

/// Things to do, in the order of their time.
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
    /// Plans something for an object instead of what was planned. The same thing for the same object is never put
    /// off, only brought forward. Says whether it was not planned before.
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

    /// Nothing is to be done to this object any more.
    pub(crate) fn cancel(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&(entry.at, key.clone()));
        }
    }

    /// The next thing whose time has come, with the uid of the object that it was planned for.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Key, String, T)> {
        if self.next_at()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        let entry = self.entries.remove(&key)?;
        Some((key, entry.uid, entry.what))
    }

    /// When the next thing is due.
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
