//! The state of an API server.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::access::Access;
use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::http::lifecycle::server_state::{ServerState, Shutdown};
use crate::http::response::answer::{Body, ConnectionLost};
use crate::model::clock::Clock;
use crate::request_log::RequestLog;

/// Another API server, which answers the requests.
#[derive(Clone)]
pub struct Upstream(Arc<Forward>);

type Forward =
    dyn Fn(Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, ConnectionLost>> + Send + Sync;

impl Upstream {
    /// `forward` sends a request to the other API server.
    pub fn new<F>(forward: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Response<Body>, ConnectionLost>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(forward(request))))
    }

    pub(crate) async fn forward(&self, request: Request<Bytes>) -> Result<Response<Body>, ConnectionLost> {
        (self.0)(request).await
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upstream")
    }
}

/// An API server over a cluster.
#[derive(Debug)]
pub struct Api {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) access: Access,
    pub(crate) log: RequestLog,
    pub(crate) faults: Faults,
    pub(crate) serving: ServerState,
    /// Answers all requests, where there is one.
    pub(crate) upstream: Option<Upstream>,
    owner_references_enforced: AtomicBool,
    address: Mutex<String>,
}

impl Api {
    /// An API server over a cluster, without a socket.
    pub fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        let access = Access::new(cluster.clone());
        Self::with(cluster, access, None)
    }

    /// A proxy in front of another API server, which authenticates and authorizes the requests. The proxy has faults, a
    /// request log and an end like any API server. `upstream` gets its administrator's token, which the other server does
    /// not know.
    pub fn proxy(upstream: impl FnOnce(&str) -> Upstream) -> Arc<Self> {
        let cluster = Arc::new(Cluster::new(Clock::start()));
        let access = Access::new(cluster.clone());
        let upstream = upstream(access.admin_token());
        Self::with(cluster, access, Some(upstream))
    }

    fn with(cluster: Arc<Cluster>, access: Access, upstream: Option<Upstream>) -> Arc<Self> {
        Arc::new(Self {
            access,
            faults: Faults::new(cluster.clone()),
            cluster,
            log: RequestLog::default(),
            serving: ServerState::default(),
            upstream,
            owner_references_enforced: AtomicBool::default(),
            address: Mutex::default(),
        })
    }

    /// Enables the admission plugin `OwnerReferencesPermissionEnforcement`, as OpenShift does: only who may delete an object
    /// may change its owner references.
    pub fn enforce_owner_references(&self) {
        self.owner_references_enforced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn enforces_owner_references(&self) -> bool {
        self.owner_references_enforced.load(Ordering::Relaxed)
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
    pub(crate) fn bring_down(&self, how: Shutdown) {
        self.serving.bring_down(how);
    }
}
