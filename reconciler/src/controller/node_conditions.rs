//! Writes the conditions by which nodes tell where their maintenance stands (`--node-conditions`), beside all other work.
//!
//! They are for those who wish to know, so nothing waits for them: not for an answer, and not for the right. A reconcile
//! says what a node is to tell, and goes on; what is said last is written in the end, after whatever pauses the API
//! server makes necessary. A node that is gone tells nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client};
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::node_conditions::{self, WantedCondition};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::cache::read_your_writes::OwnWrites;
use crate::cache::triggers::Triggers;
use crate::client::write_params::patch_params;
use crate::controller::backoff::Failures;
use crate::watch::cluster_watches::slim_node;

/// Where the right is missing, it is missing for all nodes: it is asked for again so soon.
const PAUSE: Duration = Duration::from_secs(10);

/// A write that takes longer than this is given up and tried again.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many writes are under way at once.
const AT_ONCE: usize = 8;

/// What a node is to tell; none of ours, if there is nothing.
type Wanted = Vec<WantedCondition>;

/// When the API server denied writing conditions, if that was its last answer.
#[derive(Debug, Default)]
struct Refused(Mutex<Option<(Instant, AccessDenied)>>);

impl Refused {
    fn set(&self, refused: Option<(Instant, AccessDenied)>) -> Option<(Instant, AccessDenied)> {
        std::mem::replace(&mut *self.lock(), refused)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, AccessDenied)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes in what nodes are to tell.
pub(crate) struct NodeConditions {
    wishes: UnboundedSender<(String, Wanted)>,
    refused: Arc<Refused>,
}

impl NodeConditions {
    /// Knows nodes by this store and by what was written. The future writes, for ever, and wakes everybody when the
    /// permission turns out to be missing or is granted.
    pub(crate) fn start(
        client: &Client,
        triggers: Triggers,
        nodes: Store<Node>,
        own: Arc<OwnWrites<Node>>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = unbounded();
        let publisher = Publisher {
            api: Api::all(client.clone()),
            nodes,
            own,
            turns: Semaphore::new(AT_ONCE),
            triggers,
            refused: Arc::default(),
        };
        let conditions = Self { wishes: sender, refused: publisher.refused.clone() };
        (conditions, publisher.run(receiver))
    }

    /// What is refused, if anything is.
    pub(crate) fn refusal(&self) -> Option<AccessDenied> {
        self.refused.lock().as_ref().map(|(_, denied)| denied.clone())
    }

