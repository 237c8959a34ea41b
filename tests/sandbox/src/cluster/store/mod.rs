//! The cluster's memory: every object, one counter of revisions, and enough history for watches.
//!
//! All reads and writes happen in [`Store::write`] or [`Store::read`], under one lock and without waiting, so that
//! what takes etcd a transaction (an eviction that reads a budget, charges it and marks the pod) is one closure here.
//! The store knows nothing of Kubernetes beyond `metadata.{namespace,name,resourceVersion}` and `spec.nodeName`;
//! what makes a write legal is in `registry`. How a collection is kept is in `rows`, and one object in `stored`.

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

use crate::cluster::store::frozen_status::Frozen;

use crate::cluster::store::collection::{CollectionState, PastChange};
use crate::cluster::store::event_log::EventLog;
pub(crate) use crate::cluster::store::key::ListScope;
pub use crate::cluster::store::key::{Collection, Key};
pub use crate::cluster::store::object::Object;
pub(crate) use crate::cluster::store::object::StoredObject;

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The revision that the change made.
    pub revision: u64,
    /// The object before; none when it was created.
    pub before: Option<Object>,
    /// The object after; none when it was removed.
    pub after: Option<Object>,
    /// For a removal: the last state with the removal's resourceVersion, as a DELETED event carries it.
    pub last: Option<Object>,
}

/// What the lock guards.
#[derive(Debug, Default)]
pub struct State {
    revision: u64,
    tables: HashMap<Collection, CollectionState>,
    /// Objects whose status stands still.
    pub(crate) frozen: Frozen,
    /// The cluster's own events.
    pub(crate) event_log: EventLog,
    examined: Cell<u64>,
    /// What is to be folded when the lock is free.
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
    /// Runs `act` with the state to itself and tells the watchers if it changed anything.
    pub fn write<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let before = state.revision;
        let result = act(&mut state);
        if state.revision != before {
            self.revision.send_replace(state.revision);
        }
        let cold = std::mem::take(&mut state.cold);
        drop(state);
        // Others need not wait for that.
        for stored in cold {
            stored.fold();
        }
        result
    }

    /// Runs `look` with the state.
    pub fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// Wakes whenever the revision has grown.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Wakes whenever a collection has changed, of one node where one is given: whoever watches a node's pods need not
    /// wake for those of all others.
    pub(crate) fn follow(&self, collection: &Collection, node: Option<&str>) -> watch::Receiver<u64> {
        self.lock().tables.entry(collection.clone()).or_default().follow(node)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside `act` is a bug of the sandbox; the objects are still the ones last written.
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

    /// The same, not opened yet.
    pub(crate) fn find(&self, collection: &Collection, key: &Key) -> Option<&StoredObject> {
        let stored = self.tables.get(collection)?.get(key)?;
        Some(self.handed(stored))
    }

    /// The objects of a collection in key order, of one namespace where one is given.
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

    /// The objects in a scope, in key order; none of them is opened yet.
    pub(crate) fn seek<'a>(
        &'a self,
        collection: &Collection,
        scope: ListScope<'a>,
    ) -> impl Iterator<Item = &'a StoredObject> + use<'a> {
        let found = self.tables.get(collection).map(|rows| rows.seek(scope, None));
        found.into_iter().flatten().map(|(_, stored)| self.handed(stored))
    }

    /// The same after a key, as it was at a revision; `None` when that is forgotten.
    pub(crate) fn seek_then<'a>(
        &'a self,
        collection: &Collection,
        scope: ListScope<'a>,
        after: &Key,
        revision: u64,
    ) -> Option<impl Iterator<Item = &'a StoredObject> + use<'a>> {
        let found = match self.tables.get(collection) {
            Some(rows) => Some(rows.seek_then(scope, after, revision)?),
            None => None,
        };
        Some(found.into_iter().flatten().map(|(_, stored)| self.handed(stored)))
    }

    /// How many objects were handed out so far, which says whether an index was used.
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

    /// The changes after `revision`, oldest first; `None` when some of them are forgotten.
    pub fn changes_since<'a>(
        &'a self,
        collection: &Collection,
        revision: u64,
    ) -> Option<impl Iterator<Item = Change> + use<'a>> {
        self.changes(collection, None, revision)
    }

    /// The same, of the objects that were or are on a node, from an index.
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
        Some(changes.into_iter().flatten().map(|past| self.told(past)))
    }

    fn told(&self, past: &PastChange) -> Change {
        let open = |stored: &Option<StoredObject>| stored.as_ref().map(|stored| self.handed(stored).open());
        let revision = past.revision;
        Change { revision, before: open(&past.before), after: open(&past.after), last: open(&past.last) }
    }

    /// Whether it is too late to begin reading the changes of a collection after `revision`. Who reads them already is
    /// told so only for changes that were missed.
    pub(crate) fn is_compacted(&self, collection: &Collection, revision: u64) -> bool {
        self.tables.get(collection).is_some_and(|rows| rows.is_compacted(revision))
    }

    /// Forgets all history, so that every watch and page that asks for an older revision is told 410.
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
    fn history_is_told_from_any_kept_revision_and_refused_before() {
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
    fn who_follows_a_node_wakes_for_it_alone_and_misses_nothing_that_others_made_forgotten() {
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
                let found = state.seek_then(&PODS, scope, &Key::new("b", name), now).unwrap();
                names(found.map(StoredObject::open))
            };
            assert_eq!(after(ListScope::Everything, "in-b"), ["in-c"]);
            assert_eq!(after(ListScope::Namespace("b"), "in-a"), ["in-b"]);
            assert_eq!(after(ListScope::Namespace("c"), "in-b"), ["in-c"]);
        });
    }
}
