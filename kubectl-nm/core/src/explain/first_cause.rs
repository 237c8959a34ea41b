//! The first cause: the chain from pods that a budget keeps, over the pods that it guards and that are not Ready, to what
//! has to change. A pure function of what the cluster shows.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::PodReference;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::pod::{self, DrainPod, reference_in};
use nm_shared::drain::returning::is_assigned_by_template;

use crate::explain::cluster_facts::{ClusterFacts, GuardedPods, IncompleteOwner, Unseen};
use crate::explain::excluded_nodes::{apart, excluded_nodes};
use crate::explain::no_node_left::{self, NoNodeLeft};
use crate::explain::obstacle::{Obstacle, PodWarning, has_ended_container, starting_since};
use crate::explain::owner::{Owner, OwnerKind, owner_of};
use crate::explain::unsatisfiable_budget::{
    Apart, NeedsReady, NeverAllows, Replaced, SurgeGrant, demand, manager, with_one_pod,
};

/// The end of the chain. Equal ends are one cause, whatever the budgets and namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FirstCause {
    /// The pods have left by now.
    PodsGone,
    /// The budget does not exist any more.
    BudgetGone,
    /// The budget allows evictions by now.
    AllowsNow,
    /// Evictions were accepted a moment ago, and the budget counts them.
    JustEvicted,
    /// The disruption controller has not processed the latest spec of the budget yet.
    NotCounted,
    /// The disruption controller has counted fewer healthy pods than there are, and may never count again by itself.
    Outdated,
    /// The disruption controller cannot count the pods; this is its message.
    CannotCount(String),
    /// The budget can never allow an eviction as it is.
    NeverAllows(NeverAllows),
    /// The pods that the budget keeps are not Ready themselves, for this reason.
    ItsOwnPods(Obstacle),
    /// Pods that the budget counts on are not Ready, for this reason.
    OtherPods(Obstacle),
    /// Pods that the budget counts on are Pending, and the only nodes that they fit are in maintenance.
    NoNodeLeft(NoNodeLeft),
    /// An owner cannot create its pods.
    NotCreated(IncompleteOwner),
    /// The pods cannot be read.
    PodsUnseen(Unseen),
    /// The budget cannot be read.
    BudgetUnseen(Unseen),
    /// The budget is one of too many to read them all.
    NotRead,
    /// All pods that are seen are Ready: the budget counts pods that do not exist.
    TooFew,
}

/// A pod that the end of a chain is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The pod.
    pub pod: PodReference,
    /// Name of its node; none before it is scheduled.
    pub node: Option<String>,
    /// How often its containers were restarted.
    pub restarts: i32,
    /// The same of its init containers.
    pub init_restarts: i32,
    /// Whether a container of it has ended and does not wait yet to begin again, so that its log is that of the run that ended.
    pub has_ended_container: bool,
    /// Since when it has not been Ready, as its condition shows; none if it is, or shows none.
    pub unready_since: Option<Timestamp>,
    /// Since when it has been starting, if it is not Ready: since its container was started last, or else the pod itself.
    pub starting_since: Option<Timestamp>,
    /// When its grace period ends, if it is terminating.
    pub deadline: Option<Timestamp>,
    /// Its grace period in seconds, if it is terminating.
    pub grace_seconds: Option<i64>,
    /// Whether it has ended, and only its Job keeps it until it has counted it.
    pub is_counted_later: bool,
    /// Its owner, whose template selects its nodes; none if it has no controller.
    pub owner: Option<Owner>,
    /// The nodes in maintenance that its template selects; only if the scheduler finds no node for it, and nodes were read.
    pub suits: BTreeSet<String>,
}

/// An end of the chain, with the pods that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEnd {
    /// The end.
    pub cause: FirstCause,
    /// The pods that keep the budget from allowing an eviction; none if the budget itself does.
    pub subjects: Vec<Subject>,
    /// How many evictions the budget allows by now.
    pub allowed: i32,
    /// What could not be seen on the way.
    pub unseen: Vec<Unseen>,
}

impl From<FirstCause> for ChainEnd {
    fn from(cause: FirstCause) -> Self {
        Self { cause, subjects: Vec::new(), allowed: 0, unseen: Vec::new() }
    }
}

