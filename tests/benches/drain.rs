//! How fast nodes are drained: nm-reconciler beside the real `kubectl drain`, and both beside the floor.
//!
//! `cargo bench -p nm-tests --bench drain` measures all; words after `--` choose: `one`, `ten`, `fifty` by the number of
//! nodes, `free` or `budgets`, and `floor`, `reconciler` or `kubectl`. The floor and ours take turns for `NM_DRAIN_ROUNDS`
//! rounds, because machines are not alike from one minute to the next; `kubectl drain`, which takes minutes, has one. Each
//! drain is given up after `NM_DRAIN_LIMIT` seconds. Nothing is asserted but that every pod went, by the floor and by ours.
//!
//! Read [`scenario`] for what is drained, [`floor`] for what it is compared with, [`witness`] for how it is seen, and
//! [`contenders`] for how it is done.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// Whatever is not as it should be ends the benchmark.
#![allow(clippy::unwrap_used)]

mod contenders;
mod ends;
mod floor;
mod run;
mod scenario;
mod table;
mod witness;

use std::process::ExitCode;
use std::time::Duration;

use nm_tests::programs::has_kubectl;

use crate::run::Run;
use crate::scenario::Scenario;

/// `kubectl drain` sends some ten requests a second, and was at a tenth of fifty nodes after two minutes.
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
    table::print_surroundings(with_kubectl);
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
                let run = runtime
                    .block_on(async { floor::drain(&scenario.stand().await, scenario.budgets, limit).await });
                complete &= run.left == 0;
                least = run.wall;
                table::print_run(FLOOR, &run, least, limit);
            }
            if wanted(RECONCILER, &contenders) {
                let run: Run =
                    runtime.block_on(async { contenders::reconciler(&scenario.stand().await, limit).await });
                complete &= run.left == 0 && run.told.is_some();
                ratios.extend(run.ratio_to(least));
                table::print_run("nm-reconciler", &run, least, limit);
                table::print_details(&run);
            }
        }
        table::print_median("nm-reconciler", ratios);
        if with_kubectl {
            let run = runtime.block_on(async { contenders::kubectl(&scenario.stand().await, limit).await });
            table::print_run("kubectl drain", &run, least, limit);
        }
    }
    if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
