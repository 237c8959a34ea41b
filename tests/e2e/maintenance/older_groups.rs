//! Maintenances of the API groups from before the operator moved to medik8s.
//!
//! They are served where their definitions are installed, and that operator and the reconciler can take over each other's
//! maintenances.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{
    EXCLUDE_LABEL, FINALIZER, KUBEVIRT_DRAIN_TAINT, NO_SCHEDULE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT,
};
use nm_shared::{Group, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_events;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::nodes::configuration;
use nm_tests::older_groups::{
    OLDER, install, maintenances, remove, start_in_group, stop_in_group, until_phase_in_group,
};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::until_requests;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

/// A cluster with the definitions of all groups.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_the_taint_of_the_group_and_returns_to_service_exactly_as_it_was() {
    let cluster = with_older_groups(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    for (group, node) in OLDER.into_iter().zip(&nodes) {
        let before = cluster.node(node).await;
        let workload = Workload::new(&cluster, "older").await;
        workload.pod_on(node, "one", json!({})).await;
        start_in_group(&cluster.client, group, "e2e-older", node).await;
        let done = until_phase_in_group(&cluster.client, group, "e2e-older", Phase::Succeeded).await;

        let status = done.status.clone().unwrap();
        assert!(status.eviction_pods > 0 && status.pending_pods.is_empty() && status.last_error.is_empty());
        assert!(status.conditions.is_empty(), "the definition has no conditions");
        assert!(done.finalizers().contains(&FINALIZER.to_owned()));
        let cordoned = cluster.node(node).await;
        assert_eq!(taints(&cordoned), [KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT], "{group:?}");
        assert!(!cordoned.labels().contains_key(EXCLUDE_LABEL));
        let expected = ["BeginMaintenance", "SucceedMaintenance"];
        assert_eq!(until_events(&cluster, &done, &expected).await, expected, "{group:?}");

        stop_in_group(&cluster.client, group, "e2e-older").await;
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_shows_explains_watches_and_stops_maintenances_of_every_group() {
    let cluster = with_older_groups(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    for (group, node) in OLDER.into_iter().zip(&nodes) {
        start_in_group(&cluster.client, group, "e2e-older", node).await;
        until_phase_in_group(&cluster.client, group, "e2e-older", Phase::Succeeded).await;
    }
    start(&cluster, "e2e-current", &nodes[2]).await;
    until_drained(&cluster, "e2e-current").await;

    let shown = plugin(&cluster, &["status", "-o", "name"]).await.ok().stdout;
    let mut shown: Vec<&str> = shown.lines().collect();
    shown.sort_unstable();
    assert_eq!(
        shown,
        [
            "nodemaintenance.kubevirt.io/e2e-older",
            "nodemaintenance.nodemaintenance.kubevirt.io/e2e-older",
            "nodemaintenance.nodemaintenance.medik8s.io/e2e-current",
        ]
    );
    let explained = plugin(&cluster, &["explain", &nodes[0]]).await.ok().stdout;
    assert!(explained.contains("Drained") && explained.contains("Nothing is blocked"), "{explained}");
    let arguments = ["watch", &nodes[0], &nodes[1], &nodes[2], "--until", "drained", "--timeout", "60s"];
    let watched = plugin(&cluster, &arguments).await.ok();
    assert_eq!(watched.stdout.matches("Drained").count(), 3, "{watched:?}");

    let stopped = plugin(&cluster, &["stop", "--all", "-y", "--wait", "--timeout", "60s"]).await.ok();
    assert_eq!(stopped.stdout.matches("is stopping").count(), 3, "{stopped:?}");
    for node in &nodes {
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "{node}");
    }
    plugin(&cluster, &["status"]).await.expect(0, "", "No maintenances found.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_definition_prunes_is_written_once() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only a sandbox counts requests").await else { return };
    let group = Group::Kubevirt;
    install(&cluster.client, group).await;
    let nodes = cluster.nodes().await;
    let log = cluster.sandbox().unwrap().requests();
    let is_write = |entry: &Entry| entry.subresource == "status" && entry.name == "e2e-pruned";
    // Causes reconciles by events of the node, and drains another node so that all of them are over.
    let disturb = async |round: &str| {
        for step in 0..20 {
            cluster.patch_node(&nodes[0], json!({"metadata": {"labels": {round: step.to_string()}}})).await;
        }
        start(&cluster, round, &nodes[1]).await;
        until_drained(&cluster, round).await;
        stop(&cluster, round).await;
        log.count(is_write)
    };
    let first = Reconciler::start(&cluster);
    start_in_group(&cluster.client, group, "e2e-pruned", &nodes[0]).await;
    until_phase_in_group(&cluster.client, group, "e2e-pruned", Phase::Succeeded).await;
    let written = disturb("e2e-first").await;
    assert_eq!(disturb("e2e-second").await, written);
    first.crash().await;

    let _second = Reconciler::start(&cluster);
    // A new reconciler does not know what was pruned, so it writes the status once.
    let what = "the second reconciler writes the status";
    until_requests(cluster.sandbox().unwrap(), written + 1, what, is_write).await;
    assert_eq!(disturb("e2e-third").await, written + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_continues_after_a_restart_and_its_node_returns_to_its_original_state() {
    let cluster = with_older_groups(2).await;
    let node = &cluster.nodes().await[0];
    cluster.patch_node(node, json!({"spec": {"unschedulable": true}})).await;
    let before = cluster.node(node).await;
    // The API server adds this taint some time after the node is cordoned.
    let without_unschedulable_taint = |node: &Node| {
        let mut it = configuration(node);
        it["taints"] = taints(node).into_iter().filter(|key| key != UNSCHEDULABLE_TAINT).collect();
        it
    };
    for group in OLDER {
        let workload = Workload::new(&cluster, "restart").await;
        workload.pod_on(node, "one", with_finalizer()).await;
        let first = Reconciler::start(&cluster);
        start_in_group(&cluster.client, group, "e2e-restart", node).await;
        until_phase_in_group(&cluster.client, group, "e2e-restart", Phase::Running).await;
        first.crash().await;
        let second = Reconciler::start(&cluster);
        workload.remove_finalizers("one").await;
        until_phase_in_group(&cluster.client, group, "e2e-restart", Phase::Succeeded).await;
        stop_in_group(&cluster.client, group, "e2e-restart").await;
        assert_eq!(
            without_unschedulable_taint(&cluster.node(node).await),
            without_unschedulable_taint(&before),
            "{group:?}"
        );
        second.crash().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_served_while_its_definition_is_installed() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let before = cluster.node(&nodes[0]).await;
    let group = Group::NodeMaintenanceKubevirt;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-ours", &nodes[1]).await;
    until_drained(&cluster, "e2e-ours").await;
    for name in ["e2e-later", "e2e-anew"] {
        install(&cluster.client, group).await;
        start_in_group(&cluster.client, group, name, &nodes[0]).await;
        until_phase_in_group(&cluster.client, group, name, Phase::Succeeded).await;
        // Deleting the definition deletes its maintenances.
        remove(&cluster.client, group).await;
        assert_eq!(configuration(&cluster.node(&nodes[0]).await), configuration(&before), "{name}");
    }
    stop(&cluster, "e2e-ours").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenances_of_two_groups_take_over_a_node_in_order_of_their_age() {
    let cluster = with_older_groups(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    for group in OLDER {
        start(&cluster, "e2e-first", node).await;
        until_drained(&cluster, "e2e-first").await;
        start_in_group(&cluster.client, group, "e2e-second", node).await;
        let second = until_phase_in_group(&cluster.client, group, "e2e-second", Phase::Failed).await;
        let error = second.status.clone().unwrap().last_error;
        assert_eq!(error, format!("a NodeMaintenance for node {node} already exists: e2e-first"));
        assert!(!taints(&cluster.node(node).await).contains(&KUBEVIRT_DRAIN_TAINT.to_owned()));

        stop(&cluster, "e2e-first").await;
        until_phase_in_group(&cluster.client, group, "e2e-second", Phase::Succeeded).await;
        assert!(taints(&cluster.node(node).await).contains(&KUBEVIRT_DRAIN_TAINT.to_owned()));
        start(&cluster, "e2e-third", node).await;
        until_status(&cluster, "e2e-third", "failed", |status| status.phase == Some(Phase::Failed)).await;
        stop_in_group(&cluster.client, group, "e2e-second").await;
        until_drained(&cluster, "e2e-third").await;
        stop(&cluster, "e2e-third").await;
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "{group:?}");
    }
}

/// Creates a maintenance as the operator leaves it when it is stopped during a drain
/// (`controllers/nodemaintenance_controller.go` and
async fn started_by_the_operator(cluster: &Cluster, group: Group, name: &str, node: &str) {
    let taint = |key| json!({"key": key, "effect": NO_SCHEDULE});
    let cordoned = json!({
        "spec": {"unschedulable": true, "taints": [taint(UNSCHEDULABLE_TAINT), taint(KUBEVIRT_DRAIN_TAINT)]},
    });
    cluster.patch_node(node, cordoned).await;
    start_in_group(&cluster.client, group, name, node).await;
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

/// Does what the operator does when a maintenance is deleted.
async fn stopped_by_the_operator(cluster: &Cluster, group: Group, name: &str, node: &str) {
    let api = maintenances(&cluster.client, group);
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let taints = cluster.node(node).await.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let theirs = [KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT];
    let others: Vec<_> = taints.iter().filter(|taint| !theirs.contains(&&*taint.key)).collect();
    cluster.patch_node(node, json!({"spec": {"taints": others}})).await;
    cluster.patch_node(node, json!({"spec": {"unschedulable": false}})).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &free).await.unwrap();
    wait_until(&api, name, "gone", |found| found.is_none()).await;
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_operator_started_is_finished_and_its_node_returned_to_service() {
    let cluster = with_older_groups(2).await;
    for (group, node) in OLDER.into_iter().zip(cluster.nodes().await) {
        let before = cluster.node(&node).await;
        let workload = Workload::new(&cluster, "theirs").await;
        workload.pod_on(&node, "one", json!({})).await;
        started_by_the_operator(&cluster, group, "e2e-theirs", &node).await;
        let reconciler = Reconciler::start(&cluster);
        let done = until_phase_in_group(&cluster.client, group, "e2e-theirs", Phase::Succeeded).await;
        let status = done.status.clone().unwrap();
        assert_eq!((status.total_pods, status.eviction_pods), (7, 5), "the operator's counts");
        assert!(status.pending_pods.is_empty() && status.last_error.is_empty());
        stop_in_group(&cluster.client, group, "e2e-theirs").await;
        assert_eq!(configuration(&cluster.node(&node).await), configuration(&before), "{group:?}");
        reconciler.crash().await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_operator_stopped_does_not_affect_the_next() {
    let cluster = with_older_groups(2).await;
    for (group, node) in OLDER.into_iter().zip(cluster.nodes().await) {
        let before = cluster.node(&node).await;
        let first = Reconciler::start(&cluster);
        start_in_group(&cluster.client, group, "e2e-ended", &node).await;
        until_phase_in_group(&cluster.client, group, "e2e-ended", Phase::Succeeded).await;
        first.crash().await;
        stopped_by_the_operator(&cluster, group, "e2e-ended", &node).await;
        let mut ended = configuration(&cluster.node(&node).await);
        assert!(
            ended["annotations"][UNDO_ANNOTATION].is_string(),
            "the operator does not remove the undo record"
        );
        ended["annotations"] = configuration(&before)["annotations"].clone();
        assert_eq!(ended, configuration(&before), "everything else is removed: {group:?}");

        // Meanwhile a user cordons the node.
        Api::<Node>::all(cluster.client.clone()).cordon(&node).await.unwrap();
        let second = Reconciler::start(&cluster);
        start_in_group(&cluster.client, group, "e2e-next", &node).await;
        until_phase_in_group(&cluster.client, group, "e2e-next", Phase::Succeeded).await;
        stop_in_group(&cluster.client, group, "e2e-next").await;
        let after = configuration(&cluster.node(&node).await);
        assert_eq!(after["unschedulable"], true, "cordoned by the user");
        assert!(after["annotations"][UNDO_ANNOTATION].is_null());
        second.crash().await;
    }
}
