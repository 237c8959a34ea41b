//! What draining some nodes would do to their pods.
//!
//! The verdicts are those of [`DrainPlan`], the numbers those of [`Budgets`], and blockers are those of [`pod_state`], as
//! the status of a maintenance would have them. Dry-run evictions show what webhooks and budgets answer for each pod
//! alone; how budgets limit all pods together is computed here, over all planned nodes.

pub mod budget_forecast;
pub mod capacity;
pub mod failing_jobs;
pub mod gate_preview;
mod held_back;
mod migrations;
pub mod outage;
pub mod preemption;
pub mod schedulable;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::group::Group;
use crate::api::maintenance::{DrainSpec, ReturningPods, SurgePolicy};
use crate::api::pod_state::PodState;
use crate::api::status::BlockReason;
use crate::cluster::admission_webhook::is_dry_run_unsupported;
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::node::Readiness;
use crate::cluster::pod::{self, DrainPod};
use crate::drain::blocker::Blocker;
use crate::drain::budget_allowance::{BudgetBlock, BudgetPrediction, Budgets, Stuck};
use crate::drain::budget_motion::{BLOCKED_AFTER, BudgetMotion};
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::plan::{DaemonSets, DrainPlan, InvalidSelector, PlannedPod, StayReason, Verdict, Warning};
use crate::drain::pod_state::{self, PodContext, PodStanding};
use crate::drain::steady_time::SteadyTime;
use crate::drain::surge::{self, Surge, SurgeBlock, WorkloadKey, WorkloadState};
use crate::forecast::budget_forecast::BudgetForecast;

/// A node that is to be drained.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Its name.
    pub node: String,
    /// How to drain it.
    pub drain: DrainSpec,
    /// The pods on it.
    pub pods: Vec<Arc<DrainPod>>,
    /// Whether it is Ready.
    pub readiness: Readiness,
    /// The uids of the pods like which others may be scheduled to it while it is in maintenance.
    pub cordon_tolerated: HashSet<String>,
    /// The pods of which a container does not start or keep running, by uid. The drain waits a while in case it does.
    pub failing: HashMap<String, Stuck>,
}

/// The verdicts on all pods, before any eviction is tried.
#[derive(Debug, Clone)]
pub struct DrainPreview {
    nodes: Vec<(PlannedNode, DrainPlan)>,
    workloads: HashMap<WorkloadKey, WorkloadState>,
}

/// What would happen to the pods.
#[derive(Debug, Clone, Default)]
pub struct Forecast {
    /// One entry for each pod, by node and name.
    pub pods: Vec<PodForecast>,
    /// The budgets that guard these pods.
    pub budgets: Vec<BudgetForecast>,
    /// Why dry-run evictions gave no answer, and for how many pods.
    pub unanswered: BTreeMap<String, usize>,
    /// The nodes of which no kubelet confirms that pods which should leave have terminated, although their drains wait for that.
    pub silent: BTreeSet<String>,
}

/// What would happen to a pod, with its details.
#[derive(Debug, Clone)]
pub struct PodForecast {
    /// Its node.
    pub node: String,
    /// The pod.
    pub pod: Arc<DrainPod>,
    /// What would happen to it.
    pub fate: PodOutcome,
    /// Warnings about that.
    pub warnings: Vec<Warning>,
    /// Whether it is to be evicted, now or later.
    pub leaves: bool,
    /// Whether the API server gave no answer to its eviction that applies to a real one.
    pub is_unanswered: bool,
    /// After how many seconds of refusals it is deleted; none if it never is.
    pub deleted_after: Option<i64>,
    /// The budget that guards it.
    pub guarded_by: Option<BudgetKey>,
    /// What happens to a pod that replaces it on the node; none if the scheduler puts none there.
    pub returning: Option<ReturningPods>,
    /// Whether it runs a virtual machine that others than KubeVirt have to move.
    pub is_left_to_others: bool,
}

/// What replaces a pod before it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacedBy {
    /// A restart of its Deployment.
    Restart,
    /// A rollout that is under way.
    Rollout,
}

