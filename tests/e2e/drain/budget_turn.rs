//! A pod whose budget allows its eviction once evicted pods have been replaced waits for that. It is blocked once nothing moves.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use nm_shared::{BlockReason, Phase, WaitReason};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    start, until_blocked, until_drained_without_errors, until_status, until_waiting,
};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::in_time;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::drain::budgets::{budget, deployment_on};

const WHY: &str = "a budget moves within 30 s in a sandbox only";

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_budget_serializes_is_never_blocked() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "turns").await;
    let node = &cluster.nodes().await[0];
    deployment_on(&cluster, &workload, node, "cart", 8).await;
    budget(&workload, "cart", json!({"maxUnavailable": 1}), 1).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut versions = pin!(watcher(cluster.maintenances(), watcher::Config::default()).applied_objects());
    start(&cluster, "e2e-turns", node).await;
    let mut waited = false;
    loop {
        let maintenance = in_time("the maintenance changes", versions.next()).await.unwrap().unwrap();
        let status = maintenance.status.unwrap_or_default();
        assert_eq!((status.pod_counts.blocked, status.blocked_pods.len()), (0, 0), "{status:#?}");
        let mut waiting = status.waiting_pods.iter().flatten();
        waited |= waiting.any(|pod| pod.reason == WaitReason::BudgetTurn);
        if status.phase == Some(Phase::Succeeded) {
            break;
        }
    }
    assert!(waited, "pods waited for their turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_the_replacement_of_another_and_is_blocked_if_that_does_not_come() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let workload = Workload::new(&cluster, "no-place").await;
    let nodes = cluster.nodes().await;
    deployment_on(&cluster, &workload, &nodes[0], "cart", 3).await;
    budget(&workload, "cart", json!({"maxUnavailable": 1}), 1).await;
    let places: Api<Node> = Api::all(cluster.client.clone());
    places.cordon(&nodes[1]).await.unwrap();
    let patient = Reconciler::start(&cluster);
    start(&cluster, "e2e-no-place", &nodes[0]).await;
    let waiting = until_waiting(&cluster, "e2e-no-place").await;
    assert_eq!(waiting.budget.unwrap().name, "cart");
    let explained = plugin(&cluster, &["explain", &nodes[0]]).await;
    assert_eq!(explained.code, Some(0), "it is not blocked: {explained:?}");
    drop(patient);
    let _reconciler = Reconciler::start_with(&cluster, &["--blocked-after", "1"]);
    let blocked = until_blocked(&cluster, "e2e-no-place", BlockReason::DisruptionBudget).await;
    assert_eq!(blocked.facts.budget.unwrap().name, "cart");
    let explained = plugin(&cluster, &["explain", &nodes[0]]).await;
    assert_eq!(explained.code, Some(3), "{explained:?}");
    let status = until_status(&cluster, "e2e-no-place", "both are blocked", |it| it.pod_counts.blocked == 2);
    assert_eq!(status.await.waiting_pods, None);
    places.uncordon(&nodes[1]).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-no-place").await;
}
