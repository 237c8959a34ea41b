//! The objects of one collection, by name and by node, and their recent changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::cluster::store::key::{Key, ListScope};
use crate::cluster::store::object::{Object, StoredObject};

/// How many changes a collection keeps for watches that resume.
const HISTORY: usize = 10_000;
/// How many revisions of a collection's objects stay unfolded: those in the history, so that an object that is soon
/// overwritten is never folded, and all objects of a small collection.
const OPEN: usize = 2 * HISTORY;

/// Objects in key order.
type Objects<'a> = Box<dyn Iterator<Item = (&'a Key, &'a StoredObject)> + 'a>;

/// A change of an object in the history.
#[derive(Debug)]
pub(crate) struct PastChange {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) before: Option<StoredObject>,
    pub(crate) after: Option<StoredObject>,
    pub(crate) last: Option<StoredObject>,
}

/// A collection.
#[derive(Debug, Default)]
pub(crate) struct CollectionState {
    objects: BTreeMap<Key, StoredObject>,
    nodes: HashMap<Arc<str>, OnNode>,
    history: VecDeque<PastChange>,
    /// New readers cannot read changes before this revision.
    compacted: u64,
    /// The newest change that was dropped.
    forgotten: u64,
    grown: watch::Sender<u64>,
    /// Unfolded objects, in the order of their writes.
    open: VecDeque<StoredObject>,
}

/// The objects on one node, and the revisions in the history that concern it.
#[derive(Debug, Default)]
struct OnNode {
    keys: BTreeSet<Key>,
    changes: VecDeque<u64>,
    /// The newest change of this node that was dropped.
    forgotten: u64,
    grown: watch::Sender<u64>,
}

impl OnNode {
    /// Whether the entry is still needed.
    fn is_of_use(&self) -> bool {
        !self.keys.is_empty() || !self.changes.is_empty() || self.grown.receiver_count() > 0
    }
}