    /// Has a node tell this and no more, sooner or later.
    pub(crate) fn want(&self, node: &str, wanted: Wanted) {
        // The receiver is gone only when the term ends.
        let _ = self.wishes.unbounded_send((node.to_owned(), wanted));
    }
}

struct Publisher {
    api: Api<Node>,
    nodes: Store<Node>,
    own: Arc<OwnWrites<Node>>,
    turns: Semaphore,
    triggers: Triggers,
    refused: Arc<Refused>,
}

impl Publisher {
    /// Each node has one task at most, so that of two writes the later one is the later one.
    async fn run(self, mut wishes: UnboundedReceiver<(String, Wanted)>) {
        let mut open: HashMap<String, watch::Sender<Wanted>> = HashMap::new();
        let mut publishing = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((node, wanted)) = wishes.next() => match open.entry(node) {
                    Entry::Occupied(entry) => {
                        entry.get().send_replace(wanted);
                    }
                    Entry::Vacant(entry) => {
                        let (sender, wanted) = watch::channel(wanted);
                        publishing.push(self.publish(entry.key().clone(), wanted));
                        entry.insert(sender);
                    }
                },
                Some(node) = publishing.next() => {
                    open.remove(&node);
                }
                // Nobody wants anything any more, and nothing is under way.
                else => return,
            }
        }
    }

    /// Writes until the node tells what is wanted, and returns its name.
    async fn publish(&self, node: String, wanted: watch::Receiver<Wanted>) -> String {
        let mut failures = Failures::default();
        loop {
            if let Some(rest) = self.rest() {
                sleep(rest).await;
            }
            // It is never closed.
            let turn = self.turns.acquire().await;
            // Others may have found meanwhile that the right is missing.
            if self.rest().is_some() {
                continue;
            }
            let Some(patch) = self.patch(&node, &wanted.borrow()) else { return node };
            let written = self.write(&node, &patch).await;
            drop(turn);
            match written {
                Ok(()) => {
                    if self.patch(&node, &wanted.borrow()).is_none() {
                        return node;
                    }
                    // Something else is wanted since, or somebody writes otherwise.
                    failures.note(true);
                    sleep(failures.pause()).await;
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return node,
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let denied = AccessDenied::from(status.message.as_str());
                    if self.refused.set(Some((Instant::now(), denied.clone()))).is_none() {
                        warn!(node, "conditions of nodes are not published: {denied}");
                        self.triggers.wake_all();
                    }
                }
                Err(error) => {
                    if failures.note(false) {
                        let why = match &error {
                            kube::Error::Api(status) => status.message.clone(),
                            other => other.to_string(),
                        };
                        warn!(
                            node,
                            why, "the conditions of a node are not published, which will be tried again"
                        );
                    }
                    sleep(failures.pause()).await;
                }
            }
        }
    }

    /// What is to be written, as far as is known; none if the node tells it, or is gone.
    fn patch(&self, node: &str, wanted: &[WantedCondition]) -> Option<Value> {
        let node = self.own.freshest(self.nodes.get(&ObjectRef::new(node))?);
        node_conditions::patch(wanted, &node, Timestamp::now())
    }

    async fn write(&self, node: &str, patch: &Value) -> kube::Result<()> {
        let (params, patch) = (patch_params(), Patch::Strategic(patch));
        let answered = timeout(PATIENCE, self.api.patch_status(node, &params, &patch)).await;
        let mut written = answered.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))?;
        if self.refused.set(None).is_some() {
            self.triggers.wake_all();
        }
        slim_node(&mut written);
        self.own.remember(written);
        Ok(())
    }

    /// For how long nothing is written, after a refusal.
    fn rest(&self) -> Option<Duration> {
        let refused = self.refused.lock().as_ref()?.0;
        PAUSE.checked_sub(refused.elapsed()).filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use http::{Request, Response, StatusCode};
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::cache::maintenances::Maintenances;

    /// A write, and where to answer it.
    type Asked = mpsc::UnboundedReceiver<(Value, tokio::sync::oneshot::Sender<Response<Body>>)>;

    fn triggers() -> Triggers {
        Triggers::new(Arc::new(Maintenances::new([]))).0
    }

    /// An API server with a node that tells these conditions, and the publisher beside it.
    fn publisher(there: &Value) -> (NodeConditions, Asked, Writer<Node>) {
        let (sender, asked) = mpsc::unbounded_channel();
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
        let (nodes, mut writer) = reflector::store();
        writer.apply_watcher_event(&watcher::Event::Apply(node("1", there)));
        let client = Client::new(server, "default");
        let (conditions, run) = NodeConditions::start(&client, triggers(), nodes, Arc::default());
        tokio::spawn(run);
        (conditions, asked, writer)
    }

    fn node(version: &str, conditions: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn wanted() -> Wanted {
        let maintenance = nm_shared::NodeMaintenance::new("m", nm_shared::NodeMaintenanceSpec::default());
        let condition = json!({"type": "Cordoned", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": [condition]})).unwrap();
        node_conditions::wanted(&maintenance, &status, false)
    }

    fn ok(version: &str, conditions: &Value) -> Response<Body> {
        Response::new(Body::from(serde_json::to_vec(&node(version, conditions)).unwrap()))
    }

    fn refused(code: u16) -> Response<Body> {
        let status =
            json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "R", "code": code});
        let mut answer = Response::new(Body::from(status.to_string()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_last_is_told_in_the_end_even_if_what_was_wanted_before_is_under_way() {
        let (conditions, mut asked, _nodes) = publisher(&json!([]));
        conditions.want("n", wanted());
        let (patch, answer) = asked.recv().await.unwrap();
        conditions.want("n", Vec::new());
        let there = &patch["status"]["conditions"];
        answer.send(ok("2", there)).unwrap();
        let (patch, _) = asked.recv().await.unwrap();
        let deleted = |condition: &Value| condition["$patch"] == "delete";
        assert!(patch["status"]["conditions"].as_array().unwrap().iter().all(deleted), "{patch}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_is_tried_again_after_longer_and_longer_pauses() {
        let (conditions, mut asked, _nodes) = publisher(&json!([]));
        conditions.want("n", wanted());
        let mut pauses = Vec::new();
        let mut last = Instant::now();
        for code in [422, 429, 500, 503, 422, 422, 422] {
            let (_, answer) = asked.recv().await.unwrap();
            pauses.push(last.elapsed().as_millis());
            last = Instant::now();
            answer.send(refused(code)).unwrap();
        }
        let expected = [0, 100, 500, 2_000, 5_000, 10_000, 10_000];
        assert!(
            pauses.iter().zip(expected).all(|(pause, least)| (least..least + 5).contains(pause)),
            "{pauses:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_never_answered_is_given_up_and_tried_again() {
        let (conditions, mut asked, _nodes) = publisher(&json!([]));
        conditions.want("n", wanted());
        let began = Instant::now();
        for _ in 0..2 {
            asked.recv().await.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_publisher_that_nobody_uses_any_more_finishes_what_is_under_way_and_ends() {
        let (sender, receiver) = unbounded();
        let (nodes, _writer) = reflector::store();
        let never = tower::service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let api = Api::all(Client::new(never, "default"));
        let turns = Semaphore::new(AT_ONCE);
        let (own, refused) = (Arc::default(), Arc::default());
        let publisher = Publisher { api, nodes, own, turns, triggers: triggers(), refused };
        sender.unbounded_send(("gone".to_owned(), wanted())).unwrap();
        drop(sender);
        publisher.run(receiver).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_missing_is_asked_for_seldom_whatever_is_wanted_meanwhile() {
        let (conditions, mut asked, _nodes) = publisher(&json!([]));
        conditions.want("n", wanted());
        let (_, answer) = asked.recv().await.unwrap();
        let began = Instant::now();
        answer.send(refused(403)).unwrap();
        for _ in 0..20 {
            conditions.want("n", wanted());
            tokio::task::yield_now().await;
        }
        assert_eq!(conditions.refusal(), Some("no".into()));
        let (patch, answer) = asked.recv().await.unwrap();
        assert!(began.elapsed() >= PAUSE, "{:?}", began.elapsed());
        answer.send(ok("2", &patch["status"]["conditions"])).unwrap();
        while conditions.refusal().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
