//! Whether a control-plane node may be put into maintenance without etcd losing its quorum.
//!
//! On OpenShift the disruption budget of etcd's guard pods decides, as in the medik8s node-maintenance-operator
//! (`vendor/github.com/medik8s/common/pkg/etcd` there). On other clusters it is unknown where etcd runs, and a majority of
//! the control-plane nodes must stay Ready and out of maintenance.

use crate::cluster::pod::{ConditionStatus, DrainPod};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::core::{Selector, SelectorExt};

use crate::cluster::node;

/// The namespace of OpenShift's etcd, its guard pods and their budget.
pub const ETCD_NAMESPACE: &str = "openshift-etcd";

/// An API group that only OpenShift serves.
const OPENSHIFT_GROUP: &str = "config.openshift.io";

/// Whether a cluster that serves these API groups is OpenShift.
pub fn is_openshift(served: &APIGroupList) -> bool {
    served.groups.iter().any(|group| group.name == OPENSHIFT_GROUP)
}

/// The guard of etcd on OpenShift.
#[derive(Debug, Clone, Default)]
pub struct EtcdGuard {
    /// The disruption budgets in [`ETCD_NAMESPACE`].
    pub budgets: Vec<PodDisruptionBudget>,
    /// The pods in that namespace that the budget selects.
    pub pods: Vec<DrainPod>,
}

impl EtcdGuard {
    /// The budgets in etcd's namespace, and the pods there that the only one selects. With several budgets, the pods do not
    /// matter.
    pub fn among<'a>(
        budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>,
        pods: impl IntoIterator<Item = &'a DrainPod>,
    ) -> Self {
        let budgets =
            budgets.into_iter().filter(|it| it.metadata.namespace.as_deref() == Some(ETCD_NAMESPACE));
        let budgets: Vec<_> = budgets.cloned().collect();
        let mut selector = None;
        if let [budget] = budgets.as_slice() {
            let labels = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
            selector = labels.and_then(|labels| Selector::try_from(labels).ok());
        }
        let is_guard = |pod: &&DrainPod| {
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            pod.metadata.namespace.as_deref() == Some(ETCD_NAMESPACE)
                && selector.as_ref().is_some_and(|selector| selector.matches(&labels))
        };
        Self { pods: pods.into_iter().filter(is_guard).cloned().collect(), budgets }
    }
}

/// Why `candidate` may not be put into maintenance; none if it may, such as every node outside the control plane.
///
/// `guard` is none if the cluster is not OpenShift; `in_maintenance` says which nodes are in maintenance or about to be.
pub fn violation<'a>(
    candidate: &Node,
    nodes: impl IntoIterator<Item = &'a Node>,
    in_maintenance: impl Fn(&str) -> bool,
    guard: Option<&EtcdGuard>,
) -> Option<String> {
    if !node::is_control_plane(candidate) {
        return None;
    }
    let name = node::name(candidate);
    let sentence = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {name} will violate etcd \
         quorum"
    );
    match guard {
        Some(guard) => (!guard_allows(guard, name)).then_some(sentence),
        None => shortfall(name, nodes, in_maintenance).map(|shortfall| format!("{sentence}: {shortfall}")),
    }
}

/// Without exactly one budget it is unknown, which counts as not allowed.
fn guard_allows(guard: &EtcdGuard, node: &str) -> bool {
    let [budget] = guard.budgets.as_slice() else { return false };
    if budget.status.as_ref().is_some_and(|status| status.disruptions_allowed >= 1) {
        return true;
    }
    // A pod with an unknown condition may be Ready.
    let may_be_ready = |pod: &DrainPod| pod.ready.is_some_and(|ready| ready != ConditionStatus::False);
    // A node whose etcd is disrupted already, or that runs none, is allowed.
    guard.pods.iter().find(|pod| &*pod.node == node).is_none_or(|pod| !may_be_ready(pod))
}

