//! In place of a container runtime: runs the plugin for each pod of the Jobs that run rolls in the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, watcher};
use kube_sandbox::controllers::kubelet::annotations::{LOG, RUN_FOR};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::programs::{program, signal};
use crate::wait::wait_until_none;

/// The namespace of the Jobs.
pub const NAMESPACE: &str = "node-maintenance-rolls";

/// When a request is retried that an API server has not answered.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A container that was started.
#[derive(Debug, Clone)]
struct Container {
    node: String,
    process: u32,
    has_ended: bool,
}

/// Runs the containers of the pods until it is dropped.
pub struct RunnerPods {
    task: JoinHandle<()>,
    /// In the order of their starts.
    containers: watch::Receiver<Vec<Container>>,
}

impl Drop for RunnerPods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The service account of the pods.
pub fn service_account() -> ServiceAccount {
    account("nm-roll")
}

/// A service account in the namespace of the Jobs.
pub fn account(name: &str) -> ServiceAccount {
    let (name, namespace) = (Some(name.to_owned()), Some(NAMESPACE.to_owned()));
    ServiceAccount {
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        ..ServiceAccount::default()
    }
}

impl RunnerPods {
    /// Sets the cluster up to run rolls, and runs their pods with the service account of the manifests.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::prepare(cluster).await;
        Self::run(cluster).await
    }

    /// Sets the cluster up to run rolls.
    pub async fn prepare(cluster: &Cluster) {
        cluster.grant("roll").await;
        if !cluster.is_sandbox() {
            // Those of earlier tests.
            let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), NAMESPACE);
            jobs.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
            let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
            wait_until_none(&pods, "no pods of earlier Jobs").await;
        }
    }

    /// Runs the pods.
    pub async fn run(cluster: &Cluster) -> Self {
        Self::run_build(cluster, program("kubectl-nm")).await
    }

    /// Runs the pods with any build of the plugin.
    pub async fn run_build(cluster: &Cluster, program: PathBuf) -> Self {
        let kubeconfig = cluster.kubeconfig_of(&service_account()).await;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let (sender, containers) = watch::channel(Vec::new());
        let runtime = Runtime { pods, program, kubeconfig, ends_actions: !cluster.is_sandbox() };
        Self { task: tokio::spawn(runtime.run(sender)), containers }
    }

    /// The nodes on which a pod has run so far, in order.
    pub fn nodes(&self) -> Vec<String> {
        nodes_of(&self.containers.borrow())
    }

    /// Waits until so many pods have run.
    pub async fn until(&mut self, pods: usize) -> Vec<String> {
        let containers = self.containers.wait_for(|containers| containers.len() >= pods).await.unwrap();
        nodes_of(&containers)
    }

    /// Whether the newest container runs.
    pub fn is_running(&self) -> bool {
        self.containers.borrow().last().is_some_and(|container| !container.has_ended)
    }

    /// Kills the newest container with SIGKILL. Its Job replaces the pod. Returns how many pods have run so far.
    pub fn crash(&self) -> usize {
        let containers = self.containers.borrow();
        signal(containers.last().unwrap().process, "KILL");
        containers.len()
    }
}

fn nodes_of(containers: &[Container]) -> Vec<String> {
    containers.iter().map(|container| container.node.clone()).collect()
}

/// What runs the containers.
struct Runtime {
    pods: Api<Pod>,
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Hollow nodes do not end the pods of Jobs either: ends those that a sandbox ends by itself.
    ends_actions: bool,
}

impl Runtime {
    async fn run(self, containers: watch::Sender<Vec<Container>>) {
        let containers = Arc::new(containers);
        let mut ends: BTreeMap<String, watch::Sender<bool>> = BTreeMap::new();
        let mut changes = watcher(self.pods.clone(), Config::default()).touched_objects().boxed();
        while let Some(change) = changes.next().await {
            let Ok(pod) = change else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            let uid = pod.uid().unwrap();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let is_running = phase == Some("Running");
            if !pod.labels().contains_key("kubectl-nm.dev/roll-runner") {
                if self.ends_actions && is_running && pod.annotations().contains_key(RUN_FOR) {
                    report(&self.pods, &pod.name_any(), "Succeeded", None).await;
                }
                continue;
            }
            if pod.metadata.deletion_timestamp.is_some() {
                if let Some(end) = ends.get(&uid) {
                    end.send_replace(true);
                }
            } else if is_running && !ends.contains_key(&uid) {
                let child = start(&self.program, &self.kubeconfig, &pod);
                let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
                let process = child.id().unwrap();
                let (sender, receiver) = watch::channel(false);
                ends.insert(uid, sender);
                let container = Container { node, process, has_ended: false };
                containers.send_modify(|containers| containers.push(container));
                let (pods, containers) = (self.pods.clone(), Arc::clone(&containers));
                tokio::spawn(async move {
                    let (phase, log) = until_ended(child, receiver).await;
                    containers.send_modify(|containers| {
                        let ended = containers.iter_mut().filter(|container| container.process == process);
                        ended.for_each(|container| container.has_ended = true);
                    });
                    report(&pods, &pod.name_any(), phase, Some(log)).await;
                });
            }
        }
    }
}

/// Starts the container of a pod: the plugin, with its arguments and variables.
fn start(program: &Path, kubeconfig: &Path, pod: &Pod) -> Child {
    let spec = pod.spec.as_ref().unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.command.as_deref().unwrap_or_default(), ["/kubectl-nm"]);
    Command::new(program)
        .args(container.args.as_deref().unwrap_or_default())
        .env("KUBECONFIG", kubeconfig)
        .env("NM_POD", pod.name_any())
        .env("NM_JOB_UID", &pod.labels()["batch.kubernetes.io/controller-uid"])
        .env("NM_RUNNER_NODE", spec.node_name.as_deref().unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Waits for the end of a container, and ends it when its pod is deleted. Returns the phase of the pod, and the log.
async fn until_ended(mut child: Child, mut is_deleted: watch::Receiver<bool>) -> (&'static str, String) {
    let mut stdout = child.stdout.take().unwrap();
    let log = tokio::spawn(async move {
        let mut log = String::new();
        stdout.read_to_string(&mut log).await.map(|_| log).unwrap()
    });
    let deleted = async {
        // The sender outlives the pod, or the test is over.
        let _ = is_deleted.wait_for(|is_deleted| *is_deleted).await;
    };
    let ended = tokio::select! {
        ended = child.wait() => Some(ended),
        () = deleted => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        // It may have ended by itself meanwhile.
        let pid = child.id().unwrap().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).stderr(Stdio::null()).status().await.unwrap();
        child.wait().await
    };
    let phase = if ended.unwrap().success() { "Succeeded" } else { "Failed" };
    (phase, log.await.unwrap())
}

/// Writes the phase of a pod, and its log, as soon as the API server answers.
async fn report(pods: &Api<Pod>, name: &str, phase: &str, log: Option<String>) {
    let params = PatchParams::default();
    if let Some(log) = log {
        let logged = Patch::Merge(json!({"metadata": {"annotations": {LOG: log}}}));
        while is_unanswered(pods.patch(name, &params, &logged).await).await {}
    }
    let ended = Patch::Merge(json!({"status": {"phase": phase}}));
    while is_unanswered(pods.patch_status(name, &params, &ended).await).await {}
}

/// Whether there was no answer; returns after a while then. A refusal is an answer: a pod that was deleted may be gone.
async fn is_unanswered(answer: kube::Result<Pod>) -> bool {
    let is_unanswered = answer.is_err_and(|error| !matches!(error, kube::Error::Api(_)));
    if is_unanswered {
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    is_unanswered
}
