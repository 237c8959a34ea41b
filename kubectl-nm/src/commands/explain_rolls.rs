//! What `kubectl nm explain` says of rolls: what halted them, and what their planned nodes wait for.

use std::collections::BTreeMap;
use std::env;

use futures::future::join_all;
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::maintenance::roll::{Halt, HaltCause, RollRunners};
use nm_core::maintenance::{State, node, roll_name};
use nm_roll::command::{kept_output, log_folder};
use nm_roll::halted::{HaltedRoll, HaltingNode, find_roll};
use nm_roll::record::{ProbedHealth, Roll};
use nm_roll::{health, turn};
use nm_shared::NodeMaintenance;

/// What was probed of rolls that have halted, by name.
pub(crate) type Probed = BTreeMap<String, Vec<ProbedHealth>>;

/// Probes the nodes that have halted these rolls because they or their workloads were not healthy.
pub(crate) async fn probe(
    cluster: &Cluster,
    all: &[NodeMaintenance],
    halts: &BTreeMap<&str, &Halt>,
    now: Timestamp,
) -> Probed {
    let unhealthy = halts.iter().filter(|(_, halt)| halt.cause == Some(HaltCause::Unhealthy));
    let probed = unhealthy.map(async |(name, halt)| {
        let roll = find_roll(name, all)?;
        Some(((*name).to_owned(), health::probe(cluster, &roll, Some(&halt.node), now).await))
    });
    join_all(probed).await.into_iter().flatten().collect()
}

/// What the nodes wait for that are planned in a roll, in sentences, as far as that is known.
pub(crate) fn turns(
    explained: &[&NodeMaintenance],
    all: &[NodeMaintenance],
    now: Timestamp,
) -> BTreeMap<String, Vec<String>> {
    let is_planned = |object: &&&NodeMaintenance| State::of(object) == State::Planned;
    let mut rolls: BTreeMap<&str, Option<Roll>> = BTreeMap::new();
    let mut turns = BTreeMap::new();
    for object in explained.iter().filter(is_planned) {
        let Some(name) = roll_name(object) else { continue };
        if let Some(roll) = rolls.entry(name).or_insert_with(|| find_roll(name, all)) {
            turns.insert(node(object).to_owned(), turn::waits(roll, node(object), now));
        }
    }
    turns
}

/// The rolls that have halted, by name, without those whose records cannot be read.
pub(crate) fn halted_rolls(
    all: &[NodeMaintenance],
    facts: &ClusterFacts,
    mut probed: Probed,
    now: Timestamp,
) -> BTreeMap<String, HaltedRoll> {
    let halted = |(roll, halt): (&str, &Halt)| {
        let health = probed.remove(roll).unwrap_or_default();
        let node = facts.halted.get(&halt.node);
        let is_unread = node.is_none() && !facts.deleted.contains(&halt.node);
        let seen = HaltingNode { node, is_unread, health };
        let halted = HaltedRoll::of(roll, halt, all, seen, now).with_output(|node, since| {
            let folder = log_folder(roll, |variable| env::var_os(variable))?;
            kept_output(&folder, node, since)
        });
        (roll.to_owned(), halted)
    };
    RollRunners::of(all).halts().map(halted).collect()
}
