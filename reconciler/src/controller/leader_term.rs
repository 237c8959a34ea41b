//! What the one that leads does, for as long as it leads: the watches begin, a controller for each group of maintenances
//! reconciles, and what belonged to maintenances that are gone is cleaned up. When one of these tasks breaks off, all of
//! it is over.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use kube::Client;
use kube::runtime::Controller;
use kube::runtime::reflector::store::Writer;
use nm_shared::Group;
use tokio::sync::watch;
use tracing::{debug, error};

use crate::cache::maintenances::Maintenances;
use crate::cache::read_your_writes::OwnWrites;
use crate::cache::triggers::Triggers;
use crate::config::flags::Flags;
use crate::controller::context::{Context, Memories};
use crate::controller::event_recorder::Announcer;
use crate::controller::node_conditions::NodeConditions;
use crate::controller::reconcile::{after_failure, reconcile};
use crate::evict::evictor::Evictor;
use crate::runtime::shutdown::stopped;
use crate::runtime::tasks::{End, Ends, Tasks};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use crate::watch::cluster_watches::ClusterWatches;
use crate::watch::maintenance_watch::{Departure, maintenance_watch};
use crate::watch::node_leases::NodeLeases;
use crate::watch::platform::Platform;
use crate::watch::pod_watches::PodWatches;
use crate::watch::served_groups;
use crate::watch::virtual_machine_watches::MachineWatches;

/// By which the tasks that end with `stop`, and not before, are known.
const EVICTOR: &str = "the evictor";

