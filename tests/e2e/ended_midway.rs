//! A maintenance that is deleted before its node is drained.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube_sandbox::faults::{Action, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, held};
use serde_json::json;

use crate::{configuration, drained, evictions, once, only_sandbox, start, stop};

// Case 32.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_given_back_while_pods_are_still_ending_and_the_others_stay() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let node = &nodes[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "midway").await;
    workload.pod_on(node, "ending", held()).await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-midway", node).await;
    let ending = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    until(&workload.pods(), "ending", "it is ending", ending).await;
    let refused = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.name == "guarded" && pod.attempts > 0)
    };
    once(&cluster, "e2e-midway", "refused", refused).await;

    stop(&cluster, "e2e-midway").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert!(ending(Some(&workload.pods().get("ending").await.unwrap())), "it is there and ending still");
    let asked = cluster.sandbox().map(|sandbox| evictions(sandbox).len());

    // Nobody asks it again now that it might go, while the reconciler works elsewhere.
    workload.free("guarded").await;
    workload.let_go("ending").await;
    until(&workload.pods(), "ending", "gone", |pod| pod.is_none()).await;
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    drained(&cluster, "e2e-elsewhere").await;
    stop(&cluster, "e2e-elsewhere").await;
    assert!(!ending(Some(&workload.pods().get("guarded").await.unwrap())), "it stays");
    assert_eq!(cluster.sandbox().map(|sandbox| evictions(sandbox).len()), asked);
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

// Case 32.
#[tokio::test(flavor = "multi_thread")]
async fn evictions_that_are_not_sent_yet_never_are() {
    let why = "only a sandbox holds evictions up and tells when they came";
    let Some(cluster) = only_sandbox(2, why).await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "unsent").await;
    for number in 0..6 {
        workload.pod_on(&nodes[0], &format!("pod-{number}"), json!({})).await;
    }
    workload.pod_on(&nodes[1], "elsewhere", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_secs(3)));
    sandbox.faults().add(slow);
    // One at a time, so that the others wait for it.
    let _reconciler = Reconciler::start_with(&cluster, &["--max-concurrent-evictions", "1"]);
    start(&cluster, "e2e-unsent", &nodes[0]).await;
    let asked = sandbox.requests().until(|_| !evictions(sandbox).is_empty());
    tokio::time::timeout(PATIENCE, asked).await.expect("the first is asked to go");
    stop(&cluster, "e2e-unsent").await;

    // Whatever were left over would be sent before this node is drained: it waits in the same line, and its pod takes a
    // moment to end.
    sandbox.faults().clear();
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    drained(&cluster, "e2e-elsewhere").await;
    let all = sandbox.requests().all();
    let is_node_patch = |entry: &&Entry| {
        let what = (entry.verb, entry.resource.as_str(), entry.name.as_str());
        entry.user_agent.starts_with("nm-reconciler/") && what == ("patch", "nodes", &nodes[0])
    };
    let given_back = all.iter().rfind(is_node_patch).unwrap().at;
    let mut asked = evictions(sandbox);
    asked.retain(|entry| entry.name != "elsewhere");
    // An answer that takes over a second gives its place to the next, so more than one may have been asked by then.
    assert!(asked.len() < 6, "some were not asked yet: {asked:?}");
    assert!(asked.iter().all(|entry| entry.at < given_back), "{asked:?}");
    let pods = workload.pods().list(&ListParams::default()).await.unwrap().items;
    let stay = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
    assert!(stay >= 4, "{stay} of 6 stay");
    stop(&cluster, "e2e-elsewhere").await;
}