/// What would happen to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodOutcome {
    /// The pod stays, and the drain does not wait for it.
    Stays(StayReason),
    /// The pod is already terminating.
    Terminating,
    /// The pod is deleted with its namespace, whose evictions are refused and whose pods nothing replaces.
    DeletedWithNamespace,
    /// The pod is evicted at once.
    Evicted,
    /// KubeVirt migrates its virtual machine.
    Migrated,
    /// The pod may terminate on its own, for at most so many seconds if there is a limit, and is then evicted.
    Completes(Option<i64>),
    /// The Deployment of the pod replaces it first.
    Surges(ReplacedBy),
    /// The pod is evicted after other pods of the budget were evicted and replaced.
    WaitsForBudget(BudgetKey),
    /// The pod is blocked, and deleted after `deleteAfterSeconds`.
    Deleted(Blocker),
    /// The pod is blocked.
    Blocked(Blocker),
}

impl PlannedNode {
    /// Whether pods whose eviction is refused are deleted in the end.
    fn deletes(&self) -> bool {
        self.drain.delete_after_seconds > 0
    }

    /// Whether the drain ends without a kubelet that terminates the pod, or there is one. That of a node which reports not to be Ready
    /// terminates its pods.
    fn confirms(&self, pod: &DrainPod) -> bool {
        self.readiness != Readiness::Silent
            || self.drain.grace_period_seconds == 0
            || self.drain.skip_wait_for_delete_timeout_seconds > 0
            || pod::is_finished(pod)
    }

    /// Seconds after which completing pods are evicted; none if they are never evicted.
    fn completion_limit(&self) -> Option<i64> {
        let completion = self.drain.wait_for_completion.as_ref();
        completion.map(|completion| completion.timeout_seconds).filter(|seconds| *seconds > 0)
    }
}

impl PodForecast {
    /// Whether its owner replaces it on another node.
    pub fn is_replaced(&self) -> bool {
        // A DaemonSet of another API group does not move its pods either.
        let is_daemon = pod::controller(&self.pod).is_some_and(|owner| owner.kind == "DaemonSet");
        self.leaves && is_replaced(&self.pod) && !is_daemon
    }
}

impl DrainPreview {
    /// Determines the verdicts.
    ///
    /// # Errors
    /// If a selector in a drain spec is not valid.
    pub fn new(
        nodes: Vec<PlannedNode>,
        daemon_sets: &DaemonSets,
        now: Timestamp,
    ) -> Result<Self, InvalidSelector> {
        let judge = |node: PlannedNode| {
            let mut plan = DrainPlan::new(node.pods.iter().cloned(), &node.drain, daemon_sets, now)?;
            plan.await_completion(&node.drain, None, now)?;
            Ok((node, plan))
        };
        let nodes = nodes.into_iter().map(judge).collect::<Result<_, _>>()?;
        Ok(Self { nodes, workloads: HashMap::new() })
    }

    /// The `ReplicaSet`s of the pods that may be replaced first. [`Self::set_workloads`] takes what is known of them.
    pub fn surge_candidates(&self, budgets: &Budgets) -> BTreeSet<WorkloadKey> {
        let candidates = self.planned().filter(|(node, planned)| is_surge_candidate(node, planned, budgets));
        candidates.filter_map(|(_, planned)| surge::replica_set_of(&planned.pod)).collect()
    }

    /// Sets what controls the pods that may be replaced first.
    pub fn set_workloads(&mut self, workloads: HashMap<WorkloadKey, WorkloadState>) {
        self.workloads = workloads;
    }

