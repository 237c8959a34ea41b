//! Whether the topology spread constraints of a pod allow it on a node, beside the pods that run.
//!
//! Source: `pkg/scheduler/framework/plugins/podtopologyspread` in kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, TopologySpreadConstraint};
use kube::core::{Selector, SelectorExt};

use crate::cluster::node;
use crate::cluster::node_fit::{self, CandidateNode};
use crate::cluster::pod::PodPhase;

/// The constraints without which the pod is not scheduled.
pub fn required(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.spec.iter().flat_map(node_fit::required_spread)
}

/// The pods that run, as a required constraint of a pod counts them. They are counted once, for any number of nodes that the pod may
/// be scheduled to.
#[derive(Debug)]
pub struct SpreadPods<'a> {
    constraint: &'a TopologySpreadConstraint,
    /// The domains of the nodes that count, by the names of these.
    domains: BTreeMap<&'a str, &'a str>,
    /// The pods of each of these domains.
    by_domain: BTreeMap<&'a str, i32>,
    /// The pods of each node, even of one that does not count.
    by_node: BTreeMap<&'a str, i32>,
    /// The pods of the domain that has fewest.
    lowest: Option<i32>,
    /// The pod itself, once it runs.
    own: i32,
}

impl<'a> SpreadPods<'a> {
    /// Counts those of `running` for a constraint of `pod`. They are all pods that the constraint counts, and maybe others.
    pub fn count(
        constraint: &'a TopologySpreadConstraint,
        pod: &Pod,
        nodes: &'a [Node],
        running: &'a [Pod],
    ) -> Self {
        let unsaid = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&unsaid);
        let is_set = |policy: &Option<String>, value: &str| policy.as_deref() == Some(value);
        let is_counted = |node: &&Node| {
            required(pod).all(|other| node.label(&other.topology_key).is_some())
                && (is_set(&constraint.node_affinity_policy, "Ignore") || node_fit::is_selected(spec, *node))
                && (!is_set(&constraint.node_taints_policy, "Honor")
                    || node_fit::untolerated(spec, *node).is_none())
        };
        let domain = |node: &'a Node| Some((node::name(node), node.label(&constraint.topology_key)?));
        let domains: BTreeMap<&str, &str> = nodes.iter().filter(is_counted).filter_map(domain).collect();
        let mut by_domain: BTreeMap<&str, i32> = domains.values().map(|domain| (*domain, 0)).collect();
        let mut by_node: BTreeMap<&str, i32> = BTreeMap::new();
        let selected = Selected::by(constraint, pod);
        let stays =
            |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && PodPhase::of(pod) != PodPhase::Finished;
        // The scheduler counts no pod for a selector without a requirement, although that selects all pods.
        let counted = running.iter().filter(|_| !selected.is_all()).filter(stays);
        for other in counted.filter(|other| selected.contains(other)) {
            let node = other.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            *by_node.entry(node).or_default() += 1;
            if let Some(count) = domains.get(node).and_then(|domain| by_domain.get_mut(domain)) {
                *count += 1;
            }
        }
        let (lowest, own) = (by_domain.values().min().copied(), i32::from(selected.contains(pod)));
        Self { constraint, domains, by_domain, by_node, lowest, own }
    }

    /// Whether the constraint allows the pod on `target`, which fits it otherwise, and therefore counts.
    pub fn allow(&self, target: &Node) -> bool {
        let Some(domain) = target.label(&self.constraint.topology_key) else { return false };
        let known = self.by_domain.get(domain).copied();
        let (here, lowest) = if self.domains.contains_key(node::name(target)) {
            (known.unwrap_or(0), self.lowest)
        } else {
            let here = known.unwrap_or(0) + self.by_node.get(node::name(target)).copied().unwrap_or(0);
            let others =
                self.by_domain.iter().filter(|(other, _)| **other != domain).map(|(_, count)| *count);
            (here, others.chain([here]).min())
        };
        let domains = self.by_domain.len() + usize::from(known.is_none());
        let has_enough = |wanted: i32| i32::try_from(domains).unwrap_or(i32::MAX) >= wanted;
        let lowest = lowest.filter(|_| has_enough(self.constraint.min_domains.unwrap_or(1)));
        here + self.own - lowest.unwrap_or(0) <= self.constraint.max_skew
    }
}

/// The pods that a constraint of a pod is about.
struct Selected {
    namespace: Option<String>,
    selector: Option<Selector>,
    /// The labels that these have in common with the pod.
    alike: Vec<(String, String)>,
}

