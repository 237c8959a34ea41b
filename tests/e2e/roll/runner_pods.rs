//! In place of a container runtime: runs the plugin for each pod of the Jobs that run rolls in the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, watcher};
use kube_sandbox::controllers::kubelet::annotations::{LOG, RUN_FOR};
use nm_tests::cluster::Cluster;
use nm_tests::programs::program;
use nm_tests::wait::wait_until_none;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The namespace of the Jobs.
pub(super) const NAMESPACE: &str = "node-maintenance-rolls";

/// Runs the containers of the pods until it is dropped.
pub(super) struct RunnerPods {
    task: JoinHandle<()>,
    /// The nodes on which a pod has run, in order.
    nodes: watch::Receiver<Vec<String>>,
}

impl Drop for RunnerPods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The service account of the pods.
pub(super) fn service_account() -> ServiceAccount {
    let (name, namespace) = (Some(String::from("nm-roll")), Some(String::from(NAMESPACE)));
    ServiceAccount {
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        ..ServiceAccount::default()
    }
}

impl RunnerPods {
    /// Sets the cluster up to run rolls, and runs their pods with the service account of the manifests.
    pub(super) async fn start(cluster: &Cluster) -> Self {
        Self::prepare(cluster).await;
        Self::run(cluster).await
    }

    /// Sets the cluster up to run rolls.
    pub(super) async fn prepare(cluster: &Cluster) {
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
    pub(super) async fn run(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.kubeconfig_of(&service_account()).await;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let (sender, nodes) = watch::channel(Vec::new());
        let ends_actions = !cluster.is_sandbox();
        Self { task: tokio::spawn(run(pods, kubeconfig, ends_actions, sender)), nodes }
    }

    /// The nodes on which a pod has run so far, in order.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.nodes.borrow().clone()
    }

    /// Waits until so many pods have run.
    pub(super) async fn until(&mut self, pods: usize) -> Vec<String> {
        self.nodes.wait_for(|nodes| nodes.len() >= pods).await.unwrap().clone()
    }
}

/// Hollow nodes do not end the pods of Jobs either: with `ends_actions`, those that a sandbox ends by itself.
async fn run(pods: Api<Pod>, kubeconfig: PathBuf, ends_actions: bool, nodes: watch::Sender<Vec<String>>) {
    let mut ends: BTreeMap<String, watch::Sender<bool>> = BTreeMap::new();
    let mut changes = watcher(pods.clone(), Config::default()).touched_objects().boxed();
    while let Some(change) = changes.next().await {
        let Ok(pod) = change else { continue };
        let uid = pod.uid().unwrap();
        let status = pod.status.clone().unwrap_or_default();
        if !pod.labels().contains_key("kubectl-nm.dev/roll-runner") {
            let ends = ends_actions && pod.annotations().contains_key(RUN_FOR);
            if ends && status.phase.as_deref() == Some("Running") {
                let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &ended).await;
            }
            continue;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if let Some(end) = ends.get(&uid) {
                end.send_replace(true);
            }
        } else if status.phase.as_deref() == Some("Running") && !ends.contains_key(&uid) {
            let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
            nodes.send_modify(|nodes| nodes.push(node));
            let (sender, receiver) = watch::channel(false);
            ends.insert(uid, sender);
            tokio::spawn(container(pods.clone(), start(&kubeconfig, &pod), pod.name_any(), receiver));
        }
    }
}

/// Starts the container of a pod: the plugin, with its arguments and variables.
fn start(kubeconfig: &Path, pod: &Pod) -> Child {
    let spec = pod.spec.as_ref().unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.command.as_deref().unwrap_or_default(), ["/kubectl-nm"]);
    Command::new(program("kubectl-nm"))
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

/// Reports the log and the end of a container as its kubelet does, and ends it when its pod is deleted.
async fn container(pods: Api<Pod>, mut child: Child, name: String, mut is_deleted: watch::Receiver<bool>) {
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
    let logged = Patch::Merge(json!({"metadata": {"annotations": {LOG: log.await.unwrap()}}}));
    let ended = Patch::Merge(json!({"status": {"phase": phase}}));
    // A pod that was deleted may be gone.
    let _ = pods.patch(&name, &PatchParams::default(), &logged).await;
    let _ = pods.patch_status(&name, &PatchParams::default(), &ended).await;
}
