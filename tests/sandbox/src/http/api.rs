//! What an API server has at hand. How it answers is in the files above.

use std::sync::{Arc, Mutex, PoisonError};

use crate::access::Access;
use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::http::lifecycle::server_state::{ServerState, Shutdown};
use crate::request_log::RequestLog;

/// An API server over a cluster.
#[derive(Debug)]
pub struct Api {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) access: Access,
    pub(crate) log: RequestLog,
    pub(crate) faults: Faults,
    pub(crate) serving: ServerState,
    address: Mutex<String>,
}

impl Api {
    /// An API server over a cluster, reached by whoever holds it.
    pub fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        Arc::new(Self {
            access: Access::new(cluster.clone()),
            faults: Faults::new(cluster.clone()),
            cluster,
            log: RequestLog::default(),
            serving: ServerState::default(),
            address: Mutex::default(),
        })
    }

    /// The objects behind it.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// What it was asked so far.
    pub fn requests(&self) -> &RequestLog {
        &self.log
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        self.access.admin_token()
    }

    /// A bearer token for somebody who is in these groups, and in `system:authenticated`.
    pub fn add_user(&self, name: &str, groups: &[&str]) -> String {
        self.access.add_user(name, groups)
    }

    /// What goes wrong on demand.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Takes requests, at this address, which discovery tells.
    pub(crate) fn begin(&self, address: String) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
        self.serving.begin();
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no more requests and ends every open watch.
    pub(crate) fn cease(&self, how: Shutdown) {
        self.serving.cease(how);
    }
}
