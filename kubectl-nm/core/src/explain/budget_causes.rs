//! The causes of pods that budgets keep, and of pods that are terminating: each end of a chain once, whatever the number of
//! budgets and namespaces.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use nm_shared::api::maintenance::SurgePolicy;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::pod;
use nm_shared::{
    BlockFacts, BlockReason, BlockedPod, BudgetFacts, NodeMaintenance, PodReference, SurgeObstacle,
    WaitReason, WaitingPod,
};

use crate::explain::cause::{Cause, CommonGround, Outlook, alike_words, few_of, sentence};
use crate::explain::cause_wording::{Told, Words};
use crate::explain::cluster_facts::{ClusterFacts, Unseen};
use crate::explain::deletions;
use crate::explain::first_cause::{ChainEnd, FirstCause, Subject, are_counted_later, first_causes, subject};
use crate::explain::owner::owner_of;
use crate::explain::preemption::were_preempted;
use crate::explain::remedy::in_short;
use crate::explain::told_alone::ToldAlone;
use crate::explain::unsatisfiable_budget::Apart;
use crate::maintenance::{State, node, status};
use crate::terminal::text::{counted, first_names};

/// A budget, and the pods of the node that it keeps.
struct Kept<'a> {
    budget: PodReference,
    numbers: &'a BudgetFacts,
    message: &'a str,
    /// Whether the message also explains why a pod is not replaced first.
    is_not_surged: bool,
    /// Whether that is because there are too few nodes for pods that must be on different ones.
    is_kept_apart: bool,
    pods: Vec<PodReference>,
    times: Vec<Timestamp>,
    refusals: i32,
    /// How many other pods are evicted before these; only while they wait for their turn.
    ahead: Option<i32>,
    /// Whether its cause is not one with those of other budgets.
    is_alone: bool,
}

/// Whether the chain explains this pod. A pod that could be replaced first has a remedy of its own.
pub(super) fn has_chain(pod: &BlockedPod) -> bool {
    let surge = pod.facts.surge.as_ref().map(|surge| surge.reason);
    pod.reason == BlockReason::DisruptionBudget
        && pod.facts.budget.is_some()
        && matches!(
            surge,
            None | Some(SurgeObstacle::NoDeployment | SurgeObstacle::KeptApart | SurgeObstacle::Unknown)
        )
}

/// The causes of the pods that budgets block.
pub(super) fn blocked(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut kept: BTreeMap<(bool, PodReference), Kept<'_>> = BTreeMap::new();
    // Where a deletion is refused, the pod leaves once its budget allows that.
    let is_kept =
        |pod: &&BlockedPod| has_chain(pod) || deletions::budget_of(pod.reason, &pod.facts).is_some();
    for pod in status(maintenance).blocked_pods.iter().filter(is_kept) {
        let Some(budget) = &pod.facts.budget else { continue };
        let key = PodReference { namespace: pod.namespace.clone(), name: budget.name.clone() };
        let is_alone = alone.is(&pod.reference());
        let of_budget = kept
            .entry((is_alone, key.clone()))
            .or_insert_with(|| Kept { is_alone, ..Kept::new(key, budget, &pod.message) });
        of_budget.add(pod.reference(), pod.since.0);
        let surge = pod.facts.surge.as_ref();
        of_budget.is_not_surged |= surge.is_some();
        of_budget.is_kept_apart |= surge.is_some_and(|surge| surge.reason == SurgeObstacle::KeptApart);
        of_budget.refusals = of_budget.refusals.saturating_add(pod.attempts);
    }
    causes(maintenance, kept.into_values(), facts, kubectl, now)
}

/// The causes of the pods that wait for their budgets, before [`count_as_waiting`].
pub(super) fn waiting(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    static UNKNOWN: std::sync::LazyLock<BudgetFacts> = std::sync::LazyLock::new(BudgetFacts::default);
    let mut kept: BTreeMap<(bool, PodReference), Kept<'_>> = BTreeMap::new();
    let waits = |pod: &&WaitingPod| pod.reason == WaitReason::BudgetTurn;
    for pod in status(maintenance).waiting_pods.iter().flatten().filter(waits) {
        let budget = pod.budget.as_ref().unwrap_or(&UNKNOWN);
        let key = PodReference { namespace: pod.namespace.clone(), name: budget.name.clone() };
        let is_alone = alone.is(&pod.reference());
        let of_budget = kept
            .entry((is_alone, key.clone()))
            .or_insert_with(|| Kept { is_alone, ..Kept::new(key, budget, "") });
        of_budget.add(pod.reference(), pod.since.0);
        of_budget.ahead = Some(of_budget.ahead.map_or(pod.ahead, |ahead| ahead.min(pod.ahead)));
    }
    causes(maintenance, kept.into_values(), facts, kubectl, now)
}

