//! What a drain would do to the pods of some nodes, before it begins.
//!
//! The verdicts are those of [`DrainPlan`], the numbers those of [`Budgets`], and what blocks a pod is told by
//! [`pod_state`] as the status of a maintenance would tell it. Evictions that the API server was asked for without
//! carrying them out say what webhooks and budgets make of each pod alone; what budgets make of all of them together is
//! counted here, over all nodes of the plan.

pub mod capacity;
pub mod gate_preview;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::api::group::Group;
use crate::api::maintenance::DrainSpec;
use crate::api::status::{BlockReason, PodReference};
use crate::cluster::disruption_budget::BudgetKey;
use crate::cluster::pod;
use crate::drain::attempt::Attempt;
use crate::drain::budget_forecast::{BudgetPrediction, Budgets};
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::plan::{DaemonSets, DrainPlan, InvalidSelector, PlannedPod, SkipReason, Verdict, Warning};
use crate::drain::pod_state::{self, Blocker, PodContext, PodState};
use crate::drain::steady_time::SteadyTime;

/// A node that is to be drained.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Its name.
    pub node: String,
    /// How it is to be drained.
    pub drain: DrainSpec,
    /// The pods on it.
    pub pods: Vec<Arc<Pod>>,
    /// Whether it is Ready.
    pub ready: bool,
}

/// The verdicts on all pods, before anybody was asked.
#[derive(Debug, Clone)]
pub struct DrainPreview {
    nodes: Vec<(PlannedNode, DrainPlan)>,
}

/// What would become of the pods.
#[derive(Debug, Clone, Default)]
pub struct Forecast {
    /// One entry a pod, by node and by its name.
    pub pods: Vec<PodForecast>,
    /// The budgets that guard pods of the plan.
    pub budgets: Vec<BudgetForecast>,
    /// Why some pods were asked about in vain, and how many.
    pub unanswered: BTreeMap<String, usize>,
}

/// What would become of a pod.
#[derive(Debug, Clone)]
pub struct PodForecast {
    /// Its node.
    pub node: String,
    /// The pod.
    pub pod: Arc<Pod>,
    /// What would become of it.
    pub fate: PodOutcome,
    /// What one should know about that.
    pub warnings: Vec<Warning>,
    /// Whether it is to be moved, sooner or later.
    pub leaves: bool,
    /// After how many seconds of being refused, or held back, it is deleted; none if it waits for as long as it takes.
    pub deleted_after: Option<i64>,
    /// The budget that its eviction counts for.
    pub guarded_by: Option<BudgetKey>,
}

/// What would become of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodOutcome {
    /// It stays, and nobody waits for it.
    Stays(SkipReason),
    /// It is ending already.
    Terminating,
    /// It goes at once.
    Evicted,
    /// KubeVirt moves it.
    Migrated,
    /// It goes when others that the budget guards have gone and are replaced.
    WaitsForBudget(BudgetKey),
    /// Something refuses to let it go as things are, and then it is deleted past that.
    Deleted(Blocker),
    /// Something refuses to let it go as things are.
    Blocked(Blocker),
}

/// A budget, and what the plan asks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetForecast {
    /// Which budget.
    pub budget: BudgetKey,
    /// How many pods of the plan it guards.
    pub pods: usize,
    /// How many of them it lets go now.
    pub now: usize,
    /// How many it lets go at once when all pods that it expects are healthy.
    pub at_most: usize,
    /// In how many rounds they go at least, each as large as the budget allows and over when all pods are replaced;
    /// none if the budget never allows one, or replacements that fit nowhere keep it from that.
    pub rounds: Option<usize>,
    /// How many of them are never let go, because replacements of others fit nowhere.
    pub short_of: usize,
}

impl PlannedNode {
    /// Whether pods are deleted that are refused for long.
    fn deletes(&self) -> bool {
        self.drain.delete_after_seconds > 0
    }
}

impl PodForecast {
    /// Whether another pod is to stand in for it somewhere else.
    pub fn is_replaced(&self) -> bool {
        let owner = pod::controller(&self.pod).filter(|owner| owner.kind != "DaemonSet");
        self.leaves && owner.is_some() && !pod::is_finished(&self.pod)
    }

