//! A leader's term: the watches, the evictor and one controller per group of maintenances, which run until shutdown.
//! When one of these tasks ends early, the term ends.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use kube::runtime::Controller;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use nm_shared::{Group, GroupedMaintenance};
use tokio::sync::watch;
use tracing::{debug, error};

use crate::cache::shared_state::SharedState;
use crate::client::TermClient;
use crate::client::discovery::OpenshiftDiscovery;
use crate::config::flags::Flags;
use crate::controller::context::Context;
use crate::controller::event_recorder::EventRecorder;
use crate::controller::node_conditions::NodeConditionPublisher;
use crate::controller::reconcile::{after_failure, reconcile};
use crate::evict::evictor::Evictor;
use crate::runtime::clock::Clock;
use crate::runtime::shutdown::shutdown_begins;
use crate::runtime::tasks::{TaskExit, TaskExits, TaskId, TaskSpawner};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::{Readiness, ReadinessCheck};
use crate::watch::cluster_watches::{until_known, watch_cluster};
use crate::watch::maintenance_watch::maintenance_watch;
use crate::watch::migrations::Migrations;
use crate::watch::node_leases::NodeLeases;
use crate::watch::node_watches::NodeWatches;
use crate::watch::queue_updates::trigger_waiting;
use crate::watch::served_groups;
use crate::watch::volume_attachments::VolumeAttachments;
use crate::watch::workload_watches::WorkloadWatches;

/// What a term works with.
pub(crate) struct Term {
    pub(crate) client: TermClient,
    pub(crate) clock: Clock,
    pub(crate) flags: Flags,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: watch::Receiver<bool>,
}

/// Runs a term until shutdown, then lets the reconciles and evictions in progress finish.
///
/// # Errors
/// When a task ends early. Other tasks may still run, so the caller has to drop the term's runtime.
pub(crate) async fn run(term: Term) -> Result<(), TaskExit> {
    let (tasks, mut exits) = TaskSpawner::new();
    let readiness = term.readiness.clone();
    let done = run_tasks(term, tasks, &mut exits).await;
    if let Err(exit) = &done {
        error!("{exit}; the term ends");
        readiness.add_failed("leader-tasks", &exit.to_string());
    }
    done
}

async fn run_tasks(term: Term, tasks: TaskSpawner, exits: &mut TaskExits) -> Result<(), TaskExit> {
    let Term { client, clock, flags, readiness, metrics, shutdown } = term;
    let (state, triggered) = SharedState::new(Group::ALL, flags.max_concurrent_evictions);
    let known = Arc::downgrade(&state);
    metrics.observe(move |count| {
        let Some(state) = known.upgrade() else { return false };
        state.lock().maintenances.for_each(count);
        true
    });
    let evictor = Arc::new(Evictor::new(client.clone(), state.clone(), metrics.clone()));
    let TermClient { client, throttle } = client;
    let [maintenance_check, node_check, lease_check] =
        ["nodemaintenances", "nodes", "node-leases"].map(|name| readiness.check(name));
    let leases = NodeLeases::new(client.clone(), state.clone());
    let watches = watch_cluster(client.clone(), state.clone(), node_check);
    tasks.spawn("the watch on nodes, DaemonSets and budgets", watches);
    tasks.spawn("the watch on leases of nodes", leases.clone().watch(lease_check));
    let mut until_shutdown =
        HashSet::from([tasks.spawn("the evictor", evictor.clone().run(shutdown.clone()))]);
    let waiting = trigger_waiting(state.clone(), flags.max_unavailable, clock.clone());
    tasks.spawn("the updates of the queue", waiting);
    tokio::select! {
        // Tasks that end because of the shutdown may be seen together with it.
        biased;
        () = shutdown_begins(shutdown.clone()) => return Ok(()),
        exit = exits.next() => return Err(exit),
        () = until_known(&state) => debug!("nodes and their leases are known"),
    }
    let (conditions, publishing) = NodeConditionPublisher::start(&client, state.clone(), clock.clone());
    tasks.spawn("the publisher of node conditions", publishing);
    let (events, publishing) = EventRecorder::start(client.clone());
    tasks.spawn("the publisher of events", publishing);
    let context = Arc::new(Context {
        watches: NodeWatches::new(client.clone(), tasks.clone(), state.clone()),
        migrations: Migrations::new(client.clone(), state.clone(), tasks.clone()),
        volumes: VolumeAttachments::new(client.clone(), state.clone(), tasks.clone()),
        workloads: Arc::new(WorkloadWatches::new(client.clone(), state.clone(), tasks.clone())),
        events,
        openshift: OpenshiftDiscovery::default(),
        owners_denied: AtomicBool::default(),
        max_unavailable: flags.max_unavailable,
        node_conditions: flags.node_conditions,
        has_external_etcd: flags.external_etcd,
        blocked_after: Duration::from_secs(flags.blocked_after),
        migration_start_timeout: Duration::from_secs(flags.migration_start_timeout),
        own_pod: flags.own_pod,
        client,
        throttle,
        clock,
        metrics,
        state,
        leases,
        evictor,
        conditions,
    });
    let mut maintenance_check = Some(maintenance_check);
    for (group, triggered) in triggered {
        // Most clusters serve none of the older groups, so only ours affects readiness.
        let check = if group == Group::Medik8s { maintenance_check.take() } else { None };
        until_shutdown.insert(spawn_controller(group, triggered, check, &tasks, &context, &shutdown));
    }
    wait_for(until_shutdown, &shutdown, exits).await
}

