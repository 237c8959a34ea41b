//! What the cluster shows of the objects behind a maintenance that makes no progress, as far as the user may read them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::cluster::resource_quota::FullQuota;
use nm_shared::cluster::volumes::Volumes;
use nm_shared::{BlockReason, BlockedPod, ForbiddenAccess, NodeMaintenance, Phase, PodReference, WaitReason};

use crate::explain::deletions;
use crate::explain::obstacle::PodWarning;
use crate::explain::owner::{Owner, owner_of};
use crate::explain::pending_claim::{ListedVolumes, PendingClaim};
use crate::maintenance::roll::{RollRunners, awaits_confirmation, has_failed_action};
use crate::maintenance::roll_job::{RollJob, UnstartedJob};
use crate::maintenance::slow_surge::SlowSurge;
use crate::maintenance::{State, node, purpose, roll_name, status};
use crate::terminal::shortened::beginning;

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unseen {
    /// The user lacks this permission, as RBAC words it: `list pods`.
    Forbidden(String),
    /// The request failed: the request, and the error.
    Failed(String, String),
}

/// What the cluster shows. Without facts, causes are explained by the status alone.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    /// The budgets that pods wait for, or are blocked by.
    pub budgets: BTreeMap<PodReference, GuardedPods>,
    /// Those of several nodes that were not read, because they are too many.
    pub unread_budgets: BTreeSet<PodReference>,
    /// All nodes. None if no cause depends on them.
    pub nodes: Option<Result<Vec<Node>, Unseen>>,
    /// The volumes of pods for which it matters which nodes they fit, as far as they could be read.
    pub volumes: Volumes,
    /// What the volumes of the cluster show to claims that have none; none if no claim waits for one, or before they are listed.
    pub listed_volumes: Option<ListedVolumes>,
    /// The claims whose volumes were read, or could not be.
    pub claims: BTreeSet<PodReference>,
    /// The nodes that a maintenance has cordoned.
    pub in_maintenance: BTreeSet<String>,
    /// The reasons of their maintenances, as far as these have one.
    pub purposes: BTreeMap<String, String>,
    /// Those of them that are drained.
    pub drained: BTreeSet<String>,
    /// Those of them that are part of rolls.
    pub of_rolls: BTreeMap<String, NodeOfRoll>,
    /// How many nodes of each roll are not drained, including those that are planned.
    pub undrained: BTreeMap<String, usize>,
    /// The pods that are terminating, by node.
    pub terminating: BTreeMap<String, Result<Vec<Pod>, Unseen>>,
    /// Who runs the rolls that planned maintenances are part of.
    pub rolls: RollRunners,
    /// The Jobs of the rolls in the cluster that nobody runs, by the names of the rolls.
    pub roll_jobs: BTreeMap<String, RollJob>,
    /// The pods that replace others first and are not Ready yet, those that they replace, those that keep returning, and those that
    /// their emptyDir data or a missing controller keeps, as far as they were read; none if one does not exist any more.
    pub replacements: BTreeMap<PodReference, Result<Option<ReadPod>, Unseen>>,
    /// The pods that drains leave to terminate on their own without a time limit, as far as they could be read.
    pub awaited: BTreeMap<PodReference, ReadPod>,
    /// The Jobs of these pods, as far as they could be read.
    pub awaited_jobs: BTreeMap<PodReference, Job>,
    /// The pods of the Deployments whose rollouts have no new pod yet for a pod that waits for one.
    pub rollouts: BTreeMap<PodReference, Result<Vec<ReadPod>, Unseen>>,
    /// What nm-reconciler was denied when it last tried, and may do by now.
    pub granted: Vec<ForbiddenAccess>,
    /// Whether nm-reconciler may not delete pods, although it is to delete those whose evictions are refused for long.
    pub is_deletion_denied: bool,
    /// Whether nm-reconciler may restart Deployments (`--grant surge`); none if that is not known.
    pub is_surge_granted: Option<bool>,
    /// The explained nodes that are not Ready.
    pub unready: BTreeMap<String, UnreadyNode>,
    /// Since when the others of them have been Ready.
    pub ready_since: BTreeMap<String, Timestamp>,
    /// The workloads that have no ready pod since pods of theirs left these nodes.
    pub outages: BTreeMap<String, Vec<Outage>>,
    /// The workloads that lack pods since pods of theirs left these nodes, and have ready ones.
    pub lacking: BTreeMap<String, Vec<Outage>>,
    /// The pods that the scheduler has preempted, as far as there are events.
    pub preempted: Vec<PreemptedPod>,
    /// The nodes that more pods have left than events show: no container of a pod that crashes need run when it is deleted.
    pub partly_seen: BTreeSet<String>,
    /// Why more workloads may be without a ready pod since pods of theirs left these nodes.
    pub outage_gaps: BTreeMap<String, BTreeSet<OutageGap>>,
    /// The Jobs that have failed for good since pods of theirs left these nodes.
    pub failed_jobs: BTreeMap<String, Vec<FailedJob>>,
    /// The nodes that have halted the rolls of explained maintenances.
    pub halted: BTreeMap<String, Node>,
    /// What the explained nodes wait for whose turn in a roll has not come, in sentences.
    pub turns: BTreeMap<String, Vec<String>>,
    /// The Jobs that rolls run for explained nodes whose pods do not start.
    pub job_problems: BTreeMap<String, UnstartedJob>,
    /// The explained nodes that do not exist.
    pub deleted: BTreeSet<String>,
}