fn shortfall<'a>(
    candidate: &str,
    nodes: impl IntoIterator<Item = &'a Node>,
    in_maintenance: impl Fn(&str) -> bool,
) -> Option<String> {
    let control_plane: Vec<&Node> = nodes.into_iter().filter(|node| node::is_control_plane(node)).collect();
    // A node that has not reported the condition may not run etcd yet.
    let stays = |node: &&&Node| {
        node::name(node) != candidate && node::reports_ready(node) && !in_maintenance(node::name(node))
    };
    let (left, all) = (control_plane.iter().filter(stays).count(), control_plane.len());
    let majority = all / 2 + 1;
    (left < majority)
        .then(|| format!("{left} of {all} control-plane nodes would be left, and {majority} are a majority"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
    use serde_json::{Value, json};

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn control_plane(name: &str, ready: &str) -> Node {
        let labels = json!({"node-role.kubernetes.io/master": ""});
        parse(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    fn budget(allowed: i32) -> PodDisruptionBudget {
        parse(json!({"metadata": {"name": "etcd-guard-pdb"}, "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}}))
    }

    fn guard_pod(node: &str, ready: &str) -> DrainPod {
        parse(json!({
            "metadata": {"name": format!("etcd-guard-{node}")}, "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    #[test]
    fn on_openshift_the_budget_of_the_guard_decides() {
        let node = control_plane("cp1", "True");
        let refusal = "can not put master/control-plane node into maintenance at this moment, disrupting node cp1 will \
                       violate etcd quorum";
        let check = |budgets: Vec<PodDisruptionBudget>, pods: Vec<DrainPod>, allowed: bool, why: &str| {
            let found = violation(&node, [&node], |_| false, Some(&EtcdGuard { budgets, pods }));
            assert_eq!(found.as_deref(), (!allowed).then_some(refusal), "{why}");
        };
        check(vec![budget(0)], vec![guard_pod("cp1", "True")], false, "its guard is Ready");
        check(vec![budget(0)], vec![guard_pod("cp1", "Unknown")], false, "its guard may be Ready");
        check(vec![budget(0)], vec![guard_pod("cp1", "False")], true, "it is disrupted already");
        check(vec![budget(0)], vec![guard_pod("cp2", "True")], true, "it has no guard");
        check(vec![budget(1)], vec![guard_pod("cp1", "True")], true, "the budget allows one");
        check(vec![], vec![], false, "it is unknown");
        check(vec![budget(1), budget(1)], vec![], false, "it is unknown which counts");
    }

    #[test]
    fn the_guards_are_the_pods_that_the_only_budget_in_etcds_namespace_selects() {
        let budget = |namespace: &str| -> PodDisruptionBudget {
            let spec = json!({"selector": {"matchLabels": {"app": "guard"}}});
            parse(json!({"metadata": {"namespace": namespace, "name": "b"}, "spec": spec}))
        };
        let pod = |namespace: &str, app: &str| -> DrainPod {
            let metadata =
                json!({"namespace": namespace, "name": format!("{namespace}-{app}"), "labels": {"app": app}});
            parse(json!({"metadata": metadata, "spec": {"containers": []}}))
        };
        let pods = [pod(ETCD_NAMESPACE, "guard"), pod(ETCD_NAMESPACE, "etcd"), pod("shop", "guard")];
        let found = |budgets: &[PodDisruptionBudget]| {
            let EtcdGuard { budgets, pods } = EtcdGuard::among(budgets, &pods);
            (budgets.len(), pods.into_iter().filter_map(|pod| pod.metadata.name).collect::<Vec<_>>())
        };
        assert_eq!(found(&[]), (0, vec![]));
        assert_eq!(
            found(&[budget("shop"), budget(ETCD_NAMESPACE)]),
            (1, vec!["openshift-etcd-guard".to_owned()])
        );
        assert_eq!(found(&[budget(ETCD_NAMESPACE), budget(ETCD_NAMESPACE)]), (2, vec![]));
    }

    #[test]
    fn openshift_is_recognized_by_a_group_that_it_serves() {
        let served = |names: &[&str]| {
            let group = |name: &&str| APIGroup { name: (*name).to_owned(), ..APIGroup::default() };
            APIGroupList { groups: names.iter().map(group).collect() }
        };
        assert!(is_openshift(&served(&["apps", "config.openshift.io"])));
        assert!(!is_openshift(&served(&["apps", "policy", "console.openshift.io.example.com"])));
    }

    #[test]
    fn on_other_clusters_a_majority_stays() {
        let check = |nodes: &[(&str, &str)], in_maintenance: &[&str], expected: Option<&str>| {
            let mut nodes: Vec<Node> = nodes.iter().map(|(name, ready)| control_plane(name, ready)).collect();
            for node in nodes.iter_mut().filter(|node| node::name(node).starts_with("new")) {
                node.status = None;
            }
            let found = violation(&nodes[0], &nodes, |name| in_maintenance.contains(&name), None);
            let detail = found.as_deref().map(|found| found.split_once("quorum: ").unwrap().1);
            assert_eq!(detail, expected, "{in_maintenance:?}");
        };
        let three = [("cp1", "True"), ("cp2", "True"), ("cp3", "True")];
        check(&three, &[], None);
        check(&three, &["cp2"], Some("1 of 3 control-plane nodes would be left, and 2 are a majority"));
        check(
            &[("cp1", "True"), ("cp2", "False"), ("cp3", "True")],
            &[],
            Some("1 of 3 control-plane nodes would be left, and 2 are a majority"),
        );
        check(
            &[("cp1", "True"), ("cp2", "True"), ("new", "")],
            &[],
            Some("1 of 3 control-plane nodes would be left, and 2 are a majority"),
        );
        check(
            &[("cp1", "True")],
            &[],
            Some("0 of 1 control-plane nodes would be left, and 1 are a majority"),
        );
    }

    #[test]
    fn nodes_outside_the_control_plane_are_always_allowed() {
        let worker = parse(json!({"metadata": {"name": "w"}}));
        assert_eq!(violation(&worker, [&worker], |_| false, Some(&EtcdGuard::default())), None);
    }
}
