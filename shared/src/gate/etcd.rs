//! Which nodes run the members of etcd.
//!
//! RKE2 and k3s label the nodes of their members with the etcd role, also nodes that run nothing else. On a cluster without
//! such nodes, the control-plane nodes are taken for the members, as kubeadm and OpenShift set them up. Arbiters, which
//! OpenShift adds to two control-plane nodes, are members too.

use k8s_openapi::api::core::v1::Node;

use crate::cluster::node;
use crate::gate::etcd_guard::EtcdGuard;

/// Where etcd runs, and what guards it.
#[derive(Debug, Clone, Default)]
pub enum Etcd {
    /// On nodes of the cluster.
    #[default]
    OnNodes,
    /// On nodes of the cluster, with the guard of OpenShift.
    Guarded(EtcdGuard),
    /// Outside of the cluster: no node is a member.
    External,
}

/// By which role nodes are members of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdRole {
    /// Whether some nodes have the etcd role.
    has_role: bool,
}

impl EtcdRole {
    /// How the members are recognized among these nodes of a cluster.
    pub fn among<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        Self::new(nodes.into_iter().any(node::has_etcd_role))
    }

    /// The same, if it is known whether some nodes have the etcd role.
    pub(crate) fn new(has_role: bool) -> Self {
        Self { has_role }
    }

    /// Whether a node is a member.
    pub fn is_member(self, node: &Node) -> bool {
        self.is_member_with(node::is_control_plane(node), node::has_etcd_role(node), node::is_arbiter(node))
    }

    /// Whether a node with these roles is a member.
    pub(crate) fn is_member_with(
        self,
        is_control_plane: bool,
        has_etcd_role: bool,
        is_arbiter: bool,
    ) -> bool {
        is_arbiter || if self.has_role { has_etcd_role } else { is_control_plane }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_have_the_etcd_role_or_are_the_control_plane_and_arbiters_are_members() {
        let members = |roles: &[&str]| {
            let node = |roles: &&str| -> Node {
                let labels = roles
                    .split_terminator('+')
                    .map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")));
                let labels: serde_json::Map<_, _> = labels.collect();
                serde_json::from_value(json!({"metadata": {"name": roles, "labels": labels}})).unwrap()
            };
            let nodes: Vec<Node> = roles.iter().map(node).collect();
            let role = EtcdRole::among(&nodes);
            let members = nodes.iter().filter(|node| role.is_member(node));
            members.map(|node| node::name(node).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(members(&["control-plane", "master", "worker"]), ["control-plane", "master"]);
        assert_eq!(members(&["control-plane+etcd", "control-plane", "etcd"]), ["control-plane+etcd", "etcd"]);
        assert_eq!(members(&["control-plane", "etcd", "worker"]), ["etcd"]);
        assert_eq!(members(&["control-plane+master", "arbiter", ""]), ["control-plane+master", "arbiter"]);
        assert_eq!(members(&["worker"]), Vec::<String>::new());
    }
}
