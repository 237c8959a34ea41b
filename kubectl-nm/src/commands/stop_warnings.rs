//! What `kubectl nm stop` warns of: what a node leaves with its maintenance, and what continues after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::ending::is_of_medik8s_operator;
use nm_core::maintenance::roll::{RollRunners, RollStanding};
use nm_core::maintenance::{hooks_removed, node, roll_name, status, uid};
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::text::{Line, counted, first_names};
use nm_roll::job;
use nm_roll::record::{ActionState, Roll, RollNode};
use nm_roll::settings::NodeAction;
use nm_shared::api::surge::SurgeObstacle;
use nm_shared::{BlockReason, Grant, GroupedMaintenance, Hook, MigratingPod, NodeMaintenance};

/// What is said of a maintenance that is stopped. `kubectl` is kubectl with the connection flags.
pub(super) fn of(object: &NodeMaintenance, kubectl: &str) -> Vec<Line> {
    let mut lines = machines(object);
    lines.extend(rollouts(object, kubectl));
    lines.extend(unready(object));
    lines.extend(kept_by_hooks(object));
    lines
}

/// The rolls of a cluster, as they are before some of their nodes are stopped.
pub(super) struct StoppedRolls<'a> {
    /// All maintenances.
    objects: Vec<Arc<NodeMaintenance>>,
    /// The ones that are stopped.
    stopped: &'a [GroupedMaintenance],
    runners: RollRunners,
    now: Timestamp,
}

impl<'a> StoppedRolls<'a> {
    pub(super) fn of(all: &[GroupedMaintenance], stopped: &'a [GroupedMaintenance], now: Timestamp) -> Self {
        let objects: Vec<_> = all.iter().map(|object| Arc::new(object.maintenance.clone())).collect();
        let runners = RollRunners::of(objects.iter().map(|object| &**object));
        Self { objects, stopped, runners, now }
    }

    /// What it means for the rolls of these nodes that the nodes are stopped.
    pub(super) fn warnings(&self, kubectl: &str) -> Vec<Line> {
        let ends = self.stopped.iter().filter(|object| object.metadata.deletion_timestamp.is_none());
        let mut by_roll: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, object) in ends.filter_map(|object| Some((roll_name(object)?, object))) {
            by_roll.entry(name).or_default().push(node(object).to_owned());
        }
        let mut warnings = Vec::new();
        for (name, nodes) in by_roll {
            // A roll that cannot be read may still need the nodes.
            let roll = Roll::find(name, &self.objects).ok().flatten();
            warnings.extend(self.leave(name, roll.as_ref(), &nodes).map(Line::new));
            let action = |node: &String| ended_action(roll.as_ref()?, node, &self.runners, kubectl, self.now);
            warnings.extend(nodes.iter().filter_map(action));
        }
        warnings
    }

    /// That the roll is not done with these nodes; none if the roll was aborted, or does not need them any more.
    fn leave(&self, name: &str, roll: Option<&Roll>, nodes: &[String]) -> Option<String> {
        let record = roll.and_then(|roll| roll.record.as_ref());
        let is_released =
            |node: &str| record.is_some_and(|record| record.released.iter().any(|released| released == node));
        let needed: Vec<String> = nodes.iter().filter(|node| !is_released(node)).cloned().collect();
        let (leaves, them) = match needed.as_slice() {
            _ if record.is_some_and(|record| record.aborted.is_some()) => return None,
            [] => return None,
            [node] => (format!("warning: node/{node} leaves roll {name} before the node is done"), "it"),
            nodes => (
                format!("warning: nodes {} leave roll {name} before they are done", first_names(nodes)),
                "them",
            ),
        };
        let is_stopped = |node: &RollNode| self.stopped.iter().any(|object| uid(object) == uid(&node.object));
        let stays =
            |other: &RollNode| !is_stopped(other) && !other.is_leaving() && !is_released(other.node());
        let has_absent = record.is_some_and(|record| !record.absent.is_empty());
        if roll.is_some_and(|roll| !roll.nodes.iter().any(stays)) && !has_absent {
            return Some(format!("{leaves}. No other node is left in the roll, so that the roll ends"));
        }
        let when = match self.runners.standing(name, self.now) {
            Some(RollStanding::Paused | RollStanding::Halted | RollStanding::Abandoned) => {
                ", once it continues,"
            }
            _ => "",
        };
        // A roll in the cluster has no exit code.
        let ends = match roll {
            Some(roll) if !roll.settings.in_cluster => "exits with code 3 even if its other nodes are done",
            _ => &format!("ends without {them}"),
        };
        Some(format!(
            "{leaves}, so that the roll{when} {ends}. `kubectl nm roll abort {name}` aborts the whole roll"
        ))
    }
}

/// That the command or the Job of the roll runs for the node now, and what becomes of it when the maintenance of the node ends.
pub(super) fn ended_action(
    roll: &Roll,
    name: &str,
    runners: &RollRunners,
    kubectl: &str,
    now: Timestamp,
) -> Option<Line> {
    let node = roll.node(name)?;
    node.record.current_action().filter(|action| action.state == ActionState::Running)?;
    let (roll_name, is_run) = (&roll.name, runners.is_run(&roll.name, now));
    // A roll halts once what is under way has finished. A pod that begins to run one that has halted does not follow any Job.
    let is_followed = is_run && runners.halt(&roll.name).is_none();
    let warning = match roll.settings.action_of(node.record.step)? {
        NodeAction::Run(_) if !is_run => return None,
        NodeAction::Run(_) => format!(
            "warning: the command of roll {roll_name} runs for node/{name} now: the roll terminates it within seconds"
        ),
        NodeAction::Job(_) if is_followed => {
            format!(
                "warning: the Job of roll {roll_name} runs for node/{name} now: the roll deletes it within seconds"
            )
        }
        NodeAction::Job(template) => {
            let job = job::of_node(template, &roll.name, name, &node.record);
            let part =
                |field: &str| shell_quoted(job["metadata"][field].as_str().unwrap_or_default()).into_owned();
            format!(
                "warning: the Job of roll {roll_name} may still run for node/{name}: if it exists, \
                 `{kubectl} -n {} delete job {}` deletes it",
                part("namespace"),
                part("name")
            )
        }
    };
    Some(Line::new(warning))
}

