//! The programs that are compared: the built nm-reconciler, and the `kubectl` on `PATH`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::PostParams;
use kube_sandbox::request_log::Entry;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::programs::program_of_benchmark;
use nm_tests::reconciler::Reconciler;
use tokio::process::Command;

use crate::observer::Observation;
use crate::run::{Run, Stopwatch};
use crate::scenario::PreparedCluster;

/// The resources that the reconciler watches before any node is in maintenance.
const WATCHED: [&str; 6] = [
    "nodemaintenances",
    "customresourcedefinitions",
    "nodes",
    "daemonsets",
    "poddisruptionbudgets",
    "leases",
];
/// The events of each maintenance: its begin and its success.
const EVENTS_PER_NODE: usize = 2;
/// How long the last events may take after the last status.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Drains with maintenances that are created concurrently. The reconciler runs before that, without flags, as it does in a
/// cluster.
pub(crate) async fn reconciler(prepared: &PreparedCluster, limit: Duration) -> Run {
    let log = prepared.cluster.sandbox().unwrap().requests();
    let reconciler = Reconciler::start_build(&prepared.cluster, &program_of_benchmark("nm-reconciler"));
    let ours = "nm-reconciler/";
    let watches = |entry: &Entry| entry.verb == "watch" && entry.user_agent.starts_with(ours);
    log.until(|log| {
        WATCHED.iter().all(|resource| log.count(|entry| watches(entry) && entry.resource == *resource) > 0)
    })
    .await;
    let watch = Stopwatch::start(prepared);
    let api = prepared.cluster.maintenances();
    let params = PostParams::default();
    join_all(prepared.nodes.iter().map(|node| {
        let spec = NodeMaintenanceSpec { node_name: node.clone(), ..NodeMaintenanceSpec::default() };
        let (api, params) = (&api, &params);
        async move { api.create(params, &NodeMaintenance::new(node, spec)).await.unwrap() }
    }))
    .await;
    let is_over =
        |observation: &Observation| observation.all_gone.is_some() && observation.all_reported.is_some();
    let observation = watch.observer.until(watch.left_of(limit), is_over).await;
    let used = reconciler.processor_time();
    let is_event = |entry: &Entry| {
        entry.verb == "create" && entry.resource == "events" && entry.user_agent.starts_with(ours)
    };
    let all_logged = log.until(|log| log.count(is_event) >= EVENTS_PER_NODE * prepared.nodes.len());
    let _ = tokio::time::timeout(LAST_EVENTS_TIMEOUT, all_logged).await;
    let mut run = watch.stop(prepared, ours, observation);
    run.processor = used;
    run
}

/// Drains with one command for all nodes. The command is killed after `limit`.
pub(crate) async fn kubectl(prepared: &PreparedCluster, limit: Duration) -> Run {
    let watch = Stopwatch::start(prepared);
    let mut command = Command::new("kubectl");
    command
        .arg("drain")
        .args(&prepared.nodes)
        .args(["--ignore-daemonsets", "--delete-emptydir-data", "--force"])
        .env("KUBECONFIG", prepared.cluster.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let exit = tokio::time::timeout(limit, child.wait()).await;
    let exited = exit.is_ok_and(|status| status.unwrap().success()).then(Instant::now);
    // After the command has exited, the observer has seen every deletion.
    let observation =
        watch.observer.until(Duration::from_millis(200), |observation| observation.all_gone.is_some()).await;
    let mut run = watch.stop(prepared, "kubectl", observation);
    run.reported = exited.map(|at| at - watch.began);
    run
}
