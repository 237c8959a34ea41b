//! `nm-sandbox demo`: a node goes into maintenance and comes back, before one's eyes.
//!
//! The demo plays the people: one who starts a maintenance and watches it, and one who makes room in a disruption budget
//! that is in the way. The programs are the real ones, each a process of its own, on a cluster that they cannot tell
//! from another.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::kubeconfig_file::KubeconfigFile;
use super::{output, programs};
use crate::cluster::Cluster;
use crate::refusal::Refusal;
use crate::registry::{self, Effect, Part};
use crate::resource::{DEPLOYMENTS, NODES, PODS};
use crate::sandbox::{Options, Sandbox};
use crate::store::{Collection, Key, State};
use crate::workload::{App, Kind, seed_namespace};

/// For how long the budget is in the way.
const STANDSTILL: Duration = Duration::from_secs(4);

/// The whole demo takes about ten seconds; what takes longer than this has gone wrong.
const PATIENCE: Duration = Duration::from_secs(55);

/// Pods of the demo, beside one agent on each node.
const PODS_OF_APPS: usize = 14;

const NODE_COUNT: usize = 4;

/// See a node drained and given back
#[derive(Debug, Args)]
pub(super) struct Demo {}

/// Shows all of it.
///
/// # Errors
/// When a program fails or takes too long.
pub(super) async fn run(_: Demo) -> io::Result<()> {
    let story = async {
        let sandbox = cluster().await?;
        let told = tell(&sandbox).await;
        sandbox.stop().await;
        told
    };
    match tokio::time::timeout(PATIENCE, story).await {
        Ok(told) => told,
        Err(_) => Err(io::Error::other(format!("the demo is not over after {PATIENCE:?}"))),
    }
}

async fn cluster() -> io::Result<Sandbox> {
    output::say("A cluster of four nodes starts, with a shop, a web site and an agent on every node.");
    let (start_delay, stop_delay) = (Duration::from_millis(300), Duration::from_secs(1));
    let sandbox = Sandbox::start(Options { nodes: NODE_COUNT, pods: 0, start_delay, stop_delay }).await?;
    let cluster = sandbox.cluster();
    crate::http::install(cluster, json!(nm_shared::api::crd::crd())).map_err(refused)?;
    let apps = [
        App::new(Kind::Deployment, "shop", "cart").replicas(2).budget(json!({"minAvailable": 2})),
        App::new(Kind::Deployment, "web", "front").replicas(PODS_OF_APPS - 2),
    ];
    for namespace in ["shop", "web"] {
        seed_namespace(cluster, namespace).map_err(refused)?;
    }
    for app in &apps {
        app.create(cluster).map_err(refused)?;
    }
    let expected = PODS_OF_APPS + NODE_COUNT;
    until(cluster, |state| {
        (state.list(&PODS, None).filter(|pod| is_running(pod)).count() == expected).then_some(())
    })
    .await;
    Ok(sandbox)
}

async fn tell(sandbox: &Sandbox) -> io::Result<()> {
    let cluster = sandbox.cluster();
    let kubeconfig = KubeconfigFile::write(None, &sandbox.kubeconfig())?;
    let node = until(cluster, node_of_the_cart).await;
    let before = cluster.store.read(|state| describe(state, &node));
    output::print(&format!("Before:  {before}"))?;

    let _reconciler = programs::reconciler(kubeconfig.path())?;
    let opener = tokio::spawn(make_room_for_the_cart(cluster.clone(), node.clone()));
    plugin(kubeconfig.path(), &["start", &node, "--reason", "a new kernel"]).await?;
    plugin(kubeconfig.path(), &["watch", &node, "--until", "drained"]).await?;
    opener.await??;
    output::print(&format!("Drained: {}", cluster.store.read(|state| describe(state, &node))))?;

    plugin(kubeconfig.path(), &["stop", &node, "--wait"]).await?;
    let after = cluster.store.read(|state| describe(state, &node));
    output::print(&format!("After:   {after}"))
}

/// Waits until the budget blocks, lets that be seen for a while, then adds the replica that it lacks.
async fn make_room_for_the_cart(cluster: Arc<Cluster>, node: String) -> io::Result<()> {
    let maintenances = Collection::named(nm_shared::api::names::GROUP, "nodemaintenances");
    until(&cluster, |state| {
        let maintenance = state.get(&maintenances, &Key::cluster(&*node))?;
        (maintenance["status"]["podCounts"]["blocked"].as_i64() > Some(0)).then_some(())
    })
    .await;
    tokio::time::sleep(STANDSTILL).await;
    output::say("(Someone scales deployment shop/cart to 3: now its budget can spare a pod.)");
    let deployments = cluster.catalog.of(&DEPLOYMENTS).ok_or_else(|| io::Error::other("no deployments"))?;
    cluster
        .store
        .write(|state| {
            let cart = state.get(&DEPLOYMENTS, &Key::new("shop", "cart"));
            let mut cart = cart.map(|cart| Value::clone(&cart)).unwrap_or_default();
            cart["spec"]["replicas"] = json!(3);
            registry::update(state, &deployments, &cart, Part::Main, Effect::Real)
        })
        .map_err(refused)?;
    Ok(())
}

/// Runs `kubectl nm …` and shows it, as one would type it.
async fn plugin(kubeconfig: &Path, args: &[&str]) -> io::Result<()> {
    let typed: Vec<String> = args
        .iter()
        .map(|arg| if arg.contains(' ') { format!("'{arg}'") } else { (*arg).to_owned() })
        .collect();
    output::say(&format!("$ kubectl nm {}", typed.join(" ")));
    let mut child = programs::plugin(kubeconfig, args)?;
    let status = child.wait().await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("kubectl nm {}: {status}", args.join(" "))))
    }
}

/// What one looks at on a node: may pods come, what keeps them off, how many are there.
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

/// Waits until the cluster is such that `found` finds something.
async fn until<R>(cluster: &Cluster, found: impl Fn(&State) -> Option<R>) -> R {
    let mut wake = cluster.store.subscribe();
    loop {
        wake.borrow_and_update();
        if let Some(result) = cluster.store.read(&found) {
            return result;
        }
        // The cluster that we hold is what would have to go for this to fail.
        let _ = wake.changed().await;
    }
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::other(refusal.message)
}
