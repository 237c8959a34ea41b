//! Reading a node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Labels of control-plane nodes, with any value; the second is the older one.
pub const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The label of nodes that run a member of etcd, with any value. RKE2 and k3s set it.
pub const ETCD: &str = "node-role.kubernetes.io/etcd";

/// The label of nodes that run a member of etcd and nothing else of the control plane, with any value. OpenShift sets it.
pub const ARBITER: &str = "node-role.kubernetes.io/arbiter";

/// The labels of all nodes that may run a member of etcd.
pub const ETCD_ROLES: [&str; 4] = [CONTROL_PLANE[0], CONTROL_PLANE[1], ETCD, ARBITER];

/// The name of a node.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a node is cordoned: unschedulable, by whomever.
pub fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Whether a node is Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It is, since then, if it says so.
    Ready(Option<Timestamp>),
    /// It is not.
    NotReady,
    /// Its kubelet has not reported for so long (about a minute by default) that it does not only restart.
    Silent,
}

/// Whether the node is Ready. A node that has not reported the condition counts as Ready.
pub fn readiness(node: &Node) -> Readiness {
    match ready(node) {
        Some(ready) if ready.status == "Unknown" => Readiness::Silent,
        Some(ready) if ready.status != "True" => Readiness::NotReady,
        ready => Readiness::Ready(ready.and_then(|ready| Some(ready.last_transition_time.as_ref()?.0))),
    }
}

/// The same, without the time.
pub fn is_ready(node: &Node) -> bool {
    matches!(readiness(node), Readiness::Ready(_))
}

/// Whether the node reports that it is Ready. A node that has not reported the condition does not.
pub fn reports_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == "True")
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether it is a control-plane node, by its labels.
pub fn is_control_plane(node: &Node) -> bool {
    has_control_plane_label(&node.metadata)
}

/// The same by the metadata of a node alone.
pub fn has_control_plane_label(metadata: &ObjectMeta) -> bool {
    CONTROL_PLANE.iter().any(|label| has_label(metadata, label))
}

/// Whether the node has the etcd role.
pub fn has_etcd_role(node: &Node) -> bool {
    has_label(&node.metadata, ETCD)
}

/// Whether it is an arbiter of etcd.
pub fn is_arbiter(node: &Node) -> bool {
    has_label(&node.metadata, ARBITER)
}

/// Whether it may run a member of etcd. Which of these nodes do depends on all of them ([`crate::gate::etcd`]).
pub fn may_run_etcd(node: &Node) -> bool {
    ETCD_ROLES.iter().any(|label| has_label(&node.metadata, label))
}

fn has_label(metadata: &ObjectMeta, label: &str) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label))
}

/// Whether a node may have this name, which is a DNS subdomain (RFC 1123). Such a name is safe as a segment of a path and
/// as a value of a selector.
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Whether a text is a DNS label (RFC 1123) of any length: lower-case letters, digits and `-`, without a `-` at either
/// end.
pub fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_a_dns_subdomain() {
        for name in ["n", "node-01", "ip-10-0-0-1.eu.internal", "1"] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in ["", "n1/status", "..", "a..b", "-a", "a-", "N1", "a,b=c", "a?b", "a%2fb", "\u{1b}[31m"] {
            assert!(!is_valid_name(name), "{name}");
        }
        assert!(!is_valid_name(&"a".repeat(254)));
    }
}
