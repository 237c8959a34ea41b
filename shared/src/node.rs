//! What decisions need to know of one node.

use k8s_openapi::api::core::v1::Node;

/// Labels of control-plane nodes; the second is the older name.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Its name.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Whether its kubelet says that it is Ready; one that has said nothing yet counts as Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").is_none_or(|ready| ready.status == "True")
}

/// Whether it is of the control plane, by its labels.
pub fn is_control_plane(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)))
}