/// Follows the chain from pods on a node that a budget keeps. There may be several ends, if the pods that the budget counts on
/// are not Ready for several reasons. None if nothing was read of the budget.
pub fn first_causes(
    budget: &PodReference,
    kept: &BTreeSet<&str>,
    on: &str,
    facts: &ClusterFacts,
    now: Timestamp,
) -> Option<Vec<ChainEnd>> {
    let Some(guarded) = facts.budgets.get(budget) else {
        return facts.unread_budgets.contains(budget).then(|| vec![FirstCause::NotRead.into()]);
    };
    let object = match &guarded.budget {
        Err(unseen) => return Some(vec![FirstCause::BudgetUnseen(unseen.clone()).into()]),
        Ok(None) => return Some(vec![FirstCause::BudgetGone.into()]),
        Ok(Some(object)) => object,
    };
    let is_kept = |pod: &&Pod| node_of(pod) == Some(on) && kept.contains(name_of(pod));
    if let Ok(pods) = &guarded.pods
        && !pods.iter().any(|pod| is_kept(&pod) && pod.metadata.deletion_timestamp.is_none())
    {
        return Some(vec![FirstCause::PodsGone.into()]);
    }
    let pods = guarded.pods.as_deref().unwrap_or_default();
    let unready = unready_pods(pods, is_kept, guarded, facts, now);
    if let Some(mut end) = by_budget(object, guarded, facts) {
        // With fewer pods than it counts on, another budget allows nothing either: what keeps them comes first.
        let mut ends = match &mut end.cause {
            FirstCause::NeverAllows(never) => {
                let healthy = object.status.as_ref().map_or(0, |status| status.current_healthy);
                let stuck = stuck(&unready, facts);
                let needed = needs_ready(never.pods, healthy, unready.iter().all(|pod| !pod.is_kept));
                // Pods that only start are waited for, but the budget blocks them then, too.
                let are_starting = !unready.is_empty() && unready.iter().all(|pod| pod.obstacle.is_start());
                let is_silent = |pod: &UnreadyPod| matches!(pod.obstacle, Obstacle::SilentNode(_));
                let are_silent = !unready.is_empty() && unready.iter().all(is_silent);
                never.needs_ready = needed.map(|pods| NeedsReady { pods, are_starting, are_silent });
                stuck
            }
            _ => Vec::new(),
        };
        let kept: Vec<&Pod> = pods.iter().filter(is_kept).collect();
        ends.push(where_replaced(end, &kept, pods, facts));
        return Some(ends);
    }
    if let Err(unseen) = &guarded.pods {
        return Some(vec![FirstCause::PodsUnseen(unseen.clone()).into()]);
    }
    Some(by_pods(&unready, object, guarded, facts))
}

/// How many of a budget's pods have to be Ready before it allows an eviction if one of them may be unavailable; none if as many
/// are. The API server evicts a pod that is not Ready if all others are, and there are others:
/// <https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy>.
fn needs_ready(pods: i32, healthy: i32, are_kept_ready: bool) -> Option<i32> {
    let needed = if are_kept_ready || pods < 2 { pods } else { pods - 1 };
    (healthy < needed).then_some(needed)
}

/// The pods that are not Ready and matter to those that the budget keeps: a pod that is Ready may leave only once others are, and
/// one that is not keeps itself, unless it is only taken for unready because its node does not report.
fn unready_pods<'a>(
    pods: &'a [Pod],
    is_kept: impl Fn(&&Pod) -> bool,
    guarded: &GuardedPods,
    facts: &ClusterFacts,
    now: Timestamp,
) -> Vec<UnreadyPod<'a>> {
    let obstacle = |pod| obstacle(pod, warnings_about(pod, guarded), facts, now);
    let may_be_ready =
        pods.iter().any(|pod| is_kept(&pod) && matches!(obstacle(pod), None | Some(Obstacle::SilentNode(_))));
    let considered = pods.iter().filter(|pod| may_be_ready || is_kept(pod));
    let unready = considered.filter_map(|pod| {
        let obstacle = obstacle(pod)?;
        Some(UnreadyPod { pod, obstacle, is_kept: is_kept(&pod) })
    });
    unready.collect()
}

/// The ends of the chains behind pods that stay as they are.
fn stuck(unready: &[UnreadyPod<'_>], facts: &ClusterFacts) -> Vec<ChainEnd> {
    among(unready, facts, |obstacle| !is_leaving(obstacle) && !obstacle.passes())
}

/// The ends of the chains behind those of the pods with such obstacles.
fn among(
    unready: &[UnreadyPod<'_>],
    facts: &ClusterFacts,
    is_concerned: impl Fn(&Obstacle) -> bool,
) -> Vec<ChainEnd> {
    let concerned = unready.iter().filter(|pod| is_concerned(&pod.obstacle));
    grouped(&concerned.collect::<Vec<_>>(), facts)
}

fn is_leaving(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::Terminating | Obstacle::Ended(_))
}

/// A pod that the budget counts on and that is not Ready.
struct UnreadyPod<'a> {
    pod: &'a Pod,
    obstacle: Obstacle,
    /// Whether the budget keeps this pod itself on the node.
    is_kept: bool,
}