impl Selected {
    fn by(constraint: &TopologySpreadConstraint, pod: &Pod) -> Self {
        let selector =
            constraint.label_selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        let keys = constraint.match_label_keys.iter().flatten();
        let label = |key: &String| Some((key.clone(), pod.metadata.labels.as_ref()?.get(key)?.clone()));
        Self { namespace: pod.metadata.namespace.clone(), selector, alike: keys.filter_map(label).collect() }
    }

    /// Whether that are all pods of the namespace.
    fn is_all(&self) -> bool {
        self.alike.is_empty() && self.selector.as_ref().is_some_and(Selector::selects_all)
    }

    fn contains(&self, pod: &Pod) -> bool {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        pod.metadata.namespace == self.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.alike.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, spec: &Value) -> Node {
        let labels = json!({"kubernetes.io/hostname": name, "pool": if name == "n3" { "b" } else { "a" }});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
    }

    fn pod(node: &str, hash: &str, spec: &Value) -> Pod {
        let labels = json!({"app": "web", "pod-template-hash": hash});
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "labels": labels},
            "spec": spec,
        }))
        .unwrap();
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned()).filter(|node| !node.is_empty());
        pod
    }

    /// The nodes that a pod may run on, if n1 has one pod, n2 two and n3 none.
    fn allowed(constraint: &Value, more: &Value) -> Vec<&'static str> {
        let cordoned = json!({"unschedulable": true,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
        let nodes = [node("n1", &json!({})), node("n2", &json!({})), node("n3", &cordoned)];
        let mut spread = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}});
        let mut spec = json!({"containers": []});
        for (of, more) in [(&mut spread, constraint), (&mut spec, more)] {
            of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        spec["topologySpreadConstraints"] = json!([spread]);
        let running = [("n1", "new"), ("n2", "new"), ("n2", "old")];
        let mut running: Vec<Pod> =
            running.map(|(node, hash)| pod(node, hash, &json!({"containers": []}))).into();
        let mut leaving = pod("n3", "new", &json!({"containers": []}));
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
        running.push(leaving);
        let waits = pod("", "new", &spec);
        let counted = SpreadPods::count(required(&waits).next().unwrap(), &waits, &nodes, &running);
        let is_allowed =
            |name: &&str| counted.allow(nodes.iter().find(|node| node::name(node) == *name).unwrap());
        ["n1", "n2", "n3"].into_iter().filter(is_allowed).collect()
    }

    #[test]
    fn a_pod_is_kept_from_nodes_that_have_too_many_others() {
        for (constraint, spec, expected) in [
            (json!({}), json!({}), &["n3"][..]),
            (json!({"maxSkew": 2}), json!({}), &["n1", "n3"]),
            (json!({"maxSkew": 3}), json!({}), &["n1", "n2", "n3"]),
            (json!({"matchLabelKeys": ["pod-template-hash"], "maxSkew": 2}), json!({}), &["n1", "n2", "n3"]),
            (json!({"matchLabelKeys": ["missing"]}), json!({}), &["n3"]),
            (json!({"topologyKey": "pool"}), json!({}), &["n3"]),
            (json!({"topologyKey": "zone"}), json!({}), &[]),
            (json!({"labelSelector": {"matchLabels": {"app": "db"}}}), json!({}), &["n1", "n2", "n3"]),
            (json!({"labelSelector": null}), json!({}), &["n1", "n2", "n3"]),
            (json!({"labelSelector": {}}), json!({}), &["n1", "n2", "n3"]),
            (json!({"labelSelector": {}, "matchLabelKeys": ["pod-template-hash"]}), json!({}), &["n3"]),
            // A node that the pod does not select, or whose taints matter, does not count for the others.
            (json!({}), json!({"nodeSelector": {"pool": "a"}}), &["n1", "n3"]),
            (json!({"nodeAffinityPolicy": "Ignore"}), json!({"nodeSelector": {"pool": "a"}}), &["n3"]),
            (json!({"nodeTaintsPolicy": "Honor"}), json!({}), &["n1", "n3"]),
            // With fewer domains, none counts as having any.
            (json!({"nodeTaintsPolicy": "Honor", "minDomains": 3}), json!({}), &["n3"]),
        ] {
            assert_eq!(allowed(&constraint, &spec), expected, "{constraint} {spec}");
        }
    }
}