    /// Who replaces a pod first, or what prevents that; none if that is not asked for or not known.
    fn surge(
        &self,
        node: &PlannedNode,
        planned: &PlannedPod,
        budgets: &Budgets,
    ) -> Option<Result<ReplacedBy, SurgeBlock>> {
        if !is_surge_candidate(node, planned, budgets) {
            return None;
        }
        let Some(key) = surge::replica_set_of(&planned.pod) else {
            return Some(Err(SurgeBlock::no_deployment(&planned.pod)));
        };
        let workload = match self.workloads.get(&key)? {
            WorkloadState::Forbidden(denied) => return Some(Err(SurgeBlock::forbidden(denied))),
            WorkloadState::Known(workload) => workload,
        };
        let replicas = workload.deployment.as_deref().map_or(1, surge::replicas);
        match surge::judge(&planned.pod, workload) {
            Surge::Impossible(block) => Some(Err(block)),
            Surge::Required => budgets
                .never_allow_eviction(&planned.pod, replicas, &workload.pods)
                .then_some(Ok(ReplacedBy::Restart)),
            Surge::Rolling | Surge::Waiting => budgets
                .never_allow_eviction_after_rollout(&planned.pod, Some(replicas))
                .then_some(Ok(ReplacedBy::Rollout)),
        }
    }

    /// The pods for which an eviction would be requested.
    pub fn to_evict(&self) -> impl Iterator<Item = &Arc<DrainPod>> {
        self.planned()
            .map(|(_, planned)| planned)
            .filter(|planned| is_asked(planned))
            .map(|planned| &planned.pod)
    }

    /// Tells the budgets of the pods that are not Ready, and of those that are terminating.
    fn note_unready(&self, budgets: &mut Budgets, now: Timestamp) {
        for (node, planned) in self.planned() {
            match (node.readiness, node.failing.get(pod::uid(&planned.pod))) {
                (Readiness::Silent, _) => budgets.note_stuck(&planned.pod, Stuck::Unready),
                (_, Some(why)) => budgets.note_stuck(&planned.pod, *why),
                (Readiness::Ready(Some(since)), None) => budgets.note_node_ready(&planned.pod, since),
                (Readiness::Ready(None) | Readiness::NotReady, None) => {}
            }
            if let Some(left) = pod_state::time_left(&planned.pod, node.readiness, now) {
                budgets.note_terminating(&planned.pod, SteadyTime::MIN.after(left));
            }
        }
    }

