//! The evictions of every pod that still exists on a node in maintenance: those that are queued or in progress, and what the
//! others were answered. A cache, lost with the process.
//!
//! A pod is identified by its uid: a replacement with the same name is another pod. A request exists as long as its
//! [`PendingRequest`]: dropping that withdraws it, and releases what it uses of its budgets.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::cluster::disruption_budget::{BudgetKey, BudgetVersion};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::decide::decision::{Eviction, RemovalRequest};
use nm_shared::drain::budget_allowance::{AllowedDisruption, BudgetUse, RemainingBudget};
use nm_shared::drain::eviction_attempts::{Attempt, MAX_GAP};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::returning::{ReturnCounter, Returning};
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::{NodeMaintenance, PodReference};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::budget_requests::{AnsweredEviction, BudgetRequests};
use crate::cache::budgets::{DisruptionBudgets, SeenBudget};
use crate::cache::eviction_scheduler::EvictionScheduler;
use crate::telemetry::metrics::{Metrics, QueueTimer};

pub(crate) struct Evictions {
    started: Instant,
    queue: EvictionScheduler<QueuedEviction>,
    nodes: EvictionsByNode,
    budgets: HashMap<BudgetKey, BudgetRequests>,
    /// By namespace and node, the uids of the pods that may be refused or deferred.
    waiting: HashMap<String, HashMap<String, HashSet<String>>>,
    returns: HashMap<String, ReturnCounter>,
    /// The pods of each node that were deleted after refusals, and that no status counts yet.
    deleted: HashMap<String, Vec<PodReference>>,
    /// The budgets whose disruptions were freed by requests that ended.
    freed: (Sender<Arc<BudgetVersion>>, Receiver<Arc<BudgetVersion>>),
}

/// The evictions of each node, by the pod's uid. Boxed, because up to half of a map's slots are empty.
type EvictionsByNode = HashMap<String, HashMap<String, Box<PodEviction>>>;

#[derive(Default)]
struct PodEviction {
    attempt: Attempt,
    /// The budgets that the last request was charged to.
    guards: Vec<Arc<BudgetVersion>>,
    /// Whether the last decision deferred it because of a budget.
    is_deferred: bool,
    /// The request that is queued or in progress.
    request: Option<PendingRequest>,
}

/// A request that is queued or in progress. Dropping this withdraws it.
struct PendingRequest {
    charges: Vec<Charge>,
    /// Whether its budget seemed exhausted.
    is_probe: bool,
    _withdrawal: watch::Sender<()>,
}

/// A disruption of a budget that a request uses. Dropping this frees it.
struct Charge {
    guard: Arc<BudgetVersion>,
    /// The budget counts the clones of this.
    _counted: Arc<()>,
    /// Where to report that the disruption is free; none if an event on the budget will show what became of it.
    freed: Option<Sender<Arc<BudgetVersion>>>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(freed) = &self.freed {
            // The receiver is gone only when the term ends.
            let _ = freed.send(self.guard.clone());
        }
    }
}

/// An eviction that waits to be sent.
pub(crate) struct QueuedEviction {
    pub(crate) decided_by: Arc<SpecVersion>,
    pub(crate) eviction: Eviction,
    pub(crate) timer: QueueTimer,
    pub(crate) withdrawal: Withdrawal,
}

/// The withdrawal of a request.
pub(crate) struct Withdrawal(watch::Receiver<()>);

impl Withdrawal {
    /// Waits until the request is withdrawn.
    pub(crate) async fn requested(mut self) {
        while self.0.changed().await.is_ok() {}
    }

    fn is_requested(&self) -> bool {
        self.0.has_changed().is_err()
    }
}

/// A maintenance at one version of its spec.
#[derive(PartialEq)]
pub(crate) struct SpecVersion {
    pub(crate) name: String,
    uid: Option<String>,
    generation: Option<i64>,
}

