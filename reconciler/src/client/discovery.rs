//! What kind of cluster this is, from API discovery: whether it is OpenShift, and which KubeVirt it has. Discovery is
//! requested only when a maintenance depends on the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::Resource;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;
use nm_shared::gate::etcd_guard;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::cache::kubevirt_presence::{DiscoveryRequest, KubevirtPresence};
use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::client::with_timeout;
use crate::runtime::tasks::TaskSpawner;

/// How long an answer about OpenShift is reused.
const OPENSHIFT_CACHE_DURATION: Duration = Duration::from_secs(30);

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Finds out whether the cluster has virtual machines.
pub(crate) struct KubevirtDiscovery {
    client: Client,
    state: Arc<SharedState>,
    tasks: TaskSpawner,
}

impl KubevirtDiscovery {
    pub(crate) fn new(client: Client, state: Arc<SharedState>, tasks: TaskSpawner) -> Self {
        Self { client, state, tasks }
    }

    /// Whether KubeVirt is known to be present. Otherwise discovery may be requested because of the virtual machines'
    /// pods on `node`, which have these uids, and its answer triggers a reconcile.
    pub(crate) fn is_present(&self, state: &mut TermState, node: &str, pods: &HashSet<&str>) -> bool {
        if let Some(request) = state.kubevirt.request(pods) {
            let (client, state, node) = (self.client.clone(), self.state.clone(), node.to_owned());
            self.tasks.spawn_finite("the discovery of virtual machines", async move {
                let found = discover_kubevirt(&client, request).await;
                let mut state = state.lock();
                state.kubevirt = found;
                state.trigger_node(&node);
            });
        }
        state.kubevirt.is_present()
    }
}

/// Asks the API server whether it serves virtual machines. The first of consecutive failures is logged.
async fn discover_kubevirt(client: &Client, request: DiscoveryRequest) -> KubevirtPresence {
    let plural = VirtualMachineInstance::plural(&());
    match client.list_api_group_resources(&VirtualMachineInstance::api_version(&())).await {
        Ok(found) if found.resources.iter().any(|resource| resource.name == plural) => {
            info!("the cluster has virtual machines");
            KubevirtPresence::Present
        }
        Ok(_) => KubevirtPresence::Absent(request.causes),
        Err(kube::Error::Api(status)) if status.code == 404 => KubevirtPresence::Absent(request.causes),
        Err(error) => {
            if !request.is_retry {
                warn!(%error, "cannot discover whether the cluster has virtual machines; retrying");
            }
            KubevirtPresence::Failed(Instant::now())
        }
    }
}
