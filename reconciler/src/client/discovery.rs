//! What kind of cluster this is, from API discovery: whether it is OpenShift, and which KubeVirt it has. Discovery is
//! requested only when a maintenance depends on the answer.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::core::Resource;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;
use nm_shared::gate::etcd_guard;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::cache::triggers::Triggers;
use crate::client::with_timeout;
use crate::runtime::tasks::TaskSpawner;

/// How long an answer about OpenShift is reused.
const OPENSHIFT_CACHE_DURATION: Duration = Duration::from_secs(30);

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait after discovery of KubeVirt failed.
const KUBEVIRT_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Whether the cluster is OpenShift, which decides what guards etcd's quorum.
pub(crate) struct OpenshiftDiscovery {
    client: Client,
    last_answer: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl OpenshiftDiscovery {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, last_answer: tokio::sync::Mutex::default() }
    }

    /// Whether the cluster is OpenShift.
    ///
    /// # Errors
    /// When the API server does not list its groups in time.
    pub(crate) async fn is_openshift(&self) -> kube::Result<bool> {
        // Concurrent callers share one request.
        let mut last_answer = self.last_answer.lock().await;
        if let Some((at, is_openshift)) = *last_answer
            && at.elapsed() < OPENSHIFT_CACHE_DURATION
        {
            return Ok(is_openshift);
        }
        let groups = with_timeout(DISCOVERY_TIMEOUT, self.client.list_api_groups()).await?;
        let is_openshift = etcd_guard::is_openshift(&groups);
        *last_answer = Some((Instant::now(), is_openshift));
        Ok(is_openshift)
    }
}

/// The group and version of KubeVirt's subresources.
pub(crate) const KUBEVIRT_SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// The subresource that removes a mark, by its name in discovery.
const CANCEL: &str = "virtualmachineinstances/evacuate/cancel";

/// Whether KubeVirt can cancel evacuations. Parsed leniently, because KubeVirt lists its subresources without verbs.
///
/// # Errors
/// When KubeVirt, which serves this itself, does not answer in time.
pub(crate) async fn cancels_evacuations(client: &Client) -> kube::Result<bool> {
    let request =
        http::Request::get(KUBEVIRT_SUBRESOURCES).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match with_timeout(DISCOVERY_TIMEOUT, client.request::<Value>(request)).await {
        Ok(list) => {
            let mut resources = list["resources"].as_array().into_iter().flatten();
            Ok(resources.any(|resource| resource["name"] == CANCEL))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) struct KubevirtDiscovery {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    presence: Arc<Mutex<KubevirtPresence>>,
}

enum KubevirtPresence {
    Unknown,
    Requested,
    Present,
    /// KubeVirt was absent when pods with these uids led to the request.
    Absent(HashSet<String>),
    Failed(Instant),
}

impl KubevirtDiscovery {
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: TaskSpawner) -> Self {
        Self { client, triggers, tasks, presence: Arc::new(Mutex::new(KubevirtPresence::Unknown)) }
    }

    /// Whether KubeVirt is known to be present. Otherwise discovery may be requested because of the virtual machines'
    /// pods on `node`, which have these uids, and its answer triggers a reconcile.
    pub(crate) fn is_present(&self, node: &str, pods: &HashSet<&str>) -> bool {
        let mut presence = lock(&self.presence);
        match &*presence {
            KubevirtPresence::Present => return true,
            KubevirtPresence::Requested => return false,
            KubevirtPresence::Absent(known) if pods.iter().all(|uid| known.contains(*uid)) => return false,
            KubevirtPresence::Failed(at) if at.elapsed() < KUBEVIRT_RETRY_INTERVAL => return false,
            KubevirtPresence::Unknown | KubevirtPresence::Absent(_) | KubevirtPresence::Failed(_) => {}
        }
        let (mut causes, warned) = match std::mem::replace(&mut *presence, KubevirtPresence::Requested) {
            KubevirtPresence::Absent(known) => (known, false),
            KubevirtPresence::Failed(_) => (HashSet::new(), true),
            _ => (HashSet::new(), false),
        };
        causes.extend(pods.iter().map(|uid| (*uid).to_owned()));
        let (client, presence) = (self.client.clone(), self.presence.clone());
        let (triggers, node) = (self.triggers.clone(), node.to_owned());
        self.tasks.spawn_finite("the discovery of virtual machines", async move {
            let found = discover_kubevirt(&client, causes, warned).await;
            *lock(&presence) = found;
            triggers.node(&node);
        });
        false
    }
}

/// Asks the API server whether it serves virtual machines. The first of consecutive failures is logged.
async fn discover_kubevirt(client: &Client, causes: HashSet<String>, warned: bool) -> KubevirtPresence {
    let plural = VirtualMachineInstance::plural(&());
    match client.list_api_group_resources(&VirtualMachineInstance::api_version(&())).await {
        Ok(found) if found.resources.iter().any(|resource| resource.name == plural) => {
            info!("the cluster has virtual machines");
            KubevirtPresence::Present
        }
        Ok(_) => KubevirtPresence::Absent(causes),
        Err(kube::Error::Api(status)) if status.code == 404 => KubevirtPresence::Absent(causes),
        Err(error) => {
            if !warned {
                warn!(%error, "cannot discover whether the cluster has virtual machines; retrying");
            }
            KubevirtPresence::Failed(Instant::now())
        }
    }
}

fn lock(presence: &Mutex<KubevirtPresence>) -> MutexGuard<'_, KubevirtPresence> {
    presence.lock().unwrap_or_else(PoisonError::into_inner)
}
