//! What the API server and the controllers share: objects, kinds and time, and who is asked before objects change.

use std::sync::{PoisonError, RwLock};

use crate::admission::Admission;
use crate::aggregation::Aggregated;
use crate::clock::Clock;
use crate::resource::{Resource, built_in};
use crate::store::{Collection, Store};

/// A cluster's memory, without anything that acts on it.
#[derive(Debug)]
pub struct Cluster {
    /// Every object.
    pub store: Store,
    /// Every kind of object.
    pub catalog: Catalog,
    /// The time.
    pub clock: Clock,
    /// The webhooks that are asked before something is written.
    pub admission: Admission,
}

impl Cluster {
    /// An empty cluster with the built-in resources.
    pub fn new(clock: Clock) -> Self {
        Self { store: Store::default(), catalog: Catalog::default(), clock, admission: Admission::default() }
    }
}

/// The resources that are served now: the built-in ones and those of CRDs.
#[derive(Debug)]
pub struct Catalog {
    resources: RwLock<Vec<Resource>>,
    /// What is served by others.
    pub aggregated: Aggregated,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { resources: RwLock::new(built_in()), aggregated: Aggregated::default() }
    }
}

impl Catalog {
    /// The resource behind a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        self.first(|r| r.group() == group && r.version == version && r.plural() == plural)
    }

    /// Any version of a collection's resource.
    pub fn of(&self, collection: &Collection) -> Option<Resource> {
        self.first(|resource| resource.collection == *collection)
    }

    fn first(&self, wanted: impl Fn(&Resource) -> bool) -> Option<Resource> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        resources.iter().find(|resource| wanted(resource)).cloned()
    }

    /// Everything, in the order of discovery.
    pub fn all(&self) -> Vec<Resource> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves the given versions of a collection and no others.
    pub fn serve(&self, collection: &Collection, versions: Vec<Resource>) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.retain(|resource| resource.collection != *collection);
        resources.extend(versions);
    }
}
