//! What a roll counts: the nodes that are done, and the pods that are gone.

use std::collections::{BTreeMap, BTreeSet};

use nm_core::maintenance::departures::Departures;
use serde::{Deserialize, Serialize};

use crate::health_record::{Baseline, DisturbedObject};

/// The nodes that are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DoneNodes {
    /// Number of nodes.
    pub nodes: usize,
    /// The pods that their drains moved.
    pub pods: i64,
    /// The sum of the working times of the roll from their begin to their end, in seconds.
    pub seconds: i64,
    /// The time of the slowest, in seconds.
    pub slowest_seconds: i64,
    /// What became of the pods, as far as the drains report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub departures: Option<Departures>,
    /// What nothing has checked after their drains, because it was not healthy before; at most 5 objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unchecked: BTreeSet<DisturbedObject>,
}

impl DoneNodes {
    /// How many objects are recorded that were not checked.
    pub const MAX_UNCHECKED: usize = Baseline::MAX_UNCHECKED;

    /// Adds a node from which so many pods are gone, with what became of them if that is known, and that took so many seconds.
    pub(crate) fn add(&mut self, pods: i64, departures: Option<Departures>, seconds: i64) {
        self.nodes = self.nodes.saturating_add(1);
        self.pods = self.pods.saturating_add(pods);
        if let Some(new) = departures {
            self.departures = Some(self.departures.unwrap_or_default().plus(new));
        }
        self.seconds = self.seconds.saturating_add(seconds);
        self.slowest_seconds = self.slowest_seconds.max(seconds);
    }

    /// Adds what nothing has checked of a node that is done.
    pub(crate) fn note_unchecked(&mut self, unchecked: &[DisturbedObject]) {
        let room = Self::MAX_UNCHECKED.saturating_sub(self.unchecked.len());
        let new = unchecked.iter().filter(|one| !self.unchecked.contains(one));
        let new: Vec<DisturbedObject> = new.take(room).cloned().collect();
        self.unchecked.extend(new);
    }
}

/// The pods that are gone from nodes whose maintenances have ended before the nodes were done, by node: they were skipped, have
/// left the roll, or do not exist. A maintenance that is created again counts anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EarlierPods(BTreeMap<String, i64>);

impl EarlierPods {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes how many pods are gone from a node. The number never falls.
    pub(crate) fn note(&mut self, node: &str, gone: i64) {
        let gone = self.of(node, gone);
        if gone > 0 {
            self.0.insert(node.to_owned(), gone);
        }
    }

    /// How many pods are gone from a node, according to whose maintenance `gone` are.
    pub(crate) fn of(&self, node: &str, gone: i64) -> i64 {
        self.0.get(node).copied().unwrap_or(0).max(gone)
    }

    /// Forgets a node that is done.
    pub(crate) fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// How many pods are gone from all nodes, where `shown` are those with a maintenance, and the pods that are gone by it.
    pub(crate) fn total<'a>(&self, shown: impl Iterator<Item = (&'a str, i64)>) -> i64 {
        let mut left = self.0.clone();
        let shown = shown.fold(0_i64, |all, (node, gone)| {
            left.remove(node);
            all.saturating_add(self.of(node, gone))
        });
        left.values().fold(shown, |all, gone| all.saturating_add(*gone))
    }
}
