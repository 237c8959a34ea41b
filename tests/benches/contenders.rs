//! The programs that are compared: the built nm-reconciler, and the `kubectl` on `PATH`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use nm_shared::{NodeMaintenance, NodeMaintenanceSpec};
use nm_tests::probes::{get, sample, until_served};
use nm_tests::programs::{memory, program_of_benchmark};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until_all;
use tokio::process::Command;

use crate::observer::Observation;
use crate::run::{Requests, Run, Stopwatch};
use crate::scenario::PreparedCluster;

/// The events of each maintenance: its begin and its success.
const EVENTS_PER_NODE: usize = 2;
/// How long the last events may take after the last status.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Drains with maintenances that are created concurrently. The reconciler runs before that, without flags other than that of
/// its metrics, as it does in a cluster, and those of `NM_DRAIN_FLAGS`.
pub(crate) async fn reconciler(prepared: &PreparedCluster, limit: Duration) -> Run {
    let more = std::env::var("NM_DRAIN_FLAGS").unwrap_or_default();
    let flags = ["--metrics-addr", "127.0.0.1:0", "--log-format", "text"];
    let flags: Vec<&str> = flags.into_iter().chain(more.split_whitespace()).collect();
    let program = program_of_benchmark("nm-reconciler");
    let mut reconciler = Reconciler::start_build(&prepared.route.reconciler_kubeconfig, &program, &flags);
    let address = reconciler.metrics_address().await;
    until_served(address, "/metrics", |metrics| sample(metrics, "nm_leader") == Some(1.0)).await;
    until_served(address, "/readyz", |answer| answer.trim() == "ok").await;
    let before = get(address, "/metrics").await.1;
    let used = reconciler.processor_time();
    let watch = Stopwatch::start(prepared).await;
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
    let used = reconciler.processor_time().zip(used).map(|(now, before)| now.saturating_sub(before));
    let last_events = until_served(address, "/metrics", |metrics| {
        Requests::scraped(&before, metrics).created() >= EVENTS_PER_NODE * prepared.nodes.len()
    });
    let _ = tokio::time::timeout(LAST_EVENTS_TIMEOUT, last_events).await;
    let after = get(address, "/metrics").await.1;
    let mut run = watch.stop(prepared, "nm-reconciler/", observation);
    run.processor = used;
    run.peak_memory = memory(reconciler.pid(), "VmHWM");
    run.requests.get_or_insert_with(|| Requests::scraped(&before, &after));
    let params = DeleteParams::default();
    join_all(prepared.nodes.iter().map(|node| api.delete(node, &params))).await;
    wait_until_all(&api, watcher::Config::default(), "all nodes are in service", <[_]>::is_empty).await;
    reconciler.signal("TERM");
    reconciler.exit_code().await;
    run
}

/// Drains with one command for all nodes. The command is killed after `limit`.
pub(crate) async fn kubectl(prepared: &PreparedCluster, limit: Duration) -> Run {
    let watch = Stopwatch::start(prepared).await;
    let mut command = Command::new("kubectl");
    command
        .arg("drain")
        .args(&prepared.nodes)
        .args(["--ignore-daemonsets", "--delete-emptydir-data", "--force"])
        .env("KUBECONFIG", &prepared.route.kubeconfig)
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
