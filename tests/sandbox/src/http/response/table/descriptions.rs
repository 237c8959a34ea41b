//! The descriptions of columns.
//!
//! kubectl does not show them. Only the columns of nodes, pods and volumes, and those that many kinds share, have
//! descriptions.

use crate::http::response::table::storage_descriptions;

const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is \
    represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: \
    https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but \
    the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should \
    instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that \
    addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be \
    possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API \
    (status.hostIP).";

/// The description of a column; empty for most.
pub(crate) fn of(group: &str, plural: &str, column: &str) -> &'static str {
    match (group, plural, column) {
        (_, _, "Age") => AGE,
        ("", "nodes", "Internal-IP" | "External-IP") => ADDRESSES,
        ("", "nodes", "Status") => "The status of the node",
        ("", "nodes", "Roles") => "The roles of the node",
        ("", "nodes", "Version") => "Kubelet Version reported by the node.",
        ("", "nodes", "OS-Image") => {
            "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."
        }
        ("", "nodes", "Kernel-Version") => {
            "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."
        }
        ("", "nodes", "Container-Runtime") => {
            "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2)."
        }
        ("", "pods", "Ready") => "The aggregate readiness state of this pod for accepting traffic.",
        ("", "pods", "Status") => "The aggregate status of the containers in this pod.",
        ("", "pods", "Restarts") => {
            "The number of times the containers in this pod have been restarted and when the last container in this \
            pod has restarted."
        }
        ("", "pods", "IP") => {
            "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated."
        }
        ("", "pods", "Node") => {
            "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for \
            scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node \
            becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for \
            the pod to be scheduled on a specific node. \
            https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename"
        }
        ("", "pods", "Nominated Node") => {
            "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled \
            right away as preemption victims receive their graceful termination periods. This field does not \
            guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere \
            if other nodes become available sooner. Scheduler may also decide to give the resources on this node to \
            a higher priority pod that is created after preemption. As a result, this field may be different than \
            PodSpec.nodeName when the pod is scheduled."
        }
        ("", "pods", "Readiness Gates") => {
            "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its \
            containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" \
            More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates"
        }
        _ => storage_descriptions::of(plural, column),
    }
}
