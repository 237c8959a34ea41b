//! The pool and the zone of a node, by its labels.

use std::collections::BTreeMap;

/// The labels that name a node's zone; the second is the older one.
const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

/// The labels that name a node's pool: those of providers and autoscalers, and then what people often choose.
const POOLS: [&str; 20] = [
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "doks.digitalocean.com/node-pool",
    "ibm-cloud.kubernetes.io/worker-pool-name",
    "k8s.scaleway.com/pool-name",
    "lke.linode.com/pool-id",
    "magnum.openstack.org/nodegroup",
    "hcloud/node-group",
    "worker.gardener.cloud/pool",
    "kops.k8s.io/instancegroup",
    "hypershift.openshift.io/nodePool",
    "node.cluster.x-k8s.io/pool",
    "nodepool",
    "node-pool",
    "nodegroup",
    "pool",
];

/// The zone in the labels of a node.
pub fn zone(labels: Option<&BTreeMap<String, String>>) -> Option<&str> {
    first(labels, &ZONES)
}

/// The pool in the labels of a node.
pub fn pool(labels: Option<&BTreeMap<String, String>>) -> Option<&str> {
    first(labels, &POOLS)
}

fn first<'a>(labels: Option<&'a BTreeMap<String, String>>, keys: &[&str]) -> Option<&'a str> {
    let labels = labels?;
    keys.iter().find_map(|key| labels.get(*key)).map(String::as_str).filter(|value| !value.is_empty())
}
