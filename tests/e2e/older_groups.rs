//! Maintenances of the groups from before the operator moved to medik8s are served as ours are, where their definitions
//! are installed; and that operator and we take over from each other.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{
    EXCLUDE_LABEL, FINALIZER, KUBEVIRT_DRAIN_TAINT, NO_SCHEDULE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT,
};
use nm_shared::{Group, Grouped, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::older_groups::{OLDER, install, maintenances, remove};
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, held};
use serde_json::{Value, json};

use crate::{configuration, drained, once, only_sandbox, start, stop};

/// Puts a node into maintenance by an object of a group.
pub(crate) async fn start_of(cluster: &Cluster, group: Group, name: &str, node: &str) {
    let maintenance = json!({
        "apiVersion": format!("{}/{}", group.name(), group.version()), "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": node, "reason": "e2e"},
    });
    let params = PatchParams::apply("nm-tests");
    maintenances(&cluster.client, group).patch(name, &params, &Patch::Apply(maintenance)).await.unwrap();
}

/// The maintenance once it is in a phase.
pub(crate) async fn in_phase(cluster: &Cluster, group: Group, name: &str, phase: Phase) -> Grouped {
    let is_in = |found: Option<&Grouped>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase == Some(phase))
    };
    until(&maintenances(&cluster.client, group), name, phase.as_str(), is_in).await.unwrap()
}

/// Deletes a maintenance of a group and waits until it is gone.
pub(crate) async fn stop_of(cluster: &Cluster, group: Group, name: &str) {
    let api = maintenances(&cluster.client, group);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    until(&api, name, "gone", |found| found.is_none()).await;
}

/// A cluster with all definitions.
async fn with_older_groups(nodes: usize) -> Cluster {
    let cluster = Cluster::start(nodes).await;
    for group in OLDER {
        install(&cluster.client, group).await;
    }
    cluster
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut keys: Vec<String> = taints.into_iter().map(|taint| taint.key).collect();
    keys.sort();
    keys
}

