//! `spec.drain.order`, and the reconciler's own pod, which is evicted last.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, start_with_drain, stop, until_drained_without_errors, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::workload::{Workload, merge, with_finalizer};
use serde_json::{Value, json};

/// Creates a priority class. Its name contains its value, so that tests on a shared cluster can share it.
async fn priority_class(cluster: &Cluster, value: i32) -> String {
    let name = format!("kubectl-nm-e2e-{value}");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    });
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    classes.patch(&name, &PatchParams::apply("nm-tests"), &Patch::Apply(&class)).await.unwrap();
    name
}

/// A priority, to be merged into a pod.
async fn with_priority(cluster: &Cluster, value: i32) -> Value {
    json!({"spec": {"priorityClassName": priority_class(cluster, value).await}})
}

async fn start_in_order(cluster: &Cluster, name: &str, node: &str) {
    start_with_drain(cluster, name, node, json!({"order": "PriorityAscending"})).await;
}

/// The names of the pods that are not terminating.
async fn not_terminating(workload: &Workload) -> Vec<String> {
    let pods: Vec<Pod> = workload.pods().list(&ListParams::default()).await.unwrap().items;
    let not_terminating = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<String> = not_terminating.filter_map(|pod| pod.metadata.name).collect();
    names.sort();
    names
}

/// On a sandbox, checks the order of evictions.
fn assert_evicted_in_order(cluster: &Cluster, order: &[&str]) {
    if let Some(sandbox) = cluster.sandbox() {
        let names: Vec<String> = evictions(sandbox).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, order);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_higher_priority_wait_until_all_of_a_lower_priority_are_gone() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "order").await;
    let node = &cluster.nodes().await[0];
    for (name, priority) in [("c-low", -10), ("b-middle", 0), ("a-high", 1000)] {
        let mut extra = if priority == 0 { json!({}) } else { with_priority(&cluster, priority).await };
        merge(&mut extra, with_finalizer());
        workload.pod_on(node, name, extra).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start_in_order(&cluster, "e2e-order", node).await;
    for (pod, waiting) in [("c-low", 2), ("b-middle", 1), ("a-high", 0)] {
        let what = format!("{pod} is terminating");
        until_status(&cluster, "e2e-order", &what, |status| {
            let terminating = status.blocked_pods.iter().any(|blocked| blocked.name == pod);
            terminating && status.pod_counts.waiting >= waiting
        })
        .await;
        let all = ["a-high", "b-middle"];
        assert_eq!(not_terminating(&workload).await, all[..usize::try_from(waiting).unwrap()]);
        workload.remove_finalizers(pod).await;
    }
    until_drained_without_errors(&cluster, "e2e-order").await;
    assert_evicted_in_order(&cluster, &["c-low", "b-middle", "a-high"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_plugin_leaves_after_the_pods_that_mount_volumes_although_its_priority_is_lower() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "plugin").await;
    let node = &cluster.nodes().await[0];
    let mut plugin = with_priority(&cluster, -10).await;
    let registry = json!({"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}});
    merge(&mut plugin, json!({"spec": {"volumes": [registry]}}));
    workload.pod_on(node, "a-plugin", plugin).await;
    let mut database = with_priority(&cluster, 1000).await;
    merge(&mut database, with_finalizer());
    // No driver serves it, so on a real cluster the pod does not start.
    let volume = json!({"name": "data", "csi": {"driver": "e2e.kubectl-nm.dev"}});
    merge(&mut database, json!({"spec": {"volumes": [volume]}}));
    workload.create_pod(node, "b-database", database).await;
    workload.pod_on(node, "c-plain", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_in_order(&cluster, "e2e-plugin", node).await;
    until_status(&cluster, "e2e-plugin", "the database is terminating", |status| {
        status.blocked_pods.iter().any(|blocked| blocked.name == "b-database")
            && status.pending_pods == ["a-plugin", "b-database"]
    })
    .await;
    assert_eq!(not_terminating(&workload).await, ["a-plugin"]);
    workload.remove_finalizers("b-database").await;
    until_drained_without_errors(&cluster, "e2e-plugin").await;
    assert_evicted_in_order(&cluster, &["c-plain", "b-database", "a-plugin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_waits_for_a_completing_pod_of_a_lower_priority() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "classes").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "batch", json!({})).await;
    let high = with_priority(&cluster, 1000).await;
    workload.pod_on(node, "high", high).await;
    let _reconciler = Reconciler::start(&cluster);
    let selector = json!({"matchLabels": {"app": "batch"}});
    let drain = json!({"order": "PriorityAscending", "waitForCompletion": {"podSelector": selector}});
    start_with_drain(&cluster, "e2e-classes", node, drain).await;
    until_status(&cluster, "e2e-classes", "both wait", |status| {
        let reasons =
            status.waiting_pods.iter().flatten().map(|pod| (pod.name.as_str(), pod.reason.as_str()));
        reasons.eq([("batch", "Completing"), ("high", "Order")]) && status.pod_counts.waiting == 2
    })
    .await;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    workload.pods().patch_status("batch", &PatchParams::default(), &ended).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-classes").await;
    assert_evicted_in_order(&cluster, &["batch", "high"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_order_a_terminating_pod_delays_no_other() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "none").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "held", with_finalizer()).await;
    let high = with_priority(&cluster, 1000).await;
    workload.pod_on(node, "high", high).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-none", node).await;
    until_status(&cluster, "e2e-none", "one is left", |status| {
        status.blocked_pods.len() == 1 && !status.pending_pods.contains(&"high".to_owned())
    })
    .await;
    workload.remove_finalizers("held").await;
    until_drained_without_errors(&cluster, "e2e-none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_own_pod_is_evicted_last_whatever_its_priority() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for (round, in_order) in [("plain", false), ("ordered", true)] {
        let workload = Workload::new(&cluster, "own").await;
        let low = with_priority(&cluster, -10).await;
        workload.pod_on(node, "a-own", low).await;
        for name in ["b-held", "c-held"] {
            workload.pod_on(node, name, with_finalizer()).await;
        }
        let own = format!("{}/a-own", workload.namespace());
        let reconciler = Reconciler::start_with(&cluster, &["--own-pod", &own]);
        if in_order {
            start_in_order(&cluster, round, node).await;
        } else {
            start(&cluster, round, node).await;
        }
        for (blocked, finalized) in [(2, "b-held"), (1, "c-held")] {
            until_status(&cluster, round, "only terminating pods beside it", |status| {
                status.blocked_pods.len() == blocked && status.pod_counts.waiting == 1
            })
            .await;
            assert_eq!(not_terminating(&workload).await, ["a-own"]);
            workload.remove_finalizers(finalized).await;
        }
        until_drained_without_errors(&cluster, round).await;
        if let Some(sandbox) = cluster.sandbox() {
            assert_eq!(evictions(sandbox).last().unwrap().name, "a-own");
        }
        stop(&cluster, round).await;
        reconciler.crash().await;
    }
}
