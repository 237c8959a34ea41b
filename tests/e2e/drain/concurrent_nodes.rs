//! Nodes are drained independently of each other.

use std::time::Duration;

use futures::future::join_all;
use kube_sandbox::faults::{Action, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_blocked, until_drained, until_status};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_node_does_not_delay_four_others() {
    let cluster = Cluster::start(5).await;
    let workload = Workload::new(&cluster, "alone").await;
    let stuck = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let nodes = cluster.nodes().await;
    let four: Vec<&String> = nodes.iter().filter(|node| **node != stuck).take(4).collect();
    let pod = |node: &str, index: usize| format!("{node}-{index}");
    // They terminate when this test lets them.
    let held = json!({"metadata": {"finalizers": ["kubectl-nm.dev/e2e"]}});
    for (node, index) in four.iter().flat_map(|node| (0..3).map(move |index| (node, index))) {
        workload.pod_on(node, &pod(node, index), held.clone()).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-stuck", &stuck).await;
    until_blocked(&cluster, "e2e-stuck", BlockReason::DisruptionBudget).await;

    // Neither the blocked pod nor the pods that terminate on another node keep a pod from its eviction.
    join_all(four.iter().map(async |node| start(&cluster, node, node).await)).await;
    for node in &four {
        let all_terminate = |status: &NodeMaintenanceStatus| status.pod_counts.terminating == 3;
        until_status(&cluster, node, "all its pods terminate", all_terminate).await;
    }
    // The last is drained while the others are not.
    for node in four.iter().rev() {
        for index in 0..3 {
            workload.remove_finalizers(&pod(node, index)).await;
        }
        until_drained(&cluster, node).await;
    }
    until_blocked(&cluster, "e2e-stuck", BlockReason::DisruptionBudget).await;
    join_all(four.iter().map(async |node| stop(&cluster, node).await)).await;
    stop(&cluster, "e2e-stuck").await;
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
