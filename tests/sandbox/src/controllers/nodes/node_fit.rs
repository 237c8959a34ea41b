//! Whether a pod may run on a node: cordons, taints, node selectors and required node affinity. The scheduler and the
//! `DaemonSet` controller use it.

use std::fmt;

use serde_json::{Value, json};

use crate::model::label_selector::{self, Requirement};
use crate::model::pod;

/// The taint of a cordoned node.
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Why a pod may not run on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnfitReason {
    /// The node is cordoned.
    Unschedulable,
    /// A taint that the pod does not tolerate: its key and value.
    Taint(String, String),
    /// The node does not match the pod's selector or affinity.
    NotSelected,
    /// The node has too little of a resource for the pod.
    Insufficient(String),
}

impl fmt::Display for UnfitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Taint(key, value) => write!(f, "node(s) had untolerated taint {{{key}: {value}}}"),
            Self::NotSelected => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Insufficient(resource) if resource == "pods" => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
        }
    }
}

/// Whether the pod may be scheduled to the node, apart from its capacity.
pub(crate) fn check(pod: &Value, node: &Value) -> Result<(), UnfitReason> {
    if !selects(pod, node) {
        return Err(UnfitReason::NotSelected);
    }
    if node["spec"]["unschedulable"] == true {
        let cordon = json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"});
        if !tolerates(pod, &cordon) {
            return Err(UnfitReason::Unschedulable);
        }
    }
    untolerated(pod, node, &["NoSchedule", "NoExecute"])
}

/// Whether the node has neither a cordon nor a taint that keeps pods away.
pub(crate) fn is_open(node: &Value) -> bool {
    node["spec"]["unschedulable"] != true
        && untolerated(&Value::Null, node, &["NoSchedule", "NoExecute"]).is_ok()
}

/// Whether the pod may run on every open node.
pub(crate) fn fits_every_open_node(pod: &Value) -> bool {
    let spec = &pod["spec"];
    spec["nodeSelector"].is_null() && spec["affinity"]["nodeAffinity"].is_null() && pod::node(pod).is_none()
}

/// The taints of a node that pods avoid where there is another node.
pub(crate) fn preferences(node: &Value) -> impl Iterator<Item = &Value> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter(|taint| taint["effect"] == "PreferNoSchedule")
}

/// Whether a pod may stay on its node.
pub(crate) fn check_staying(pod: &Value, node: &Value) -> Result<(), UnfitReason> {
    if !selects(pod, node) {
        return Err(UnfitReason::NotSelected);
    }
    untolerated(pod, node, &["NoExecute"])
}

fn untolerated(pod: &Value, node: &Value, effects: &[&str]) -> Result<(), UnfitReason> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    for taint in taints {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        if effects.contains(&text("effect")) && !tolerates(pod, taint) {
            return Err(UnfitReason::Taint(text("key").into(), text("value").into()));
        }
    }
    Ok(())
}

/// Whether one of the pod's tolerations matches the taint.
pub(crate) fn tolerates(pod: &Value, taint: &Value) -> bool {
    let mut tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    tolerations.any(|toleration| {
        let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        let any_value = toleration["operator"] == "Exists";
        (effect.is_empty() || effect == text(taint, "effect"))
            && (key == text(taint, "key") || (key.is_empty() && any_value))
            && (any_value || text(toleration, "value") == text(taint, "value"))
    })
}

/// The node that a pod requests by name, as pods of a `DaemonSet` do.
pub(crate) fn named_node(pod: &Value) -> Option<String> {
    let terms = required_terms(pod)?;
    let [term] = terms.as_slice() else {
        return None;
    };
    let mut fields = term["matchFields"].as_array()?.iter();
    fields.find_map(|field| {
        let requirement = Requirement::parse(field)?;
        match requirement.wanted()? {
            [name] if requirement.key() == "metadata.name" => Some(name.clone()),
            _ => None,
        }
    })
}

fn required_terms(pod: &Value) -> Option<&Vec<Value>> {
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].as_array()
}

fn selects(pod: &Value, node: &Value) -> bool {
    // A template can set `nodeName`.
    if pod::node(pod).is_some_and(|name| name != pod::name(node)) {
        return false;
    }
    let labels = &node["metadata"]["labels"];
    let wanted = pod["spec"]["nodeSelector"].as_object();
    let selected = wanted.into_iter().flatten().all(|(key, value)| labels[key] == *value);
    selected && required_terms(pod).is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
}

/// A term that is empty, or that refers to unknown fields, matches no node.
fn matches(term: &Value, node: &Value) -> bool {
    let parse = |field: &str| -> Option<Vec<Requirement>> {
        let entries = term[field].as_array().into_iter().flatten();
        entries.map(Requirement::parse).collect()
    };
    let Some((labels, fields)) = parse("matchExpressions").zip(parse("matchFields")) else {
        return false;
    };
    let name = |requirement: &Requirement| {
        requirement.key() == "metadata.name" && requirement.admits(Some(pod::name(node)))
    };
    !(labels.is_empty() && fields.is_empty())
        && label_selector::all_match(&labels, &node["metadata"]["labels"])
        && fields.iter().all(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {}})
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read better without a borrow each")]
    fn affinity(term: Value) -> Value {
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}})
    }

    #[test]
    fn a_cordon_and_a_taint_keep_pods_away_unless_tolerated() {
        let tolerant = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
        let mut cordoned = node();
        cordoned["spec"]["unschedulable"] = json!(true);
        assert_eq!(check(&json!({}), &cordoned), Err(UnfitReason::Unschedulable));
        assert_eq!(check(&tolerant(json!({"operator": "Exists"})), &cordoned), Ok(()));
        let mut tainted = node();
        tainted["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
        let taint = Err(UnfitReason::Taint("k".into(), "v".into()));
        assert_eq!(check(&json!({}), &tainted), taint);
        assert_eq!(check_staying(&json!({}), &tainted), Ok(()));
        let cases = [
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        for (toleration, fits) in cases {
            assert_eq!(check(&tolerant(toleration.clone()), &tainted).is_ok(), fits, "{toleration}");
        }
    }

    #[test]
    fn selectors_and_affinity_choose_nodes() {
        let expression = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
        let cases = [
            (json!({"spec": {"nodeSelector": {"zone": "a"}}}), true),
            (json!({"spec": {"nodeSelector": {"zone": "b"}}}), false),
            (json!({"spec": {"nodeName": "n1"}}), true),
            (json!({"spec": {"nodeName": "n2"}}), false),
            (affinity(json!({"matchExpressions": [expression("zone", json!(["a", "b"]))]})), true),
            (affinity(json!({"matchExpressions": [expression("zone", json!(["b"]))]})), false),
            (affinity(json!({"matchFields": [expression("metadata.name", json!(["n1"]))]})), true),
            (affinity(json!({"matchFields": [expression("metadata.name", json!(["n2"]))]})), false),
            (affinity(json!({})), false),
        ];
        for (pod, fits) in cases {
            assert_eq!(check(&pod, &node()).is_ok(), fits, "{pod}");
        }
        let named = affinity(json!({"matchFields": [expression("metadata.name", json!(["n1"]))]}));
        assert_eq!(named_node(&named).as_deref(), Some("n1"));
    }
}
