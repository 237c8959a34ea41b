//! What disruption budgets allow, so that no eviction is requested that they would refuse.
//!
//! The API server decides; the budgets known here may be out of date. A budget that seems to allow an eviction and does
//! not costs one refusal. A budget that seems exhausted is asked anyway from time to time
//! (`crate::decide::eviction_queue`), so nothing waits forever because of an outdated one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::api::status::BudgetFacts;
use crate::cluster::disruption_budget::{Budget, BudgetKey, BudgetRefusal, BudgetVersion};
use crate::cluster::pod::{self, DrainPod};
use crate::drain::budget_motion::BudgetMotion;
use crate::drain::steady_time::SteadyTime;

/// How the answer to an eviction changes what its budget allows, as far as the budget's status does not show it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetUse<'a> {
    /// The eviction was accepted: the budget allows one disruption fewer.
    Accepted,
    /// The eviction was refused: the budget allows none, whatever its status shows.
    Refused(&'a BudgetRefusal),
}

/// The disruption that an eviction uses, out of those that its budget allowed when the eviction was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedDisruption {
    /// The budget at that time.
    pub guard: Arc<BudgetVersion>,
    /// The number of disruptions that the budget allowed then.
    pub allowed: i32,
}

impl AllowedDisruption {
    /// Whether the requests in flight and the answers, each with the version of the budget when its eviction was decided,
    /// leave none. Nodes are decided concurrently: another eviction may have used the disruption since.
    pub fn is_used_up<'a>(
        &self,
        in_flight: i32,
        answers: impl IntoIterator<Item = (&'a str, BudgetUse<'a>)>,
    ) -> bool {
        remaining(self.allowed.saturating_sub(in_flight), &self.guard.version, answers).0 <= 0
    }
}

/// Whether the budgets are expected to allow an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetPrediction {
    /// No budget limits it.
    Free,
    /// The budget allows it, which uses one disruption.
    Allowed(AllowedDisruption),
    /// The budget allows no more disruptions than those that are reserved.
    Reserved(BudgetBlock),
    /// The budget allows no disruptions now.
    Exhausted(BudgetBlock),
}

/// The budget that would refuse the eviction of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetBlock {
    /// The budget.
    pub budget: BudgetKey,
    /// How the API server refuses.
    pub refusal: BudgetRefusal,
    /// What moves the budget; none if nothing does until somebody changes it.
    pub motion: Option<BudgetMotion>,
    /// The number of pods that are to be evicted before, of those that wait for the same budget.
    pub ahead: usize,
}

/// Why a pod that is not Ready is on no way to become so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stuck {
    /// It does not become Ready by itself: a container keeps failing, or its node does not report.
    Unready,
    /// The scheduler finds no node for it.
    Unschedulable,
    /// It crashes again and again, and nothing probes it: it is Ready while it runs, if it runs at all.
    Crashing,
}

/// A budget and the disruptions that remain.
#[derive(Debug, Clone)]
pub struct RemainingBudget {
    budget: Arc<Budget>,
    /// Disruptions that it allows and that no eviction has used yet.
    allowed: i32,
    /// The API server's last refusal, unless the budget has changed since.
    answer: Option<BudgetRefusal>,
    /// When an eviction was last requested for it.
    asked: Option<SteadyTime>,
    /// How many of its pods are stuck, for each reason.
    stuck: BTreeMap<Stuck, usize>,
    /// Those of them that no drain evicts.
    stuck_elsewhere: BTreeMap<Stuck, usize>,
    /// The uids of the others.
    stuck_pods: BTreeSet<Box<str>>,
    motion: BudgetMotion,
}

