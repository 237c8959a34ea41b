//! Calling off what an eviction set going: KubeVirt goes on taking a marked machine away until it has, also from a node
//! that is given back.
//!
//! Since 1.7 KubeVirt has a subresource that takes the mark off: `PUT virtualmachineinstances/NAME/evacuate/cancel` of
//! `subresources.kubevirt.io`, with the node that was to be left in the body and no body in the answer
//! (`pkg/virt-api/rest/evacuate_cancel.go` in kubevirt/kubevirt, v1.7.0). A migration that is under way then goes on to
//! its end, but none begins anew. Whether there is that subresource is in discovery (`pkg/virt-api/api.go`); before 1.7
//! only KubeVirt itself ends an evacuation.

use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use nm_shared::drain::virtual_machine::{NODE_LABEL, VirtualMachineInstance};
use serde_json::{Value, json};
use tracing::{info, warn};

/// The group and version of KubeVirt's subresources.
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// How discovery names the one that is meant here.
const CANCEL: &str = "virtualmachineinstances/evacuate/cancel";

/// The node is given back whether or not that succeeds, and no later than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a machine's evacuation is called off in vain, and the pause between.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// So many requests are under way at once.
const AT_ONCE: usize = 16;

/// Has KubeVirt leave the machines on `node` where they are. What cannot be called off is said in the log.
pub(crate) async fn call_off(client: &Client, node: &str) {
    match tokio::time::timeout(PATIENCE, call_all_off(client, node)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(node, %error, "cannot tell which virtual machines are leaving the node"),
        Err(_) => warn!(node, "virtual machines may go on leaving the node: KubeVirt did not answer in time"),
    }
}

async fn call_all_off(client: &Client, node: &str) -> kube::Result<()> {
    for attempt in 1..=ATTEMPTS {
        let leaving = leaving(client, node).await?;
        if leaving.is_empty() {
            return Ok(());
        }
        if attempt == 1 && !is_offered(client).await? {
            info!(node, "this KubeVirt goes on moving the virtual machines that were to leave the node");
            return Ok(());
        }
        let answers = futures::stream::iter(leaving).map(|machine| async move {
            let answer = cancel(client, &machine, node).await;
            (machine, answer)
        });
        let mut again = false;
        for (machine, answer) in answers.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            let name = format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
            match answer {
                Ok(()) => info!(node, machine = name, "evacuation called off"),
                Err(error) if attempt < ATTEMPTS && may_pass(&error) => again = true,
                Err(error) => warn!(node, machine = name, %error, "cannot call the evacuation off"),
            }
        }
        if !again {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The machines that are to leave `node` but have not yet.
async fn leaving(client: &Client, node: &str) -> kube::Result<Vec<VirtualMachineInstance>> {
    let on_node = ListParams::default().labels(&format!("{NODE_LABEL}={node}"));
    let machines = Api::<VirtualMachineInstance>::all(client.clone()).list(&on_node).await?;
    Ok(machines.items.into_iter().filter(|machine| machine.is_leaving(node)).collect())
}

/// Read leniently: KubeVirt lists its subresources without verbs.
async fn is_offered(client: &Client) -> kube::Result<bool> {
    let request = http::Request::get(SUBRESOURCES).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request::<Value>(request).await {
        Ok(list) => {
            let mut offered = list["resources"].as_array().into_iter().flatten();
            Ok(offered.any(|resource| resource["name"] == CANCEL))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn cancel(client: &Client, machine: &VirtualMachineInstance, node: &str) -> kube::Result<()> {
    let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
    let path =
        format!("{SUBRESOURCES}/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel");
    let body = json!({"evacuationNodeName": node}).to_string().into_bytes();
    let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
    client.request_text(request.map_err(kube::Error::HttpError)?).await.map(|_| ())
}

/// Whether the same may succeed in a moment. KubeVirt says 500 too where the mark has changed meanwhile.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}
