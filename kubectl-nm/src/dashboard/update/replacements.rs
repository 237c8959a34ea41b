//! The tree of replacements: what its watches report, and when it is rebuilt.

use crate::dashboard::message::{Effect, ReplacementChange};
use crate::dashboard::model::Model;
use crate::dashboard::model::listing::Rows;
use crate::dashboard::model::tree::TreeSources;
use crate::dashboard::replacement_scope::ReplacementScope;

pub(super) fn apply(model: &mut Model, node: &str, scope: &ReplacementScope, change: ReplacementChange) {
    if let Some(open) = model.open.as_mut().filter(|open| open.name == node) {
        open.tree.apply(scope, change);
    }
}

/// Rebuilds the tree if it is due. Returns what has to be watched for it, if that is more than before.
pub(super) fn rebuild(model: &mut Model, is_tick: bool) -> Option<Effect> {
    let open = model.open.as_mut()?;
    if !open.tree.is_due(open.pods.rows.total(), is_tick) {
        return None;
    }
    let maintenance = model.fleet.maintenance_of(&open.name).cloned();
    let sources = maintenance.as_deref().map(|maintenance| TreeSources {
        pods: &open.pods,
        maintenance,
        records: &mut model.records,
        now: model.now,
    });
    open.tree.rebuild(sources).map(Effect::WatchReplacements)
}
