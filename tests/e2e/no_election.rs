//! A reconciler outside of a pod, which takes no part in any election: it does not begin beside one that leads.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::webhook::namespace;
use nm_tests::workload::parse;
use serde_json::json;

use crate::ha::{LONG, until_leads};
use crate::{drained, only_sandbox, start, stop};

/// A lease that somebody took so long ago, for an hour.
async fn lease_in(cluster: &Cluster, namespace: &str, ago: SignedDuration) {
    let at = Timestamp::now() - ago;
    let lease = parse(json!({
        "metadata": {"name": leader_lease::NAME},
        "spec": {"holderIdentity": "nm-reconciler-7d9f_1", "leaseDurationSeconds": 3600, "renewTime": format!("{at:.6}")},
    }));
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), namespace);
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

/// Waits until it has ended, and returns why.
async fn refusal(mut reconciler: Reconciler) -> String {
    let line = reconciler.until_logged("why it ends", |line| line.contains("ERROR")).await;
    assert_eq!(reconciler.exit_code().await, Some(1));
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_run_beside_an_installed_one_is_refused_and_told_how_to_go_on() {
    let Some(cluster) = only_sandbox(1, "the lease of another's reconciler would be in the way").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let leader = Reconciler::start_with(&cluster, LONG);
    let holder = until_leads(&cluster, &leader).await.holder_identity.unwrap();
    let why = refusal(Reconciler::start(&cluster)).await;
    for part in [holder.as_str(), &namespace(), leader_lease::NAME, "--leader-elect=false"] {
        assert!(why.contains(part), "{part} in {why}");
    }
    let writes = cluster.sandbox().unwrap().requests().count(|entry| {
        !["get", "list", "watch"].contains(&entry.verb)
            && entry.user_agent.starts_with("nm-reconciler/")
            && !entry.user_agent.contains(&format!("-{})", leader.pid()))
    });
    assert_eq!(writes, 0, "it writes nothing");

    let beside = Reconciler::start_with(&cluster, &["--leader-elect=false"]);
    beside.until_logged("that it works", |line| line.contains("nodes and their leases are known")).await;
    drop(beside);
    leader.signal("TERM");
    leader.until_logged("that it ends", |line| line.contains("lease released")).await;
    let _alone = Reconciler::start(&cluster);
    start(&cluster, "e2e-alone", node).await;
    drained(&cluster, "e2e-alone").await;
    stop(&cluster, "e2e-alone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_in_whatever_namespace_it_is_installed_refuses_a_local_run() {
    let Some(cluster) = only_sandbox(1, "the lease of another's reconciler would be in the way").await else {
        return;
    };
    // Whoever runs it locally is an administrator, who may look everywhere.
    std::fs::copy(cluster.kubeconfig(), cluster.reconciler_kubeconfig()).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let elsewhere = parse(json!({"metadata": {"name": "operators"}}));
    namespaces.create(&PostParams::default(), &elsewhere).await.unwrap();
    lease_in(&cluster, &namespace(), SignedDuration::from_hours(2)).await;
    let alone = Reconciler::start(&cluster);
    alone.until_logged("that it works", |line| line.contains("nodes and their leases are known")).await;
    drop(alone);
    lease_in(&cluster, "operators", SignedDuration::from_secs(5)).await;
    let why = refusal(Reconciler::start(&cluster)).await;
    assert!(why.contains("operators") && why.contains("nm-reconciler-7d9f_1"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_run_that_may_not_read_the_lease_says_so_and_works() {
    let Some(cluster) = only_sandbox(1, "rights are taken away").await else { return };
    let node = &cluster.nodes().await[0];
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), &namespace());
    bindings.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
    lease_in(&cluster, &namespace(), SignedDuration::from_secs(5)).await;
    let reconciler = Reconciler::start(&cluster);
    let unknown =
        |line: &str| line.contains("WARN") && line.contains("whether another nm-reconciler is running");
    let line = reconciler.until_logged("what it does not know", unknown).await;
    assert!(line.contains("forbidden"), "{line}");
    start(&cluster, "e2e-unread", node).await;
    drained(&cluster, "e2e-unread").await;
    stop(&cluster, "e2e-unread").await;
}
