//! The state of one pod during a drain, and why it is blocked.

use std::fmt::Write;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::group::Group;
use crate::api::pod_state::PodState;
use crate::api::status::{
    BlockFacts, BlockReason, BlockedPod, BudgetFacts, NodeMaintenanceStatus, WaitReason,
};
use crate::api::surge::SurgeFacts;
use crate::cluster::admission_webhook;
use crate::cluster::disruption_budget::BudgetRefusal;
use crate::cluster::node::Readiness;
use crate::cluster::pod::{self, DrainPod, JOB_FINALIZER, Termination};
use crate::drain::blocker::Blocker;
use crate::drain::budget_allowance::{BudgetBlock, Budgets};
use crate::drain::evacuation::{Evacuation, is_left_to_kubevirt};
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::{EvictionOutcome, HOTPLUG_WEBHOOK, KUBEVIRT_WEBHOOK};
use crate::drain::plan::{PlannedPod, Verdict};
use crate::drain::returning;
use crate::drain::steady_time::SteadyTime;
use crate::drain::surge::SurgeBlock;

/// A pod that is still there this long after its grace period is blocked. Until then the kubelet may be removing it.
const KUBELET_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// A pod that has ended is blocked by its finalizers this long afterwards. Until then their owners may be removing them.
const FINALIZER_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

/// The same of a pod that only the Job controller keeps: it counts a pod that has failed, and lets it go, only after the back-off of
/// the Job, which doubles with each such pod up to 10 min (`pkg/controller/job/job_controller.go` in kubernetes).
const JOB_TIMEOUT: SignedDuration = SignedDuration::from_mins(11);

/// The state of a pod during a drain, and what blocks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodStanding {
    /// The state.
    pub state: PodState,
    /// What blocks it, if it is blocked.
    pub blocker: Option<Blocker>,
    /// What it waits for, if it waits for its budget.
    pub turn: Option<BudgetTurn>,
}

impl From<PodState> for PodStanding {
    fn from(state: PodState) -> Self {
        Self { state, blocker: None, turn: None }
    }
}

impl From<Blocker> for PodStanding {
    fn from(blocker: Blocker) -> Self {
        Self { blocker: Some(blocker), ..PodState::Blocked.into() }
    }
}

impl From<BudgetTurn> for PodStanding {
    fn from(turn: BudgetTurn) -> Self {
        Self { turn: Some(turn), ..PodState::Waiting.into() }
    }
}

/// The budget of a pod allows its eviction once evicted pods have been replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetTurn {
    /// The budget and its numbers, as far as they are known.
    pub budget: Option<BudgetFacts>,
    /// The number of pods of the node that are evicted before, of those that wait for the same budget.
    pub ahead: usize,
    /// When the pod counts as blocked unless something moves.
    pub until: Timestamp,
}

/// The finalizers of a pod that are listed.
const MAX_FINALIZERS: usize = 10;

/// The budgets of a pod that are listed.
const MAX_BUDGETS: usize = 10;

/// What is known about a pod in addition to the object itself.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct PodContext<'a> {
    /// The group of the maintenance.
    pub group: Group,
    /// Its evictions.
    pub attempt: Option<&'a Attempt>,
    /// The current time of the clock that they are measured by.
    pub steady_now: SteadyTime,
    /// The budget because of which no eviction is requested.
    pub blocked_by_budget: Option<&'a BudgetBlock>,
    /// How long nothing may move its budget before it counts as blocked.
    pub blocked_after: Duration,
    /// The status so far.
    pub before: Option<&'a NodeMaintenanceStatus>,
    /// Whether its eviction has been refused for so long that it is to be deleted.
    pub overdue: bool,
    /// The budgets in its namespace.
    pub budgets: &'a Budgets,
    /// The evacuation of its virtual machine, if KubeVirt is to migrate that.
    pub evacuation: Option<&'a Evacuation>,
    /// Since when that evacuation could have begun and has not.
    pub waiting_since: Option<Timestamp>,
    /// Whether it belongs to a virtual machine that leaves or is arriving.
    pub machine_moves: bool,
    /// Whether its Deployment creates its replacement first.
    pub surges: bool,
    /// What prevents that, if it is asked for.
    pub surge_block: Option<&'a SurgeBlock>,
    /// Whether its node is Ready.
    pub node: Readiness,
    /// Whether no eviction is requested now, because the maintenance is paused, or waits for hooks or load balancers.
    pub withheld: bool,
}

