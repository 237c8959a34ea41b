//! The program from its first line to its last: flags, client, servers, election, signals.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::Config;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tracing::{error, info};

use crate::client::request_metrics::ApiRequests;
use crate::config::environment::{self, Surroundings};
use crate::config::flags::Flags;
use crate::config::logging;
use crate::controller::leader_term::control;
use crate::leader::election::{Candidate, ElectionError};
use crate::leader::standalone::{AnotherLeads, refuse_beside_leader};
use crate::runtime::leader_runtime::Stage;
use crate::runtime::shutdown::{give_up, stop_signal, stopped};
use crate::runtime::tasks;
use crate::server::{BindError, Server};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::probes;
use crate::telemetry::readiness::Readiness;
use crate::watch::watch_stream::SILENCE;
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
    AnotherLeads(#[from] AnotherLeads),
    #[error(transparent)]
    Election(#[from] ElectionError),
    #[error("the work broke off: {0}")]
    Work(#[from] JoinError),
    #[error("the work broke off: {0}")]
    Task(#[source] tasks::End),
}

/// Runs the program.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let variables = std::env::vars_os().map(|(name, _)| name);
    let flags = match Flags::read(args, variables, Surroundings::here()) {
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

/// Two threads answer, however many processors a node has, and a leader's work has one of its own ([`Stage`]): what the
/// program waits for is the network, and threads that wake each other cost more than they win.
fn start(flags: &Flags) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(StartError::Runtime)?;
    let result = runtime.block_on(serve(flags));
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn serve(flags: &Flags) -> Result<(), StartError> {
    let stop = stop_signal().map_err(StartError::Signals)?;
    let replica = environment::replica();
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
    if flags.heeds_leader {
        let _check = readiness.check("other-reconcilers");
        tokio::select! {
            looked = refuse_beside_leader(&client, &flags.namespace) => looked?,
            () = stopped(stop.clone()) => return Ok(()),
        }
    }
    let reviewing = webhook::start(flags, &client, &readiness, &metrics, stop.clone()).await?;
    let work = |client| {
        let (flags, stop) = (flags.clone(), stop.clone());
        let (readiness, metrics) = (readiness.clone(), metrics.clone());
        async move {
            tokio::select! {
                done = control(client, &flags, &readiness, metrics, stop.clone()) => done,
                () = give_up(stop) => Ok(()),
            }
        }
    };
    if flags.leader_elect {
        Candidate::new(&config, flags, &replica, &readiness, &metrics).run(stop.clone(), work).await?;
    } else {
        let stage = Stage::new().map_err(StartError::Runtime)?;
        let builder = stage.make(|| ClientBuilder::try_from(config)).map_err(StartError::Client)?;
        let client = stage.make(|| builder.with_layer(&ApiRequests(metrics.clone())).build());
        metrics.leads(true);
        stage.perform(work(client)).await?.map_err(StartError::Task)?;
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
    // Otherwise a request on a connection that died in silence is waited for until the kernel gives it up.
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let agent = format!("nm-reconciler/{} ({replica})", env!("CARGO_PKG_VERSION"));
    config.headers.extend(agent.parse().map(|agent| (http::header::USER_AGENT, agent)));
    Ok(config)
}
