//! All objects of a cluster, one revision counter, and enough history for watches.
//!
//! All reads and writes happen in [`Store::read`] or [`Store::write`], under one lock and without waiting. What takes a
//! transaction in etcd (an eviction that reads a budget, charges it and marks the pod) is one closure here. The store
//! knows only `metadata.{namespace,name,resourceVersion}` and `spec.nodeName` of an object; `registry` decides which
//! writes are valid. `collection` stores the objects of one resource, and `object` one revision of an object.

mod collection;
pub(crate) mod event_log;
pub(crate) mod frozen_status;
mod key;
mod object;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::store::collection::{CollectionState, PastChange};
use crate::cluster::store::event_log::EventLog;
use crate::cluster::store::frozen_status::Frozen;

pub(crate) use crate::cluster::store::key::ListScope;
pub use crate::cluster::store::key::{Collection, Key};
pub use crate::cluster::store::object::Object;
pub(crate) use crate::cluster::store::object::StoredObject;

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The revision that the change made.
    pub revision: u64,
    /// The object before the change; none when it was created.
    pub before: Option<Object>,
    /// The object after the change; none when it was removed.
    pub after: Option<Object>,
    /// For a removal: the last state of the object with the removal's resourceVersion, as in a DELETED event.
    pub last: Option<Object>,
}

/// The objects, while the lock is held.
#[derive(Debug, Default)]
pub struct State {
    revision: u64,
    tables: HashMap<Collection, CollectionState>,
    /// Objects whose status is not updated.
    pub(crate) frozen: Frozen,
    /// The events that the controllers have written.
    pub(crate) event_log: EventLog,
    examined: Cell<u64>,
    /// Objects to fold into text once the lock is released.
    cold: Vec<StoredObject>,
}

/// The objects of a cluster.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
}

impl Default for Store {
    fn default() -> Self {
        // Revision 1 is the empty cluster, so that 0 can mean "any" as it does in the API.
        let state = State { revision: 1, ..State::default() };
        Self { state: Mutex::new(state), revision: watch::Sender::new(1) }
    }
}

