//! A roll of a whole sandbox that a Job in the cluster runs, while its programs and the API server crash, and what is true of
//! it all the same.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube_sandbox::controllers::kubelet::annotations::RUN_FOR;
use kube_sandbox::request_log::Entry;
use serde_json::json;

use crate::cluster::Cluster;
use crate::files::temp_file;
use crate::invariants::{NodeMarks, node_is_as_before, others_are_untouched};
use crate::pool_census::PoolCensus;
use crate::programs::plugin_build;
use crate::reconciler::Reconciler;
use crate::requests::is_by_reconciler;
use crate::runner_pods::{NAMESPACE, RunnerPods};
use crate::wait::wait_until;
use crate::workload::pod_spec;

/// The name of the roll.
const ROLL: &str = "pool";

/// The programs that take part.
pub struct Builds {
    /// `kubectl-nm`.
    pub plugin: PathBuf,
    /// `nm-reconciler`.
    pub reconciler: PathBuf,
}

/// What is rolled.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    /// Number of nodes.
    pub nodes: usize,
    /// Pods of workloads on each of them.
    pub pods_per_node: usize,
    /// How many nodes a wave has.
    pub wave: usize,
}

/// What crashes, and is back afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The program in the pod of the Job is killed. The Job replaces the pod.
    Runner,
    /// nm-reconciler is killed and started again.
    Reconciler,
    /// The API server is killed, and serves the same objects again after this time.
    ApiServer(Duration),
    /// All of them at the same time.
    All(Duration),
}

/// What a roll cost.
#[derive(Debug)]
pub struct Cost {
    /// Pods of workloads at the start.
    pub pods: usize,
    /// How many pods were created in place of others.
    pub moves: usize,
    /// The most nodes in maintenance at the same time.
    pub most_unavailable: usize,
    /// Pods of the Job that ran the roll.
    pub runner_pods: usize,
    /// Until the Job was complete.
    pub wall: Duration,
    /// Requests of the program in the cluster, by verb and resource.
    pub runner_requests: BTreeMap<String, usize>,
    /// Requests of nm-reconciler without evictions and events.
    pub reconciler_requests: usize,
    /// Evictions that the API server accepted, refused, and did not answer.
    pub evictions: (usize, usize, usize),
}

impl Cost {
    /// A row of a table: what was rolled, time, moves per pod, the most nodes at once, pods of the runner, requests per node of the
    /// runner and of nm-reconciler, and evictions that were accepted, refused and not answered.
    pub fn row(&self, name: &str, pool: Pool) -> String {
        let per = |count: usize, of: usize| {
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            let ratio = count as f64 / of as f64;
            ratio
        };
        let (accepted, refused, unanswered) = self.evictions;
        format!(
            "| {name} | {:.0} s | {:.3} | {} of {} | {} | {:.1} | {:.1} | {accepted}, {refused}, {unanswered} |",
            self.wall.as_secs_f64(),
            per(self.moves, self.pods),
            self.most_unavailable,
            pool.wave,
            self.runner_pods,
            per(self.runner_requests.values().sum(), pool.nodes),
            per(self.reconciler_requests, pool.nodes),
        )
    }
}

