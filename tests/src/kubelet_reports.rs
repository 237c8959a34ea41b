//! What kubelets report about nodes and pods, as a test wants it.
//!
//! The kubelets of a sandbox read an annotation of each pod, and do not change the pressure of a running node. A node without
//! a kubelet keeps what is written to it and to its pods. Any other kubelet would overwrite it.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::controllers::kubelet::annotations::NEVER_READY;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::skip::skipped;
use crate::wait::wait_until;

/// Whether a node of a test cluster has no kubelet.
pub async fn is_hollow(cluster: &Cluster, node: &str) -> bool {
    let info = cluster.node(node).await.status.and_then(|status| status.node_info);
    info.is_some_and(|info| info.container_runtime_version == "hollow")
}

/// Whether a test can set what kubelets report. Otherwise, the test is reported as skipped.
pub async fn can_be_set(cluster: &Cluster) -> bool {
    let can = cluster.is_sandbox() || is_hollow(cluster, &cluster.nodes().await[0]).await;
    if !can {
        skipped("kubelets report something else than the test needs");
    }
    can
}

/// A node reports pressure, such as `DiskPressure`, or no longer reports it.
pub async fn set_pressure(cluster: &Cluster, node: &str, kind: &str, is_reported: bool) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let reported = condition(kind, is_reported);
    nodes.patch_status(node, &PatchParams::default(), &reported).await.unwrap();
}

/// The probe of a running pod succeeds or fails from now on. Waits until the pod is Ready, or is not.
pub async fn set_ready(cluster: &Cluster, pods: &Api<Pod>, pod: &str, is_ready: bool) {
    let params = PatchParams::default();
    if cluster.is_sandbox() {
        let value = if is_ready { Value::Null } else { json!("") };
        let annotation = json!({"metadata": {"annotations": {NEVER_READY: value}}});
        pods.patch(pod, &params, &Patch::Merge(annotation)).await.unwrap();
    } else {
        pods.patch_status(pod, &params, &condition("Ready", is_ready)).await.unwrap();
    }
    let what = if is_ready { "Ready" } else { "not Ready" };
    wait_until(pods, pod, what, |pod| pod.is_some_and(|pod| self::is_ready(pod) == is_ready)).await;
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Sets one condition of a status, and leaves the others.
fn condition(kind: &str, is_true: bool) -> Patch<Value> {
    let status = if is_true { "True" } else { "False" };
    Patch::Strategic(json!({"status": {"conditions": [{"type": kind, "status": status}]}}))
}
