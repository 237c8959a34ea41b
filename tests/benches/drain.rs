//! How fast nodes are drained by nm-reconciler and by `kubectl drain`, compared with a lower bound, the floor.
//!
//! `cargo bench -p nm-tests --bench drain` measures everything. Words after `--` select: `one`, `ten` or `fifty` nodes,
//! `free` or `budgets`, and `floor`, `reconciler` or `kubectl`. The floor and the reconciler take turns for
//! `NM_DRAIN_ROUNDS` rounds, because the speed of a machine changes from minute to minute. `kubectl drain`, which takes
//! minutes, has one round. Each drain times out after `NM_DRAIN_LIMIT` seconds. The benchmark asserts only that the floor and
//! the reconciler evicted every pod.
//!
//! [`scenario`] describes what is drained, [`floor`] the lower bound, [`contenders`] the two programs, and [`observer`] how
//! the times are measured.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// The benchmark panics where it cannot measure.
#![allow(clippy::unwrap_used)]

mod contenders;
mod floor;
mod observer;
mod pod_watch;
mod run;
mod scenario;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use nm_tests::skip::has_kubectl;

use crate::run::Run;
use crate::scenario::Scenario;

/// Seconds. `kubectl drain` sends about ten requests a second, so fifty nodes take longer.
const LIMIT: u64 = 300;
const ROUNDS: u64 = 1;

const FLOOR: &str = "floor";
const RECONCILER: &str = "reconciler";
const KUBECTL: &str = "kubectl";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str, among: &[&str]| {
        let mut chosen = words.iter().filter(|word| among.contains(&word.as_str())).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    };
    let all = Scenario::all();
    let sizes: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    let contenders = [FLOOR, RECONCILER, KUBECTL];
    let known = |word: &String| {
        sizes.contains(&word.as_str())
            || contenders.contains(&word.as_str())
            || ["free", "budgets"].contains(&word.as_str())
    };
    if let Some(word) = words.iter().find(|word| !known(word)) {
        println!("{word}: choose among {}, free, budgets, {}", sizes.join(", "), contenders.join(", "));
        return ExitCode::from(2);
    }
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (limit, rounds) =
        (Duration::from_secs(number("NM_DRAIN_LIMIT", LIMIT)), number("NM_DRAIN_ROUNDS", ROUNDS));
    let with_kubectl = wanted(KUBECTL, &contenders) && has_kubectl();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    table::print_environment(with_kubectl);
    let mut complete = true;
    for scenario in all {
        let kind = if scenario.budgets { "budgets" } else { "free" };
        if !wanted(scenario.name, &sizes) || !wanted(kind, &["free", "budgets"]) {
            continue;
        }
        table::print_scenario(&scenario);
        let mut least = None;
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            if wanted(FLOOR, &contenders) {
                let run = runtime.block_on(async {
                    floor::drain(&scenario.prepare().await, scenario.budgets, limit).await
                });
                complete &= run.left == 0;
                least = run.wall;
                table::print_run(FLOOR, &run, least, limit);
            }
            if wanted(RECONCILER, &contenders) {
                let run: Run = runtime
                    .block_on(async { contenders::reconciler(&scenario.prepare().await, limit).await });
                complete &= run.left == 0 && run.reported.is_some();
                ratios.extend(run.ratio_to(least));
                table::print_run("nm-reconciler", &run, least, limit);
                table::print_details(&run);
            }
        }
        table::print_median("nm-reconciler", ratios);
        if with_kubectl {
            let run = runtime.block_on(async { contenders::kubectl(&scenario.prepare().await, limit).await });
            table::print_run("kubectl drain", &run, least, limit);
        }
    }
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