/// Rolls a new sandbox. The crashes are spread over the roll. Each pod leaves once, only from a node in maintenance; each node
/// has one maintenance and one Job; no wave is exceeded; and in the end each node is as it was before.
///
/// # Panics
///
/// If this is not true, or if the roll does not finish.
pub async fn roll(builds: &Builds, pool: Pool, crashes: &[Crash]) -> Cost {
    let cluster = Cluster::of_sandbox(pool.nodes, pool.nodes * pool.pods_per_node, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let before = nodes(&cluster).await;
    let mut reconciler = start_reconciler(builds, &cluster);
    RunnerPods::prepare(&cluster).await;
    let runner = RunnerPods::run_build(&cluster, builds.plugin.clone()).await;
    let mut census = PoolCensus::start(sandbox.cluster());
    sandbox.requests().clear();
    let (began, began_at) = (Instant::now(), Timestamp::now());
    begin(builds, &cluster, &before, pool.wave).await;
    for (at, crash) in crashes.iter().enumerate() {
        census.until_done((at + 1) * pool.nodes / (crashes.len() + 1)).await;
        if matches!(crash, Crash::Runner | Crash::All(_)) {
            runner.crash();
        }
        if matches!(crash, Crash::Reconciler | Crash::All(_)) {
            reconciler.crash().await;
            reconciler = start_reconciler(builds, &cluster);
        }
        if let Crash::ApiServer(away) | Crash::All(away) = *crash {
            sandbox.server_down().await;
            tokio::time::sleep(away).await;
            assert!(*crash != Crash::ApiServer(away) || runner.is_running(), "its pod waits");
            assert!(!reconciler.has_exited(), "nm-reconciler waits");
            sandbox.server_up().await.unwrap();
        }
    }
    census.until_done(pool.nodes).await;
    until_complete(&cluster).await;
    let wall = began.elapsed();

    let after = nodes(&cluster).await;
    let counts = census.counts();
    let once = |what: &str, all: &BTreeMap<String, usize>| {
        let other: Vec<_> = all.iter().filter(|(_, times)| **times != 1).collect();
        assert!(other.is_empty(), "{what} more than once: {other:?}");
        all.len()
    };
    assert_eq!(once("cordoned", &counts.cordoned), pool.nodes);
    assert_eq!(once("maintenances", &counts.maintenances), pool.nodes);
    assert_eq!(once("Jobs", &counts.actions), pool.nodes);
    assert_eq!(once("pods deleted", &counts.deleted), counts.created, "each pod that left has a replacement");
    assert!(counts.deleted_in_service.is_empty(), "{:?}", counts.deleted_in_service);
    assert!(counts.most_unavailable <= pool.wave, "{} at once", counts.most_unavailable);
    assert_eq!(counts.unavailable.len(), 0);
    for (before, after) in before.iter().zip(&after) {
        node_is_as_before(after, &NodeMarks::none()).unwrap();
        others_are_untouched(after, before).unwrap();
    }
    let log = sandbox.requests().all();
    let mut runner_requests = BTreeMap::new();
    let (mut reconciler_requests, mut evictions) = (0, (0, 0, 0));
    for entry in log.iter().filter(|entry| entry.at >= began_at) {
        if is_by_runner(entry) {
            *runner_requests.entry(format!("{} {}", entry.verb, entry.resource)).or_default() += 1;
        } else if is_by_reconciler(entry) && entry.subresource == "eviction" {
            match entry.code {
                201 => evictions.0 += 1,
                0 => evictions.2 += 1,
                _ => evictions.1 += 1,
            }
        } else if is_by_reconciler(entry) && entry.resource != "events" {
            reconciler_requests += 1;
        }
    }
    Cost {
        pods: pool.nodes * pool.pods_per_node,
        moves: counts.created,
        most_unavailable: counts.most_unavailable,
        runner_pods: runner.nodes().len(),
        wall,
        runner_requests,
        reconciler_requests,
        evictions,
    }
}

fn is_by_runner(entry: &Entry) -> bool {
    entry.user == format!("system:serviceaccount:{NAMESPACE}:nm-roll")
}

fn start_reconciler(builds: &Builds, cluster: &Cluster) -> Reconciler {
    let flags = ["--log-format", "text"];
    Reconciler::start_build(&cluster.reconciler_kubeconfig(), &builds.reconciler, &flags)
}

/// All nodes, by name.
async fn nodes(cluster: &Cluster) -> Vec<Node> {
    let mut nodes =
        Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await.unwrap().items;
    nodes.sort_by_key(ResourceExt::name_any);
    nodes
}

async fn begin(builds: &Builds, cluster: &Cluster, nodes: &[Node], wave: usize) {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {
        "metadata": {"annotations": {RUN_FOR: "100ms"}}, "spec": pod_spec(),
    }}});
    let job = temp_file(job.to_string());
    let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (wave, job) = (wave.to_string(), job.path().to_str().unwrap());
    let flags = ["--name", ROLL, "--waves", &wave, "--job", job, "--min-ready", "0s", "--yes", "--no-plan"];
    let runner = ["--in-cluster", "--runner-image", "nm:test"];
    let args = [&["roll"], names.as_slice(), &flags, &runner].concat();
    let _ = plugin_build(&builds.plugin, cluster, &args).await.ok();
}

async fn until_complete(cluster: &Cluster) {
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let is_complete = |job: Option<&Job>| {
        let status = job.and_then(|job| job.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    };
    wait_until(&jobs, &format!("nm-roll-{ROLL}"), "the Job is complete", is_complete).await;
}
