//! What commands of the plugin cost in a large cluster, beside the commands of kubectl that people would use instead.
//!
//! `cargo bench -p nm-tests --bench commands` prints a table of 5,000 nodes with 150,000 pods, or of `NM_COMMANDS_NODES`
//! with 30 pods each: for each command, the median of its time, its requests, and the bytes that the API server sent, with
//! TLS. Both programs find what they have cached on disk, except in the rows that say otherwise.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// The benchmark panics where it cannot measure.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_drained};
use nm_tests::programs::program_of_benchmark;
use nm_tests::reconciler::Reconciler;
use nm_tests::relay::Relay;
use nm_tests::skip::has_kubectl;
use tokio::process::Command;

const PODS_PER_NODE: usize = 30;
/// How often each command is run.
const ROUNDS: usize = 5;

/// A command and the program that runs it.
struct Measured {
    program: PathBuf,
    args: Vec<String>,
    /// Whether nothing is cached on disk.
    is_first: bool,
}

#[tokio::main]
async fn main() {
    let nodes = std::env::var("NM_COMMANDS_NODES").map_or(5_000, |text| text.parse().unwrap());
    let plugin = program_of_benchmark("kubectl-nm");
    let cluster = Cluster::of_sandbox(nodes, nodes * PODS_PER_NODE, |sandbox| sandbox).await;
    let reconciler = program_of_benchmark("nm-reconciler");
    let flags = ["--metrics-addr", "127.0.0.1:0", "--log-format", "text"];
    let _reconciler = Reconciler::start_build(&cluster.reconciler_kubeconfig(), &reconciler, &flags);
    let names = cluster.nodes().await;
    start(&cluster, &names[0], &names[0]).await;
    until_drained(&cluster, &names[0]).await;

    println!("| command | time | requests | received |\n|---|---|---|---|");
    let other = names[1].as_str();
    let drain = ["--ignore-daemonsets", "--delete-emptydir-data", "--force"];
    let of_plugin: [&[&str]; 8] = [
        &["version", "--client"],
        &["status"],
        &["status", &names[0]],
        &["explain", &names[0]],
        &["plan", other],
        &["start", other, "--dry-run", "--yes"],
        &["start", other, "--dry-run=server", "--yes"],
        &["start", other, "--dry-run=server", "--yes", "--no-plan"],
    ];
    let of_kubectl: [&[&str]; 5] = [
        &["version", "--client"],
        &["get", "nodes"],
        &["get", "node", other],
        &[&["drain", other, "--dry-run=client"], &drain[..]].concat(),
        &[&["drain", other, "--dry-run=server"], &drain[..]].concat(),
    ];
    for args in of_plugin {
        for is_first in [false, true] {
            row(&cluster, Measured::new(&plugin, args, is_first)).await;
        }
    }
    if has_kubectl() {
        for args in of_kubectl {
            for is_first in [false, true] {
                row(&cluster, Measured::new(Path::new("kubectl"), args, is_first)).await;
            }
        }
    }
}

impl Measured {
    fn new(program: &Path, args: &[&str], is_first: bool) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { program: program.to_owned(), args, is_first }
    }

    /// Runs the command once, with a cache on disk in `home`.
    async fn run(&self, kubeconfig: &Path, home: &Path) -> Duration {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env("KUBECONFIG", kubeconfig).env("HOME", home).env_remove("XDG_CACHE_HOME");
        let began = Instant::now();
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let took = began.elapsed();
        assert!(
            output.status.code().is_some_and(|code| code < 2 || code == 3),
            "{:?}: {output:?}",
            self.args
        );
        took
    }
}

/// Prints the row of a command.
async fn row(cluster: &Cluster, measured: Measured) {
    let sandbox = cluster.sandbox().unwrap();
    let warm = tempfile::tempdir().unwrap();
    let relay = Relay::start(&sandbox.url()).await;
    let kubeconfig = warm.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.kubeconfig().replace(&sandbox.url(), &relay.url())).unwrap();
    if !measured.is_first {
        measured.run(&kubeconfig, warm.path()).await;
    }
    let sent = || sandbox.requests().count(|entry| entry.user_agent.starts_with("kubectl"));
    let received_before = relay.received().await;
    let requests_before = sent();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let cold = tempfile::tempdir().unwrap();
        let home = if measured.is_first { cold.path() } else { warm.path() };
        times.push(measured.run(&kubeconfig, home).await);
    }
    times.sort_unstable();
    let rounds = f64::from(u32::try_from(ROUNDS).unwrap());
    let per_round = |count: u64| f64::from(u32::try_from(count).unwrap()) / rounds;
    let requests = per_round(u64::try_from(sent() - requests_before).unwrap());
    let received = per_round(relay.received().await - received_before) / 1024.0;
    let name = measured.program.file_name().unwrap().to_string_lossy().replace("kubectl-nm", "kubectl nm");
    let first = if measured.is_first { ", without a cache" } else { "" };
    let (args, milliseconds) = (measured.args.join(" "), times[ROUNDS / 2].as_secs_f64() * 1e3);
    println!("| `{name} {args}`{first} | {milliseconds:.0} ms | {requests:.1} | {received:.0} KiB |");
}