/// What the budget itself shows, before its pods matter.
fn by_budget(object: &PodDisruptionBudget, guarded: &GuardedPods, facts: &ClusterFacts) -> Option<ChainEnd> {
    let view = Budget::from(object);
    let status = object.status.clone().unwrap_or_default();
    if let Some(failed) = view.sync_failure() {
        return Some(FirstCause::CannotCount(failed.message.clone()).into());
    }
    if status.observed_generation.unwrap_or(0) < object.metadata.generation.unwrap_or(0) {
        return Some(FirstCause::NotCounted.into());
    }
    if view.allowed() > 0 {
        return Some(ChainEnd { allowed: view.allowed(), ..FirstCause::AllowsNow.into() });
    }
    // Except for `minAvailable` as a number, it expects the pods of controllers only, and says so in an event.
    let pods = guarded.pods.as_deref().unwrap_or_default();
    let are_unmanaged = || !pods.is_empty() && pods.iter().all(|pod| owner_of(pod).is_none());
    if status.expected_pods == 0 && status.current_healthy > 0 && are_unmanaged() {
        return Some(FirstCause::CannotCount("they have no controller".to_owned()).into());
    }
    // Its `minAvailable` may be as many pods as there are because some cannot be created.
    let is_incomplete = !guarded.incomplete_owners.is_empty();
    if view.is_unsatisfiable() && status.expected_pods > 0 && !is_incomplete {
        if allows_once_counted(&view, pods) {
            return Some(FirstCause::Outdated.into());
        }
        let never = NeverAllows {
            demand: demand(object),
            pods: status.expected_pods,
            surge: guarded.may_surge.then_some(match facts.is_surge_granted {
                Some(true) => SurgeGrant::Granted,
                Some(false) => SurgeGrant::Missing,
                None => SurgeGrant::Unknown,
            }),
            full_quota: guarded.full_quota.clone().map(Box::new),
            is_surge_set: false,
            with_one_pod: with_one_pod(pods),
            replaced: if are_unmanaged() { Replaced::Nowhere } else { Replaced::Anywhere },
            manager: manager(object, pods),
            are_pods_seen: guarded.pods.is_ok(),
            needs_ready: None,
            no_node: None,
            apart: Apart::Enough,
        };
        // Whose pods these are decides what may be changed.
        let unseen = guarded.pods.as_ref().err().cloned();
        return Some(ChainEnd {
            unseen: unseen.into_iter().collect(),
            ..FirstCause::NeverAllows(never).into()
        });
    }
    None
}

fn is_outdated(budget: &Budget, pods: &[Pod]) -> bool {
    let pods: Vec<DrainPod> = pods.iter().map(DrainPod::from).collect();
    budget.is_outdated(pods.iter())
}

fn allows_once_counted(budget: &Budget, pods: &[Pod]) -> bool {
    let pods: Vec<DrainPod> = pods.iter().map(DrainPod::from).collect();
    budget.allows_once_counted(pods.iter())
}

/// The pods of a budget that can never allow an eviction would be replaced first, or one by one, if a node is left for a
/// replacement, and if they do not return to their own.
///
/// The budget may guard pods of several workloads, each with nodes of its own.
fn where_replaced(mut end: ChainEnd, kept: &[&Pod], pods: &[Pod], facts: &ClusterFacts) -> ChainEnd {
    if let FirstCause::NeverAllows(never) = &mut end.cause
        && !kept.is_empty()
        && kept.iter().all(|pod| is_assigned_by_template(pod))
    {
        (never.replaced, never.surge) = (Replaced::OnSameNode, None);
        end.subjects.extend(kept.iter().map(|pod| subject(pod)));
        return end;
    }
    if let (FirstCause::NeverAllows(never), Some(Ok(nodes))) = (&mut end.cause, &facts.nodes)
        && never.replaced != Replaced::Nowhere
    {
        never.apart = kept.iter().map(|pod| apart(pod, pods, nodes, facts)).min().unwrap_or(Apart::Enough);
        never.surge = never.surge.filter(|_| never.apart == Apart::Enough);
        let left = kept.iter().map(|pod| NoNodeLeft::of(pod, nodes, &facts.volumes, &facts.in_maintenance));
        let mut left: Vec<NoNodeLeft> = left.collect::<Option<_>>().unwrap_or_default();
        left.dedup();
        // Of workloads for which different nodes are left, no sentence is true of all.
        never.no_node = left.pop().filter(|_| left.is_empty());
        if never.no_node.is_some() {
            end.subjects.extend(kept.iter().map(|pod| subject(pod)));
        }
    }
    end
}

