//! The state of an API server.

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
    /// An API server over a cluster, without a socket.
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

    /// The cluster that it serves.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The requests so far.
    pub fn requests(&self) -> &RequestLog {
        &self.log
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        self.access.admin_token()
    }

    /// A bearer token of a user in these groups and in `system:authenticated`.
    pub fn add_user(&self, name: &str, groups: &[&str]) -> String {
        self.access.add_user(name, groups)
    }

    /// Failures on demand.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Accepts requests. Discovery reports the address.
    pub(crate) fn begin(&self, address: String) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
        self.serving.begin();
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rejects requests and ends every open watch.
    pub(crate) fn cease(&self, how: Shutdown) {
        self.serving.cease(how);
    }
}