/// Spawns the controller of one group.
fn spawn_controller(
    group: Group,
    triggered: UnboundedReceiver<ObjectRef<GroupedMaintenance>>,
    check: Option<ReadinessCheck>,
    tasks: &TaskSpawner,
    context: &Arc<Context>,
    shutdown: &watch::Receiver<bool>,
) -> TaskId {
    let (served, definition_watch) = served_groups::start(&context.client, group);
    tasks.spawn(format!("the watch on the definition of {}", group.name()), definition_watch);
    let writer = Writer::new(group);
    let (store, cleaned) = (writer.as_reader(), context.clone());
    let removed = move |node: Option<&str>| cleaned.remove_outdated_conditions(node);
    let state = context.state.clone();
    let objects = maintenance_watch(&context.client, group, served, writer, state, removed, check);
    let controller = Controller::for_stream_with(objects, store, group)
        .reconcile_on(triggered)
        .graceful_shutdown_on(shutdown_begins(shutdown.clone()))
        .run(reconcile, after_failure, context.clone())
        .for_each(|result| async move {
            if let Err(failure) = result {
                debug!(%failure, "controller");
            }
        });
    tasks.spawn(format!("the controller of {}", group.name()), controller)
}

/// Waits until these tasks have ended after shutdown.
async fn wait_for(
    mut tasks: HashSet<TaskId>,
    shutdown: &watch::Receiver<bool>,
    exits: &mut TaskExits,
) -> Result<(), TaskExit> {
    while !tasks.is_empty() {
        match exits.next().await {
            TaskExit::Returned { id, .. } if *shutdown.borrow() => tasks.remove(&id),
            exit => return Err(exit),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::Body;
    use clap::Parser;
    use futures::stream;
    use http::{Method, Request, Response, StatusCode};
    use kube::Client;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::client::throttle::Throttle;

    /// An API server with a node in maintenance. Requests to the `broken` path panic.
    fn cluster(broken: (Method, &'static str)) -> TermClient {
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let broken = broken.clone();
            async move {
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                assert!(request.method() != broken.0 || !path.ends_with(broken.1), "request to {path}");
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
        TermClient { client: Client::new(server, "default"), throttle: Throttle::default() }
    }

    fn term(client: TermClient, shutdown: watch::Receiver<bool>) -> (Term, Readiness) {
        let (flags, readiness) = (Flags::parse_from(["nm-reconciler"]), Readiness::default());
        let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new()));
        (Term { client, clock, flags, readiness: readiness.clone(), metrics, shutdown }, readiness)
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
    async fn a_shutdown_before_the_nodes_are_known_is_no_failure() {
        // The evictor ends at the same time.
        for _ in 0..50 {
            let silent = tower::service_fn(|_: Request<kube::client::Body>| {
                std::future::pending::<Result<Response<Body>, Infallible>>()
            });
            let client = TermClient { client: Client::new(silent, "default"), throttle: Throttle::default() };
            let (sender, shutdown) = watch::channel(false);
            let leading = tokio::spawn(run(term(client, shutdown).0));
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send_replace(true);
            leading.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_term_ends_with_any_of_its_tasks_and_readyz_names_it() {
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
            let (_sender, shutdown) = watch::channel(false);
            let (term, readiness) = term(cluster((verb, path)), shutdown);
            let leading = run(term);
            let ended = timeout(Duration::from_secs(60), leading).await;
            let end =
                ended.unwrap_or_else(|_| panic!("the term goes on without {path}")).unwrap_err().to_string();
            let is_named = end.starts_with(&format!("{task} panicked: ")) && end.contains("request to /");
            assert!(is_named, "{end}");
            let report = readiness.report().lines;
            assert!(report.contains(&format!("[-]leader-tasks failed: {end}\n")), "{report}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_term_ends_without_an_error_at_shutdown() {
        let (sender, shutdown) = watch::channel(false);
        let (term, _readiness) = term(cluster((Method::DELETE, "/nothing")), shutdown);
        let leading = run(term);
        let shutting_down = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            sender.send_replace(true);
        };
        let ended = timeout(Duration::from_secs(60), async { tokio::join!(leading, shutting_down).0 }).await;
        assert_eq!(ended.unwrap(), Ok(()));
    }
}
