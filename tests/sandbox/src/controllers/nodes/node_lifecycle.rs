//! The node lifecycle controller: it taints nodes that are cordoned, not ready or unreachable.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::NODES;
use crate::cluster::store::{Change, Collection, Key};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::nodes::node_fit::UNSCHEDULABLE_TAINT;
use crate::model::clock::metav1_time;
use crate::model::condition;

const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The node lifecycle controller.
#[derive(Debug, Default)]
pub(crate) struct NodeLifecycle {
    dirty: BTreeSet<Key>,
}

/// The `NoSchedule` taints of this controller that the node should have.
fn wanted(node: &Value) -> Vec<&'static str> {
    let mut keys = Vec::new();
    if node["spec"]["unschedulable"] == true {
        keys.push(UNSCHEDULABLE_TAINT);
    }
    let ready = condition::find(&node["status"], "Ready");
    match ready.and_then(|ready| ready["status"].as_str()) {
        Some("False") => keys.push(NOT_READY_TAINT),
        Some("Unknown") => keys.push(UNREACHABLE_TAINT),
        _ => {}
    }
    keys
}

/// Adds and removes the taints of this controller and keeps all others.
fn settle(node: &mut Value, now: &str) {
    let wanted = wanted(node);
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let before = taints.clone();
    taints.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        let ours = [UNSCHEDULABLE_TAINT, NOT_READY_TAINT, UNREACHABLE_TAINT].contains(&key);
        !(ours && taint["effect"] == "NoSchedule") || wanted.contains(&key)
    });
    for key in wanted {
        if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule") {
            taints.push(json!({"key": key, "effect": "NoSchedule", "timeAdded": now}));
        }
    }
    if taints == before {
        return;
    }
    if taints.is_empty() {
        if let Some(spec) = node["spec"].as_object_mut() {
            spec.remove("taints");
        }
    } else {
        node["spec"]["taints"] = json!(taints);
    }
}

impl Controller for NodeLifecycle {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[NODES];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, _: &Collection, change: &Change) {
        if let Some(node) = &change.after {
            self.dirty.insert(Key::of(node));
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        let next = |this: &mut Self| this.dirty.pop_first();
        sync_queue(self, ctx, next, |_, ctx, key| {
            if let Some(node) = ctx.get(&NODES, &key) {
                let now = metav1_time(ctx.now);
                ctx.edit(&NODES, &node, |node| settle(node, &now));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut node: Value, expected: &[&str]) {
        settle(&mut node, "now");
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keys: Vec<&str> = taints.filter_map(|taint| taint["key"].as_str()).collect();
        assert_eq!(keys, expected, "{node}");
    }

    #[test]
    fn a_cordon_has_a_taint_and_other_taints_are_left_alone() {
        let own = || json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"});
        let foreign = || json!({"key": "medik8s.io/drain", "effect": "NoSchedule"});
        check(json!({"spec": {"unschedulable": true}}), &[UNSCHEDULABLE_TAINT]);
        check(
            json!({"spec": {"unschedulable": true, "taints": [foreign(), own()]}}),
            &["medik8s.io/drain", UNSCHEDULABLE_TAINT],
        );
        check(json!({"spec": {"taints": [own(), foreign()]}}), &["medik8s.io/drain"]);
        check(json!({"spec": {"taints": [own()]}}), &[]);
        let ready = |status: &str| json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        check(ready("False"), &[NOT_READY_TAINT]);
        check(ready("Unknown"), &[UNREACHABLE_TAINT]);
        check(ready("True"), &[]);
    }
}
