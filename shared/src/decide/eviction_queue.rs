//! Which pods to evict now, which later, and which are blocked by their budget.
//!
//! This is the only place that applies disruption budgets and the backoff after refusals.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::api::maintenance::DrainSpec;
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::node::Readiness;
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::{Eviction, RemovalRequest};
use crate::decide::eviction_order::EvictionOrder;
use crate::decide::surge::Surges;
use crate::drain::budget_allowance::{AllowedDisruption, BudgetBlock, BudgetPrediction, Budgets, Stuck};
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::plan::{DrainPlan, PlannedPod, Verdict};
use crate::drain::steady_time::SteadyTime;
use crate::drain::virtual_machine;

/// A pod is retried this soon after a refusal once its budget allows disruptions again, whatever its own backoff.
const BUDGET_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// An eviction is requested this often for a budget that seems exhausted, in case its known status is outdated.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// What to do with the pods that are still to be evicted.
#[derive(Debug, Clone, Default)]
pub struct EvictionQueue {
    /// The evictions to request now.
    pub evictions: Vec<Eviction>,
    /// The pods whose eviction a budget would refuse, by uid.
    pub blocked_by_budget: HashMap<String, BudgetBlock>,
    /// How many pods leave before those that wait because of the order, by uid.
    pub by_order: HashMap<String, usize>,
    /// The uids of the pods whose eviction has been refused for `deleteAfterSeconds`.
    pub overdue: HashSet<String>,
    /// When the next of the other pods is due.
    pub next: Option<SteadyTime>,
}

impl EvictionQueue {
    /// Decides about every pod of the plan.
    pub(super) fn new(
        plan: &DrainPlan,
        spec: &DrainSpec,
        observed: &ClusterState,
        order: &EvictionOrder<'_>,
        surges: &Surges,
        now: SteadyTime,
    ) -> Self {
        let mut queue = Self::default();
        let mut budgets = observed.budgets.clone();
        for planned in &plan.pods {
            match observed.readiness() {
                Readiness::Silent => budgets.note_stuck(&planned.pod, Stuck::Unready),
                Readiness::Ready(Some(since)) => budgets.note_node_ready(&planned.pod, since),
                Readiness::Ready(None) | Readiness::NotReady => {}
            }
        }
        let mut ahead: HashMap<BudgetKey, usize> = HashMap::new();
        for planned in plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict) {
            let pod = &planned.pod;
            if pod::deadline(pod).is_some() || surges.is_surging(pod) {
                continue;
            }
            if !order.allows(pod) {
                queue.by_order.insert(pod::uid(pod).to_owned(), order.ahead(pod, plan));
                continue;
            }
            let attempt = observed.attempts.get(pod::uid(pod)).cloned().unwrap_or_default();
            let delete_at = delete_at(&attempt, spec, now);
            let on_node = plan.pods.iter().map(|planned| &*planned.pod);
            let delete_at =
                delete_at.filter(|_| !observed.evacuations.moves(pod, on_node, &observed.attempts));
            let is_overdue = delete_at.is_some_and(|at| at <= now);
            if is_overdue {
                queue.overdue.insert(pod::uid(pod).to_owned());
            }
            let mut blocked_until_others_move = |mut block: BudgetBlock| {
                let before = ahead.entry(block.budget.clone()).or_default();
                block.ahead = *before;
                *before += 1;
                // Its budget counts pods that the rollout has added.
                block.motion = block.motion.filter(|_| !surges.awaits_rollout(pod));
                block
            };
            if attempt.in_flight {
                // Meanwhile it is as blocked as it was.
                let is_probe = attempt.is_probe && !is_overdue && !asks_kubevirt(pod, &attempt);
                let exhausted = budgets.exhausted(pod).filter(|_| is_probe);
                let block = exhausted.map(&mut blocked_until_others_move);
                queue.blocked_by_budget.extend(block.map(|block| (pod::uid(pod).to_owned(), block)));
                continue;
            }
            if is_overdue && !attempt.was_deletion_refused() {
                queue.request(planned, RemovalRequest::Delete, None, spec, observed);
                continue;
            }
            queue.next = earliest(queue.next, delete_at.filter(|at| *at > now));
            let at = due(pod, &attempt, observed);
            if waits_for_others(&attempt) && at.is_none_or(|at| at > now) {
                // Meanwhile its budget's disruptions are for other pods.
                queue.next = earliest(queue.next, at);
                continue;
            }
            let mut uses_disruption = None;
            let due = match budgets.use_disruption(pod, if is_overdue { 0 } else { surges.reserved(pod) }) {
                BudgetPrediction::Free => at,
                BudgetPrediction::Allowed(disruption) => {
                    uses_disruption = Some(disruption);
                    at
                }
                // The eviction of an overdue pod is tried once more before it is deleted.
                BudgetPrediction::Exhausted(_) if is_overdue || asks_kubevirt(pod, &attempt) => at,
                // Until it is known what controls the pod.
                BudgetPrediction::Reserved(_) if surges.block_of(pod).is_none() => continue,
                BudgetPrediction::Reserved(block) => {
                    queue.blocked_by_budget.insert(pod::uid(pod).to_owned(), block);
                    continue;
                }
                BudgetPrediction::Exhausted(block) => {
                    let block = blocked_until_others_move(block);
                    // A stalled rollout that has added healthy pods ends others as soon as it continues. If the budget allows more
                    // than is known here, it may count such a pod: its numbers are waited for. One that has added none has to
                    // continue first, and a refusal is what `deleteAfterSeconds` counts from.
                    let is_safe = surges.reserved(pod) == 0;
                    let due = if waits_for_others(&attempt) {
                        // Only the answer to a request for this pod tells whether something else still refuses it.
                        at
                    } else {
                        probe_at(&attempt, &block.budget, &mut budgets, now)
                    };
                    let due = due.filter(|_| is_safe);
                    queue.blocked_by_budget.insert(pod::uid(pod).to_owned(), block);
                    due
                }
            };
            match due {
                Some(at) if at <= now => {
                    queue.request(planned, RemovalRequest::Evict, uses_disruption, spec, observed);
                }
                later => queue.next = earliest(queue.next, later),
            }
        }
        queue
    }

    fn request(
        &mut self,
        planned: &PlannedPod,
        request: RemovalRequest,
        uses_disruption: Option<AllowedDisruption>,
        spec: &DrainSpec,
        observed: &ClusterState,
    ) {
        self.evictions.push(Eviction {
            pod: planned.pod.clone(),
            request,
            grace_period_seconds: (spec.grace_period_seconds >= 0).then_some(spec.grace_period_seconds),
            guards: match request {
                RemovalRequest::Evict => observed.budgets.charged_for_eviction(&planned.pod),
                RemovalRequest::Delete => observed.budgets.charged_for_deletion(&planned.pod),
            },
            uses_disruption,
        });
    }
}

