//! How the reconciler's cost grows with the size of the cluster.
//!
//! `cargo bench -p nm-tests --bench scale` measures clusters of an eighth, a quarter, a half and all of `NM_SCALE_NODES` nodes
//! with `NM_SCALE_PODS` pods each, whose tenth node is put into maintenance, all at the same time: `free` without a limit, `limited`
//! with a `--max-unavailable` of a tenth of the maintenances, where each node returns to service as soon as it is drained.
//! Words after `--` select one of the two. It prints what each size costs, fits processor time and requests to the number of
//! pods moved, and fails if the reconciler requested all pods or exceeded its memory. `NM_SCALE_RECONCILER` names another
//! build of the reconciler.
#![allow(clippy::unwrap_used, reason = "a benchmark panics where it cannot measure")]
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

mod fleet;
mod least_squares;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::contention::slow_evictions;
use nm_tests::programs::{memory, program_of_benchmark};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, is_eviction};

use crate::fleet::{POLL_INTERVAL, drained, grow_pods, maintenances, number};
use crate::least_squares::Fit;

/// One of so many nodes is put into maintenance.
const MAINTENANCE_SHARE: usize = 10;
/// One of so many maintenances may be at work under a limit.
const LIMIT_SHARE: usize = 10;
const SIZES: [usize; 4] = [8, 4, 2, 1];
const MEMORY_LIMIT: u64 = 64 << 20;
/// How long the reconciler runs before the maintenances begin.
const SETTLE: Duration = Duration::from_secs(3);

/// What a size costs.
struct Run {
    nodes: usize,
    maintenances: usize,
    /// Evicted pods.
    moved: usize,
    wall: Duration,
    processor: Duration,
    /// By kind, evictions included.
    requests: BTreeMap<String, usize>,
    /// Bytes before the maintenances, and at most.
    memory: (u64, u64),
    descriptors: usize,
    /// Lists and watches of the pods of all nodes.
    lists_of_all_pods: usize,
}

impl Run {
    fn all_requests(&self) -> usize {
        self.requests.values().sum()
    }

    fn print(&self) {
        println!(
            "{:5} nodes, {:3} in maintenance: {:6} pods moved in {:6.1} s, processor {:6.2} s, {:6} requests ({:.3} per pod), \
             memory {} MiB at first, {} MiB at most, {} descriptors, {} lists of all pods",
            self.nodes,
            self.maintenances,
            self.moved,
            self.wall.as_secs_f64(),
            self.processor.as_secs_f64(),
            self.all_requests(),
            to_f64(self.all_requests()) / to_f64(self.moved),
            self.memory.0 >> 20,
            self.memory.1 >> 20,
            self.descriptors,
            self.lists_of_all_pods,
        );
        let mut kinds: Vec<_> = self.requests.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!("      {}", kinds.join(", "));
    }

    fn is_within_limits(&self) -> bool {
        self.memory.1 <= MEMORY_LIMIT && self.lists_of_all_pods == 0
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let program = std::env::var_os("NM_SCALE_RECONCILER")
        .map_or_else(|| program_of_benchmark("nm-reconciler"), PathBuf::from);
    let most = number("NM_SCALE_NODES", 5_000);
    let mut passed = true;
    for (mode, limited) in [("free", false), ("limited", true)] {
        if !words.is_empty() && !words.iter().any(|word| word == mode) {
            continue;
        }
        println!("{mode}");
        let mut runs = Vec::new();
        for part in SIZES {
            let run = measure(most / part, limited, &program).await;
            run.print();
            passed &= run.is_within_limits();
            runs.push(run);
        }
        let fit = |value: fn(&Run) -> f64| {
            Fit::of(&runs.iter().map(|run| (to_f64(run.moved), value(run))).collect::<Vec<_>>())
        };
        println!("processor time in ms: {}", fit(|run| run.processor.as_secs_f64() * 1e3));
        println!("requests:             {}", fit(|run| to_f64(run.all_requests())));
    }
    println!("{}", if passed { "PASS" } else { "FAIL" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(nodes: usize, limited: bool, program: &Path) -> Run {
    let pods = nodes * number("NM_SCALE_PODS", 30);
    let cluster = Cluster::of_sandbox(nodes, pods, |sandbox| sandbox).await;
    // Spread over the cluster.
    let names: Vec<String> = cluster.nodes().await.into_iter().step_by(MAINTENANCE_SHARE).collect();
    grow_pods(&cluster, &names).await;
    slow_evictions(cluster.sandbox().unwrap().faults());
    let limit_flag = format!("--max-unavailable={}", (names.len() / LIMIT_SHARE).max(1));
    let flags: &[&str] = if limited { &[&limit_flag] } else { &[] };
    let reconciler = Reconciler::start_build(&cluster.reconciler_kubeconfig(), program, flags);
    tokio::time::sleep(SETTLE).await;
    let pid = reconciler.pid();
    let resident = memory(pid, "VmRSS").unwrap();
    let (began, began_at, used) = (Instant::now(), Timestamp::now(), reconciler.processor_time().unwrap());
    fleet::begin(&cluster, &names).await;
    let descriptors = drain_all(&cluster, &names, limited, pid).await;
    let log = cluster.sandbox().unwrap().requests().all();
    let ours: Vec<&Entry> = log.iter().filter(|entry| is_by_reconciler(entry)).collect();
    let mut requests = BTreeMap::new();
    for entry in ours.iter().filter(|entry| entry.at >= began_at) {
        let below = if entry.subresource.is_empty() { "" } else { "/" };
        let kind = format!("{} {}{below}{}", entry.verb, entry.resource, entry.subresource);
        *requests.entry(kind).or_default() += 1;
    }
    Run {
        nodes,
        maintenances: names.len(),
        moved: ours.iter().filter(|entry| is_eviction(entry) && entry.code == 201).count(),
        wall: began.elapsed(),
        processor: reconciler.processor_time().unwrap().saturating_sub(used),
        requests,
        memory: (resident, memory(pid, "VmHWM").unwrap()),
        descriptors,
        lists_of_all_pods: ours.iter().filter(|entry| is_for_all_pods(entry)).count(),
    }
}

/// Waits until all nodes are drained, and returns them to service at once if the number of unavailable nodes is limited.
/// Returns the most file descriptors seen.
async fn drain_all(cluster: &Cluster, names: &[String], limited: bool, pid: u32) -> usize {
    let (mut ended, mut descriptors) = (HashSet::new(), 0);
    loop {
        let now = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        descriptors = descriptors.max(now);
        let newly: Vec<String> = drained(cluster).into_iter().filter(|name| !ended.contains(name)).collect();
        if limited {
            fleet::end(cluster, &newly).await;
        }
        ended.extend(newly);
        if ended.len() == names.len() && (!limited || maintenances(cluster).is_empty()) {
            return descriptors;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Whether this is a list or a watch of pods that is not limited to a node.
fn is_for_all_pods(entry: &Entry) -> bool {
    matches!(entry.verb, "list" | "watch")
        && entry.resource == "pods"
        && !entry.field_selector.contains("spec.nodeName=")
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn to_f64(count: usize) -> f64 {
    count as f64
}
