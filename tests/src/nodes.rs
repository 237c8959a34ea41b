//! What a maintenance changes on a node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nm_shared::Group;
use nm_shared::drain::node_patch::is_cordoned;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::wait::wait_until;

/// Everything on a node that a maintenance may change, to compare before and after. The kubelet owns the rest.
pub fn configuration(node: &Node) -> Value {
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.sort_by_key(|taint| (taint.key.clone(), taint.effect.clone()));
    json!({
        "labels": node.metadata.labels,
        "annotations": node.metadata.annotations,
        "unschedulable": node.spec.as_ref().and_then(|spec| spec.unschedulable),
        "taints": taints,
    })
}

/// Waits until a node is unschedulable and has the taints and the label of a maintenance.
pub async fn until_cordoned(cluster: &Cluster, node: &str) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let cordoned = |node: Option<&Node>| node.is_some_and(|node| is_cordoned(node, Group::Medik8s));
    wait_until(&nodes, node, "cordoned", cordoned).await;
}