    /// What would happen to each pod. `answers` are those to dry-run evictions, by uid.
    pub fn forecast(
        &self,
        mut budgets: Budgets,
        answers: &HashMap<String, EvictionOutcome>,
        now: Timestamp,
    ) -> Forecast {
        let mut forecast = Forecast::default();
        let mut opinions: HashMap<&str, BudgetBlock> = HashMap::new();
        let mut guards: BTreeMap<BudgetKey, BudgetForecast> = BTreeMap::new();
        let mut guarded: HashMap<&str, BudgetKey> = HashMap::new();
        self.note_unready(&mut budgets, now);
        for pod in self.to_evict() {
            let (budget, block) = match budgets.use_disruption(pod, 0) {
                BudgetPrediction::Free => continue,
                BudgetPrediction::Allowed(disruption) => (disruption.guard.key.clone(), None),
                BudgetPrediction::Reserved(block) | BudgetPrediction::Exhausted(block) => {
                    (block.budget.clone(), Some(block))
                }
            };
            let guard =
                guards.entry(budget.clone()).or_insert_with(|| BudgetForecast::of(budget.clone(), &budgets));
            guarded.insert(pod::uid(pod), budget.clone());
            guard.pods += 1;
            guard.now += usize::from(block.is_none());
            opinions.extend(block.map(|mut block| {
                let lacks = budgets.lacks(&budget, pod);
                guard.lacks = guard.lacks.or(lacks);
                let never = block.motion.is_some_and(|motion| motion.never);
                let lacks = lacks.map(|why| lacks_words(why, never));
                block.refusal.message.push_str(lacks.unwrap_or_default());
                (pod::uid(pod), block)
            }));
        }
        forecast.budgets = guards.values_mut().map(BudgetForecast::counted).collect();
        for (node, planned) in self.planned() {
            let uid = pod::uid(&planned.pod);
            let no_answer = answers.get(uid).and_then(why_no_answer);
            let is_unanswered = no_answer.is_some();
            let answer = answers.get(uid).filter(|_| !is_unanswered);
            if let Some(why) = no_answer {
                *forecast.unanswered.entry(why).or_default() += 1;
            }
            let opinion = opinions.get(uid);
            // The drain would wait for its turn too.
            let moves =
                |motion: BudgetMotion| !motion.left(BLOCKED_AFTER, false, SteadyTime::MIN, now).is_zero();
            let waits =
                opinion.is_some_and(|block| guards[&block.budget].now > 0 || block.motion.is_some_and(moves));
            let held = opinion.filter(|_| !waits);
            let answer = answer.cloned().or_else(|| several_budgets(planned, &budgets));
            let surge = self.surge(node, planned, &budgets);
            let surge = surge.filter(|surge| held.is_some() || *surge == Ok(ReplacedBy::Rollout));
            let replaced_by = surge.as_ref().and_then(|surge| surge.as_ref().ok()).copied();
            let migrates = matches!(answer, Some(EvictionOutcome::Migrating(_)));
            let last = answer.map(|answer| (SteadyTime::MIN, answer));
            let attempt = Attempt { migrates, last, ..Attempt::default() };
            let known = PodContext {
                group: Group::Medik8s,
                attempt: Some(&attempt),
                steady_now: SteadyTime::MIN,
                blocked_by_budget: held,
                blocked_after: if waits { BLOCKED_AFTER } else { Duration::ZERO },
                before: None,
                overdue: false,
                budgets: &budgets,
                evacuation: None,
                waiting_since: None,
                machine_moves: false,
                surges: replaced_by.is_some(),
                surge_block: surge.as_ref().and_then(|surge| surge.as_ref().err()),
                node: node.readiness,
                withheld: false,
            };
            let standing = pod_state::standing(planned, &known, now);
            let waits_for = opinion.filter(|_| waits).map(|block| &block.budget);
            let fate = outcome(standing, node, planned, replaced_by, waits_for);
            let is_unconfirmed = !node.confirms(&planned.pod);
            let fate = if is_unconfirmed { unconfirmed(fate, &node.node) } else { fate };
            let waits =
                matches!(fate, PodOutcome::WaitsForBudget(_) | PodOutcome::Deleted(_)) && node.deletes();
            let leaves = match fate {
                PodOutcome::DeletedWithNamespace => false,
                PodOutcome::Completes(Some(_)) => true,
                _ => is_asked(planned),
            };
            let returns = leaves && is_replaced(&planned.pod) && node.cordon_tolerated.contains(uid);
            if is_unconfirmed && leaves {
                forecast.silent.insert(node.node.clone());
            }
            forecast.pods.push(PodForecast {
                node: node.node.clone(),
                pod: planned.pod.clone(),
                fate,
                deleted_after: waits.then_some(node.drain.delete_after_seconds),
                warnings: planned.warnings.clone(),
                leaves,
                is_unanswered,
                guarded_by: guarded.remove(uid),
                returning: returns.then_some(node.drain.returning_pods),
                is_left_to_others: false,
            });
        }
        forecast
    }

    fn planned(&self) -> impl Iterator<Item = (&PlannedNode, &PlannedPod)> {
        self.nodes.iter().flat_map(|(node, plan)| plan.pods.iter().map(move |planned| (node, planned)))
    }
}

/// What is added to the refusal of a budget that lacks pods which are stuck. `never`: whether it allows none with all of its pods
/// either.
fn lacks_words(why: Stuck, never: bool) -> &'static str {
    match why {
        Stuck::Unready => "; of its pods that are not Ready, too many do not become Ready by themselves",
        Stuck::Unschedulable => "; the scheduler finds no node for pods that it counts on",
        Stuck::Crashing if never => "; pods that it counts on crash again and again",
        Stuck::Crashing => {
            "; pods that it counts on crash again and again, and it may allow an eviction while they run"
        }
    }
}

