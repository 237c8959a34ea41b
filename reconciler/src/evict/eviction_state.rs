//! What is known of the eviction of every pod that still exists on a node in maintenance. A cache, lost with the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nm_shared::cluster::disruption_budget::{Budget, BudgetKey, BudgetVersion};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::decide::decision::RemovalRequest;
use nm_shared::drain::budget_allowance::{AllowedDisruption, BudgetUse, RemainingBudget};
use nm_shared::drain::eviction_attempts::Attempt;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::respawns::RespawnCounter;
use nm_shared::drain::steady_time::SteadyTime;
use tokio::task::AbortHandle;

#[derive(Default)]
pub(crate) struct EvictionState {
    nodes: EvictionsByNode,
    budgets: HashMap<BudgetKey, BudgetRequests>,
    /// The nodes with pods of a namespace that are refused or deferred, and some where that is no longer so.
    waiting: HashMap<String, HashSet<String>>,
    respawns: HashMap<String, RespawnCounter>,
}

/// The evictions of each node, by the pod's uid. Half of the places in a map may be empty, so they are small.
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
    /// Whether the API server's last verdict was a refusal because of this budget; none before its first verdict. A
    /// deferred pod counts as refused only while this is true.
    refuses: Option<bool>,
    /// How many wait or are in progress.
    in_flight: i32,
    /// Those, by the pod's uid, whose answer the budget's status may not show yet.
    answered: HashMap<String, AnsweredEviction>,
}

/// An eviction that was answered, and requested when its budget had this version.
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

    /// Whether it waits for a budget to allow it.
    fn waits_for_budget(&self) -> bool {
        self.is_deferred || self.attempt.refused_since.is_some()
    }

    /// It is no longer sent.
    fn abort(self, budgets: &mut HashMap<BudgetKey, BudgetRequests>) {
        if self.attempt.in_flight {
            for guard in &self.guards {
                if let Some(requests) = budgets.get_mut(&guard.key) {
                    requests.in_flight -= 1;
                }
            }
        }
        if let Some(request) = self.request {
            request.abort();
        }
    }
}

impl BudgetRequests {
    fn record(&mut self, outcome: &EvictionOutcome, now: SteadyTime) {
        self.last = now;
        match outcome {
            EvictionOutcome::RefusedByBudget(_) => self.refuses = Some(true),
            // Something else decided, so this is no verdict on the budget.
            EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {}
            outcome if outcome.is_refusal() => {}
            _ => self.refuses = Some(false),
        }
    }

