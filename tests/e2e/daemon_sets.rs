//! Pods of a `DaemonSet` stay, also of one that the reconciler has not heard of.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::PostParams;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, merge, node_of, parse, pod_spec};
use serde_json::json;

use crate::{drained, evictions, once, only_sandbox, start};

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_daemon_set_that_is_created_while_the_watch_is_interrupted_are_not_evicted() {
    let Some(cluster) = only_sandbox(2, "only a sandbox interrupts a watch").await else { return };
    let workload = Workload::new(&cluster, "agents").await;
    let nodes = cluster.nodes().await;
    let node = &nodes[0];
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-agents", node).await;
    drained(&cluster, "e2e-agents").await;

    let faults = cluster.sandbox().unwrap().faults();
    let sets = Target::any().verb("list").verb("watch").resource("daemonsets").user_agent("nm-reconciler/*");
    let broken =
        faults.add(Rule::new(sets.clone(), Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    assert_eq!(faults.end_watches(&sets, 0), 1);
    let interrupted = |line: &str| line.contains("watch interrupted") && line.contains("daemonsets");
    reconciler.until_logged("the interruption", interrupted).await;
    let mut spec = pod_spec();
    merge(&mut spec, json!({"tolerations": [{"operator": "Exists"}]}));
    let labels = json!({"app": "agent"});
    let agents = parse(json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec},
    }}));
    let daemon_sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    daemon_sets.create(&PostParams::default(), &agents).await.unwrap();
    let agent = workload.until_running("agent", nodes.len()).await;
    let agent = agent.into_iter().find(|pod| node_of(pod) == node).unwrap();
    once(&cluster, "e2e-agents", "it waits", |status| status.pod_counts.waiting == 1).await;
    // Others are moved meanwhile.
    workload.place(node, "late", json!({})).await;
    until(&workload.pods(), "late", "moved", |found| found.is_none()).await;

    faults.remove(broken);
    drained(&cluster, "e2e-agents").await;
    let asked: Vec<String> =
        evictions(cluster.sandbox().unwrap()).into_iter().map(|entry| entry.name).collect();
    assert!(!asked.contains(agent.metadata.name.as_ref().unwrap()), "{asked:?}");
    let still = workload.pods().get(agent.metadata.name.as_ref().unwrap()).await.unwrap();
    assert_eq!(still.metadata.uid, agent.metadata.uid);
}
