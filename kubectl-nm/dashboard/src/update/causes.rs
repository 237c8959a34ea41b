//! The first causes behind the budgets of the open node or of the selected one, and the workloads that drains have left without a ready pod.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::lasting_outages::{KnownOutages, SeenOutages, may_have};
use nm_core::leader::Leadership;
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::{blocked_pods, cordoned_since, uid};
use nm_shared::{NodeMaintenance, PodReference};

use crate::message::Effect;
use crate::model::Model;

/// Of how many nodes the outages are read at most, those that were cordoned last.
const MAX_OUTAGE_NODES: usize = 100;

/// What has to be read to explain the open node, or the node of the selected row if pods are blocked there, if that is not known
/// yet. A row that is selected only on the way to another one is not explained.
pub(super) fn read(model: &mut Model) -> Option<Effect> {
    if model.options.is_replay() {
        return None;
    }
    let is_open = model.open.is_some();
    let node = model.opened().or_else(|| model.selected_node()).unwrap_or_default().to_owned();
    let rests = model.first_causes.turn_to(&node);
    if !rests && !is_open {
        return None;
    }
    let explained = model.maintenance().filter(|object| is_open || !blocked_pods(object).is_empty()).cloned();
    let wanted = model.first_causes.begin(explained.as_deref(), is_open, model.now)?;
    let all = model.fleet.maintenances_by_node().into_values().cloned().collect();
    Some(Effect::ReadCauses { node, wanted, all, rolls: model.fleet.rolls.clone() })
}

/// What is known of maintenances before anything is read, and of the programs that run their rolls.
pub(crate) fn known_of(all: &[Arc<NodeMaintenance>], rolls: RollRunners) -> ClusterFacts {
    ClusterFacts { rolls, ..ClusterFacts::of_maintenances(all.iter().map(AsRef::as_ref)) }
}

/// What has to be read to name the workloads that drains have left without a ready pod: those of the open node, or of the list.
pub(super) fn read_outages(model: &mut Model) -> Option<Effect> {
    if model.options.is_replay() || model.shows_nodes() || !model.fleet.outages.may_begin(model.now) {
        return None;
    }
    let mut shown: Vec<Arc<NodeMaintenance>> = match model.opened() {
        Some(node) => model.fleet.maintenance_of(node).into_iter().cloned().collect(),
        None => model.fleet.shown().cloned().collect(),
    };
    shown.retain(|maintenance| may_have(maintenance));
    // Those that were drained long ago have been read before.
    shown.sort_by_cached_key(|maintenance| Reverse(cordoned_since(maintenance)));
    let outages = &mut model.fleet.outages;
    // What was read of the others grows old.
    for other in shown.split_off(shown.len().min(MAX_OUTAGE_NODES)) {
        outages.set(&uid(&other), SeenOutages::default());
    }
    if !outages.begin(shown.iter().map(AsRef::as_ref), model.now) {
        return None;
    }
    let known = |maintenance: Arc<NodeMaintenance>| {
        let down = outages.of(&uid(&maintenance)).to_vec();
        KnownOutages { maintenance, down }
    };
    Some(Effect::ReadOutages(shown.into_iter().map(known).collect()))
}

pub(super) fn apply_outages(model: &mut Model, seen: BTreeMap<String, SeenOutages>) {
    model.fleet.outages.end();
    for (uid, seen) in seen {
        model.fleet.outages.set(&uid, seen);
    }
}

pub(super) fn apply(model: &mut Model, node: &str, facts: Box<ClusterFacts>) {
    if model.first_causes.node() == node {
        model.first_causes.set(facts, model.now);
        word(model);
    }
}

/// Words what the selected pod waits for about this pod, even if others are blocked alike. The first row is shown where nothing is
/// known of the selected one.
pub(super) fn word_shown(model: &mut Model) {
    let leadership = leadership(model);
    let Some(open) = &mut model.open else { return };
    let shown = [open.pod_of_selected(), open.pods.rows.nth(0)];
    let shown: Vec<PodReference> = shown.into_iter().flatten().map(|row| row.id.reference()).collect();
    let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
    if model.first_causes.node() == open.name {
        model.first_causes.word_alone(&shown, maintenance, leadership, &model.options.kubectl, model.now);
    }
}

fn leadership(model: &Model) -> Leadership {
    model.leader_gap.as_ref().map(|gap| gap.leadership(model.now)).unwrap_or_default()
}

/// Words the causes anew, after what they depend on has changed.
pub(super) fn word(model: &mut Model) {
    let leadership = leadership(model);
    let maintenance = model.fleet.maintenance_of(model.first_causes.node()).map(AsRef::as_ref);
    model.first_causes.word(maintenance, leadership, &model.options.kubectl, model.now);
}
