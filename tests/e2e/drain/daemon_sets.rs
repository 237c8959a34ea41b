//! Pods of a `DaemonSet` stay, even if the reconciler has not seen the `DaemonSet`.

use kube_sandbox::faults::{Action, Failure, Moment, Rule};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, evictions};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_daemon_set_created_while_its_watch_is_interrupted_are_not_evicted() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only a sandbox interrupts a watch").await else {
        return;
    };
    let workload = Workload::new(&cluster, "agents").await;
    let nodes = cluster.nodes().await;
    let node = &nodes[0];
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-agents", node).await;
    until_drained(&cluster, "e2e-agents").await;

    let faults = cluster.sandbox().unwrap().faults();
    let sets = by_reconciler().verb("list").verb("watch").resource("daemonsets");
    let outage =
        faults.add(Rule::new(sets.clone(), Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    assert_eq!(faults.end_watches(&sets, 0), 1);
    let interrupted = |line: &str| line.contains("watch interrupted") && line.contains("daemonsets");
    reconciler.until_logged("the interruption", interrupted).await;
    workload.create_daemon_set("agent").await;
    let agent = workload.until_running("agent", nodes.len()).await;
    let agent = agent.into_iter().find(|pod| node_of(pod) == node).unwrap();
    until_status(&cluster, "e2e-agents", "the pod waits", |status| status.pod_counts.waiting == 1).await;
    // Other pods are evicted meanwhile.
    workload.create_pod(node, "late", json!({})).await;
    wait_until(&workload.pods(), "late", "evicted", |found| found.is_none()).await;

    faults.remove(outage);
    until_drained(&cluster, "e2e-agents").await;
    let evicted: Vec<String> =
        evictions(cluster.sandbox().unwrap()).into_iter().map(|entry| entry.name).collect();
    assert!(!evicted.contains(agent.metadata.name.as_ref().unwrap()), "{evicted:?}");
    let still = workload.pods().get(agent.metadata.name.as_ref().unwrap()).await.unwrap();
    assert_eq!(still.metadata.uid, agent.metadata.uid);
}