impl CollectionState {
    pub(crate) fn get(&self, key: &Key) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    /// The objects in a scope, in key order, after a key if one is given.
    pub(crate) fn seek<'a>(&'a self, scope: ListScope<'a>, after: Option<&Key>) -> Objects<'a> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        match scope {
            ListScope::Everything => Box::new(self.objects.range((from, Bound::Unbounded))),
            ListScope::Namespace(namespace) => {
                let first = Key::new(namespace, "");
                let from = match after {
                    Some(after) if *after >= first => from,
                    _ => Bound::Included(first),
                };
                let rows = self.objects.range((from, Bound::Unbounded));
                Box::new(rows.take_while(move |(key, _)| key.namespace == namespace))
            }
            ListScope::Node(node) => {
                let keys = self.nodes.get(node).into_iter();
                let keys = keys.flat_map(move |on| on.keys.range((from.clone(), Bound::Unbounded)));
                Box::new(keys.filter_map(|key| Some((key, self.objects.get(key)?))))
            }
        }
    }

    /// The objects as they were at a revision: later changes are undone. `None` if the history does not go back that
    /// far.
    pub(crate) fn seek_at_revision<'a>(
        &'a self,
        scope: ListScope<'a>,
        after: &Key,
        revision: u64,
    ) -> Option<Objects<'a>> {
        let mut then: BTreeMap<&Key, Option<&StoredObject>> = BTreeMap::new();
        for past in self.changes(None, revision)? {
            if past.key > *after {
                // The first change after the revision shows what the object was.
                let before = past.before.as_ref().filter(|before| scope.has(&past.key, before.node()));
                then.entry(&past.key).or_insert(before);
            }
        }
        let now = self.seek(scope, Some(after));
        if then.is_empty() {
            return Some(now);
        }
        let mut found: Vec<(&Key, &StoredObject)> = now.filter(|(key, _)| !then.contains_key(key)).collect();
        found.extend(then.into_iter().filter_map(|(key, before)| Some((key, before?))));
        found.sort_by_key(|(key, _)| *key);
        Some(Box::new(found.into_iter()))
    }

    /// Writes an object at a revision.
    pub(crate) fn put(&mut self, key: &Key, object: Object, revision: u64) {
        let node = object["spec"]["nodeName"].as_str().map(|node| self.interned(node));
        let after = StoredObject::new(object, node);
        let before = self.objects.insert(key.clone(), after.clone());
        self.index(key, before.as_ref(), Some(&after));
        self.remember(PastChange { key: key.clone(), revision, before, after: Some(after), last: None });
    }

    /// Removes an object; `last` computes its last state.
    pub(crate) fn remove(
        &mut self,
        key: &Key,
        revision: u64,
        last: impl FnOnce(Value) -> Value,
    ) -> Option<Object> {
        let before = self.objects.remove(key)?;
        self.index(key, Some(&before), None);
        let last = Object::new(last(Value::clone(&before.open())));
        let stored = StoredObject::new(last.clone(), before.node().cloned());
        let key = key.clone();
        self.remember(PastChange { key, revision, before: Some(before), after: None, last: Some(stored) });
        Some(last)
    }

    /// The changes after a revision, oldest first, of one node if one is given; `None` if the history does not go back
    /// that far.
    pub(crate) fn changes<'a>(
        &'a self,
        node: Option<&str>,
        since: u64,
    ) -> Option<Box<dyn Iterator<Item = &'a PastChange> + 'a>> {
        let Some(node) = node else {
            let known = since >= self.forgotten;
            return known.then(|| Box::new(self.history.range(self.first_after(since)..)) as Box<_>);
        };
        let Some(on) = self.nodes.get(node) else {
            return Some(Box::new(std::iter::empty()));
        };
        if since < on.forgotten {
            return None;
        }
        let first = on.changes.partition_point(|revision| *revision <= since);
        let found = on.changes.range(first..).filter_map(|revision| {
            self.history.get(self.first_after(revision - 1)).filter(|past| past.revision == *revision)
        });
        Some(Box::new(found))
    }

    /// Whether a new reader can no longer read the changes after this revision.
    pub(crate) fn is_compacted(&self, since: u64) -> bool {
        since < self.compacted
    }

    /// A receiver that is notified of every change, or of changes on one node.
    pub(crate) fn follow(&mut self, node: Option<&str>) -> watch::Receiver<u64> {
        let Some(node) = node else { return self.grown.subscribe() };
        if !self.nodes.contains_key(node) {
            self.nodes.retain(|_, on| on.is_of_use());
        }
        self.nodes.entry(node.into()).or_default().grown.subscribe()
    }

    /// Drops all history.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.forgotten = self.history.back().map_or(self.forgotten, |past| past.revision);
        self.history.clear();
        // What is left of them are the objects themselves.
        self.open.clear();
        for on in self.nodes.values_mut() {
            on.forgotten = on.changes.back().copied().unwrap_or(on.forgotten);
            on.changes.clear();
        }
        self.nodes.retain(|_, on| on.is_of_use());
        self.compacted = revision;
    }

    /// The oldest revision at which the objects can be read.
    pub(crate) fn oldest_readable(&self) -> u64 {
        self.forgotten.max(self.compacted)
    }

    /// Undoes the changes after a revision, the newest first. Watches at a later revision have to start again.
    pub(crate) fn restore(&mut self, revision: u64) {
        while self.history.back().is_some_and(|past| past.revision > revision) {
            let Some(past) = self.history.pop_back() else { return };
            self.index(&past.key, past.after.as_ref(), past.before.as_ref());
            match &past.before {
                Some(before) => self.objects.insert(past.key.clone(), before.clone()),
                None => self.objects.remove(&past.key),
            };
            for node in past.nodes() {
                if let Some(on) = self.nodes.get_mut(&node) {
                    on.changes.pop_back();
                    on.grown.send_replace(revision);
                }
            }
        }
        self.grown.send_replace(revision);
    }

    fn first_after(&self, revision: u64) -> usize {
        self.history.partition_point(|past| past.revision <= revision)
    }

    /// The shared copy of a node's name.
    fn interned(&mut self, node: &str) -> Arc<str> {
        if let Some((name, _)) = self.nodes.get_key_value(node) {
            return name.clone();
        }
        let name: Arc<str> = node.into();
        self.nodes.insert(name.clone(), OnNode::default());
        name
    }

    fn index(&mut self, key: &Key, before: Option<&StoredObject>, after: Option<&StoredObject>) {
        let (old, new) = (before.and_then(StoredObject::node), after.and_then(StoredObject::node));
        if old == new {
            return;
        }
        if let Some(on) = old.and_then(|node| self.nodes.get_mut(node)) {
            on.keys.remove(key);
        }
        if let Some(on) = new.and_then(|node| self.nodes.get_mut(node)) {
            on.keys.insert(key.clone());
        }
    }

    fn remember(&mut self, past: PastChange) {
        for node in past.nodes() {
            if let Some(on) = self.nodes.get_mut(&node) {
                on.changes.push_back(past.revision);
                on.grown.send_replace(past.revision);
            }
        }
        self.grown.send_replace(past.revision);
        // Readers of the change need the previous revision too.
        let reopened = past.before.iter().filter(|before| before.unfold());
        let written = past.after.iter().chain(&past.last);
        self.open.extend(reopened.chain(written).cloned());
        self.history.push_back(past);
        if self.history.len() > HISTORY
            && let Some(forgotten) = self.history.pop_front()
        {
            self.forget(&forgotten);
        }
    }

    /// Objects that have been unfolded for long enough, to fold outside the lock.
    pub(crate) fn cooled(&mut self) -> impl Iterator<Item = StoredObject> + use<'_> {
        let surplus = self.open.len().saturating_sub(OPEN);
        self.open.drain(..surplus)
    }

    fn forget(&mut self, past: &PastChange) {
        self.compacted = self.compacted.max(past.revision);
        self.forgotten = past.revision;
        for node in past.nodes() {
            let Some(on) = self.nodes.get_mut(&node) else {
                continue;
            };
            on.forgotten = on.changes.pop_front().unwrap_or(on.forgotten);
            if !on.is_of_use() {
                self.nodes.remove(&node);
            }
        }
    }
}

impl PastChange {
    /// The nodes that the change concerns, at most two.
    fn nodes(&self) -> impl Iterator<Item = Arc<str>> + use<> {
        let node = |stored: &Option<StoredObject>| stored.as_ref().and_then(StoredObject::node).cloned();
        let (before, after) = (node(&self.before), node(&self.after));
        let moved = after.filter(|after| Some(after) != before.as_ref());
        before.into_iter().chain(moved)
    }
}
