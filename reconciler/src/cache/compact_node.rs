//! A node as the cache keeps it. Nine tenths of Kubernetes' own type would be empty fields, and there may be thousands of nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use nm_shared::cluster::node::ETCD_ROLES;
use nm_shared::cluster::node_fit::CandidateNode;
use nm_shared::drain::node_conditions::is_ours;

const READY: &str = "Ready";

type Entry = (Box<str>, Box<str>);

/// What anything here reads of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompactNode {
    /// It differs after every write, so it says nothing about the rest.
    version: Option<Box<str>>,
    facts: NodeFacts,
}

#[derive(Debug, Clone, PartialEq)]
struct NodeFacts {
    name: Box<str>,
    uid: Option<Box<str>>,
    labels: Box<[Entry]>,
    annotations: Box<[Entry]>,
    unschedulable: Option<bool>,
    taints: Option<Box<[Taint]>>,
    /// The status of the condition `Ready`, and when that last changed.
    ready: Option<(Box<str>, Option<Timestamp>)>,
    /// The other conditions.
    conditions: Box<[NodeCondition]>,
}

impl CompactNode {
    pub(crate) fn name(&self) -> &str {
        &self.facts.name
    }

    /// Whether two versions differ in nothing that anything here reads.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.facts == other.facts
    }

    /// Whether it may run a member of etcd.
    pub(crate) fn may_run_etcd(&self) -> bool {
        self.facts.labels.iter().any(|(label, _)| ETCD_ROLES.contains(&&**label))
    }

    /// Whether it has conditions that were written for a maintenance.
    pub(crate) fn has_maintenance_conditions(&self) -> bool {
        self.facts.conditions.iter().any(is_ours)
    }
}

impl CandidateNode for CompactNode {
    fn name(&self) -> &str {
        &self.facts.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.facts.labels.iter().find(|(label, _)| **label == *key).map(|(_, value)| &**value)
    }

    fn taints(&self) -> &[Taint] {
        self.facts.taints.as_deref().unwrap_or_default()
    }

    fn is_unschedulable(&self) -> bool {
        self.facts.unschedulable == Some(true)
    }

    fn is_ready(&self) -> bool {
        self.facts.ready.as_ref().is_none_or(|(status, _)| **status == *"True")
    }
}

/// Whether two versions of a node differ in nothing that anything here reads.
pub(crate) fn is_alike(one: &Node, other: &Node) -> bool {
    CompactNode::from(one.clone()).is_alike(&CompactNode::from(other.clone()))
}

impl From<Node> for CompactNode {
    fn from(Node { metadata, spec, status }: Node) -> Self {
        let spec = spec.unwrap_or_default();
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == READY);
        let ready = ready
            .map(|ready| (ready.status.as_str().into(), ready.last_transition_time.as_ref().map(|at| at.0)));
        let others = conditions.into_iter().filter(|condition| condition.type_ != READY);
        let entries = |(key, value): (String, String)| (key.into_boxed_str(), value.into_boxed_str());
        let facts = NodeFacts {
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.map(Into::into),
            labels: metadata.labels.into_iter().flatten().map(entries).collect(),
            annotations: metadata.annotations.into_iter().flatten().map(entries).collect(),
            unschedulable: spec.unschedulable,
            taints: spec.taints.map(Into::into),
            ready,
            conditions: others.collect(),
        };
        Self { version: metadata.resource_version.map(Into::into), facts }
    }
}