    /// The answers that the budget may not show yet, each with the version at which the eviction was decided.
    fn answers<'a>(&'a self, nodes: &'a EvictionsByNode) -> impl Iterator<Item = (&'a str, BudgetUse<'a>)> {
        self.answered.iter().filter_map(|(uid, AnsweredEviction { node, guard })| {
            Some((guard.version.as_str(), nodes.get(node)?.get(uid)?.budget_use()?))
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
                refuses: None,
                in_flight: 0,
                answered: HashMap::new(),
            });
            requests.last = now;
            requests.in_flight += 1;
            requests.answered.remove(pod::uid(pod));
        }
        let eviction = self.eviction(node, pod);
        eviction.attempt.begin(now);
        eviction.is_deferred = false;
        eviction.guards = guards;
        eviction.request = None;
    }

    /// Updates the budgets when the request for a pod is no longer in progress, after its answer or because it is not sent.
    fn settle(&mut self, node: &str, pod: &DrainPod) {
        let uid = pod::uid(pod);
        let Some(eviction) = self.nodes.get(node).and_then(|pods| pods.get(uid)) else { return };
        for guard in &eviction.guards {
            let Some(requests) = self.budgets.get_mut(&guard.key) else { continue };
            requests.in_flight -= 1;
            if eviction.budget_use().is_some() {
                let answered = AnsweredEviction { node: node.to_owned(), guard: guard.clone() };
                requests.answered.insert(uid.to_owned(), answered);
            }
        }
        if eviction.waits_for_budget() {
            self.note_waiting(node, pod);
        }
    }

    fn note_waiting(&mut self, node: &str, pod: &DrainPod) {
        let namespace = pod::names(pod).namespace;
        if !self.waiting.get(namespace).is_some_and(|nodes| nodes.contains(node)) {
            self.waiting.entry(namespace.to_owned()).or_default().insert(node.to_owned());
        }
    }

    /// Records that a queued request is not sent. The pod is still to be evicted.
    pub(crate) fn withdraw(&mut self, node: &str, pod: &DrainPod) {
        if let Some(eviction) = self.in_progress(node, pod::uid(pod)) {
            eviction.attempt.withdraw();
            self.settle(node, pod);
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
        let was_in_flight = eviction.attempt.in_flight;
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
        // One that was withdrawn in this moment has been settled, and may even have been requested anew.
        if was_in_flight {
            self.settle(node, pod);
        }
        true
    }

    /// Records that the eviction of a pod on `node` is not sent, because a budget would refuse it.
    pub(crate) fn defer(&mut self, node: &str, pod: &DrainPod, budget: &BudgetKey, now: SteadyTime) {
        let refuses = self.budgets.get(budget).and_then(|requests| requests.refuses);
        let eviction = self.eviction(node, pod);
        eviction.is_deferred = true;
        match refuses {
            Some(true) => eviction.attempt.block_by_budget(now),
            Some(false) => eviction.attempt.break_run(),
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

    /// The pods on `node`, by uid, whose owners have recreated them there too often.
    pub(crate) fn respawned(&mut self, node: &str, pods: &[Arc<DrainPod>]) -> HashSet<String> {
        self.respawns.entry(node.to_owned()).or_default().count(pods)
    }

    /// Starts to count respawns on `node` anew.
    pub(crate) fn forget_respawns(&mut self, node: &str) {
        self.respawns.remove(node);
    }

    /// Withdraws the requests for pods of `node` that are not in `wanted`. Such a pod no longer counts as refused.
    pub(crate) fn withdraw_unwanted(&mut self, node: &str, wanted: &HashSet<String>) {
        if let Some(pods) = self.nodes.get_mut(node) {
            let is_unwanted = |uid: &String, eviction: &mut Box<PodEviction>| {
                eviction.attempt.in_flight && !wanted.contains(uid)
            };
            for (_, eviction) in pods.extract_if(is_unwanted) {
                eviction.abort(&mut self.budgets);
            }
            for (_, eviction) in pods.iter_mut().filter(|(uid, _)| !wanted.contains(*uid)) {
                eviction.attempt.break_run();
                eviction.is_deferred = false;
            }
        }
    }

    /// Forgets all nodes except those in maintenance, and aborts their requests.
    pub(crate) fn retain_nodes(&mut self, in_maintenance: impl Fn(&str) -> bool) {
        for (_, pods) in self.nodes.extract_if(|node, _| !in_maintenance(node)) {
            for eviction in pods.into_values() {
                eviction.abort(&mut self.budgets);
            }
        }
        self.waiting.retain(|_, nodes| {
            nodes.retain(|node| in_maintenance(node));
            !nodes.is_empty()
        });
        self.respawns.retain(|node, _| in_maintenance(node));
        if self.nodes.is_empty() {
            self.budgets.clear();
        }
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
        nodes.retain(|node| {
            let mut evictions = self.nodes.get(node).into_iter().flat_map(HashMap::values);
            evictions.any(|eviction| eviction.waits_for_budget())
        });
        let waiting = nodes.iter().cloned().collect();
        if nodes.is_empty() {
            self.waiting.remove(namespace);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use nm_shared::drain::budget_allowance::Budgets;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str) -> DrainPod {
        serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap()
    }

    /// A budget at this version that allows five disruptions.
    fn budget(version: &str) -> Arc<Budget> {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "cart", "resourceVersion": version},
            "status": {"disruptionsAllowed": 5},
        }))
        .unwrap();
        Arc::new(Budget::from(&budget))
    }

    fn last_request(state: &mut EvictionState) -> Option<SteadyTime> {
        let budget = budget("1");
        let budgets = Budgets::from_iter([state.left(&budget)]);
        budgets.asked(&budget.version().key)
    }

    #[test]
    fn a_budget_is_charged_while_a_request_is_in_progress() {
        let mut state = EvictionState::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        assert_eq!(last_request(&mut state), None);
        state.begin("n", &pod("a"), vec![budget("1").version().clone()], at(1));
        assert_eq!(last_request(&mut state), Some(at(1)));
        state.end("n", &pod("a"), RemovalRequest::Evict, EvictionOutcome::RefusedByBudget("".into()), at(2));
        assert_eq!(last_request(&mut state), Some(at(2)));
    }

    #[test]
    fn evictions_that_a_budget_shows_are_forgotten_unless_in_progress() {
        let mut state = EvictionState::default();
        let at = SteadyTime::MIN;
        for (uid, version) in [("old", "1"), ("new", "2"), ("in progress", "1"), ("gone", "2")] {
            state.begin("n", &pod(uid), vec![budget(version).version().clone()], at);
        }
        for uid in ["old", "new", "gone"] {
            state.end("n", &pod(uid), RemovalRequest::Evict, EvictionOutcome::Accepted, at);
        }
        state.forget_gone("n", |uid| uid != "gone");
        let uses = |state: &EvictionState| {
            let requests = &state.budgets[&budget("2").version().key];
            let mut answers: Vec<_> = requests.answers(&state.nodes).collect();
            answers.sort_by_key(|(version, _)| *version);
            let answers = answers.into_iter().map(|(version, used)| format!("{version} {used:?}"));
            (requests.in_flight, answers.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(uses(&state), (1, "1 Accepted, 2 Accepted".to_owned()));
        state.left(&budget("2"));
        assert_eq!(uses(&state), (1, "2 Accepted".to_owned()));
        state.left(&budget("3"));
        assert_eq!(uses(&state), (1, String::new()));
    }

    #[test]
    fn an_allowance_is_spent_by_other_evictions() {
        let mut state = EvictionState::default();
        let disruption = |allowed| AllowedDisruption { guard: budget("1").version().clone(), allowed };
        assert!(!state.is_used_up(&disruption(1)));
        state.begin("elsewhere", &pod("a"), vec![budget("1").version().clone()], SteadyTime::MIN);
        assert!(state.is_used_up(&disruption(1)) && !state.is_used_up(&disruption(2)));
    }

    #[test]
    fn a_pod_that_is_not_wanted_does_not_count_as_refused() {
        let mut state = EvictionState::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let since = |state: &EvictionState, uid: &str| state.attempts("n")[uid].refused_since;
        for uid in ["left out", "wanted"] {
            state.begin("n", &pod(uid), Vec::new(), at(1));
            state.end(
                "n",
                &pod(uid),
                RemovalRequest::Evict,
                EvictionOutcome::NotMigratable(String::new()),
                at(1),
            );
        }
        state.withdraw_unwanted("n", &["wanted".to_owned()].into());
        assert_eq!(since(&state, "wanted"), Some(at(1)));
        assert_eq!(since(&state, "left out"), None);
    }

    #[test]
    fn a_deferred_pod_counts_as_refused_while_its_budget_refuses() {
        use EvictionOutcome::{Accepted, RefusedByBudget, RefusedByWebhook, Throttled, Unknown};
        let mut state = EvictionState::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let said = String::new;
        let throttled = Throttled { retry_after: None, message: said() };
        let webhook = RefusedByWebhook { webhook: said(), message: said() };
        let budget = budget("1").version().clone();
        let deferred = |state: &mut EvictionState, second| {
            state.defer("n", &pod("deferred"), &budget.key, at(second));
            state.attempts("n")["deferred"].refused_since
        };
        assert_eq!(deferred(&mut state, 0), None, "no eviction was requested yet");
        state.eviction("n", &pod("deferred")).attempt.end(webhook.clone(), at(0));
        assert_eq!(deferred(&mut state, 0), Some(at(0)), "something else refuses it");
        for (second, answer, since) in [
            (1, Unknown(said()), None),
            (2, RefusedByBudget("".into()), Some(2)),
            (3, webhook, Some(2)),
            (4, Accepted, Some(2)),
            (5, throttled, None),
            (6, RefusedByBudget("".into()), Some(6)),
        ] {
            state.begin("n", &pod("asked"), vec![budget.clone()], at(second));
            state.end("n", &pod("asked"), RemovalRequest::Evict, answer.clone(), at(second));
            assert_eq!(deferred(&mut state, second), since.map(at), "{answer:?}");
            assert_eq!(state.nodes_waiting_in(""), ["n"], "it waits for the budget in any case");
        }
    }

    #[tokio::test]
    async fn a_withdrawn_request_is_aborted_and_its_answer_is_ignored() {
        let mut state = EvictionState::default();
        let at = SteadyTime::MIN;
        for uid in ["queued", "sent", "wanted"] {
            state.begin("n", &pod(uid), Vec::new(), at);
        }
        let request = tokio::spawn(std::future::pending::<()>());
        state.in_progress("n", "sent").unwrap().request = Some(request.abort_handle());
        state.withdraw_unwanted("n", &["wanted".to_owned()].into());
        assert!(state.in_progress("n", "queued").is_none());
        assert!(request.await.unwrap_err().is_cancelled());
        assert!(!state.end("n", &pod("sent"), RemovalRequest::Evict, EvictionOutcome::Accepted, at));
        assert!(state.end("n", &pod("wanted"), RemovalRequest::Evict, EvictionOutcome::Accepted, at));
    }
}