    /// It waits for others to be replaced, which they never are.
    fn hold(&mut self, budget: &BudgetKey) {
        let obstacle = Blocker {
            reason: BlockReason::DisruptionBudget,
            message: format!("budget {budget} waits for replacements that fit on no other node"),
            since: None,
            refusals: 0,
        };
        self.fate = if self.deleted_after.is_some() {
            PodOutcome::Deleted(obstacle)
        } else {
            PodOutcome::Blocked(obstacle)
        };
    }
}

impl Forecast {
    /// The same where the replacements of some pods fit nowhere: a budget that they leave short of healthy pods lets no
    /// further ones go. Those that are replaced elsewhere are taken to go first.
    pub fn hold_back(&mut self, misfits: &BTreeSet<PodReference>) {
        for guard in &mut self.budgets {
            let is_misfit = |expected: &PodForecast| {
                expected.guarded_by.as_ref() == Some(&guard.budget)
                    && misfits.contains(&pod::reference(&expected.pod))
            };
            let unplaced = self.pods.iter().filter(|expected| is_misfit(expected)).count();
            let held = unplaced.saturating_sub(guard.at_most);
            let later = self.pods.iter_mut().filter(|expected| {
                matches!(expected.fate, PodOutcome::WaitsForBudget(_)) && is_misfit(expected)
            });
            let mut short_of = 0;
            for expected in later.rev().take(held) {
                expected.hold(&guard.budget);
                short_of += 1;
            }
            if short_of > 0 {
                (guard.short_of, guard.rounds) = (short_of, None);
            }
        }
    }
}

impl DrainPreview {
    /// Judges the pods of each node.
    ///
    /// # Errors
    /// If a `podSelector` is not a valid selector.
    pub fn new(
        stations: Vec<PlannedNode>,
        daemon_sets: &DaemonSets,
        now: Timestamp,
    ) -> Result<Self, InvalidSelector> {
        let judge = |station: PlannedNode| {
            let plan = DrainPlan::new(station.pods.iter().cloned(), &station.drain, daemon_sets, now)?;
            Ok((station, plan))
        };
        Ok(Self { nodes: stations.into_iter().map(judge).collect::<Result<_, _>>()? })
    }

    /// The pods that would be asked to go.
    pub fn to_ask(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.judged().map(|(_, judged)| judged).filter(|judged| is_asked(judged)).map(|judged| &judged.pod)
    }

    /// What would become of each pod. `answers` are those to evictions that were not carried out, by uid.
    pub fn forecast(
        &self,
        mut budgets: Budgets,
        answers: &HashMap<String, EvictionOutcome>,
        now: Timestamp,
    ) -> Forecast {
        let mut forecast = Forecast::default();
        let mut opinions: HashMap<&str, (BudgetKey, String)> = HashMap::new();
        let mut guards: BTreeMap<BudgetKey, BudgetForecast> = BTreeMap::new();
        let mut guarded: HashMap<&str, BudgetKey> = HashMap::new();
        for pod in self.to_ask() {
            let (budget, refusal) = match budgets.charge(pod) {
                BudgetPrediction::Free => continue,
                BudgetPrediction::Allowed(allowance) => (allowance.guard.key, None),
                BudgetPrediction::Exhausted { budget, message } => (budget, Some(message)),
            };
            let guard =
                guards.entry(budget.clone()).or_insert_with(|| BudgetForecast::of(budget.clone(), &budgets));
            guarded.insert(pod::uid(pod), budget.clone());
            guard.pods += 1;
            guard.now += usize::from(refusal.is_none());
            opinions.extend(refusal.map(|refusal| (pod::uid(pod), (budget, refusal))));
        }
        forecast.budgets = guards.values_mut().map(BudgetForecast::counted).collect();
        for (station, judged) in self.judged() {
            let uid = pod::uid(&judged.pod);
            let answer = answers.get(uid).filter(|answer| match why_silent(answer) {
                Some(why) => {
                    *forecast.unanswered.entry(why).or_default() += 1;
                    false
                }
                None => true,
            });
            let opinion = opinions.get(uid);
            let waits = opinion.is_some_and(|(budget, _)| guards[budget].now > 0);
            let held = opinion.filter(|_| !waits).map(|(_, refusal)| refusal.as_str());
            let answer = answer.cloned().or_else(|| several_budgets(judged, &budgets));
            let attempt =
                Attempt { last: answer.map(|answer| (SteadyTime::MIN, answer)), ..Attempt::default() };
            let known = PodContext {
                group: Group::Medik8s,
                attempt: Some(&attempt),
                steady_now: SteadyTime::MIN,
                held,
                overdue: false,
                budgets: &budgets,
                evacuation: None,
                node_ready: station.ready,
            };
            let fate = match pod_state::state(judged, &known, now) {
                PodState::Skipped => match judged.verdict {
                    Verdict::Skip(reason) => PodOutcome::Stays(reason),
                    _ => PodOutcome::Evicted,
                },
                PodState::Terminating => PodOutcome::Terminating,
                PodState::Migrating => PodOutcome::Migrated,
                PodState::Blocked(obstacle) if station.deletes() && is_refused(judged, obstacle.reason) => {
                    PodOutcome::Deleted(obstacle)
                }
                PodState::Blocked(obstacle) => PodOutcome::Blocked(obstacle),
                PodState::Waiting | PodState::Evicting => match opinion.filter(|_| waits) {
                    Some((budget, _)) => PodOutcome::WaitsForBudget(budget.clone()),
                    None => PodOutcome::Evicted,
                },
            };
            let waits =
                matches!(fate, PodOutcome::WaitsForBudget(_) | PodOutcome::Deleted(_)) && station.deletes();
            forecast.pods.push(PodForecast {
                node: station.node.clone(),
                pod: judged.pod.clone(),
                fate,
                deleted_after: waits.then_some(station.drain.delete_after_seconds),
                warnings: judged.warnings.clone(),
                leaves: is_asked(judged),
                guarded_by: guarded.remove(uid),
            });
        }
        forecast
    }

