//! A pod on the open node.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::DrainSpec;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::plan::{DaemonSets, PodFilters, Verdict};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodId {
    /// Its uid; its namespace and name, where only a status names it.
    pub(crate) key: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its controller, such as `sts/cart`; empty if there is none or it is not known.
    pub(crate) owner: String,
    /// The uid of its controller; empty if there is none or it is not known.
    pub(crate) controller: String,
}

#[derive(Debug)]
pub(crate) struct NodePod {
    pub(crate) id: Arc<PodId>,
    /// What a verdict depends on, so that a changed drain spec needs no request.
    pub(crate) pod: DrainPod,
}

impl From<DrainPod> for NodePod {
    fn from(pod: DrainPod) -> Self {
        let names = pod::names(&pod);
        let id = PodId {
            key: names.uid.to_owned(),
            namespace: names.namespace.to_owned(),
            name: names.name.to_owned(),
            owner: owner(&pod),
            controller: pod::controller(&pod).map(|owner| owner.uid.clone()).unwrap_or_default(),
        };
        Self { id: Arc::new(id), pod }
    }
}

impl NodePod {
    pub(crate) fn verdict(&self, spec: &DrainSpec, now: Timestamp) -> Verdict {
        // Only the reconciler knows all DaemonSets. A missing one is rare, and then the status reports more.
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        // With an invalid selector nothing is evicted, and the status reports why.
        PodFilters::new(spec, &daemon_sets, now).map_or(Verdict::Evict, |filters| filters.judge(&self.pod).0)
    }

    /// When its grace period ends, if it is terminating.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        pod::deadline(&self.pod)
    }

    pub(crate) fn terminating_since(&self) -> Option<Timestamp> {
        let termination = pod::termination(&self.pod)?;
        let grace = SignedDuration::from_secs(termination.grace_seconds.unwrap_or(0));
        Some(termination.deadline.saturating_sub(grace).unwrap_or(termination.deadline))
    }
}

/// The label by which a deployment distinguishes the pods of its replica sets.
const TEMPLATE_HASH: &str = "pod-template-hash";

fn owner(pod: &DrainPod) -> String {
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    let hash = hash.map(String::as_str);
    pod::controller(pod).map_or_else(String::new, |controller| owner_word(controller, hash))
}

/// The controller of a pod, with the short names of kubectl. For a pod of a deployment that is the deployment, because
/// it would undo changes to its replica sets. `template_hash` is the label by which it distinguishes their pods.
pub(crate) fn owner_word(controller: &OwnerReference, template_hash: Option<&str>) -> String {
    let OwnerReference { kind, name, .. } = controller;
    let deployment = template_hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
    let (kind, name) = match (kind.as_str(), deployment) {
        ("ReplicaSet", Some(deployment)) => ("deploy", deployment),
        ("ReplicaSet", None) => ("rs", name.as_str()),
        ("StatefulSet", _) => ("sts", name.as_str()),
        ("DaemonSet", _) => ("ds", name.as_str()),
        ("ReplicationController", _) => ("rc", name.as_str()),
        ("VirtualMachineInstance", _) => ("vmi", name.as_str()),
        (other, _) => return format!("{}/{name}", other.to_ascii_lowercase()),
    };
    format!("{kind}/{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_invalid_selector_does_not_make_pods_blocked() {
        let spec: DrainSpec =
            parse(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}));
        let pod: DrainPod = parse(json!({"metadata": {"name": "a"}}));
        assert_eq!(NodePod::from(pod).verdict(&spec, Timestamp::UNIX_EPOCH), Verdict::Evict);
    }

    #[test]
    fn owners_have_the_short_names_of_kubectl() {
        for (kind, owner) in [("StatefulSet", "sts/o"), ("VirtualMachineInstance", "vmi/o"), ("Job", "job/o")]
        {
            let reference =
                json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
            let pod: DrainPod = parse(json!({"metadata": {"name": "a", "ownerReferences": reference}}));
            assert_eq!(NodePod::from(pod).id.owner, owner);
        }
    }

    #[test]
    fn the_owner_of_a_pod_of_a_deployment_is_the_deployment() {
        for (kind, name, hash, owner) in [
            ("ReplicaSet", "front-6c4", "6c4", "deploy/front"),
            ("ReplicaSet", "front-6c4", "7d5", "rs/front-6c4"),
            ("ReplicaSet", "6c4", "6c4", "rs/6c4"),
            ("StatefulSet", "front-6c4", "6c4", "sts/front-6c4"),
        ] {
            let reference = json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
            let labels = json!({"pod-template-hash": hash});
            let pod: DrainPod =
                parse(json!({"metadata": {"name": "a", "labels": labels, "ownerReferences": reference}}));
            assert_eq!(NodePod::from(pod).id.owner, owner);
        }
    }
}