/// A node in maintenance that is part of a roll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOfRoll {
    /// The roll.
    pub roll: String,
    /// Whether its roll returns it without anybody's help, as far as its status shows: nothing keeps its drain from finishing, or
    /// its roll from continuing after that.
    pub returns: bool,
    /// A surge of its drain whose new pods are not Ready: it may wait for another node, without being blocked.
    pub surge: Option<SlowSurge>,
    /// Whether its roll continues with it once somebody has confirmed that.
    pub awaits_confirmation: bool,
}

/// Why it is not known of all workloads whether a drain has left them without a ready pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutageGap {
    /// They could not be read.
    Unseen(Unseen),
    /// There are more events about stopped pods than are read at most.
    MoreEvents(u32),
    /// The pods that left are of more namespaces than are read at most; how many were not read.
    MoreNamespaces(usize),
    /// This namespace has more warnings about pods than are read at most: a workload may have been down before the drain.
    MoreWarnings(String),
    /// There are more Jobs in a namespace than are read at most.
    MoreJobs {
        /// The namespace.
        namespace: String,
        /// How many are read.
        limit: u32,
    },
    /// The API server does not have the events of so many pods that left, and some workloads of the cluster have no ready pod.
    Expired {
        /// How many pods, at least.
        pods: i32,
        /// Workloads without a ready pod, each with its namespace; none if they could not be read.
        down: Vec<String>,
    },
}

impl OutageGap {
    /// Whether a limit of this program is the cause.
    pub fn is_limit(&self) -> bool {
        !matches!(self, Self::Unseen(_) | Self::Expired { .. })
    }
}

/// A node that is not Ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadyNode {
    /// Since when.
    pub since: Option<Timestamp>,
    /// What its kubelet reports; none if it does not report any more.
    pub message: Option<String>,
}

impl UnreadyNode {
    /// What a node shows; none if it is Ready.
    pub fn of(node: &Node) -> Option<Self> {
        let conditions = node.status.as_ref()?.conditions.as_deref()?;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status != "True").then(|| Self {
            since: ready.last_transition_time.as_ref().map(|at| at.0),
            message: (ready.status == "False").then(|| ready.message.clone().unwrap_or_default()),
        })
    }
}

/// A pod with the warnings about it, the newest last.
#[derive(Debug, Clone)]
pub struct ReadPod {
    /// The pod.
    pub pod: Pod,
    /// The warnings.
    pub warnings: Vec<PodWarning>,
}

