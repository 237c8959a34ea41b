//! What decisions need to know of one node.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use crate::api::dns_label::is_label;

/// Labels of control-plane nodes, with any value; the second is the older name.
pub const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Its name.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Whether its kubelet says that it is Ready; one that has said nothing yet counts as Ready.
pub fn is_ready(node: &Node) -> bool {
    ready(node).is_none_or(|ready| ready.status == "True")
}

/// Whether its kubelet says that it is Ready; one that has said nothing yet does not count on.
pub fn says_ready(node: &Node) -> bool {
    ready(node).is_some_and(|ready| ready.status == "True")
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether it is of the control plane, by its labels.
pub fn is_control_plane(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)))
}

/// Whether a node may have this name: a DNS subdomain. Only such a name is a path's segment or a selector's value and
/// nothing else.
pub fn may_be_named(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_nothing_but_a_name() {
        for name in ["n", "node-01", "ip-10-0-0-1.eu.internal", "1"] {
            assert!(may_be_named(name), "{name}");
        }
        for name in ["", "n1/status", "..", "a..b", "-a", "a-", "N1", "a,b=c", "a?b", "a%2fb", "\u{1b}[31m"] {
            assert!(!may_be_named(name), "{name}");
        }
        assert!(!may_be_named(&"a".repeat(254)));
    }
}
