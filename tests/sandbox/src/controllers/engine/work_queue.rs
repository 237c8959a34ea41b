//! Objects that wait for something to be done to them, each once, first come first served.

use std::collections::{BTreeMap, HashMap};

use crate::cluster::store::Key;

/// The line. Whoever stands in it already keeps their place.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    line: BTreeMap<u64, Key>,
    places: HashMap<Key, u64>,
    next: u64,
}

impl WorkQueue {
    /// Goes to the end of the line.
    pub(crate) fn join(&mut self, key: Key) {
        if !self.places.contains_key(&key) {
            self.places.insert(key.clone(), self.next);
            self.line.insert(self.next, key);
            self.next += 1;
        }
    }

    /// Leaves the line from wherever it stands.
    pub(crate) fn leave(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.line.remove(&place);
        }
    }

    /// Whoever has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let (_, key) = self.line.pop_first()?;
        self.places.remove(&key);
        Some(key)
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Sends everybody away.
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
