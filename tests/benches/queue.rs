//! What many maintenances cost the reconciler, waiting in the queue or all at work.
//!
//! `cargo bench -p nm-tests --bench queue` puts `NM_QUEUE_MAINTENANCES` of `NM_QUEUE_NODES` nodes with `NM_QUEUE_PODS` pods
//! into maintenance under `--max-unavailable NM_QUEUE_LIMIT` (0 means without a limit), and prints memory, file descriptors
//! and processor time of the reconciler: before, at the beginning, while nothing happens, and for each of `NM_QUEUE_STEPS`
//! steps, in which as many nodes as the limit return to service and the next ones are drained. `NM_QUEUE_RECONCILER` names
//! another build of the reconciler.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube_sandbox::request_log::Entry;
use kube_sandbox::resource::PODS;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{memory, program_of_benchmark};
use nm_tests::reconciler::Reconciler;
use serde_json::json;

/// How long nothing happens while that is measured.
const IDLE: Duration = Duration::from_secs(60);
/// How long the reconciler runs before its first figures.
const SETTLE: Duration = Duration::from_secs(3);
/// How often progress is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The reconciler and the time since which it is measured.
struct Meter<'a> {
    cluster: &'a Cluster,
    reconciler: &'a Reconciler,
    began: Instant,
    began_at: Timestamp,
    used: Duration,
}

impl Meter<'_> {
    /// Prints what the reconciler has used since the last call.
    fn print(&mut self, what: &str) {
        let used = self.reconciler.processor_time().unwrap();
        let is_ours =
            |entry: &Entry| entry.at >= self.began_at && entry.user_agent.starts_with("nm-reconciler/");
        let log = self.cluster.sandbox().unwrap().requests();
        let requests = log.count(is_ours);
        let writes = log.count(|entry| is_ours(entry) && entry.subresource == "status");
        let pid = self.reconciler.pid();
        let mebibytes = |field| memory(pid, field).unwrap() >> 20;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        println!(
            "{what:24} {:7.2} s, processor {:6.2} s, memory {:4} MiB (peak {:4}), {descriptors} descriptors, \
             {requests} requests, {writes} of them status writes",
            self.began.elapsed().as_secs_f64(),
            used.saturating_sub(self.used).as_secs_f64(),
            mebibytes("VmRSS"),
            mebibytes("VmHWM"),
        );
        (self.began, self.began_at, self.used) = (Instant::now(), Timestamp::now(), used);
    }
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::main]
async fn main() {
    let (nodes, pods) = (number("NM_QUEUE_NODES", 1_000), number("NM_QUEUE_PODS", 30_000));
    let maintenances = number("NM_QUEUE_MAINTENANCES", 500);
    let (limit, steps) = (number("NM_QUEUE_LIMIT", 10), number("NM_QUEUE_STEPS", 2));
    let program = std::env::var_os("NM_QUEUE_RECONCILER")
        .map_or_else(|| program_of_benchmark("nm-reconciler"), PathBuf::from);
    let cluster = Cluster::of_sandbox(nodes, pods, |sandbox| sandbox).await;
    grow_pods(&cluster).await;
    let limit_flag = format!("--max-unavailable={limit}");
    let flags: Vec<&str> = if limit == 0 { Vec::new() } else { vec![&limit_flag] };
    let reconciler = Reconciler::start_build(&cluster, &program, &flags);
    let mut meter = Meter {
        cluster: &cluster,
        reconciler: &reconciler,
        began: Instant::now(),
        began_at: Timestamp::now(),
        used: Duration::ZERO,
    };
    tokio::time::sleep(SETTLE).await;
    println!("{nodes} nodes, {pods} pods, {maintenances} maintenances, limit {limit}");
    meter.print("without maintenances");
    let names = cluster.nodes().await;
    stream::iter(&names[..maintenances]).for_each_concurrent(16, |node| create(&cluster, node)).await;
    let at_once = if limit == 0 { maintenances } else { limit };
    until_drained(&cluster, at_once).await;
    meter.print("the first are drained");
    for step in 0..steps.min(maintenances / at_once - 1) {
        let drained = until_drained(&cluster, at_once).await;
        stream::iter(&drained).for_each_concurrent(16, |name| delete(&cluster, name)).await;
        until_drained(&cluster, at_once).await;
        meter.print(&format!("step {}", step + 1));
    }
    tokio::time::sleep(IDLE).await;
    meter.print("until positions settle");
    tokio::time::sleep(IDLE).await;
    meter.print("while nothing happens");
}

/// Gives each pod what makes those of real clusters large: managed fields and variables.
async fn grow_pods(cluster: &Cluster) {
    let padding: Vec<_> =
        (0..20).map(|at| json!({"name": format!("SETTING_{at}"), "value": "x".repeat(40)})).collect();
    let fields: serde_json::Map<_, _> =
        (0..60).map(|at| (format!("f:setting-{at}"), json!({"f:name": {}, "f:value": {}}))).collect();
    let fields = json!([{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": fields}]);
    let store = &cluster.sandbox().unwrap().cluster().store;
    let all: Vec<_> = store.read(|state| state.list(&PODS, None).collect());
    for some in all.chunks(200) {
        store.write(|state| {
            for pod in some {
                let mut pod = (**pod).clone();
                pod["spec"]["containers"][0]["env"] = json!(padding);
                pod["metadata"]["managedFields"] = fields.clone();
                state.put(&PODS, pod);
            }
        });
        // The sandbox must not seem to hang.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn create(cluster: &Cluster, node: &str) {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    let object = NodeMaintenance::new(node, spec);
    cluster.maintenances().create(&PostParams::default(), &object).await.unwrap();
}

async fn delete(cluster: &Cluster, name: &str) {
    cluster.maintenances().delete(name, &DeleteParams::default()).await.unwrap();
}

/// The names of the maintenances whose nodes are drained, once there are `count`.
async fn until_drained(cluster: &Cluster, count: usize) -> Vec<String> {
    loop {
        let all = cluster.maintenances().list(&ListParams::default()).await.unwrap();
        let is_drained = |found: &&NodeMaintenance| {
            found.status.as_ref().and_then(|status| status.phase) == Some(Phase::Succeeded)
                && found.metadata.deletion_timestamp.is_none()
        };
        let drained: Vec<String> = all.iter().filter(is_drained).map(ResourceExt::name_any).collect();
        if drained.len() >= count {
            return drained;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