    fn judged(&self) -> impl Iterator<Item = (&PlannedNode, &PlannedPod)> {
        self.nodes.iter().flat_map(|(station, plan)| plan.pods.iter().map(move |judged| (station, judged)))
    }
}

impl BudgetForecast {
    fn of(budget: BudgetKey, budgets: &Budgets) -> Self {
        let at_most = budgets.at_most(&budget);
        Self { budget, pods: 0, now: 0, at_most, rounds: None, short_of: 0 }
    }

    /// The same with its rounds. The first is what the budget allows now.
    fn counted(&mut self) -> Self {
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

fn is_asked(judged: &PlannedPod) -> bool {
    judged.verdict == Verdict::Evict && pod::deadline(&judged.pod).is_none()
}

/// Whether it is the answer to its eviction that keeps a pod, and not the drain's own settings.
fn is_refused(judged: &PlannedPod, reason: BlockReason) -> bool {
    use BlockReason::{
        AdmissionWebhook, DisruptionBudget, MigrationFailed, MultipleDisruptionBudgets, NamespaceTerminating,
        NotMigratable, ServerError,
    };
    let by_answer = matches!(
        reason,
        AdmissionWebhook
            | DisruptionBudget
            | MigrationFailed
            | MultipleDisruptionBudgets
            | NamespaceTerminating
            | NotMigratable
            | ServerError
    );
    is_asked(judged) && by_answer
}

/// Why an answer says nothing about what an eviction would come to, if it does not: because who asked may not ask, or
/// because of the question itself.
fn why_silent(answer: &EvictionOutcome) -> Option<String> {
    match answer {
        // The pod's name is left out, so that one missing right is told once.
        EvictionOutcome::Forbidden(why) => {
            Some(why.split_once("is forbidden: ").map_or(why.as_str(), |(_, rest)| rest).to_owned())
        }
        EvictionOutcome::Throttled { message, .. } => Some(message.clone()),
        // A webhook with side effects is not asked (`pkg/admission/plugin/webhook/errors` in kubernetes/apiserver).
        EvictionOutcome::Unknown(why) if why.contains("does not support dry run") => Some(why.clone()),
        _ => None,
    }
}

/// That more than one budget selects the pod, which is known without asking.
fn several_budgets(judged: &PlannedPod, budgets: &Budgets) -> Option<EvictionOutcome> {
    let pod = &judged.pod;
    let counts = is_asked(judged) && !pod::is_pending(pod) && !pod::is_finished(pod);
    (counts && budgets.guarding(pod).len() > 1).then(|| EvictionOutcome::MultipleBudgets(String::new()))
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
