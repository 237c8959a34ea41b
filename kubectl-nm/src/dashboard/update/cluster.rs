//! What the cluster says.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use nm_shared::NodeMaintenance;

use crate::dashboard::message::{Change, Feed, Link};
use crate::dashboard::model::{Model, OpenNode};
use crate::dashboard::pod_facts::Facts;

/// Something about maintenances.
pub(super) fn maintenances(model: &mut Model, change: &Change<NodeMaintenance>) {
    model.links.hear(model.now);
    model.fleet.see(change);
    let concerns_open = |open: &&mut OpenNode| match change {
        Change::All(_) => true,
        Change::Applied(object) | Change::Gone(object) => object.spec.node_name == open.name,
    };
    let Some(open) = model.open.as_mut().filter(concerns_open) else { return };
    let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
    open.pods.rejoin(maintenance, model.now);
}

/// Something about the pods of a node.
pub(super) fn pods(model: &mut Model, node: &str, change: &Change<Facts>) {
    let Some(open) = model.open.as_mut().filter(|open| open.name == node) else { return };
    model.links.hear(model.now);
    let maintenance = model.fleet.maintenance_of(node).map(AsRef::as_ref);
    match change {
        Change::All(pods) => open.pods.see_all(pods, maintenance, model.now),
        Change::Applied(facts) => open.pods.see(facts, maintenance, model.now),
        Change::Gone(facts) => open.pods.see_gone(&facts.id, maintenance, model.now),
    }
}

/// Events about a node.
pub(super) fn events(model: &mut Model, node: &str, change: &Change<Event>) {
    if let Some(open) = model.open.as_mut().filter(|open| open.name == node) {
        open.happenings.see(change);
    }
}

/// How a watch is doing, which may be on a node.
pub(super) fn link(model: &mut Model, feed: Feed, node: Option<&str>, link: Link) {
    if node.is_some() && node != model.opened() {
        return;
    }
    if let (Feed::Pods, Link::Forbidden(_), Some(open)) = (feed, &link, &mut model.open) {
        let maintenance = model.fleet.maintenance_of(&open.name).map(Arc::as_ref);
        open.pods.hide(maintenance, model.now);
    }
    model.links.set(feed, link, model.now);
}

/// A second went by.
pub(super) fn tick(model: &mut Model) {
    model.fleet.tick();
    if let Some(open) = &mut model.open {
        let maintenance = model.fleet.maintenance_of(&open.name).map(AsRef::as_ref);
        open.pods.tick(maintenance, model.now);
    }
}
