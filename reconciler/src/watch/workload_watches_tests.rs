//! What it costs to watch workloads, and when restarts are withdrawn.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::StreamExt;
use nm_shared::GroupedMaintenance;
use nm_shared::drain::surge::WorkloadState;
use serde_json::json;

use super::*;
use crate::cache::shared_state::Triggered;
use crate::client::throttle::{Flow, Throttle};

/// The state with a maintenance of a node.
fn state_of_node(node: &str) -> (Arc<SharedState>, Triggered) {
    let maintenance: GroupedMaintenance = serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"}, "spec": {"nodeName": node},
    }))
    .unwrap();
    let (state, triggered) = SharedState::new([], NonZeroUsize::MIN);
    state.lock().maintenance_applied(Arc::new(maintenance));
    (state, triggered)
}

/// A restart of the Deployment `web`.
fn restart() -> Restart {
    let set = WorkloadKey { namespace: "shop".into(), name: "web-1".into() };
    let mut deployment = Deployment::default();
    let metadata = &mut deployment.metadata;
    metadata.resource_version = Some("9".into());
    (metadata.namespace, metadata.name, metadata.uid) =
        (Some("shop".into()), Some("web".into()), Some("d".into()));
    metadata.annotations = Some([("deployment.kubernetes.io/revision".into(), "1".into())].into());
    Restart::of(&deployment, &set, jiff::Timestamp::UNIX_EPOCH).unwrap()
}

/// An API server that denies reading `ReplicaSet`s until `is_granted`, and how many of these requests it has received.
fn denying_server(is_granted: &Arc<AtomicBool>) -> (Client, Arc<AtomicUsize>) {
    let reads = Arc::<AtomicUsize>::default();
    let (count, is_granted) = (reads.clone(), is_granted.clone());
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_read = request.uri().path().contains("/replicasets/");
        count.fetch_add(usize::from(is_read), Ordering::Relaxed);
        let found = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "s"}});
        let denied = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "User \"u\" cannot get resource \"replicasets\" in API group \"apps\""});
        let is_granted = is_granted.load(Ordering::Relaxed);
        let (code, body) = if is_granted { (200, found) } else { (403, denied) };
        let answer = http::Response::builder().status(code).header("content-type", "application/json");
        let answer = answer.body(axum::body::Body::from(body.to_string())).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    (Client::new(server, "default"), reads)
}

/// An API server that has a Deployment whose `ReplicaSet` can be read once, and that soon denies reading the Deployment.
fn failing_server() -> Client {
    let (reads, lists) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let revision = |revision: &str| json!({"deployment.kubernetes.io/revision": revision});
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true});
        let set = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "web-1", "annotations": revision("1"), "ownerReferences": [owner]}});
        let deployment = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "d", "resourceVersion": "7",
            "annotations": revision("2")}});
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [deployment]});
        let failure =
            |code: u16| json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
        let (code, body) = match request.uri().path() {
            path if path.contains("/replicasets/") && reads.fetch_add(1, Ordering::Relaxed) == 0 => {
                (200, set)
            }
            path if !path.ends_with("/deployments") || is_watch => (500, failure(500)),
            _ if lists.fetch_add(1, Ordering::Relaxed) == 0 => (200, list),
            _ => (403, failure(403)),
        };
        let answer = http::Response::builder().status(code).header("content-type", "application/json");
        let answer = answer.body(axum::body::Body::from(body.to_string())).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    Client::new(server, "default")
}

#[tokio::test(start_paused = true)]
async fn a_denied_deployment_triggers_a_reconcile_although_the_replica_set_cannot_be_read() {
    let (state, [(_, mut triggered), ..]) = state_of_node("n");
    let watches = Arc::new(WorkloadWatches::new(failing_server(), state.clone(), TaskSpawner::new().0));
    let key = WorkloadKey { namespace: "shop".into(), name: "web-1".into() };
    watches.watch("n", &[key.clone()].into());
    let is_denied = || {
        matches!(
            state.lock().workloads.states("n", std::iter::empty).get(&key),
            Some(WorkloadState::Forbidden(_))
        )
    };
    let reported = async {
        triggered.next().await.unwrap();
        while !is_denied() {
            triggered.next().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reported).await.expect("a reconcile reports it");
}

/// The reads and triggers in ten minutes in which so many `ReplicaSet`s may not be read.
async fn cost_of_denials(sets: usize) -> (usize, usize) {
    let is_granted = Arc::<AtomicBool>::default();
    let (client, reads) = denying_server(&is_granted);
    let (state, [(_, mut triggered), ..]) = state_of_node("n");
    let watches = Arc::new(WorkloadWatches::new(client, state.clone(), TaskSpawner::new().0));
    let key = |at: usize| WorkloadKey { namespace: "shop".into(), name: format!("s{at}") };
    watches.watch("n", &(0..sets).map(key).collect());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let mut triggers = 0;
    while triggered.try_recv().is_ok() {
        triggers += 1;
    }
    let cost = (reads.swap(0, Ordering::Relaxed), triggers);
    assert_eq!(
        state.lock().workloads.states("n", std::iter::empty).len(),
        sets,
        "each pod shows why it is not replaced first"
    );
    is_granted.store(true, Ordering::Relaxed);
    tokio::time::sleep(2 * RETRY_INTERVAL).await;
    assert_eq!(reads.load(Ordering::Relaxed), sets, "all are read as soon as one may be");
    cost
}

#[tokio::test(start_paused = true)]
async fn replica_sets_that_may_not_be_read_cost_one_request_at_a_time_however_many_there_are() {
    for sets in [1, 10, 100, 1_000] {
        let (reads, triggers) = cost_of_denials(sets).await;
        // Ten minutes have 120 intervals.
        assert!((sets + 119..=sets + 121).contains(&reads), "{reads} reads for {sets}");
        assert_eq!(triggers, sets, "once each");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_waits_for_the_end_of_a_pause_is_withdrawn() {
    let restarts = Arc::<AtomicUsize>::default();
    let count = restarts.clone();
    // An API server that throttles reads.
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (is_restart, count) = (request.method() == http::Method::PATCH, count.clone());
        async move {
            count.fetch_add(usize::from(is_restart), Ordering::Relaxed);
            let (code, kind) = if is_restart { (500, "application/json") } else { (429, "text/plain") };
            let answer = http::Response::builder().status(code).header("retry-after", "5");
            Ok::<_, std::convert::Infallible>(
                answer.header("content-type", kind).body(axum::body::Body::from("no")).unwrap(),
            )
        }
    });
    let throttle = Throttle::default();
    let client = Client::new(tower::Layer::layer(&throttle, server), "default");
    let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
    let watches = Arc::new(WorkloadWatches::new(client.clone(), state.clone(), TaskSpawner::new().0));
    let key = restart().deployment;
    // The restarts sent after a pause in which two nodes have requested one, and these have withdrawn theirs.
    let sent = async |withdrawn: &[&str]| {
        assert!(client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await.is_err());
        for node in ["a", "b"] {
            watches.restart(node, restart(), SteadyTime::MIN);
        }
        tokio::task::yield_now().await;
        state.lock().workloads.withdraw_restarts("a", &[key.clone()].into());
        for node in withdrawn {
            state.lock().workloads.withdraw_restarts(node, &HashSet::new());
        }
        throttle.ended(Flow::Others).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        restarts.swap(0, Ordering::Relaxed)
    };
    assert_eq!(sent(&[]).await, 1);
    assert_eq!(sent(&["a"]).await, 1, "the other node needs it");
    assert_eq!(sent(&["a", "b"]).await, 0);
    assert_eq!(sent(&[]).await, 1);
}