impl From<&NodeMaintenance> for SpecVersion {
    fn from(maintenance: &NodeMaintenance) -> Self {
        let metadata = &maintenance.metadata;
        Self { name: maintenance.name_any(), uid: metadata.uid.clone(), generation: metadata.generation }
    }
}

impl PodEviction {
    /// What its answer takes from its budgets.
    fn budget_use(&self) -> Option<BudgetUse<'_>> {
        match &self.attempt.last {
            Some((_, EvictionOutcome::Accepted)) => Some(BudgetUse::Accepted),
            Some((_, EvictionOutcome::RefusedByBudget(sentence))) => Some(BudgetUse::Refused(sentence)),
            _ => None,
        }
    }

    /// Whether it is refused, or deferred because of a budget. A change of a budget may end both.
    fn waits_for_budget(&self) -> bool {
        self.is_deferred || self.attempt.refused_since.is_some()
    }
}

/// What the answer to the last request for a pod takes from its budgets, unless there is another request.
fn budget_use<'a>(nodes: &'a EvictionsByNode, node: &str, uid: &str) -> Option<BudgetUse<'a>> {
    nodes.get(node)?.get(uid).filter(|eviction| eviction.request.is_none())?.budget_use()
}

impl Evictions {
    /// At most `limit` requests are in progress at once.
    pub(crate) fn new(limit: NonZeroUsize) -> Self {
        Self {
            started: Instant::now(),
            queue: EvictionScheduler::new(limit),
            nodes: HashMap::new(),
            budgets: HashMap::new(),
            waiting: HashMap::new(),
            returns: HashMap::new(),
            deleted: HashMap::new(),
            freed: channel(),
        }
    }

    /// The time on the clock by which attempts are counted.
    pub(crate) fn now(&self) -> SteadyTime {
        SteadyTime::after_start(self.started.elapsed())
    }

    /// Queues the evictions of pods, except those that are queued or in progress. Returns whether it has deferred one, because
    /// other evictions have used up what its budget allowed.
    pub(crate) fn submit(
        &mut self,
        maintenance: &NodeMaintenance,
        evictions: Vec<Eviction>,
        metrics: &Metrics,
    ) -> bool {
        let (node, now) = (&maintenance.spec.node_name, self.now());
        let decided_by = Arc::new(SpecVersion::from(maintenance));
        let mut has_deferred = false;
        for eviction in evictions {
            let known = self.eviction(node, &eviction.pod);
            if known.request.is_some() {
                continue;
            }
            // What its budget allows now counts as a first attempt.
            let is_retry = known.attempt.refusals > 0 && eviction.uses_disruption.is_none();
            match &eviction.uses_disruption {
                Some(disruption) if self.is_used_up(disruption) => {
                    self.defer(node, &eviction.pod, &disruption.guard.key, now);
                    has_deferred = true;
                }
                _ => {
                    let is_probe = eviction.uses_disruption.is_none() && !eviction.guards.is_empty();
                    let withdrawal = self.begin(node, &eviction.pod, &eviction.guards, is_probe, now);
                    let (decided_by, timer) = (decided_by.clone(), metrics.eviction_queued());
                    let queued = QueuedEviction { decided_by, eviction, timer, withdrawal };
                    self.queue.enqueue(node, queued, is_retry);
                }
            }
        }
        has_deferred
    }

