//! What a watch delivers, the objects that follow from it, and which reconciles it triggers.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::migration::VirtualMachineInstanceMigration;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;

use crate::cache::compact_node::CompactNode;

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

/// The objects of a watch, by their keys.
#[derive(Debug)]
pub(crate) struct Watched<K> {
    objects: HashMap<Box<str>, Arc<K>>,
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

/// An object that a watch delivers.
pub(crate) trait Keyed {
    /// Its name, after its namespace if it has one.
    fn key(&self) -> String;
}

/// The key of an object as Kubernetes' types have it.
pub(crate) fn key(object: &impl ResourceExt) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

impl Keyed for DrainPod {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Keyed for CompactNode {
    fn key(&self) -> String {
        self.name().to_owned()
    }
}

impl Keyed for Lease {
    fn key(&self) -> String {
        key(self)
    }
}

impl Keyed for PodDisruptionBudget {
    fn key(&self) -> String {
        key(self)
    }
}

impl Keyed for Deployment {
    fn key(&self) -> String {
        key(self)
    }
}

impl Keyed for VirtualMachineInstance {
    fn key(&self) -> String {
        key(self)
    }
}

impl Keyed for VirtualMachineInstanceMigration {
    fn key(&self) -> String {
        key(self)
    }
}

impl<K> Default for Watched<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), list_state: ListState::NotListed }
    }
}

impl<K: Keyed> Watched<K> {
    /// Takes in what the watch delivers. An interruption changes nothing.
    pub(crate) fn apply(&mut self, update: WatchUpdate<K>) {
        match update {
            WatchUpdate::Applied(object) => {
                _ = self.objects.insert(object.key().into(), Arc::new(object));
            }
            WatchUpdate::Deleted(object) => _ = self.objects.remove(&*object.key()),
            WatchUpdate::Listed(all) => {
                let keyed = all.into_iter().map(|object| (object.key().into(), Arc::new(object)));
                self.objects = keyed.collect();
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
