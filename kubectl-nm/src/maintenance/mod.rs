//! `NodeMaintenance` objects as people see them: states, headlines, changes, and the requests that create and delete them.
//!
//! Objects may come from this project's reconciler or from the medik8s node-maintenance-operator, whose statuses have
//! neither conditions nor pod counts: everything here works with both.

pub(crate) mod cache;
pub(crate) mod changes;
pub(crate) mod creator;
pub(crate) mod drain_change;
pub(crate) mod fields;
pub(crate) mod headline;
pub(crate) mod reconcilers;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod suspend;

pub(crate) use fields::{
    PICKUP_TIMEOUT, ROLL_FINALIZER, ROLL_LABEL, attached_volumes, condition, cordoned_since, degraded,
    error_without_details, name_unless_node, node, pending_pods, roll_name, status, uid,
};
pub(crate) use headline::{drain_result, headline, kept_by_roll, pods_gone, reason, stop_progress};
pub(crate) use reconcilers::{Leadership, Reconcilers};
pub(crate) use state::State;

#[cfg(test)]
pub(crate) mod fixture {
    use nm_shared::NodeMaintenance;
    use serde_json::{Value, json};

    /// An object named like its node, with uid `uid-<node>` and that status.
    pub(crate) fn with_status(node: &str, status: Value) -> NodeMaintenance {
        let mut object = requested(node);
        object.status = serde_json::from_value(status).unwrap();
        object
    }

    /// An object that no reconciler has picked up.
    pub(crate) fn requested(node: &str) -> NodeMaintenance {
        named(node, node, &format!("uid-{node}"))
    }

    /// An object for that node with a name and uid of its own.
    pub(crate) fn named(name: &str, node: &str, uid: &str) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "kind": "NodeMaintenance",
            "metadata": {
                "name": name, "uid": uid, "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-02T03:04:05Z",
            },
            "spec": {"nodeName": node},
        }))
        .unwrap()
    }

    /// The object while it is being deleted.
    pub(crate) fn stopping(mut object: NodeMaintenance) -> NodeMaintenance {
        object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
        object.metadata.finalizers = Some(vec![nm_shared::api::names::FINALIZER.to_owned()]);
        object
    }

    /// The facts about the budget in the API server's sentence, as the reconciler writes them.
    pub(crate) fn budget(message: &str) -> Value {
        json!(nm_shared::cluster::disruption_budget::BudgetRefusal::from(message).budget)
    }

    /// A status in the middle of a drain with one blocked pod.
    pub(crate) fn running(progress: i32, blocked: &[(&str, &str)]) -> Value {
        let pods: Vec<Value> = blocked
            .iter()
            .map(|(name, message)| {
                json!({
                    "namespace": "shop", "name": name, "reason": "DisruptionBudget", "message": message,
                    "since": "2026-01-02T03:04:05Z", "attempts": 3, "budget": budget(message),
                })
            })
            .collect();
        json!({
            "phase": "Running", "drainProgress": progress, "evictionPods": 10, "totalpods": 12,
            "blockedPods": pods,
            "podCounts": {"evicting": 2, "terminating": 1, "blocked": blocked.len(), "gone": 4, "staying": 2},
        })
    }
}
