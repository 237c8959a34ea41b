//! The cluster of a demo, and the person who types commands.

use std::io;
use std::path::Path;
use std::time::Duration;

use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::PODS;
use kube_sandbox::sandbox::{Options, Sandbox};
use kube_sandbox::store::State;
use kube_sandbox::workload::{App, seed_namespace};
use serde_json::{Value, json};

use crate::{output, programs};

/// Starts a cluster of so many nodes, with an agent on each and with these apps in new namespaces, and waits until all its
/// pods run.
pub(super) async fn start(nodes: usize, namespaces: &[&str], apps: &[App]) -> io::Result<Sandbox> {
    let (start_delay, stop_delay) = (Duration::from_millis(300), Duration::from_secs(1));
    let sandbox =
        Sandbox::start(Options { nodes, pods: 0, start_delay, stop_delay, ..Options::default() }).await?;
    let cluster = sandbox.cluster();
    sandbox.install_crd(json!(nm_shared::api::crd::crd())).map_err(io::Error::other)?;
    for namespace in namespaces {
        seed_namespace(cluster, namespace).map_err(io::Error::other)?;
    }
    for app in apps {
        app.create(cluster).map_err(io::Error::other)?;
    }
    let expected = nodes + apps.iter().map(|app| app.pods(nodes)).sum::<usize>();
    until(cluster, |state| (running(state) == expected).then_some(())).await;
    Ok(sandbox)
}

/// Prints `kubectl nm …` as a person would type it, and runs it.
pub(super) async fn plugin(kubeconfig: &Path, args: &[&str]) -> io::Result<()> {
    let typed: Vec<String> = args
        .iter()
        .map(|arg| if arg.contains(' ') { format!("'{arg}'") } else { (*arg).to_owned() })
        .collect();
    output::message(&format!("$ kubectl nm {}", typed.join(" ")));
    let mut child = programs::plugin(kubeconfig, args)?;
    let status = child.wait().await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("kubectl nm {}: {status}", args.join(" "))))
    }
}

/// The number of pods that run.
pub(super) fn running(state: &State) -> usize {
    state.list(&PODS, None).filter(|pod| is_running(pod)).count()
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Waits until `find` returns something.
pub(super) async fn until<R>(cluster: &Cluster, find: impl Fn(&State) -> Option<R>) -> R {
    let mut changes = cluster.store.subscribe();
    loop {
        changes.borrow_and_update();
        if let Some(result) = cluster.store.read(&find) {
            return result;
        }
        // This fails only when the cluster is dropped, and we hold a reference to it.
        let _ = changes.changed().await;
    }
}
