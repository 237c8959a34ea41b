//! The first causes behind the budgets of the open node.

use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::explanation;
use nm_core::maintenance::Reconcilers;

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
