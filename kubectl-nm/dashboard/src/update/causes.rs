//! The first causes behind the budgets of the open node, and the workloads that its drain has left without a ready pod.

use std::sync::Arc;

use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::explanation;
use nm_core::maintenance::{Reconcilers, State, pods_gone, status};

use crate::message::Effect;
use crate::model::Model;

/// What has to be read to explain the open node, if that is not known yet.
pub(super) fn read(model: &mut Model) -> Option<Effect> {
    if model.options.is_replay() {
        return None;
    }
    let open = model.open.as_mut()?;
    let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
    let wanted = open.first_causes.begin(maintenance, model.now)?;
    let all = model.fleet.maintenances_by_node().into_values().map(AsRef::as_ref);
    let in_maintenance = ClusterFacts::of_maintenances(all).in_maintenance;
    Some(Effect::ReadCauses { node: open.name.clone(), wanted, in_maintenance })
}

/// What has to be read to name the workloads that the drain of the open node has left without a ready pod.
pub(super) fn read_outages(model: &mut Model) -> Option<Effect> {
    if model.options.is_replay() {
        return None;
    }
    let open = model.open.as_mut()?;
    let Some(maintenance) = model.fleet.maintenance_of(&open.name) else {
        open.outages.down.clear();
        return None;
    };
    let gone = usize::try_from(pods_gone(status(maintenance))).unwrap_or(0);
    let is_unseen = State::of(maintenance) != State::Stopping && gone > open.pods.gone();
    let is_due = open.outages.begin(is_unseen, model.now);
    is_due.then(|| Effect::ReadOutages(Arc::clone(maintenance)))
}

pub(super) fn apply_outages(model: &mut Model, node: &str, down: Vec<String>) {
    let is_left = model.fleet.maintenance_of(node).is_some();
    if let Some(open) = model.open.as_mut().filter(|open| open.name == node && is_left) {
        open.outages.down = down;
    }
}

pub(super) fn apply(model: &mut Model, node: &str, facts: &ClusterFacts) {
    let Some(open) = model.open.as_mut().filter(|open| open.name == node) else { return };
    let Some(maintenance) = model.fleet.maintenance_of(node) else { return };
    let kubectl = &model.options.kubectl;
    open.first_causes.set(explanation::causes(
        maintenance,
        &Reconcilers::default(),
        facts,
        kubectl,
        model.now,
    ));
}
