//! `nm-sandbox demo`: a node goes into maintenance and returns to service.
//!
//! The demo plays two people: one starts a maintenance and watches it, the other scales a deployment whose disruption
//! budget blocks the drain. Both programs are the real ones, each in a process of its own.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube_sandbox::cluster::Cluster;
use kube_sandbox::registry::{self, Effect, Part};
use kube_sandbox::resource::{DEPLOYMENTS, NODES, PODS};
use kube_sandbox::sandbox::{Options, Sandbox};
use kube_sandbox::store::{Collection, Key, State};
use kube_sandbox::workload::{App, Kind, seed_namespace};
use serde_json::{Value, json};

use crate::kubeconfig_file::KubeconfigFile;
use crate::{output, programs};

/// How long the budget blocks the drain, so that people can read it.
const BLOCKED_FOR: Duration = Duration::from_secs(4);

/// The demo takes about ten seconds. One that takes longer than this has failed.
const DEMO_TIMEOUT: Duration = Duration::from_secs(55);

/// Pods of deployments; one agent on each node comes on top.
const DEPLOYMENT_PODS: usize = 14;

const NODE_COUNT: usize = 4;

/// Watch a node drain and return to service
#[derive(Debug, Args)]
pub(crate) struct Demo {}

/// Runs the demo.
///
/// # Errors
/// When a program fails or the demo takes too long.
pub(crate) async fn run(_: Demo) -> io::Result<()> {
    let demo = async {
        let sandbox = start_cluster().await?;
        let outcome = play(&sandbox).await;
        sandbox.stop().await;
        outcome
    };
    match tokio::time::timeout(DEMO_TIMEOUT, demo).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::other(format!("the demo did not end within {DEMO_TIMEOUT:?}"))),
    }
}

async fn start_cluster() -> io::Result<Sandbox> {
    output::message("Starting a cluster of four nodes with a shop, a web site and an agent on every node.");
    let (start_delay, stop_delay) = (Duration::from_millis(300), Duration::from_secs(1));
    let sandbox = Sandbox::start(Options { nodes: NODE_COUNT, pods: 0, start_delay, stop_delay }).await?;
    let cluster = sandbox.cluster();
    sandbox.install_crd(json!(nm_shared::api::crd::crd())).map_err(io::Error::other)?;
    let apps = [
        App::new(Kind::Deployment, "shop", "cart").replicas(2).budget(json!({"minAvailable": 2})),
        App::new(Kind::Deployment, "web", "front").replicas(DEPLOYMENT_PODS - 2),
    ];
    for namespace in ["shop", "web"] {
        seed_namespace(cluster, namespace).map_err(io::Error::other)?;
    }
    for app in &apps {
        app.create(cluster).map_err(io::Error::other)?;
    }
    let expected = DEPLOYMENT_PODS + NODE_COUNT;
    until(cluster, |state| {
        (state.list(&PODS, None).filter(|pod| is_running(pod)).count() == expected).then_some(())
    })
    .await;
    Ok(sandbox)
}

async fn play(sandbox: &Sandbox) -> io::Result<()> {
    let cluster = sandbox.cluster();
    let kubeconfig = KubeconfigFile::write(None, &sandbox.kubeconfig())?;
    let node = until(cluster, node_of_the_cart).await;
    let before = cluster.store.read(|state| describe(state, &node));
    output::data(&format!("Before:  {before}"))?;

    let _reconciler = programs::reconciler(kubeconfig.path())?;
    let colleague = tokio::spawn(scale_cart_once_blocked(cluster.clone(), node.clone()));
    plugin(kubeconfig.path(), &["start", &node, "--reason", "a new kernel"]).await?;
    plugin(kubeconfig.path(), &["watch", &node, "--until", "drained"]).await?;
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

/// Prints `kubectl nm …` as a person would type it, and runs it.
async fn plugin(kubeconfig: &Path, args: &[&str]) -> io::Result<()> {
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

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Waits until `find` returns something.
async fn until<R>(cluster: &Cluster, find: impl Fn(&State) -> Option<R>) -> R {
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
