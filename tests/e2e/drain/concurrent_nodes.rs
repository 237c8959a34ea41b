//! Nodes are drained independently of each other.
//!
//! Only a sandbox logs the times, and has pods that take as long to terminate as a test wants.

use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::{Action, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_blocked, until_drained, until_status};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

/// How much longer four nodes may take while a fifth is blocked.
const DELAY_LIMIT: f64 = 1.05;

/// How long it takes to drain four nodes, whose pods take seconds to terminate: from the first maintenance to the last
/// status.
async fn four_nodes(cluster: &Cluster, workload: &Workload, nodes: &[String], round: &str) -> SignedDuration {
    let pods = nodes.iter().map(|node| async move {
        let slow = json!({"metadata": {"annotations": {STOP_DELAY: "4s"}}});
        for index in 0..3 {
            workload.pod_on(node, &format!("{round}-{node}-{index}"), slow.clone()).await;
        }
    });
    join_all(pods).await;
    let name = |node: &String| format!("{round}-{node}");
    let names: Vec<String> = nodes.iter().map(name).collect();
    join_all(nodes.iter().map(async |node| start(cluster, &name(node), node).await)).await;
    join_all(names.iter().map(|name| until_drained(cluster, name))).await;
    // After this, the log has every status write.
    join_all(names.iter().map(|name| stop(cluster, name))).await;
    let all = cluster.sandbox().unwrap().requests().all();
    let about = |entry: &&Entry| entry.resource == "nodemaintenances" && names.contains(&entry.name);
    let (first, last) = (
        all.iter().find(about).unwrap().at,
        all.iter().rfind(|entry| about(entry) && entry.verb == "patch" && entry.subresource == "status"),
    );
    let end: Timestamp = last.unwrap().at;
    end.duration_since(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_node_does_not_delay_four_others() {
    let Some(cluster) =
        Cluster::sandbox_or_skip(5, "only a sandbox has pods that take seconds to terminate").await
    else {
        return;
    };
    let workload = Workload::new(&cluster, "alone").await;
    let stuck = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let four: Vec<String> = cluster.nodes().await.into_iter().filter(|node| *node != stuck).collect();
    let _reconciler = Reconciler::start(&cluster);
    let mut ratios = Vec::new();
    // Busy processors may delay a round. If one node waited for another, every round would be slow.
    for round in 0..3 {
        let alone = four_nodes(&cluster, &workload, &four, &format!("alone-{round}")).await;
        start(&cluster, "e2e-stuck", &stuck).await;
        until_blocked(&cluster, "e2e-stuck", BlockReason::DisruptionBudget).await;
        let beside = four_nodes(&cluster, &workload, &four, &format!("beside-{round}")).await;
        stop(&cluster, "e2e-stuck").await;
        ratios.push(beside.as_secs_f64() / alone.as_secs_f64());
        if ratios.iter().any(|ratio| *ratio <= DELAY_LIMIT) {
            return;
        }
    }
    panic!("four nodes take longer while another is blocked: {ratios:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_unanswered_evictions_do_not_delay_another() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "only a sandbox delays responses").await else { return };
    let (hung, quick) = (Workload::new(&cluster, "hung").await, Workload::new(&cluster, "quick").await);
    let nodes = cluster.nodes().await;
    for node in &nodes[..2] {
        for index in 0..3 {
            hung.pod_on(node, &format!("{node}-{index}"), json!({})).await;
        }
    }
    for index in 0..3 {
        quick.pod_on(&nodes[2], &format!("quick-{index}"), json!({})).await;
    }
    let never = Action::Delay(Duration::from_secs(3600));
    let evictions = Target::any().subresource("eviction").name(&format!("{}-*", nodes[0]));
    let others = Target::any().subresource("eviction").name(&format!("{}-*", nodes[1]));
    let sandbox = cluster.sandbox().unwrap();
    for target in [evictions, others] {
        sandbox.faults().add(Rule::new(target, never.clone()));
    }
    // The two nodes alone could use all four slots.
    let _reconciler = Reconciler::start_with(&cluster, &["--max-concurrent-evictions", "4"]);
    for (node, name) in nodes.iter().zip(["e2e-hung-1", "e2e-hung-2", "e2e-quick"]) {
        start(&cluster, name, node).await;
    }
    until_drained(&cluster, "e2e-quick").await;
    let answered = |entry: &Entry| entry.subresource == "eviction" && !entry.name.starts_with("quick-");
    assert_eq!(sandbox.requests().count(answered), 0, "no other eviction was answered before");
    for name in ["e2e-hung-1", "e2e-hung-2", "e2e-quick"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_evictions_in_one_namespace_do_not_delay_the_others_on_the_node() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox delays responses").await else { return };
    let (hung, quick) = (Workload::new(&cluster, "hung").await, Workload::new(&cluster, "quick").await);
    let node = &cluster.nodes().await[0];
    for index in 0..6 {
        hung.pod_on(node, &format!("a-hung-{index}"), json!({})).await;
        quick.pod_on(node, &format!("quick-{index}"), json!({})).await;
    }
    let sandbox = cluster.sandbox().unwrap();
    let never = Action::Delay(Duration::from_secs(3600));
    sandbox.faults().add(Rule::new(Target::any().subresource("eviction").name("a-hung-*"), never));
    // The unanswered evictions alone could use the node's share, which is four.
    let _reconciler = Reconciler::start_with(&cluster, &["--max-concurrent-evictions", "8"]);
    start(&cluster, "e2e-webhook", node).await;
    let only_hung = |status: &NodeMaintenanceStatus| {
        let left = &status.pending_pods_refs;
        status.eviction_pods == 12
            && left.len() == 6
            && left.iter().all(|pod| pod.name.starts_with("a-hung-"))
    };
    until_status(&cluster, "e2e-webhook", "the other pods are gone", only_hung).await;
    let answered = |entry: &Entry| entry.subresource == "eviction" && !entry.name.starts_with("quick-");
    assert_eq!(sandbox.requests().count(answered), 0, "no other eviction was answered before");
    stop(&cluster, "e2e-webhook").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_started_together_are_all_cordoned_before_the_first_eviction_however_slow_the_server()
{
    let Some(cluster) = Cluster::sandbox_or_skip(3, "only a sandbox delays requests").await else { return };
    let workload = Workload::new(&cluster, "together").await;
    let nodes = cluster.nodes().await;
    for node in &nodes[..2] {
        workload.pod_on(node, &format!("on-{node}"), json!({})).await;
    }
    let sandbox = cluster.sandbox().unwrap();
    let creations = Target::any().verb("create").resource("nodemaintenances");
    let second = Rule::new(creations, Action::Delay(Duration::from_secs(1))).when(When::Nth(2));
    sandbox.faults().add(second);
    let _reconciler = Reconciler::start(&cluster);
    let started = plugin(&cluster, &["start", &nodes[0], &nodes[1], "--yes", "--no-plan"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    for node in &nodes[..2] {
        until_drained(&cluster, node).await;
    }
    let all = sandbox.requests().all();
    let first = all.iter().position(|entry| entry.subresource == "eviction").expect("two pods are evicted");
    let is_cordoned = |node: &String| {
        all[..first]
            .iter()
            .any(|entry| entry.verb == "patch" && entry.resource == "nodes" && entry.name == *node)
    };
    assert!(nodes[..2].iter().all(is_cordoned), "an eviction came first");
    for node in &nodes[..2] {
        stop(&cluster, node).await;
    }
}
