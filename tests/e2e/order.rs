//! `spec.drain.order`, and the reconciler's own pod.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use nm_shared::{DrainOrder, DrainSpec, NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, held, merge};
use serde_json::{Value, json};

use crate::answers::nothing_is_left;
use crate::{evictions, once, start};

/// A class of pods; the value is a part of the name, so that tests that share a cluster share the class.
async fn class(cluster: &Cluster, value: i32) -> String {
    let name = format!("kubectl-nm-e2e-{value}");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    });
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    classes.patch(&name, &PatchParams::apply("nm-tests"), &Patch::Apply(&class)).await.unwrap();
    name
}

/// What a pod of that priority says of it.
async fn of_priority(cluster: &Cluster, value: i32) -> Value {
    json!({"spec": {"priorityClassName": class(cluster, value).await}})
}

async fn start_in_order(cluster: &Cluster, name: &str, node: &str) {
    let drain = DrainSpec { order: DrainOrder::PriorityAscending, ..DrainSpec::default() };
    let spec = NodeMaintenanceSpec {
        node_name: node.to_owned(),
        drain: Some(drain),
        ..NodeMaintenanceSpec::default()
    };
    let maintenance = NodeMaintenance::new(name, spec);
    cluster.maintenances().create(&PostParams::default(), &maintenance).await.unwrap();
}

/// The names of the pods that nobody has told to go.
async fn untouched(workload: &Workload) -> Vec<String> {
    let pods: Vec<Pod> = workload.pods().list(&ListParams::default()).await.unwrap().items;
    let untouched = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<String> = untouched.filter_map(|pod| pod.metadata.name).collect();
    names.sort();
    names
}

/// Where the log is to be had, that the pods were evicted in this order.
fn assert_evicted_in_order(cluster: &Cluster, order: &[&str]) {
    if let Some(sandbox) = cluster.sandbox() {
        let names: Vec<String> = evictions(sandbox).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, order);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_higher_class_are_not_touched_while_one_of_a_lower_is_still_there_if_only_ending() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "order").await;
    let node = &cluster.nodes().await[0];
    for (name, priority) in [("c-low", -10), ("b-middle", 0), ("a-high", 1000)] {
        let mut extra = if priority == 0 { json!({}) } else { of_priority(&cluster, priority).await };
        merge(&mut extra, held());
        workload.pod_on(node, name, extra).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start_in_order(&cluster, "e2e-order", node).await;
    for (pod, waiting) in [("c-low", 2), ("b-middle", 1), ("a-high", 0)] {
        let what = format!("{pod} is ending");
        once(&cluster, "e2e-order", &what, |status| {
            let ending = status.blocked_pods.iter().any(|blocked| blocked.name == pod);
            ending && status.pod_counts.waiting >= waiting
        })
        .await;
        let all = ["a-high", "b-middle"];
        assert_eq!(untouched(&workload).await, all[..usize::try_from(waiting).unwrap()]);
        workload.let_go(pod).await;
    }
    nothing_is_left(&cluster, "e2e-order").await;
    assert_evicted_in_order(&cluster, &["c-low", "b-middle", "a-high"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_order_a_pod_that_does_not_end_keeps_nobody() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "none").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "held", held()).await;
    let high = of_priority(&cluster, 1000).await;
    workload.pod_on(node, "high", high).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-none", node).await;
    once(&cluster, "e2e-none", "one is left", |status| {
        status.blocked_pods.len() == 1 && !status.pending_pods.contains(&"high".to_owned())
    })
    .await;
    workload.let_go("held").await;
    nothing_is_left(&cluster, "e2e-none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_own_pod_goes_last_whatever_its_priority() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for (round, in_order) in [("plain", false), ("ordered", true)] {
        let workload = Workload::new(&cluster, "own").await;
        let low = of_priority(&cluster, -10).await;
        workload.pod_on(node, "a-own", low).await;
        for name in ["b-held", "c-held"] {
            workload.pod_on(node, name, held()).await;
        }
        let own = format!("{}/a-own", workload.namespace());
        let reconciler = Reconciler::start_with(&cluster, &["--own-pod", &own]);
        if in_order {
            start_in_order(&cluster, round, node).await;
        } else {
            start(&cluster, round, node).await;
        }
        for (blocked, let_go) in [(2, "b-held"), (1, "c-held")] {
            once(&cluster, round, "only ending pods beside it", |status| {
                status.blocked_pods.len() == blocked && status.pod_counts.waiting == 1
            })
            .await;
            assert_eq!(untouched(&workload).await, ["a-own"]);
            workload.let_go(let_go).await;
        }
        nothing_is_left(&cluster, round).await;
        if let Some(sandbox) = cluster.sandbox() {
            assert_eq!(evictions(sandbox).last().unwrap().name, "a-own");
        }
        crate::stop(&cluster, round).await;
        reconciler.crash().await;
    }
}