/// The state of a pod.
pub fn standing(planned: &PlannedPod, context: &PodContext<'_>, now: Timestamp) -> PodStanding {
    if planned.verdict == Verdict::Block(BlockReason::KeepsReturning) {
        let message = returning::why(&planned.pod, context.group.drain_taint());
        return Blocker::new(BlockReason::KeepsReturning, message).into();
    }
    if let Some(state) = visible_state(&planned.pod, planned.verdict, context.node, now) {
        return state;
    }
    if planned.verdict == Verdict::Wait {
        return PodState::Waiting.into();
    }
    if context.surges {
        return PodState::Surging.into();
    }
    let unasked = Attempt::default();
    let attempt = context.attempt.unwrap_or(&unasked);
    let since = attempt.refused_since.map(|at| at.on_wall(context.steady_now, now));
    let blocked = |blocker: Blocker| Blocker { since, refusals: attempt.refusals, ..blocker }.into();
    if let Some(evacuation) = context.evacuation.filter(|_| is_left_to_kubevirt(attempt)) {
        let Some(cause) = evacuation.block(context.waiting_since, now) else {
            return PodState::Migrating.into();
        };
        return Blocker { refusals: attempt.refusals, ..cause }.into();
    }
    // The disk leaves with its virtual machine.
    if let (Some((_, EvictionOutcome::HotplugPod(_))), true) = (&attempt.last, context.machine_moves) {
        return PodState::Migrating.into();
    }
    if context.withheld || planned.verdict == Verdict::AwaitCompletion {
        return unrequested_state(attempt).into();
    }
    if let (Some((_, refusal)), true) = (attempt.deletion.as_deref(), context.overdue) {
        let mut cause = refused(planned, refusal, "deletion", context);
        // The pod leaves once its budget allows that, too.
        if let Some((_, EvictionOutcome::RefusedByBudget(refusal))) = &attempt.last {
            cause.facts.budget = guard(planned, refusal, context);
        }
        return blocked(cause);
    }
    let budget_decides = matches!(attempt.last, None | Some((_, EvictionOutcome::RefusedByBudget(_))));
    if let (Some(block), true) = (context.blocked_by_budget, budget_decides) {
        let left = block.motion.map_or(Duration::ZERO, |motion| {
            let waited = has_waited(&planned.pod, context.before);
            motion.left(context.blocked_after, waited, context.steady_now, now)
        });
        let otherwise = || blocked(blocked_by_budget(planned, &block.refusal, context));
        return turn(planned, &block.refusal, block.ahead, left, context, now)
            .map_or_else(otherwise, Into::into);
    }
    match &attempt.last {
        // A leader that has no answer yet goes by what the one before it was told.
        None if let Some(reported) = reported_refusal(&planned.pod, context.before) => {
            Blocker::new(reported.reason, &*reported.message).with(reported.facts.clone()).into()
        }
        None if attempt.in_flight => PodState::Evicting.into(),
        None => PodState::Waiting.into(),
        Some((_, EvictionOutcome::Accepted | EvictionOutcome::Gone)) => PodState::Evicting.into(),
        Some(_) if attempt.migrates => PodState::Migrating.into(),
        // Its budget is not known, or allows the eviction by now.
        Some((_, EvictionOutcome::RefusedByBudget(refusal))) => {
            let refused_for = attempt.refused_since.map_or(Duration::ZERO, |at| context.steady_now.since(at));
            let left = context.blocked_after.saturating_sub(refused_for);
            let otherwise = || blocked(blocked_by_budget(planned, refusal, context));
            turn(planned, refusal, 0, left, context, now).map_or_else(otherwise, Into::into)
        }
        // A blocked pod stays blocked until a retry succeeds.
        Some((_, refusal)) => blocked(refused(planned, refusal, "eviction", context)),
    }
}

/// Whether the status so far shows that a pod waits for its budget.
fn has_waited(pod: &DrainPod, before: Option<&NodeMaintenanceStatus>) -> bool {
    let mut waiting = before.into_iter().flat_map(|status| status.waiting_pods.iter().flatten());
    waiting.any(|other| {
        other.reason == WaitReason::BudgetTurn && pod::is_named(pod, &other.namespace, &other.name)
    })
}

/// The refusal because of which the status so far shows a pod as blocked.
fn reported_refusal<'a>(pod: &DrainPod, before: Option<&'a NodeMaintenanceStatus>) -> Option<&'a BlockedPod> {
    let mut blocked = before.into_iter().flat_map(|status| &status.blocked_pods);
    blocked.find(|other| is_refusal(other.reason) && pod::is_named(pod, &other.namespace, &other.name))
}

