//! Changes in the cluster.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;

use crate::layout::ScreenLayout;
use crate::message::Effect;
use crate::model::Model;
use crate::model::fleet::node_list::NodeList;
use crate::model::fleet::node_row::NodeRow;
use crate::model::lists::listing::Rows;
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::node_pod::NodePod;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::update::causes;

pub(super) fn maintenances(model: &mut Model, change: &WatchChange<NodeMaintenance>) -> Option<Effect> {
    let update = match model.fleet.apply(change) {
        Ok(update) => update,
        Err(error) => {
            model.show_error(error.to_string());
            return None;
        }
    };
    model.settled.extend(update.settled);
    model.records.observe(&update.changes, model.now);
    model.health.last_change = Some(model.now);
    show_maintenance(model, change);
    // What is said of a pod depends on its state.
    if concerns(change, model.first_causes.node()) {
        causes::word(model);
    }
    model.nodes.apply_maintenances(change, &model.fleet);
    update.exit.map(Effect::End).or_else(|| watch_its_events(model))
}

/// Opens the node again once the name of its maintenance is known, because events refer to objects by name.
fn watch_its_events(model: &mut Model) -> Option<Effect> {
    let open = model.open.as_mut()?;
    let name = model.fleet.maintenance_of(&open.name)?.name_any();
    (std::mem::replace(&mut open.subject, name.clone()) != name).then(|| Effect::Open(open.name.clone()))
}

fn concerns(change: &WatchChange<NodeMaintenance>, node: &str) -> bool {
    match change {
        WatchChange::Listed(_) => true,
        WatchChange::Applied(object) | WatchChange::Deleted(object) => object.spec.node_name == node,
    }
}

fn show_maintenance(model: &mut Model, change: &WatchChange<NodeMaintenance>) {
    let all = model.open.iter_mut().chain(model.background.iter_mut());
    for open in all.filter(|open| concerns(change, &open.name)) {
        let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
        open.pods.ready_since = model.fleet.ready_since(&open.name);
        open.pods.apply_status(maintenance, model.now);
        open.events.show(maintenance);
        open.tree.outdate();
    }
}

pub(super) fn nodes(model: &mut Model, change: &WatchChange<NodeMetadata>) {
    model.fleet.apply_nodes(change);
    model.nodes.apply_nodes(change, &model.fleet);
}

/// Counts the pods of the nodes on the screen, if it is time to.
pub(super) fn count_pods(model: &mut Model) -> Option<Effect> {
    // Before that, the order of the rows is not known.
    if !model.shows_nodes() || !model.nodes.is_listed {
        return None;
    }
    let height = ScreenLayout::whole(model).rows();
    let NodeList { rows, pods, .. } = &mut model.nodes;
    let on_screen = rows.window(height).filter_map(|at| rows.nth(at)).map(NodeRow::name);
    pods.begin(on_screen, model.now).map(Effect::CountPods)
}

pub(super) fn pods(model: &mut Model, node: &str, change: &WatchChange<NodePod>) {
    let known = (&mut model.open, &mut model.background);
    let Some(open) = Model::node_of_message(known, model.options.recording, node) else { return };
    model.health.last_change = Some(model.now);
    let maintenance = model.fleet.maintenance_of(node).map(AsRef::as_ref);
    open.pods.ready_since = model.fleet.ready_since(node);
    match change {
        WatchChange::Listed(pods) => {
            open.pods.list(pods, maintenance, model.now);
            open.tree.outdate();
        }
        WatchChange::Applied(pod) => {
            open.pods.apply(pod, maintenance, model.now);
            open.tree.outdate_workload_of(&pod.id);
        }
        WatchChange::Deleted(pod) => {
            open.pods.remove(&pod.id, maintenance, model.now);
            open.tree.outdate_workload_of(&pod.id);
        }
    }
}

pub(super) fn events(model: &mut Model, node: &str, change: &WatchChange<Event>) {
    let known = (&mut model.open, &mut model.background);
    if let Some(open) = Model::node_of_message(known, model.options.recording, node) {
        let maintenance = model.fleet.maintenance_of(node).map(AsRef::as_ref);
        open.events.show(maintenance);
        open.events.apply(change);
    }
}

/// Sets the state of a watch, which may be on a node.
pub(super) fn watch_state(model: &mut Model, kind: WatchKind, node: Option<&str>, state: WatchState) {
    let is_closed = node.is_some() && node != model.opened();
    if let Some(node) = node {
        let known = (&mut model.open, &mut model.background);
        let Some(open) = Model::node_of_message(known, model.options.recording, node) else { return };
        if let (WatchKind::Pods, WatchState::Forbidden(_)) = (kind, &state) {
            let maintenance = model.fleet.maintenance_of(&open.name).map(Arc::as_ref);
            open.pods.hide(maintenance, model.now);
            open.tree.outdate();
        }
        open.health.insert(kind, state.clone());
    }
    if !is_closed {
        model.health.set(kind, state, model.now);
    }
}

/// Notes that the watches on a node ended when this was recorded.
pub(super) fn node_closed(model: &mut Model, node: &str) {
    for kind in [WatchKind::Pods, WatchKind::Events] {
        let error = String::from("The recording contains no further data about this node");
        watch_state(model, kind, Some(node), WatchState::Lost { since: model.now, error });
    }
}

pub(super) fn tick(model: &mut Model) {
    model.fleet.tick(model.now);
    for open in model.open.iter_mut().chain(model.background.iter_mut()) {
        let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
        open.pods.ready_since = model.fleet.ready_since(&open.name);
        if open.pods.tick(maintenance, model.now) {
            open.tree.outdate();
        }
    }
    if model.first_causes.has_times() {
        causes::word(model);
    }
}
