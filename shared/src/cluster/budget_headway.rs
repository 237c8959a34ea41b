//! Whether a disruption budget comes closer to allowing an eviction.
//!
//! A pod that is lost takes it further away, and its replacement brings it back. A pod that is Ready now and then, because it
//! crashes again and again, brings it back each time and leads nowhere: a budget regains only as much as it has lost.

use crate::cluster::disruption_budget::Budget;

/// What a budget has lost and regained since it was closest to an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headway {
    closest: i32,
    farthest: i32,
    regained: i32,
}

impl Headway {
    /// Of a budget that has just been seen.
    pub fn of(budget: &Budget) -> Self {
        let surplus = budget.surplus();
        Self { closest: surplus, farthest: surplus, regained: 0 }
    }

    /// Takes in that the budget, which was as `before`, is as `now`. Returns whether it has come closer to an eviction.
    pub fn advance(&mut self, before: &Budget, now: &Budget) -> bool {
        let surplus = now.surplus();
        if now.has_changed(before) || surplus > self.closest {
            *self = Self::of(now);
            return true;
        }
        self.farthest = self.farthest.min(surplus);
        let gain = surplus.saturating_sub(before.surplus());
        self.regained = self.regained.saturating_add(gain.max(0));
        gain > 0 && self.regained <= self.closest.saturating_sub(self.farthest)
    }
}
