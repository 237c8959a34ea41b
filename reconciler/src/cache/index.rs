//! Objects by what they concern, such as their node, so that those of one node are found without a search of all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Objects, each with a key of its own, by what they concern. What an object concerns may change.
pub(crate) struct Index<K, V> {
    by_subject: HashMap<Box<str>, HashMap<K, V>>,
    subjects: HashMap<K, Box<str>>,
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self { by_subject: HashMap::new(), subjects: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Index<K, V> {
    /// Adds an object, or replaces the one with its key.
    pub(crate) fn insert(&mut self, key: K, subject: &str, value: V) {
        if self.subjects.get(&key).is_none_or(|before| **before != *subject) {
            self.remove(&key);
            self.subjects.insert(key.clone(), subject.into());
        }
        match self.by_subject.get_mut(subject) {
            Some(objects) => _ = objects.insert(key, value),
            None => _ = self.by_subject.insert(subject.into(), HashMap::from([(key, value)])),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let Entry::Occupied(mut objects) = self.by_subject.entry(self.subjects.remove(key)?) else {
            return None;
        };
        let removed = objects.get_mut().remove(key);
        if objects.get().is_empty() {
            objects.remove();
        }
        removed
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&K) -> bool) {
        self.subjects.retain(|key, _| stays(key));
        self.by_subject.retain(|_, objects| {
            objects.retain(|key, _| stays(key));
            !objects.is_empty()
        });
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.by_subject.get(self.subjects.get(key)?)?.get(key)
    }

    /// The objects that concern `subject`.
    pub(crate) fn of(&self, subject: &str) -> impl Iterator<Item = &V> {
        self.by_subject.get(subject).into_iter().flat_map(HashMap::values)
    }

    pub(crate) fn has(&self, subject: &str) -> bool {
        self.by_subject.contains_key(subject)
    }

    /// What any object concerns.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.by_subject.keys().map(|subject| &**subject)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.by_subject.values().flat_map(HashMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_what_it_concerns_now() {
        let mut index = Index::default();
        let of = |index: &Index<&str, u32>, subject: &str| {
            let mut found: Vec<u32> = index.of(subject).copied().collect();
            found.sort_unstable();
            found
        };
        for (key, subject, value) in [("a", "n", 1), ("b", "n", 2), ("c", "m", 3)] {
            index.insert(key, subject, value);
        }
        assert_eq!((of(&index, "n"), of(&index, "m"), of(&index, "other")), (vec![1, 2], vec![3], vec![]));
        index.insert("b", "n", 4);
        index.insert("a", "m", 5);
        assert_eq!((of(&index, "n"), of(&index, "m")), (vec![4], vec![3, 5]));
        assert_eq!((index.remove(&"b"), index.remove(&"b")), (Some(4), None));
        assert_eq!((index.has("n"), index.get(&"a"), index.values().count()), (false, Some(&5), 2));
        index.retain(|key| *key == "c");
        assert_eq!((of(&index, "m"), index.get(&"a")), (vec![3], None));
        index.retain(|_| false);
        assert_eq!(index.subjects().count(), 0);
    }
}
