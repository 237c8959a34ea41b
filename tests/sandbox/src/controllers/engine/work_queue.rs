//! Objects to work on, each at most once, in FIFO order.

use std::collections::{BTreeMap, HashMap};

use crate::cluster::store::Key;

/// The queue. An object that is already in it keeps its position.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    line: BTreeMap<u64, Key>,
    places: HashMap<Key, u64>,
    next: u64,
}

impl WorkQueue {
    /// Adds an object at the end.
    pub(crate) fn join(&mut self, key: Key) {
        if !self.places.contains_key(&key) {
            self.places.insert(key.clone(), self.next);
            self.line.insert(self.next, key);
            self.next += 1;
        }
    }

    /// Removes an object.
    pub(crate) fn leave(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.line.remove(&place);
        }
    }

    /// Removes and returns the first object.
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let (_, key) = self.line.pop_first()?;
        self.places.remove(&key);
        Some(key)
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Removes all objects.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_nobody_twice() {
        let mut line = WorkQueue::default();
        for name in ["c", "a", "c", "b"] {
            line.join(Key::cluster(name));
        }
        line.leave(&Key::cluster("a"));
        let served: Vec<Key> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(served, [Key::cluster("c"), Key::cluster("b")]);
        assert!(line.is_empty());
    }
}
