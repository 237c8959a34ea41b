//! What the one that leads does, for as long as it leads: the watches begin, a controller for each group of maintenances
//! reconciles, and what belonged to maintenances that are gone is cleaned up.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::join_all;
use kube::Client;
use kube::runtime::Controller;
use kube::runtime::reflector::store::Writer;
use nm_shared::Group;
use tokio::sync::watch;
use tracing::debug;

use crate::announcer::Announcer;
use crate::cluster_watches::ClusterWatches;
use crate::context::{Context, Memories};
use crate::evictor::Evictor;
use crate::flags::Flags;
use crate::machine_watches::MachineWatches;
use crate::maintenance_watch::{Departure, maintenance_watch};
use crate::maintenances::Maintenances;
use crate::metrics::Metrics;
use crate::node_conditions::NodeConditions;
use crate::node_leases::NodeLeases;
use crate::own_writes::OwnWrites;
use crate::platform::Platform;
use crate::pod_watches::PodWatches;
use crate::readiness::Readiness;
use crate::reconcile::{after_failure, reconcile};
use crate::served_groups;
use crate::stop::stopped;
use crate::triggers::Triggers;

/// Reconciles until `stop`, then lets the reconciles and the evictions under way finish.
pub(crate) async fn control(
    client: Client,
    flags: &Flags,
    readiness: &Readiness,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
) {
    let writers = Group::ALL.map(|group| (group, Writer::new(group)));
    let stores = writers.iter().map(|(group, writer)| (*group, Writer::as_reader(writer)));
    // Kept here: what was watched is no more counted once this term is over.
    let maintenances = Arc::new(Maintenances::new(stores));
    metrics.watch(&maintenances);
    let (triggers, wake_ups) = Triggers::new(maintenances.clone());
    let limit = flags.max_concurrent_evictions;
    let evictor = Arc::new(Evictor::new(client.clone(), triggers.clone(), metrics.clone(), limit));
    let [objects_known, nodes_known, leases_known] =
        ["nodemaintenances", "nodes", "node-leases"].map(|name| readiness.check(name));
    let (cluster, watches) = ClusterWatches::start(&client, &triggers, &evictor, nodes_known);
    let (leases, lease_watch) = NodeLeases::start(&client, &triggers, leases_known);
    tokio::spawn(watches);
    tokio::spawn(lease_watch);
    let sending = tokio::spawn(evictor.clone().run(stop.clone()));
    tokio::select! {
        _ = async { tokio::join!(cluster.ready(), leases.ready()) } => debug!("nodes and their leases are known"),
        () = stopped(stop.clone()) => return,
    }
    let context = Arc::new(Context {
        pods: PodWatches::new(client.clone(), triggers.clone()),
        machines: MachineWatches::new(client.clone(), triggers.clone()),
        announcer: Announcer::new(client.clone()),
        platform: Platform::new(client.clone()),
        own_maintenances: OwnWrites::default(),
        own_nodes: OwnWrites::default(),
        memories: Memories::default(),
        max_unavailable: flags.max_unavailable,
        node_conditions: flags.node_conditions,
        conditions: NodeConditions::default(),
        own_pod: flags.own_pod.clone(),
        client: client.clone(),
        triggers,
        metrics,
        maintenances: maintenances.clone(),
        cluster,
        leases,
        evictor,
    });
    let (departures, departed) = unbounded();
    tokio::spawn(clean_up(context.clone(), departed));
    let mut objects_known = Some(objects_known);
    let controllers = writers.into_iter().zip(wake_ups).map(|((group, writer), wake_ups)| {
        let (served, watch) = served_groups::start(&client, group);
        tokio::spawn(watch);
        let store = writer.as_reader();
        // Of the older groups most clusters have none.
        let check = if group == Group::Medik8s { objects_known.take() } else { None };
        let (known, departures) = (maintenances.clone(), departures.clone());
        let objects = maintenance_watch(&client, group, served, writer, known, departures, check);
        Controller::for_stream_with(objects, store, group)
            .reconcile_on(wake_ups)
            .graceful_shutdown_on(stopped(stop.clone()))
            .run(reconcile, after_failure, context.clone())
            .for_each(|result| async move {
                if let Err(failure) = result {
                    debug!(%failure, "controller");
                }
            })
    });
    join_all(controllers).await;
    // A panic in there has been told.
    let _ = sending.await;
}

/// Lets go of what belonged to maintenances that are gone, and lets others have their nodes.
async fn clean_up(context: Arc<Context>, mut departed: UnboundedReceiver<Departure>) {
    while let Some(departure) = departed.next().await {
        context.sweep();
        if let Some(maintenance) = departure {
            context.triggers.wake_node(&maintenance.spec.node_name);
            context.triggers.wake_pending();
        } else {
            context.triggers.wake_all();
        }
    }
}
