//! What it means for rolls that the maintenances of some of their nodes are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::roll::{RollRunners, RollStanding};
use nm_core::maintenance::{node, roll_name, uid};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_core::terminal::text::first_names;
use nm_shared::NodeMaintenance;

use crate::job;
use crate::record::{Roll, RollNode};
use crate::settings::NodeAction;

/// The rolls of a cluster, as they are before some of their nodes are stopped.
pub struct StoppedRolls<'a> {
    /// All maintenances.
    objects: Vec<Arc<NodeMaintenance>>,
    /// The ones that are stopped.
    stopped: Vec<&'a NodeMaintenance>,
    runners: RollRunners,
    now: Timestamp,
}

impl<'a> StoppedRolls<'a> {
    /// The rolls of these maintenances, among all.
    pub fn of(
        all: impl Iterator<Item = Arc<NodeMaintenance>>,
        stopped: impl Iterator<Item = &'a NodeMaintenance>,
        now: Timestamp,
    ) -> Self {
        let stopped: Vec<&NodeMaintenance> = stopped.collect();
        let rolls: BTreeSet<&str> = stopped.iter().filter_map(|object| roll_name(object)).collect();
        let objects: Vec<Arc<NodeMaintenance>> =
            all.filter(|object| roll_name(object).is_some_and(|roll| rolls.contains(roll))).collect();
        let runners = RollRunners::of(objects.iter().map(|object| &**object));
        Self { objects, stopped, runners, now }
    }

    /// What it means for the rolls of these nodes that the nodes are stopped. `kubectl` is kubectl with the connection flags.
    pub fn warnings(&self, kubectl: &str) -> Vec<String> {
        let ends = self.stopped.iter().filter(|object| object.metadata.deletion_timestamp.is_none());
        let mut by_roll: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, object) in ends.filter_map(|object| Some((roll_name(object)?, object))) {
            by_roll.entry(name).or_default().push(node(object).to_owned());
        }
        let mut warnings = Vec::new();
        for (name, nodes) in by_roll {
            // A roll that cannot be read may still need the nodes.
            let roll = Roll::find(name, &self.objects).ok().flatten();
            warnings.extend(self.leave(name, roll.as_ref(), &nodes, kubectl));
            let action = |node: &String| ended_action(roll.as_ref()?, node, &self.runners, kubectl, self.now);
            warnings.extend(nodes.iter().filter_map(action));
        }
        warnings
    }

    /// That the roll is not done with these nodes; none if the roll was aborted, or does not need them any more.
    fn leave(&self, name: &str, roll: Option<&Roll>, nodes: &[String], kubectl: &str) -> Option<String> {
        let record = roll.and_then(|roll| roll.record.as_ref());
        let is_released =
            |node: &str| record.is_some_and(|record| record.released.iter().any(|released| released == node));
        let needed: Vec<String> = nodes.iter().filter(|node| !is_released(node)).cloned().collect();
        let (leaves, them) = match needed.as_slice() {
            _ if record.is_some_and(|record| record.aborted.is_some()) => return None,
            [] => return None,
            [node] => (format!("node/{node} leaves roll {name} before the node is done"), "it"),
            nodes => (format!("nodes {} leave roll {name} before they are done", first_names(nodes)), "them"),
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
        let abort = nm_command(kubectl, &format!("roll abort {}", shell_quoted(name)));
        Some(format!("{leaves}, so that the roll{when} {ends}. `{abort}` aborts the whole roll"))
    }
}

/// That the command or the Job of the roll runs for the node now, and what becomes of it when the maintenance of the node ends.
/// `kubectl` is kubectl with the connection flags.
pub fn ended_action(
    roll: &Roll,
    name: &str,
    runners: &RollRunners,
    kubectl: &str,
    now: Timestamp,
) -> Option<String> {
    let node = roll.node(name)?;
    node.record.current_action().filter(|action| action.is_running())?;
    let (roll_name, is_run) = (&roll.name, runners.is_run(&roll.name, now));
    // A roll halts once what is under way has finished. A pod that begins to run one that has halted does not follow any Job.
    let is_followed = is_run && runners.halt(&roll.name).is_none();
    Some(match roll.settings.action_of(node.record.step)? {
        NodeAction::Run(_) if !is_run => return None,
        NodeAction::Run(_) => format!(
            "the command of roll {roll_name} runs for node/{name} now: the roll terminates it within seconds"
        ),
        NodeAction::Job(_) if is_followed => {
            format!(
                "the Job of roll {roll_name} runs for node/{name} now: the roll deletes it within seconds"
            )
        }
        NodeAction::Job(template) => {
            let job = job::of_node(template, &roll.name, name, &node.record);
            let part =
                |field: &str| shell_quoted(job["metadata"][field].as_str().unwrap_or_default()).into_owned();
            format!(
                "the Job of roll {roll_name} may still run for node/{name}: if it exists, \
                 `{kubectl} -n {} delete job {}` deletes it",
                part("namespace"),
                part("name")
            )
        }
    })
}
