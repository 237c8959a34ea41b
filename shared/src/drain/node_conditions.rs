//! The conditions of a node that show its maintenance, for programs that watch nodes and not maintenances.
//!
//! The types, reasons and their meaning are those of KEP-5683, "Node Lifecycle Conditions" (alpha in Kubernetes 1.37;
//! `keps/sig-node/5683-lifecycle-conditions` in kubernetes/enhancements). By that KEP no program owns a condition: ours
//! are recognized by their message, and those of others are overwritten only while the maintenance lasts.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use serde_json::{Value, json};

use crate::api::condition::{self, ConditionType, whole_seconds};
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{NodeMaintenanceStatus, Phase};
use crate::api::suspension::Suspension;

/// Pods are being moved away.
pub const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
/// Every pod that is to be moved is gone.
pub const DRAINED: &str = "Drained";
/// A maintenance is planned that has not begun.
pub const MAINTENANCE_PLANNED: &str = "MaintenancePlanned";
/// The node is in maintenance.
pub const MAINTENANCE_IN_PROGRESS: &str = "MaintenanceInProgress";

/// The prefix of our messages.
const MESSAGE_PREFIX: &str = "NodeMaintenance ";

/// The conditions to publish on the node of `maintenance`, which has this status. `ends` is for a maintenance that
/// stops.
pub fn wanted(
    maintenance: &NodeMaintenance,
    status: &NodeMaintenanceStatus,
    ends: bool,
) -> Vec<NodeCondition> {
    let has_begun = status.has_begun();
    let is_planned =
        status.phase == Some(Phase::Pending) && Suspension::in_status(status) == Some(Suspension::Planned);
    if ends || !(has_begun || is_planned) {
        return Vec::new();
    }
    let name = maintenance.metadata.name.as_deref().unwrap_or_default();
    let drained = condition::is_true(&status.conditions, ConditionType::Drained);
    let draining = !drained && status.phase != Some(Phase::Failed) && Suspension::in_status(status).is_none();
    let why = maintenance.spec.short_reason();
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let message = format!("{MESSAGE_PREFIX}{name}{why}");
    let done = if drained { "DrainCompleted" } else { "AdminRequested" };
    let condition = |type_: &str, is_true: bool, reason: &str| NodeCondition {
        type_: type_.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.clone()),
        ..NodeCondition::default()
    };
    if !has_begun {
        return vec![condition(MAINTENANCE_PLANNED, true, "AdminRequested")];
    }
    vec![
        condition(DRAIN_IN_PROGRESS, draining, done),
        condition(DRAINED, drained, done),
        condition(MAINTENANCE_IN_PROGRESS, true, "AdminRequested"),
    ]
}

/// The strategic merge patch that gives `node` these conditions; none if it has them.
pub fn patch(wanted: &[NodeCondition], node: &Node, now: Timestamp) -> Option<Value> {
    let there = conditions(node);
    let is_wanted = |condition: &NodeCondition| wanted.iter().any(|wanted| wanted.type_ == condition.type_);
    let outdated = there.iter().filter(|condition| is_ours(condition) && !is_wanted(condition));
    let deletions = outdated.map(|condition| json!({"type": condition.type_, "$patch": "delete"}));
    let changes: Vec<Value> =
        wanted.iter().filter_map(|wanted| change(there, wanted, now)).chain(deletions).collect();
    (!changes.is_empty()).then(|| json!({"status": {"conditions": changes}}))
}

/// Whether a condition of a node was written for a maintenance.
pub fn is_ours(condition: &NodeCondition) -> bool {
    [DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_PLANNED, MAINTENANCE_IN_PROGRESS]
        .contains(&condition.type_.as_str())
        && condition.message.as_deref().is_some_and(|message| message.starts_with(MESSAGE_PREFIX))
}