/// Whether a block is known by the answer to an eviction alone. Whether a budget blocks, its own status shows.
fn is_refusal(reason: BlockReason) -> bool {
    match reason {
        BlockReason::AdmissionWebhook
        | BlockReason::AdmissionPolicy
        | BlockReason::Forbidden
        | BlockReason::MultipleDisruptionBudgets
        | BlockReason::ServerError
        | BlockReason::Unknown => true,
        BlockReason::DisruptionBudget
        | BlockReason::NotMigratable
        | BlockReason::MigrationFailed
        | BlockReason::MigrationNotStarted
        | BlockReason::Unmanaged
        | BlockReason::LocalStorage
        | BlockReason::KeepsReturning
        | BlockReason::Finalizers
        | BlockReason::NodeNotReady
        | BlockReason::NamespaceTerminating
        | BlockReason::NotEnding => false,
    }
}

/// The state of a pod whose eviction is not requested now. An eviction that was accepted before continues; a refusal no longer counts.
fn unrequested_state(attempt: &Attempt) -> PodState {
    match &attempt.last {
        None if attempt.in_flight => PodState::Evicting,
        Some((_, EvictionOutcome::Accepted | EvictionOutcome::Gone)) => PodState::Evicting,
        Some(_) if attempt.migrates => PodState::Migrating,
        _ => PodState::Waiting,
    }
}

/// When the state of a pod changes without an event in the cluster, while its node is as ready as now.
pub fn next_change(planned: &PlannedPod, node: Readiness, now: Timestamp) -> Option<Timestamp> {
    let termination = termination_on(node, &planned.pod)?;
    let Termination { deadline, finalizers, .. } = termination;
    let is_kept = !finalizers.is_empty() && is_confirmed(&termination);
    let kept = is_kept.then(|| ended_at(&termination, now).saturating_add(timeout_of(finalizers)));
    let stuck = deadline.saturating_add(KUBELET_TIMEOUT);
    let changes = kept.into_iter().chain([stuck]).filter_map(Result::ok);
    changes.chain([deadline]).filter(|at| *at > now).min()
}

