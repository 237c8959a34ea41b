//! What `kubectl nm explain` says of rolls: what halted them, and what their planned nodes wait for.

use std::collections::BTreeMap;
use std::env;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::maintenance::roll::{self, Halt, HaltCause, Step};
use nm_core::maintenance::{node, roll_name};
use nm_roll::command::{kept_output, log_folder};
use nm_roll::halted::{HaltedRoll, HaltingNode};
use nm_roll::observed::NodeView;
use nm_roll::record::{ProbedHealth, Roll};
use nm_roll::{health, turn};
use nm_shared::NodeMaintenance;

/// The rolls of explained maintenances, by name, without those whose records cannot be read.
pub(crate) type Rolls = BTreeMap<String, Roll>;

/// What was probed of the nodes that have halted rolls, by the names of the rolls.
pub(crate) type Probed = BTreeMap<String, ProbedHealth>;

/// Probes the nodes that have halted these rolls because they or their workloads were not healthy.
pub(crate) async fn probe(
    cluster: &Cluster,
    rolls: &Rolls,
    halts: &BTreeMap<&str, &Halt>,
    now: Timestamp,
) -> Probed {
    let mut probed = Probed::new();
    for (name, halt) in halts.iter().filter(|(_, halt)| halt.cause == Some(HaltCause::Unhealthy)) {
        let Some(roll) = rolls.get(*name) else { continue };
        let of_node = health::probe(cluster, roll, Some(&halt.node), now).await;
        probed.extend(of_node.into_iter().map(|health| ((*name).to_owned(), health)));
    }
    probed
}

/// What the nodes wait for whose turn in a roll has not come, in sentences, as far as that is known.
pub(crate) fn turns(
    explained: &[&NodeMaintenance],
    rolls: &Rolls,
    now: Timestamp,
) -> BTreeMap<String, Vec<String>> {
    let mut planned: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for object in explained.iter().filter(|object| roll::step(object) == Some(Step::Planned)) {
        if let Some(roll) = roll_name(object) {
            planned.entry(roll).or_default().push(node(object));
        }
    }
    let known = planned.iter().filter_map(|(roll, nodes)| Some((rolls.get(*roll)?, nodes)));
    known.flat_map(|(roll, nodes)| turn::waits(roll, nodes, now)).collect()
}

/// What is to be said of the rolls that have halted, by name.
pub(crate) fn halted_rolls(
    halts: &BTreeMap<&str, &Halt>,
    rolls: &Rolls,
    facts: &ClusterFacts,
    mut probed: Probed,
    now: Timestamp,
) -> BTreeMap<String, HaltedRoll> {
    let halted = |(roll, halt): (&&str, &&Halt)| {
        let health = probed.remove(*roll);
        let node = facts.halted.get(&halt.node);
        let is_unread = node.is_none() && !facts.deleted.contains(&halt.node);
        let view = node.map(|node| NodeView::of(node, None, now));
        let seen = HaltingNode { view, is_unread, health };
        let halted = HaltedRoll::of(roll, halt, rolls.get(*roll), seen, now).with_output(|node, since| {
            let folder = log_folder(roll, |variable| env::var_os(variable))?;
            kept_output(&folder, node, since)
        });
        ((*roll).to_owned(), halted)
    };
    halts.iter().map(halted).collect()
}
