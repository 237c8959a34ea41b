//! Which pods are asked to go now, and which wait for what.
//!
//! The order of the drain, disruption budgets and the pauses after refusals all decide here, and nowhere else.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::api::maintenance::{DrainOrder, DrainSpec};
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::pod;
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::{Eviction, RemovalRequest};
use crate::drain::attempt::Attempt;
use crate::drain::budget_forecast::{Allowance, BudgetPrediction, Budgets};
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::plan::{DrainPlan, PlannedPod, Verdict};
use crate::drain::steady_time::SteadyTime;
use crate::drain::virtual_machine;

/// A budget that has freed up is asked again this long after a refusal, however long the pod's own pause would be.
const BUDGET_PAUSE: Duration = Duration::from_millis(200);

/// A budget that seems exhausted is asked anyway this long after it was last asked: the view of it may be wrong.
const SCOUT_PAUSE: Duration = Duration::from_secs(10);

/// What is to be done about the pods that are still to go.
#[derive(Debug, Clone, Default)]
pub struct EvictionQueue {
    /// The pods to be asked now.
    pub evictions: Vec<Eviction>,
    /// The pods that a budget would refuse, by uid.
    pub blocked_by_budget: HashMap<String, BudgetBlock>,
    /// The pods, by uid, that have been refused for `deleteAfterSeconds`.
    pub overdue: HashSet<String>,
    /// When the next of the others is due, if nothing happens before.
    pub next: Option<SteadyTime>,
}

/// What a pod is held back for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetBlock {
    /// The budget.
    pub budget: BudgetKey,
    /// Its numbers.
    pub message: String,
}

impl EvictionQueue {
    /// Goes through the plan once.
    pub fn new(plan: &DrainPlan, spec: &DrainSpec, observed: &ClusterState, now: SteadyTime) -> Self {
        let mut queue = Self::default();
        let mut budgets = observed.budgets.clone();
        let turn = EvictionOrder::new(plan, spec, observed);
        for judged in plan.pods.iter().filter(|judged| judged.verdict == Verdict::Evict) {
            let pod = &judged.pod;
            if pod::deadline(pod).is_some() || !turn.has_come(pod) {
                continue;
            }
            let attempt = observed.attempts.get(pod::uid(pod)).cloned().unwrap_or_default();
            let delete_at = delete_at(&attempt, spec, now);
            let is_overdue = delete_at.is_some_and(|at| at <= now);
            if is_overdue {
                queue.overdue.insert(pod::uid(pod).to_owned());
            }
            if attempt.in_flight {
                continue;
            }
            if is_overdue && !attempt.was_deletion_refused() {
                queue.ask(judged, RemovalRequest::Delete, None, spec, observed);
                continue;
            }
            queue.next = earliest(queue.next, delete_at.filter(|at| *at > now));
            let at = due(pod, &attempt, observed);
            if waits_for_others(&attempt) && at.is_none_or(|at| at > now) {
                // What its budget allows meanwhile is for those that can have it.
                queue.next = earliest(queue.next, at);
                continue;
            }
            let mut spends = None;
            let due = match budgets.charge(pod) {
                BudgetPrediction::Free => at,
                BudgetPrediction::Allowed(allowance) => {
                    spends = Some(allowance);
                    at
                }
                // What is overdue is asked once more before it is deleted, whatever its budget seems to allow.
                BudgetPrediction::Exhausted { .. } if is_overdue || asks_kubevirt(pod, &attempt) => at,
                BudgetPrediction::Exhausted { budget, message } => {
                    let due = scout(&attempt, &budget, &mut budgets, now);
                    queue.blocked_by_budget.insert(pod::uid(pod).to_owned(), BudgetBlock { budget, message });
                    due
                }
            };
            match due {
                Some(at) if at <= now => queue.ask(judged, RemovalRequest::Evict, spends, spec, observed),
                later => queue.next = earliest(queue.next, later),
            }
        }
        queue
    }

    fn ask(
        &mut self,
        judged: &PlannedPod,
        request: RemovalRequest,
        spends: Option<Allowance>,
        spec: &DrainSpec,
        observed: &ClusterState,
    ) {
        self.evictions.push(Eviction {
            pod: judged.pod.clone(),
            request,
            grace_period_seconds: (spec.grace_period_seconds >= 0).then_some(spec.grace_period_seconds),
            guards: observed.budgets.guarding(&judged.pod),
            spends,
        });
    }
}

