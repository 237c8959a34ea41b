//! The state that the API server and the controllers share: objects, resources, the clock and admission webhooks.

pub mod admission;
pub(crate) mod catalog;
pub(crate) mod crd;
pub mod registry;
pub mod store;

use crate::cluster::admission::Admission;
pub use crate::cluster::catalog::Catalog;
use crate::cluster::store::Store;
use crate::model::clock::Clock;

/// The state of a cluster, without a server or controllers.
#[derive(Debug)]
pub struct Cluster {
    /// Every object.
    pub store: Store,
    /// The resources that are served.
    pub catalog: Catalog,
    /// The clock.
    pub clock: Clock,
    /// The webhooks that are called before a write.
    pub admission: Admission,
}

impl Cluster {
    /// An empty cluster with the built-in resources.
    pub fn new(clock: Clock) -> Self {
        Self { store: Store::default(), catalog: Catalog::default(), clock, admission: Admission::default() }
    }
}
