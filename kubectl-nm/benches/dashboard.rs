//! How long the dashboard takes to draw a frame in a large cluster, alone and after a change, a second or a key.
//!
//! `cargo bench -p kubectl-nm --bench dashboard`. The 99th percentile has to be at most 5 ms; at ten frames a second a
//! frame has 100 ms.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kubectl_nm::bench::SimulatedDashboard;

/// How often each step is measured.
const TIMES: usize = 2000;

/// The limit of the 99th percentile.
const LIMIT: Duration = Duration::from_millis(5);

fn main() -> io::Result<ExitCode> {
    let mut within = true;
    println!("{:<34} {:<22} {:>10} {:>10} {:>10}", "view", "step", "p50", "p99", "worst");
    for (view, nodes, pods) in
        [("fleet of 500 nodes", 500, 0), ("node of 10,000 pods, of 500 nodes", 500, 10_000)]
    {
        let mut dashboard = SimulatedDashboard::new(nodes, pods)?;
        dashboard.frame()?;
        let nothing: fn(&mut SimulatedDashboard) = |_| ();
        let steps = [
            ("frame without a change", nothing, nothing),
            ("change to frame", SimulatedDashboard::prepare_change, SimulatedDashboard::apply_change),
            ("second to frame", nothing, SimulatedDashboard::tick),
            ("key to frame", nothing, SimulatedDashboard::key),
        ];
        for (step, prepare, apply) in steps {
            let mut times = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                prepare(&mut dashboard);
                let started = Instant::now();
                apply(&mut dashboard);
                dashboard.frame()?;
                times.push(started.elapsed());
            }
            times.sort_unstable();
            let (p50, p99, worst) = (times[TIMES / 2], times[TIMES * 99 / 100], times[TIMES - 1]);
            within &= p99 <= LIMIT;
            println!("{view:<34} {step:<22} {p50:>10.1?} {p99:>10.1?} {worst:>10.1?}");
        }
    }
    println!("99th percentile at most {LIMIT:?}: {}", if within { "yes" } else { "NO" });
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
