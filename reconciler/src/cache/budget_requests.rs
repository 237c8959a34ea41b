//! What was requested of one disruption budget, and how long what it allowed goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nm_shared::cluster::disruption_budget::BudgetVersion;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::budget_allowance::BudgetUse;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::steady_time::SteadyTime;

/// The evictions that were requested of one budget.
#[derive(Default)]
pub(crate) struct BudgetRequests {
    /// When the last one was requested.
    pub(crate) last: Option<SteadyTime>,
    /// When the API server last refused an eviction because of this budget. A deferred pod counts as refused for
    /// [`MAX_GAP`](nm_shared::drain::eviction_attempts::MAX_GAP) after that: other answers, such as an error, are no verdict on it.
    pub(crate) refused_at: Option<SteadyTime>,
    /// Until when its pods that terminate may take to do so, by uid.
    terminating: HashMap<String, SteadyTime>,
    /// When the last of those that no longer terminate was gone, or had to be.
    ended_at: Option<SteadyTime>,
    /// Cloned for each request that is queued or in progress, deletions included.
    in_flight: Arc<()>,
    /// Answered evictions, by pod uid, that the budget's status may not reflect yet.
    pub(crate) answered: HashMap<String, AnsweredEviction>,
}

/// An eviction that was answered. It was requested when its budget had this version.
pub(crate) struct AnsweredEviction {
    pub(crate) node: String,
    pub(crate) guard: Arc<BudgetVersion>,
}

impl BudgetRequests {
    /// A request is in flight for as long as the clone of this lives.
    pub(crate) fn counter(&self) -> Arc<()> {
        self.in_flight.clone()
    }

    pub(crate) fn record(&mut self, pod: &DrainPod, outcome: &EvictionOutcome, now: SteadyTime) {
        self.last = Some(now);
        match outcome {
            EvictionOutcome::RefusedByBudget(_) => self.refused_at = Some(now),
            EvictionOutcome::Accepted => {
                let grace = Duration::from_secs(pod.grace_seconds.into());
                self.record_terminating(pod::uid(pod), now.after(grace), now);
            }
            _ => {}
        }
    }

    /// Whether a pod, by its uid, is known to terminate.
    pub(crate) fn is_terminating(&self, pod: &str) -> bool {
        self.terminating.contains_key(pod)
    }

    /// A pod may take `until` then to terminate.
    pub(crate) fn record_terminating(&mut self, pod: &str, until: SteadyTime, now: SteadyTime) {
        let overdue = self.terminating.extract_if(|_, until| *until <= now).map(|(_, until)| until);
        self.ended_at = overdue.max().max(self.ended_at);
        self.terminating.insert(pod.to_owned(), until);
    }

    pub(crate) fn record_gone(&mut self, pod: &str, now: SteadyTime) {
        if let Some(until) = self.terminating.remove(pod) {
            self.ended_at = self.ended_at.max(Some(until.min(now)));
        }
    }

    /// Until when its pods may take to terminate, or when the last was gone.
    pub(crate) fn busy_until(&self) -> Option<SteadyTime> {
        self.terminating.values().copied().max().max(self.ended_at)
    }

    /// The answers that the budget may not show yet, each with the version at which the eviction was decided. `used` is what the
    /// answer about the pod with a uid on a node takes from its budgets.
    pub(crate) fn answers<'a>(
        &'a self,
        used: impl Fn(&str, &str) -> Option<BudgetUse<'a>>,
    ) -> impl Iterator<Item = (&'a str, BudgetUse<'a>)> {
        self.answered.iter().filter_map(move |(uid, AnsweredEviction { node, guard })| {
            Some((guard.version.as_str(), used(node, uid)?))
        })
    }

    pub(crate) fn in_flight(&self) -> i32 {
        i32::try_from(Arc::strong_count(&self.in_flight) - 1).unwrap_or(i32::MAX)
    }
}
