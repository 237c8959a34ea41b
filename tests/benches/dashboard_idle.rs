//! What the dashboard costs while nothing happens: processor time and memory, with 500 nodes in maintenance and a node
//! of 10,000 pods that is open.
//!
//! `cargo bench -p nm-tests --bench dashboard_idle` prints both for the fleet and for the node, and fails past the
//! limits: 1% of a core, 60 MiB.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::resource::PODS;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::cluster::Cluster;
use nm_tests::programs::program_of_benchmark;
use nm_tests::terminal::Terminal;
use nm_tests::workload::pods_on;
use serde_json::{Value, json};

const NODES: usize = 500;
const PODS_ON_NODE: usize = 10_000;
/// Per cent of a core.
const MOST_PROCESSOR: f64 = 1.0;
const MOST_MEBIBYTES: f64 = 60.0;
/// How long each view settles, and how long it is measured.
const SETTLE: Duration = Duration::from_secs(5);
const MEASURE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let cluster = Cluster::of_sandbox(NODES, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    stream::iter(&nodes).for_each_concurrent(16, |node| in_maintenance(&cluster, node)).await;
    // An owner that is there: pods of any other are garbage, and collected.
    let uid = cluster.node(&nodes[0]).await.metadata.uid.unwrap();
    let sandbox = cluster.sandbox().unwrap();
    sandbox.cluster().store.write(|state| {
        for number in 0..PODS_ON_NODE {
            state.put(&PODS, pod(&nodes[0], &uid, number));
        }
    });
    let mut passed = true;
    for (view, args) in [("fleet", vec!["watch"]), ("node", vec!["watch", &*nodes[0]])] {
        let kubeconfig = cluster.kubeconfig().to_str().unwrap();
        let dashboard =
            Terminal::run(&program_of_benchmark("kubectl-nm"), &args, &[("KUBECONFIG", kubeconfig)], 50, 160);
        dashboard.until_shown("live").await;
        if view == "node" {
            // What is measured is what it was to be: the last of all pods is there.
            dashboard.until_shown("front-6c4f9d-00000").await;
            dashboard.press("G");
            dashboard.until_shown(&format!("{:05}", PODS_ON_NODE - 1)).await;
        }
        tokio::time::sleep(SETTLE).await;
        let (begun, before) = (Instant::now(), processor_time(dashboard.process()));
        tokio::time::sleep(MEASURE).await;
        let used = processor_time(dashboard.process()).saturating_sub(before);
        let processor = 100.0 * used.as_secs_f64() / begun.elapsed().as_secs_f64();
        if view == "node" {
            let there = pods_on(&cluster.client, &nodes[0]).await.len();
            assert!(there >= PODS_ON_NODE, "only {there} pods are on the node");
        }
        let (now, peak) = (memory(dashboard.process(), "VmRSS"), memory(dashboard.process(), "VmHWM"));
        println!(
            "{view:6} idle {processor:5.2}% of a core (at most {MOST_PROCESSOR}%), {now:5.1} MiB \
             (at most {MOST_MEBIBYTES}), {peak:5.1} MiB at its peak"
        );
        passed &= processor <= MOST_PROCESSOR && now <= MOST_MEBIBYTES;
    }
    println!("{}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A maintenance as it is in the middle of a drain with some pods blocked.
async fn in_maintenance(cluster: &Cluster, node: &str) {
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
        "podCounts": {"evicting": 7, "terminating": 10, "blocked": 3, "gone": 20, "skipped": 5},
    }});
    let params = PatchParams::default();
    cluster.maintenances().patch_status(node, &params, &Patch::Merge(&status)).await.unwrap();
}

/// A pod as large as those of a real cluster.
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

/// The processor time that a process has used so far.
fn processor_time(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name, in parentheses, may contain spaces; user and system time are the 14th and 15th field of all.
    let (_, fields) = text.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    // Linux counts in hundredths of a second for programs, whatever it does itself.
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// A figure of a process's memory, in mebibytes.
fn memory(process: u32, figure: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(figure)).unwrap();
    let kibibytes: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    f64::from(kibibytes) / 1024.0
}