/// The node as decisions read it.
impl From<&CompactNode> for Node {
    fn from(CompactNode { version, facts }: &CompactNode) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let map = |entries: &[Entry]| {
            let owned = entries.iter().map(|(key, value)| (key.to_string(), value.to_string()));
            (!entries.is_empty()).then(|| owned.collect())
        };
        let ready = facts.ready.as_ref().map(|(status, since)| NodeCondition {
            type_: READY.to_owned(),
            status: status.to_string(),
            last_transition_time: since.map(Time),
            ..NodeCondition::default()
        });
        Self {
            metadata: ObjectMeta {
                name: Some(facts.name.to_string()),
                uid: text(&facts.uid),
                resource_version: text(version),
                labels: map(&facts.labels),
                annotations: map(&facts.annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                unschedulable: facts.unschedulable,
                taints: facts.taints.as_ref().map(|taints| taints.to_vec()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                conditions: Some(ready.into_iter().chain(facts.conditions.iter().cloned()).collect()),
                ..NodeStatus::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use nm_shared::api::names::UNDO_ANNOTATION;
    use nm_shared::cluster::node_fit::{Unfit, check_spec};
    use serde_json::{Value, json};

    use super::*;

    fn node(version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version,
                "labels": {"node-role.kubernetes.io/control-plane": ""}, "annotations": {UNDO_ANNOTATION: "{}"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"},
                {"type": "Drained", "status": "True", "message": "NodeMaintenance m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        })
    }

    fn compact(node: Value) -> CompactNode {
        serde_json::from_value::<Node>(node).unwrap().into()
    }

    #[test]
    fn what_decisions_read_of_a_node_is_kept() {
        assert_eq!(serde_json::to_value(Node::from(&compact(node("1")))).unwrap(), node("1"));
        let bare = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {},
            "status": {"conditions": []}});
        assert_eq!(serde_json::to_value(Node::from(&compact(bare.clone()))).unwrap(), bare);
        assert!(compact(node("1")).may_run_etcd() && !compact(bare.clone()).may_run_etcd());
        assert!(
            compact(node("1")).has_maintenance_conditions() && !compact(bare).has_maintenance_conditions()
        );
    }

    #[test]
    fn a_pod_fits_a_node_of_the_cache_as_it_fits_the_node() {
        let spec = |taints: Value| json!({"unschedulable": taints.is_null(), "taints": taints});
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
        let free = || spec(json!([]));
        let tainted = json!({"key": "k", "effect": "NoSchedule"});
        let fits = [
            (free(), ready("True"), Ok(())),
            (free(), json!({}), Ok(())),
            (free(), ready("Unknown"), Err(Unfit::NotReady)),
            (spec(Value::Null), ready("True"), Err(Unfit::Cordoned)),
            (spec(json!([tainted])), ready("True"), Err(Unfit::Taint("k:NoSchedule".into()))),
        ];
        for (spec, status, expected) in fits {
            let metadata = json!({"name": "n", "labels": {"a": "b"}});
            let node = json!({"metadata": metadata, "spec": spec, "status": status});
            let whole: Node = serde_json::from_value(node).unwrap();
            for (name, pool) in [("n", "b"), ("n", "c"), ("m", "b")] {
                let by_name =
                    json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
                let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_name]}});
                let spec = json!({"containers": [], "nodeSelector": {"a": pool}, "affinity": {"nodeAffinity": required}});
                let spec = serde_json::from_value(spec).unwrap();
                let found = check_spec(&spec, &[], &CompactNode::from(whole.clone()));
                assert_eq!(found, check_spec(&spec, &[], &whole));
                assert!((name, pool) != ("n", "b") || found == expected, "{found:?}");
            }
        }
    }

    #[test]
    fn another_version_alone_is_no_change() {
        assert!(compact(node("1")).is_alike(&compact(node("2"))));
        let mut other = node("2");
        other["spec"]["unschedulable"] = Value::Null;
        assert!(!compact(node("1")).is_alike(&compact(other)));
        let mut heard = node("2");
        heard["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-03T00:00:00Z");
        heard["metadata"]["finalizers"] = json!(["example.com/f"]);
        let heard: Node = serde_json::from_value(heard).unwrap();
        assert!(is_alike(&Node::from(&compact(node("1"))), &heard), "nothing reads the rest");
    }
}
