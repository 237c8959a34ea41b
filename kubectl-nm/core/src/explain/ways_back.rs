//! How nodes in maintenance return to service for pods that fit only them. A roll returns its nodes by itself, and a stop would take
//! them out of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use nm_shared::cluster::node;
use nm_shared::drain::node_patch;

use crate::explain::cause::{UNLESS_WORKED_ON, capitalized, few};
use crate::explain::cause_wording::Words;
use crate::explain::roll_causes::roll_command;
use crate::maintenance::roll::RollStanding;
use crate::terminal::command_context::{nm_command, shell_quoted, skip_command};
use crate::terminal::text::first_names;

/// How nodes return to service.
pub(super) struct WaysBack {
    /// The nodes that rolls at work return, by roll.
    waits: BTreeMap<String, Vec<String>>,
    /// The nodes that rolls return once somebody has confirmed that on the terminal of this user, by roll and user.
    confirmations: BTreeMap<(String, String), Vec<String>>,
    /// The other nodes that are part of rolls, by roll.
    rolls: BTreeMap<String, Vec<String>>,
    /// Those of the rolls that are paused.
    paused: BTreeSet<String>,
    /// The nodes that are part of no roll, in the order of [`Words::return_order`].
    stoppable: Vec<String>,
    /// `, unless its machine is being worked on (n1: disk swap)`, if there is not only the explained one, whose drain has not
    /// ended; and that nodes which were cordoned before have to be uncordoned, too.
    conditions: String,
    /// How many nodes there are.
    nodes: usize,
}

/// Whether a roll returns a node to service.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RollReturn {
    /// Without anybody's help.
    ByItself,
    /// Once somebody confirms that on the terminal of this user.
    OnceConfirmed(String),
    /// Not as things are.
    Not,
}

impl WaysBack {
    fn of(nodes: &BTreeSet<String>, words: &Words<'_>) -> Self {
        let mut ways = Self {
            waits: BTreeMap::new(),
            confirmations: BTreeMap::new(),
            rolls: BTreeMap::new(),
            paused: BTreeSet::new(),
            stoppable: Vec::new(),
            conditions: String::new(),
            nodes: nodes.len(),
        };
        let mut nodes: Vec<&String> = nodes.iter().collect();
        let cordoned_before = words.cordoned_before();
        nodes.sort_by_key(|node| words.return_order(node, &cordoned_before));
        for node in nodes {
            let roll = words.roll_of(node).map(|roll| (roll.to_owned(), words.return_of(node, roll)));
            let nodes = match roll {
                None => &mut ways.stoppable,
                Some((roll, RollReturn::ByItself)) => ways.waits.entry(roll).or_default(),
                Some((roll, RollReturn::OnceConfirmed(who))) => {
                    ways.confirmations.entry((roll, who)).or_default()
                }
                Some((roll, RollReturn::Not)) => ways.rolls.entry(roll).or_default(),
            };
            nodes.push(node.clone());
        }
        let is_paused = |roll: &&String| words.facts.rolls.is_paused(roll);
        ways.paused = ways.rolls.keys().filter(is_paused).cloned().collect();
        if ways.stoppable.iter().any(|node| node != words.node) {
            ways.conditions = words.unless_worked_on(&ways.stoppable);
        }
        ways.conditions += &words.uncordon_too(&ways.stoppable);
        ways
    }

    /// `one of n3, n1`: those that are part of no roll.
    pub(super) fn one_of_stoppable(&self) -> String {
        one_of(&self.stoppable)
    }

    /// `wait until roll kernel is done with n2 and returns it to service`; none if no node returns by itself, or once somebody
    /// confirms it.
    pub(super) fn wait(&self) -> Option<String> {
        let them = |nodes: &Vec<String>| if nodes.len() == 1 { "it" } else { "them" };
        let wait = |(roll, nodes): (&String, &Vec<String>)| {
            format!("roll {roll} is done with {} and returns {} to service", first_names(nodes), them(nodes))
        };
        let waits: Vec<String> = self.waits.iter().map(wait).collect();
        let waits = (!waits.is_empty()).then(|| format!("wait until {}", waits.join(", or ")));
        let confirm = |((roll, who), nodes): (&(String, String), &Vec<String>)| {
            format!(
                "confirm {} on the terminal where {who} runs roll {roll}, which then returns {} to service",
                first_names(nodes),
                them(nodes)
            )
        };
        let ways: Vec<String> = waits.into_iter().chain(self.confirmations.iter().map(confirm)).collect();
        (!ways.is_empty()).then(|| ways.join(", or "))
    }

