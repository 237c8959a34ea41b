//! What a reconciler uses while something happens to its cluster, for the benchmark `growth`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::programs::{memory, program_of_benchmark};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by;

/// How long the reconciler has to be idle before it counts as done.
const QUIET: Duration = Duration::from_secs(2);

/// Below this share of a processor, it is idle: its watches are renewed all the time.
const IDLE_SHARE: f64 = 0.1;

/// How many kinds of requests are printed.
const PRINTED_KINDS: usize = 6;

/// Starts the reconciler to measure: that of this source, or the build that `NM_GROWTH_RECONCILER` names.
pub(crate) fn start(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let program = std::env::var_os("NM_GROWTH_RECONCILER")
        .map_or_else(|| program_of_benchmark("nm-reconciler"), PathBuf::from);
    Reconciler::start_build(&cluster.reconciler_kubeconfig(), &program, flags)
}

/// What a reconciler has used since this was made.
pub(crate) struct Meter<'a> {
    cluster: &'a Cluster,
    reconciler: &'a Reconciler,
    used: Duration,
}

impl<'a> Meter<'a> {
    /// Starts at once.
    pub(crate) fn new(cluster: &'a Cluster, reconciler: &'a Reconciler) -> Self {
        cluster.sandbox().unwrap().requests().clear();
        Self { cluster, reconciler, used: reconciler.processor_time().unwrap() }
    }

    /// Starts once the reconciler is quiet.
    pub(crate) async fn once_quiet(cluster: &'a Cluster, reconciler: &'a Reconciler) -> Self {
        until_quiet(cluster, reconciler).await;
        Self::new(cluster, reconciler)
    }

    /// Prints what was used until the reconciler is quiet again.
    pub(crate) async fn print_once_quiet(self, what: &str, size: usize) {
        until_quiet(self.cluster, self.reconciler).await;
        self.print(what, size);
    }

    /// Prints what was used.
    pub(crate) fn print(self, what: &str, size: usize) {
        let used = self.reconciler.processor_time().unwrap().saturating_sub(self.used);
        let pid = self.reconciler.pid();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for entry in self.cluster.sandbox().unwrap().requests().all().iter().filter(|entry| is_by(entry, pid))
        {
            *kinds.entry(kind(entry)).or_default() += 1;
        }
        println!(
            "{what} {size}: processor {:.2} s, {} requests, memory at most {} MiB",
            used.as_secs_f64(),
            kinds.values().sum::<usize>(),
            memory(pid, "VmHWM").unwrap() >> 20,
        );
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds: Vec<String> =
            kinds.iter().take(PRINTED_KINDS).map(|(kind, count)| format!("{count} {kind}")).collect();
        println!("      {}", kinds.join(", "));
    }
}

fn kind(entry: &Entry) -> String {
    let below = if entry.subresource.is_empty() { "" } else { "/" };
    format!("{} {}{below}{}", entry.verb, entry.resource, entry.subresource)
}

/// Waits until the reconciler neither computes nor sends requests, except to renew watches and leases.
async fn until_quiet(cluster: &Cluster, reconciler: &Reconciler) {
    let log = cluster.sandbox().unwrap().requests();
    let is_work =
        |entry: &Entry| is_by(entry, reconciler.pid()) && entry.verb != "watch" && entry.resource != "leases";
    let seen = || (reconciler.processor_time().unwrap(), log.count(is_work));
    loop {
        let ((used, requests), began) = (seen(), Instant::now());
        tokio::time::sleep(QUIET).await;
        let (used_then, requests_then) = seen();
        let used = used_then.saturating_sub(used);
        if requests == requests_then && used.as_secs_f64() < IDLE_SHARE * began.elapsed().as_secs_f64() {
            return;
        }
    }
}
