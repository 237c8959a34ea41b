//! Whether a node may be put into maintenance without etcd losing its quorum.
//!
//! On OpenShift the disruption budget of etcd's guard pods decides, as in the medik8s node-maintenance-operator
//! (`vendor/github.com/medik8s/common/pkg/etcd` there). On other clusters, a majority of the nodes that run
//! [members of etcd](crate::gate::etcd) must stay Ready and out of maintenance.

use k8s_openapi::api::core::v1::Node;

use crate::cluster::node;
use crate::gate::etcd::{Etcd, EtcdRole};

/// Why `candidate` may not be put into maintenance; none if it may, such as every node that is no member of etcd.
///
/// `nodes` has at least all nodes that [may run etcd](node::may_run_etcd); `in_maintenance` says which nodes are in
/// maintenance or about to be.
pub fn violation<'a>(
    candidate: &Node,
    nodes: impl IntoIterator<Item = &'a Node>,
    in_maintenance: impl Fn(&str) -> bool,
    etcd: &Etcd,
) -> Option<String> {
    if !node::may_run_etcd(candidate) || matches!(etcd, Etcd::External) {
        return None;
    }
    let candidates: Vec<&Node> = nodes.into_iter().filter(|node| node::may_run_etcd(node)).collect();
    let role = EtcdRole::among(candidates.iter().copied());
    if !role.is_member(candidate) {
        return None;
    }
    let name = node::name(candidate);
    let sentence = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {name} will violate etcd \
         quorum"
    );
    match etcd {
        Etcd::Guarded(guard) => (!guard.allows(name)).then_some(sentence),
        Etcd::OnNodes | Etcd::External => {
            let members: Vec<&Node> = candidates.into_iter().filter(|node| role.is_member(node)).collect();
            shortfall(name, &members, in_maintenance).map(|shortfall| format!("{sentence}: {shortfall}"))
        }
    }
}

fn shortfall(candidate: &str, members: &[&Node], in_maintenance: impl Fn(&str) -> bool) -> Option<String> {
    // A node that has not reported the condition may not run etcd yet.
    let stays = |node: &&&Node| {
        node::name(node) != candidate && node::reports_ready(node) && !in_maintenance(node::name(node))
    };
    let (left, all) = (members.iter().filter(stays).count(), members.len());
    let majority = all / 2 + 1;
    (left < majority)
        .then(|| format!("only {left} of {all} etcd members would remain, and a majority is {majority}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::{Value, json};

    use crate::cluster::pod::DrainPod;
    use crate::gate::etcd_guard::EtcdGuard;

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
            let found = violation(&node, [&node], |_| false, &Etcd::Guarded(EtcdGuard { budgets, pods }));
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
    fn on_other_clusters_a_majority_stays() {
        let check = |nodes: &[(&str, &str)], in_maintenance: &[&str], expected: Option<&str>| {
            let mut nodes: Vec<Node> = nodes.iter().map(|(name, ready)| control_plane(name, ready)).collect();
            for node in nodes.iter_mut().filter(|node| node::name(node).starts_with("new")) {
                node.status = None;
            }
            let found = violation(&nodes[0], &nodes, |name| in_maintenance.contains(&name), &Etcd::OnNodes);
            let detail = found.as_deref().map(|found| found.split_once("quorum: ").unwrap().1);
            assert_eq!(detail, expected, "{in_maintenance:?}");
        };
        let three = [("cp1", "True"), ("cp2", "True"), ("cp3", "True")];
        check(&three, &[], None);
        check(&three, &["cp2"], Some("only 1 of 3 etcd members would remain, and a majority is 2"));
        check(
            &[("cp1", "True"), ("cp2", "False"), ("cp3", "True")],
            &[],
            Some("only 1 of 3 etcd members would remain, and a majority is 2"),
        );
        check(
            &[("cp1", "True"), ("cp2", "True"), ("new", "")],
            &[],
            Some("only 1 of 3 etcd members would remain, and a majority is 2"),
        );
        check(&[("cp1", "True")], &[], Some("only 0 of 1 etcd members would remain, and a majority is 1"));
    }

    #[test]
    fn nodes_outside_the_control_plane_are_always_allowed() {
        let worker = parse(json!({"metadata": {"name": "w"}}));
        assert_eq!(violation(&worker, [&worker], |_| false, &Etcd::Guarded(EtcdGuard::default())), None);
    }

    fn with_role(name: &str, role: &str) -> Node {
        let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        parse(json!({"metadata": {"name": name, "labels": labels}, "status": status}))
    }

    #[test]
    fn only_nodes_that_run_etcd_are_kept_by_its_quorum() {
        let etcd = ["e1", "e2", "e3"].map(|name| with_role(name, "etcd"));
        let nodes: Vec<Node> =
            etcd.into_iter().chain(["c1", "c2"].map(|name| with_role(name, "control-plane"))).collect();
        let found = |candidate: usize, taken: &str, etcd: &Etcd| {
            violation(&nodes[candidate], &nodes, |name| name == taken, etcd).is_some()
        };
        assert!(found(0, "e2", &Etcd::OnNodes), "two of three members");
        assert!(!found(0, "c1", &Etcd::OnNodes), "a control-plane node is no member");
        assert!(!found(3, "c2", &Etcd::OnNodes), "the second of two control-plane nodes");
        assert!(!found(0, "e2", &Etcd::External), "no node is a member");
    }

    #[test]
    fn an_arbiter_is_a_member_with_and_without_the_guard() {
        let nodes = [with_role("c1", "master"), with_role("c2", "master"), with_role("a", "arbiter")];
        let found = |candidate: usize, taken: &str, etcd: &Etcd| {
            violation(&nodes[candidate], &nodes, |name| name == taken, etcd).is_some()
        };
        assert!(!found(0, "", &Etcd::OnNodes), "two of three are left");
        assert!(found(2, "c1", &Etcd::OnNodes), "an arbiter counts as a member");
        let guard = EtcdGuard { budgets: vec![budget(0)], pods: vec![guard_pod("a", "True")] };
        assert!(found(2, "", &Etcd::Guarded(guard)), "its guard is Ready, and no disruption is allowed");
    }
}
