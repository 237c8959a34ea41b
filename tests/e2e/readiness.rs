//! What a leader watches goes on: it notices a watch that fell silent, and `/readyz` says of one that fails that it does.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target, When};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::observability::until_served;
use crate::{drained, only_sandbox, start, stop};

/// A reconciler that serves its probes, and where.
async fn probed(cluster: &Cluster) -> (Reconciler, SocketAddr) {
    let reconciler = Reconciler::start_with(cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let address = probes(&reconciler).await;
    (reconciler, address)
}

/// Where a reconciler serves its probes, by its log.
pub(crate) async fn probes(reconciler: &Reconciler) -> SocketAddr {
    let serves = |line: &str| line.contains("serving the probes and metrics");
    let line = reconciler.until_logged("where its probes are", serves).await;
    let (_, address) = line.split_once("address=").unwrap();
    address.split_whitespace().next().unwrap().parse().unwrap()
}

fn of_the_reconciler(verb: &str, resource: &str) -> Target {
    Target::any().verb(verb).resource(resource).user_agent("nm-reconciler/*")
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_fall_silent_without_a_word_hold_a_drain_up_for_a_moment_only() {
    let Some(cluster) = only_sandbox(2, "only a sandbox mutes watches").await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "silence").await;
    workload.pod_on(&nodes[0], "cart", json!({})).await;
    workload.budget("cart", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-silence", &nodes[0]).await;
    crate::once(&cluster, "e2e-silence", "blocked", |status| !status.blocked_pods.is_empty()).await;
    let faults = cluster.sandbox().unwrap().faults();
    let all = faults.mute_watches(&of_the_reconciler("watch", "*"));
    assert!(all >= 6, "maintenances, nodes, their leases, budgets, DaemonSets and pods are watched: {all}");
    // Neither the budget nor the second maintenance is heard of, until the watches begin anew.
    workload.free("cart").await;
    start(&cluster, "e2e-unheard", &nodes[1]).await;
    drained(&cluster, "e2e-silence").await;
    drained(&cluster, "e2e-unheard").await;
    stop(&cluster, "e2e-silence").await;
    stop(&cluster, "e2e-unheard").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_never_answered_is_asked_for_again() {
    let Some(cluster) = only_sandbox(1, "only a sandbox keeps an answer back").await else { return };
    let never = Action::Delay(Duration::from_secs(3600));
    let rule = Rule::new(of_the_reconciler("list", "nodes"), never).when(When::First(1));
    cluster.sandbox().unwrap().faults().add(rule);
    let (reconciler, server) = probed(&cluster).await;
    until_served(server, "/readyz", |body| body.contains("[-]nodes failed: not yet\n")).await;
    reconciler.until_logged("the nodes", |line| line.contains("nodes and their leases are known")).await;
    until_served(server, "/readyz", |body| body == "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_may_not_watch_is_not_ready_says_so_once_and_is_when_it_may() {
    let Some(cluster) = only_sandbox(1, "rights are taken away").await else { return };
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
    let (reconciler, server) = probed(&cluster).await;
    until_served(server, "/readyz", |body| body == "ok").await;
    grant("nodes").await;
    let sandbox = cluster.sandbox().unwrap();
    sandbox.faults().end_watches(&of_the_reconciler("watch", "nodes"), 0);
    let refused = "[-]nodes failed: the API server refuses to list them\n";
    until_served(server, "/readyz", |body| body.contains(refused)).await;
    let attempts = sandbox.requests().until(|log| {
        log.count(|entry| (entry.verb, entry.resource.as_str(), entry.code) == ("list", "nodes", 403)) >= 4
    });
    tokio::time::timeout(nm_tests::until::PATIENCE, attempts).await.expect("it goes on asking");
    let told = |what: &str| reconciler.log().iter().filter(|line| line.contains(what)).count();
    assert_eq!((told("cannot be listed"), told("watch interrupted")), (1, 1), "{:#?}", reconciler.log());
    grant("").await;
    until_served(server, "/readyz", |body| body == "ok").await;
}
