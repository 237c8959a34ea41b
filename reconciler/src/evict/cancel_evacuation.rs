//! Cancels the evacuation of virtual machines. KubeVirt keeps moving a virtual machine that an eviction has marked, even
//! after its node has returned to service.
//!
//! Since 1.7 KubeVirt has a subresource that removes the mark: `PUT virtualmachineinstances/NAME/evacuate/cancel` of
//! `subresources.kubevirt.io`, with the node's name in the body and an empty answer
//! (`pkg/virt-api/rest/evacuate_cancel.go` in kubevirt/kubevirt, v1.7.0). A migration in progress continues, but no new
//! one begins. Discovery lists the subresource (`pkg/virt-api/api.go`). Before 1.7 only KubeVirt itself ends an
//! evacuation. Cancelling ends after [`CANCEL_TIMEOUT`]: a KubeVirt that does not answer keeps no node out of service.

use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use nm_shared::drain::virtual_machine::{NODE_LABEL, VirtualMachineInstance};
use serde_json::{Value, json};
use tracing::{info, warn};

/// The group and version of KubeVirt's subresources.
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// The subresource's name in discovery.
const CANCEL: &str = "virtualmachineinstances/evacuate/cancel";

/// The node returns to service whether or not the cancellation succeeds, and after this time at the latest.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a cancellation is attempted.
const MAX_ATTEMPTS: u32 = 3;

/// How long to wait between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How many requests are in progress at once.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Makes KubeVirt leave the virtual machines on `node` where they are. A failure is only logged.
pub(crate) async fn cancel_evacuations(client: &Client, node: &str) {
    match tokio::time::timeout(CANCEL_TIMEOUT, cancel_all(client, node)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(node, %error, "cannot list the virtual machines that are leaving the node"),
        Err(_) => warn!(node, "virtual machines may still leave the node: KubeVirt did not answer in time"),
    }
}

async fn cancel_all(client: &Client, node: &str) -> kube::Result<()> {
    for attempt in 1..=MAX_ATTEMPTS {
        let leaving = leaving(client, node).await?;
        if leaving.is_empty() {
            return Ok(());
        }
        if attempt == 1 && !can_cancel(client).await? {
            info!(
                node,
                "this version of KubeVirt cannot cancel evacuations: virtual machines still leave the node"
            );
            return Ok(());
        }
        let answers = futures::stream::iter(leaving).map(|virtual_machine| async move {
            let answer = cancel(client, &virtual_machine, node).await;
            (virtual_machine, answer)
        });
        let mut retry = false;
        let answers = answers.buffer_unordered(MAX_CONCURRENT_REQUESTS).collect::<Vec<_>>().await;
        for (virtual_machine, answer) in answers {
            let name = virtual_machine.name_any();
            let virtual_machine = format!("{}/{name}", virtual_machine.namespace().unwrap_or_default());
            match answer {
                Ok(()) => info!(node, virtual_machine, "evacuation cancelled"),
                Err(error) if attempt < MAX_ATTEMPTS && is_transient(&error) => retry = true,
                Err(error) => warn!(node, virtual_machine, %error, "cannot cancel the evacuation"),
            }
        }
        if !retry {
            return Ok(());
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    Ok(())
}

/// The virtual machines that are marked to leave `node` and are still there.
async fn leaving(client: &Client, node: &str) -> kube::Result<Vec<VirtualMachineInstance>> {
    let on_node = ListParams::default().labels(&format!("{NODE_LABEL}={node}"));
    let found = Api::<VirtualMachineInstance>::all(client.clone()).list(&on_node).await?;
    Ok(found.items.into_iter().filter(|virtual_machine| virtual_machine.is_leaving(node)).collect())
}

/// Whether KubeVirt has the subresource. Parsed leniently, because KubeVirt lists its subresources without verbs.
async fn can_cancel(client: &Client) -> kube::Result<bool> {
    let request = http::Request::get(SUBRESOURCES).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(list) => {
            let mut resources = list["resources"].as_array().into_iter().flatten();
            Ok(resources.any(|resource| resource["name"] == CANCEL))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn cancel(client: &Client, virtual_machine: &VirtualMachineInstance, node: &str) -> kube::Result<()> {
    let (namespace, name) = (virtual_machine.namespace().unwrap_or_default(), virtual_machine.name_any());
    let path =
        format!("{SUBRESOURCES}/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel");
    let body = json!({"evacuationNodeName": node}).to_string().into_bytes();
    let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
    client.request_text(request.map_err(kube::Error::HttpError)?).await.map(|_| ())
}

/// Whether a retry may succeed. KubeVirt also answers 500 if the mark has changed meanwhile.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}
