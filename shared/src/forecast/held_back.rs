//! Pods that a budget holds back because replacements fit on no node.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pod_reference::PodReference;
use crate::api::status::{BlockFacts, BlockReason, BudgetFacts};
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::pod;
use crate::drain::blocker::Blocker;
use crate::drain::budget_allowance::Budgets;
use crate::forecast::budget_forecast::BudgetForecast;
use crate::forecast::outage::USUAL_REPLACEMENT;
use crate::forecast::{Forecast, PodForecast, PodOutcome};

impl PodForecast {
    /// The pod waits for replacements that fit on no node.
    fn block_by(&mut self, budget: &BudgetKey) {
        let message = format!("budget {budget} waits for replacements that fit on no other node");
        let facts = BudgetFacts { name: budget.name.clone(), ..BudgetFacts::default() };
        let facts = BlockFacts { budget: Some(facts), ..BlockFacts::default() };
        let blocker = Blocker::new(BlockReason::DisruptionBudget, message).with(facts);
        let is_deleted = self.deleted_after.is_some();
        self.fate = if is_deleted { PodOutcome::Deleted(blocker) } else { PodOutcome::Blocked(blocker) };
    }
}

impl Forecast {
    /// Whether a pod may be deleted before its turn comes (`deleteAfterSeconds`): its budget allows no eviction now, or replacements
    /// usually take longer to become Ready than its rounds leave time.
    pub fn is_deleted_unless_allowed(&self, expected: &PodForecast) -> bool {
        let (PodOutcome::WaitsForBudget(budget), Some(after)) = (&expected.fate, expected.deleted_after)
        else {
            return false;
        };
        let is_short = |guard: &BudgetForecast| {
            let others = guard.rounds.unwrap_or(1).saturating_sub(1);
            let usual = USUAL_REPLACEMENT.as_secs().saturating_mul(others.try_into().unwrap_or(i64::MAX));
            guard.budget == *budget && (guard.now == 0 || after <= usual)
        };
        self.budgets.iter().any(is_short)
    }

    /// Accounts for pods whose replacements fit on no node: a budget that lacks healthy pods for that allows no further
    /// evictions. Pods that are replaced elsewhere are assumed to be evicted first.
    pub fn hold_back(&mut self, unplaced: &BTreeSet<PodReference>, budgets: &Budgets) {
        let lost = self.lost(unplaced, budgets);
        for guard in &mut self.budgets {
            let is_unplaced = |expected: &PodForecast| {
                expected.guarded_by.as_ref() == Some(&guard.budget)
                    && unplaced.contains(&pod::reference(&expected.pod))
            };
            let count = self.pods.iter().filter(|expected| is_unplaced(expected)).count();
            let held = match lost.get(&guard.budget) {
                _ if guard.now > 0 => count.saturating_sub(guard.at_most),
                Some(lost) if *lost >= guard.at_most => count,
                // What lacks for the first eviction are pods that are not Ready, and not nodes for those of the drain.
                _ => 0,
            };
            let later = self.pods.iter_mut().filter(|expected| {
                matches!(expected.fate, PodOutcome::WaitsForBudget(_)) && is_unplaced(expected)
            });
            let mut short_of = 0;
            for expected in later.rev().take(held) {
                expected.block_by(&guard.budget);
                short_of += 1;
            }
            if short_of > 0 {
                (guard.short_of, guard.rounds) = (short_of, None);
            }
        }
    }

    /// How many pods of each budget are not Ready and leave before the others, while the replacement of none has a node.
    fn lost(&self, unplaced: &BTreeSet<PodReference>, budgets: &Budgets) -> BTreeMap<BudgetKey, usize> {
        let is_unplaced = |expected: &&PodForecast| unplaced.contains(&pod::reference(&expected.pod));
        let mut lost: BTreeMap<BudgetKey, usize> = BTreeMap::new();
        for expected in self.pods.iter().filter(is_unplaced).filter(|expected| !pod::is_ready(&expected.pod))
        {
            let charged = budgets.charged_for_deletion(&expected.pod);
            let is_charged = |key: &BudgetKey| charged.iter().any(|other| other.key == *key);
            // A budget that it does not count for lets it leave first.
            for guard in budgets.guarding(&expected.pod).iter().filter(|guard| !is_charged(&guard.key)) {
                *lost.entry(guard.key.clone()).or_default() += 1;
            }
        }
        if lost.is_empty() {
            return lost;
        }
        for placed in self.pods.iter().filter(|expected| expected.is_replaced() && !is_unplaced(expected)) {
            for guard in budgets.guarding(&placed.pod) {
                lost.remove(&guard.key);
            }
        }
        lost
    }
}