/// The pods that replace others and are not Ready, for each reason that does not end by itself.
pub fn stuck_replacements<'a>(
    pods: impl IntoIterator<Item = (&'a Pod, &'a [PodWarning])>,
    facts: &ClusterFacts,
    now: Timestamp,
) -> Vec<ChainEnd> {
    of_replacements(pods, facts, now, |obstacle| !obstacle.passes())
}

/// The pods that replace others and are not Ready, for each reason, those that do not end by themselves first.
pub fn replacements<'a>(
    pods: impl IntoIterator<Item = (&'a Pod, &'a [PodWarning])>,
    facts: &ClusterFacts,
    now: Timestamp,
) -> Vec<ChainEnd> {
    let mut ends = of_replacements(pods, facts, now, |_| true);
    ends.sort_by_key(|end| matches!(&end.cause, FirstCause::OtherPods(obstacle) if obstacle.passes()));
    ends
}

fn of_replacements<'a>(
    pods: impl IntoIterator<Item = (&'a Pod, &'a [PodWarning])>,
    facts: &ClusterFacts,
    now: Timestamp,
    is_concerned: impl Fn(&Obstacle) -> bool,
) -> Vec<ChainEnd> {
    let unready = pods.into_iter().filter_map(|(pod, warnings)| {
        let obstacle = obstacle(pod, warnings, facts, now).filter(&is_concerned)?;
        Some(UnreadyPod { pod, obstacle, is_kept: false })
    });
    let unready: Vec<UnreadyPod<'_>> = unready.collect();
    grouped(&unready.iter().collect::<Vec<_>>(), facts)
}

/// The pods of a Deployment that are not on this node, of those that a budget guards, with the warnings about them.
pub fn pods_elsewhere<'a>(
    deployment: &'a str,
    on: &'a str,
    guarded: &'a GuardedPods,
) -> impl Iterator<Item = (&'a Pod, &'a [PodWarning])> {
    let is_of = move |pod: &&Pod| {
        owner_of(pod)
            .is_some_and(|owner| *owner.kind() == OwnerKind::Deployment && owner.name() == deployment)
    };
    let pods = guarded.pods.iter().flatten().filter(is_of).filter(move |pod| node_of(pod) != Some(on));
    pods.map(|pod| (pod, warnings_about(pod, guarded)))
}