    /// Whether no node returns by itself, or once somebody confirms it.
    fn none_returns(&self) -> bool {
        self.waits.is_empty() && self.confirmations.is_empty()
    }

    /// What returns a node to service: the words for nodes that are part of no roll, as far as that is so.
    fn act(&self, one: &str, one_of_several: &str) -> Option<String> {
        let conditions = &self.conditions;
        if self.none_returns() && self.rolls.is_empty() {
            let free = if self.nodes == 1 { one } else { one_of_several };
            return Some(format!("{free}{conditions}"));
        }
        let stop = (!self.stoppable.is_empty())
            .then(|| format!("return {} to service{conditions}", one_of(&self.stoppable)));
        let without = |(roll, nodes): (&String, &Vec<String>)| {
            let paused = if self.paused.contains(roll) { ", which is paused," } else { "" };
            format!("roll {roll}{paused} without {}", one_of(nodes))
        };
        let rolls: Vec<String> = self.rolls.iter().filter(|_| self.none_returns()).map(without).collect();
        let skip = (!rolls.is_empty()).then(|| format!("continue {}", rolls.join(", or ")));
        let ways: Vec<String> = stop.into_iter().chain(skip).collect();
        (!ways.is_empty()).then(|| ways.join(", or "))
    }

    /// `wait until ..., or stop the maintenance`.
    pub(super) fn words(&self, one: &str, one_of_several: &str) -> String {
        let ways: Vec<String> = self.wait().into_iter().chain(self.act(one, one_of_several)).collect();
        ways.join(", or ")
    }

    /// The same after other words that begin a sentence.
    pub(super) fn after(&self, first: &str, one: &str, one_of_several: &str) -> String {
        let act = self.act(one, one_of_several).map(|act| format!(", or {act}")).unwrap_or_default();
        match self.wait() {
            Some(wait) => format!("{}; or {first}{act}", capitalized(&wait)),
            None => format!("{}{act}", capitalized(first)),
        }
    }

    /// The commands, none of which takes a node out of a roll that returns it.
    pub(super) fn commands(&self, words: &Words<'_>) -> Vec<String> {
        self.commands_after(Vec::new(), words)
    }

    /// The commands in the order of the words of [`Self::after`], with those of the words that begin the sentence.
    pub(super) fn commands_after(&self, first: Vec<String>, words: &Words<'_>) -> Vec<String> {
        let left: Vec<(&String, &Vec<String>)> = self.rolls.iter().filter(|_| self.none_returns()).collect();
        let confirmations = self.confirmations.keys().map(|(roll, _)| roll);
        let rolls = self.waits.keys().chain(confirmations).chain(left.iter().map(|(roll, _)| *roll));
        let status = words.few(rolls.map(|roll| roll_command("status", roll, words.kubectl)));
        let skip = |(roll, nodes): (&String, &Vec<String>)| -> Vec<String> {
            nodes.iter().map(|node| words.skip(roll, node)).collect()
        };
        let skip = words.few(left.into_iter().flat_map(skip));
        let stop = words.return_commands(&self.stoppable);
        if self.none_returns() {
            return first.into_iter().chain(stop).chain(status).chain(skip).collect();
        }
        status.into_iter().chain(first).chain(stop).collect()
    }
}

/// `n1`, `one of n1, n2`.
fn one_of(nodes: &[String]) -> String {
    let names = first_names(nodes);
    if nodes.len() == 1 { names } else { format!("one of {names}") }
}

impl<'a> Words<'a> {
    pub(super) fn ways_back(&self, nodes: &BTreeSet<String>) -> WaysBack {
        WaysBack::of(nodes, self)
    }

    /// Which of several nodes is to return first: those last that somebody had cordoned before; the one that is explained after
    /// others, because it is the one to be drained; those before others for which somebody has given no reason; and those that are
    /// drained, because a stop wastes a drain that is under way.
    pub(super) fn return_order(
        &self,
        node: &String,
        cordoned_before: &BTreeSet<&str>,
    ) -> (bool, bool, bool, bool) {
        let (is_own, has_purpose) = (node == self.node, self.facts.purposes.contains_key(node));
        (cordoned_before.contains(node.as_str()), is_own, has_purpose, !self.facts.drained.contains(node))
    }

