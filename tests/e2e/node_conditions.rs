//! The conditions of `--node-conditions` are for those who wish to know: nothing waits for them, whatever the API server
//! says to whoever writes them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::{configuration, drained, only_sandbox, start, stop};

fn status_of_nodes() -> Target {
    Target::any().verb("patch").resource("nodes").subresource("status").user_agent("nm-reconciler/*")
}

fn has_ours(node: Option<&Node>) -> bool {
    let status = node.and_then(|node| node.status.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "MaintenanceInProgress")
}

async fn drains_and_gives_back(cluster: &Cluster, name: &str, node: &str) {
    let before = configuration(&cluster.node(node).await);
    let workload = Workload::new(cluster, name).await;
    workload.pod_on(node, "web", json!({})).await;
    start(cluster, name, node).await;
    drained(cluster, name).await;
    stop(cluster, name).await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

/// Drains a node and gives it back while its conditions cannot be written, and once more when they can.
async fn goes_on_despite(action: Action) {
    let Some(cluster) = only_sandbox(1, "only a sandbox refuses a write on demand").await else { return };
    cluster.grant("node_conditions").await;
    let node = &cluster.nodes().await[0];
    let fails = matches!(action, Action::Fail(..));
    let faults = cluster.sandbox().unwrap().faults();
    let rule = faults.add(Rule::new(status_of_nodes(), action));
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    drains_and_gives_back(&cluster, "e2e-untold", node).await;
    assert!(faults.played(rule) > 0, "they were to be written");
    let complaints = || {
        let complains = |line: &&String| line.contains("WARN") && line.contains("conditions");
        reconciler.log().iter().filter(complains).count()
    };
    assert!(!fails || complaints() == 1, "{:#?}", reconciler.log());
    faults.clear();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    start(&cluster, "e2e-told", node).await;
    until(&nodes, node, "tells of its maintenance", has_ours).await;
    stop(&cluster, "e2e-told").await;
    until(&nodes, node, "tells nothing any more", |node| !has_ours(node)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_conditions_of_nodes_holds_up_neither_drain_nor_return() {
    goes_on_despite(Action::Fail(Failure::DeniedByPolicy, Moment::BeforeEffect)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_throttles_conditions_of_nodes_holds_up_neither_drain_nor_return() {
    goes_on_despite(Action::Fail(Failure::TooManyRequests { retry_after: 1 }, Moment::BeforeEffect)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_nodes_that_are_never_answered_hold_up_neither_drain_nor_return() {
    goes_on_despite(Action::Delay(Duration::from_secs(3600))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_that_a_killed_reconciler_left_on_a_node_are_taken_off() {
    let Some(cluster) = only_sandbox(1, "only a sandbox refuses a write on demand").await else { return };
    cluster.grant("node_conditions").await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-left", node).await;
    until(&nodes, node, "tells of its maintenance", has_ours).await;
    drained(&cluster, "e2e-left").await;
    let fails = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    let faults = cluster.sandbox().unwrap().faults();
    faults.add(Rule::new(status_of_nodes(), fails));
    stop(&cluster, "e2e-left").await;
    reconciler.crash().await;
    faults.clear();
    assert!(has_ours(Some(&cluster.node(node).await)));
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    until(&nodes, node, "tells nothing any more", |node| !has_ours(node)).await;
}
