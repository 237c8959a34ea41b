//! Nodes that do not report: they are unreachable, or they reboot.
//!
//! While a node does not report, nobody learns when its pods terminate. The sandbox's kubelets do nothing on a node that
//! is not Ready.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::{self, Effect, Part};
use crate::cluster::store::{Collection, Key, Object, State};
use crate::model::status_error::StatusError;
use crate::model::{condition, node, pod};

/// Makes a node unreachable. What the node lifecycle controller would write after missed heartbeats is written at once.
pub(crate) fn silence(cluster: &Cluster, name: &str) -> Result<(), StatusError> {
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        let key = Key::cluster(name);
        change(cluster, state, &NODES, &key, Part::Status, |object| node::miss_heartbeats(object, now))?;
        let pods: Vec<Object> = state.on_node(&PODS, name).collect();
        for pod in pods.iter().filter(|pod| pod::is_ready(pod)) {
            change(cluster, state, &PODS, &Key::of(pod), Part::Status, |pod| {
                let condition = json!({"type": "Ready", "status": "False", "lastProbeTime": null});
                condition::set(&mut pod["status"], condition, now);
            })?;
        }
        Ok(())
    })
}

/// Makes a node reachable again. A node that is down for a reboot starts.
pub(crate) fn revive(cluster: &Cluster, name: &str) -> Result<(), StatusError> {
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        let key = Key::cluster(name);
        let object = state.get(&NODES, &key);
        if object.is_some_and(|object| pod::annotation(&object, node::REBOOT).is_some()) {
            return change(cluster, state, &NODES, &key, Part::Main, |object| {
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(node::REBOOT);
                }
            });
        }
        change(cluster, state, &NODES, &key, Part::Status, |object| node::report_ready(object, now))
    })
}

/// Reboots a node; without a downtime it never returns.
pub(crate) fn reboot(cluster: &Cluster, name: &str, downtime: Option<Duration>) -> Result<(), StatusError> {
    let value = downtime.map_or(node::NEVER.to_owned(), |time| format!("{}ms", time.as_millis()));
    cluster.store.write(|state| {
        change(cluster, state, &NODES, &Key::cluster(name), Part::Main, |object| {
            object["metadata"]["annotations"][node::REBOOT] = json!(value);
        })
    })
}

/// Changes an object.
fn change(
    cluster: &Cluster,
    state: &mut State,
    collection: &Collection,
    key: &Key,
    part: Part,
    edit: impl FnOnce(&mut Value),
) -> Result<(), StatusError> {
    let missing = || StatusError::not_found(&collection.group, &collection.plural, &key.name);
    let resource = cluster.catalog.of(collection).ok_or_else(missing)?;
    let object = state.get(collection, key).ok_or_else(missing)?;
    let mut next = Value::clone(&object);
    edit(&mut next);
    registry::update(state, &resource, &next, part, Effect::Real).map(|_| ())
}
