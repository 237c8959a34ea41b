//! `--node-conditions` are informative: the maintenance does not wait for them, whatever the API server answers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::by_reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::json;

/// The reconciler's patches to the status of nodes.
fn status_of_nodes() -> Target {
    by_reconciler().verb("patch").resource("nodes").subresource("status")
}

fn has_our_conditions(node: Option<&Node>) -> bool {
    let status = node.and_then(|node| node.status.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "MaintenanceInProgress")
}

async fn drain_and_return_to_service(cluster: &Cluster, name: &str, node: &str) {
    let before = configuration(&cluster.node(node).await);
    let workload = Workload::new(cluster, name).await;
    workload.pod_on(node, "web", json!({})).await;
    start(cluster, name, node).await;
    until_drained(cluster, name).await;
    stop(cluster, name).await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

/// Drains a node and returns it to service while its conditions cannot be written, and again when they can.
async fn drains_despite(action: Action) {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox injects failures").await else { return };
    cluster.grant("node_conditions").await;
    let node = &cluster.nodes().await[0];
    let fails = matches!(action, Action::Fail(..));
    let faults = cluster.sandbox().unwrap().faults();
    let rule = faults.add(Rule::new(status_of_nodes(), action));
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    drain_and_return_to_service(&cluster, "e2e-unpublished", node).await;
    assert!(faults.played(rule) > 0, "the conditions should have been written");
    if fails {
        let is_warning = |line: &str| line.contains("WARN") && line.contains("conditions");
        reconciler.until_logged("a warning", is_warning).await;
        let warnings = reconciler.log().iter().filter(|line| is_warning(line)).count();
        assert_eq!(warnings, 1, "{:#?}", reconciler.log());
    }
    faults.clear();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    start(&cluster, "e2e-published", node).await;
    wait_until(&nodes, node, "has the conditions", has_our_conditions).await;
    stop(&cluster, "e2e-published").await;
    wait_until(&nodes, node, "has the conditions no more", |node| !has_our_conditions(node)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_denies_node_conditions_delays_neither_drain_nor_return_to_service() {
    drains_despite(Action::Fail(Failure::DeniedByPolicy, Moment::BeforeEffect)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_node_conditions_delay_neither_drain_nor_return_to_service() {
    drains_despite(Action::Fail(Failure::TooManyRequests { retry_after: 1 }, Moment::BeforeEffect)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_node_conditions_delay_neither_drain_nor_return_to_service() {
    drains_despite(Action::Delay(Duration::from_secs(3600))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_conditions_that_a_killed_reconciler_left_are_removed() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox injects failures").await else { return };
    cluster.grant("node_conditions").await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    start(&cluster, "e2e-left", node).await;
    wait_until(&nodes, node, "has the conditions", has_our_conditions).await;
    until_drained(&cluster, "e2e-left").await;
    let fails = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    let faults = cluster.sandbox().unwrap().faults();
    faults.add(Rule::new(status_of_nodes(), fails));
    stop(&cluster, "e2e-left").await;
    reconciler.crash().await;
    faults.clear();
    assert!(has_our_conditions(Some(&cluster.node(node).await)));
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    wait_until(&nodes, node, "has the conditions no more", |node| !has_our_conditions(node)).await;
}
