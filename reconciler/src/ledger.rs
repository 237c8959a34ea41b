//! What is known of the evictions of every pod that is still there: a cache, lost with the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use nm_shared::attempt::Attempt;
use nm_shared::budget::{BudgetKey, BudgetVersion, Charge, Charges};
use nm_shared::eviction_outcome::EvictionOutcome;
use nm_shared::pod;
use nm_shared::returns::Returns;
use tokio::task::AbortHandle;

/// The evictions of all nodes in maintenance.
#[derive(Default)]
pub(crate) struct Ledger {
    nodes: HashMap<String, HashMap<String, Entry>>,
    guarded: HashMap<String, Guarded>,
    budgets_asked: HashMap<BudgetKey, Timestamp>,
    returns: HashMap<String, Returns>,
}

/// The evictions of one pod.
pub(crate) struct Entry {
    pub(crate) attempt: Attempt,
    namespace: String,
    /// By what the request is taken back once it is under way.
    pub(crate) request: Option<AbortHandle>,
}

/// The budgets of a pod that may not show yet what was asked of them. Kept by themselves, because of all that are asked
/// few have any, and each look of each node reads them.
struct Guarded {
    node: String,
    guards: Vec<BudgetVersion>,
}

impl Entry {
    /// What it takes off its budgets.
    fn charge(&self) -> Option<Charge> {
        match &self.attempt.last {
            _ if self.attempt.in_flight => Some(Charge::InFlight),
            Some((_, EvictionOutcome::Accepted)) => Some(Charge::Accepted),
            Some((_, EvictionOutcome::RefusedByBudget(sentence))) => Some(Charge::Refused(sentence.clone())),
            _ => None,
        }
    }

    fn abort(self) {
        if let Some(request) = self.request {
            request.abort();
        }
    }
}

impl Ledger {
    /// The entry of a pod on `node`, which may be new.
    pub(crate) fn entry(&mut self, node: &str, pod: &Pod) -> &mut Entry {
        let pods = self.nodes.entry(node.to_owned()).or_default();
        pods.entry(pod::uid(pod).to_owned()).or_insert_with(|| Entry {
            attempt: Attempt::default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            request: None,
        })
    }

    /// Notes that a request for a pod is on its way. Its budgets count as asked from now on, not only once they have
    /// answered: else every look in between would ask for one pod more.
    pub(crate) fn begin(&mut self, node: &str, pod: &Pod, guards: Vec<BudgetVersion>, now: Timestamp) {
        for guard in &guards {
            self.budgets_asked.insert(guard.key.clone(), now);
        }
        if !guards.is_empty() {
            let guarded = Guarded { node: node.to_owned(), guards };
            self.guarded.insert(pod::uid(pod).to_owned(), guarded);
        }
        let entry = self.entry(node, pod);
        entry.attempt.begin();
        entry.request = None;
    }

    /// The entry of a pod whose request is awaited; none if it was taken back.
    pub(crate) fn awaited(&mut self, node: &str, uid: &str) -> Option<&mut Entry> {
        self.nodes.get_mut(node)?.get_mut(uid).filter(|entry| entry.attempt.in_flight)
    }

    /// Notes an answer, and returns whether anybody still asks.
    pub(crate) fn end(&mut self, node: &str, uid: &str, outcome: EvictionOutcome, now: Timestamp) -> bool {
        let Some(entry) = self.nodes.get_mut(node).and_then(|pods| pods.get_mut(uid)) else { return false };
        entry.attempt.end(outcome, now);
        entry.request = None;
        for guard in self.guarded.get(uid).iter().flat_map(|guarded| &guarded.guards) {
            self.budgets_asked.insert(guard.key.clone(), now);
        }
        true
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
        self.returns.entry(node.to_owned()).or_default().note(pods)
    }