/// Reconciles until `stop`, then lets the reconciles and the evictions under way finish.
///
/// # Errors
/// When a task breaks off before. Nothing goes on then but what was spawned and has not noticed: whoever calls ends it.
pub(crate) async fn control(
    client: Client,
    flags: &Flags,
    readiness: &Readiness,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> Result<(), End> {
    let (tasks, ends) = Tasks::new();
    let done = work(client, flags, readiness, metrics, stop, &tasks, ends).await;
    if let Err(end) = &done {
        error!("{end}; leading ends with it");
        readiness.broke_off("leader-tasks", &end.to_string());
    }
    done
}

async fn work(
    client: Client,
    flags: &Flags,
    readiness: &Readiness,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
    tasks: &Tasks,
    mut ends: Ends,
) -> Result<(), End> {
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
    tasks.spawn("the watch on nodes, DaemonSets and budgets", watches);
    tasks.spawn("the watch on leases of nodes", lease_watch);
    tasks.spawn(EVICTOR, evictor.clone().run(stop.clone()));
    tokio::select! {
        _ = async { tokio::join!(cluster.ready(), leases.ready()) } => debug!("nodes and their leases are known"),
        () = stopped(stop.clone()) => return Ok(()),
        end = ends.next() => return Err(end),
    }
    let own_nodes = Arc::new(OwnWrites::default());
    let (conditions, publishing) =
        NodeConditions::start(&client, triggers.clone(), cluster.nodes.clone(), own_nodes.clone());
    tasks.spawn("the publisher of node conditions", publishing);
    let context = Arc::new(Context {
        pods: PodWatches::new(client.clone(), triggers.clone(), tasks.clone()),
        machines: MachineWatches::new(client.clone(), triggers.clone(), tasks.clone()),
        announcer: Announcer::new(client.clone()),
        platform: Platform::new(client.clone()),
        own_maintenances: OwnWrites::default(),
        own_nodes,
        memories: Memories::default(),
        max_unavailable: flags.max_unavailable,
        node_conditions: flags.node_conditions,
        conditions,
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
    tasks.spawn("the clean-up after maintenances", clean_up(context.clone(), departed));
    let mut objects_known = Some(objects_known);
    let mut working = HashSet::from([EVICTOR.to_owned()]);
    for ((group, writer), wake_ups) in writers.into_iter().zip(wake_ups) {
        let (served, watch) = served_groups::start(&client, group);
        tasks.spawn(format!("the watch on the definition of {}", group.name()), watch);
        let store = writer.as_reader();
        // Of the older groups most clusters have none.
        let check = if group == Group::Medik8s { objects_known.take() } else { None };
        let (known, departures) = (maintenances.clone(), departures.clone());
        let objects = maintenance_watch(&client, group, served, writer, known, departures, check);
        let controller = Controller::for_stream_with(objects, store, group)
            .reconcile_on(wake_ups)
            .graceful_shutdown_on(stopped(stop.clone()))
            .run(reconcile, after_failure, context.clone())
            .for_each(|result| async move {
                if let Err(failure) = result {
                    debug!(%failure, "controller");
                }
            });
        let name = format!("the controller of {}", group.name());
        tasks.spawn(&name, controller);
        working.insert(name);
    }
    until_done(working, &stop, &mut ends).await
}

/// Waits until what ends with `stop` has ended.
async fn until_done(
    mut working: HashSet<String>,
    stop: &watch::Receiver<bool>,
    ends: &mut Ends,
) -> Result<(), End> {
    while !working.is_empty() {
        match ends.next().await {
            End::Returned { task } if *stop.borrow() => working.remove(&task),
            end => return Err(end),
        };
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::Body;
    use clap::Parser;
    use futures::stream;
    use http::{Method, Request, Response, StatusCode};
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;

    /// An API server with a node in maintenance, whose answer panics whoever asks for what is `broken`.
    fn cluster(broken: (Method, &'static str)) -> Client {
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let broken = broken.clone();
            async move {
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                assert!(request.method() != broken.0 || !path.ends_with(broken.1), "asked for {path}");
                if request.method() != Method::GET {
                    let mut refused = Response::new(Body::from("no"));
                    *refused.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    return Ok::<_, Infallible>(refused);
                }
                if query.contains("watch=true") {
                    return Ok(Response::new(Body::from_stream(stream::pending::<
                        Result<Vec<u8>, Infallible>,
                    >())));
                }
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": items(path)});
                Ok(Response::new(Body::from(list.to_string())))
            }
        });
        Client::new(server, "default")
    }

    fn items(path: &str) -> Value {
        let metadata = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
        match path {
            "/api/v1/nodes" => json!([{"metadata": metadata("n")}]),
            "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances" => json!([{
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": metadata("m"), "spec": {"nodeName": "n"},
            }]),
            _ => json!([]),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leading_ends_with_any_of_its_tasks_which_the_log_and_readyz_name() {
        for (verb, path, task) in [
            (Method::GET, "/nodes", "the watch on nodes, DaemonSets and budgets"),
            (Method::GET, "/daemonsets", "the watch on nodes, DaemonSets and budgets"),
            (Method::GET, "/medik8s-leases/leases", "the watch on leases of nodes"),
            (
                Method::GET,
                "medik8s.io/v1beta1/nodemaintenances",
                "the controller of nodemaintenance.medik8s.io",
            ),
            (
                Method::GET,
                "/customresourcedefinitions",
                "the watch on the definition of nodemaintenance.kubevirt.io",
            ),
            (Method::GET, "/pods", "the watch on pods on n"),
            (Method::PATCH, "/nodemaintenances/m", "the controller of nodemaintenance.medik8s.io"),
        ] {
            let flags = Flags::parse_from(["nm-reconciler"]);
            let (readiness, metrics) = (Readiness::default(), Arc::new(Metrics::new()));
            let (_stop, stopped) = watch::channel(false);
            let leading = control(cluster((verb, path)), &flags, &readiness, metrics, stopped);
            let ended = timeout(Duration::from_secs(60), leading).await;
            let end = ended.unwrap_or_else(|_| panic!("without {path} it goes on")).unwrap_err().to_string();
            let is_told = end.starts_with(&format!("{task} panicked: ")) && end.contains("asked for /");
            assert!(is_told, "{end}");
            let report = readiness.report().unwrap_err();
            assert!(report.contains(&format!("[-]leader-tasks failed: {end}\n")), "{report}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leading_ends_well_when_it_is_told_to() {
        let flags = Flags::parse_from(["nm-reconciler"]);
        let (readiness, metrics) = (Readiness::default(), Arc::new(Metrics::new()));
        let (stop, stopped) = watch::channel(false);
        let client = cluster((Method::DELETE, "/nothing"));
        let leading = control(client, &flags, &readiness, metrics, stopped);
        let told = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            stop.send_replace(true);
        };
        let ended = timeout(Duration::from_secs(60), async { tokio::join!(leading, told).0 }).await;
        assert_eq!(ended.unwrap(), Ok(()));
    }
}