/// When to evict a pod that no budget blocks.
fn due(pod: &DrainPod, attempt: &Attempt, observed: &ClusterState) -> Option<SteadyTime> {
    let due = attempt.next_try()?;
    match &attempt.last {
        _ if attempt.was_deletion_refused() => Some(due),
        // The budgets were changed.
        Some((at, EvictionOutcome::MultipleBudgets(_))) if observed.budgets.guarding(pod).len() < 2 => {
            Some(due.min(at.after(BUDGET_RETRY_INTERVAL)))
        }
        // Its virtual machine has migrated.
        Some((at, _)) if attempt.migrates && pod::is_finished(pod) => {
            Some(due.min(at.after(BUDGET_RETRY_INTERVAL)))
        }
        Some((at, EvictionOutcome::RefusedByBudget(_))) => Some(due.min(at.after(BUDGET_RETRY_INTERVAL))),
        _ => Some(due),
    }
}

/// Whether KubeVirt answers before the budget does. The budget is then KubeVirt's own, which allows no disruptions.
fn asks_kubevirt(pod: &DrainPod, attempt: &Attempt) -> bool {
    let refused = matches!(attempt.last, Some((_, EvictionOutcome::RefusedByBudget(_))));
    virtual_machine::run_by(pod).is_some() && !refused
}

/// When to evict a pod that waits for its budget although that seems exhausted: one pod for each budget at intervals, on whatever node it is.
fn probe_at(
    attempt: &Attempt,
    budget: &BudgetKey,
    budgets: &mut Budgets,
    now: SteadyTime,
) -> Option<SteadyTime> {
    let probe = budgets.asked(budget).map_or(SteadyTime::MIN, |at| at.after(PROBE_INTERVAL));
    let due = attempt.next_try()?.max(probe);
    if due <= now {
        budgets.note_asked(budget, now);
    }
    Some(due)
}

/// Whether something else than its budget answered last, so that the pod does not wait for its budget.
fn waits_for_others(attempt: &Attempt) -> bool {
    if attempt.was_deletion_refused() {
        return true;
    }
    attempt.last.as_ref().is_some_and(|(_, outcome)| !matches!(outcome, EvictionOutcome::RefusedByBudget(_)))
}

/// When a pod whose eviction is refused is deleted instead.
fn delete_at(attempt: &Attempt, spec: &DrainSpec, now: SteadyTime) -> Option<SteadyTime> {
    let since = attempt.unbroken_since(now).filter(|_| spec.delete_after_seconds > 0)?;
    Some(since.after(Duration::from_secs(u64::try_from(spec.delete_after_seconds).ok()?)))
}

fn earliest(a: Option<SteadyTime>, b: Option<SteadyTime>) -> Option<SteadyTime> {
    a.into_iter().chain(b).min()
}

/// The time until `at`.
pub fn wait_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
#[path = "eviction_queue_tests.rs"]
mod tests;