/// A budget and the pods that it guards.
#[derive(Debug, Clone)]
pub struct GuardedPods {
    /// The budget; none if it does not exist any more.
    pub budget: Result<Option<PodDisruptionBudget>, Unseen>,
    /// The pods that it selects.
    pub pods: Result<Vec<Pod>, Unseen>,
    /// The owners of these pods that cannot create all of their pods.
    pub incomplete_owners: Vec<IncompleteOwner>,
    /// The warnings about pods that are not Ready, by uid, the newest last.
    pub warnings: HashMap<String, Vec<PodWarning>>,
    /// Whether its pods are all of Deployments that nothing is known to keep from replacing them before they leave. Read only
    /// if the budget can never allow an eviction.
    pub may_surge: bool,
    /// A quota that allows none of them an additional pod, if they may be replaced first, and quotas could be read.
    pub full_quota: Option<FullQuota>,
}

/// An owner that cannot create all of its pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IncompleteOwner {
    /// Its namespace.
    pub namespace: String,
    /// The owner.
    pub owner: Owner,
    /// How many pods are missing.
    pub missing: i32,
    /// Why, in the words of its controller.
    pub message: String,
}

/// A workload without a ready pod, or with too few, and what is known of it.
#[derive(Debug, Clone)]
pub struct Outage {
    /// The workload, and what it shows.
    pub workload: Workload,
    /// The pods of it that left the node, or do.
    pub left: Vec<StoppedPod>,
    /// The pods of it that were preempted for those that replace pods of the node.
    pub preempted: Vec<PreemptedPod>,
    /// How many of these are still terminating.
    pub terminating: usize,
    /// When its last pod was stopped on any node since the drain started.
    pub last_stopped: Timestamp,
    /// Since when all pods that have been stopped since the drain started had been failing, if they already had before.
    pub failing_since: Option<Timestamp>,
    /// The pods that it has now and that are not Ready, without those that terminate. If others are Ready, those that were
    /// created since the drain began.
    pub pods: Vec<ReadPod>,
}

/// A pod whose containers a kubelet has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedPod {
    /// The pod.
    pub pod: PodReference,
    /// Its uid.
    pub uid: String,
    /// Its node.
    pub node: String,
    /// When the kubelet reported that last.
    pub at: Timestamp,
}

/// A pod that the scheduler has terminated to place another one on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptedPod {
    /// The pod.
    pub pod: PodReference,
    /// Its uid.
    pub uid: String,
    /// The uid of the other one, of higher priority.
    pub by_uid: String,
    /// The other one; none if it is not known.
    pub by: Option<Preemptor>,
    /// When it was preempted.
    pub at: Timestamp,
}

/// The pod that the scheduler has placed instead of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemptor {
    /// The pod.
    pub pod: PodReference,
    /// Whether a DaemonSet controls it, as far as it still exists.
    pub is_of_daemon_set: bool,
}

/// A Job that has failed for good after pods of it left a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedJob {
    /// The Job.
    pub job: PodReference,
    /// Why it has failed, as its condition shows.
    pub reason: String,
    /// When it was decided to fail.
    pub at: Timestamp,
    /// How many pods of it left the node.
    pub left: usize,
}

/// A workload that counts its ready pods.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// What it is, as the owner of its pods.
    pub owner: Owner,
    /// How many pods it is to have.
    pub wanted: i32,
    /// How many pods it has.
    pub existing: i32,
    /// How many of its pods are Ready.
    pub ready: i32,
    /// Since when it has been unavailable, as its condition shows; none if it is available, or has no such condition.
    pub unavailable_since: Option<Timestamp>,
    /// The pods that it cannot create, if it reports that.
    pub incomplete: Option<IncompleteOwner>,
}

impl ClusterFacts {
    /// Whether the kubelet of a node is known not to report any more.
    pub(super) fn is_silent(&self, name: &str) -> bool {
        let nodes = self.nodes.iter().flat_map(|nodes| nodes.iter().flatten());
        let read = nodes.filter(|node| node.metadata.name.as_deref() == Some(name)).find_map(UnreadyNode::of);
        let unready = read.as_ref().or_else(|| self.unready.get(name));
        unready.is_some_and(|unready| unready.message.is_none())
    }

