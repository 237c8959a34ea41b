//! A node as it is without what keeps pods away from it for a while, to see whether a pod would fit it then.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use nm_shared::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT, OUT_OF_SERVICE_TAINT, UNSCHEDULABLE_TAINT};

/// What the taints begin with that the control plane sets for conditions of a node.
const OF_CONDITIONS: &str = "node.kubernetes.io/";

/// The node as it is without a maintenance or a cordon.
pub(crate) fn in_service(node: &Node) -> Node {
    let mut node = node.clone();
    if let Some(spec) = &mut node.spec {
        spec.unschedulable = None;
        spec.taints.iter_mut().for_each(|taints| taints.retain(|taint| !is_of_maintenance(taint)));
    }
    node
}

/// The node as if it were in service and Ready.
pub(crate) fn ready(node: &Node) -> Node {
    in_service(&recovered(node))
}

/// The node as if it were Ready. What cordons it stays.
pub(crate) fn recovered(node: &Node) -> Node {
    let mut node = node.clone();
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| !is_of_condition(&taint.key) || is_of_maintenance(taint));
    }
    let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions = Some(vec![ready]);
    node
}

/// Whether a maintenance or a cordon sets the taint.
fn is_of_maintenance(taint: &Taint) -> bool {
    [DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT].contains(&taint.key.as_str())
}

/// Whether the control plane sets the taint, which begins with its key, for a condition of a node.
pub(crate) fn is_of_condition(taint: &str) -> bool {
    taint.starts_with(OF_CONDITIONS) && !taint.starts_with(OUT_OF_SERVICE_TAINT)
}
