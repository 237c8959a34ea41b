//! What is known of the evictions of every pod that is still there: a cache, lost with the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use nm_shared::cluster::disruption_budget::{Budget, BudgetKey, BudgetVersion};
use nm_shared::cluster::pod;
use nm_shared::decide::decision::RemovalRequest;
use nm_shared::drain::attempt::Attempt;
use nm_shared::drain::budget_forecast::{Allowance, Charge, RemainingBudget};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::respawns::RespawnCounter;
use nm_shared::drain::steady_time::SteadyTime;
use tokio::task::AbortHandle;

/// The evictions of all nodes in maintenance.
#[derive(Default)]
pub(crate) struct Ledger {
    nodes: Nodes,
    budgets: HashMap<BudgetKey, Asked>,
    returns: HashMap<String, RespawnCounter>,
}

/// The entries of each node, by the pod's uid.
type Nodes = HashMap<String, HashMap<String, Entry>>;

/// The evictions of one pod.
pub(crate) struct Entry {
    pub(crate) attempt: Attempt,
    namespace: String,
    guards: Vec<BudgetKey>,
    /// Whether it was held back when it was last decided.
    is_held: bool,
    /// By what the request is taken back once it is under way.
    pub(crate) request: Option<AbortHandle>,
}

/// What was asked of a budget.
struct Asked {
    last: SteadyTime,
    /// Whether the API server refused for its sake when it was last asked to decide, or failed to; none before it was. A
    /// pod that is held back for it is refused only as long as the API server says so.
    refuses: Option<bool>,
    /// The pods, by uid, of which the budget may not tell yet: few of all that were ever moved, and each look of each
    /// node reads them.
    pods: HashMap<String, Guarded>,
}

/// A pod that was asked while its budget was at this version.
struct Guarded {
    node: String,
    version: String,
}

impl Entry {
    /// What it takes off its budgets.
    fn charge(&self) -> Option<Charge<'_>> {
        match &self.attempt.last {
            _ if self.attempt.in_flight => Some(Charge::InFlight),
            Some((_, EvictionOutcome::Accepted)) => Some(Charge::Accepted),
            Some((_, EvictionOutcome::RefusedByBudget(refusal))) => Some(Charge::Refused(refusal)),
            _ => None,
        }
    }

    fn abort(self) {
        if let Some(request) = self.request {
            request.abort();
        }
    }
}

impl Asked {
    /// Notes the answer to an eviction that it guards.
    fn note(&mut self, outcome: &EvictionOutcome, now: SteadyTime) {
        self.last = now;
        match outcome {
            EvictionOutcome::RefusedByBudget(_) => self.refuses = Some(true),
            // Something else was the reason, and the budget itself had no occasion to speak.
            EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {}
            outcome if outcome.is_refusal() => {}
            _ => self.refuses = Some(false),
        }
    }

    /// What the budget may not show yet, each with the version that it was decided on.
    fn charges<'a>(&'a self, nodes: &'a Nodes) -> impl Iterator<Item = (&'a str, Charge<'a>)> {
        self.pods.iter().filter_map(|(uid, guarded)| {
            entry(nodes, guarded, uid)?.charge().map(|charge| (guarded.version.as_str(), charge))
        })
    }
}

fn entry<'a>(nodes: &'a Nodes, guarded: &Guarded, uid: &str) -> Option<&'a Entry> {
    nodes.get(&guarded.node)?.get(uid)
}

impl Ledger {
    /// The entry of a pod on `node`, which may be new.
    pub(crate) fn entry(&mut self, node: &str, pod: &Pod) -> &mut Entry {
        let pods = self.nodes.entry(node.to_owned()).or_default();
        pods.entry(pod::uid(pod).to_owned()).or_insert_with(|| Entry {
            attempt: Attempt::default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            guards: Vec::new(),
            is_held: false,
            request: None,
        })
    }

