//! Rolls a pool with one of the programs, and counts the moves.

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use nm_tests::programs::program_of_benchmark;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until_all;
use nm_tests::workload::Workload;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::pool::{Pool, Scenario};

/// A command that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(280);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `kubectl drain` and `kubectl uncordon`, node after node in the order of their names.
    Kubectl,
    /// `kubectl nm roll` with nm-reconciler.
    Roll,
}

impl Program {
    pub(crate) const NAMES: [&str; 2] = ["kubectl", "roll"];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// What is counted in a roll.
#[derive(Debug)]
pub(crate) struct Counts {
    /// The pods on the pool at the start.
    pub(crate) pods: usize,
    pub(crate) least: usize,
    pub(crate) moves: usize,
}

/// Rolls a new pool.
pub(crate) async fn measure(scenario: Scenario, program: Program) -> Counts {
    let pool = scenario.prepare().await;
    let counter = CreatedPods::count(&pool.workload).await;
    match program {
        Program::Kubectl => drain_in_a_loop(&pool).await,
        Program::Roll => roll(&pool).await,
    }
    let pods = pool.start.pods.len();
    let is_running = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    let all_running = |all: &[Pod]| all.len() == pods && all.iter().all(is_running);
    let api = pool.workload.pods();
    let last = wait_until_all(&api, watcher::Config::default(), "all pods run", all_running).await;
    let mut seen = counter.stop(last.iter().filter_map(ResourceExt::uid));
    for pod in &pool.start.pods {
        seen.remove(&pod.uid);
    }
    pool.clean_up().await;
    Counts { pods, least: pool.start.least_moves(), moves: seen.len() }
}

async fn drain_in_a_loop(pool: &Pool) {
    let kubeconfig = pool.cluster.kubeconfig();
    for node in pool.nodes() {
        let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data"];
        run(Path::new("kubectl"), kubeconfig, &drain).await;
        run(Path::new("kubectl"), kubeconfig, &["uncordon", node]).await;
    }
}

async fn roll(pool: &Pool) {
    let program = program_of_benchmark("nm-reconciler");
    let flags = ["--log-format", "text"];
    let reconciler = Reconciler::start_build(&pool.cluster.reconciler_kubeconfig(), &program, &flags);
    let flags = ["--run", "true", "--min-ready", "0s", "--max-unavailable", "1", "--yes"];
    let args = [&["roll"], pool.nodes().as_slice(), &flags].concat();
    run(&program_of_benchmark("kubectl-nm"), pool.cluster.kubeconfig(), &args).await;
    reconciler.crash().await;
}

async fn run(program: &Path, kubeconfig: &Path, args: &[&str]) {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(args).env("KUBECONFIG", kubeconfig).env("XDG_STATE_HOME", state.path());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(TIMEOUT, output).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{} {args:?}: {}\n{}{}",
        program.display(),
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The uids of all pods that were seen.
struct CreatedPods {
    seen: Arc<Mutex<HashSet<String>>>,
    watch: JoinHandle<()>,
}

impl CreatedPods {
    /// Watches the pods of a namespace.
    async fn count(workload: &Workload) -> Self {
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let client = workload.pods().into_client();
        let pods = Api::<PartialObjectMeta<Pod>>::namespaced(client, workload.namespace());
        let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
        let (listed, is_listed) = tokio::sync::oneshot::channel();
        let mut listed = Some(listed);
        let found = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            while let Ok(event) = events.try_next().await.transpose().unwrap() {
                match event {
                    watcher::Event::Init => {}
                    watcher::Event::InitDone => drop(listed.take()),
                    watcher::Event::InitApply(pod)
                    | watcher::Event::Apply(pod)
                    | watcher::Event::Delete(pod) => {
                        found.lock().unwrap().extend(pod.uid());
                    }
                }
            }
        });
        // The sender is dropped.
        let _: Result<(), _> = is_listed.await;
        Self { seen, watch }
    }

    /// All pods that were seen, and these.
    fn stop(self, last: impl Iterator<Item = String>) -> HashSet<String> {
        self.watch.abort();
        let mut seen = self.seen.lock().unwrap().clone();
        seen.extend(last);
        seen
    }
}