/// How long a pod on its node may still take to terminate; none if it does not, or should have by now.
pub fn time_left(pod: &DrainPod, node: Readiness, now: Timestamp) -> Option<Duration> {
    let deadline = termination_on(node, pod)?.deadline;
    Duration::try_from(deadline.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// When the grace period of a pod on its node ends, if it is terminating.
pub fn deadline(pod: &DrainPod, node: Readiness) -> Option<Timestamp> {
    Some(termination_on(node, pod)?.deadline)
}

/// The termination of a pod on its node. A kubelet that could not know of the deletion, because its node was not Ready, gives the
/// pod its grace period once it is back.
fn termination_on(node: Readiness, pod: &DrainPod) -> Option<Termination<'_>> {
    let termination = pod::termination(pod)?;
    let deadline = deadline_on(node, termination.deadline, termination.grace_seconds);
    Some(Termination { deadline, ..termination })
}

/// When the grace period ends of a pod on its node whose object has this deadline.
pub fn deadline_on(node: Readiness, deadline: Timestamp, grace_seconds: Option<i64>) -> Timestamp {
    let (Readiness::Ready(Some(since)), Some(grace @ 1..)) = (node, grace_seconds) else { return deadline };
    let again = since.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(since);
    deadline.max(again)
}

/// When the pod ended, or will have at the latest. Once the kubelet has confirmed the end, the deadline is the time of the
/// deletion. The time in the pod is by the clock of its node, and is ignored if that is ahead.
fn ended_at(termination: &Termination<'_>, now: Timestamp) -> Timestamp {
    let Termination { deadline, finished_at, .. } = *termination;
    let is_plausible = |finished: &Timestamp| finished.duration_since(now) < FINALIZER_TIMEOUT;
    let finished_at = finished_at.filter(|finished| is_confirmed(termination) && is_plausible(finished));
    finished_at.map_or(deadline, |finished| finished.max(deadline))
}

/// How long the owners of these finalizers may take to remove them.
fn timeout_of(finalizers: &[String]) -> SignedDuration {
    if finalizers.iter().all(|finalizer| finalizer == JOB_FINALIZER) {
        JOB_TIMEOUT
    } else {
        FINALIZER_TIMEOUT
    }
}

/// Whether the kubelet has confirmed that the pod ended, by deleting it without a grace period.
fn is_confirmed(termination: &Termination<'_>) -> bool {
    termination.grace_seconds == Some(0)
}

/// The state of a pod as far as the pod and its node show it; none if it depends on its evictions.
pub fn visible_state(
    pod: &DrainPod,
    verdict: Verdict,
    node: Readiness,
    now: Timestamp,
) -> Option<PodStanding> {
    if let Verdict::Stay(_) = verdict {
        return Some(PodState::Staying.into());
    }
    // Whoever deletes a pod that the drain leaves alone has decided about it.
    if let Some(termination) = termination_on(node, pod) {
        let unready_node = (!matches!(node, Readiness::Ready(_))).then_some(&*pod.node);
        return Some(terminating(&termination, unready_node, now));
    }
    match verdict {
        Verdict::Block(reason) => Some(blocked_by_spec(pod, reason).into()),
        Verdict::Stay(_) | Verdict::Evict | Verdict::Wait | Verdict::AwaitCompletion => None,
    }
}

fn terminating(termination: &Termination<'_>, unready_node: Option<&str>, now: Timestamp) -> PodStanding {
    let Termination { deadline, grace_seconds, finalizers, .. } = *termination;
    let overdue = now.duration_since(deadline);
    let ended_at = ended_at(termination, now);
    let blocker = if !finalizers.is_empty() && is_confirmed(termination) {
        if now.duration_since(ended_at) < timeout_of(finalizers) {
            return PodState::Terminating.into();
        }
        kept_by(finalizers)
    } else if let Some(node) = unready_node {
        unconfirmed("terminating, but its", node)
    } else if overdue > KUBELET_TIMEOUT {
        let timeout = KUBELET_TIMEOUT.as_secs();
        let grace = grace_seconds.map(|seconds| format!(" of {seconds} s")).unwrap_or_default();
        let message = format!(
            "terminating, but still exists more than {timeout} s after its grace period{grace}: the kubelet has not \
             terminated it"
        );
        Blocker::new(BlockReason::NotEnding, message)
    } else {
        return PodState::Terminating.into();
    };
    Blocker { since: Some(ended_at), ..blocker }.into()
}

/// The blocker of a pod that no kubelet terminates, beginning with these words.
pub fn unconfirmed(what: &str, node: &str) -> Blocker {
    let message = format!("{what} node {node} is not Ready, so no kubelet confirms that it has terminated");
    let facts = BlockFacts { node: Some(node.to_owned()), ..BlockFacts::default() };
    Blocker::new(BlockReason::NodeNotReady, message).with(facts)
}

/// The blocker of a pod that has ended and has finalizers.
fn kept_by(finalizers: &[String]) -> Blocker {
    let listed = &finalizers[..finalizers.len().min(MAX_FINALIZERS)];
    let mut names = listed.join(", ");
    if listed.len() < finalizers.len() {
        let _ = write!(names, " and {} more", finalizers.len() - listed.len());
    }
    let message =
        format!("terminated, but finalizers keep the object until their owners remove them: {names}");
    let facts = BlockFacts { finalizers: listed.to_vec(), ..BlockFacts::default() };
    Blocker::new(BlockReason::Finalizers, message).with(facts)
}

/// The blocker of a pod that the drain spec does not move.
fn blocked_by_spec(pod: &DrainPod, reason: BlockReason) -> Blocker {
    let message = match reason {
        BlockReason::LocalStorage if pod::controller(pod).is_none() => {
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false, and no controller would replace it".to_owned()
        }
        BlockReason::LocalStorage => {
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false".to_owned()
        }
        _ => "has no controller that would replace it and spec.drain.force is false".to_owned(),
    };
    Blocker::new(reason, message)
}

/// The turn of a pod that waits for its budget, for as long as is `left`. None if that is over.
fn turn(
    planned: &PlannedPod,
    refusal: &BudgetRefusal,
    ahead: usize,
    left: Duration,
    context: &PodContext<'_>,
    now: Timestamp,
) -> Option<BudgetTurn> {
    if left.is_zero() {
        return None;
    }
    let until = now.checked_add(left).ok()?;
    Some(BudgetTurn { budget: guard(planned, refusal, context), ahead, until })
}

/// The budget that refuses the eviction of a pod.
fn guard(planned: &PlannedPod, refusal: &BudgetRefusal, context: &PodContext<'_>) -> Option<BudgetFacts> {
    // An answer without a name is about the only budget that there is.
    let only = || match <[BudgetRefusal; 1]>::try_from(context.budgets.refusals(&planned.pod)) {
        Ok([only]) => only.budget,
        Err(_) => None,
    };
    let complete = refusal.budget.clone().filter(|budget| budget.desired_healthy.is_some());
    let Some(mut complete) = complete else { return only().or_else(|| refusal.budget.clone()) };
    // The sentence of an answer has no number of pods.
    if complete.expected_pods.is_none() {
        complete.expected_pods = only().and_then(|only| only.expected_pods);
    }
    Some(complete)
}

fn blocked_by_budget(planned: &PlannedPod, refusal: &BudgetRefusal, context: &PodContext<'_>) -> Blocker {
    let facts = BlockFacts { budget: guard(planned, refusal, context), ..BlockFacts::default() };
    let message = context.budgets.why_not_counted(&planned.pod).unwrap_or_else(|| refusal.message.clone());
    let Some(block) = context.surge_block else {
        return Blocker::new(BlockReason::DisruptionBudget, message).with(facts);
    };
    let surge = Some(SurgeFacts { reason: block.reason, deployment: block.deployment.clone() });
    let forbidden = block.denied.as_ref().and_then(|denied| denied.access.clone());
    let message = format!("{message}; it is not replaced first: {}", block.message);
    Blocker::new(BlockReason::DisruptionBudget, message).with(BlockFacts { forbidden, surge, ..facts })
}

/// The blocker of a pod whose eviction or deletion was refused.
fn refused(
    planned: &PlannedPod,
    refusal: &EvictionOutcome,
    request: &str,
    context: &PodContext<'_>,
) -> Blocker {
    let budgets = context.budgets;
    let by_webhook = |reason, message: &str, webhook: &str| {
        let facts = BlockFacts { webhook: Some(webhook.to_owned()), ..BlockFacts::default() };
        Blocker::new(reason, message).with(facts)
    };
    match refusal {
        EvictionOutcome::RefusedByBudget(refusal) => blocked_by_budget(planned, refusal, context),
        EvictionOutcome::MultipleBudgets(message) => several_budgets(budgets.refusals(&planned.pod), message),
        EvictionOutcome::NotMigratable(message) => {
            by_webhook(BlockReason::NotMigratable, message, KUBEVIRT_WEBHOOK)
        }
        EvictionOutcome::HotplugPod(message) => {
            by_webhook(BlockReason::NotMigratable, message, HOTPLUG_WEBHOOK)
        }
        EvictionOutcome::RefusedByWebhook { message, webhook } => {
            by_webhook(BlockReason::AdmissionWebhook, message, webhook)
        }
        EvictionOutcome::RefusedByPolicy { message, policy } => {
            let facts = BlockFacts { policy: policy.clone(), ..BlockFacts::default() };
            Blocker::new(BlockReason::AdmissionPolicy, message).with(facts)
        }
        EvictionOutcome::Forbidden(denied) => Blocker::new(BlockReason::Forbidden, denied.to_string())
            .with(BlockFacts { forbidden: denied.access.clone(), ..BlockFacts::default() }),
        EvictionOutcome::NamespaceTerminating => Blocker::new(
            BlockReason::NamespaceTerminating,
            "its namespace is being deleted, together with the pod",
        ),
        EvictionOutcome::Throttled { message, retry_after } => {
            let wait = retry_after.map(|wait| format!(" for {} s", wait.as_secs())).unwrap_or_default();
            Blocker::new(BlockReason::ServerError, format!("the API server throttles{wait}: {message}"))
        }
        EvictionOutcome::Unknown(message) => {
            let webhook = admission_webhook::failed_call(message).map(|(name, _)| name.to_owned());
            Blocker::new(BlockReason::ServerError, format!("the {request} failed and is retried: {message}"))
                .with(BlockFacts { webhook, ..BlockFacts::default() })
        }
        EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {
            Blocker::new(BlockReason::Unknown, "")
        }
    }
}

/// The blocker of a pod that several budgets guard; `answer` is its message if they are not known.
fn several_budgets(budgets: Vec<BudgetRefusal>, answer: &str) -> Blocker {
    if budgets.len() < 2 {
        return Blocker::new(BlockReason::MultipleDisruptionBudgets, answer);
    }
    let messages: Vec<&str> = budgets.iter().map(|budget| budget.message.as_str()).collect();
    let message = format!(
        "{} disruption budgets select this pod, and the API server evicts no pod with more than one: change or delete \
         all but one. {}",
        budgets.len(),
        messages.join("; ")
    );
    let budgets = budgets.into_iter().filter_map(|refusal| refusal.budget).take(MAX_BUDGETS).collect();
    Blocker::new(BlockReason::MultipleDisruptionBudgets, message)
        .with(BlockFacts { budgets, ..BlockFacts::default() })
}

#[cfg(test)]
#[path = "pod_state_tests.rs"]
mod tests;