    /// The eviction to send now, if any may be sent, and its node. It is in progress until [`Self::finish`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<(String, QueuedEviction)> {
        self.queue.next(now)
    }

    /// The eviction that was sent for `node` at `sent` is no longer in progress.
    pub(crate) fn finish(&mut self, node: &str, sent: Instant) {
        self.queue.finish(node, sent, Instant::now());
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.queue.has_waiting()
    }

    pub(crate) fn has_in_progress(&self) -> bool {
        self.queue.has_in_progress()
    }

    /// The eviction of a pod on `node`, which may be new.
    fn eviction(&mut self, node: &str, pod: &DrainPod) -> &mut PodEviction {
        let pods = self.nodes.entry(node.to_owned()).or_default();
        pods.entry(pod::uid(pod).to_owned()).or_default()
    }

    /// A request for a pod exists from now on. It uses a disruption of its budgets at once, not only after the answer:
    /// otherwise every reconcile in between would evict one pod more.
    fn begin(
        &mut self,
        node: &str,
        pod: &DrainPod,
        guards: &[Arc<BudgetVersion>],
        is_probe: bool,
        now: SteadyTime,
    ) -> Withdrawal {
        let charge = |guard: &Arc<BudgetVersion>| {
            let requests = self.budgets.entry(guard.key.clone()).or_default();
            requests.last = Some(now);
            let freed = Some(self.freed.0.clone());
            Charge { guard: guard.clone(), _counted: requests.counter(), freed }
        };
        let charges = guards.iter().map(charge).collect();
        let (sender, withdrawal) = watch::channel(());
        let eviction = self.eviction(node, pod);
        eviction.attempt.begin(now);
        eviction.is_deferred = false;
        eviction.guards = guards.to_vec();
        eviction.request = Some(PendingRequest { charges, is_probe, _withdrawal: sender });
        Withdrawal(withdrawal)
    }

    /// Records an answer and returns whether the pod is still to be evicted.
    pub(crate) fn end(
        &mut self,
        node: &str,
        pod: &DrainPod,
        request: RemovalRequest,
        outcome: EvictionOutcome,
        now: SteadyTime,
    ) -> bool {
        let pods = self.nodes.get_mut(node);
        let Some(eviction) = pods.and_then(|pods| pods.get_mut(pod::uid(pod))) else { return false };
        if let Some(mut request) = eviction.request.take()
            && outcome.concerns_budgets()
        {
            request.charges.iter_mut().for_each(|charge| charge.freed = None);
        }
        if (request, &outcome) == (RemovalRequest::Delete, &EvictionOutcome::Accepted) {
            self.deleted.entry(node.to_owned()).or_default().push(pod::reference(pod));
        }
        match request {
            RemovalRequest::Delete => eviction.attempt.end_deletion(outcome, now),
            RemovalRequest::Evict => {
                for guard in &eviction.guards {
                    if let Some(requests) = self.budgets.get_mut(&guard.key) {
                        requests.record(pod, &outcome, now);
                    }
                }
                eviction.attempt.end(outcome, now);
            }
        }
        if eviction.budget_use().is_some() && !eviction.attempt.was_deletion_refused() {
            for guard in &eviction.guards {
                if let Some(requests) = self.budgets.get_mut(&guard.key) {
                    let answered = AnsweredEviction { node: node.to_owned(), guard: guard.clone() };
                    requests.answered.insert(pod::uid(pod).to_owned(), answered);
                }
            }
        }
        if eviction.waits_for_budget() {
            self.note_waiting(node, pod);
        }
        true
    }

    fn note_waiting(&mut self, node: &str, pod: &DrainPod) {
        let nodes = self.waiting.entry(pod::names(pod).namespace.to_owned()).or_default();
        nodes.entry(node.to_owned()).or_default().insert(pod::uid(pod).to_owned());
    }

    /// Records that the eviction of a pod on `node` is not sent, because a budget would refuse it.
    pub(crate) fn defer(&mut self, node: &str, pod: &DrainPod, budget: &BudgetKey, now: SteadyTime) {
        let refused_at = self.budgets.get(budget).and_then(|requests| requests.refused_at);
        let eviction = self.eviction(node, pod);
        eviction.is_deferred = true;
        match refused_at {
            Some(at) if now.since(at) <= MAX_GAP => eviction.attempt.block_by_budget(now),
            Some(_) => eviction.attempt.break_run(),
            None => {}
        }
        self.note_waiting(node, pod);
    }

    /// The attempts on `node`, by the pod's uid.
    pub(crate) fn attempts(&self, node: &str) -> HashMap<String, Attempt> {
        let pods = self.nodes.get(node).into_iter().flatten();
        let attempt = |eviction: &PodEviction| Attempt {
            in_flight: eviction.request.is_some(),
            is_probe: eviction.request.as_ref().is_some_and(|request| request.is_probe),
            ..eviction.attempt.clone()
        };
        pods.map(|(uid, eviction)| (uid.clone(), attempt(eviction))).collect()
    }

    /// Forgets the pods of `node` that no longer exist.
    pub(crate) fn forget_gone(&mut self, node: &str, exists: impl Fn(&str) -> bool) {
        let now = self.now();
        let Some(pods) = self.nodes.get_mut(node) else { return };
        let gone = pods.extract_if(|uid, eviction| eviction.request.is_none() && !exists(uid));
        for (uid, eviction) in gone {
            for guard in &eviction.guards {
                if let Some(requests) = self.budgets.get_mut(&guard.key) {
                    requests.record_gone(&uid, now);
                }
            }
        }
    }

    /// Notes a pod on `node` that may take so long to terminate, whoever has deleted it. Its budgets move once it has been replaced.
    pub(crate) fn note_terminating(
        &mut self,
        node: &str,
        pod: &DrainPod,
        left: Duration,
        budgets: &DisruptionBudgets,
    ) {
        let (uid, now) = (pod::uid(pod), self.now());
        for guard in budgets.moved_by(pod) {
            let requests = self.budgets.entry(guard.key.clone()).or_default();
            if !requests.is_terminating(uid) {
                requests.record_terminating(uid, now.after(left), now);
                self.eviction(node, pod).guards.push(guard.clone());
            }
        }
    }

    /// The pods of `node` that were deleted after refusals, and that no status counts yet.
    pub(crate) fn deleted(&self, node: &str) -> Vec<PodReference> {
        self.deleted.get(node).cloned().unwrap_or_default()
    }

    /// A status counts the first `count` of these.
    pub(crate) fn forget_deleted(&mut self, node: &str, count: usize) {
        if let Some(deleted) = self.deleted.get_mut(node) {
            deleted.drain(..count.min(deleted.len()));
        }
    }

    /// The pods on `node`, which was `cordoned` then, that have returned there.
    pub(crate) fn returning(
        &mut self,
        node: &str,
        pods: &[Arc<DrainPod>],
        cordoned: Option<Timestamp>,
        now: Timestamp,
    ) -> Returning {
        self.returns.entry(node.to_owned()).or_default().count(pods, cordoned, now)
    }

    /// This process has cordoned the node, unless it counts the returns to it already.
    pub(crate) fn begin_returns(&mut self, node: &str) {
        self.returns.entry(node.to_owned()).or_insert_with(ReturnCounter::anew);
    }

    /// Starts to count returns to `node` anew.
    pub(crate) fn forget_returns(&mut self, node: &str) {
        self.returns.insert(node.to_owned(), ReturnCounter::anew());
    }

    /// Withdraws the requests for pods of `node` that are not in `wanted`. Such a pod no longer counts as refused.
    pub(crate) fn withdraw_unwanted(&mut self, node: &str, wanted: &HashSet<String>) {
        let Some(pods) = self.nodes.get_mut(node) else { return };
        pods.retain(|uid, eviction| wanted.contains(uid) || eviction.request.is_none());
        for (_, eviction) in pods.iter_mut().filter(|(uid, _)| !wanted.contains(*uid)) {
            eviction.attempt.break_run();
            eviction.is_deferred = false;
        }
        self.queue.withdraw(node, |queued| queued.withdrawal.is_requested());
    }

    /// Withdraws the queued evictions that an earlier version of the maintenance's spec decided. The pods are still to be
    /// evicted. Those that other maintenances decided are withdrawn only if this one `has_node`. Returns whether there were any.
    pub(crate) fn withdraw_outdated(&mut self, maintenance: &NodeMaintenance, has_node: bool) -> bool {
        let node = maintenance.spec.node_name.as_str();
        let current = SpecVersion::from(maintenance);
        let outdated = self.queue.withdraw(node, |QueuedEviction { decided_by, .. }| {
            **decided_by != current && (has_node || decided_by.uid == current.uid)
        });
        for queued in &outdated {
            self.withdraw(node, &queued.eviction.pod);
        }
        !outdated.is_empty()
    }

    /// Withdraws the request for a pod, which is still to be evicted.
    fn withdraw(&mut self, node: &str, pod: &DrainPod) {
        if let Some(eviction) = self.nodes.get_mut(node).and_then(|pods| pods.get_mut(pod::uid(pod))) {
            eviction.request = None;
        }
    }

    /// Forgets all nodes except those that stay, and withdraws their requests.
    pub(crate) fn retain_nodes(&mut self, stays: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| stays(node));
        self.queue.retain_nodes(&stays);
        self.waiting.retain(|_, nodes| {
            nodes.retain(|node, _| stays(node));
            !nodes.is_empty()
        });
        self.returns.retain(|node, _| stays(node));
        self.deleted.retain(|node, deleted| stays(node) && !deleted.is_empty());
        self.forget_budgets();
    }

    /// Forgets a node, and withdraws its requests.
    pub(crate) fn leave_node(&mut self, node: &str) {
        self.nodes.remove(node);
        self.queue.withdraw(node, |_| true);
        self.waiting.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
        self.returns.remove(node);
        self.deleted.remove(node);
        self.forget_budgets();
    }

    fn forget_budgets(&mut self) {
        if self.nodes.is_empty() {
            self.budgets.clear();
        }
    }

    /// The namespaces in which requests that ended have freed disruptions since the last call. No event on a budget shows this.
    pub(crate) fn take_freed(&mut self) -> HashSet<String> {
        self.freed.1.try_iter().map(|guard| guard.key.namespace.clone()).collect()
    }

    /// What is left of a budget. Evictions that its status shows by now are forgotten.
    pub(crate) fn left(&mut self, known: &SeenBudget) -> RemainingBudget {
        let SeenBudget { budget, seen, has_changed, .. } = known;
        let version = budget.version();
        let Some(requests) = self.budgets.get_mut(&version.key) else {
            let unasked = RemainingBudget::of(budget.clone(), None, 0, []);
            return unasked.moving(*seen, *has_changed, None);
        };
        requests.answered.retain(|_, answered| answered.guard.version == version.version);
        let answers = requests.answers(|node, uid| budget_use(&self.nodes, node, uid));
        let left = RemainingBudget::of(budget.clone(), requests.last, requests.in_flight(), answers);
        left.moving(*seen, *has_changed, requests.busy_until())
    }

    /// Whether other evictions have used up what a budget allowed when this one was decided.
    pub(crate) fn is_used_up(&self, disruption: &AllowedDisruption) -> bool {
        let requests = self.budgets.get(&disruption.guard.key);
        requests.is_some_and(|requests| {
            let answers = requests.answers(|node, uid| budget_use(&self.nodes, node, uid));
            disruption.is_used_up(requests.in_flight(), answers)
        })
    }

    /// The nodes with refused or deferred pods in `namespace`.
    pub(crate) fn nodes_waiting_in(&mut self, namespace: &str) -> Vec<String> {
        let Some(nodes) = self.waiting.get_mut(namespace) else { return Vec::new() };
        nodes.retain(|node, uids| {
            let pods = self.nodes.get(node);
            let waits =
                |uid: &String| pods.and_then(|pods| pods.get(uid)).is_some_and(|pod| pod.waits_for_budget());
            uids.retain(waits);
            !uids.is_empty()
        });
        let waiting = nodes.keys().cloned().collect();
        if nodes.is_empty() {
            self.waiting.remove(namespace);
        }
        waiting
    }
}

#[cfg(test)]
#[path = "evictions_tests.rs"]
mod tests;
