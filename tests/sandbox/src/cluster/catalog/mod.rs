//! The resources that the API server serves: built-in, custom and aggregated.

pub(crate) mod aggregated_groups;
pub(crate) mod custom_resource;
pub(crate) mod discovery;
pub(crate) mod openapi;
pub mod resource;

use std::sync::{PoisonError, RwLock};

use crate::cluster::catalog::aggregated_groups::AggregatedGroups;
use crate::cluster::catalog::resource::{Resource, built_in};
use crate::cluster::store::Collection;

/// The resources that are served now.
#[derive(Debug)]
pub struct Catalog {
    resources: RwLock<Vec<Resource>>,
    /// Groups of aggregated API servers.
    pub aggregated: AggregatedGroups,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { resources: RwLock::new(built_in()), aggregated: AggregatedGroups::default() }
    }
}

impl Catalog {
    /// The resource of a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        self.first(|r| r.group() == group && r.version == version && r.plural() == plural)
    }

    /// Any version of the resource of a collection.
    pub fn of(&self, collection: &Collection) -> Option<Resource> {
        self.first(|resource| resource.collection == *collection)
    }

    fn first(&self, wanted: impl Fn(&Resource) -> bool) -> Option<Resource> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        resources.iter().find(|resource| wanted(resource)).cloned()
    }

    /// All resources, in the order of discovery.
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