impl Store {
    /// Runs `act` with exclusive access to the state, and notifies subscribers if anything changed.
    pub fn write<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let before = state.revision;
        let result = act(&mut state);
        if state.revision != before {
            self.revision.send_replace(state.revision);
        }
        let cold = std::mem::take(&mut state.cold);
        drop(state);
        // This does not need the lock.
        for stored in cold {
            stored.fold();
        }
        result
    }

    /// Runs `look` on the state.
    pub fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// A revision at most so many before the newest one, at which all objects can be read.
    pub(crate) fn readable_revision(&self, back: u64) -> u64 {
        let state = self.lock();
        let oldest = state.tables.values().map(CollectionState::oldest_readable).max().unwrap_or_default();
        state.revision.saturating_sub(back).max(oldest).max(1)
    }

    /// Undoes the changes after `revision`, which becomes the newest one. Returns whether the history goes back that far.
    pub(crate) fn restore(&self, revision: u64) -> bool {
        let mut state = self.lock();
        let is_known = state.tables.values().all(|rows| rows.oldest_readable() <= revision);
        if is_known && revision < state.revision {
            for rows in state.tables.values_mut() {
                rows.restore(revision);
            }
            state.revision = revision;
            drop(state);
            self.revision.send_replace(revision);
        }
        is_known
    }

    /// A receiver that is notified of every new revision.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// A receiver that is notified of every change in a collection, or of changes on one node only, so that a watch of
    /// a node's pods does not wake for the pods of other nodes.
    pub(crate) fn follow(&self, collection: &Collection, node: Option<&str>) -> watch::Receiver<u64> {
        self.lock().tables.entry(collection.clone()).or_default().follow(node)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic inside `act`, the objects are those that were last written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    pub fn get(&self, collection: &Collection, key: &Key) -> Option<Object> {
        self.find(collection, key).map(StoredObject::open)
    }

    /// Like [`State::get`], without unfolding the object.
    pub(crate) fn find(&self, collection: &Collection, key: &Key) -> Option<&StoredObject> {
        let stored = self.tables.get(collection)?.get(key)?;
        Some(self.handed(stored))
    }

    /// The objects of a collection, or of one namespace, in key order.
    pub fn list<'a>(
        &'a self,
        collection: &Collection,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = Object> + use<'a> {
        let scope = namespace.map_or(ListScope::Everything, ListScope::Namespace);
        self.seek(collection, scope).map(StoredObject::open)
    }

    /// The objects whose `spec.nodeName` is `node`, from an index.
    pub fn on_node<'a>(
        &'a self,
        collection: &Collection,
        node: &'a str,
    ) -> impl Iterator<Item = Object> + use<'a> {
        self.seek(collection, ListScope::Node(node)).map(StoredObject::open)
    }

    /// The objects in a scope, in key order, without unfolding them.
    pub(crate) fn seek<'a>(
        &'a self,
        collection: &Collection,
        scope: ListScope<'a>,
    ) -> impl Iterator<Item = &'a StoredObject> + use<'a> {
        let found = self.tables.get(collection).map(|rows| rows.seek(scope, None));
        found.into_iter().flatten().map(|(_, stored)| self.handed(stored))
    }

    /// The objects after a key, as they were at a revision; `None` if the history does not go back that far.
    pub(crate) fn seek_at_revision<'a>(
        &'a self,
        collection: &Collection,
        scope: ListScope<'a>,
        after: &Key,
        revision: u64,
    ) -> Option<impl Iterator<Item = &'a StoredObject> + use<'a>> {
        let found = match self.tables.get(collection) {
            Some(rows) => Some(rows.seek_at_revision(scope, after, revision)?),
            None => None,
        };
        Some(found.into_iter().flatten().map(|(_, stored)| self.handed(stored)))
    }

    /// How many objects were returned so far. Tests use it to verify that an index is used.
    pub fn examined(&self) -> u64 {
        self.examined.get()
    }

    fn handed<'a>(&self, stored: &'a StoredObject) -> &'a StoredObject {
        self.examined.set(self.examined.get() + 1);
        stored
    }

    /// Writes an object at the next revision and returns it with its new `resourceVersion`.
    pub fn put(&mut self, collection: &Collection, mut object: Value) -> Object {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let key = Key::of(&object);
        let object = Object::new(object);
        let rows = self.tables.entry(collection.clone()).or_default();
        rows.put(&key, object.clone(), self.revision);
        self.cold.extend(rows.cooled());
        object
    }

    /// Removes an object and returns its last state, at the removal's revision.
    pub fn remove(&mut self, collection: &Collection, key: &Key) -> Option<Object> {
        let revision = self.revision + 1;
        let rows = self.tables.get_mut(collection)?;
        let last = rows.remove(key, revision, |mut last| {
            last["metadata"]["resourceVersion"] = json!(revision.to_string());
            last
        })?;
        self.cold.extend(rows.cooled());
        self.revision = revision;
        Some(last)
    }

    /// The changes after `revision`, oldest first; `None` if the history does not go back that far.
    pub fn changes_since<'a>(
        &'a self,
        collection: &Collection,
        revision: u64,
    ) -> Option<impl Iterator<Item = Change> + use<'a>> {
        self.changes(collection, None, revision)
    }

    /// The changes of objects that were or are on a node, from an index.
    pub fn changes_on_node<'a>(
        &'a self,
        collection: &Collection,
        node: &str,
        revision: u64,
    ) -> Option<impl Iterator<Item = Change> + use<'a>> {
        self.changes(collection, Some(node), revision)
    }

    fn changes<'a>(
        &'a self,
        collection: &Collection,
        node: Option<&str>,
        revision: u64,
    ) -> Option<impl Iterator<Item = Change> + use<'a>> {
        let changes = match self.tables.get(collection) {
            Some(rows) => Some(rows.changes(node, revision)?),
            None => None,
        };
        Some(changes.into_iter().flatten().map(|past| self.reported(past)))
    }

    fn reported(&self, past: &PastChange) -> Change {
        let open = |stored: &Option<StoredObject>| stored.as_ref().map(|stored| self.handed(stored).open());
        let revision = past.revision;
        Change { revision, before: open(&past.before), after: open(&past.after), last: open(&past.last) }
    }

    /// Whether a new reader can no longer read the changes of a collection after `revision`. A reader that already reads
    /// them fails only if it missed a change.
    pub(crate) fn is_compacted(&self, collection: &Collection, revision: u64) -> bool {
        self.tables.get(collection).is_some_and(|rows| rows.is_compacted(revision))
    }

    /// Drops all history: watches and list pages at an older revision get a 410.
    pub fn compact(&mut self) {
        for rows in self.tables.values_mut() {
            rows.compact(self.revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Collection = Collection::fixed("", "pods");

    fn pod(name: &str, node: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"nodeName": node}})
    }

    fn names(objects: impl Iterator<Item = Object>) -> Vec<String> {
        objects.map(|object| Key::of(&object).name).collect()
    }

    #[test]
    fn every_write_has_a_revision_of_its_own() {
        let store = Store::default();
        let (a, b) =
            store.write(|state| (state.put(&PODS, pod("a", "n1")), state.put(&PODS, pod("b", "n1"))));
        assert_eq!(a["metadata"]["resourceVersion"], "2");
        assert_eq!(b["metadata"]["resourceVersion"], "3");
        assert_eq!(*store.subscribe().borrow(), 3);
    }

    #[test]
    fn the_node_index_follows_binding_and_removal() {
        let store = Store::default();
        store.write(|state| {
            state.put(&PODS, json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": {}}));
            state.put(&PODS, pod("b", "n2"));
            assert_eq!(names(state.on_node(&PODS, "n1")), Vec::<String>::new());
            state.put(&PODS, pod("a", "n1"));
            assert_eq!(names(state.on_node(&PODS, "n1")), ["a"]);
            state.remove(&PODS, &Key::new("ns", "a"));
            assert_eq!(names(state.on_node(&PODS, "n1")), Vec::<String>::new());
        });
    }

    #[test]
    fn changes_can_be_read_from_any_revision_in_the_history() {
        let store = Store::default();
        store.write(|state| {
            state.put(&PODS, pod("a", "n1"));
            let since = state.revision();
            state.put(&PODS, pod("b", "n1"));
            state.remove(&PODS, &Key::new("ns", "a"));
            let changes: Vec<Change> = state.changes_since(&PODS, since).unwrap().collect();
            assert_eq!(changes.len(), 2);
            assert!(changes[0].before.is_none() && changes[1].after.is_none());
            state.compact();
            assert!(state.changes_since(&PODS, since).is_none());
            assert_eq!(state.changes_since(&PODS, state.revision()).map(Iterator::count), Some(0));
        });
    }

    #[test]
    fn a_subscription_to_a_node_wakes_only_for_it_and_misses_nothing() {
        let store = Store::default();
        let mut one = store.follow(&PODS, Some("n1"));
        store.write(|state| state.put(&PODS, pod("b", "n2")));
        assert!(!one.has_changed().unwrap());
        let seen = store.write(|state| {
            state.put(&PODS, pod("a", "n1"));
            state.revision()
        });
        assert_eq!(*one.borrow_and_update(), seen);
        store.write(|state| {
            state.put(&PODS, pod("c", "n2"));
            state.compact();
            assert_eq!(state.changes_on_node(&PODS, "n1", seen).map(Iterator::count), Some(0));
            assert!(state.changes_on_node(&PODS, "n1", seen - 1).is_none(), "this one was missed");
            assert!(state.changes_since(&PODS, seen).is_none());
            assert!(state.is_compacted(&PODS, seen) && !state.is_compacted(&PODS, state.revision()));
            state.remove(&PODS, &Key::new("ns", "a"));
            assert_eq!(state.changes_on_node(&PODS, "n1", seen).map(Iterator::count), Some(1));
        });
        assert!(one.has_changed().unwrap());
    }

    #[test]
    fn a_namespace_is_listed_without_its_neighbours() {
        let store = Store::default();
        store.write(|state| {
            for ns in ["a", "b", "c"] {
                state.put(&PODS, json!({"metadata": {"namespace": ns, "name": format!("in-{ns}")}}));
            }
            assert_eq!(names(state.list(&PODS, Some("b"))), ["in-b"]);
            assert_eq!(names(state.list(&PODS, None)), ["in-a", "in-b", "in-c"]);
            let now = state.revision();
            let after = |scope, name: &str| {
                let found = state.seek_at_revision(&PODS, scope, &Key::new("b", name), now).unwrap();
                names(found.map(StoredObject::open))
            };
            assert_eq!(after(ListScope::Everything, "in-b"), ["in-c"]);
            assert_eq!(after(ListScope::Namespace("b"), "in-a"), ["in-b"]);
            assert_eq!(after(ListScope::Namespace("c"), "in-b"), ["in-c"]);
        });
    }
}