/// The rollouts that the maintenance has started, which its end does not end, and the command that reverts one.
fn rollouts(object: &NodeMaintenance, kubectl: &str) -> Vec<Line> {
    let status = status(object);
    let surging = status.surging_pods.iter().flatten().filter(|pod| pod.restarted);
    let mut started: BTreeSet<(&str, &str)> =
        surging.map(|pod| (pod.namespace.as_str(), pod.deployment.as_str())).collect();
    // A rollout that does not proceed blocks its pods, and may proceed later.
    let restarted = || status.restarted_replica_sets.iter().flatten();
    started.extend(status.blocked_pods.iter().filter_map(|pod| {
        let surge = pod.facts.surge.as_ref()?;
        let is_stuck = matches!(surge.reason, SurgeObstacle::Stalled | SurgeObstacle::CreationFailed);
        let is_of = |set: &str| pod.name.strip_prefix(set).is_some_and(|rest| rest.starts_with('-'));
        let is_restarted = restarted().any(|set| set.namespace == pod.namespace && is_of(&set.name));
        (is_stuck && is_restarted).then_some((pod.namespace.as_str(), surge.deployment.as_deref()?))
    }));
    let Some((namespace, deployment)) = started.first() else { return Vec::new() };
    let names: Vec<String> =
        started.iter().map(|(namespace, deployment)| format!("{namespace}/{deployment}")).collect();
    let (continues, reverts) = match names.len() {
        1 => ("continues", String::from("it")),
        _ => ("continue", format!("the rollout of {}", names[0])),
    };
    let count = counted(names.len(), "rollout");
    let undo = format!(
        "{kubectl} -n {} rollout undo deployment/{}",
        shell_quoted(namespace),
        shell_quoted(deployment)
    );
    [
        format!(
            "warning: {count} that the maintenance of node/{} has started {continues}: {}",
            node(object),
            first_names(&names)
        ),
        format!("hint: unless the Deployment has changed since, `{undo}` reverts {reverts}"),
    ]
    .map(Line::new)
    .into()
}

/// The hooks that keep the node cordoned.
fn kept_by_hooks(object: &NodeMaintenance) -> Option<Line> {
    let is_kept = status(object).has_begun() && !is_of_medik8s_operator(object);
    let removed = hooks_removed(&Hook::before_return(&object.metadata)).filter(|_| is_kept)?;
    Some(Line::new(format!("node/{}: the node stays cordoned until {removed}", node(object))))
}

/// The pods that are terminating on a node that is not Ready. The end of the maintenance does not end them.
fn unready(object: &NodeMaintenance) -> Option<Line> {
    let pods = status(object).blocked_pods.iter().filter(|pod| pod.reason == BlockReason::NodeNotReady);
    let pods: Vec<String> = pods.map(|pod| pod.reference().to_string()).collect();
    let (verb, its) = if pods.len() == 1 { ("is", "it does") } else { ("are", "they do") };
    (!pods.is_empty()).then(|| {
        Line::new(format!(
            "warning: node/{} is not Ready, and {} of its pods {verb} terminating: {its} not terminate until the \
             kubelet reports again, or the node has the taint node.kubernetes.io/out-of-service: {}",
            node(object),
            pods.len(),
            first_names(&pods)
        ))
    })
}

/// The virtual machines that leave although the maintenance ends, and how others could be kept.
pub(super) fn machines(object: &NodeMaintenance) -> Vec<Line> {
    let node = node(object);
    let migrating = || status(object).migrating_pods.iter().flatten();
    let mut leaving: BTreeSet<String> = migrating()
        .filter(|pod| !pod.stays_on_stop)
        .map(|pod| {
            let target = pod.target.as_ref().map(|target| format!(" to {target}"));
            format!("{}/{}{}", pod.namespace, pod.machine, target.unwrap_or_default())
        })
        .collect();
    // What nm-reconciler may not read, it cannot keep either.
    let unseen = status(object).blocked_pods.iter().filter(|pod| {
        let is_of_machine =
            matches!(pod.reason, BlockReason::MigrationNotStarted | BlockReason::MigrationFailed);
        is_of_machine && pod.facts.migration.is_none()
    });
    let unseen: Vec<String> = unseen.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let has_unseen = !unseen.is_empty();
    leaving.extend(unseen);
    if leaving.is_empty() {
        return Vec::new();
    }
    let (count, names) = (counted(leaving.len(), "virtual machine"), leaving.into_iter().collect::<Vec<_>>());
    let leave = if names.len() == 1 { "leaves" } else { "leave" };
    let warning = format!("warning: {count} still {leave} node/{node}: {}", first_names(&names));
    let has_begun = |pod: &MigratingPod| pod.migration.is_some() || pod.target.is_some();
    let is_keepable = |pod: &MigratingPod| !pod.stays_on_stop && !has_begun(pod);
    let hint = (has_unseen || migrating().any(is_keepable)).then(|| {
        format!(
            "hint: after `kubectl nm install --grant {}`, virtual machines whose migration has not \
             started stay on the node",
            Grant::VirtualMachines
        )
    });
    [Some(warning), hint].into_iter().flatten().map(Line::new).collect()
}