    /// Whether a blocked pod is known to have no controller.
    pub(super) fn is_bare(&self, pod: &BlockedPod) -> bool {
        self.read_pod(pod).is_some_and(|pod| owner_of(pod).is_none())
    }

    /// A blocked pod, if it was read and exists.
    pub(super) fn read_pod(&self, pod: &BlockedPod) -> Option<&Pod> {
        Some(&self.replacements.get(&pod.reference())?.as_ref().ok()?.as_ref()?.pod)
    }

    /// The pods that budgets count on, those of surges, and those of workloads that are down.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        let guarded = self.budgets.values().filter_map(|guarded| guarded.pods.as_ref().ok()).flatten();
        let replacements = self.replacements.values().flatten().flatten();
        let of_rollouts = self.rollouts.values().flatten().flatten();
        let of_outages = self.outages_and_lacking().flat_map(|outage| &outage.pods);
        guarded.chain(replacements.chain(of_rollouts).chain(of_outages).map(|read| &read.pod))
    }

    /// The claims without a volume that keep these pods from being scheduled.
    pub(super) fn pending_claims(&mut self) -> impl Iterator<Item = &mut PendingClaim> {
        let of_budgets = self.budgets.values_mut().flat_map(|guarded| guarded.warnings.values_mut());
        let outages = self.outages.values_mut().chain(self.lacking.values_mut()).flatten();
        let replacements = self.replacements.values_mut().flatten().flatten();
        let read = replacements
            .chain(self.awaited.values_mut())
            .chain(self.rollouts.values_mut().flatten().flatten());
        let read = read.chain(outages.flat_map(|outage| &mut outage.pods)).map(|read| &mut read.warnings);
        of_budgets.chain(read).flatten().filter_map(|warning| warning.claim.as_mut())
    }

    /// The workloads that lack pods since pods of theirs left nodes.
    pub(super) fn outages_and_lacking(&self) -> impl Iterator<Item = &Outage> {
        self.outages.values().chain(self.lacking.values()).flatten()
    }

    /// Facts of which only the nodes in maintenance are known.
    pub fn of_maintenances<'a>(all: impl IntoIterator<Item = &'a NodeMaintenance>) -> Self {
        let is_cordoned = |object: &&NodeMaintenance| {
            let status = status(object);
            // The medik8s operator writes no conditions.
            let is_under_way = matches!(status.phase, Some(Phase::Running | Phase::Succeeded));
            State::of(object) != State::Stopping && (status.has_begun() || is_under_way)
        };
        let mut facts = Self::default();
        for object in all {
            facts.rolls.note(object);
            if let Some(roll) = roll_name(object)
                && !matches!(State::of(object), State::Drained | State::Stopping)
            {
                *facts.undrained.entry(roll.to_owned()).or_default() += 1;
            }
            if is_cordoned(&object) {
                facts.in_maintenance.insert(node(object).to_owned());
                let purpose = purpose(object).map(|purpose| (node(object).to_owned(), beginning(purpose)));
                facts.purposes.extend(purpose);
                let is_drained = State::of(object) == State::Drained;
                facts.drained.extend(is_drained.then(|| node(object).to_owned()));
                let awaits_confirmation = awaits_confirmation(object);
                let returns = (is_drained || State::of(object) == State::Draining)
                    && !awaits_confirmation
                    && !has_failed_action(object);
                let of_roll = roll_name(object).map(|roll| NodeOfRoll {
                    roll: roll.to_owned(),
                    returns,
                    surge: SlowSurge::of(object).filter(|_| !is_drained),
                    awaits_confirmation,
                });
                facts.of_rolls.extend(of_roll.map(|of_roll| (node(object).to_owned(), of_roll)));
            }
        }
        facts
    }

    /// Replaces what maintenances show by what they show now, and keeps the rest.
    pub fn note_maintenances<'a>(&mut self, all: impl IntoIterator<Item = &'a NodeMaintenance>) {
        let Self { rolls, in_maintenance, purposes, drained, of_rolls, undrained, .. } =
            Self::of_maintenances(all);
        (self.rolls, self.in_maintenance, self.purposes) = (rolls, in_maintenance, purposes);
        (self.drained, self.of_rolls, self.undrained) = (drained, of_rolls, undrained);
    }
}

