//! What many maintenances cost the reconciler, waiting in the queue or all at work.
//!
//! `cargo bench -p nm-tests --bench queue` puts `NM_QUEUE_MAINTENANCES` of `NM_QUEUE_NODES` nodes with `NM_QUEUE_PODS` pods
//! into maintenance under `--max-unavailable NM_QUEUE_LIMIT` (0 means without a limit), and prints memory, file descriptors
//! and processor time of the reconciler: before, at the beginning, while nothing happens, and for each of `NM_QUEUE_STEPS`
//! steps, in which as many nodes as the limit return to service and the next ones are drained. `NM_QUEUE_RECONCILER` names
//! another build of the reconciler.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

mod fleet;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::programs::{memory, program_of_benchmark};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by_reconciler;

use crate::fleet::{POLL_INTERVAL, drained, grow_pods, number};

/// How long nothing happens while that is measured.
const IDLE: Duration = Duration::from_secs(60);
/// How long the reconciler runs before its first figures.
const SETTLE: Duration = Duration::from_secs(3);

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
        let is_ours = |entry: &Entry| entry.at >= self.began_at && is_by_reconciler(entry);
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

#[tokio::main]
async fn main() {
    let (nodes, pods) = (number("NM_QUEUE_NODES", 1_000), number("NM_QUEUE_PODS", 30_000));
    let maintenances = number("NM_QUEUE_MAINTENANCES", 500);
    let (limit, steps) = (number("NM_QUEUE_LIMIT", 10), number("NM_QUEUE_STEPS", 2));
    let program = std::env::var_os("NM_QUEUE_RECONCILER")
        .map_or_else(|| program_of_benchmark("nm-reconciler"), PathBuf::from);
    let cluster = Cluster::of_sandbox(nodes, pods, |sandbox| sandbox).await;
    let names = cluster.nodes().await;
    grow_pods(&cluster, &names[..maintenances]).await;
    let limit_flag = format!("--max-unavailable={limit}");
    let flags: Vec<&str> = if limit == 0 { Vec::new() } else { vec![&limit_flag] };
    let reconciler = Reconciler::start_build(&cluster.reconciler_kubeconfig(), &program, &flags);
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
    fleet::begin(&cluster, &names[..maintenances]).await;
    let at_once = if limit == 0 { maintenances } else { limit };
    until_drained(&cluster, at_once).await;
    meter.print("the first are drained");
    for step in 0..steps.min(maintenances / at_once - 1) {
        let drained = until_drained(&cluster, at_once).await;
        fleet::end(&cluster, &drained).await;
        until_drained(&cluster, at_once).await;
        meter.print(&format!("step {}", step + 1));
    }
    tokio::time::sleep(IDLE).await;
    meter.print("until positions settle");
    tokio::time::sleep(IDLE).await;
    meter.print("while nothing happens");
}

/// The names of the maintenances whose nodes are drained, once there are `count`.
async fn until_drained(cluster: &Cluster, count: usize) -> Vec<String> {
    loop {
        let drained = drained(cluster);
        if drained.len() >= count {
            return drained.into_iter().collect();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
