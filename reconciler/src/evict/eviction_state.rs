//! What is known of the eviction of every pod that still exists on a node in maintenance. A cache, lost with the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nm_shared::cluster::disruption_budget::{Budget, BudgetKey, BudgetVersion};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::decide::decision::RemovalRequest;
use nm_shared::drain::budget_allowance::{AllowedDisruption, BudgetUse, RemainingBudget};
use nm_shared::drain::eviction_attempts::{Attempt, MAX_GAP};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::returning::{ReturnCounter, Returning};
use nm_shared::drain::steady_time::SteadyTime;
use tokio::task::AbortHandle;

#[derive(Default)]
pub(crate) struct EvictionState {
    nodes: EvictionsByNode,
    budgets: HashMap<BudgetKey, BudgetRequests>,
    /// By namespace and node, the uids of the pods that may be refused or deferred.
    waiting: HashMap<String, HashMap<String, HashSet<String>>>,
    /// The namespaces of the budgets whose disruptions were freed by withdrawn requests.
    freed: HashSet<String>,
    returns: HashMap<String, ReturnCounter>,
}

/// The evictions of each node, by the pod's uid. Boxed, because up to half of a map's slots are empty.
type EvictionsByNode = HashMap<String, HashMap<String, Box<PodEviction>>>;

#[derive(Default)]
pub(crate) struct PodEviction {
    pub(crate) attempt: Attempt,
    guards: Vec<Arc<BudgetVersion>>,
    /// Whether the last decision deferred it because of a budget.
    is_deferred: bool,
    /// Aborts the request in progress.
    pub(crate) request: Option<AbortHandle>,
}

/// The evictions that were requested of one budget.
struct BudgetRequests {
    last: SteadyTime,
    /// When the API server last refused an eviction because of this budget. A deferred pod counts as refused for
    /// [`MAX_GAP`] after that: other answers, such as an error, are no verdict on the budget.
    refused_at: Option<SteadyTime>,
    /// How many are queued or in progress, deletions included.
    in_flight: i32,
    /// Answered evictions, by pod uid, that the budget's status may not reflect yet.
    answered: HashMap<String, AnsweredEviction>,
}

/// An eviction that was answered. It was requested when its budget had this version.
struct AnsweredEviction {
    node: String,
    guard: Arc<BudgetVersion>,
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

    /// Its request is no longer in flight.
    fn release(&self, budgets: &mut HashMap<BudgetKey, BudgetRequests>) {
        for guard in &self.guards {
            if let Some(requests) = budgets.get_mut(&guard.key) {
                requests.in_flight -= 1;
            }
        }
    }

    /// Its request is not sent, so its disruptions are `freed` for others.
    fn free(&self, budgets: &mut HashMap<BudgetKey, BudgetRequests>, freed: &mut HashSet<String>) {
        self.release(budgets);
        freed.extend(self.guards.iter().map(|guard| guard.key.namespace.clone()));
    }

    fn abort(self, budgets: &mut HashMap<BudgetKey, BudgetRequests>, freed: &mut HashSet<String>) {
        if self.attempt.in_flight {
            self.free(budgets, freed);
        }
        if let Some(request) = self.request {
            request.abort();
        }
    }
}

impl BudgetRequests {
    fn record(&mut self, outcome: &EvictionOutcome, now: SteadyTime) {
        self.last = now;
        if matches!(outcome, EvictionOutcome::RefusedByBudget(_)) {
            self.refused_at = Some(now);
        }
    }

    /// The answers that the budget may not show yet, each with the version at which the eviction was decided.
    fn answers<'a>(&'a self, nodes: &'a EvictionsByNode) -> impl Iterator<Item = (&'a str, BudgetUse<'a>)> {
        self.answered.iter().filter_map(|(uid, AnsweredEviction { node, guard })| {
            let eviction = nodes.get(node)?.get(uid).filter(|eviction| !eviction.attempt.in_flight)?;
            Some((guard.version.as_str(), eviction.budget_use()?))
        })
    }
}

impl EvictionState {
    /// The eviction of a pod on `node`, which may be new.
    pub(crate) fn eviction(&mut self, node: &str, pod: &DrainPod) -> &mut PodEviction {
        let pods = self.nodes.entry(node.to_owned()).or_default();
        pods.entry(pod::uid(pod).to_owned()).or_default()
    }

    /// Records that a request for a pod is in progress. It uses a disruption of its budgets from now on, not only after the
    /// answer: otherwise every reconcile in between would evict one pod more.
    pub(crate) fn begin(
        &mut self,
        node: &str,
        pod: &DrainPod,
        guards: Vec<Arc<BudgetVersion>>,
        now: SteadyTime,
    ) {
        for guard in &guards {
            let requests = self.budgets.entry(guard.key.clone()).or_insert_with(|| BudgetRequests {
                last: now,
                refused_at: None,
                in_flight: 0,
                answered: HashMap::new(),
            });
            requests.last = now;
            requests.in_flight += 1;
        }
        let eviction = self.eviction(node, pod);
        debug_assert!(!eviction.attempt.in_flight, "it would be counted twice");
        eviction.attempt.begin(now);
        eviction.is_deferred = false;
        eviction.guards = guards;
        eviction.request = None;
    }

