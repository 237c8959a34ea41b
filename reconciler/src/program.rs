//! The program from its first line to its last: flags, client, watches, controller, signals.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, Stream, StreamExt};
use kube::client::ClientBuilder;
use kube::config::Config;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use nm_shared::NodeMaintenance;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, error, info};

use crate::announcer::Announcer;
use crate::api_requests::ApiRequests;
use crate::cluster_watches::ClusterWatches;
use crate::context::{Context, Memories};
use crate::election::{Candidate, ElectionError};
use crate::evictor::Evictor;
use crate::flags::Flags;
use crate::follow::{Interruption, without_managed_fields};
use crate::logging;
use crate::machine_watches::MachineWatches;
use crate::metrics::Metrics;
use crate::node_leases::NodeLeases;
use crate::own_writes::OwnWrites;
use crate::pod_watches::PodWatches;
use crate::probes;
use crate::readiness::{Check, Readiness};
use crate::reconcile::{after_failure, reconcile};
use crate::server::{BindError, Server};
use crate::stop::{give_up, stop_signal, stopped};
use crate::surroundings;
use crate::triggers::Triggers;
use crate::webhook::{self, WebhookError};

/// Why the program cannot run.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    #[error("no cluster: {0}. Set KUBECONFIG, or run in a pod with a service account")]
    NoCluster(#[source] kube::config::InferConfigError),
    #[error("cannot make a client: {0}")]
    Client(#[source] kube::Error),
    #[error(transparent)]
    Address(#[from] BindError),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error(transparent)]
    Election(#[from] ElectionError),
}

/// Runs the program.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let flags = match Flags::read(args) {
        Ok(flags) => flags,
        Err(message) => {
            // Help and version go to stdout and are no failure.
            let _ = message.print();
            return ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(2));
        }
    };
    logging::start(&flags);
    match start(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn start(flags: &Flags) -> Result<(), StartError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(StartError::Runtime)?;
    let result = runtime.block_on(serve(flags));
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve(flags: &Flags) -> Result<(), StartError> {
    let stop = stop_signal().map_err(StartError::Signals)?;
    let replica = surroundings::replica();
    let readiness = Readiness::default();
    let metrics = Arc::new(Metrics::new());
    let serving = serve_probes(flags, &readiness, &metrics, stop.clone()).await?;
    let config = tokio::select! {
        config = connect(&replica) => config?,
        () = stopped(stop.clone()) => return Ok(()),
    };
    logging::tell_configuration(flags, &replica);
    // Every replica answers the API server, leading or not.
    let client = ClientBuilder::try_from(config.clone()).map_err(StartError::Client)?;
    let client = client.with_layer(&ApiRequests(metrics.clone())).build();
    let reviewing = webhook::start(flags, &client, &readiness, &metrics, stop.clone()).await?;
    let work = |client| {
        let (flags, stop) = (flags.clone(), stop.clone());
        let (readiness, metrics) = (readiness.clone(), metrics.clone());
        async move {
            tokio::select! {
                () = control(client, &flags, &readiness, metrics, stop.clone()) => {}
                () = give_up(stop) => {}
            }
        }
    };
    if flags.leader_elect {
        Candidate::new(&config, flags, &replica, &readiness, &metrics).run(stop.clone(), work).await?;
    } else {
        let client = ClientBuilder::try_from(config).map_err(StartError::Client)?;
        metrics.leads(true);
        work(client.with_layer(&ApiRequests(metrics.clone())).build()).await;
    }
    // Whoever is being answered has a moment still; a panic in there has been told.
    let _ = serving.await;
    if let Some(reviewing) = reviewing {
        let _ = reviewing.await;
    }
    info!("stopped");
    Ok(())
}

/// Serves what tells how the program fares, from before it has a cluster on.
async fn serve_probes(
    flags: &Flags,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, BindError> {
    let Some(address) = flags.metrics_addr.0 else { return Ok(tokio::spawn(async {})) };
    let server = Server::bind("probes and metrics", "--metrics-addr", address).await?;
    Ok(tokio::spawn(server.serve(probes::routes(readiness.clone(), metrics.clone()), stop)))
}

/// How to reach the cluster, under a name by which its audit log tells the replicas apart.
async fn connect(replica: &str) -> Result<Config, StartError> {
    let mut config = Config::infer().await.map_err(StartError::NoCluster)?;
    // The client would repeat what a budget or a throttling server refuses with 429, unseen and uncounted: every
    // request here has a retry of its own that knows why.
    config.default_retry = false;
    let agent = format!("nm-reconciler/{} ({replica})", env!("CARGO_PKG_VERSION"));
    config.headers.extend(agent.parse().map(|agent| (http::header::USER_AGENT, agent)));
    Ok(config)
}

/// Reconciles until `stop`, then lets the reconciles under way finish.
async fn control(
    client: Client,
    flags: &Flags,
    readiness: &Readiness,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
) {
    let (maintenances, writer) = reflector::store();
    let (triggers, wake_ups) = Triggers::new(maintenances.clone());
    let (departures, departed) = unbounded();
    let objects = maintenance_watch(&client, writer, departures);
    // Kept here: what was watched is no more counted once this term is over.
    let counted = Arc::new(maintenances.clone());
    metrics.watch(&counted);
    let limit = flags.max_concurrent_evictions;
    let evictor = Arc::new(Evictor::new(client.clone(), triggers.clone(), metrics.clone(), limit));
    let (cluster, watches) = ClusterWatches::start(&client, &triggers, &evictor);
    let (leases, lease_watch) = NodeLeases::start(&client, &triggers);
    tokio::spawn(watches);
    tokio::spawn(lease_watch);
    let [objects_known, nodes_known, leases_known] =
        ["nodemaintenances", "nodes", "node-leases"].map(|name| readiness.check(name));
    let known = async {
        tokio::join!(
            cluster.ready().map(|()| nodes_known.pass()),
            leases.ready().map(|()| leases_known.pass()),
        )
    };
    tokio::select! {
        _ = known => debug!("nodes and their leases are known"),
        () = stopped(stop.clone()) => return,
    }
    let context = Arc::new(Context {
        pods: PodWatches::new(client.clone(), triggers.clone()),
        machines: MachineWatches::new(client.clone(), triggers.clone()),
        announcer: Announcer::new(client.clone()),
        own_maintenances: OwnWrites::default(),
        own_nodes: OwnWrites::default(),
        memories: Memories::default(),
        max_unavailable: flags.max_unavailable,
        node_conditions: flags.node_conditions,
        own_pod: flags.own_pod.clone(),
        client,
        triggers,
        metrics,
        maintenances: maintenances.clone(),
        cluster,
        leases,
        evictor,
    });
    tokio::spawn(clean_up(context.clone(), departed, objects_known));
    Controller::for_stream(objects, maintenances)
        .reconcile_on(wake_ups)
        .graceful_shutdown_on(stopped(stop))
        .run(reconcile, after_failure, context)
        .for_each(|result| async move {
            if let Err(failure) = result {
                debug!(%failure, "controller");
            }
        })
        .await;
}

/// A maintenance that is gone, or, as none, the news that all are known anew and some may have gone meanwhile.
type Departure = Option<NodeMaintenance>;

/// The watch on maintenances, which also tells of those that are gone.
fn maintenance_watch(
    client: &Client,
    writer: Writer<NodeMaintenance>,
    departures: UnboundedSender<Departure>,
) -> impl Stream<Item = watcher::Result<NodeMaintenance>> + Send + use<> {
    let api = Api::<NodeMaintenance>::all(client.clone());
    let mut interruption = Interruption::default();
    watcher(api, watcher::Config::default())
        .modify(without_managed_fields)
        .default_backoff()
        .reflect(writer)
        .inspect(move |event| {
            interruption.note("nodemaintenances", event);
            let departure = match event {
                Ok(watcher::Event::Delete(maintenance)) => Some(maintenance.clone()),
                Ok(watcher::Event::InitDone) => None,
                _ => return,
            };
            // The receiver is gone only when the program ends.
            let _ = departures.unbounded_send(departure);
        })
        .applied_objects()
}

/// Lets go of what belonged to maintenances that are gone, and lets others have their nodes.
async fn clean_up(context: Arc<Context>, mut departed: UnboundedReceiver<Departure>, known: Check) {
    while let Some(departure) = departed.next().await {
        context.sweep();
        if let Some(maintenance) = departure {
            context.triggers.wake_node(&maintenance.spec.node_name);
            context.triggers.wake_pending();
        } else {
            known.pass();
            context.triggers.wake_all();
        }
    }
}
