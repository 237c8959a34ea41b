//! The cluster's disruption budgets, each parsed once when it changes and not with every reconcile.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nm_shared::cluster::budget_headway::Headway;
use nm_shared::cluster::disruption_budget::{Budget, BudgetVersion};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::steady_time::SteadyTime;

use crate::cache::index::Index;
use crate::cache::watched::{WatchUpdate, Watched, key};

/// The disruption budgets. Where they cannot be listed, more evictions are refused.
#[derive(Default)]
pub(crate) struct DisruptionBudgets {
    pub(crate) received: Watched<PodDisruptionBudget>,
    by_namespace: Index<String, SeenBudget>,
}

/// A budget, and when it last came closer to an eviction.
#[derive(Clone)]
pub(crate) struct SeenBudget {
    pub(crate) budget: Arc<Budget>,
    pub(crate) seen: SteadyTime,
    headway: Headway,
    /// Whether it has come closer since it is known.
    pub(crate) has_changed: bool,
}

impl SeenBudget {
    /// A budget that is seen for the first time.
    pub(crate) fn new(budget: Arc<Budget>, seen: SteadyTime) -> Self {
        Self { headway: Headway::of(&budget), budget, seen, has_changed: false }
    }
}

impl DisruptionBudgets {
    /// Takes in what the watch delivers at that time.
    pub(crate) fn apply(&mut self, update: WatchUpdate<PodDisruptionBudget>, now: SteadyTime) {
        match &update {
            WatchUpdate::Applied(budget) => {
                let known = self.by_namespace.remove(&key(budget));
                self.parse(budget, known, now);
            }
            WatchUpdate::Deleted(budget) => _ = self.by_namespace.remove(&key(budget)),
            WatchUpdate::Listed(all) => {
                let mut known = std::mem::take(&mut self.by_namespace);
                for budget in all {
                    self.parse(budget, known.remove(&key(budget)), now);
                }
            }
            WatchUpdate::Interrupted | WatchUpdate::Forbidden(_) => {}
        }
        self.received.apply(update);
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &SeenBudget> {
        self.by_namespace.of(namespace)
    }

    /// The budgets that guard `pod`, and that may allow an eviction once their pods have been replaced.
    pub(crate) fn moved_by(&self, pod: &DrainPod) -> impl Iterator<Item = &Arc<BudgetVersion>> {
        let near = self.in_namespace(pod::names(pod).namespace).map(|seen| &seen.budget);
        let is_moved = |budget: &&Arc<Budget>| budget.guards(pod) && !budget.is_unsatisfiable();
        near.filter(is_moved).map(|budget| budget.version())
    }

    fn parse(&mut self, object: &PodDisruptionBudget, known: Option<SeenBudget>, now: SteadyTime) {
        let namespace = object.namespace().unwrap_or_default();
        let budget = Arc::new(Budget::from(object));
        let seen = match known {
            None => SeenBudget::new(budget, now),
            Some(mut known) => {
                if known.headway.advance(&known.budget, &budget) {
                    (known.seen, known.has_changed) = (now, true);
                }
                SeenBudget { budget, ..known }
            }
        };
        self.by_namespace.insert(key(object), &namespace, seen);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_budgets_of_a_namespace_are_as_the_watch_delivered_them() {
        let budget = |namespace: &str, name: &str, version: &str| -> PodDisruptionBudget {
            let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": version});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let mut budgets = DisruptionBudgets::default();
        let in_namespace = |budgets: &DisruptionBudgets, namespace: &str| {
            let versions = budgets.in_namespace(namespace).map(|seen| seen.budget.version());
            let mut found: Vec<_> = versions.map(|seen| format!("{} {}", seen.key, seen.version)).collect();
            found.sort();
            found.join(", ")
        };
        let all = [budget("a", "x", "1"), budget("a", "y", "1"), budget("b", "x", "1")];
        budgets.apply(WatchUpdate::Listed(all.into()), SteadyTime::MIN);
        assert_eq!((&*in_namespace(&budgets, "a"), &*in_namespace(&budgets, "c")), ("a/x 1, a/y 1", ""));
        budgets.apply(WatchUpdate::Applied(budget("a", "x", "2")), SteadyTime::MIN);
        budgets.apply(WatchUpdate::Deleted(budget("a", "y", "3")), SteadyTime::MIN);
        assert_eq!((&*in_namespace(&budgets, "a"), &*in_namespace(&budgets, "b")), ("a/x 2", "b/x 1"));
        assert_eq!(budgets.received.iter().count(), 2);
    }

    #[test]
    fn a_budget_moves_when_it_comes_closer_to_an_eviction_and_not_when_a_pod_is_lost() {
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let budget = |healthy: i32, expected: i32, disrupted: &[&str]| -> PodDisruptionBudget {
            let disrupted: BTreeMap<_, _> =
                disrupted.iter().map(|pod| (*pod, "2026-01-01T00:00:00Z")).collect();
            let status = json!({"currentHealthy": healthy, "desiredHealthy": 3, "expectedPods": expected,
                "disruptionsAllowed": (healthy - 3).max(0), "disruptedPods": disrupted});
            let metadata = json!({"namespace": "a", "name": "x", "generation": 1});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let mut budgets = DisruptionBudgets::default();
        let mut seen = |object: PodDisruptionBudget, second: u64| {
            budgets.apply(WatchUpdate::Applied(object), at(second));
            let seen = budgets.in_namespace("a").next().unwrap();
            (seen.seen, seen.has_changed)
        };
        assert_eq!(seen(budget(3, 4, &[]), 1), (at(1), false));
        assert_eq!(seen(budget(1, 4, &[]), 2), (at(1), false), "two pods are lost");
        assert_eq!(seen(budget(2, 4, &[]), 3), (at(3), true), "one is back");
        assert_eq!(seen(budget(2, 4, &[]), 4), (at(3), true));
        assert_eq!(seen(budget(3, 4, &[]), 4), (at(4), true), "the other is back, too");
        assert_eq!(seen(budget(2, 4, &[]), 4), (at(4), true));
        assert_eq!(seen(budget(2, 5, &[]), 5), (at(5), true), "another one is expected");
        assert_eq!(seen(budget(2, 5, &["p"]), 6), (at(6), true), "an eviction was allowed");
        assert_eq!(seen(budget(2, 5, &[]), 7), (at(6), true));
        assert_eq!(seen(budget(1, 5, &[]), 8), (at(6), true));
        assert_eq!(seen(budget(2, 5, &[]), 9), (at(9), true), "what was lost is back");
        assert_eq!(seen(budget(1, 5, &[]), 10), (at(9), true));
        assert_eq!(
            seen(budget(2, 5, &[]), 11),
            (at(9), true),
            "a pod that crashes is back for the second time"
        );
        assert_eq!(seen(budget(3, 5, &[]), 12), (at(12), true), "it is closer than before");
    }
}
