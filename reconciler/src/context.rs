//! What a reconcile has at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use nm_shared::NodeMaintenance;

use crate::announcer::Announcer;
use crate::cluster_watches::ClusterWatches;
use crate::evictor::Evictor;
use crate::own_writes::OwnWrites;
use crate::pod_watches::PodWatches;

/// Everything that reconciles share. What is remembered here is only ever a cache.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) maintenances: Store<NodeMaintenance>,
    pub(crate) cluster: ClusterWatches,
    pub(crate) pods: PodWatches,
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) announcer: Announcer,
    pub(crate) own_maintenances: OwnWrites<NodeMaintenance>,
    pub(crate) own_nodes: OwnWrites<Node>,
    pub(crate) memories: Memories,
}

impl Context {
    /// The API of maintenances.
    pub(crate) fn maintenance_api(&self) -> Api<NodeMaintenance> {
        Api::all(self.client.clone())
    }

    /// The API of nodes.
    pub(crate) fn node_api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }
}

/// What this process remembers of each maintenance, by uid.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    by_uid: Mutex<HashMap<String, Memory>>,
}

/// What this process remembers of one maintenance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// When it was first seen.
    pub(crate) first_seen: Instant,
    /// When its status was last written.
    pub(crate) status_written: Option<Timestamp>,
    /// Reconciles that failed, one after another.
    pub(crate) failures: u32,
}

impl Memories {
    /// Changes what is remembered of a maintenance and returns it.
    pub(crate) fn update(&self, uid: &str, change: impl FnOnce(&mut Memory)) -> Memory {
        let mut memories = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Memory { first_seen: Instant::now(), status_written: None, failures: 0 };
        let memory = memories.entry(uid.to_owned()).or_insert(fresh);
        change(memory);
        *memory
    }

    /// Forgets a maintenance that is over.
    pub(crate) fn forget(&self, uid: &str) {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// For how long no new maintenance has been seen.
    pub(crate) fn quiet_for(&self) -> Duration {
        let memories = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        memories.values().map(|memory| memory.first_seen.elapsed()).min().unwrap_or(Duration::MAX)
    }
}
