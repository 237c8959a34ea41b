//! The tree of replacements: what its watches report, and when it is rebuilt.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::message::Effect;
use crate::model::fleet::Fleet;
use crate::model::fleet::drain_record::DrainRecords;
use crate::model::lists::listing::Rows;
use crate::model::tree::TreeSources;
use crate::model::{Model, OpenNode};
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;

pub(super) fn apply(model: &mut Model, node: &str, scope: &ReplacementScope, change: ReplacementChange) {
    let known = (&mut model.open, &mut model.background);
    if let Some(open) = Model::node_of_message(known, model.options.recording, node) {
        // What was watched for the tree is watched again in a replay.
        open.tree.watch();
        if open.tree.changes_replacement(scope, &change, &open.pods) && model.first_causes.node() == node {
            model.first_causes.outdate();
        }
        open.tree.apply(scope, change);
    }
}

/// Rebuilds the tree if it is due. Returns what has to be watched for it, if that is more than before.
pub(super) fn rebuild(model: &mut Model, is_tick: bool) -> Option<Effect> {
    let open = model.open.as_mut()?;
    rebuild_tree(open, &model.fleet, &mut model.records, model.now, is_tick).map(Effect::WatchReplacements)
}

/// Rebuilds the trees of all nodes of a replay: what workloads lost is in the summaries, whichever node is open.
pub(super) fn rebuild_all(model: &mut Model, is_tick: bool) {
    for node in model.open.iter_mut().chain(model.background.iter_mut()) {
        rebuild_tree(node, &model.fleet, &mut model.records, model.now, is_tick);
    }
}

fn rebuild_tree(
    open: &mut OpenNode,
    fleet: &Fleet,
    records: &mut DrainRecords,
    now: Timestamp,
    is_tick: bool,
) -> Option<BTreeSet<ReplacementScope>> {
    if !open.tree.is_due(open.pods.rows.total(), is_tick) {
        return None;
    }
    let maintenance = fleet.maintenance_of(&open.name).cloned();
    let sources =
        maintenance.as_deref().map(|maintenance| TreeSources { pods: &open.pods, maintenance, records, now });
    open.tree.rebuild(sources)
}
