//! The nodes whose pods and events are watched although they are not open: the selected one, for the panel, and those whose drains
//! are under way, so that what has left them is known when they are opened.

use std::collections::BTreeSet;

use nm_core::maintenance::{State, node};
use nm_shared::NodeMaintenance;
use nm_shared::gate::ownership::age_rank;

use crate::layout::ScreenLayout;
use crate::message::Effect;
use crate::model::lists::listing::{Row, Rows};
use crate::model::{Model, RecordingMode};

/// How many drains are followed at most: each costs a watch on the pods of a node and two on events.
const MOST_DRAINS: usize = 8;

/// The node that the panel is about, if the screen has one.
fn panel_node(model: &Model) -> Option<String> {
    // A page hides the panel for a while.
    if model.output.is_some() {
        return model.rested.clone();
    }
    let node = model.panel_row()?.node.clone();
    (ScreenLayout::whole(model).panel.height > 0).then_some(node)
}

/// Has something to show in the panel at once: what the status names, until the pods are watched.
pub(super) fn prepare_panel(model: &mut Model) {
    let is_unknown = |node: &String| {
        let known = model.background.known(node);
        known.is_none_or(|known| !model.options.is_replay() && !known.pods.complete && !known.pods.hidden)
    };
    let Some(node) = panel_node(model).filter(is_unknown) else { return };
    let maintenance = model.fleet.maintenance_of(&node).map(AsRef::as_ref);
    model.background.get(&node).pods.hide(maintenance, model.now);
}

/// Once a second, returns what to follow if that has changed. A node that is selected only on the way to another one is not
/// followed.
pub(super) fn follow(model: &mut Model, is_tick: bool) -> Option<Effect> {
    if !is_tick || model.options.is_replay() {
        return None;
    }
    let panel = panel_node(model);
    let rests = std::mem::replace(&mut model.rested, panel.clone()) == panel;
    let mut wanted = BTreeSet::new();
    // A recording follows nodes by itself.
    if model.options.recording == RecordingMode::Off {
        wanted = under_way(model);
        wanted.extend(panel.clone().filter(|_| rests));
        if let Some(open) = model.opened() {
            wanted.remove(open);
        }
    }
    let Model { background, fleet, .. } = model;
    // Looking for the maintenance of each node would go through all of them each time.
    let maintenances = fleet.maintenances_by_node();
    let is_shown = |node: &str| wanted.contains(node) || panel.as_deref() == Some(node);
    for known in background.iter_mut().filter(|known| !wanted.contains(&known.name)) {
        // Nothing reports whether it is current.
        known.health.clear();
        if !is_shown(&known.name) {
            known.keep_gone(maintenances.get(known.name.as_str()).map(|object| &***object));
        }
    }
    background.retain(|known| {
        let is_in_maintenance = maintenances.contains_key(known.name.as_str());
        is_shown(&known.name) || (known.pods.rows.total() > 0 && is_in_maintenance)
    });
    for node in &wanted {
        model.background.get(node);
    }
    (wanted != model.followed).then(|| {
        model.followed.clone_from(&wanted);
        Effect::Follow(wanted)
    })
}

/// The nodes of the oldest drains that are under way.
fn under_way(model: &Model) -> BTreeSet<String> {
    let objects = model.fleet.rows.all().filter_map(|row| model.fleet.maintenance(row.key()));
    let is_under_way =
        |object: &&NodeMaintenance| matches!(State::of(object), State::Draining | State::Blocked);
    let mut objects: Vec<&NodeMaintenance> = objects.map(AsRef::as_ref).filter(is_under_way).collect();
    objects.sort_by_key(|object| age_rank(object));
    objects.into_iter().take(MOST_DRAINS).map(|object| node(object).to_owned()).collect()
}
