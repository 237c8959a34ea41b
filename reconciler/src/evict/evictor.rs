//! Sends evictions and deletions, many at once, and notes what came of them. It decides nothing.
//!
//! A pod is known by its uid, which is also the precondition of the request: a replacement of the same name is another
//! pod. [`Turns`] says how many are under way at once, and whose is next.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::pod;
use nm_shared::decide::decision::{Eviction, RemovalRequest};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::steady_time::SteadyTime;
use tokio::sync::{Notify, watch};
use tracing::{debug, info};

use crate::cache::triggers::Triggers;
use crate::evict::eviction_request::ask;
use crate::evict::eviction_scheduler::{SLOW, Turns};
use crate::evict::eviction_state::Ledger;
use crate::runtime::shutdown::stopped;
use crate::telemetry::metrics::{Metrics, Queued};

/// What waits for its turn.
struct Waiting {
    maintenance: String,
    decided_by: DecidedBy,
    eviction: Eviction,
    queued: Queued,
}

/// A maintenance, as its spec was.
#[derive(PartialEq)]
struct DecidedBy {
    uid: Option<String>,
    generation: Option<i64>,
}

impl From<&NodeMaintenance> for DecidedBy {
    fn from(maintenance: &NodeMaintenance) -> Self {
        let metadata = &maintenance.metadata;
        Self { uid: metadata.uid.clone(), generation: metadata.generation }
    }
}

/// Sends evictions and remembers the answers.
pub(crate) struct Evictor {
    client: Client,
    triggers: Triggers,
    metrics: Arc<Metrics>,
    began: Instant,
    turns: Mutex<Turns<Waiting>>,
    /// Told when something more may be sent.
    turn: Notify,
    /// Told when a request panicked: its pod would be waited for without end.
    broken: Notify,
    ledger: Mutex<Ledger>,
}

/// What a request has while it is under way, and gives up also by being taken back.
struct Slot {
    evictor: Arc<Evictor>,
    node: String,
    sent: Instant,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.evictor.turns().done(&self.node, self.sent, Instant::now());
        self.evictor.turn.notify_one();
        if std::thread::panicking() {
            self.evictor.broken.notify_one();
        }
    }
}

impl Evictor {
    /// At most `limit` requests are under way at once.
    pub(crate) fn new(
        client: Client,
        triggers: Triggers,
        metrics: Arc<Metrics>,
        limit: NonZeroUsize,
    ) -> Self {
        Self {
            client,
            triggers,
            metrics,
            began: Instant::now(),
            turns: Mutex::new(Turns::new(limit)),
            turn: Notify::new(),
            broken: Notify::new(),
            ledger: Mutex::default(),
        }
    }

    /// Asks a pod to go for the maintenance of its node, unless it is being asked already. If others have spent what its
    /// budget allowed when this was decided, it is to be decided anew.
    pub(crate) fn submit(&self, maintenance: &NodeMaintenance, eviction: Eviction) {
        let (node, now) = (maintenance.spec.node_name.as_str(), self.now());
        let mut ledger = self.ledger();
        if ledger.entry(node, &eviction.pod).attempt.in_flight {
            return;
        }
        if let Some(allowance) = &eviction.spends
            && ledger.is_spent(allowance)
        {
            ledger.hold(node, &eviction.pod, &allowance.guard.key, now);
            drop(ledger);
            self.triggers.wake_node(node);
            return;
        }
        // A disruption that its budget allows now is worth as much as one that was never asked for.
        let is_retry = ledger.entry(node, &eviction.pod).attempt.refusals > 0 && eviction.spends.is_none();
        ledger.begin(node, &eviction.pod, eviction.guards.clone(), now);
        drop(ledger);
        let waiting = Waiting {
            maintenance: maintenance.name_any(),
            decided_by: maintenance.into(),
            eviction,
            queued: self.metrics.eviction_queued(),
        };
        self.turns().join(node, waiting, is_retry);
        self.turn.notify_one();
    }

    /// Takes back the requests for pods of `node` that are not `wanted` any more.
    pub(crate) fn take_back(&self, node: &str, wanted: &HashSet<String>) {
        self.turns().take_back(node, |waiting| !wanted.contains(pod::uid(&waiting.eviction.pod)));
        self.ledger().take_back(node, wanted);
    }