/// The status does not count the pods of this cause as blocked, or not yet.
pub(super) fn count_as_waiting(cause: &mut Cause) {
    if cause.outlook == Outlook::Blocks {
        let is_stuck = matches!(&cause.common, Some(CommonGround::FirstCause(first)) if first.is_stuck());
        cause.outlook = if is_stuck { Outlook::WillBlock } else { Outlook::Passes };
    }
}

impl<'a> Kept<'a> {
    fn new(budget: PodReference, numbers: &'a BudgetFacts, message: &'a str) -> Self {
        let pods = Vec::new();
        Self {
            budget,
            numbers,
            message,
            is_not_surged: false,
            is_kept_apart: false,
            pods,
            times: Vec::new(),
            refusals: 0,
            ahead: None,
            is_alone: false,
        }
    }

    fn add(&mut self, pod: PodReference, since: Timestamp) {
        self.pods.push(pod);
        self.times.push(since);
    }

    /// `PDB shop/cart needs 3, has 3.` The numbers are those of `read`, the budget as it is now, if there is one: the status of a
    /// maintenance has them once a minute.
    fn what(&self, is_failed: bool, read: Option<BudgetFacts>) -> String {
        let numbers = read.unwrap_or_else(|| self.numbers.clone());
        let facts = BlockFacts { budget: Some(numbers), ..BlockFacts::default() };
        let short = in_short(&self.budget.namespace, BlockReason::DisruptionBudget, &facts, self.message);
        match self.ahead {
            _ if is_failed => format!("When the drain failed: {}", sentence(&short)),
            None if self.is_not_surged => sentence(self.message),
            None => sentence(&short),
            Some(ahead) => {
                let waiting = counted(self.pods.len(), "pod");
                let verb = if self.pods.len() == 1 { "waits for its turn" } else { "wait for their turn" };
                let ahead = if ahead > 0 { format!(", {ahead} ahead") } else { String::new() };
                if self.budget.name.is_empty() {
                    return format!("A budget in {}: {waiting} {verb}{ahead}.", self.budget.namespace);
                }
                format!("{}: {waiting} {verb}{ahead}.", short.trim_end_matches([':', ' ']))
            }
        }
    }
}

/// Budgets whose chains end alike.
#[derive(Default)]
struct Group<'a> {
    kept: Vec<Kept<'a>>,
    subjects: Vec<Subject>,
    allowed: i32,
    unseen: BTreeSet<Unseen>,
}

fn causes<'a>(
    maintenance: &NodeMaintenance,
    kept: impl Iterator<Item = Kept<'a>>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let drain = maintenance.spec.drain.clone().unwrap_or_default();
    let mut groups: Vec<(Option<FirstCause>, Group<'a>)> = Vec::new();
    for kept in kept {
        let names: BTreeSet<&str> = kept.pods.iter().map(|pod| pod.name.as_str()).collect();
        let ends = first_causes(&kept.budget, &names, node(maintenance), facts, now);
        // What pods wait for ends by itself, even if it was not read.
        let ends = ends
            .filter(|ends| kept.ahead.is_none() || ends.iter().all(|end| end.cause != FirstCause::NotRead));
        let mut ends: Vec<Option<ChainEnd>> =
            ends.map_or(vec![None], |ends| ends.into_iter().map(Some).collect());
        // Reasons beyond the first few would only repeat the budget.
        ends.sort_by_key(|end| end.as_ref().map_or(0, |end| end.cause.rank()));
        ends.truncate(3);
        for end in ends {
            let mut cause = end.as_ref().map(|end| end.cause.clone());
            if let Some(FirstCause::NeverAllows(never)) = &mut cause {
                never.is_surge_set = drain.surge != SurgePolicy::Never;
                // nm-reconciler has tried.
                never.surge = never.surge.filter(|_| !never.is_surge_set || !kept.is_not_surged);
                if kept.is_kept_apart && !matches!(facts.nodes, Some(Ok(_))) {
                    never.apart = Apart::TooFewNodes;
                }
            }
            // Without facts, the causes may differ.
            let is_alike = |group: &Group<'_>| group.kept.iter().all(|other| other.is_alone == kept.is_alone);
            let at = groups
                .iter()
                .position(|(known, group)| cause.is_some() && *known == cause && is_alike(group));
            let at = at.unwrap_or_else(|| {
                groups.push((cause, Group::default()));
                groups.len() - 1
            });
            let group = &mut groups[at].1;
            group.kept.push(kept.again());
            if let Some(end) = end {
                group.allowed = group.allowed.saturating_add(end.allowed);
                group.unseen.extend(end.unseen.into_iter().chain(unseen(&end.cause)));
                let is_new = |subject: &Subject| !group.subjects.iter().any(|known| known.pod == subject.pod);
                let new: Vec<Subject> = end.subjects.into_iter().filter(is_new).collect();
                group.subjects.extend(new);
            }
        }
    }
    groups.sort_by_key(|(cause, _)| cause.as_ref().map_or(0, FirstCause::rank));
    let restarted: Vec<BTreeSet<String>> =
        groups.iter().map(|(cause, group)| group.restarted(cause.as_ref(), facts)).collect();
    let all: BTreeSet<&String> = restarted.iter().flatten().collect();
    let told = |((cause, group), own): ((Option<FirstCause>, Group<'_>), &BTreeSet<String>)| {
        let others: Vec<String> = all.iter().copied().filter(|name| !own.contains(*name)).cloned().collect();
        group.cause(cause.as_ref(), &others, maintenance, facts, kubectl, now)
    };
    groups.into_iter().zip(&restarted).map(told).collect()
}

impl Kept<'_> {
    /// The same, for another end of the chain.
    fn again(&self) -> Self {
        Self { budget: self.budget.clone(), pods: self.pods.clone(), times: self.times.clone(), ..*self }
    }
}

