//! `/readyz`, and how the reconciler recovers from watches and lists that fail or fall silent.

use kube_sandbox::request_log::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target, When};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::manifests;
use nm_tests::probes::until_served;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, until_requests};
use nm_tests::workload::Workload;
use serde_json::json;

/// A reconciler that serves its probes, and their address.
async fn start_with_probes(cluster: &Cluster) -> (Reconciler, SocketAddr) {
    let reconciler = Reconciler::start_with(cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let address = reconciler.metrics_address().await;
    (reconciler, address)
}

fn requests(verb: &str, resource: &str) -> Target {
    by_reconciler().verb(verb).resource(resource)
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_watches_delay_a_drain_only_briefly() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only a sandbox mutes watches").await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "silence").await;
    workload.pod_on(&nodes[0], "cart", json!({})).await;
    workload.budget("cart", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-silence", &nodes[0]).await;
    until_status(&cluster, "e2e-silence", "blocked", |status| !status.blocked_pods.is_empty()).await;
    let faults = cluster.sandbox().unwrap().faults();
    let all = faults.mute_watches(&requests("watch", "*"));
    assert!(all >= 6, "maintenances, nodes, their leases, budgets, DaemonSets and pods are watched: {all}");
    // The reconciler sees neither the deleted budget nor the second maintenance until it restarts its watches.
    workload.delete_budget("cart").await;
    start(&cluster, "e2e-unheard", &nodes[1]).await;
    until_drained(&cluster, "e2e-silence").await;
    until_drained(&cluster, "e2e-unheard").await;
    stop(&cluster, "e2e-silence").await;
    stop(&cluster, "e2e-unheard").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_list_is_retried() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox delays responses").await else { return };
    let never = Action::Delay(Duration::from_secs(3600));
    let rule = Rule::new(requests("list", "nodes"), never).when(When::First(1));
    cluster.sandbox().unwrap().faults().add(rule);
    let (reconciler, server) = start_with_probes(&cluster).await;
    until_served(server, "/readyz", |body| body.contains("[-]nodes failed: not yet\n")).await;
    reconciler.until_logged("the nodes", |line| line.contains("nodes and their leases are known")).await;
    until_served(server, "/readyz", |body| body == "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_access_to_a_watch_is_not_ready_until_access_is_granted() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "permissions are revoked").await else { return };
    let role = manifests::cluster_role();
    let all = role.rules.clone().unwrap();
    let grant = async |without: &str| {
        let mut rules = all.clone();
        for rule in &mut rules {
            rule.resources.iter_mut().for_each(|names| names.retain(|name| name != without));
        }
        rules.retain(|rule| rule.resources.as_ref().is_some_and(|names| !names.is_empty()));
        let api: Api<ClusterRole> = Api::all(cluster.client.clone());
        let patch = Patch::Merge(json!({"rules": rules}));
        api.patch(&role.name_any(), &PatchParams::default(), &patch).await.unwrap();
    };
    let (reconciler, server) = start_with_probes(&cluster).await;
    until_served(server, "/readyz", |body| body == "ok").await;
    grant("nodes").await;
    let sandbox = cluster.sandbox().unwrap();
    sandbox.faults().end_watches(&requests("watch", "nodes"), 0);
    let refused = "[-]nodes failed: the API server refuses to list them\n";
    until_served(server, "/readyz", |body| body.contains(refused)).await;
    let is_refused =
        |entry: &Entry| (entry.verb, entry.resource.as_str(), entry.code) == ("list", "nodes", 403);
    until_requests(sandbox, 4, "the list is retried", is_refused).await;
    for message in ["cannot be listed", "watch interrupted"] {
        reconciler.until_logged(message, |line| line.contains(message)).await;
        let count = reconciler.log().iter().filter(|line| line.contains(message)).count();
        assert_eq!(count, 1, "{message} in {:#?}", reconciler.log());
    }
    grant("").await;
    until_served(server, "/readyz", |body| body == "ok").await;
}