/// What keeps the pods that the budget counts on from being Ready, unless enough are once they are counted: what is stuck, then pods that are not created, then what
/// passes by itself, then pods whose owner waits until they have left.
fn by_pods(
    unready: &[UnreadyPod<'_>],
    object: &PodDisruptionBudget,
    guarded: &GuardedPods,
    facts: &ClusterFacts,
) -> Vec<ChainEnd> {
    if allows_once_counted(&Budget::from(object), guarded.pods.as_deref().unwrap_or_default()) {
        return vec![FirstCause::Outdated.into()];
    }
    let missing = guarded.incomplete_owners.iter().cloned().map(FirstCause::NotCreated);
    let missing: Vec<ChainEnd> = missing.map(ChainEnd::from).collect();
    let passing = among(unready, facts, |obstacle| !is_leaving(obstacle) && obstacle.passes());
    let leaving = among(unready, facts, is_leaving);
    let found = [stuck(unready, facts), missing, passing, leaving].into_iter().find(|ends| !ends.is_empty());
    found.unwrap_or_else(|| {
        let status = object.status.clone().unwrap_or_default();
        let has_evicted = status.disrupted_pods.is_some_and(|pods| !pods.is_empty());
        // All of them are Ready. Of those that were evicted, some may have left without being replaced.
        let pods = i32::try_from(guarded.pods.as_ref().map_or(0, Vec::len)).unwrap_or(i32::MAX);
        let is_healthy = status.current_healthy > status.desired_healthy;
        let cause = if is_healthy || (has_evicted && pods > status.desired_healthy) {
            FirstCause::JustEvicted
        } else if is_outdated(&Budget::from(object), guarded.pods.as_deref().unwrap_or_default()) {
            FirstCause::Outdated
        } else {
            FirstCause::TooFew
        };
        vec![cause.into()]
    })
}

/// The end of the chain behind a pod that is not Ready. `excluded` are the nodes that other pods keep it from.
fn of_pod(
    unready: &UnreadyPod<'_>,
    excluded: &BTreeSet<String>,
    facts: &ClusterFacts,
) -> (FirstCause, Option<Unseen>) {
    let obstacle = match (&unready.obstacle, node_of(unready.pod)) {
        (Obstacle::Terminating, Some(node)) if facts.is_silent(node) => Obstacle::NeverEnds(node.to_owned()),
        (obstacle, _) => obstacle.clone(),
    };
    if unready.is_kept {
        return (FirstCause::ItsOwnPods(obstacle), None);
    }
    let is_unschedulable = matches!(obstacle, Obstacle::Unschedulable(_));
    let cause = FirstCause::OtherPods(obstacle);
    match &facts.nodes {
        Some(Err(unseen)) if is_unschedulable => (cause, Some(unseen.clone())),
        Some(Ok(nodes)) if is_unschedulable => {
            let left = NoNodeLeft::of(unready.pod, nodes, &facts.volumes, &facts.in_maintenance);
            (left.map_or(cause, |left| FirstCause::NoNodeLeft(left.without(excluded))), None)
        }
        _ => (cause, None),
    }
}

/// Pods with equal causes together.
fn grouped(unready: &[&UnreadyPod<'_>], facts: &ClusterFacts) -> Vec<ChainEnd> {
    let mut groups: Vec<ChainEnd> = Vec::new();
    for pod in unready {
        let (suits, excluded) = match (&pod.obstacle, &facts.nodes) {
            (Obstacle::Unschedulable(_), Some(Ok(nodes))) => {
                let excluded = excluded_nodes(pod.pod, facts);
                let suits = no_node_left::suitable(pod.pod, nodes, &facts.volumes, &facts.in_maintenance);
                (&suits - &excluded, excluded)
            }
            _ => (BTreeSet::new(), BTreeSet::new()),
        };
        let (cause, unseen) = of_pod(pod, &excluded, facts);
        let subject = Subject { suits, ..subject(pod.pod) };
        match groups.iter_mut().find(|group| group.cause == cause) {
            Some(group) => group.subjects.push(subject),
            None => groups.push(ChainEnd {
                subjects: vec![subject],
                unseen: unseen.into_iter().collect(),
                ..cause.into()
            }),
        }
    }
    groups
}

fn restarts(containers: Option<&[ContainerStatus]>) -> i32 {
    containers.unwrap_or_default().iter().map(|container| container.restart_count).sum()
}

/// A pod that a cause is about.
pub fn subject(pod: &Pod) -> Subject {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unready = conditions.find(|condition| condition.type_ == "Ready" && condition.status != "True");
    Subject {
        pod: reference_in(&pod.metadata),
        node: node_of(pod).map(str::to_owned),
        restarts: restarts(containers),
        init_restarts: restarts(
            pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref()),
        ),
        has_ended_container: has_ended_container(pod),
        unready_since: unready.and_then(|unready| Some(unready.last_transition_time.as_ref()?.0)),
        starting_since: starting_since(pod),
        deadline: pod.metadata.deletion_timestamp.as_ref().map(|at| at.0),
        grace_seconds: pod.metadata.deletion_grace_period_seconds,
        is_counted_later: pod::waits_for_its_job(&DrainPod::from(pod)),
        owner: owner_of(pod),
        suits: BTreeSet::new(),
    }
}

/// Whether only the Jobs of these pods keep them, all of which have ended.
pub(super) fn are_counted_later(subjects: &[Subject]) -> bool {
    !subjects.is_empty() && subjects.iter().all(|subject| subject.is_counted_later)
}

/// What keeps a pod from being Ready. On a node that does not report, none starts.
fn obstacle(pod: &Pod, warnings: &[PodWarning], facts: &ClusterFacts, now: Timestamp) -> Option<Obstacle> {
    let seen = Obstacle::of(pod, warnings, now)?;
    let silent = node_of(pod).filter(|_| seen.is_start()).filter(|node| facts.is_silent(node));
    Some(silent.map_or(seen, |node| Obstacle::SilentNode(node.to_owned())))
}

fn warnings_about<'a>(pod: &Pod, guarded: &'a GuardedPods) -> &'a [PodWarning] {
    let warnings = pod.metadata.uid.as_ref().and_then(|uid| guarded.warnings.get(uid));
    warnings.map(Vec::as_slice).unwrap_or_default()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
