//! The sample object of the medik8s documentation, applied with kubectl alone.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, UNSCHEDULABLE_TAINT};
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::nodes::configuration;
use nm_tests::programs::{kubectl, plugin, program};
use nm_tests::reconciler::{Reconciler, without_settings};
use nm_tests::skip::has_kubectl;
use nm_tests::workload::{Workload, node_of, parse, pods_on};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_medik8s_sample_drains_a_node_and_returns_it_to_service() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "sample").await;
    let agents = json!({
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
        }},
    });
    let daemon_sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    daemon_sets.create(&PostParams::default(), &parse(agents)).await.unwrap();
    let nodes = cluster.nodes().await;
    workload.until_running("agent", nodes.len()).await;
    workload.deployment("web", 2 * nodes.len()).await;
    let node = &nodes[1];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);

    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/samples/nodemaintenance.yaml");
    let text = std::fs::read_to_string(sample).unwrap().replace("node-02", node);
    let file = temp_file(text);
    let _ = kubectl(&cluster, &["apply", "-f", file.path().to_str().unwrap()]).await.unwrap().ok();
    let wait = ["wait", "--for=condition=Drained", "nm/nodemaintenance-sample", "--timeout=60s"];
    let _ = kubectl(&cluster, &wait).await.unwrap().ok();
    let fields = "jsonpath={.status.phase} {.status.drainProgress} {.spec.reason}";
    let said =
        kubectl(&cluster, &["get", "nm", "nodemaintenance-sample", "-o", fields]).await.unwrap().ok().stdout;
    assert_eq!(said, "Succeeded 100 Test node maintenance");

    let there = cluster.node(node).await;
    let spec = there.spec.clone().unwrap();
    let taints = spec.taints.unwrap_or_default();
    assert_eq!(spec.unschedulable, Some(true));
    assert!(
        [DRAIN_TAINT, UNSCHEDULABLE_TAINT].iter().all(|key| taints.iter().any(|taint| taint.key == *key))
    );
    assert_eq!(there.labels().get(EXCLUDE_LABEL).map(String::as_str), Some("true"));
    let web = workload.until_running("web", 2 * nodes.len()).await;
    assert!(web.iter().all(|pod| node_of(pod) != node));
    let left = pods_on(&cluster.client, node).await;
    assert!(
        left.iter().any(|pod| pod.labels().get("app").is_some_and(|app| app == "agent")),
        "DaemonSet pods stay"
    );

    let _ = kubectl(&cluster, &["delete", "nm", "nodemaintenance-sample"]).await.unwrap().ok();
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_reconciler_needs_only_the_definition_and_the_lease_namespace() {
    if !has_kubectl() {
        return;
    }
    let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
    let file = |name: &str| format!("{}/../manifests/{name}", env!("CARGO_MANIFEST_DIR"));
    let (crd, leases) = (file("crd.yaml"), file("lease_namespace.yaml"));
    let _ = kubectl(&cluster, &["apply", "-f", &crd, "-f", &leases]).await.unwrap().ok();
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let _reconciler = tokio::process::Command::from(without_settings(&program("nm-reconciler")))
        .env("KUBECONFIG", cluster.kubeconfig())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    for verb in ["start", "stop"] {
        let _ = plugin(&cluster, &[verb, node, "--wait"]).await.ok();
    }
    assert_eq!(configuration(&cluster.node(node).await), before);
}