    /// Notes that a request for a pod is on its way. Its budgets count as asked from now on, not only once they have
    /// answered: else every look in between would ask for one pod more.
    pub(crate) fn begin(&mut self, node: &str, pod: &Pod, guards: Vec<BudgetVersion>, now: SteadyTime) {
        let keys = guards.iter().map(|guard| guard.key.clone()).collect();
        for BudgetVersion { key, version } in guards {
            let asked =
                self.budgets.entry(key).or_insert(Asked { last: now, refuses: None, pods: HashMap::new() });
            asked.last = now;
            asked.pods.insert(pod::uid(pod).to_owned(), Guarded { node: node.to_owned(), version });
        }
        let entry = self.entry(node, pod);
        entry.attempt.begin(now);
        entry.is_held = false;
        entry.guards = keys;
        entry.request = None;
    }

    /// The entry of a pod whose request is awaited; none if it was taken back.
    pub(crate) fn awaited(&mut self, node: &str, uid: &str) -> Option<&mut Entry> {
        self.nodes.get_mut(node)?.get_mut(uid).filter(|entry| entry.attempt.in_flight)
    }

    /// Notes an answer, and returns whether anybody still asks.
    pub(crate) fn end(
        &mut self,
        node: &str,
        uid: &str,
        request: RemovalRequest,
        outcome: EvictionOutcome,
        now: SteadyTime,
    ) -> bool {
        let Some(entry) = self.nodes.get_mut(node).and_then(|pods| pods.get_mut(uid)) else { return false };
        entry.request = None;
        if request == RemovalRequest::Delete {
            entry.attempt.end_deletion(outcome, now);
            return true;
        }
        for guard in &entry.guards {
            if let Some(asked) = self.budgets.get_mut(guard) {
                asked.note(&outcome, now);
            }
        }
        entry.attempt.end(outcome, now);
        true
    }

    /// Notes that a pod on `node` is not asked to go, because a budget would refuse.
    pub(crate) fn hold(&mut self, node: &str, pod: &Pod, budget: &BudgetKey, now: SteadyTime) {
        let refuses = self.budgets.get(budget).and_then(|asked| asked.refuses);
        let entry = self.entry(node, pod);
        entry.is_held = true;
        match refuses {
            Some(true) => entry.attempt.block_by_budget(now),
            Some(false) => entry.attempt.break_run(),
            None => {}
        }
    }

    /// The attempts on `node`, by the pod's uid.
    pub(crate) fn attempts(&self, node: &str) -> HashMap<String, Attempt> {
        let pods = self.nodes.get(node).into_iter().flatten();
        pods.map(|(uid, entry)| (uid.clone(), entry.attempt.clone())).collect()
    }

    /// Forgets the pods of `node` that are gone.
    pub(crate) fn forget_gone(&mut self, node: &str, exists: impl Fn(&str) -> bool) {
        if let Some(pods) = self.nodes.get_mut(node) {
            pods.retain(|uid, entry| entry.attempt.in_flight || exists(uid));
        }
    }

    /// The pods on `node` that came back too often, by uid.
    pub(crate) fn returned(&mut self, node: &str, pods: &[Arc<Pod>]) -> HashSet<String> {
        self.returns.entry(node.to_owned()).or_default().count(pods)
    }

    /// Counts anew who comes back to `node`, from the pods that are there next.
    pub(crate) fn forget_returns(&mut self, node: &str) {
        self.returns.remove(node);
    }

    /// Takes back the requests for pods of `node` that are not wanted any more. Nobody refuses what nobody wants.
    pub(crate) fn take_back(&mut self, node: &str, wanted: &HashSet<String>) {
        if let Some(pods) = self.nodes.get_mut(node) {
            for (_, entry) in pods.extract_if(|uid, entry| entry.attempt.in_flight && !wanted.contains(uid)) {
                entry.abort();
            }
            for (_, entry) in pods.iter_mut().filter(|(uid, _)| !wanted.contains(*uid)) {
                entry.attempt.break_run();
                entry.is_held = false;
            }
        }
    }

