//! Whether the cluster is OpenShift, which decides what guards etcd's quorum. It is asked for control-plane nodes alone.

use std::time::{Duration, Instant};

use kube::Client;
use nm_shared::gate::quorum;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// What was answered holds for so long.
const FRESH: Duration = Duration::from_secs(30);

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What kind of cluster this is, as far as it was asked.
pub(crate) struct Platform {
    client: Client,
    known: Mutex<Option<(Instant, bool)>>,
}

impl Platform {
    /// Nobody has asked yet.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Whether it is OpenShift.
    ///
    /// # Errors
    /// When the API server does not tell its groups.
    pub(crate) async fn is_openshift(&self) -> kube::Result<bool> {
        // One asks, and the others hear of it.
        let mut known = self.known.lock().await;
        if let Some((at, is_openshift)) = *known
            && at.elapsed() < FRESH
        {
            return Ok(is_openshift);
        }
        let asked = timeout(PATIENCE, self.client.list_api_groups()).await;
        let groups = asked.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))?;
        let is_openshift = quorum::is_openshift(&groups);
        *known = Some((Instant::now(), is_openshift));
        Ok(is_openshift)
    }
}