/// What becomes of a pod that stands like this. `waits_for`: the budget that allows its eviction once others have been replaced.
fn outcome(
    standing: PodStanding,
    node: &PlannedNode,
    planned: &PlannedPod,
    replaced_by: Option<ReplacedBy>,
    waits_for: Option<&BudgetKey>,
) -> PodOutcome {
    match (standing.state, standing.blocker) {
        (_, Some(blocker)) if blocker.reason == BlockReason::NamespaceTerminating => {
            PodOutcome::DeletedWithNamespace
        }
        (_, Some(blocker)) if node.deletes() && is_refused(planned, blocker.reason) => {
            PodOutcome::Deleted(blocker)
        }
        (_, Some(blocker)) => PodOutcome::Blocked(blocker),
        (PodState::Terminating, _) => PodOutcome::Terminating,
        (PodState::Migrating, _) => PodOutcome::Migrated,
        (PodState::Surging, _) => PodOutcome::Surges(replaced_by.unwrap_or(ReplacedBy::Restart)),
        (PodState::Waiting, _) if planned.verdict == Verdict::AwaitCompletion => {
            PodOutcome::Completes(node.completion_limit())
        }
        (PodState::Waiting | PodState::Evicting, _) => match waits_for {
            Some(budget) => PodOutcome::WaitsForBudget(budget.clone()),
            None => PodOutcome::Evicted,
        },
        (PodState::Staying | PodState::Gone | PodState::Blocked, _) => match planned.verdict {
            Verdict::Stay(reason) => PodOutcome::Stays(reason),
            _ => PodOutcome::Evicted,
        },
    }
}

/// What becomes of a pod on a node that is not Ready, if it would be `fate` on another one.
fn unconfirmed(fate: PodOutcome, node: &str) -> PodOutcome {
    match fate {
        PodOutcome::Evicted | PodOutcome::WaitsForBudget(_) => {
            PodOutcome::Blocked(pod_state::unconfirmed("evicted, but its", node))
        }
        fate => fate,
    }
}

/// Whether a pod may be replaced first if its Deployment can do that.
fn is_surge_candidate(node: &PlannedNode, planned: &PlannedPod, budgets: &Budgets) -> bool {
    node.drain.surge == SurgePolicy::WhenBlocked
        && is_asked(planned)
        && budgets.never_allow_eviction_after_rollout(&planned.pod, None)
}

/// Whether its owner creates another pod in its place.
fn is_replaced(pod: &DrainPod) -> bool {
    pod::controller(pod).is_some() && pod::daemon_set(pod).is_none() && !pod::is_finished(pod)
}

fn is_asked(planned: &PlannedPod) -> bool {
    planned.verdict == Verdict::Evict && pod::deadline(&planned.pod).is_none()
}

/// Whether the pod is blocked by the answer to its eviction, and not by the drain spec.
fn is_refused(planned: &PlannedPod, reason: BlockReason) -> bool {
    use BlockReason::{
        AdmissionPolicy, AdmissionWebhook, DisruptionBudget, MigrationFailed, MultipleDisruptionBudgets,
        NamespaceTerminating, NotMigratable, ServerError,
    };
    let by_answer = matches!(
        reason,
        AdmissionPolicy
            | AdmissionWebhook
            | DisruptionBudget
            | MigrationFailed
            | MultipleDisruptionBudgets
            | NamespaceTerminating
            | NotMigratable
            | ServerError
    );
    is_asked(planned) && by_answer
}

/// Why the answer to a dry-run eviction does not apply to a real one, if it does not: the user lacks access, or dry runs
/// are not supported.
fn why_no_answer(answer: &EvictionOutcome) -> Option<String> {
    match answer {
        // Without the pod's name, so that missing access is reported once.
        EvictionOutcome::Forbidden(denied) => {
            let why = denied.message.as_str();
            Some(why.split_once("is forbidden: ").map_or(why, |(_, rest)| rest).to_owned())
        }
        EvictionOutcome::Throttled { message, .. } => Some(message.clone()),
        EvictionOutcome::Unknown(why) if is_dry_run_unsupported(why) => Some(why.clone()),
        _ => None,
    }
}

/// The outcome if more than one budget selects the pod, which is known without a request.
fn several_budgets(planned: &PlannedPod, budgets: &Budgets) -> Option<EvictionOutcome> {
    let pod = &planned.pod;
    let counts = is_asked(planned) && !pod::is_pending(pod) && !pod::is_finished(pod);
    (counts && budgets.guarding(pod).len() > 1).then(|| EvictionOutcome::MultipleBudgets(String::new()))
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