    /// Takes back what was decided by what the maintenance said before, as far as it is not sent yet: it is to be
    /// decided anew. Of what others decided for its node only one that `has_node` takes anything back.
    pub(crate) fn take_back_outdated(&self, maintenance: &NodeMaintenance, has_node: bool) {
        let node = maintenance.spec.node_name.as_str();
        let current = DecidedBy::from(maintenance);
        let outdated = self.turns().take_back(node, |Waiting { decided_by, .. }| {
            *decided_by != current && (has_node || decided_by.uid == current.uid)
        });
        if outdated.is_empty() {
            return;
        }
        let mut ledger = self.ledger();
        for waiting in outdated {
            ledger.entry(node, &waiting.eviction.pod).attempt.withdraw();
        }
        drop(ledger);
        self.triggers.wake_node(node);
    }

    /// Notes that pods of `node` are not asked, because a budget would refuse, since `now`: what the status says too.
    pub(crate) fn hold(&self, node: &str, pods: &[(Arc<Pod>, BudgetKey)], now: SteadyTime) {
        let mut ledger = self.ledger();
        for (pod, budget) in pods {
            ledger.hold(node, pod, budget, now);
        }
    }

    /// Forgets all nodes but those in maintenance. What is not sent yet never is.
    pub(crate) fn retain(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.turns().retain(&in_maintenance);
        self.ledger().retain(&in_maintenance);
    }

    /// Wakes the maintenances whose pods wait for a budget in `namespace`.
    pub(crate) fn wake_for_budget(&self, namespace: &str) {
        let waiting = self.ledger().waiting_in(namespace);
        for node in waiting {
            self.triggers.wake_node(&node);
        }
    }

    /// What the clock says by which attempts are counted.
    pub(crate) fn now(&self) -> SteadyTime {
        SteadyTime::after_start(self.began.elapsed())
    }

    /// What is known so far.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns<Waiting>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is submitted, each in its turn, until `stop`, and waits for the answers to what is under way by then:
    /// whoever leads next would ask the same again.
    pub(crate) async fn run(self: Arc<Self>, stop: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = stopped(stop) => {}
            () = self.broken.notified() => return,
            () = self.send_all() => {}
        }
        while self.turns().is_under_way() {
            self.turn.notified().await;
        }
    }

    async fn send_all(self: &Arc<Self>) {
        loop {
            let sent = Instant::now();
            let next = self.turns().next(sent);
            let Some((node, Waiting { maintenance, eviction, queued, .. })) = next else {
                self.until_next().await;
                continue;
            };
            queued.sent();
            let slot = Slot { evictor: self.clone(), node: node.clone(), sent };
            let mut ledger = self.ledger();
            // It may have been taken back in this very moment.
            if let Some(entry) = ledger.awaited(&node, pod::uid(&eviction.pod)) {
                entry.request =
                    Some(tokio::spawn(self.clone().send(slot, maintenance, eviction)).abort_handle());
            }
        }
    }

    /// Returns when something may be sent perhaps: also if all that happens is that an answer takes long.
    async fn until_next(&self) {
        let turn = self.turn.notified();
        if self.turns().is_awaited() {
            let _ = tokio::time::timeout(SLOW, turn).await;
        } else {
            turn.await;
        }
    }

    async fn send(self: Arc<Self>, slot: Slot, maintenance: String, eviction: Eviction) {
        let outcome = ask(&self.client, &eviction).await;
        self.metrics.eviction_answered(&outcome);
        let (node, uid) = (&slot.node, pod::uid(&eviction.pod));
        let is_awaited = self.ledger().end(node, uid, eviction.request, outcome.clone(), self.now());
        if is_awaited {
            log(&maintenance, node, &eviction, &outcome);
            self.triggers.wake_node(node);
        }
        if !eviction.guards.is_empty() && !outcome.concerns_budgets() {
            // What was set aside for it is free again, and the budget itself will not tell.
            self.wake_for_budget(pod::names(&eviction.pod).namespace);
        }
    }
}

