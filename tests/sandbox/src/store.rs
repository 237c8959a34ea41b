//! The cluster's memory: every object, one counter of revisions, and enough history for watches.
//!
//! All reads and writes happen in [`Store::write`] or [`Store::read`], under one lock and without waiting, so that
//! what takes etcd a transaction (an eviction that reads a budget, charges it and marks the pod) is one closure here.
//! The store knows nothing of Kubernetes beyond `metadata.{namespace,name,resourceVersion}` and `spec.nodeName`;
//! what makes a write legal is in `registry`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::faults::frozen::Frozen;

/// An object as it was at one revision. Cheap to clone, never changed.
pub type Object = Arc<Value>;

/// How many past changes a collection keeps for watches that come late.
const HISTORY: usize = 20_000;

/// Where objects of one resource live, whatever version they are read in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Plural name, as in paths.
    pub plural: Cow<'static, str>,
}

impl Collection {
    /// A collection that is known when the program is built.
    pub const fn fixed(group: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), plural: Cow::Borrowed(plural) }
    }

    /// A collection that came with a CRD.
    pub fn named(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self { group: Cow::Owned(group.into()), plural: Cow::Owned(plural.into()) }
    }
}

/// An object's place in its collection; the namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }

    /// The key that an object's own metadata gives.
    pub fn of(object: &Value) -> Self {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        Self { namespace: field("namespace"), name: field("name") }
    }
}

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

#[derive(Debug, Default)]
struct Rows {
    objects: BTreeMap<Key, Object>,
    by_node: HashMap<String, BTreeSet<Key>>,
    history: VecDeque<Change>,
    /// Changes up to and including this revision are forgotten.
    compacted: u64,
}

/// What the lock guards.
#[derive(Debug, Default)]
pub struct State {
    revision: u64,
    tables: HashMap<Collection, Rows>,
    /// Objects whose status stands still.
    pub(crate) frozen: Frozen,
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
        self.tables.get(collection)?.objects.get(key).cloned()
    }

    /// The objects of a collection in key order, of one namespace where one is given.
    pub fn list<'a>(
        &'a self,
        collection: &Collection,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Object> + use<'a> {
        let from = Key::new(namespace.unwrap_or_default(), "");
        self.tables
            .get(collection)
            .into_iter()
            .flat_map(move |rows| rows.objects.range(from.clone()..))
            .take_while(move |(key, _)| namespace.is_none_or(|ns| key.namespace == ns))
            .map(|(_, object)| object)
    }

    /// The objects after `key`, for paging.
    pub fn list_after<'a>(
        &'a self,
        collection: &Collection,
        after: &Key,
    ) -> impl Iterator<Item = &'a Object> + use<'a> {
        let bounds = (std::ops::Bound::Excluded(after.clone()), std::ops::Bound::Unbounded);
        self.tables
            .get(collection)
            .into_iter()
            .flat_map(move |rows| rows.objects.range(bounds.clone()))
            .map(|(_, o)| o)
    }

    /// The objects whose `spec.nodeName` is `node`, from an index.
    pub fn on_node<'a>(
        &'a self,
        collection: &Collection,
        node: &str,
    ) -> impl Iterator<Item = &'a Object> + use<'a> {
        let rows = self.tables.get(collection);
        let keys = rows.and_then(|rows| rows.by_node.get(node));
        keys.into_iter().flatten().filter_map(move |key| rows.and_then(|rows| rows.objects.get(key)))
    }

    /// Writes an object at the next revision and returns it with its new `resourceVersion`.
    pub fn put(&mut self, collection: &Collection, mut object: Value) -> Object {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let key = Key::of(&object);
        let object = Arc::new(object);
        let rows = self.tables.entry(collection.clone()).or_default();
        let before = rows.objects.insert(key.clone(), object.clone());
        rows.index(&key, before.as_deref(), Some(&object));
        rows.remember(Change { revision: self.revision, before, after: Some(object.clone()), last: None });
        object
    }

    /// Removes an object and returns its last state, at the removal's revision.
    pub fn remove(&mut self, collection: &Collection, key: &Key) -> Option<Object> {
        let rows = self.tables.get_mut(collection)?;
        let before = rows.objects.remove(key)?;
        self.revision += 1;
        rows.index(key, Some(&before), None);
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        rows.remember(Change {
            revision: self.revision,
            before: Some(before),
            after: None,
            last: Some(last.clone()),
        });
        Some(last)
    }

    /// The changes after `revision`, oldest first; `None` when some of them are forgotten.
    pub fn changes_since(&self, collection: &Collection, revision: u64) -> Option<Vec<Change>> {
        let Some(rows) = self.tables.get(collection) else {
            return Some(Vec::new());
        };
        if revision < rows.compacted {
            return None;
        }
        let first = rows.history.partition_point(|change| change.revision <= revision);
        Some(rows.history.range(first..).cloned().collect())
    }

    /// Forgets all history, so that every watch and page that asks for an older revision is told 410.
    pub fn compact(&mut self) {
        let revision = self.revision;
        for rows in self.tables.values_mut() {
            rows.history.clear();
            rows.compacted = revision;
        }
    }
}

impl Rows {
    fn index(&mut self, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        let node = |object: Option<&Value>| object?["spec"]["nodeName"].as_str().map(str::to_owned);
        let (old, new) = (node(before), node(after));
        if old == new {
            return;
        }
        if let Some(keys) = old.and_then(|node| self.by_node.get_mut(&node)) {
            keys.remove(key);
        }
        if let Some(node) = new {
            self.by_node.entry(node).or_default().insert(key.clone());
        }
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(change);
        if self.history.len() > HISTORY
            && let Some(forgotten) = self.history.pop_front()
        {
            self.compacted = forgotten.revision;
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

    fn names<'a>(objects: impl Iterator<Item = &'a Object>) -> Vec<String> {
        objects.map(|object| Key::of(object).name).collect()
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
            let changes = state.changes_since(&PODS, since).unwrap();
            assert_eq!(changes.len(), 2);
            assert!(changes[0].before.is_none() && changes[1].after.is_none());
            state.compact();
            assert!(state.changes_since(&PODS, since).is_none());
            assert_eq!(state.changes_since(&PODS, state.revision()).map(|c| c.len()), Some(0));
        });
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
            assert_eq!(names(state.list_after(&PODS, &Key::new("b", "in-b"))), ["in-c"]);
        });
    }
}
