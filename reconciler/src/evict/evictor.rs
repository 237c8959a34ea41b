//! Sends evictions and deletions concurrently and records their outcomes. It decides nothing.
//!
//! A pod is identified by its uid, which is also the precondition of the request: a replacement with the same name is
//! another pod. [`EvictionScheduler`] decides how many requests are in progress and which is next.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::decide::decision::{Eviction, RemovalRequest};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::steady_time::SteadyTime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::cache::triggers::Triggers;
use crate::client::TermClient;
use crate::evict::eviction_request::send;
use crate::evict::eviction_scheduler::{EvictionScheduler, MIN_SLOW_ANSWER};
use crate::evict::eviction_state::EvictionState;
use crate::runtime::shutdown::shutdown_begins;
use crate::telemetry::metrics::{Metrics, QueueTimer};

/// An eviction that waits to be sent.
struct QueuedEviction {
    decided_by: Arc<SpecVersion>,
    eviction: Eviction,
    timer: QueueTimer,
}

/// A maintenance at one version of its spec.
#[derive(PartialEq)]
struct SpecVersion {
    name: String,
    uid: Option<String>,
    generation: Option<i64>,
}

impl From<&NodeMaintenance> for SpecVersion {
    fn from(maintenance: &NodeMaintenance) -> Self {
        let metadata = &maintenance.metadata;
        Self { name: maintenance.name_any(), uid: metadata.uid.clone(), generation: metadata.generation }
    }
}

pub(crate) struct Evictor {
    client: TermClient,
    triggers: Triggers,
    metrics: Arc<Metrics>,
    started: Instant,
    scheduler: Mutex<EvictionScheduler<QueuedEviction>>,
    /// Notified when another request may be sent.
    may_send: Notify,
    /// Notified when a request panicked: its pod would wait forever.
    panicked: Notify,
    state: Mutex<EvictionState>,
}

/// A request in progress. It ends when this is dropped, also by an abort.
struct RequestInProgress {
    evictor: Arc<Evictor>,
    node: String,
    sent: Instant,
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.evictor.scheduler().finish(&self.node, self.sent, Instant::now());
        self.evictor.may_send.notify_one();
        if std::thread::panicking() {
            self.evictor.panicked.notify_one();
        }
    }
}