    /// Forgets the nodes that `in_maintenance` denies. What is not sent yet never is.
    pub(crate) fn retain(&mut self, in_maintenance: impl Fn(&str) -> bool) {
        for (_, pods) in self.nodes.extract_if(|node, _| !in_maintenance(node)) {
            pods.into_values().for_each(Entry::abort);
        }
        self.returns.retain(|node, _| in_maintenance(node));
        if self.nodes.is_empty() {
            self.budgets.clear();
        }
    }

    /// What is left of a budget. What it tells itself by now is forgotten.
    pub(crate) fn left(&mut self, budget: &Arc<Budget>) -> RemainingBudget {
        let seen = budget.version();
        let Some(asked) = self.budgets.get_mut(&seen.key) else {
            return RemainingBudget::of(budget.clone(), None, []);
        };
        asked.pods.retain(|uid, guarded| {
            let entry = entry(&self.nodes, guarded, uid);
            entry.is_some_and(|entry| entry.attempt.in_flight || guarded.version == seen.version)
        });
        RemainingBudget::of(budget.clone(), Some(asked.last), asked.charges(&self.nodes))
    }

    /// Whether others have spent what a budget allowed when an eviction was decided.
    pub(crate) fn is_spent(&self, allowance: &Allowance) -> bool {
        let asked = self.budgets.get(&allowance.guard.key);
        asked.is_some_and(|asked| allowance.is_spent(asked.charges(&self.nodes)))
    }

