//! A node goes into maintenance and returns to service.
//!
//! The demo plays two people: one starts a maintenance and watches it, the other scales a deployment whose disruption
//! budget blocks the drain. Both programs are the real ones, each in a process of its own.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube_sandbox::cluster::Cluster;
use kube_sandbox::registry::{self, Effect, Part};
use kube_sandbox::resource::{DEPLOYMENTS, NODES, PODS};
use kube_sandbox::sandbox::Sandbox;
use kube_sandbox::store::{Collection, Key, State};
use kube_sandbox::workload::{App, Kind};
use serde_json::{Value, json};

use super::stage::{self, plugin, until};
use crate::kubeconfig_file::KubeconfigFile;
use crate::{output, programs};

/// How long the budget blocks the drain, so that people can read it.
const BLOCKED_FOR: Duration = Duration::from_secs(4);

const NODE_COUNT: usize = 4;

/// Plays the demo.
///
/// # Errors
/// When a program fails.
pub(super) async fn run(record: Option<&Path>) -> io::Result<()> {
    output::message("Starting a cluster of four nodes with a shop, a web site and an agent on every node.");
    let apps = [
        App::new(Kind::Deployment, "shop", "cart").replicas(2).budget(json!({"minAvailable": 2})),
        App::new(Kind::Deployment, "web", "front").replicas(12),
    ];
    let sandbox = stage::start(NODE_COUNT, &["shop", "web"], &apps).await?;
    let outcome = play(&sandbox, record).await;
    sandbox.stop().await;
    outcome
}

async fn play(sandbox: &Sandbox, record: Option<&Path>) -> io::Result<()> {
    let cluster = sandbox.cluster();
    let kubeconfig = KubeconfigFile::write(None, &sandbox.kubeconfig())?;
    let node = until(cluster, node_of_the_cart).await;
    let before = cluster.store.read(|state| describe(state, &node));
    output::data(&format!("Before:  {before}"))?;

    let _reconciler = programs::reconciler(kubeconfig.path())?;
    let colleague = tokio::spawn(scale_cart_once_blocked(cluster.clone(), node.clone()));
    plugin(kubeconfig.path(), &["start", &node, "--reason", "a new kernel"]).await?;
    let record = record.map(|path| path.display().to_string());
    let mut watch = vec!["watch", &node, "--until", "drained"];
    watch.extend(record.iter().flat_map(|path| ["--record", path]));
    plugin(kubeconfig.path(), &watch).await?;
    colleague.await??;
    output::data(&format!("Drained: {}", cluster.store.read(|state| describe(state, &node))))?;

    plugin(kubeconfig.path(), &["stop", &node, "--wait"]).await?;
    let after = cluster.store.read(|state| describe(state, &node));
    output::data(&format!("After:   {after}"))
}

/// Waits until the budget blocks the drain, lets people read that, then adds the replica that unblocks it.
async fn scale_cart_once_blocked(cluster: Arc<Cluster>, node: String) -> io::Result<()> {
    let maintenances = Collection::named(nm_shared::api::names::GROUP, "nodemaintenances");
    until(&cluster, |state| {
        let maintenance = state.get(&maintenances, &Key::cluster(&*node))?;
        (maintenance["status"]["podCounts"]["blocked"].as_i64() > Some(0)).then_some(())
    })
    .await;
    tokio::time::sleep(BLOCKED_FOR).await;
    output::message("(Someone scales deployment shop/cart to 3, so its budget allows a disruption.)");
    let deployments = cluster.catalog.of(&DEPLOYMENTS).ok_or_else(|| io::Error::other("no deployments"))?;
    cluster
        .store
        .write(|state| {
            let cart = state.get(&DEPLOYMENTS, &Key::new("shop", "cart"));
            let mut cart = cart.map(|cart| Value::clone(&cart)).unwrap_or_default();
            cart["spec"]["replicas"] = json!(3);
            registry::update(state, &deployments, &cart, Part::Main, Effect::Real)
        })
        .map_err(io::Error::other)?;
    Ok(())
}

/// A node in one line: whether it is cordoned, its taints and the number of its pods.
fn describe(state: &State, name: &str) -> String {
    let node = state.get(&NODES, &Key::cluster(name)).unwrap_or_default();
    let schedulable = if node["spec"]["unschedulable"] == true { "cordoned" } else { "schedulable" };
    let taints: Vec<&str> = node["spec"]["taints"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|taint| taint["key"].as_str())
        .collect();
    let taints = if taints.is_empty() { "none".to_owned() } else { taints.join(", ") };
    let pods = state.on_node(&PODS, name).count();
    format!("{name} is {schedulable}, taints: {taints}, pods: {pods}")
}

fn node_of_the_cart(state: &State) -> Option<String> {
    let mut pods = state.list(&PODS, Some("shop"));
    pods.find_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
}