impl Evictor {
    /// At most `limit` requests are in progress at once.
    pub(crate) fn new(
        client: TermClient,
        triggers: Triggers,
        metrics: Arc<Metrics>,
        limit: NonZeroUsize,
    ) -> Self {
        Self {
            client,
            triggers,
            metrics,
            started: Instant::now(),
            scheduler: Mutex::new(EvictionScheduler::new(limit)),
            may_send: Notify::new(),
            panicked: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Queues the evictions of pods, except those that are in progress. If other evictions have used up what the budget of a
    /// pod allowed, the pod is deferred and the maintenance is reconciled.
    pub(crate) fn submit(&self, maintenance: &NodeMaintenance, evictions: Vec<Eviction>) {
        let decided_by = Arc::new(SpecVersion::from(maintenance));
        for eviction in evictions {
            self.submit_one(&maintenance.spec.node_name, eviction, decided_by.clone());
        }
    }

    fn submit_one(&self, node: &str, eviction: Eviction, decided_by: Arc<SpecVersion>) {
        let now = self.now();
        let mut state = self.state();
        if state.eviction(node, &eviction.pod).attempt.in_flight {
            return;
        }
        if let Some(disruption) = &eviction.uses_disruption
            && state.is_used_up(disruption)
        {
            state.defer(node, &eviction.pod, &disruption.guard.key, now);
            drop(state);
            self.triggers.node(node);
            return;
        }
        // What its budget allows now counts as a first attempt.
        let is_retry =
            state.eviction(node, &eviction.pod).attempt.refusals > 0 && eviction.uses_disruption.is_none();
        state.begin(node, &eviction.pod, eviction.guards.clone(), now);
        drop(state);
        let queued = QueuedEviction { decided_by, eviction, timer: self.metrics.eviction_queued() };
        self.scheduler().enqueue(node, queued, is_retry);
        self.may_send.notify_one();
    }

    /// Withdraws the requests for pods of `node` that are not in `wanted`.
    pub(crate) fn withdraw_unwanted(&self, node: &str, wanted: &HashSet<String>) {
        self.scheduler().withdraw(node, |queued| !wanted.contains(pod::uid(&queued.eviction.pod)));
        self.state().withdraw_unwanted(node, wanted);
        self.wake_freed();
    }

    /// Withdraws the queued evictions that an earlier version of the maintenance's spec decided, and triggers a new
    /// decision. Those that other maintenances decided are withdrawn only if this one `has_node`.
    pub(crate) fn withdraw_outdated(&self, maintenance: &NodeMaintenance, has_node: bool) {
        let node = maintenance.spec.node_name.as_str();
        let current = SpecVersion::from(maintenance);
        let outdated = self.scheduler().withdraw(node, |QueuedEviction { decided_by, .. }| {
            **decided_by != current && (has_node || decided_by.uid == current.uid)
        });
        if outdated.is_empty() {
            return;
        }
        let mut state = self.state();
        for queued in outdated {
            state.withdraw(node, &queued.eviction.pod);
        }
        drop(state);
        self.triggers.node(node);
        self.wake_freed();
    }

    /// Records that the evictions of these pods of `node` are not sent since `now`, because a budget would refuse them.
    pub(crate) fn defer(&self, node: &str, pods: &[(Arc<DrainPod>, BudgetKey)], now: SteadyTime) {
        let mut state = self.state();
        for (pod, budget) in pods {
            state.defer(node, pod, budget, now);
        }
    }

    /// Forgets a node. Its queued evictions are never sent.
    pub(crate) fn leave_node(&self, node: &str) {
        self.scheduler().withdraw(node, |_| true);
        self.state().leave_node(node);
        self.wake_freed();
    }

    /// Forgets all nodes except those in maintenance. Their queued evictions are never sent.
    pub(crate) fn retain_nodes(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.scheduler().retain_nodes(&in_maintenance);
        self.state().retain_nodes(&in_maintenance);
        self.wake_freed();
    }

    /// Reconciles the maintenances with pods that wait for disruptions that withdrawn requests have freed.
    fn wake_freed(&self) {
        let freed = self.state().take_freed();
        for namespace in freed {
            self.budget_changed(&namespace);
        }
    }

    /// Reconciles the maintenances with pods that wait for a budget in `namespace`.
    pub(crate) fn budget_changed(&self, namespace: &str) {
        let waiting = self.state().nodes_waiting_in(namespace);
        for node in waiting {
            self.triggers.node(&node);
        }
    }

    /// The time on the clock by which attempts are counted.
    pub(crate) fn now(&self) -> SteadyTime {
        SteadyTime::after_start(self.started.elapsed())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, EvictionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scheduler(&self) -> MutexGuard<'_, EvictionScheduler<QueuedEviction>> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
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
        while self.scheduler().has_in_progress() {
            self.may_send.notified().await;
        }
    }

    async fn send_all(self: &Arc<Self>) {
        loop {
            // Queued evictions can still be withdrawn; those that are sent would wait in the client.
            self.client.throttle.ended().await;
            let sent = Instant::now();
            let next = self.scheduler().next(sent);
            let Some((node, QueuedEviction { decided_by, eviction, timer })) = next else {
                self.until_next().await;
                continue;
            };
            timer.sent();
            let request = RequestInProgress { evictor: self.clone(), node: node.clone(), sent };
            let mut state = self.state();
            // It may have been withdrawn in this moment.
            if let Some(in_progress) = state.in_progress(&node, pod::uid(&eviction.pod)) {
                let task = tokio::spawn(self.clone().send(request, decided_by, eviction));
                in_progress.request = Some(task.abort_handle());
            }
        }
    }

    /// Returns when another request may be sent, also because one in progress has become slow.
    async fn until_next(&self) {
        let may_send = self.may_send.notified();
        if self.scheduler().has_waiting() {
            let _ = tokio::time::timeout(MIN_SLOW_ANSWER, may_send).await;
        } else {
            may_send.await;
        }
    }

    async fn send(
        self: Arc<Self>,
        request: RequestInProgress,
        decided_by: Arc<SpecVersion>,
        eviction: Eviction,
    ) {
        let outcome = send(&self.client.client, &eviction).await;
        self.metrics.eviction_answered(&outcome);
        let (node, pod) = (&request.node, &eviction.pod);
        let is_wanted = self.state().end(node, pod, eviction.request, outcome.clone(), self.now());
        if is_wanted {
            log(&decided_by.name, node, &eviction, &outcome);
            self.triggers.node(node);
        }
        if !eviction.guards.is_empty() && !outcome.concerns_budgets() {
            // The disruption is allowed again, and no event on the budget will show this.
            self.budget_changed(pod::names(&eviction.pod).namespace);
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
    use std::time::Duration;

    use futures::{FutureExt, StreamExt};
    use kube::Client;
    use kube::client::Body;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher;
    use nm_shared::cluster::disruption_budget::BudgetVersion;
    use nm_shared::{Group, GroupedMaintenance, NodeMaintenanceSpec};
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;
    use crate::cache::leader_state::LeaderState;
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

    #[tokio::test]
    async fn a_maintenance_without_the_node_withdraws_nothing_of_the_one_that_has_it() {
        let (triggers, _triggered) = Triggers::new(Arc::new(LeaderState::new([])));
        let server = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let metrics = Arc::new(Metrics::new());
        let evictor = Evictor::new(client, triggers, metrics, NonZeroUsize::MIN);
        let maintenance = |uid: &str, generation| {
            let mut maintenance = NodeMaintenance::new(uid, NodeMaintenanceSpec::default());
            maintenance.metadata.uid = Some(uid.to_owned());
            maintenance.metadata.generation = Some(generation);
            maintenance
        };
        let is_queued = || evictor.state().attempts("")["pod"].in_flight;
        evictor.submit(&maintenance("holder", 1), vec![eviction("pod")]);
        evictor.withdraw_outdated(&maintenance("duplicate", 2), false);
        assert!(is_queued());
        evictor.withdraw_outdated(&maintenance("holder", 1), true);
        assert!(is_queued());
        evictor.withdraw_outdated(&maintenance("holder", 2), false);
        assert!(!is_queued(), "its spec has changed, or it is being deleted");
        evictor.submit(&maintenance("holder", 2), vec![eviction("pod")]);
        evictor.withdraw_outdated(&maintenance("heir", 2), true);
        assert!(!is_queued(), "another has the node now");
    }

    #[tokio::test]
    async fn the_disruption_of_a_withdrawn_request_is_for_pods_of_other_nodes() {
        let mut writer = Writer::new(Group::Medik8s);
        let waiting: GroupedMaintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"}, "spec": {"nodeName": "n"},
        }))
        .unwrap();
        let leader = Arc::new(LeaderState::new([(Group::Medik8s, writer.as_reader())]));
        writer.apply_watcher_event(&watcher::Event::Apply(waiting.clone()));
        leader.index(Arc::new(waiting));
        let (triggers, [mut triggered, ..]) = Triggers::new(leader);
        let server = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let evictor = Evictor::new(client, triggers, Arc::new(Metrics::new()), NonZeroUsize::MIN);
        let key = BudgetKey { namespace: "ns".to_owned(), name: "budget".to_owned() };
        let guard = Arc::new(BudgetVersion { key: key.clone(), version: "1".to_owned() });
        let maintenance = NodeMaintenance::new("other", NodeMaintenanceSpec::default());
        evictor.submit(&maintenance, vec![Eviction { guards: vec![guard], ..eviction("queued") }]);
        evictor.defer("n", &[(eviction("deferred").pod, key)], SteadyTime::MIN);
        assert!(triggered.next().now_or_never().is_none());
        evictor.retain_nodes(|node| node == "n");
        let woken = triggered.next().now_or_never().flatten().expect("it is reconciled");
        assert_eq!(woken.name, "m");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_panics_ends_the_evictor() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            assert!(request.uri().path().is_empty(), "every request panics");
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let (triggers, _triggered) = Triggers::new(Arc::new(LeaderState::new([])));
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let metrics = Arc::new(Metrics::new());
        let evictor = Arc::new(Evictor::new(client, triggers, metrics, NonZeroUsize::MIN));
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
        let (triggers, _triggered) = Triggers::new(Arc::new(LeaderState::new([])));
        let client = TermClient { client: Client::new(server, "default"), throttle: Throttle::default() };
        let metrics = Arc::new(Metrics::new());
        let evictor = Arc::new(Evictor::new(client, triggers, metrics, NonZeroUsize::MIN));
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