    /// The nodes that have refused pods in `namespace`.
    pub(crate) fn waiting_in(&self, namespace: &str) -> Vec<String> {
        let is_refused = |entry: &Entry| entry.is_held || entry.attempt.refused_since.is_some();
        let waits = |entry: &Entry| entry.namespace == namespace && is_refused(entry);
        let waiting = self.nodes.iter().filter(|(_, pods)| pods.values().any(waits));
        waiting.map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use nm_shared::drain::budget_forecast::Budgets;
    use serde_json::json;

    use super::*;
    use nm_shared::cluster::disruption_budget::BudgetRefusal;

    fn pod(uid: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap()
    }

    /// A budget that allows five disruptions, and says so at this version.
    fn budget(version: &str) -> Arc<Budget> {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "cart", "resourceVersion": version},
            "status": {"disruptionsAllowed": 5},
        }))
        .unwrap();
        Arc::new(Budget::from(&budget))
    }

    fn asked(ledger: &mut Ledger) -> Option<SteadyTime> {
        let budget = budget("1");
        let budgets = Budgets::from_iter([ledger.left(&budget)]);
        budgets.asked(&budget.version().key)
    }

    #[test]
    fn a_budget_counts_as_asked_while_its_answer_is_awaited() {
        let mut ledger = Ledger::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        assert_eq!(asked(&mut ledger), None);
        ledger.begin("n", &pod("a"), vec![budget("1").version().clone()], at(1));
        assert_eq!(asked(&mut ledger), Some(at(1)));
        ledger.end(
            "n",
            "a",
            RemovalRequest::Evict,
            EvictionOutcome::RefusedByBudget(BudgetRefusal::default()),
            at(2),
        );
        assert_eq!(asked(&mut ledger), Some(at(2)));
    }

    #[test]
    fn what_a_budget_tells_itself_by_now_is_forgotten_and_what_is_awaited_is_not() {
        let mut ledger = Ledger::default();
        let at = SteadyTime::MIN;
        for (uid, version) in [("old", "1"), ("new", "2"), ("awaited", "1"), ("gone", "2")] {
            ledger.begin("n", &pod(uid), vec![budget(version).version().clone()], at);
        }
        for uid in ["old", "new", "gone"] {
            ledger.end("n", uid, RemovalRequest::Evict, EvictionOutcome::Accepted, at);
        }
        ledger.forget_gone("n", |uid| uid != "gone");
        let charges = |ledger: &Ledger| {
            let mut charges: Vec<_> =
                ledger.budgets[&budget("2").version().key].charges(&ledger.nodes).collect();
            charges.sort_by_key(|(version, _)| *version);
            charges.into_iter().map(|(version, charge)| format!("{version} {charge:?}")).collect::<Vec<_>>()
        };
        assert_eq!(charges(&ledger).len(), 3);
        ledger.left(&budget("2"));
        assert_eq!(charges(&ledger), ["1 InFlight", "2 Accepted"]);
        ledger.left(&budget("3"));
        assert_eq!(charges(&ledger), ["1 InFlight"]);
    }

    #[test]
    fn what_others_have_spent_is_not_spent_again() {
        let mut ledger = Ledger::default();
        let allowance = |allowed| Allowance { guard: budget("1").version().clone(), allowed };
        assert!(!ledger.is_spent(&allowance(1)));
        ledger.begin("elsewhere", &pod("a"), vec![budget("1").version().clone()], SteadyTime::MIN);
        assert!(ledger.is_spent(&allowance(1)) && !ledger.is_spent(&allowance(2)));
    }

    #[test]
    fn a_pod_that_nobody_wants_to_go_is_not_refused_meanwhile() {
        let mut ledger = Ledger::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let since = |ledger: &Ledger, uid: &str| ledger.attempts("n")[uid].refused_since;
        for uid in ["left out", "wanted"] {
            ledger.begin("n", &pod(uid), Vec::new(), at(1));
            ledger.end("n", uid, RemovalRequest::Evict, EvictionOutcome::NotMigratable(String::new()), at(1));
        }
        ledger.take_back("n", &["wanted".to_owned()].into());
        assert_eq!(since(&ledger, "wanted"), Some(at(1)));
        assert_eq!(since(&ledger, "left out"), None);
    }

    #[test]
    fn a_pod_that_is_held_back_counts_as_refused_while_the_api_server_refuses_for_its_budget() {
        use EvictionOutcome::{Accepted, RefusedByBudget, RefusedByWebhook, Throttled, Unknown};
        let mut ledger = Ledger::default();
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let said = String::new;
        let throttled = Throttled { retry_after: None, message: said() };
        let webhook = RefusedByWebhook { webhook: said(), message: said() };
        let budget = budget("1").version().clone();
        let held = |ledger: &mut Ledger, second| {
            ledger.hold("n", &pod("held"), &budget.key, at(second));
            ledger.attempts("n")["held"].refused_since
        };
        assert_eq!(held(&mut ledger, 0), None, "nobody has asked yet");
        ledger.entry("n", &pod("held")).attempt.end(webhook.clone(), at(0));
        assert_eq!(held(&mut ledger, 0), Some(at(0)), "something else refuses");
        for (second, answer, since) in [
            (1, Unknown(said()), None),
            (2, RefusedByBudget(BudgetRefusal::default()), Some(2)),
            (3, webhook, Some(2)),
            (4, Accepted, Some(2)),
            (5, throttled, None),
            (6, RefusedByBudget(BudgetRefusal::default()), Some(6)),
        ] {
            ledger.begin("n", &pod("asked"), vec![budget.clone()], at(second));
            ledger.end("n", "asked", RemovalRequest::Evict, answer.clone(), at(second));
            assert_eq!(held(&mut ledger, second), since.map(at), "{answer:?}");
            assert_eq!(ledger.waiting_in(""), ["n"], "it waits for the budget in any case");
        }
    }

    #[tokio::test]
    async fn what_is_taken_back_is_not_sent_or_is_broken_off_and_its_answer_is_nobodys() {
        let mut ledger = Ledger::default();
        let at = SteadyTime::MIN;
        for uid in ["queued", "sent", "wanted"] {
            ledger.begin("n", &pod(uid), Vec::new(), at);
        }
        let request = tokio::spawn(std::future::pending::<()>());
        ledger.awaited("n", "sent").unwrap().request = Some(request.abort_handle());
        ledger.take_back("n", &["wanted".to_owned()].into());
        assert!(ledger.awaited("n", "queued").is_none());
        assert!(request.await.unwrap_err().is_cancelled());
        assert!(!ledger.end("n", "sent", RemovalRequest::Evict, EvictionOutcome::Accepted, at));
        assert!(ledger.end("n", "wanted", RemovalRequest::Evict, EvictionOutcome::Accepted, at));
    }
}
