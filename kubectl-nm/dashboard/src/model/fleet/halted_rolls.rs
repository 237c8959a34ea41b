//! The rolls that have halted: why, what has become of that, and what to do, as `explain` reports them.
//!
//! To find that out, the records of all nodes of a roll are read, so this is done once a second at most, after one of them has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::roll::RollRunners;
use nm_core::watch::goal_tracker::GoalTracker;
use nm_roll::halted::{HaltedRoll, HaltingNode};
use nm_roll::observed::NodeView;
use nm_roll::record::Roll;

use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};

#[derive(Debug, Clone, Default)]
pub(crate) struct HaltedRolls {
    rolls: BTreeMap<String, HaltedRoll>,
    is_outdated: bool,
}

impl HaltedRolls {
    /// Notes that a maintenance of a roll, or the node that halted one, has changed.
    pub(super) fn outdate(&mut self) {
        self.is_outdated = true;
    }

    /// Finds out what there is to say of the rolls, if something has changed.
    pub(super) fn refresh(
        &mut self,
        runners: &RollRunners,
        tracker: &GoalTracker,
        nodes: &BTreeMap<String, Arc<NodeMetadata>>,
        now: Timestamp,
    ) {
        if !std::mem::take(&mut self.is_outdated) {
            return;
        }
        let halted = runners.halts().map(|(name, halt)| {
            let roll = Roll::find(name, tracker.cache().all()).ok().flatten();
            let node = nodes.get(&halt.node);
            let view = node.and_then(|node| Some(view(&node.name, node.details.as_ref()?, now)));
            // Where no node is known, it is not known either whether this one exists.
            let is_unread = view.is_none() && (node.is_some() || nodes.is_empty());
            let seen = HaltingNode { view, is_unread, health: None };
            (name.to_owned(), HaltedRoll::of(name, halt, roll.as_ref(), seen, now))
        });
        self.rolls = halted.collect();
    }

    /// The roll of this name, if it has halted.
    pub(crate) fn get(&self, roll: &str) -> Option<&HaltedRoll> {
        self.rolls.get(roll)
    }
}

fn view(name: &str, details: &NodeDetails, now: Timestamp) -> NodeView {
    let is_ready = details.readiness == NodeReadiness::Ready;
    NodeView::of_boot(name, is_ready.then(|| details.ready_since.unwrap_or(now)), &details.boot_id)
}
