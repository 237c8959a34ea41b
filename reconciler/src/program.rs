//! The program: flags, client, servers, leader election and shutdown.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::config::Config;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tracing::{error, info};

use crate::client::request_metrics::RequestMetricsLayer;
use crate::client::{ApiServer, TermClient, http1_builder};
use crate::config::environment::{self, Environment};
use crate::config::flags::Flags;
use crate::config::logging;
use crate::leader::election::{Candidate, ElectionError};
use crate::leader::running_leader_check::{AnotherLeads, check_no_leader};
use crate::leader_term::{self, Term};
use crate::runtime::clock::Clock;
use crate::runtime::leader_runtime::LeaderRuntime;
use crate::runtime::shutdown::{grace_period_ends, shutdown_begins, shutdown_signal};
use crate::runtime::tasks::TaskExit;
use crate::server::{BindError, Server};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::probes;
use crate::telemetry::readiness::Readiness;
use crate::watch::watch_stream::SILENCE_TIMEOUT;
use crate::webhook::{self, WebhookError};

/// How long to wait for tasks on the main runtime at the end.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    #[error("no cluster: {0}. Set KUBECONFIG, or run in a pod with a service account")]
    NoCluster(#[source] kube::config::InferConfigError),
    #[error("cannot create a client: {0}")]
    Client(#[source] kube::Error),
    #[error(transparent)]
    Address(#[from] BindError),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error(transparent)]
    AnotherLeads(#[from] AnotherLeads),
    #[error(transparent)]
    Election(#[from] ElectionError),
    #[error("the work ended unexpectedly: {0}")]
    Work(#[from] JoinError),
    #[error("the work ended unexpectedly: {0}")]
    Task(#[source] TaskExit),
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let variables = std::env::vars_os().map(|(name, _)| name);
    let flags = match Flags::read(args, variables, Environment::detect()) {
        Ok(flags) => flags,
        Err(message) => {
            // Help and version go to stdout with exit code 0.
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

/// Runs on two threads, however many processors a node has, beside the leader's own ([`LeaderRuntime`]): the program waits
/// for the network, and more threads only cost context switches.
fn start(flags: &Flags) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(StartError::Runtime)?;
    let result = runtime.block_on(serve(flags));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    result
}

async fn serve(flags: &Flags) -> Result<(), StartError> {
    let shutdown = shutdown_signal().map_err(StartError::Signals)?;
    let replica = environment::replica();
    let readiness = Readiness::default();
    let metrics = Arc::new(Metrics::new());
    let serving = serve_probes(flags, &readiness, &metrics, shutdown.clone()).await?;
    let config = tokio::select! {
        config = connect(&replica) => config?,
        () = shutdown_begins(shutdown.clone()) => return Ok(()),
    };
    logging::log_configuration(flags, &replica);
    // Every replica serves the webhook, leader or not.
    let server = ApiServer::new(config);
    let client = http1_builder(&server).map_err(StartError::Client)?;
    let client = client.with_layer(&RequestMetricsLayer(metrics.clone())).build();
    if flags.refuse_beside_leader {
        let _check = readiness.check("other-reconcilers");
        tokio::select! {
            checked = check_no_leader(&client, &flags.namespace) => checked?,
            () = shutdown_begins(shutdown.clone()) => return Ok(()),
        }
    }
    let reviewing = webhook::start(flags, &client, &readiness, &metrics, shutdown.clone()).await?;
    let work = |client| {
        let (flags, clock) = (flags.clone(), Clock::system());
        let (readiness, metrics, shutdown) = (readiness.clone(), metrics.clone(), shutdown.clone());
        let term = Term { client, clock, flags, readiness, metrics, shutdown: shutdown.clone() };
        async move {
            tokio::select! {
                done = leader_term::run(term) => done,
                () = grace_period_ends(shutdown) => Ok(()),
            }
        }
    };
    if flags.leader_elect {
        Candidate::new(&server, flags, &replica, &readiness, &metrics).run(shutdown.clone(), work).await?;
    } else {
        let runtime = LeaderRuntime::new().map_err(StartError::Runtime)?;
        let client =
            runtime.build(|| TermClient::new(&server, &metrics, None)).map_err(StartError::Client)?;
        metrics.leads(Some(runtime.handle()));
        runtime.spawn(work(client)).await?.map_err(StartError::Task)?;
    }
    // The servers finish the requests in progress. A panic there has been logged.
    let _ = serving.await;
    if let Some(reviewing) = reviewing {
        let _ = reviewing.await;
    }
    info!("stopped");
    Ok(())
}

/// Serves probes and metrics, also while there is no connection to a cluster.
async fn serve_probes(
    flags: &Flags,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    shutdown: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, BindError> {
    let Some(address) = flags.metrics_addr.0 else { return Ok(tokio::spawn(async {})) };
    let server = Server::bind("probes and metrics", "--metrics-addr", address).await?;
    let routes = probes::routes(readiness.clone(), metrics.clone());
    Ok(tokio::spawn(server.serve(routes, shutdown_begins(shutdown))))
}

/// The connection to the cluster. Its user agent identifies the replica in audit logs.
async fn connect(replica: &str) -> Result<Config, StartError> {
    let mut config = Config::infer().await.map_err(StartError::NoCluster)?;
    // Otherwise a request on a lost connection waits until the kernel closes it.
    config.read_timeout = Some(SILENCE_TIMEOUT);
    config.reset_reader_on_write = true;
    let agent = format!("nm-reconciler/{} ({replica})", env!("CARGO_PKG_VERSION"));
    config.headers.extend(agent.parse().map(|agent| (http::header::USER_AGENT, agent)));
    Ok(config)
}