/// What could not be seen, if that is where the chain ends.
fn unseen(cause: &FirstCause) -> Option<Unseen> {
    match cause {
        FirstCause::PodsUnseen(unseen) | FirstCause::BudgetUnseen(unseen) => Some(unseen.clone()),
        _ => None,
    }
}

impl Group<'_> {
    /// The Deployments that a surge would restart, if it is what the pods of this cause need.
    fn restarted(&self, cause: Option<&FirstCause>, facts: &ClusterFacts) -> BTreeSet<String> {
        if !matches!(cause, Some(FirstCause::NeverAllows(never)) if never.surge.is_some()) {
            return BTreeSet::new();
        }
        let deployments = self.kept.iter().flat_map(|kept| {
            let pods = facts.budgets.get(&kept.budget).and_then(|guarded| guarded.pods.as_ref().ok());
            let is_kept = |pod: &&Pod| kept.pods.contains(&pod::reference_in(&pod.metadata));
            let owners = pods.into_iter().flatten().filter(is_kept).filter_map(owner_of);
            owners.map(|owner| format!("{}/{owner}", kept.budget.namespace))
        });
        deployments.collect()
    }

    fn cause(
        self,
        cause: Option<&FirstCause>,
        restarts: &[String],
        maintenance: &NodeMaintenance,
        facts: &ClusterFacts,
        kubectl: &str,
        now: Timestamp,
    ) -> Cause {
        let is_failed = State::of(maintenance) == State::Failed;
        let budgets: Vec<&PodReference> = self.kept.iter().map(|kept| &kept.budget).collect();
        let words = Words {
            budgets: &budgets,
            restarts,
            allowed: self.allowed,
            ..Words::of(maintenance, facts, &self.subjects, kubectl, now)
        };
        let waits = self.kept.iter().any(|kept| kept.ahead.is_some());
        let tell = |words: Words<'_>| match cause {
            Some(cause) => words.tell(cause),
            None => words.without_facts(waits),
        };
        let (Told { what, advice, commands, passes }, left_out) = words.counted(tell);
        // What is over is said beside the numbers with which it was not.
        let is_over = cause.is_some_and(FirstCause::is_over);
        let read = |kept: &Kept<'_>| {
            let guarded = facts.budgets.get(&kept.budget).filter(|_| !is_failed && !is_over);
            Some(Budget::from(guarded?.budget.as_ref().ok()?.as_ref()?).facts())
        };
        let (numbers, alike) = few_of(self.kept.iter().map(|kept| kept.what(is_failed, read(kept))));
        let more = (!alike.is_empty()).then(|| alike_words(alike.len()));
        let pods: BTreeSet<String> =
            self.kept.iter().flat_map(|kept| &kept.pods).map(ToString::to_string).collect();
        Cause {
            what: numbers
                .into_iter()
                .chain(more)
                .chain(what)
                .chain(were_preempted(&self.subjects, facts))
                .collect(),
            pods: pods.into_iter().collect(),
            refusals: self.kept.iter().fold(0, |sum: i32, kept| sum.saturating_add(kept.refusals)),
            unseen: self.unseen.iter().map(Unseen::sentence).collect(),
            advice,
            commands,
            left_out,
            alike,
            outlook: Outlook::of(passes),
            common: cause.map(|cause| CommonGround::FirstCause(Box::new(cause.clone()))),
            ..Cause::of_times(self.kept.iter().flat_map(|kept| kept.times.iter().copied()))
        }
    }
}