/// Whose turn it is.
struct EvictionOrder<'a> {
    observed: &'a ClusterState,
    /// The lowest priority that is still there, where the order matters.
    lowest: Option<i32>,
    /// Whether the reconciler's own pod is all that is left.
    own_alone: bool,
}

impl<'a> EvictionOrder<'a> {
    fn new(plan: &DrainPlan, spec: &DrainSpec, observed: &'a ClusterState) -> Self {
        let others = || plan.pending().filter(|judged| !is_own(&judged.pod, observed));
        let lowest = match spec.order {
            DrainOrder::None => None,
            DrainOrder::PriorityAscending => others().map(|judged| pod::priority(&judged.pod)).min(),
        };
        Self { observed, lowest, own_alone: others().next().is_none() }
    }

    fn has_come(&self, pod: &Pod) -> bool {
        if is_own(pod, self.observed) {
            return self.own_alone;
        }
        self.lowest.is_none_or(|lowest| pod::priority(pod) <= lowest)
    }
}

fn is_own(pod: &Pod, observed: &ClusterState) -> bool {
    observed.own_pod.as_ref() == Some(&pod::reference(pod))
}

/// When a pod is due that no budget stands in the way of.
fn due(pod: &Pod, attempt: &Attempt, observed: &ClusterState) -> Option<SteadyTime> {
    let due = attempt.next_try()?;
    match &attempt.last {
        _ if attempt.was_deletion_refused() => Some(due),
        // Someone has changed the budgets.
        Some((at, EvictionOutcome::MultipleBudgets(_))) if observed.budgets.guarding(pod).len() < 2 => {
            Some(due.min(at.after(BUDGET_PAUSE)))
        }
        // The virtual machine has left it.
        Some((at, EvictionOutcome::Migrating(_))) if pod::is_finished(pod) => {
            Some(due.min(at.after(BUDGET_PAUSE)))
        }
        Some((at, EvictionOutcome::RefusedByBudget(_))) => Some(due.min(at.after(BUDGET_PAUSE))),
        _ => Some(due),
    }
}

/// Whether KubeVirt answers before the budget does, which is then its own: it lets no machine's pod go.
fn asks_kubevirt(pod: &Pod, attempt: &Attempt) -> bool {
    let refused = matches!(attempt.last, Some((_, EvictionOutcome::RefusedByBudget(_))));
    virtual_machine::run_by(pod).is_some() && !refused
}

/// When a pod is due whose budget seems exhausted: one pod a budget, now and then.
fn scout(
    attempt: &Attempt,
    budget: &BudgetKey,
    budgets: &mut Budgets,
    now: SteadyTime,
) -> Option<SteadyTime> {
    let patience = budgets.asked(budget).map_or(SteadyTime::MIN, |at| at.after(SCOUT_PAUSE));
    let due = attempt.next_try()?.max(patience);
    if due <= now {
        budgets.note_asked(budget, now);
    }
    Some(due)
}

/// Whether a pod was answered, and not by its budget: then it is not its budget that it waits for.
fn waits_for_others(attempt: &Attempt) -> bool {
    if attempt.was_deletion_refused() {
        return true;
    }
    attempt.last.as_ref().is_some_and(|(_, outcome)| !matches!(outcome, EvictionOutcome::RefusedByBudget(_)))
}

/// When a pod that is refused is deleted instead.
fn delete_at(attempt: &Attempt, spec: &DrainSpec, now: SteadyTime) -> Option<SteadyTime> {
    let since = attempt.unbroken_since(now).filter(|_| spec.delete_after_seconds > 0)?;
    Some(since.after(Duration::from_secs(u64::try_from(spec.delete_after_seconds).ok()?)))
}

fn earliest(a: Option<SteadyTime>, b: Option<SteadyTime>) -> Option<SteadyTime> {
    a.into_iter().chain(b).min()
}

/// How long until `at`.
pub fn wait_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
#[path = "eviction_queue_tests.rs"]
mod tests;
