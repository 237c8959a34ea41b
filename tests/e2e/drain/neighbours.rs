//! What others do with a node in maintenance: load balancers leave it out before the first eviction, autoscalers keep it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use nm_shared::NodeMaintenanceStatus;
use nm_shared::api::names::{AUTOSCALER_ANNOTATIONS, LOAD_BALANCER_LABEL};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{patch_drain, start_with_drain, stop, until_drained, until_status};
use nm_tests::nodes::configuration;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::json;

fn is_held(status: &NodeMaintenanceStatus) -> bool {
    status.hold.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_leave_a_node_out_before_its_first_pod_is_evicted_and_everything_is_undone() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "balanced").await;
    let pod = workload.pod_on(node, "web", json!({})).await;
    let karpenter = AUTOSCALER_ANNOTATIONS[1];
    cluster.patch_node(node, json!({"metadata": {"annotations": {karpenter: "false"}}})).await;
    let before = configuration(&cluster.node(node).await);

    let first = Reconciler::start(&cluster);
    let drain = json!({"loadBalancers": {"exclude": true, "delaySeconds": 3600}, "autoscalers": "Protect"});
    start_with_drain(&cluster, "e2e-balanced", node, drain).await;
    let status = until_status(&cluster, "e2e-balanced", "it waits", is_held).await;
    let marked = cluster.node(node).await.metadata;
    let label = marked.labels.unwrap_or_default().get(LOAD_BALANCER_LABEL).cloned();
    assert_eq!(label.as_deref(), Some("true"));
    let annotations = marked.annotations.unwrap_or_default();
    assert!(
        AUTOSCALER_ANNOTATIONS.iter().all(|key| annotations.get(*key).is_some_and(|value| value == "true"))
    );
    let explained = plugin(&cluster, &["explain", node]).await;
    assert_eq!(explained.code, Some(0), "a wait is not a block: {explained:?}");
    assert!(explained.stdout.contains("waits for load balancers until"), "{explained:?}");

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    patch_drain(&cluster, "e2e-balanced", json!({"loadBalancers": {"delaySeconds": 7200}})).await;
    let longer = |next: &NodeMaintenanceStatus| is_held(next) && next.hold != status.hold;
    let later = until_status(&cluster, "e2e-balanced", "it waits longer", longer).await.hold.unwrap();
    assert_eq!(later.since, status.hold.unwrap().since, "still from the cordon");
    let found = workload.pods().get("web").await.unwrap();
    assert_eq!((found.metadata.uid, found.metadata.deletion_timestamp), (pod.metadata.uid, None));
    if let Some(sandbox) = cluster.sandbox() {
        assert!(evictions(sandbox).is_empty(), "no pod was evicted");
    }
    patch_drain(&cluster, "e2e-balanced", json!({"loadBalancers": {"delaySeconds": 0}})).await;
    until_drained(&cluster, "e2e-balanced").await;

    stop(&cluster, "e2e-balanced").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_holds_the_first_eviction_and_the_return_of_the_node_until_its_owner_removes_it() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "hooked").await;
    workload.pod_on(node, "cache", json!({})).await;
    let before = configuration(&cluster.node(node).await);
    let _reconciler = Reconciler::start(&cluster);

    let started = plugin(&cluster, &["start", node, "-y", "--hook", "flush=cache-team"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    let status = until_status(&cluster, node, "it waits", is_held).await;
    assert_eq!(
        (status.eviction_pods, status.pod_counts.waiting),
        (status.eviction_pods.max(1), status.eviction_pods)
    );
    let told = plugin(&cluster, &["status", node]).await;
    assert!(told.stdout.contains("Draining"), "{told:?}");
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("waits for hook flush (owner: cache-team)"), "{explained:?}");
    let remove = format!("annotate nm {node} pre-drain.hook.kubectl-nm.dev/flush-");
    assert!(explained.stdout.contains(&remove), "{explained:?}");
    let waited = plugin(&cluster, &["watch", node, "--until", "drained", "--timeout", "1s"]).await;
    assert_eq!(waited.code, Some(124), "{waited:?}");
    annotate(&cluster, node, json!({"pre-drain.hook.kubectl-nm.dev/flush": null})).await;
    until_drained(&cluster, node).await;

    annotate(&cluster, node, json!({"pre-drain.hook.kubectl-nm.dev/late": "x"})).await;
    let late = workload.create_pod(node, "late", json!({"spec": {"nodeName": node}})).await;
    let pods: Api<Pod> = workload.pods();
    let left = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.uid != late.metadata.uid);
    wait_until(&pods, "late", "evicted all the same", left).await;

    annotate(&cluster, node, json!({"pre-return.hook.kubectl-nm.dev/heal": "storage"})).await;
    cluster.maintenances().delete(node, &DeleteParams::default()).await.unwrap();
    until_status(&cluster, node, "it waits again", is_held).await;
    assert_ne!(configuration(&cluster.node(node).await), before);
    let told = plugin(&cluster, &["explain", node]).await;
    assert!(
        told.stdout.contains("The node stays cordoned: the maintenance waits for hook heal (owner: storage)"),
        "{told:?}"
    );
    annotate(&cluster, node, json!({"pre-return.hook.kubectl-nm.dev/heal": null})).await;
    nm_tests::maintenance::until_gone(&cluster, node).await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

async fn annotate(cluster: &Cluster, name: &str, annotations: serde_json::Value) {
    let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    cluster.maintenances().patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_without_a_name_or_an_owner_is_refused() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    for (hook, why) in
        [("flush", "no owner"), ("=me", "the name of a hook"), ("a/b=me", "the name of a hook")]
    {
        let refused = plugin(&cluster, &["start", node, "--hook", hook]).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
}
