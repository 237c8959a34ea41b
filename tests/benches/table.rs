//! Prints the results.

use std::process::Command;
use std::time::Duration;

use crate::floor::connections;
use crate::route::faults;
use crate::run::Run;
use crate::scenario::termination_times;

/// Prints the machine and the versions: results depend on them.
pub(crate) fn print_environment(with_kubectl: bool) {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let profile = if cfg!(debug_assertions) { "without optimizations" } else { "optimized" };
    println!("{}, {processors} processors, load {}, {profile}", jiff::Timestamp::now(), load());
    if with_kubectl {
        let version = Command::new("kubectl").args(["version", "--client"]).output().unwrap();
        println!("kubectl: {}", String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or_default());
    }
    for name in ["NM_DRAIN_FLAGS", "NM_DRAIN_FLOW_SCHEMA"] {
        if let Ok(value) = std::env::var(name) {
            println!("{name}: {value}");
        }
    }
    let (delay, throttled) = faults();
    if !delay.is_zero() || throttled > 0 {
        println!(
            "Through a proxy that delays each request by {delay:?} and throttles {throttled}% of the evictions."
        );
    }
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        println!(
            "On the cluster of NM_E2E_KUBECONFIG. Without a proxy, request counts are those of nm-reconciler's own metrics."
        );
    } else {
        let (fastest, slowest) = termination_times();
        println!(
            "Pods terminate within {fastest} to {slowest} ms and start 1 s after they are bound, in deployments of 20."
        );
        println!("The programs share the processors with the sandbox that they drain.");
    }
}

/// Prints what is drained, and the header of the table.
pub(crate) fn print_scenario(name: &str, nodes: usize, pods: usize, budgets: bool) {
    let floor = if budgets {
        "a budget of 10% for each deployment; floor: evicts as soon as the budget allows it"
    } else {
        "no budgets; floor: all evictions at once"
    };
    let connections = connections();
    println!(
        "\n{name}: {nodes} nodes, {pods} pods, {floor}, over {connections} open connections (load {})",
        load()
    );
    println!(
        "{:<14} {:>11} {:>7} {:>11} {:>13} {:>15} {:>6} {:>10} {:>9}",
        "", "all gone", "x floor", "reported", "requests/pod", "evictions/pod", "429s", "processor", "memory"
    );
}

/// Prints a line of the table.
pub(crate) fn print_run(name: &str, run: &Run, floor: Option<Duration>, limit: Duration) {
    let gone = run.wall.map_or_else(|| format!("> {} s", limit.as_secs()), seconds);
    let times = run.ratio_to(floor).map(|ratio| format!("{ratio:.2}"));
    let requests = run.requests.as_ref();
    println!(
        "{name:<14} {gone:>11} {:>7} {:>11} {:>13} {:>15} {:>6} {:>10} {:>9}",
        times.unwrap_or_default(),
        run.reported.map(seconds).unwrap_or_default(),
        requests.map(|requests| format!("{:.3}", run.per_pod(requests.total))).unwrap_or_default(),
        requests.map(|requests| format!("{:.3}", run.per_pod(requests.accepted))).unwrap_or_default(),
        requests.map(|requests| requests.refused.to_string()).unwrap_or_default(),
        run.processor.map(seconds).unwrap_or_default(),
        run.peak_memory.map(|bytes| format!("{} MiB", bytes >> 20)).unwrap_or_default(),
    );
    if let Some((first, last)) = requests.and_then(|requests| requests.evicted_between) {
        println!("{:<14} sent evictions from {} to {}", "", seconds(first), seconds(last));
    }
    if run.left > 0 {
        println!("{:<14} {} of {} pods were gone by then", "", run.pods - run.left, run.pods);
    }
}

/// Prints the median of several rounds' ratios to the floor.
pub(crate) fn print_median(name: &str, mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    if let Some(median) = ratios.get(ratios.len() / 2).filter(|_| ratios.len() > 1) {
        println!("{name}: {median:.2} x floor at the median of {} rounds ({})", all.len(), all.join(", "));
    }
}

/// Prints what is measured of the reconciler only.
pub(crate) fn print_details(run: &Run) {
    let others = run.others_per_node();
    let kinds: Vec<String> = others.iter().map(|(kind, count)| format!("{count:.1} {kind}")).collect();
    let all: f64 = others.iter().map(|(_, count)| count).sum();
    println!("{:<14} other requests per node: {all:.1} ({})", "", kinds.join(", "));
    let mut lags = run.lags.clone();
    lags.sort_unstable();
    let share = |percent: usize| {
        let place = (lags.len() * percent).div_ceil(100).max(1) - 1;
        lags.get(place).map_or_else(String::new, |lag| format!("{} ms", lag.as_millis()))
    };
    println!(
        "{:<14} delay from a pod's deletion to the status: {} at the median, {} at the 95th percentile, {} at most, of {} pods",
        "",
        share(50),
        share(95),
        share(100),
        lags.len()
    );
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}