async fn patch_node(cluster: &Cluster, node: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_with_the_groups_taint_and_given_back_exactly_as_it_was() {
    let cluster = with_older_groups(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    for (group, node) in OLDER.into_iter().zip(&nodes) {
        let before = cluster.node(node).await;
        let workload = Workload::new(&cluster, "older").await;
        workload.pod_on(node, "one", json!({})).await;
        start_of(&cluster, group, "e2e-older", node).await;
        let done = in_phase(&cluster, group, "e2e-older", Phase::Succeeded).await;

        let status = done.status.clone().unwrap();
        assert!(status.eviction_pods > 0 && status.pending_pods.is_empty() && status.last_error.is_empty());
        assert!(status.conditions.is_empty(), "the definition has none");
        assert!(done.finalizers().contains(&FINALIZER.to_owned()));
        let cordoned = cluster.node(node).await;
        assert_eq!(taints(&cordoned), [KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT], "{group:?}");
        assert!(!cordoned.labels().contains_key(EXCLUDE_LABEL));
        let told = events_until(&cluster, &done, "SucceedMaintenance").await;
        assert_eq!(told, ["BeginMaintenance", "SucceedMaintenance"], "{group:?}");

        stop_of(&cluster, group, "e2e-older").await;
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_definition_prunes_is_not_written_again_and_again() {
    let Some(cluster) = only_sandbox(2, "only a sandbox counts requests").await else { return };
    let group = Group::Kubevirt;
    install(&cluster.client, group).await;
    let nodes = cluster.nodes().await;
    let log = cluster.sandbox().unwrap().requests();
    let is_write = |entry: &Entry| entry.subresource == "status" && entry.name == "e2e-pruned";
    // News of the node, and then another maintenance from its beginning to its end.
    let disturb = async |round: &str| {
        for step in 0..20 {
            patch_node(&cluster, &nodes[0], json!({"metadata": {"labels": {round: step.to_string()}}})).await;
        }
        start(&cluster, round, &nodes[1]).await;
        drained(&cluster, round).await;
        stop(&cluster, round).await;
        log.count(is_write)
    };
    let first = Reconciler::start(&cluster);
    start_of(&cluster, group, "e2e-pruned", &nodes[0]).await;
    in_phase(&cluster, group, "e2e-pruned", Phase::Succeeded).await;
    let written = disturb("e2e-first").await;
    assert_eq!(disturb("e2e-second").await, written);
    first.crash().await;

    let _second = Reconciler::start(&cluster);
    // What was pruned is not known any more: it is written once.
    let again = log.until(|log| log.count(is_write) == written + 1);
    tokio::time::timeout(PATIENCE, again).await.expect("the second writes it");
    assert_eq!(disturb("e2e-third").await, written + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_goes_on_after_a_restart_and_its_node_is_given_back_as_it_was() {
    let cluster = with_older_groups(2).await;
    let node = &cluster.nodes().await[0];
    patch_node(&cluster, node, json!({"spec": {"unschedulable": true}})).await;
    let before = cluster.node(node).await;
    // The API server's own, a moment after the cordon.
    let tidy = |node: &Node| {
        let mut it = configuration(node);
        it["taints"] = taints(node).into_iter().filter(|key| key != UNSCHEDULABLE_TAINT).collect();
        it
    };
    for group in OLDER {
        let workload = Workload::new(&cluster, "restart").await;
        workload.pod_on(node, "one", held()).await;
        let first = Reconciler::start(&cluster);
        start_of(&cluster, group, "e2e-restart", node).await;
        in_phase(&cluster, group, "e2e-restart", Phase::Running).await;
        first.crash().await;
        let second = Reconciler::start(&cluster);
        workload.let_go("one").await;
        in_phase(&cluster, group, "e2e-restart", Phase::Succeeded).await;
        stop_of(&cluster, group, "e2e-restart").await;
        assert_eq!(tidy(&cluster.node(node).await), tidy(&before), "{group:?}");
        second.crash().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_served_when_its_definition_comes_and_let_go_when_it_goes() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let before = cluster.node(&nodes[0]).await;
    let group = Group::NodeMaintenanceKubevirt;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-ours", &nodes[1]).await;
    drained(&cluster, "e2e-ours").await;
    for name in ["e2e-later", "e2e-anew"] {
        install(&cluster.client, group).await;
        start_of(&cluster, group, name, &nodes[0]).await;
        in_phase(&cluster, group, name, Phase::Succeeded).await;
        // With the definition its maintenances are deleted.
        remove(&cluster.client, group).await;
        assert_eq!(configuration(&cluster.node(&nodes[0]).await), configuration(&before), "{name}");
    }
    stop(&cluster, "e2e-ours").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_groups_the_older_maintenance_has_the_node_and_the_other_inherits_it() {
    let cluster = with_older_groups(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    for group in OLDER {
        start(&cluster, "e2e-first", node).await;
        drained(&cluster, "e2e-first").await;
        start_of(&cluster, group, "e2e-second", node).await;
        let second = in_phase(&cluster, group, "e2e-second", Phase::Failed).await;
        let error = second.status.clone().unwrap().last_error;
        assert_eq!(error, format!("a NodeMaintenance for node {node} already exists: e2e-first"));
        assert!(!taints(&cluster.node(node).await).contains(&KUBEVIRT_DRAIN_TAINT.to_owned()));

        stop(&cluster, "e2e-first").await;
        in_phase(&cluster, group, "e2e-second", Phase::Succeeded).await;
        assert!(taints(&cluster.node(node).await).contains(&KUBEVIRT_DRAIN_TAINT.to_owned()));
        start(&cluster, "e2e-third", node).await;
        once(&cluster, "e2e-third", "failed", |status| status.phase == Some(Phase::Failed)).await;
        stop_of(&cluster, group, "e2e-second").await;
        drained(&cluster, "e2e-third").await;
        stop(&cluster, "e2e-third").await;
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "{group:?}");
    }
}

/// A maintenance as the operator leaves it when it is stopped midway (`controllers/nodemaintenance_controller.go` and
/// `controllers/taint.go` in kubevirt/node-maintenance-operator, v0.11.3).
async fn begun_by_the_operator(cluster: &Cluster, group: Group, name: &str, node: &str) {
    let taint = |key| json!({"key": key, "effect": NO_SCHEDULE});
    let cordoned = json!({
        "spec": {"unschedulable": true, "taints": [taint(UNSCHEDULABLE_TAINT), taint(KUBEVIRT_DRAIN_TAINT)]},
    });
    patch_node(cluster, node, cordoned).await;
    start_of(cluster, group, name, node).await;
    let api = maintenances(&cluster.client, group);
    let params = PatchParams::default();
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    api.patch(name, &params, &finalizer).await.unwrap();
    let status = Patch::Merge(json!({"status": {
        "phase": "Running", "totalpods": 7, "evictionPods": 5, "pendingPods": ["one"],
        "lastError": "error when evicting pods/\"one\" -n \"shop\": global timeout reached: 30s",
    }}));
    api.patch_status(name, &params, &status).await.unwrap();
}

/// What the operator does about a maintenance that is deleted.
async fn ended_by_the_operator(cluster: &Cluster, group: Group, name: &str, node: &str) {
    let api = maintenances(&cluster.client, group);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let taints = cluster.node(node).await.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let theirs = [KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT];
    let others: Vec<_> = taints.iter().filter(|taint| !theirs.contains(&&*taint.key)).collect();
    patch_node(cluster, node, json!({"spec": {"taints": others}})).await;
    patch_node(cluster, node, json!({"spec": {"unschedulable": false}})).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &free).await.unwrap();
    until(&api, name, "gone", |found| found.is_none()).await;
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_operator_began_is_finished_and_its_node_given_back() {
    let cluster = with_older_groups(2).await;
    for (group, node) in OLDER.into_iter().zip(cluster.nodes().await) {
        let before = cluster.node(&node).await;
        let workload = Workload::new(&cluster, "theirs").await;
        workload.pod_on(&node, "one", json!({})).await;
        begun_by_the_operator(&cluster, group, "e2e-theirs", &node).await;
        let reconciler = Reconciler::start(&cluster);
        let done = in_phase(&cluster, group, "e2e-theirs", Phase::Succeeded).await;
        let status = done.status.clone().unwrap();
        assert_eq!((status.total_pods, status.eviction_pods), (7, 5), "as they were counted");
        assert!(status.pending_pods.is_empty() && status.last_error.is_empty());
        stop_of(&cluster, group, "e2e-theirs").await;
        assert_eq!(configuration(&cluster.node(&node).await), configuration(&before), "{group:?}");
        reconciler.crash().await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_operator_ended_leaves_nothing_that_misleads_the_next() {
    let cluster = with_older_groups(2).await;
    for (group, node) in OLDER.into_iter().zip(cluster.nodes().await) {
        let before = cluster.node(&node).await;
        let first = Reconciler::start(&cluster);
        start_of(&cluster, group, "e2e-ended", &node).await;
        in_phase(&cluster, group, "e2e-ended", Phase::Succeeded).await;
        first.crash().await;
        ended_by_the_operator(&cluster, group, "e2e-ended", &node).await;
        let mut ended = configuration(&cluster.node(&node).await);
        assert!(ended["annotations"][UNDO_ANNOTATION].is_string(), "it does not know that");
        ended["annotations"] = configuration(&before)["annotations"].clone();
        assert_eq!(ended, configuration(&before), "and nothing else is left: {group:?}");

        // Meanwhile someone cordons the node.
        Api::<Node>::all(cluster.client.clone()).cordon(&node).await.unwrap();
        let second = Reconciler::start(&cluster);
        start_of(&cluster, group, "e2e-next", &node).await;
        in_phase(&cluster, group, "e2e-next", Phase::Succeeded).await;
        stop_of(&cluster, group, "e2e-next").await;
        let after = configuration(&cluster.node(&node).await);
        assert_eq!(after["unschedulable"], true, "as someone wanted it");
        assert!(after["annotations"][UNDO_ANNOTATION].is_null());
        second.crash().await;
    }
}
