//! Publishes the state of a maintenance in the conditions of its node (`--node-conditions`), beside all other work.
//!
//! Nothing waits for these writes or for the permission to make them. A reconcile hands over the conditions that a node
//! has to show, and continues; the last ones handed over are always written in the end, after any backoff. Nothing is
//! written for a node that no longer exists.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::Patch;
use kube::{Api, Client};
use nm_shared::cluster::refusal::Refusal;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::node_conditions;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::cache::projected_node::ProjectedNode;
use crate::cache::read_your_writes::LastWrite;
use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::client::{patch_params, with_timeout};
use crate::runtime::backoff::Backoff;
use crate::runtime::clock::Clock;

/// How long to wait after a refusal for lack of permission, which concerns all nodes.
const FORBIDDEN_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait for the answer to a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many writes are in progress at once.
const MAX_CONCURRENT_WRITES: usize = 8;

/// The conditions that a node has to show; empty to remove ours.
type WantedConditions = Vec<NodeCondition>;

/// Receives the conditions that nodes have to show.
pub(crate) struct NodeConditionPublisher {
    sender: UnboundedSender<(String, WantedConditions)>,
}

impl NodeConditionPublisher {
    /// The future writes, never ends, and triggers all reconciles when permission is missing or granted again.
    pub(crate) fn start(
        client: &Client,
        state: Arc<SharedState>,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = unbounded();
        let writer = ConditionWriter {
            api: Api::all(client.clone()),
            state,
            clock,
            permits: Semaphore::new(MAX_CONCURRENT_WRITES),
        };
        (Self { sender }, writer.run(receiver))
    }

    /// Makes a node show exactly these of our conditions.
    pub(crate) fn publish(&self, node: &str, wanted: WantedConditions) {
        // The receiver is gone only when the term ends.
        let _ = self.sender.unbounded_send((node.to_owned(), wanted));
    }
}

/// What was last written to a node.
#[derive(Default)]
struct PublishedNode {
    last_write: LastWrite<Node>,
    /// How often the nodes had been listed. After another list, the write may be lost: etcd may have been restored.
    lists: usize,
}

impl PublishedNode {
    /// The newest of the node that the watch delivered and the answers to all writes; none if there is no such node.
    fn latest(&mut self, state: &mut TermState, name: &str) -> Option<Arc<Node>> {
        let lists = state.nodes.lists;
        if self.lists != lists {
            *self = Self { last_write: LastWrite::default(), lists };
        }
        self.last_write.forget_up_to(&Node::from(&**state.nodes.received.get(name)?));
        Some(self.last_write.newest(state.nodes.latest(name)?))
    }
}

struct ConditionWriter {
    api: Api<ProjectedNode>,
    state: Arc<SharedState>,
    clock: Clock,
    permits: Semaphore,
}

