//! How a budget limits the evictions of a plan.

use crate::cluster::disruption_budget::BudgetKey;
use crate::drain::budget_allowance::{Budgets, Stuck};

/// A budget and the planned pods that it guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetForecast {
    /// The budget.
    pub budget: BudgetKey,
    /// The number of pods to evict that the budget guards.
    pub pods: usize,
    /// The number of them that may be evicted now.
    pub now: usize,
    /// The number that may be evicted at once when all expected pods are healthy.
    pub at_most: usize,
    /// The minimum number of rounds, each as large as the budget allows and finished when all pods are replaced; none if
    /// the budget never allows an eviction, or not all because replacements fit on no node.
    pub rounds: Option<usize>,
    /// The number of pods that are never evicted, because replacements of other pods fit on no node.
    pub short_of: usize,
    /// Why it allows none before pods are Ready that are on no way to become so; none if enough others are, or become so.
    pub lacks: Option<Stuck>,
}

impl BudgetForecast {
    pub(super) fn of(budget: BudgetKey, budgets: &Budgets) -> Self {
        let at_most = budgets.at_most(&budget);
        Self { budget, pods: 0, now: 0, at_most, rounds: None, short_of: 0, lacks: None }
    }

    /// Computes the rounds. The first is what the budget allows now.
    pub(super) fn counted(&mut self) -> Self {
        let left = self.pods - self.now;
        let first = usize::from(self.now > 0);
        self.rounds = match left {
            0 => Some(first),
            _ if self.at_most == 0 => None,
            _ => Some(first + left.div_ceil(self.at_most)),
        };
        self.clone()
    }
}
