//! How fast nodes are drained by nm-reconciler and by `kubectl drain`, compared with a lower bound, the floor.
//!
//! `cargo bench -p nm-tests --bench drain` measures everything. Words after `--` select: `one`, `ten` or `fifty` nodes,
//! `free` or `budgets`, and `floor`, `reconciler` or `kubectl`. They take turns for `NM_DRAIN_ROUNDS` rounds, because the
//! speed of a machine changes from minute to minute. Each drain times out after `NM_DRAIN_LIMIT` seconds. The benchmark
//! asserts only that the floor and the reconciler evicted every pod.
//!
//! Each drain has a sandbox of its own. If `NM_E2E_KUBECONFIG` names a cluster, all drain the same nodes of that one, and
//! the pods are gathered onto these nodes before each drain: `NM_DRAIN_NODES` nodes with `NM_DRAIN_PODS` pods each.
//!
//! [`scenario`] and [`gathered`] describe what is drained, [`floor`] the lower bound, [`contenders`] the two programs, and [`observer`] how
//! the times are measured.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// The benchmark panics where it cannot measure.
#![allow(clippy::unwrap_used)]

mod contenders;
mod floor;
mod gathered;
mod observer;
mod pod_watch;
mod route;
mod run;
mod scenario;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use nm_tests::skip::has_kubectl;

use crate::gathered::GatheredPods;
use crate::scenario::{PreparedCluster, Scenario, number};

/// Seconds. `kubectl drain` sends about ten requests a second, so fifty nodes take longer.
const LIMIT: u64 = 300;
const ROUNDS: u64 = 1;
/// Milliseconds that the pods of the cluster of `NM_E2E_KUBECONFIG` take to terminate, where they ignore the signal.
const SHARED_ENDS: u64 = 1_000;

const FLOOR: &str = "floor";
const RECONCILER: &str = "reconciler";
const KUBECTL: &str = "kubectl";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str, among: &[&str]| {
        let mut chosen = words.iter().filter(|word| among.contains(&word.as_str())).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    };
    let is_shared = std::env::var_os("NM_E2E_KUBECONFIG").is_some();
    let all = if is_shared { Vec::new() } else { Scenario::all() };
    let sizes: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    let contenders = [FLOOR, RECONCILER, KUBECTL];
    let known: Vec<&str> =
        sizes.iter().copied().chain(["free", "budgets"]).filter(|_| !is_shared).chain(contenders).collect();
    if let Some(word) = words.iter().find(|word| !known.contains(&word.as_str())) {
        println!("{word}: choose among {}", known.join(", "));
        return ExitCode::from(2);
    }
    let drains = Drains {
        limit: Duration::from_secs(number("NM_DRAIN_LIMIT", LIMIT)),
        rounds: number("NM_DRAIN_ROUNDS", ROUNDS),
        floor: wanted(FLOOR, &contenders),
        reconciler: wanted(RECONCILER, &contenders),
        kubectl: wanted(KUBECTL, &contenders) && has_kubectl(),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    table::print_environment(drains.kubectl);
    let complete = runtime.block_on(async {
        if is_shared {
            let size = |name, otherwise| usize::try_from(number(name, otherwise)).unwrap();
            let ends = Duration::from_millis(number("NM_DRAIN_ENDS", SHARED_ENDS));
            let pods =
                GatheredPods::create(size("NM_DRAIN_NODES", 10), size("NM_DRAIN_PODS", 150), ends).await;
            table::print_scenario("shared", pods.drained.len(), pods.pods, false);
            return drains.run(false, async || pods.gather().await).await;
        }
        let mut complete = true;
        for scenario in all {
            let kind = if scenario.budgets { "budgets" } else { "free" };
            if wanted(scenario.name, &sizes) && wanted(kind, &["free", "budgets"]) {
                let Scenario { name, nodes, pods_per_node, budgets } = scenario;
                table::print_scenario(name, nodes, nodes * pods_per_node, budgets);
                complete &= drains.run(budgets, async || scenario.prepare().await).await;
            }
        }
        complete
    });
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The drains of one scenario.
struct Drains {
    limit: Duration,
    rounds: u64,
    floor: bool,
    reconciler: bool,
    kubectl: bool,
}

impl Drains {
    /// Runs and prints them. Returns whether the floor and the reconciler evicted every pod.
    async fn run(&self, budgets: bool, prepare: impl AsyncFn() -> PreparedCluster) -> bool {
        let limit = self.limit;
        let (mut complete, mut least, mut ratios) = (true, None, Vec::new());
        for _ in 0..self.rounds {
            if self.floor {
                let run = floor::drain(&prepare().await, budgets, limit).await;
                complete &= run.left == 0;
                least = run.wall;
                table::print_run(FLOOR, &run, least, limit);
            }
            if self.reconciler {
                let run = contenders::reconciler(&prepare().await, limit).await;
                complete &= run.left == 0 && run.reported.is_some();
                ratios.extend(run.ratio_to(least));
                table::print_run("nm-reconciler", &run, least, limit);
                table::print_details(&run);
            }
            if self.kubectl {
                let run = contenders::kubectl(&prepare().await, limit).await;
                table::print_run("kubectl drain", &run, least, limit);
            }
        }
        table::print_median("nm-reconciler", ratios);
        complete
    }
}