/// The pods that are terminating, by name. That passes.
pub(super) fn terminating(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let status = status(maintenance);
    let count = usize::try_from(status.pod_counts.terminating).unwrap_or(0);
    if count == 0 {
        return Vec::new();
    }
    let has_to_go = |pod: &PodReference| {
        status.pending_pods_refs.contains(pod)
            && !status.blocked_pods.iter().any(|blocked| blocked.reference() == *pod)
    };
    let read = facts.terminating.get(node(maintenance));
    let pods = read.and_then(|read| read.as_ref().ok());
    let subjects: Vec<Subject> =
        pods.into_iter().flatten().map(subject).filter(|subject| has_to_go(&subject.pod)).collect();
    let unseen = read.and_then(|read| read.as_ref().err());
    if read.is_some_and(Result::is_ok) && subjects.is_empty() {
        // They have left since the last status.
        return Vec::new();
    }
    if !subjects.is_empty() {
        let parts = alone.split(subjects, |subject| subject.pod.clone());
        let is_all = parts.len() == 1;
        let count = |part: &[Subject]| if is_all { count } else { part.len() };
        let told =
            |part: &Vec<Subject>| read_terminating(part, count(part), maintenance, facts, kubectl, now);
        return parts.iter().map(told).collect();
    }
    let candidates = only_terminating(maintenance, count);
    if read.is_none() && candidates.is_empty() {
        // The headline counts them already.
        return Vec::new();
    }
    let be = if count == 1 { "is" } else { "are" };
    let who = if candidates.is_empty() { counted(count, "pod") } else { first_names(&candidates) };
    let list = format!("{kubectl} get pods -A --field-selector spec.nodeName={}", node(maintenance));
    let not_known = |unseen: &Unseen| format!("The grace period is not known, because {}.", unseen.why());
    vec![Cause {
        what: vec![format!("{who} {be} terminating.")],
        pods: candidates,
        unseen: unseen.map(not_known).into_iter().collect(),
        advice: wait_for_terminating(count),
        // Somebody who may not list them cannot run it.
        commands: if unseen.is_some() { Vec::new() } else { vec![list] },
        outlook: Outlook::Passes,
        ..Cause::default()
    }]
}

/// Terminating pods that were read. The status counts so many.
fn read_terminating(
    subjects: &[Subject],
    count: usize,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let words = Words::of(maintenance, facts, subjects, kubectl, now);
    let describe =
        |words: Words<'_>| words.each_pod(|namespace, pod| format!("-n {namespace} describe pod {pod}"));
    let (advice, commands) = if are_counted_later(subjects) {
        let advice = "Wait: the Job controller counts a pod that has failed after the back-off of the Job, which is up to 10 minutes";
        (String::from(advice), Vec::new())
    } else {
        (wait_for_terminating(count), describe(Words { has_all_commands: true, ..words }))
    };
    let (commands, left_out) = few_of(commands);
    Cause {
        what: vec![sentence(&words.terminating())],
        pods: subjects.iter().map(|subject| subject.pod.to_string()).collect(),
        advice,
        commands,
        left_out,
        outlook: Outlook::Passes,
        ..Cause::default()
    }
}

fn wait_for_terminating(count: usize) -> String {
    String::from(if count == 1 {
        "Wait until the pod has terminated; its events show how far it is"
    } else {
        "Wait until the pods have terminated; their events show how far they are"
    })
}

/// The names of the terminating pods, if the status shows the state of all others.
fn only_terminating(maintenance: &NodeMaintenance, count: usize) -> Vec<String> {
    let status = status(maintenance);
    let blocked = status.blocked_pods.iter().map(BlockedPod::reference);
    let waiting = status.waiting_pods.iter().flatten().map(WaitingPod::reference);
    let migrating = status.migrating_pods.iter().flatten().map(nm_shared::MigratingPod::reference);
    let surging = status.surging_pods.iter().flatten().map(nm_shared::SurgingPod::reference);
    let others: BTreeSet<PodReference> = blocked.chain(waiting).chain(migrating).chain(surging).collect();
    let rest = status.pending_pods_refs.iter().filter(|pod| !others.contains(pod));
    let rest: Vec<String> = rest.map(ToString::to_string).collect();
    if rest.len() == count { rest } else { Vec::new() }
}