impl RemainingBudget {
    /// What the requests in flight and the answers, each with the version of the budget when its eviction was decided, leave of
    /// a budget that was last asked at `asked`.
    pub fn of<'a>(
        budget: Arc<Budget>,
        asked: Option<SteadyTime>,
        in_flight: i32,
        answers: impl IntoIterator<Item = (&'a str, BudgetUse<'a>)>,
    ) -> Self {
        let unused = budget.allowed().saturating_sub(in_flight);
        let (allowed, answer) = remaining(unused, &budget.version().version, answers);
        let motion = BudgetMotion {
            // Otherwise, what is in flight only asks whether the budget is exhausted indeed.
            in_flight: in_flight > 0 && budget.allowed() > 0,
            last_change: budget.last_change(),
            never: budget.is_unsatisfiable(),
            ..BudgetMotion::default()
        };
        Self {
            allowed,
            answer: answer.cloned(),
            asked,
            stuck: BTreeMap::new(),
            stuck_elsewhere: BTreeMap::new(),
            stuck_pods: BTreeSet::new(),
            motion,
            budget,
        }
    }

    /// Its numbers are as they are since it was `seen`, and `have_changed` then. The pods whose evictions it allowed may take
    /// until `busy_until` to terminate.
    #[must_use]
    pub fn moving(mut self, seen: SteadyTime, have_changed: bool, busy_until: Option<SteadyTime>) -> Self {
        self.motion = BudgetMotion { seen, has_changed: have_changed, busy_until, ..self.motion };
        self
    }

    /// Why it allows no eviction of a pod before others are Ready that are stuck; none if enough others are. Those that the drain
    /// evicts may be Ready elsewhere, if enough others are for that. A pod that is not stuck itself leaves only if it can be spared,
    /// too.
    fn lacks(&self, pod: &DrainPod) -> Option<Stuck> {
        let first_of = |stuck: &BTreeMap<Stuck, usize>, besides: usize| {
            let mut lacking = besides;
            let too_many = stuck.iter().find(|(_, count)| {
                lacking += **count;
                self.budget.is_unsatisfiable_without(lacking)
            });
            too_many.map(|(why, _)| *why)
        };
        let is_stuck = self.stuck_pods.contains(pod::uid(pod));
        first_of(&self.stuck, 0).or_else(|| first_of(&self.stuck_elsewhere, 1).filter(|_| !is_stuck))
    }

    fn block(&self, pod: &DrainPod) -> BudgetBlock {
        let motion = BudgetMotion { lacks_stuck: self.lacks(pod).is_some(), ..self.motion };
        BudgetBlock {
            budget: self.budget.version().key.clone(),
            refusal: self.refusal(),
            motion: Some(motion).filter(|motion| !motion.never || self.budget.is_counted()),
            ahead: 0,
        }
    }

    fn refusal(&self) -> BudgetRefusal {
        let known = self.budget.refusal();
        let Some(answer) = &self.answer else { return known };
        // The answer is newer, but not each of the API server's sentences has the numbers, and none that of the pods.
        let complete = answer.budget.clone().filter(|budget| budget.desired_healthy.is_some());
        let expected_pods = known.budget.as_ref().and_then(|budget| budget.expected_pods);
        let complete = complete
            .map(|budget| BudgetFacts { expected_pods: budget.expected_pods.or(expected_pods), ..budget });
        BudgetRefusal { message: answer.message.clone(), budget: complete.or(known.budget) }
    }
}

/// The budgets of some namespaces, and the disruptions that remain while a decision is made.
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    by_namespace: HashMap<String, Vec<RemainingBudget>>,
}

impl FromIterator<RemainingBudget> for Budgets {
    fn from_iter<T: IntoIterator<Item = RemainingBudget>>(budgets: T) -> Self {
        let mut by_namespace: HashMap<String, Vec<RemainingBudget>> = HashMap::new();
        for left in budgets {
            let namespace = left.budget.version().key.namespace.clone();
            by_namespace.entry(namespace).or_default().push(left);
        }
        Self { by_namespace }
    }
}

