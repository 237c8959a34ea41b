//! The programs that drain: the built nm-reconciler, and the `kubectl` on PATH.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::PostParams;
use kube_sandbox::request_log::Entry;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::programs::program_of_benchmark;
use nm_tests::reconciler::Reconciler;
use tokio::process::Command;

use crate::run::{Run, Stopwatch};
use crate::scenario::Ground;
use crate::witness::Sight;

/// What the reconciler watches of the whole cluster, before anything is in maintenance.
const WATCHED: [&str; 6] = [
    "nodemaintenances",
    "customresourcedefinitions",
    "nodes",
    "daemonsets",
    "poddisruptionbudgets",
    "leases",
];
/// It says of each node that its maintenance begins, and that it succeeds.
const EVENTS_A_NODE: usize = 2;
/// Words after the last status.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Drains by maintenances, all created at once. The reconciler runs already, as it does in a cluster, and with the
/// flags that it is shipped with.
pub(crate) async fn reconciler(ground: &Ground, limit: Duration) -> Run {
    let log = ground.cluster.sandbox().unwrap().requests();
    let reconciler = Reconciler::of(&ground.cluster, &program_of_benchmark("nm-reconciler"));
    let ours = "nm-reconciler/";
    let watches = |entry: &Entry| entry.verb == "watch" && entry.user_agent.starts_with(ours);
    log.until(|log| {
        WATCHED.iter().all(|resource| log.count(|entry| watches(entry) && entry.resource == *resource) > 0)
    })
    .await;
    let watch = Stopwatch::start(ground);
    let api = ground.cluster.maintenances();
    let params = PostParams::default();
    join_all(ground.nodes.iter().map(|node| {
        let spec = NodeMaintenanceSpec { node_name: node.clone(), ..NodeMaintenanceSpec::default() };
        let (api, params) = (&api, &params);
        async move { api.create(params, &NodeMaintenance::new(node, spec)).await.unwrap() }
    }))
    .await;
    let over = |sight: &Sight| sight.all_gone.is_some() && sight.all_told.is_some();
    let sight = watch.witness.until(watch.left_of(limit), over).await;
    let used = reconciler.processor_time();
    let said = |entry: &Entry| {
        entry.verb == "create" && entry.resource == "events" && entry.user_agent.starts_with(ours)
    };
    let all_said = log.until(|log| log.count(said) >= EVENTS_A_NODE * ground.nodes.len());
    let _ = tokio::time::timeout(LAST_WORDS, all_said).await;
    let mut run = watch.stop(ground, ours, sight);
    run.processor = used;
    run
}

/// Drains as a person would, by one command for all nodes. When the time is over it is killed.
pub(crate) async fn kubectl(ground: &Ground, limit: Duration) -> Run {
    let watch = Stopwatch::start(ground);
    let mut command = Command::new("kubectl");
    command
        .arg("drain")
        .args(&ground.nodes)
        .args(["--ignore-daemonsets", "--delete-emptydir-data", "--force"])
        .env("KUBECONFIG", ground.cluster.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let exit = tokio::time::timeout(limit, child.wait()).await;
    let exited = exit.is_ok_and(|status| status.unwrap().success()).then(Instant::now);
    // Whatever it said, the witness has seen it by now.
    let sight = watch.witness.until(Duration::from_millis(200), |sight| sight.all_gone.is_some()).await;
    let mut run = watch.stop(ground, "kubectl", sight);
    run.told = exited.map(|at| at - watch.began);
    run
}
