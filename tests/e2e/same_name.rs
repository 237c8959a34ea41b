//! A pod is its uid, not its name: a replacement of the same name is another pod.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::DeleteParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target, When};
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::programs::skipped;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until, until_seen};
use nm_tests::workload::{Workload, pinned_to};
use serde_json::json;

use crate::{change, drained, evictions, once, start, stop};

// Case 33.
#[tokio::test(flavor = "multi_thread")]
async fn each_pod_that_a_stateful_set_gives_the_same_name_is_moved_for_itself() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "set").await;
    workload.stateful_set_of("db", 1, &pinned_to(node)).await;
    let seen = tokio::spawn(until_seen(workload.pods(), watcher::Config::default(), 4));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-set", node).await;
    let reported = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::ComesBack)
    };
    let status = once(&cluster, "e2e-set", "it is reported", reported).await;
    let seen = seen.await.unwrap();
    assert_eq!(status.blocked_pods[0].name, "db-0");
    assert_eq!(status.pending_pods, ["db-0"], "those before it are gone");
    let last = workload.pods().get("db-0").await.unwrap();
    assert_eq!((last.uid().as_ref(), last.metadata.deletion_timestamp), (seen.last(), None));
    if let Some(sandbox) = cluster.sandbox() {
        let answers: Vec<u16> = evictions(sandbox).iter().map(|entry| entry.code).collect();
        assert_eq!(answers, [201; 3], "each of the three was asked once");
    }
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    drained(&cluster, "e2e-set").await;
    stop(&cluster, "e2e-set").await;
}

// Case 33.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_comes_too_late_leaves_the_replacement_alone() {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        skipped("only a sandbox holds an eviction up until its pod is replaced");
        return;
    }
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "twins").await;
    workload.pod_on(node, "twin", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_secs(5)));
    let rule = sandbox.faults().add(slow.when(When::First(1)));
    let reconciler = Reconciler::start(&cluster);
    let drain = json!({"podSelector": {"matchLabels": {"app": "twin"}}});
    start(&cluster, "e2e-twins", node).await;
    change(&cluster, "e2e-twins", drain).await;
    let asked = async {
        while sandbox.faults().played(rule) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the first twin is asked to go");

    // Or it would take the request back on hearing that the pod is gone.
    reconciler.signal("STOP");
    workload.pods().delete("twin", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&workload.pods(), "twin", "gone", |pod| pod.is_none()).await;
    // The second is not to be moved, so that nothing but the late request can harm it.
    let second = workload.place(node, "twin", json!({"metadata": {"labels": {"app": "other"}}})).await;
    let answered = sandbox.requests().until(|_| evictions(sandbox).len() == 1);
    tokio::time::timeout(PATIENCE, answered).await.expect("the late request is answered");
    assert_eq!(evictions(sandbox)[0].code, 409, "the uid does not match");
    reconciler.signal("CONT");
    drained(&cluster, "e2e-twins").await;
    let there = workload.pods().get("twin").await.unwrap();
    assert_eq!((there.uid(), there.metadata.deletion_timestamp), (second.uid(), None));
    stop(&cluster, "e2e-twins").await;
}