impl ConditionWriter {
    /// Each node has at most one task, so its writes are in order.
    async fn run(self, mut requests: UnboundedReceiver<(String, WantedConditions)>) {
        let mut open: HashMap<String, watch::Sender<WantedConditions>> = HashMap::new();
        // The writes that the watch has not delivered yet. Once the maintenance is gone, they are known nowhere else.
        let mut undelivered: HashMap<String, PublishedNode> = HashMap::new();
        let mut tasks = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((node, wanted)) = requests.next() => match open.entry(node) {
                    Entry::Occupied(entry) => {
                        entry.get().send_replace(wanted);
                    }
                    Entry::Vacant(entry) => {
                        let (sender, wanted) = watch::channel(wanted);
                        let before = undelivered.remove(entry.key()).unwrap_or_default();
                        tasks.push(self.publish(entry.key().clone(), wanted, before));
                        entry.insert(sender);
                    }
                },
                Some((node, published)) = tasks.next() => {
                    open.remove(&node);
                    undelivered.insert(node, published);
                    undelivered.retain(|node, published| self.is_undelivered(node, published));
                }
                // The publisher is gone and nothing is in progress.
                else => return,
            }
        }
    }

    /// Writes until the node shows what is wanted, and returns its name and what was written.
    async fn publish(
        &self,
        node: String,
        wanted: watch::Receiver<WantedConditions>,
        mut published: PublishedNode,
    ) -> (String, PublishedNode) {
        let mut backoff = Backoff::default();
        loop {
            if let Some(wait) = self.forbidden_wait() {
                sleep(wait).await;
            }
            // The semaphore is never closed.
            let permit = self.permits.acquire().await;
            // Another node's write may have been refused meanwhile.
            if self.forbidden_wait().is_some() {
                continue;
            }
            let Some(patch) = self.patch(&node, &wanted.borrow(), &mut published) else {
                return (node, published);
            };
            let written = self.write(&node, &patch).await;
            drop(permit);
            match written {
                Ok(answer) => {
                    _ = published.last_write.remember(answer);
                    if self.patch(&node, &wanted.borrow(), &mut published).is_none() {
                        return (node, published);
                    }
                    // Something else is wanted now, or someone else changes the conditions.
                    backoff.record_failure(true);
                    sleep(backoff.delay()).await;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return (node, published),
                Err(kube::Error::Api(status))
                    if matches!(Refusal::from(&*status), Refusal::AccessDenied(_)) =>
                {
                    let denied = AccessDenied::from(status.message.as_str());
                    if self.note_denial(Some(denied.clone())) {
                        warn!(node, "node conditions are not published: {denied}");
                    }
                }
                Err(error) => {
                    if backoff.record_failure(false) {
                        let why = match &error {
                            kube::Error::Api(status) => status.message.clone(),
                            other => other.to_string(),
                        };
                        warn!(node, why, "node conditions are not published; retrying");
                    }
                    sleep(backoff.delay()).await;
                }
            }
        }
    }

    /// Whether the watch has not delivered a write yet, and the node exists.
    fn is_undelivered(&self, node: &str, published: &mut PublishedNode) -> bool {
        let latest = published.latest(&mut self.state.lock(), node);
        latest.is_some() && published.last_write.get().is_some()
    }

    /// The patch that makes the node show what is wanted; none if it does, or no longer exists.
    fn patch(&self, node: &str, wanted: &[NodeCondition], published: &mut PublishedNode) -> Option<Value> {
        let node = published.latest(&mut self.state.lock(), node)?;
        node_conditions::patch(wanted, &node, self.clock.now())
    }

    async fn write(&self, node: &str, patch: &Value) -> kube::Result<Node> {
        let (params, patch) = (patch_params(), Patch::Strategic(patch));
        let write = self.api.patch_status(node, &params, &patch);
        let ProjectedNode(written) = with_timeout(WRITE_TIMEOUT, write).await?;
        self.note_denial(None);
        self.state.lock().remember_node(node, written.clone());
        Ok(written)
    }

    /// Records whether writes are denied, and returns whether that is new.
    fn note_denial(&self, denied: Option<AccessDenied>) -> bool {
        let mut state = self.state.lock();
        let is_denied = denied.is_some();
        let denial = denied.map(|denied| (Instant::now(), denied));
        let is_new = std::mem::replace(&mut state.conditions_denied, denial).is_some() != is_denied;
        if is_new {
            state.trigger_all();
        }
        is_new
    }

    /// How long no write is attempted after a refusal.
    fn forbidden_wait(&self) -> Option<Duration> {
        let refused = self.state.lock().conditions_denied.as_ref()?.0;
        FORBIDDEN_RETRY_INTERVAL.checked_sub(refused.elapsed()).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;

    use axum::body::Body;
    use http::{Request, Response, StatusCode};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::cache::watched::WatchUpdate;

    /// A write, and where to answer it.
    type Writes = mpsc::UnboundedReceiver<(Value, tokio::sync::oneshot::Sender<Response<Body>>)>;

    fn state() -> Arc<SharedState> {
        SharedState::new([], NonZeroUsize::MIN).0
    }

    /// A publisher, and an API server with a node that shows these conditions.
    fn publisher(there: &Value) -> (NodeConditionPublisher, Writes, Arc<SharedState>) {
        let (sender, writes) = mpsc::unbounded_channel();
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let sender = sender.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                sender.send((serde_json::from_slice(&body).unwrap(), answer)).unwrap();
                match answered.await {
                    Ok(answer) => Ok::<_, Infallible>(answer),
                    Err(_) => std::future::pending().await,
                }
            }
        });
        let state = state();
        state.lock().apply_node(WatchUpdate::Applied(node("1", there).into()));
        let client = Client::new(server, "default");
        let (conditions, run) = NodeConditionPublisher::start(&client, state.clone(), Clock::system());
        tokio::spawn(run);
        (conditions, writes, state)
    }

    fn node(version: &str, conditions: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn wanted() -> WantedConditions {
        let maintenance = nm_shared::NodeMaintenance::new("m", nm_shared::NodeMaintenanceSpec::default());
        let condition = json!({"type": "Cordoned", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": [condition]})).unwrap();
        node_conditions::wanted(&maintenance, &status, false)
    }

    fn ok(version: &str, conditions: &Value) -> Response<Body> {
        Response::new(Body::from(serde_json::to_vec(&node(version, conditions)).unwrap()))
    }

    const DENIED: &str =
        "User \"u\" cannot patch resource \"nodes/status\" in API group \"\" at the cluster scope";

    fn refused(code: u16) -> Response<Body> {
        let status =
            json!({"kind": "Status", "status": "Failure", "message": DENIED, "reason": "R", "code": code});
        let mut answer = Response::new(Body::from(status.to_string()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_conditions_are_written_even_while_an_earlier_write_is_in_progress() {
        let (conditions, mut writes, _state) = publisher(&json!([]));
        conditions.publish("n", wanted());
        let (patch, answer) = writes.recv().await.unwrap();
        conditions.publish("n", Vec::new());
        let there = &patch["status"]["conditions"];
        answer.send(ok("2", there)).unwrap();
        let (patch, _) = writes.recv().await.unwrap();
        let deleted = |condition: &Value| condition["$patch"] == "delete";
        assert!(patch["status"]["conditions"].as_array().unwrap().iter().all(deleted), "{patch}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_arrives_after_the_end_of_a_maintenance_is_not_remembered_and_nothing_is_written_again()
     {
        let (conditions, mut writes, state) = publisher(&json!([]));
        conditions.publish("n", wanted());
        let (patch, answer) = writes.recv().await.unwrap();
        answer.send(ok("2", &patch["status"]["conditions"])).unwrap();
        let again = tokio::time::timeout(Duration::from_secs(60), writes.recv()).await;
        assert!(again.is_err(), "the answer shows what is wanted");
        assert!(!state.lock().nodes.remembers("n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_retried_with_growing_delays() {
        let (conditions, mut writes, _state) = publisher(&json!([]));
        conditions.publish("n", wanted());
        let mut delays = Vec::new();
        let mut last = Instant::now();
        for code in [422, 429, 500, 503, 422, 422, 422] {
            let (_, answer) = writes.recv().await.unwrap();
            delays.push(last.elapsed().as_millis());
            last = Instant::now();
            answer.send(refused(code)).unwrap();
        }
        let expected = [0, 100, 500, 2_000, 5_000, 10_000, 10_000];
        assert!(
            delays.iter().zip(expected).all(|(delay, least)| (least..least + 5).contains(delay)),
            "{delays:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_times_out_and_is_retried() {
        let (conditions, mut writes, _state) = publisher(&json!([]));
        conditions.publish("n", wanted());
        let began = Instant::now();
        for _ in 0..2 {
            writes.recv().await.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_that_was_dropped_finishes_its_writes_and_ends() {
        let (sender, receiver) = unbounded();
        let never = tower::service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let api = Api::all(Client::new(never, "default"));
        let permits = Semaphore::new(MAX_CONCURRENT_WRITES);
        let writer = ConditionWriter { api, state: state(), clock: Clock::system(), permits };
        sender.unbounded_send(("gone".to_owned(), wanted())).unwrap();
        drop(sender);
        writer.run(receiver).await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_writes_are_rare_whatever_is_published() {
        let (conditions, mut writes, state) = publisher(&json!([]));
        let refusal = || state.lock().conditions_denied.as_ref().map(|(_, denied)| denied.clone());
        conditions.publish("n", wanted());
        let (_, answer) = writes.recv().await.unwrap();
        let began = Instant::now();
        answer.send(refused(403)).unwrap();
        for _ in 0..20 {
            conditions.publish("n", wanted());
            tokio::task::yield_now().await;
        }
        assert_eq!(refusal(), Some(DENIED.into()));
        let (patch, answer) = writes.recv().await.unwrap();
        assert!(began.elapsed() >= FORBIDDEN_RETRY_INTERVAL, "{:?}", began.elapsed());
        answer.send(ok("2", &patch["status"]["conditions"])).unwrap();
        while refusal().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