    /// Takes back the requests for pods of `node` that are not wanted any more.
    pub(crate) fn take_back(&mut self, node: &str, wanted: &HashSet<String>) {
        if let Some(pods) = self.nodes.get_mut(node) {
            for (_, entry) in pods.extract_if(|uid, entry| entry.attempt.in_flight && !wanted.contains(uid)) {
                entry.abort();
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
            self.budgets_asked.clear();
        }
    }

    /// What the budgets may not show yet, as far as `concerns` says so.
    pub(crate) fn charges(&self, concerns: impl Fn(&BudgetVersion) -> bool) -> Charges {
        let mut charges = Charges::new();
        for (uid, guarded) in &self.guarded {
            let mut guards = guarded.guards.iter().filter(|guard| concerns(guard)).peekable();
            if guards.peek().is_some()
                && let Some(charge) = self.found(&guarded.node, uid).and_then(Entry::charge)
            {
                charges.extend(guards.map(|guard| (guard.clone(), charge.clone())));
            }
        }
        charges
    }

    /// Forgets what was answered about budgets that `is_current` denies: they tell it themselves by now, and there is
    /// one for every pod that was ever moved.
    pub(crate) fn forget_told(&mut self, is_current: impl Fn(&BudgetVersion) -> bool) {
        let nodes = &self.nodes;
        self.guarded.retain(|uid, guarded| {
            let entry = nodes.get(&guarded.node).and_then(|pods| pods.get(uid));
            if entry.is_some_and(|entry| !entry.attempt.in_flight) {
                guarded.guards.retain(&is_current);
            }
            entry.is_some() && !guarded.guards.is_empty()
        });
    }

    fn found(&self, node: &str, uid: &str) -> Option<&Entry> {
        self.nodes.get(node)?.get(uid)
    }

    /// When each budget was last asked.
    pub(crate) fn budgets_asked(&self) -> HashMap<BudgetKey, Timestamp> {
        self.budgets_asked.clone()
    }

    /// The nodes that have refused pods in `namespace`.
    pub(crate) fn waiting_in(&self, namespace: &str) -> Vec<String> {
        let waits = |entry: &Entry| entry.namespace == namespace && entry.attempt.refused_since.is_some();
        let waiting = self.nodes.iter().filter(|(_, pods)| pods.values().any(waits));
        waiting.map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_budget_counts_as_asked_while_its_answer_is_awaited() {
        let mut ledger = Ledger::default();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "a"}})).unwrap();
        let guard = BudgetVersion::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        ledger.begin("n", &pod, vec![guard.clone()], at(1));
        assert_eq!(ledger.budgets_asked().get(&guard.key), Some(&at(1)));
        ledger.end("n", "a", EvictionOutcome::RefusedByBudget(String::new()), at(2));
        assert_eq!(ledger.budgets_asked().get(&guard.key), Some(&at(2)));
    }

    #[test]
    fn what_a_budget_tells_itself_by_now_is_forgotten_and_what_is_awaited_is_not() {
        let mut ledger = Ledger::default();
        let pod = |uid: &str| -> Pod { serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap() };
        let at = Timestamp::UNIX_EPOCH;
        for (uid, version) in [("old", "1"), ("new", "2"), ("awaited", "1")] {
            let guard = BudgetVersion { version: version.to_owned(), ..BudgetVersion::default() };
            ledger.begin("n", &pod(uid), vec![guard], at);
        }
        ledger.end("n", "old", EvictionOutcome::Accepted, at);
        ledger.end("n", "new", EvictionOutcome::Accepted, at);
        ledger.forget_told(|guard| guard.version == "2");
        let mut charges: Vec<_> = ledger.charges(|_| true).into_iter().map(|(_, charge)| charge).collect();
        charges.sort_by_key(|charge| *charge == Charge::Accepted);
        assert_eq!(charges, [Charge::InFlight, Charge::Accepted]);
        assert!(ledger.charges(|guard| guard.version == "3").is_empty());
    }

    #[tokio::test]
    async fn what_is_taken_back_is_not_sent_or_is_broken_off_and_its_answer_is_nobodys() {
        let mut ledger = Ledger::default();
        let pod = |uid: &str| -> Pod { serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap() };
        let at = Timestamp::UNIX_EPOCH;
        for uid in ["queued", "sent", "wanted"] {
            ledger.begin("n", &pod(uid), Vec::new(), at);
        }
        let request = tokio::spawn(std::future::pending::<()>());
        ledger.awaited("n", "sent").unwrap().request = Some(request.abort_handle());
        ledger.take_back("n", &["wanted".to_owned()].into());
        assert!(ledger.awaited("n", "queued").is_none());
        assert!(request.await.unwrap_err().is_cancelled());
        assert!(!ledger.end("n", "sent", EvictionOutcome::Accepted, at));
        assert!(ledger.end("n", "wanted", EvictionOutcome::Accepted, at));
    }
}
