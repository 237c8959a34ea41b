//! What a watch delivers, the objects that follow from it, and which reconciles it triggers.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use nm_shared::drain::eviction_outcome::AccessDenied;

/// What a watch delivers.
#[derive(Debug)]
pub(crate) enum WatchUpdate<K> {
    /// An object was created or changed.
    Applied(K),
    /// An object was deleted. This is how it was last.
    Deleted(K),
    /// All objects: for the first time, or again after an interruption in which anything may have happened.
    Listed(Vec<K>),
    /// The watch is interrupted: until the next list, what is known may be out of date.
    Interrupted,
    /// The API server refuses the list.
    Forbidden(AccessDenied),
}

/// The maintenances that an event concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    Nothing,
    /// Those of a node.
    Node(String),
    /// All of them, because anything may have been missed.
    All,
}

/// The objects of a watch, by [`key`].
#[derive(Debug)]
pub(crate) struct Watched<K> {
    objects: HashMap<String, Arc<K>>,
    /// Whether all of them are known.
    pub(crate) list_state: ListState,
}

/// Whether all objects of a watch are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListState {
    NotListed,
    Listed,
    Forbidden(AccessDenied),
}

/// The name of an object, after its namespace if it has one.
pub(crate) fn key(object: &impl ResourceExt) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

impl<K> Default for Watched<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), list_state: ListState::NotListed }
    }
}

impl<K: ResourceExt> Watched<K> {
    /// Takes in what the watch delivers. An interruption changes nothing.
    pub(crate) fn apply(&mut self, update: WatchUpdate<K>) {
        match update {
            WatchUpdate::Applied(object) => _ = self.objects.insert(key(&object), Arc::new(object)),
            WatchUpdate::Deleted(object) => _ = self.objects.remove(&key(&object)),
            WatchUpdate::Listed(all) => {
                self.objects = all.into_iter().map(|object| (key(&object), Arc::new(object))).collect();
                self.list_state = ListState::Listed;
            }
            WatchUpdate::Interrupted => {}
            WatchUpdate::Forbidden(refusal) => self.list_state = ListState::Forbidden(refusal),
        }
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.list_state == ListState::Listed
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.iter().cloned().collect()
    }
}
