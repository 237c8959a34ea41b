//! A reconciler outside of a pod, which takes no part in leader election: it refuses to start beside a leader.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{LONG_LEASE, until_leads};
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by, is_by_reconciler, is_write};
use nm_tests::webhook::namespace;
use nm_tests::workload::parse;
use serde_json::json;

/// Creates a leader's lease that was renewed this long ago and is valid for an hour.
async fn create_leader_lease(cluster: &Cluster, namespace: &str, ago: SignedDuration) {
    let at = Timestamp::now() - ago;
    let lease = parse(json!({
        "metadata": {"name": leader_lease::NAME},
        "spec": {"holderIdentity": "nm-reconciler-7d9f_1", "leaseDurationSeconds": 3600, "renewTime": format!("{at:.6}")},
    }));
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), namespace);
    leases.create(&PostParams::default(), &lease).await.unwrap();
}

/// Waits until the reconciler exits, and returns its error.
async fn startup_error(mut reconciler: Reconciler) -> String {
    let line = reconciler.until_logged("why it ends", |line| line.contains("ERROR")).await;
    assert_eq!(reconciler.exit_code().await, Some(1));
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_reconciler_beside_an_installed_one_refuses_to_start() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "a real cluster may have a leader").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let leader = Reconciler::start_with(&cluster, LONG_LEASE);
    let holder = until_leads(&cluster, &leader).await.holder_identity.unwrap();
    let why = startup_error(Reconciler::start(&cluster)).await;
    for part in [holder.as_str(), &namespace(), leader_lease::NAME, "--leader-elect=false"] {
        assert!(why.contains(part), "{part} in {why}");
    }
    let writes = cluster
        .sandbox()
        .unwrap()
        .requests()
        .count(|entry| is_write(entry) && is_by_reconciler(entry) && !is_by(entry, leader.pid()));
    assert_eq!(writes, 0, "it writes nothing");

    let beside = Reconciler::start_with(&cluster, &["--leader-elect=false"]);
    beside.until_logged("that it works", |line| line.contains("nodes and their leases are known")).await;
    drop(beside);
    leader.signal("TERM");
    leader.until_logged("that it ends", |line| line.contains("lease released")).await;
    let _alone = Reconciler::start(&cluster);
    start(&cluster, "e2e-alone", node).await;
    until_drained(&cluster, "e2e-alone").await;
    stop(&cluster, "e2e-alone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_in_any_namespace_keeps_a_local_reconciler_from_starting() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "a real cluster may have a leader").await else {
        return;
    };
    // A user who runs it locally is an administrator, and can read all namespaces.
    std::fs::copy(cluster.kubeconfig(), cluster.reconciler_kubeconfig()).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let elsewhere = parse(json!({"metadata": {"name": "operators"}}));
    namespaces.create(&PostParams::default(), &elsewhere).await.unwrap();
    create_leader_lease(&cluster, &namespace(), SignedDuration::from_hours(2)).await;
    let alone = Reconciler::start(&cluster);
    alone.until_logged("that it works", |line| line.contains("nodes and their leases are known")).await;
    drop(alone);
    create_leader_lease(&cluster, "operators", SignedDuration::from_secs(5)).await;
    let why = startup_error(Reconciler::start(&cluster)).await;
    assert!(why.contains("operators") && why.contains("nm-reconciler-7d9f_1"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_reconciler_that_cannot_read_the_lease_warns_and_works() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "permissions are revoked").await else { return };
    let node = &cluster.nodes().await[0];
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), &namespace());
    bindings.delete("nm-reconciler", &DeleteParams::default()).await.unwrap();
    create_leader_lease(&cluster, &namespace(), SignedDuration::from_secs(5)).await;
    let reconciler = Reconciler::start(&cluster);
    let unknown =
        |line: &str| line.contains("WARN") && line.contains("whether another nm-reconciler is running");
    let line = reconciler.until_logged("its warning", unknown).await;
    assert!(line.contains("forbidden"), "{line}");
    start(&cluster, "e2e-unread", node).await;
    until_drained(&cluster, "e2e-unread").await;
    stop(&cluster, "e2e-unread").await;
}