    /// Records that a queued request is not sent. The pod is still to be evicted.
    pub(crate) fn withdraw(&mut self, node: &str, pod: &DrainPod) {
        let eviction = self.nodes.get_mut(node).and_then(|pods| pods.get_mut(pod::uid(pod)));
        if let Some(eviction) = eviction.filter(|eviction| eviction.attempt.in_flight) {
            eviction.attempt.withdraw();
            eviction.free(&mut self.budgets, &mut self.freed);
        }
    }

    /// The eviction of a pod whose request is in progress; none if it was withdrawn.
    pub(crate) fn in_progress(&mut self, node: &str, uid: &str) -> Option<&mut PodEviction> {
        let eviction = self.nodes.get_mut(node)?.get_mut(uid)?;
        eviction.attempt.in_flight.then_some(eviction)
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
        eviction.request = None;
        // One that was withdrawn has been released.
        if eviction.attempt.in_flight {
            eviction.release(&mut self.budgets);
        }
        match request {
            RemovalRequest::Delete => eviction.attempt.end_deletion(outcome, now),
            RemovalRequest::Evict => {
                for guard in &eviction.guards {
                    if let Some(requests) = self.budgets.get_mut(&guard.key) {
                        requests.record(&outcome, now);
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
        pods.map(|(uid, eviction)| (uid.clone(), eviction.attempt.clone())).collect()
    }

    /// Forgets the pods of `node` that no longer exist.
    pub(crate) fn forget_gone(&mut self, node: &str, exists: impl Fn(&str) -> bool) {
        if let Some(pods) = self.nodes.get_mut(node) {
            pods.retain(|uid, eviction| eviction.attempt.in_flight || exists(uid));
        }
    }

    /// The pods on `node` that have returned there.
    pub(crate) fn returning(&mut self, node: &str, pods: &[Arc<DrainPod>]) -> Returning {
        self.returns.entry(node.to_owned()).or_default().count(pods)
    }

    /// Starts to count returns to `node` anew.
    pub(crate) fn forget_returns(&mut self, node: &str) {
        self.returns.remove(node);
    }

    /// Withdraws the requests for pods of `node` that are not in `wanted`. Such a pod no longer counts as refused.
    pub(crate) fn withdraw_unwanted(&mut self, node: &str, wanted: &HashSet<String>) {
        if let Some(pods) = self.nodes.get_mut(node) {
            let is_unwanted = |uid: &String, eviction: &mut Box<PodEviction>| {
                eviction.attempt.in_flight && !wanted.contains(uid)
            };
            for (_, eviction) in pods.extract_if(is_unwanted) {
                eviction.abort(&mut self.budgets, &mut self.freed);
            }
            for (_, eviction) in pods.iter_mut().filter(|(uid, _)| !wanted.contains(*uid)) {
                eviction.attempt.break_run();
                eviction.is_deferred = false;
            }
        }
    }

    /// Forgets a node, and aborts its requests.
    pub(crate) fn leave_node(&mut self, node: &str) {
        for eviction in self.nodes.remove(node).into_iter().flat_map(HashMap::into_values) {
            eviction.abort(&mut self.budgets, &mut self.freed);
        }
        self.waiting.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
        self.returns.remove(node);
        if self.nodes.is_empty() {
            self.budgets.clear();
        }
    }

    /// Forgets all nodes except those in maintenance, and aborts their requests.
    pub(crate) fn retain_nodes(&mut self, in_maintenance: impl Fn(&str) -> bool) {
        for (_, pods) in self.nodes.extract_if(|node, _| !in_maintenance(node)) {
            for eviction in pods.into_values() {
                eviction.abort(&mut self.budgets, &mut self.freed);
            }
        }
        self.waiting.retain(|_, nodes| {
            nodes.retain(|node, _| in_maintenance(node));
            !nodes.is_empty()
        });
        self.returns.retain(|node, _| in_maintenance(node));
        if self.nodes.is_empty() {
            self.budgets.clear();
        }
    }

    /// The namespaces in which withdrawn requests have freed disruptions since the last call. No event on a budget shows this.
    pub(crate) fn take_freed(&mut self) -> HashSet<String> {
        std::mem::take(&mut self.freed)
    }

    /// What is left of a budget. Evictions that its status shows by now are forgotten.
    pub(crate) fn left(&mut self, budget: &Arc<Budget>) -> RemainingBudget {
        let seen = budget.version();
        let Some(requests) = self.budgets.get_mut(&seen.key) else {
            return RemainingBudget::of(budget.clone(), None, 0, []);
        };
        requests.answered.retain(|_, answered| answered.guard.version == seen.version);
        let answers = requests.answers(&self.nodes);
        RemainingBudget::of(budget.clone(), Some(requests.last), requests.in_flight, answers)
    }

    /// Whether other evictions have used up what a budget allowed when this one was decided.
    pub(crate) fn is_used_up(&self, disruption: &AllowedDisruption) -> bool {
        let requests = self.budgets.get(&disruption.guard.key);
        requests
            .is_some_and(|requests| disruption.is_used_up(requests.in_flight, requests.answers(&self.nodes)))
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
#[path = "eviction_state_tests.rs"]
mod tests;
