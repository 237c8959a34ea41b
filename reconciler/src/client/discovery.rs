//! What kind of cluster this is, from API discovery: whether it is OpenShift, and what its KubeVirt can do. Discovery is
//! requested only when a maintenance depends on the answer.

use std::time::Duration;

use kube::Client;
use nm_shared::gate::etcd_guard;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::client::with_timeout;

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the cluster is OpenShift, which decides what guards etcd's quorum. That does not change during a term, and is
/// requested when the first maintenance depends on it; others that do meanwhile wait for the same answer.
#[derive(Default)]
pub(crate) struct OpenshiftDiscovery(OnceCell<bool>);

impl OpenshiftDiscovery {
    /// Whether the cluster is OpenShift.
    ///
    /// # Errors
    /// When the API server does not list its groups in time.
    pub(crate) async fn is_openshift(&self, client: &Client) -> kube::Result<bool> {
        let discovery = async {
            let groups = with_timeout(DISCOVERY_TIMEOUT, client.list_api_groups()).await?;
            kube::Result::Ok(etcd_guard::is_openshift(&groups))
        };
        self.0.get_or_try_init(|| discovery).await.copied()
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
