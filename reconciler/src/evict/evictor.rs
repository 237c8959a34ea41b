//! Sends evictions and deletions concurrently and records their answers. It decides nothing.
//!
//! The uid of a pod is the precondition of its request. [`Evictions`](crate::cache::evictions::Evictions) decides how many
//! requests are in progress and which is next.

use std::sync::Arc;

use nm_shared::NodeMaintenance;
use nm_shared::cluster::pod;
use nm_shared::decide::decision::{Eviction, RemovalRequest};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::cache::eviction_scheduler::MIN_SLOW_ANSWER;
use crate::cache::evictions::QueuedEviction;
use crate::cache::shared_state::SharedState;
use crate::client::TermClient;
use crate::client::throttle::Flow;
use crate::evict::eviction_request::send;
use crate::runtime::shutdown::shutdown_begins;
use crate::telemetry::metrics::Metrics;

pub(crate) struct Evictor {
    client: TermClient,
    state: Arc<SharedState>,
    metrics: Arc<Metrics>,
    /// Notified when another request may be sent.
    may_send: Notify,
    /// Notified when a request panicked: its pod would wait forever.
    panicked: Notify,
}

/// A request in progress. It ends when this is dropped.
struct RequestInProgress {
    evictor: Arc<Evictor>,
    node: String,
    sent: Instant,
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.evictor.state.lock().evictions.finish(&self.node, self.sent);
        self.evictor.may_send.notify_one();
        if std::thread::panicking() {
            self.evictor.panicked.notify_one();
        }
    }
}

impl Evictor {
    pub(crate) fn new(client: TermClient, state: Arc<SharedState>, metrics: Arc<Metrics>) -> Self {
        Self { client, state, metrics, may_send: Notify::new(), panicked: Notify::new() }
    }

    /// Queues the evictions of pods, except those that are in progress.
    pub(crate) fn submit(&self, maintenance: &NodeMaintenance, evictions: Vec<Eviction>) {
        self.state.lock().submit(maintenance, evictions, &self.metrics);
        self.may_send.notify_one();
    }

    /// Sends queued evictions until shutdown, then waits for the requests in progress: otherwise the next leader would
    /// send them again.
    pub(crate) async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = shutdown_begins(shutdown) => {}
            () = self.panicked.notified() => return,
            () = self.send_all() => {}
        }
        while self.has_in_progress() {
            self.may_send.notified().await;
        }
    }

    fn has_in_progress(&self) -> bool {
        self.state.lock().evictions.has_in_progress()
    }

    async fn send_all(self: &Arc<Self>) {
        loop {
            // Queued evictions can still be withdrawn; those that are sent would wait in the client.
            self.client.throttle.ended(Flow::Evictions).await;
            let sent = Instant::now();
            let (next, has_waiting) = {
                let mut state = self.state.lock();
                (state.evictions.next(sent), state.evictions.has_waiting())
            };
            match next {
                Some((node, queued)) => {
                    let request = RequestInProgress { evictor: self.clone(), node, sent };
                    tokio::spawn(self.clone().send(request, queued));
                }
                // One in progress becomes slow, and no longer counts.
                None if has_waiting => {
                    let _ = tokio::time::timeout(MIN_SLOW_ANSWER, self.may_send.notified()).await;
                }
                None => self.may_send.notified().await,
            }
        }
    }

    async fn send(self: Arc<Self>, request: RequestInProgress, queued: QueuedEviction) {
        let QueuedEviction { decided_by, eviction, timer, withdrawal } = queued;
        timer.sent();
        let outcome = tokio::select! {
            biased;
            () = withdrawal.requested() => return,
            outcome = send(&self.client.client, &eviction) => outcome,
        };
        self.metrics.eviction_answered(&outcome);
        let (node, pod) = (&request.node, &eviction.pod);
        let has_changed = {
            let mut state = self.state.lock();
            let now = state.evictions.now();
            let has_changed = state.evictions.end(node, pod, eviction.request, outcome.clone(), now);
            if has_changed {
                state.trigger_node(node);
            }
            has_changed
        };
        if has_changed {
            log(&decided_by.name, node, &eviction, &outcome);
        }
    }
}

/// Logs an accepted eviction. A refusal is logged once, when the status first shows the pod as blocked, and not with
/// every attempt.
fn log(maintenance: &str, node: &str, eviction: &Eviction, outcome: &EvictionOutcome) {
    let pod = pod::reference(&eviction.pod).to_string();
    match (outcome, eviction.request) {
        (EvictionOutcome::Accepted, RemovalRequest::Evict) => {
            info!(maintenance, node, pod, "eviction accepted");
        }
        (EvictionOutcome::Accepted, RemovalRequest::Delete) => {
            info!(
                maintenance,
                node, pod, "pod deleted: its eviction was refused for longer than deleteAfterSeconds"
            );
        }
        (EvictionOutcome::Gone, _) => debug!(maintenance, node, pod, "pod was gone before its eviction"),
        (refusal, RemovalRequest::Evict) => {
            debug!(maintenance, node, pod, outcome = refusal.as_str(), ?refusal, "eviction refused");
        }
        (refusal, RemovalRequest::Delete) => {
            debug!(maintenance, node, pod, outcome = refusal.as_str(), ?refusal, "deletion refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use kube::Client;
    use kube::client::Body;
    use nm_shared::NodeMaintenanceSpec;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;
    use crate::client::throttle::Throttle;

    fn eviction(uid: &str) -> Eviction {
        let pod = json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        Eviction {
            pod,
            request: RemovalRequest::Evict,
            grace_period_seconds: None,
            guards: Vec::new(),
            uses_disruption: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_panics_ends_the_evictor() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            assert!(request.uri().path().is_empty(), "every request panics");
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let metrics = Arc::new(Metrics::new());
        let evictor = Arc::new(Evictor::new(client, state, metrics));
        evictor.submit(&NodeMaintenance::new("m", NodeMaintenanceSpec::default()), vec![eviction("u")]);
        let (_sender, shutdown) = watch::channel(false);
        timeout(Duration::from_secs(60), evictor.run(shutdown))
            .await
            .expect("nothing else would evict the pod");
    }

    #[tokio::test(start_paused = true)]
    async fn after_shutdown_it_sends_nothing_more_and_waits_for_requests_in_progress() {
        let (request_sender, mut requests) = unbounded_channel();
        let answer = Arc::new(Notify::new());
        let given = answer.clone();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let (request_sender, given) = (request_sender.clone(), given.clone());
            async move {
                request_sender.send(()).unwrap();
                given.notified().await;
                Ok::<_, Infallible>(http::Response::new(Body::empty()))
            }
        });
        let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let metrics = Arc::new(Metrics::new());
        let evictor = Arc::new(Evictor::new(client, state, metrics));
        let maintenance = NodeMaintenance::new("m", NodeMaintenanceSpec::default());
        for uid in ["sent", "queued"] {
            evictor.submit(&maintenance, vec![eviction(uid)]);
        }
        let (sender, shutdown) = watch::channel(false);
        let mut run = tokio::spawn(evictor.run(shutdown));
        requests.recv().await.unwrap();
        sender.send_replace(true);
        assert!(timeout(Duration::from_secs(30), &mut run).await.is_err(), "the first is not answered");
        answer.notify_one();
        run.await.unwrap();
        assert!(requests.try_recv().is_err(), "the second is not sent");
    }
}
