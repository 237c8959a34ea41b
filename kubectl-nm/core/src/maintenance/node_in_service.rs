//! A node as it is without what keeps pods away from it for a while, to see whether a pod would fit it then.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use nm_shared::cluster::temporary_taint::{is_of_condition, is_of_maintenance};

/// The node as it is without a maintenance or a cordon.
pub(crate) fn in_service(node: &Node) -> Node {
    let mut node = node.clone();
    if let Some(spec) = &mut node.spec {
        spec.unschedulable = None;
        spec.taints.iter_mut().for_each(|taints| taints.retain(|taint| !is_of_maintenance(&taint.key)));
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
        taints.retain(|taint| !is_of_condition(&taint.key) || is_of_maintenance(&taint.key));
    }
    let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions = Some(vec![ready]);
    node
}
