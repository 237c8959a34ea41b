//! What the API server and the controllers share: objects, kinds and time, and who is asked before objects change.

pub mod admission;
pub(crate) mod catalog;
pub(crate) mod crd;
pub mod registry;
pub mod store;

use crate::cluster::admission::Admission;
pub use crate::cluster::catalog::Catalog;
use crate::cluster::store::Store;
use crate::model::clock::Clock;

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