/// What has to be read to explain maintenances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FactsToRead {
    /// The budgets.
    pub budgets: BTreeSet<PodReference>,
    /// The nodes of pods that are terminating.
    pub nodes: BTreeSet<String>,
    /// The pods that replace others first and are not Ready yet, those that they replace, and those that keep returning.
    pub replacements: BTreeSet<PodReference>,
    /// The pods that their emptyDir data keeps.
    pub kept: BTreeSet<PodReference>,
    /// The pods without a controller that stay because nothing would replace them.
    pub bare: BTreeSet<PodReference>,
    /// Whether it matters which nodes can take some of these pods: they keep returning, or their data keeps them.
    pub has_unplaced: bool,
    /// The pods that drains leave to terminate on their own without a time limit.
    pub awaited: BTreeSet<PodReference>,
    /// The Deployments of pods that wait for another rollout, or for their replacements to be created.
    pub rollouts: BTreeSet<PodReference>,
    /// What nm-reconciler was denied.
    pub denied: Vec<ForbiddenAccess>,
    /// Whether nm-reconciler may delete pods.
    pub pod_deletion: bool,
}

impl FactsToRead {
    /// What has to be read to explain these maintenances.
    pub fn of<'a>(maintenances: impl IntoIterator<Item = &'a NodeMaintenance>) -> Self {
        let mut facts = Self::default();
        for object in maintenances {
            if State::of(object) == State::Stopping {
                continue;
            }
            let status = status(object);
            let of = |namespace: &str, name: &str| PodReference {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            for pod in &status.blocked_pods {
                let read = match pod.reason {
                    BlockReason::KeepsReturning => Some(&mut facts.replacements),
                    BlockReason::LocalStorage => Some(&mut facts.kept),
                    BlockReason::Unmanaged => Some(&mut facts.bare),
                    _ => None,
                };
                facts.has_unplaced |= read.is_some() && pod.reason != BlockReason::Unmanaged;
                if let Some(pods) = read {
                    pods.insert(pod.reference());
                }
                if let Some(budget) = &pod.facts.budget {
                    facts.budgets.insert(of(&pod.namespace, &budget.name));
                }
            }
            for access in status.blocked_pods.iter().filter_map(|pod| pod.facts.forbidden.as_ref()) {
                if !facts.denied.contains(access) {
                    facts.denied.push(access.clone());
                }
            }
            facts.pod_deletion |= deletions::are_awaited(object);
            for pod in status.waiting_pods.iter().flatten() {
                if let (WaitReason::BudgetTurn, Some(budget)) = (pod.reason, &pod.budget) {
                    facts.budgets.insert(of(&pod.namespace, &budget.name));
                }
                if pod.reason == WaitReason::Completing && pod.until.is_none() {
                    facts.awaited.insert(pod.reference());
                }
            }
            for pod in status.surging_pods.iter().flatten() {
                match &pod.replacement {
                    Some(replacement) if replacement.ready => {}
                    // Until then, the replaced pod takes its room on the node.
                    Some(replacement) => {
                        facts.replacements.extend([of(&pod.namespace, &replacement.name), pod.reference()]);
                    }
                    None => {
                        facts.rollouts.insert(of(&pod.namespace, &pod.deployment));
                    }
                }
            }
            if status.pod_counts.terminating > 0 {
                facts.nodes.insert(node(object).to_owned());
            }
        }
        facts
    }

    /// Whether nothing has to be read.
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
            && self.nodes.is_empty()
            && self.replacements.is_empty()
            && self.kept.is_empty()
            && self.bare.is_empty()
            && self.awaited.is_empty()
            && self.rollouts.is_empty()
            && self.denied.is_empty()
            && !self.pod_deletion
    }
}
