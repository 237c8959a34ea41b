//! How long the dashboard takes for a frame, and from a key to the frame that answers it, in a large cluster.
//!
//! `cargo bench -p kubectl-nm --bench dashboard`. The 99th percentile is to be at most 5 ms, of 100 that a frame may
//! take at ten frames a second.

#![allow(clippy::print_stdout, reason = "a benchmark prints its numbers")]

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kubectl_nm::bench::SimulatedDashboard;

/// How often each thing is done.
const TIMES: usize = 2000;

/// What the 99th percentile may be.
const MOST: Duration = Duration::from_millis(5);

fn main() -> io::Result<ExitCode> {
    let mut within = true;
    println!("{:<34} {:<22} {:>10} {:>10} {:>10}", "scene", "what", "p50", "p99", "worst");
    for (scene, nodes, pods) in
        [("fleet of 500 nodes", 500, 0), ("node of 10,000 pods, of 500 nodes", 500, 10_000)]
    {
        let mut workload = SimulatedDashboard::new(nodes, pods)?;
        workload.frame()?;
        let nothing: fn(&mut SimulatedDashboard) = |_| ();
        let what = [
            ("frame, nothing new", nothing, nothing),
            ("change to frame", SimulatedDashboard::prepare_change, SimulatedDashboard::apply_change),
            ("second to frame", nothing, SimulatedDashboard::tick),
            ("key to frame", nothing, SimulatedDashboard::key),
        ];
        for (what, before, happens) in what {
            let mut times = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                before(&mut workload);
                let begun = Instant::now();
                happens(&mut workload);
                workload.frame()?;
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            let (p50, p99, worst) = (times[TIMES / 2], times[TIMES * 99 / 100], times[TIMES - 1]);
            within &= p99 <= MOST;
            println!("{scene:<34} {what:<22} {p50:>10.1?} {p99:>10.1?} {worst:>10.1?}");
        }
    }
    println!("99th percentile at most {MOST:?}: {}", if within { "yes" } else { "NO" });
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