fn conditions(node: &Node) -> &[NodeCondition] {
    node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn change(there: &[NodeCondition], wanted: &NodeCondition, now: Timestamp) -> Option<Value> {
    let before = there.iter().find(|before| before.type_ == wanted.type_ && before.status == wanted.status);
    if before.is_some_and(|before| before.reason == wanted.reason && before.message == wanted.message) {
        return None;
    }
    let now = whole_seconds(now);
    let since = before.and_then(|before| before.last_transition_time.clone()).unwrap_or(now.clone());
    Some(json!(NodeCondition {
        last_transition_time: Some(since),
        last_heartbeat_time: Some(now),
        ..wanted.clone()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn maintenance(phase: &str, cordoned: &str, drained: &str) -> NodeMaintenance {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": now()});
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "m"}, "spec": {"nodeName": "n1", "reason": "kernel"},
            "status": {"phase": phase, "conditions": [condition("Cordoned", cordoned), condition("Drained", drained)]},
        }))
        .unwrap()
    }

    fn node(conditions: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}}))
            .unwrap()
    }

    /// The conditions of the patch as `TYPE=STATUS/REASON`.
    fn said(maintenance: &NodeMaintenance, there: &Value) -> Vec<String> {
        let status = maintenance.status.as_ref().unwrap();
        let patch = patch(&wanted(maintenance, status, false), &node(there), now());
        let conditions = patch.map(|patch| patch["status"]["conditions"].as_array().unwrap().clone());
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |c: &Value| format!("{}={}/{}", word(&c["type"]), word(&c["status"]), word(&c["reason"]));
        conditions.iter().flatten().map(line).collect()
    }

    #[test]
    fn a_drain_is_shown_from_beginning_to_end() {
        assert_eq!(
            said(&maintenance("Running", "True", "False"), &json!([])),
            [
                "DrainInProgress=True/AdminRequested",
                "Drained=False/AdminRequested",
                "MaintenanceInProgress=True/AdminRequested"
            ]
        );
        assert_eq!(
            said(&maintenance("Succeeded", "True", "True"), &json!([])),
            [
                "DrainInProgress=False/DrainCompleted",
                "Drained=True/DrainCompleted",
                "MaintenanceInProgress=True/AdminRequested"
            ]
        );
        assert_eq!(
            said(&maintenance("Failed", "True", "False"), &json!([]))[0],
            "DrainInProgress=False/AdminRequested"
        );
    }

    #[test]
    fn a_plan_is_shown_until_the_maintenance_begins() {
        let suspended = |phase: &str, cordoned: &str, reason: &str| {
            let mut maintenance = maintenance(phase, cordoned, "False");
            let status = maintenance.status.as_mut().unwrap();
            status.conditions.push(
                serde_json::from_value(json!({"type": "Suspended", "status": "True", "reason": reason,
                    "message": "", "lastTransitionTime": now()}))
                .unwrap(),
            );
            maintenance
        };
        let planned = suspended("Pending", "False", "Planned");
        assert_eq!(said(&planned, &json!([])), ["MaintenancePlanned=True/AdminRequested"]);
        let there = json!([
            {"type": "MaintenancePlanned", "status": "True", "message": "NodeMaintenance m"},
        ]);
        let begun = said(&maintenance("Running", "True", "False"), &there);
        assert_eq!((begun.len(), begun[3].as_str()), (4, "MaintenancePlanned=-/-"));
        let paused = said(&suspended("Running", "True", "Paused"), &json!([]));
        assert_eq!(paused[0], "DrainInProgress=False/AdminRequested");
        assert!(said(&suspended("Failed", "False", "Planned"), &json!([])).is_empty(), "it is a duplicate");
    }

    #[test]
    fn an_unchanged_condition_is_not_written_and_keeps_its_transition_time() {
        let running = maintenance("Running", "True", "False");
        let wanted =
            |maintenance: &NodeMaintenance| wanted(maintenance, maintenance.status.as_ref().unwrap(), false);
        let first = patch(&wanted(&running), &node(&json!([])), now()).unwrap();
        let there = &first["status"]["conditions"];
        assert!(said(&running, there).is_empty());
        let later = now().checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
        let mut renamed = running.clone();
        renamed.spec.reason = Some("disk".to_owned());
        let second = patch(&wanted(&renamed), &node(there), later).unwrap();
        assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(second["status"]["conditions"][0]["message"], "NodeMaintenance m: disk");
        renamed.spec.reason = Some("x".repeat(100_000));
        let long = patch(&wanted(&renamed), &node(there), later).unwrap();
        let message = long["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.chars().count() < 1100, "{}", message.len());
    }

    #[test]
    fn at_the_end_our_conditions_are_removed_and_those_of_others_stay() {
        let running = maintenance("Running", "True", "False");
        let status = running.status.as_ref().unwrap();
        let there = json!([
            {"type": "Ready", "status": "True", "message": "NodeMaintenance is not mine"},
            {"type": "Drained", "status": "True", "message": "by an admin"},
            {"type": "DrainInProgress", "status": "True", "message": "NodeMaintenance m"},
        ]);
        assert!(conditions(&node(&there)).iter().any(is_ours));
        let patch = patch(&wanted(&running, status, true), &node(&there), now()).unwrap();
        let only_others = json!([there[0], there[1]]);
        assert_eq!(patch["status"]["conditions"], json!([{"type": "DrainInProgress", "$patch": "delete"}]));
        assert!(!conditions(&node(&only_others)).iter().any(is_ours));
        assert_eq!(said(&maintenance("Failed", "False", "False"), &there), ["DrainInProgress=-/-"]);
    }
}