/// A pod that goes is worth a line. One that is refused has its line where the status calls it blocked, once and not
/// with every attempt.
fn log(maintenance: &str, node: &str, eviction: &Eviction, outcome: &EvictionOutcome) {
    let pod = pod::reference(&eviction.pod).to_string();
    match (outcome, eviction.request) {
        (EvictionOutcome::Accepted, RemovalRequest::Evict) => {
            info!(maintenance, node, pod, "eviction accepted")
        }
        (EvictionOutcome::Accepted, RemovalRequest::Delete) => {
            info!(maintenance, node, pod, "refused for longer than deleteAfterSeconds: deleted");
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
    use std::time::Duration;

    use kube::client::Body;
    use nm_shared::NodeMaintenanceSpec;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;
    use crate::cache::maintenances::Maintenances;

    fn eviction(uid: &str) -> Eviction {
        let pod = json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        Eviction {
            pod,
            request: RemovalRequest::Evict,
            grace_period_seconds: None,
            guards: Vec::new(),
            spends: None,
        }
    }

    #[tokio::test]
    async fn who_does_not_have_the_node_takes_back_nothing_of_who_has_it() {
        let (triggers, _wake_ups) = Triggers::new(Arc::new(Maintenances::new([])));
        let server = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let (client, metrics) = (Client::new(server, "default"), Arc::new(Metrics::new()));
        let evictor = Evictor::new(client, triggers, metrics, NonZeroUsize::MIN);
        let maintenance = |uid: &str, generation| {
            let mut maintenance = NodeMaintenance::new(uid, NodeMaintenanceSpec::default());
            maintenance.metadata.uid = Some(uid.to_owned());
            maintenance.metadata.generation = Some(generation);
            maintenance
        };
        let is_queued = || evictor.ledger().attempts("")["pod"].in_flight;
        evictor.submit(&maintenance("holder", 1), eviction("pod"));
        evictor.take_back_outdated(&maintenance("duplicate", 2), false);
        assert!(is_queued());
        evictor.take_back_outdated(&maintenance("holder", 1), true);
        assert!(is_queued());
        evictor.take_back_outdated(&maintenance("holder", 2), false);
        assert!(!is_queued(), "it has changed, or ends");
        evictor.submit(&maintenance("holder", 2), eviction("pod"));
        evictor.take_back_outdated(&maintenance("heir", 2), true);
        assert!(!is_queued(), "another has the node now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_panics_ends_the_evictor() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            assert!(request.uri().path().is_empty(), "whoever asks panics");
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let (triggers, _wake_ups) = Triggers::new(Arc::new(Maintenances::new([])));
        let (client, metrics) = (Client::new(server, "default"), Arc::new(Metrics::new()));
        let evictor = Arc::new(Evictor::new(client, triggers, metrics, NonZeroUsize::MIN));
        evictor.submit(&NodeMaintenance::new("m", NodeMaintenanceSpec::default()), eviction("u"));
        let (_stop, told) = watch::channel(false);
        timeout(Duration::from_secs(60), evictor.run(told)).await.expect("nobody else would ask for the pod");
    }

    #[tokio::test(start_paused = true)]
    async fn once_told_to_stop_it_sends_nothing_more_and_waits_for_what_is_under_way() {
        let (asked, mut questions) = unbounded_channel();
        let answer = Arc::new(Notify::new());
        let given = answer.clone();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let (asked, given) = (asked.clone(), given.clone());
            async move {
                asked.send(()).unwrap();
                given.notified().await;
                Ok::<_, Infallible>(http::Response::new(Body::empty()))
            }
        });
        let (triggers, _wake_ups) = Triggers::new(Arc::new(Maintenances::new([])));
        let (client, metrics) = (Client::new(server, "default"), Arc::new(Metrics::new()));
        let evictor = Arc::new(Evictor::new(client, triggers, metrics, NonZeroUsize::MIN));
        let maintenance = NodeMaintenance::new("m", NodeMaintenanceSpec::default());
        for uid in ["sent", "queued"] {
            evictor.submit(&maintenance, eviction(uid));
        }
        let (stop, told) = watch::channel(false);
        let mut run = tokio::spawn(evictor.run(told));
        questions.recv().await.unwrap();
        stop.send_replace(true);
        assert!(timeout(Duration::from_secs(30), &mut run).await.is_err(), "the first is not answered");
        answer.notify_one();
        run.await.unwrap();
        assert!(questions.try_recv().is_err(), "the second is not sent");
    }
}
