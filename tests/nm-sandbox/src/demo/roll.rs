//! All nodes of a pool reboot, two at a time, one zone after the other.

use std::collections::BTreeSet;
use std::io;

use kube_sandbox::cluster::Cluster;
use kube_sandbox::registry::{self, Effect, Part};
use kube_sandbox::resource::NODES;
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::store::{Key, Object, State};
use kube_sandbox::workload::{App, Kind, node_name};
use serde_json::{Value, json};

use super::stage::{self, plugin, running};
use crate::kubeconfig_file::KubeconfigFile;
use crate::{output, programs};

const NODE_COUNT: usize = 6;

/// Plays the demo.
///
/// # Errors
/// When a program fails.
pub(super) async fn run() -> io::Result<()> {
    output::message(
        "Starting a cluster of six nodes in two zones with three apps, each with a disruption budget.",
    );
    let apps = [
        App::new(Kind::Deployment, "shop", "cart").replicas(3).budget(json!({"maxUnavailable": 1})),
        App::new(Kind::Deployment, "web", "front").replicas(12).budget(json!({"minAvailable": "75%"})),
        App::new(Kind::StatefulSet, "data", "db").replicas(3).budget(json!({"maxUnavailable": 1})),
    ];
    let sandbox = stage::start(NODE_COUNT, &["shop", "web", "data"], &apps).await?;
    let outcome = play(&sandbox).await;
    sandbox.stop().await;
    outcome
}

async fn play(sandbox: &Sandbox) -> io::Result<()> {
    let cluster = sandbox.cluster();
    for number in 1..=NODE_COUNT {
        let zone = if number <= NODE_COUNT / 2 { "zone-a" } else { "zone-b" };
        label(cluster, &node_name(number, NODE_COUNT), zone)?;
    }
    let kubeconfig = KubeconfigFile::write(None, &sandbox.kubeconfig())?;
    let boot_ids = cluster.store.read(boot_ids);
    let describe = |state: &State| {
        let rebooted = self::boot_ids(state).difference(&boot_ids).count();
        let schedulable = nodes(state).filter(|node| node["spec"]["unschedulable"] != true).count();
        format!("{schedulable} nodes are schedulable, {rebooted} have rebooted, {} pods run", running(state))
    };
    output::data(&format!("Before: {}", cluster.store.read(describe)))?;

    let _reconciler = programs::reconciler(kubeconfig.path())?;
    let roll = [
        "roll",
        "--selector",
        "pool=blue",
        "--max-unavailable",
        "2",
        "--run",
        "nm-sandbox reboot {} --downtime 4s",
        "--expect-reboot",
        "--min-ready",
        "2s",
        "--reason",
        "kernel 6.12",
        "--yes",
    ];
    plugin(kubeconfig.path(), &roll).await?;
    output::data(&format!("After:  {}", cluster.store.read(describe)))
}

fn nodes(state: &State) -> impl Iterator<Item = Object> {
    state.list(&NODES, None)
}

fn boot_ids(state: &State) -> BTreeSet<String> {
    nodes(state).map(|node| node["status"]["nodeInfo"]["bootID"].to_string()).collect()
}

/// Puts a node into the pool and into a zone.
fn label(cluster: &Cluster, node: &str, zone: &str) -> io::Result<()> {
    let nodes = cluster.catalog.of(&NODES).ok_or_else(|| io::Error::other("no nodes"))?;
    let labelled = cluster.store.write(|state| {
        let mut node = Value::clone(&state.get(&NODES, &Key::cluster(node)).unwrap_or_default());
        node["metadata"]["labels"]["pool"] = json!("blue");
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
        registry::update(state, &nodes, &node, Part::Main, Effect::Real)
    });
    labelled.map(|_| ()).map_err(io::Error::other)
}
