//! The processor time and memory of an idle dashboard: of the fleet view with 500 nodes in maintenance, of the view of a
//! node with 10,000 pods, and of the view of 5,000 nodes, whose kubelets write their status every five minutes.
//!
//! `cargo bench -p nm-tests --bench dashboard_idle` prints both for each view, and the time until all nodes are on the
//! screen. It fails if one exceeds its limit: 1% of a core, 60 MiB, 2 s.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::cluster::Cluster as SimulatedCluster;
use kube_sandbox::resource::{self, PODS};
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::store::Key;
use kube_sandbox::workload::node;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{memory, processor_time, program_of_benchmark};
use nm_tests::terminal::Terminal;
use nm_tests::workload::pods_on;
use serde_json::{Value, json};

const NODES: usize = 500;
const PODS_ON_NODE: usize = 10_000;
const ALL_NODES: usize = 5_000;
/// How often each kubelet writes the status of its node, as by default.
const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// From the start of the program until all nodes are listed and the first are on the screen.
const FIRST_SCREEN_LIMIT: Duration = Duration::from_secs(2);
/// Percent of a core.
const PROCESSOR_LIMIT: f64 = 1.0;
const MEBIBYTES_LIMIT: u64 = 60;
/// How long a view may settle before it is measured.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a view is measured.
const MEASURE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let cluster = Cluster::of_sandbox(NODES, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    stream::iter(&nodes).for_each_concurrent(16, |node| create_maintenance(&cluster, node)).await;
    // The pods need an existing owner: otherwise they would be garbage-collected.
    let uid = cluster.node(&nodes[0]).await.metadata.uid.unwrap();
    let sandbox = cluster.sandbox().unwrap();
    sandbox.cluster().store.write(|state| {
        for number in 0..PODS_ON_NODE {
            state.put(&PODS, pod(&nodes[0], &uid, number));
        }
    });
    let mut passed = true;
    let views =
        [("fleet", vec!["watch"]), ("node", vec!["watch", &*nodes[0]]), ("nodes", vec!["watch", "--all"])];
    for (view, args) in views {
        let kubeconfig = cluster.kubeconfig().to_str().unwrap();
        let heartbeats = (view == "nodes").then(|| {
            add_nodes(sandbox, nodes.len());
            tokio::spawn(heartbeats(Arc::clone(sandbox.cluster())))
        });
        let started = Instant::now();
        let dashboard =
            Terminal::run(&program_of_benchmark("kubectl-nm"), &args, &[("KUBECONFIG", kubeconfig)], 50, 160);
        dashboard.until_shown("live").await;
        if view == "nodes" {
            dashboard.until_shown(&format!("Ready {ALL_NODES}")).await;
            let first_screen = started.elapsed();
            println!("{view:6} first screen after {first_screen:.2?} (at most {FIRST_SCREEN_LIMIT:?})");
            passed &= first_screen <= FIRST_SCREEN_LIMIT;
        }
        if view == "node" {
            // The view must have all pods before it is measured.
            dashboard.until_shown("front-6c4f9d-00000").await;
            dashboard.press("G");
            dashboard.until_shown(&format!("{:05}", PODS_ON_NODE - 1)).await;
        }
        tokio::time::sleep(SETTLE).await;
        let (begun, before) = (Instant::now(), processor_time(dashboard.process()).unwrap());
        tokio::time::sleep(MEASURE).await;
        let used = processor_time(dashboard.process()).unwrap().saturating_sub(before);
        let processor = 100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64();
        if view == "node" {
            let count = pods_on(&cluster.client, &nodes[0]).await.len();
            assert!(count >= PODS_ON_NODE, "only {count} pods are on the node");
        }
        let mebibytes = |field| memory(dashboard.process(), field).unwrap() >> 20;
        let (now, peak) = (mebibytes("VmRSS"), mebibytes("VmHWM"));
        println!(
            "{view:6} idle {processor:5.2}% of a core (at most {PROCESSOR_LIMIT}%), {now} MiB \
             (at most {MEBIBYTES_LIMIT}), {peak} MiB at its peak"
        );
        passed &= processor <= PROCESSOR_LIMIT && now <= MEBIBYTES_LIMIT;
        if let Some(heartbeats) = heartbeats {
            heartbeats.abort();
        }
    }
    println!("{}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Adds nodes until there are [`ALL_NODES`], as large as those of real clusters.
fn add_nodes(sandbox: &Sandbox, there_are: usize) {
    let images: Vec<Value> = (0..50)
        .map(|at| {
            json!({"names": [format!("registry.example/team-{at}/app@sha256:{}", "f".repeat(64)),
            format!("registry.example/team-{at}/app:1.2.{at}")], "sizeBytes": 123_456_789})
        })
        .collect();
    sandbox.cluster().store.write(|state| {
        let known: Vec<Value> = state.list(&resource::NODES, None).map(|node| (*node).clone()).collect();
        let new = (there_are..ALL_NODES).map(|number| {
            let mut node = node(number, ALL_NODES);
            node["metadata"]["name"] = json!(format!("worker-{number:04}"));
            node["metadata"]["creationTimestamp"] = json!("2026-01-02T03:04:05Z");
            node
        });
        for mut node in known.into_iter().chain(new) {
            node["status"]["images"] = json!(images);
            state.put(&resource::NODES, node);
        }
    });
}

/// Writes the status of one node after another, each every [`STATUS_INTERVAL`].
async fn heartbeats(cluster: Arc<SimulatedCluster>) {
    let mut ticks = tokio::time::interval(STATUS_INTERVAL / u32::try_from(ALL_NODES).unwrap());
    for number in (NODES..ALL_NODES).cycle() {
        ticks.tick().await;
        cluster.store.write(|state| {
            let key = Key::cluster(format!("worker-{number:04}"));
            if let Some(node) = state.get(&resource::NODES, &key) {
                let mut node = (*node).clone();
                node["status"]["conditions"][0]["lastHeartbeatTime"] =
                    json!(jiff::Timestamp::now().to_string());
                state.put(&resource::NODES, node);
            }
        });
    }
}

/// Creates a maintenance in the middle of a drain, with some blocked pods.
async fn create_maintenance(cluster: &Cluster, node: &str) {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    let object = NodeMaintenance::new(node, spec);
    cluster.maintenances().create(&PostParams::default(), &object).await.unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("front-6c4f9d-{number:05}")).collect();
    let blocked: Vec<Value> = names
        .iter()
        .take(3)
        .map(|name| {
            json!({"namespace": "shop", "name": name, "reason": "DisruptionBudget", "attempts": 3,
                "message": "The disruption budget cart needs 3 healthy pods and has 3 currently",
                "since": "2026-01-02T03:04:05Z"})
        })
        .collect();
    let references: Vec<Value> =
        names.iter().map(|name| json!({"namespace": "shop", "name": name})).collect();
    let status = json!({"status": {
        "phase": "Running", "drainProgress": 50, "evictionPods": 40, "totalpods": 45,
        "pendingPods": names, "pendingPodsRefs": references, "blockedPods": blocked,
        "podCounts": {"evicting": 7, "terminating": 10, "blocked": 3, "gone": 20, "staying": 5},
    }});
    let params = PatchParams::default();
    cluster.maintenances().patch_status(node, &params, &Patch::Merge(&status)).await.unwrap();
}

/// A pod about as large as those of real clusters.
fn pod(node: &str, owner: &str, number: usize) -> Value {
    let name = format!("front-6c4f9d-{number:05}");
    let variables: Vec<Value> =
        (0..10).map(|at| json!({"name": format!("SETTING_{at}"), "value": "x".repeat(40)})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("00000000-0000-0000-0000-{number:012}"),
            "creationTimestamp": "2026-01-02T03:04:05Z", "generateName": "front-6c4f9d-",
            "labels": {"app": "front", "pod-template-hash": "6c4f9d", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"checksum/config": "f".repeat(64), "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}}],
        },
        "spec": {
            "nodeName": node, "priority": 0, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "front", "image": "registry.example/shop/front:1.2.3", "env": variables,
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": "front"}}],
        },
        "status": {
            "phase": "Running", "startTime": "2026-01-02T03:04:05Z", "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
            ],
            "containerStatuses": [{"name": "front", "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example/shop/front:1.2.3", "imageID": "f".repeat(71)}],
        },
    })
}
