//! How often pods move while a whole pool is rolled: by a loop over `kubectl drain`, by `kubectl nm roll`, and at least.
//!
//! `cargo bench -p nm-tests --bench moves` rolls each pool twice, from the same start, and prints a table. A pod that is
//! created after the start is a move: it replaces one that was evicted. Words after `--` select: `one-zone` (8 nodes) or
//! `three-zones` (12 nodes); `plain`, `spread` or `anti-affinity` pods; `free30`, `free10`, `spare` (30% free, and an empty
//! node that is not rolled) or `uneven` (30% free, and the last node of the pool is empty); `kubectl` or `roll`. [`pool`] describes the pools, [`bound`] the least number of moves, and
//! [`rolls`] the two programs.
//!
//! Each roll has a sandbox of its own, whose scheduler knows neither topology spread nor anti-affinity, so that all pods are
//! plain there. If `NM_E2E_KUBECONFIG` names a cluster, its scheduler places the pods; the cluster needs 13 nodes of the
//! same size. The benchmark fails if a roll does not finish.

#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
// The benchmark panics where it cannot measure.
#![allow(clippy::unwrap_used)]

mod fewest_moves;
mod pool;
mod rolls;

use std::process::ExitCode;

use futures::{StreamExt, stream};
use nm_tests::skip::has_kubectl;

use crate::pool::{Constraint, Free, Scenario, Shape};
use crate::rolls::{Counts, Program};

/// How many sandboxes run at the same time.
const CONCURRENT: usize = 3;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let groups = [&Shape::NAMES[..], &Constraint::NAMES, &Free::NAMES, &Program::NAMES];
    if let Some(word) = words.iter().find(|word| !groups.concat().contains(&word.as_str())) {
        println!("{word}: choose among {}", groups.concat().join(", "));
        return ExitCode::from(2);
    }
    let wanted = |name: &str, group: &[&str]| {
        let mut chosen = words.iter().filter(|word| group.contains(&word.as_str())).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    };
    let is_shared = std::env::var_os("NM_E2E_KUBECONFIG").is_some();
    let has_kubectl = has_kubectl();
    let scenarios: Vec<Scenario> = Scenario::all()
        .filter(|scenario| is_shared || scenario.constraint == Constraint::Plain)
        .filter(|scenario| scenario.names().iter().zip(groups).all(|(name, group)| wanted(name, group)))
        .collect();
    println!(
        "| pool | constraint | free | pods | least moves | of `kubectl drain` in a loop | of `kubectl nm roll` |"
    );
    println!("|---|---|---|---|---|---|---|");
    let runs = scenarios.into_iter().map(async |scenario| {
        let mut cells = Vec::new();
        let mut start = None;
        for program in [Program::Kubectl, Program::Roll] {
            if !wanted(program.name(), &Program::NAMES) || (program == Program::Kubectl && !has_kubectl) {
                cells.push(String::from("not measured"));
                continue;
            }
            let counts = rolls::measure(scenario, program).await;
            cells.push(cell(&counts));
            start = Some((counts.pods, counts.least));
        }
        let (pods, least) = start.unwrap_or_default();
        let [shape, constraint, free] = scenario.names();
        format!(
            "| {shape} | {constraint} | {free} | {pods} | {least} ({:.3} per pod) | {} |",
            ratio(least, pods),
            cells.join(" | ")
        )
    });
    let mut lines = stream::iter(runs).buffered(if is_shared { 1 } else { CONCURRENT });
    while let Some(line) = lines.next().await {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn cell(counts: &Counts) -> String {
    let Counts { pods, least, moves } = *counts;
    format!("{moves} ({:.3} per pod, {:.2} times the least)", ratio(moves, pods), ratio(moves, least))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}
