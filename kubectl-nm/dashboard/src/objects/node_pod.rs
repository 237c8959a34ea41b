//! A pod on the open node.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use nm_core::explain::owner::Owner;
use nm_shared::cluster::metadata;
use nm_shared::cluster::pod::{self, DrainPod, PodNames};
use nm_shared::drain::plan::{DaemonSets, PodFilters, Verdict};
use nm_shared::{DrainSpec, PodReference};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodId {
    /// Its uid; its namespace and name, where only a status names it.
    pub(crate) key: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// None if there is none or it is not known.
    #[serde(deserialize_with = "recorded_owner", skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Owner>,
    /// The uid of its controller; empty if there is none or it is not known.
    pub(crate) controller: String,
}

fn recorded_owner<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Owner>, D::Error> {
    String::deserialize(deserializer).map(|text| Owner::recorded(&text))
}

impl PodId {
    pub(crate) fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// How its namespace and name compare with those of a path, as statuses name pods.
    pub(crate) fn compare_path(&self, path: &str) -> Ordering {
        let (namespace, name) = path.split_once('/').unwrap_or_default();
        self.namespace.as_str().cmp(namespace).then_with(|| self.name.as_str().cmp(name))
    }

    /// Whether only the status of a maintenance has named the pod, so that its owner is not known.
    pub(crate) fn is_named_only(&self) -> bool {
        // A uid has no slash.
        self.key.contains('/')
    }

    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let controller = metadata::controller(metadata.owner_references.as_deref().unwrap_or_default());
        let names = PodNames {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref().unwrap_or_default(),
        };
        Self::new(names, controller, metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }

    fn new(
        PodNames { namespace, name, uid }: PodNames<'_>,
        controller: Option<&OwnerReference>,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let hash = labels.get(metadata::TEMPLATE_HASH).map(String::as_str);
        Self {
            key: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner: controller.map(|controller| Owner::of(controller, hash)),
            controller: controller.map(|owner| owner.uid.clone()).unwrap_or_default(),
        }
    }
}

/// A pod as the key of a map, by its uid, which is kept once.
#[derive(Debug, Clone)]
pub(crate) struct PodKey(pub(crate) Arc<PodId>);

impl Borrow<str> for PodKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl PartialEq for PodKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for PodKey {}

impl Hash for PodKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

#[derive(Debug)]
pub(crate) struct NodePod {
    pub(crate) id: Arc<PodId>,
    /// What a verdict depends on, so that a changed drain spec needs no request.
    pub(crate) pod: DrainPod,
}

impl From<DrainPod> for NodePod {
    fn from(pod: DrainPod) -> Self {
        Self { id: Arc::new(PodId::new(pod::names(&pod), pod::controller(&pod), &pod.labels)), pod }
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
    fn the_owner_of_a_pod_is_its_controller_or_the_deployment_by_its_label() {
        let owner = |api_version: &str| {
            let reference = json!([{"apiVersion": api_version, "kind": "ReplicaSet", "name": "front-6c4", "uid": "u",
                "controller": true}]);
            let labels = json!({"pod-template-hash": "6c4"});
            let pod: DrainPod =
                parse(json!({"metadata": {"name": "a", "labels": labels, "ownerReferences": reference}}));
            NodePod::from(pod).id.owner.as_ref().map(ToString::to_string)
        };
        assert_eq!(owner("apps/v1").as_deref(), Some("deploy/front"));
        assert_eq!(owner("example.com/v1").as_deref(), Some("replicaset/front-6c4"));
    }

    #[test]
    fn a_recording_has_the_owner_as_a_string() {
        let id = PodId { owner: Owner::recorded("sts/cart"), ..PodId::default() };
        let recorded = json!(id);
        assert_eq!(recorded["owner"], "sts/cart");
        assert_eq!(parse::<PodId>(recorded), id);
        assert_eq!(parse::<PodId>(json!(PodId::default())), PodId::default());
        assert_eq!(parse::<PodId>(json!({"owner": ""})), PodId::default());
    }
}