impl Budgets {
    /// Budgets for which no eviction was requested yet.
    pub fn from_objects<'a>(budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>) -> Self {
        budgets.into_iter().map(|budget| RemainingBudget::of(Arc::new(budget.into()), None, 0, [])).collect()
    }

    /// The budget that allows one disruption fewer when `pod` is evicted: its only one, unless that ignores the pod. The API
    /// server evicts no pod that several guard, and lets go what a budget ignores without asking it.
    pub fn charged_for_eviction(&self, pod: &DrainPod) -> Vec<Arc<BudgetVersion>> {
        let only = only(self.of(pod)).filter(|left| !left.budget.ignores(pod));
        only.map(|left| left.budget.version().clone()).into_iter().collect()
    }

    /// The budgets whose healthy pods are one fewer when `pod` is deleted.
    pub fn charged_for_deletion(&self, pod: &DrainPod) -> Vec<Arc<BudgetVersion>> {
        self.of(pod)
            .filter(|left| !left.budget.ignores(pod))
            .map(|left| left.budget.version().clone())
            .collect()
    }

    /// The budgets that guard `pod`.
    pub fn guarding(&self, pod: &DrainPod) -> Vec<Arc<BudgetVersion>> {
        self.of(pod).map(|left| left.budget.version().clone()).collect()
    }

    /// How the API server refuses because of the budgets that guard `pod`, sorted by name.
    pub fn refusals(&self, pod: &DrainPod) -> Vec<BudgetRefusal> {
        let mut refusals: Vec<BudgetRefusal> = self.of(pod).map(RemainingBudget::refusal).collect();
        let name = |refusal: &BudgetRefusal| refusal.budget.as_ref().map(|budget| budget.name.clone());
        refusals.sort_by_key(name);
        refusals
    }

    /// Why the only budget that guards `pod` allows no eviction, if its controller cannot count its pods. Of one that was never
    /// counted, the API server says only that it is still being processed.
    pub fn why_not_counted(&self, pod: &DrainPod) -> Option<String> {
        let uncounted = only(self.of(pod)).filter(|left| !left.budget.is_counted())?;
        Some(uncounted.budget.refusal().message)
    }

    /// The number of disruptions that the budget allows when all expected pods are healthy.
    pub fn at_most(&self, budget: &BudgetKey) -> usize {
        self.find(budget).map_or(0, |left| left.budget.at_most())
    }

    /// Whether the only budget that guards `pod` allows no disruption even when all `replicas` of its Deployment are healthy.
    /// `others` are the pods of the Deployment.
    pub fn never_allow_eviction(&self, pod: &DrainPod, replicas: i32, others: &[Arc<DrainPod>]) -> bool {
        let others = others.iter().map(|other| &**other);
        self.only_guard(pod).is_some_and(|budget| budget.never_allows(replicas, others))
    }

    /// The same once no rollout adds to the pods of the budget. `replicas` are those that the Deployment of the pod wants, if that is known.
    pub fn never_allow_eviction_after_rollout(&self, pod: &DrainPod, replicas: Option<i32>) -> bool {
        self.only_guard(pod).is_some_and(|budget| budget.never_allows_after_rollout(replicas))
    }

    /// Whether the only budget that guards `pod` allows a disruption now.
    pub fn allow_eviction(&self, pod: &DrainPod) -> bool {
        only(self.of(pod)).is_some_and(|left| left.allowed > 0)
    }

    /// How many pods a rollout has added to the `replicas` of the Deployment of `pod`, as far as the budget of that counts them;
    /// none while not all `pods` of the Deployment are known.
    pub fn added_by_rollout(&self, pod: &DrainPod, replicas: i32, pods: &[Arc<DrainPod>]) -> Option<i32> {
        let are_known = pods.iter().any(|other| pod::uid(other) == pod::uid(pod));
        let budget = self.only_guard(pod).filter(|_| are_known)?;
        Some(budget.added_by_rollout(replicas, pods.iter().map(AsRef::as_ref)))
    }

    /// The budget that guards `pod`, if there is one alone, its numbers are up to date, and the eviction would be a disruption.
    fn only_guard(&self, pod: &DrainPod) -> Option<&Budget> {
        let budget = &*only(self.of(pod))?.budget;
        Some(budget).filter(|budget| budget.is_processed() && !budget.ignores(pod))
    }

    /// When an eviction was last requested for the budget.
    pub fn asked(&self, budget: &BudgetKey) -> Option<SteadyTime> {
        self.find(budget).and_then(|left| left.asked)
    }

    /// Notes that an eviction is requested for the budget although it seems exhausted.
    pub fn note_asked(&mut self, budget: &BudgetKey, now: SteadyTime) {
        let mut near = self.by_namespace.get_mut(&budget.namespace).into_iter().flatten();
        if let Some(left) = near.find(|left| left.budget.version().key.name == budget.name) {
            left.asked = Some(now);
        }
    }

    /// The budget that allows no eviction of `pod` now, if one alone guards it.
    pub fn exhausted(&self, pod: &DrainPod) -> Option<BudgetBlock> {
        let exhausted = only(self.of(pod)).filter(|left| left.allowed <= 0 && !left.budget.ignores(pod));
        exhausted.map(|left| left.block(pod))
    }

    /// Whether the budgets are expected to allow the eviction of `pod` and still so many `reserved` disruptions, which something
    /// else than an eviction may use. If so, the eviction uses one disruption.
    ///
    /// A pod that several budgets guard counts as free: the API server refuses it whatever they allow, with the reason.
    pub fn use_disruption(&mut self, pod: &DrainPod, reserved: i32) -> BudgetPrediction {
        let near = self.by_namespace.get_mut(pod::names(pod).namespace).into_iter().flatten();
        let guards = near.filter(|left| left.budget.guards(pod));
        let Some(left) = only(guards).filter(|left| !left.budget.ignores(pod)) else {
            return BudgetPrediction::Free;
        };
        let version = left.budget.version();
        if left.allowed <= 0 {
            return BudgetPrediction::Exhausted(left.block(pod));
        }
        if left.allowed <= reserved {
            let mut block = BudgetBlock { motion: None, ..left.block(pod) };
            if reserved < i32::MAX {
                let message = &mut block.refusal.message;
                let _ = write!(message, ", of which the rollout of its Deployment may terminate {reserved}");
            }
            return BudgetPrediction::Reserved(block);
        }
        left.allowed -= 1;
        // Nothing is requested yet, but the pods after this one wait for what becomes of it.
        left.motion.in_flight = true;
        BudgetPrediction::Allowed(AllowedDisruption {
            guard: version.clone(),
            allowed: left.budget.allowed().saturating_sub(reserved),
        })
    }

    /// Notes that `pod` may take `until` then to terminate, for those of its budgets that may allow another eviction after that.
    pub fn note_terminating(&mut self, pod: &DrainPod, until: SteadyTime) {
        let near = self.by_namespace.get_mut(pod::names(pod).namespace).into_iter().flatten();
        for left in near.filter(|left| left.budget.guards(pod) && !left.motion.never) {
            left.motion.busy_until = left.motion.busy_until.max(Some(until));
        }
    }

    /// Notes that `pod` does not become Ready if it is not: its node does not report, for example. That counts for those of its
    /// budgets that do not allow its eviction, either. A pod that is deleted is replaced.
    pub fn note_stuck(&mut self, pod: &DrainPod, why: Stuck) {
        if pod::is_ready(pod) || pod::deadline(pod).is_some() {
            return;
        }
        let near = self.by_namespace.get_mut(pod::names(pod).namespace).into_iter().flatten();
        let guards = near.filter(|left| left.budget.guards(pod) && !left.budget.ignores(pod));
        for left in guards {
            *left.stuck.entry(why).or_default() += 1;
            left.stuck_pods.insert(pod.uid.clone());
        }
    }

    /// The same of a pod that the drain does not evict.
    pub fn note_stuck_elsewhere(&mut self, pod: &DrainPod, why: Stuck) {
        let near = self.by_namespace.get_mut(pod::names(pod).namespace).into_iter().flatten();
        for left in near.filter(|left| left.budget.guards(pod)) {
            *left.stuck.entry(why).or_default() += 1;
            *left.stuck_elsewhere.entry(why).or_default() += 1;
        }
    }

    /// Why the budget allows no eviction of a pod before others are Ready that are stuck.
    pub fn lacks(&self, budget: &BudgetKey, pod: &DrainPod) -> Option<Stuck> {
        self.find(budget)?.lacks(pod)
    }

    /// Notes that the node of `pod` is Ready since then, so that the pod may become Ready if it is not.
    pub fn note_node_ready(&mut self, pod: &DrainPod, since: Timestamp) {
        let near = self.by_namespace.get_mut(pod::names(pod).namespace).into_iter().flatten();
        for left in near.filter(|left| !pod::is_ready(pod) && left.budget.guards(pod)) {
            left.motion.last_change = left.motion.last_change.max(Some(since));
        }
    }

    fn of(&self, pod: &DrainPod) -> impl Iterator<Item = &RemainingBudget> {
        let near = self.by_namespace.get(pod::names(pod).namespace).into_iter().flatten();
        near.filter(|left| left.budget.guards(pod))
    }

    fn find(&self, budget: &BudgetKey) -> Option<&RemainingBudget> {
        let mut near = self.by_namespace.get(&budget.namespace)?.iter();
        near.find(|left| left.budget.version().key.name == budget.name)
    }
}

/// The budget that guards a pod, if it is the only one: the API server evicts no pod that several guard.
fn only<T>(mut guards: impl Iterator<Item = T>) -> Option<T> {
    guards.next().filter(|_| guards.next().is_none())
}

/// The disruptions that remain of those that a budget allowed at `version`, and the API server's refusal if it is newer.
fn remaining<'a>(
    mut allowed: i32,
    version: &str,
    answers: impl IntoIterator<Item = (&'a str, BudgetUse<'a>)>,
) -> (i32, Option<&'a BudgetRefusal>) {
    let mut answer = None;
    for (decided_on, used) in answers {
        match used {
            // The status of a budget that has changed since shows it.
            _ if decided_on != version => {}
            BudgetUse::Accepted => allowed -= 1,
            BudgetUse::Refused(refusal) => (allowed, answer) = (0, Some(refusal)),
        }
    }
    (allowed, answer)
}

#[cfg(test)]
#[path = "budget_allowance_tests.rs"]
mod tests;