    /// The nodes in maintenance that were cordoned before, and stay so when their maintenances end.
    pub(super) fn cordoned_before(&self) -> BTreeSet<&'a str> {
        let nodes = self.facts.nodes.iter().flatten().flatten();
        let was_cordoned = |node: &&Node| node_patch::was_schedulable(&node.metadata) == Some(false);
        nodes.filter(was_cordoned).map(node::name).collect()
    }

    /// The roll of a node, so that nobody stops its maintenance; none if the node is part of none, or if its roll does nothing more
    /// with it: the roll is over, or was aborted and does not return this node.
    pub(super) fn roll_of(&self, node: &str) -> Option<&'a str> {
        let of_other = || Some(self.facts.of_rolls.get(node)?.roll.as_str());
        let roll = if node == self.node { self.roll } else { of_other() };
        roll.filter(|roll| match self.facts.rolls.standing(roll, self.now) {
            None | Some(RollStanding::Over) => false,
            Some(RollStanding::Ending(_)) => self.return_of(node, roll) == RollReturn::ByItself,
            Some(_) => true,
        })
    }

    /// Whether and how this roll returns a node. The explained one does not return while its drain waits for a node.
    fn return_of(&self, node: &str, roll: &str) -> RollReturn {
        let Some(of_roll) = self.facts.of_rolls.get(node) else { return RollReturn::Not };
        let is_slow = of_roll.surge.as_ref().is_some_and(|surge| surge.words(self.now).is_some());
        let returns = of_roll.returns && !is_slow && (self.facts.drained.contains(node) || node != self.node);
        match self.facts.rolls.standing(roll, self.now) {
            Some(RollStanding::Running(_) | RollStanding::Ending(_)) if returns => RollReturn::ByItself,
            Some(RollStanding::Running(who)) if of_roll.awaits_confirmation => RollReturn::OnceConfirmed(who),
            _ => RollReturn::Not,
        }
    }

    /// `, unless its machine is being worked on (n1: disk swap)`, with the reasons of the maintenances that are not explained.
    pub(super) fn unless_worked_on(&self, nodes: &[String]) -> String {
        let others = nodes.iter().filter(|node| *node != self.node);
        let reason = |node: &String| Some(format!("{node}: {}", self.facts.purposes.get(node)?));
        match few(others.filter_map(reason)).as_slice() {
            [] => UNLESS_WORKED_ON.to_owned(),
            reasons => format!("{UNLESS_WORKED_ON} ({})", reasons.join("; ")),
        }
    }

    pub(super) fn stop(&self, node: &str) -> String {
        nm_command(self.kubectl, &format!("stop {}", shell_quoted(node)))
    }

    /// ` (n1 was cordoned before its maintenance: uncordon n1, too, if that cordon is not needed any more)`.
    pub(super) fn uncordon_too(&self, nodes: &[String]) -> String {
        let cordoned_before = self.cordoned_before();
        let is_among = |node: &&String| cordoned_before.contains(node.as_str());
        let among: Vec<String> = nodes.iter().filter(is_among).cloned().collect();
        let names = first_names(&among);
        let (were, that) = match among.len() {
            0 => return String::new(),
            1 => ("was cordoned before its maintenance", "that cordon is"),
            _ => ("were cordoned before their maintenances", "these cordons are"),
        };
        format!(" ({names} {were}: uncordon {names}, too, if {that} not needed any more)")
    }

    /// The commands after which pods can be scheduled to these nodes.
    pub(super) fn return_commands(&self, nodes: &[String]) -> Vec<String> {
        let cordoned_before = self.cordoned_before();
        let command = |node: &String| {
            let stop = self.stop(node);
            if cordoned_before.contains(node.as_str()) {
                // Before its maintenance has ended, the node would be cordoned again.
                format!("{stop} --wait && {} uncordon {}", self.kubectl, shell_quoted(node))
            } else {
                stop
            }
        };
        self.few(nodes.iter().map(command))
    }

    fn skip(&self, roll: &str, node: &str) -> String {
        skip_command(self.kubectl, roll, node, self.facts.rolls.runner(roll, self.now).is_some())
    }

    /// What keeps the node in service, and the command.
    pub(super) fn keep_own(&self) -> (String, String) {
        match self.roll_of(self.node) {
            Some(roll) => (format!("continue roll {roll} without the node"), self.skip(roll, self.node)),
            None => (String::from("stop the maintenance"), self.stop(self.node)),
        }
    }
}
