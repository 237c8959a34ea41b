//! How nodes in maintenance return to service for pods that fit only them. A roll returns its nodes by itself, and a stop would take
//! them out of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::explain::cause::{capitalized, few};
use crate::explain::cause_wording::Words;
use crate::explain::cluster_facts::NodeOfRoll;
use crate::explain::roll_causes::roll_command;
use crate::terminal::command_context::{nm_command, shell_quoted};
use crate::terminal::text::first_names;

/// How nodes return to service.
pub(super) struct WaysBack {
    /// The nodes that rolls at work return, by roll.
    waits: BTreeMap<String, Vec<String>>,
    /// The rolls of the other nodes that are part of one.
    rolls: BTreeSet<String>,
    /// The nodes that are part of no roll, the explained one last.
    stoppable: Vec<String>,
    /// How many nodes there are.
    nodes: usize,
}

impl WaysBack {
    fn of(nodes: &BTreeSet<String>, words: &Words<'_>) -> Self {
        let mut ways = Self {
            waits: BTreeMap::new(),
            rolls: BTreeSet::new(),
            stoppable: Vec::new(),
            nodes: nodes.len(),
        };
        // The node that is explained is the one that is to be drained: it comes last.
        let (own, others): (Vec<&String>, Vec<&String>) = nodes.iter().partition(|node| *node == words.node);
        for node in others.into_iter().chain(own) {
            match words.facts.of_rolls.get(node) {
                None => ways.stoppable.push(node.clone()),
                Some(NodeOfRoll { roll, .. }) if words.facts.rolls.is_over(roll, words.now) => {
                    ways.stoppable.push(node.clone());
                }
                Some(NodeOfRoll { roll, drains: true })
                    if node != words.node && words.facts.rolls.runner(roll, words.now).is_some() =>
                {
                    ways.waits.entry(roll.clone()).or_default().push(node.clone());
                }
                Some(NodeOfRoll { roll, .. }) => drop(ways.rolls.insert(roll.clone())),
            }
        }
        ways
    }

    /// `wait until roll kernel is done with n2 and returns it to service`; none if no node returns by itself.
    pub(super) fn wait(&self) -> Option<String> {
        let wait = |(roll, nodes): (&String, &Vec<String>)| {
            let them = if nodes.len() == 1 { "it" } else { "them" };
            format!("roll {roll} is done with {} and returns {them} to service", first_names(nodes))
        };
        let waits: Vec<String> = self.waits.iter().map(wait).collect();
        (!waits.is_empty()).then(|| format!("wait until {}", waits.join(", or ")))
    }

    /// What returns a node to service: the words for nodes that are part of no roll, as far as that is so.
    fn act(&self, one: &str, one_of_several: &str) -> Option<String> {
        let is_free = self.waits.is_empty() && self.rolls.is_empty();
        match self.stoppable.as_slice() {
            _ if is_free => Some(String::from(if self.nodes == 1 { one } else { one_of_several })),
            [] if self.waits.is_empty() => {
                let rolls: Vec<String> = self.rolls.iter().cloned().collect();
                let noun = if rolls.len() == 1 { "roll" } else { "rolls" };
                Some(format!("continue {noun} {} without the node", first_names(&rolls)))
            }
            [] => None,
            [node] => Some(format!("return {node} to service")),
            nodes => Some(format!("return one of {} to service", first_names(nodes))),
        }
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
        let rolls = self.waits.keys().chain(self.rolls.iter().filter(|_| self.is_left_to_rolls()));
        let status = few(rolls.map(|roll| roll_command("status", roll, words.kubectl)));
        let skip = words.skip().filter(|_| self.is_left_to_rolls());
        let stop = few(self.stoppable.iter().map(|node| words.stop(node)));
        status.into_iter().chain(skip).chain(stop).collect()
    }

    /// Whether all nodes are part of rolls, and none returns by itself.
    fn is_left_to_rolls(&self) -> bool {
        self.waits.is_empty() && self.stoppable.is_empty()
    }
}

impl Words<'_> {
    pub(super) fn ways_back(&self, nodes: &BTreeSet<String>) -> WaysBack {
        WaysBack::of(nodes, self)
    }

    pub(super) fn stop(&self, node: &str) -> String {
        nm_command(self.kubectl, &format!("stop {}", shell_quoted(node)))
    }

    /// The command that continues the roll of the node without it; none if the node is part of none.
    fn skip(&self) -> Option<String> {
        let roll = self.roll.filter(|roll| !self.facts.rolls.is_over(roll, self.now))?;
        let (roll, node) = (shell_quoted(roll), shell_quoted(self.node));
        Some(nm_command(self.kubectl, &format!("roll resume {roll} --skip {node}")))
    }

    /// What keeps the node in service, and the command.
    pub(super) fn keep_own(&self) -> (String, String) {
        match self.roll.zip(self.skip()) {
            Some((roll, skip)) => (format!("continue roll {roll} without the node"), skip),
            None => (String::from("stop the maintenance"), self.stop(self.node)),
        }
    }
}
