//! The conditions by which a node tells where its maintenance stands, for those who watch nodes and not maintenances.
//!
//! The types, reasons and their meaning are those of KEP-5683, "Node Lifecycle Conditions" (alpha in Kubernetes 1.37;
//! `keps/sig-node/5683-lifecycle-conditions` in kubernetes/enhancements). By that KEP nobody owns a condition for good:
//! ours are known by their message, and what others wrote is overwritten only for as long as the maintenance lasts.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::condition::{self, ConditionType, whole_seconds};
use crate::maintenance::NodeMaintenance;
use crate::status::{NodeMaintenanceStatus, Phase};

/// Pods are being moved away.
pub const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
/// Every pod that is to be moved is gone.
pub const DRAINED: &str = "Drained";
/// The node is in maintenance.
pub const MAINTENANCE_IN_PROGRESS: &str = "MaintenanceInProgress";

/// How messages of ours begin.
const MARK: &str = "NodeMaintenance ";

/// A strategic merge patch for the node's status that makes it say how `maintenance`, whose status this is, stands; none
/// if it does. `ends` is for a maintenance that gives its node back.
pub fn patch(
    maintenance: &NodeMaintenance,
    status: &NodeMaintenanceStatus,
    ends: bool,
    node: &Node,
    now: Timestamp,
) -> Option<Value> {
    let there = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let in_maintenance = !ends && condition::holds(&status.conditions, ConditionType::Cordoned);
    let changes: Vec<Value> = if in_maintenance {
        let wanted = wanted(maintenance, status).into_iter();
        wanted.filter_map(|wanted| change(there, wanted, now)).collect()
    } else {
        let ours = there.iter().filter(|condition| is_ours(condition));
        ours.map(|condition| json!({"type": condition.type_, "$patch": "delete"})).collect()
    };
    (!changes.is_empty()).then(|| json!({"status": {"conditions": changes}}))
}

struct Wanted {
    type_: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

fn wanted(maintenance: &NodeMaintenance, status: &NodeMaintenanceStatus) -> [Wanted; 3] {
    let name = maintenance.metadata.name.as_deref().unwrap_or_default();
    let drained = condition::holds(&status.conditions, ConditionType::Drained);
    let draining = !drained && status.phase != Some(Phase::Failed);
    let why = maintenance.spec.short_reason();
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let message = format!("{MARK}{name}{why}");
    let done = if drained { "DrainCompleted" } else { "AdminRequested" };
    [
        Wanted { type_: DRAIN_IN_PROGRESS, holds: draining, reason: done, message: message.clone() },
        Wanted { type_: DRAINED, holds: drained, reason: done, message: message.clone() },
        Wanted { type_: MAINTENANCE_IN_PROGRESS, holds: true, reason: "AdminRequested", message },
    ]
}

fn change(there: &[NodeCondition], wanted: Wanted, now: Timestamp) -> Option<Value> {
    let Wanted { type_, holds, reason, message } = wanted;
    let status = if holds { "True" } else { "False" };
    let before = there.iter().find(|condition| condition.type_ == type_);
    let same_status = before.filter(|before| before.status == status);
    if same_status.is_some_and(|before| {
        before.reason.as_deref() == Some(reason) && before.message.as_deref() == Some(message.as_str())
    }) {
        return None;
    }
    let at = Time(whole_seconds(now).0);
    let since = same_status.and_then(|before| before.last_transition_time.clone()).unwrap_or(at.clone());
    Some(json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since, "lastHeartbeatTime": at,
    }))
}

fn is_ours(condition: &NodeCondition) -> bool {
    [DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_IN_PROGRESS].contains(&condition.type_.as_str())
        && condition.message.as_deref().is_some_and(|message| message.starts_with(MARK))
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
        let patch = patch(maintenance, status, false, &node(there), now());
        let conditions = patch.map(|patch| patch["status"]["conditions"].as_array().unwrap().clone());
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |c: &Value| format!("{}={}/{}", word(&c["type"]), word(&c["status"]), word(&c["reason"]));
        conditions.iter().flatten().map(line).collect()
    }

    #[test]
    fn a_drain_is_told_from_its_beginning_to_its_end() {
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
    fn what_is_said_already_is_not_said_again_and_keeps_its_clock() {
        let running = maintenance("Running", "True", "False");
        let first =
            patch(&running, running.status.as_ref().unwrap(), false, &node(&json!([])), now()).unwrap();
        let there = &first["status"]["conditions"];
        assert!(said(&running, there).is_empty());
        let later = now().checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
        let mut renamed = running.clone();
        renamed.spec.reason = Some("disk".to_owned());
        let second = patch(&renamed, renamed.status.as_ref().unwrap(), false, &node(there), later).unwrap();
        assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(second["status"]["conditions"][0]["message"], "NodeMaintenance m: disk");
        renamed.spec.reason = Some("x".repeat(100_000));
        let long = patch(&renamed, renamed.status.as_ref().unwrap(), false, &node(there), later).unwrap();
        let message = long["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.chars().count() < 1100, "{}", message.len());
    }

    #[test]
    fn at_the_end_ours_go_and_those_of_others_stay() {
        let running = maintenance("Running", "True", "False");
        let status = running.status.as_ref().unwrap();
        let there = json!([
            {"type": "Ready", "status": "True", "message": "NodeMaintenance is not mine"},
            {"type": "Drained", "status": "True", "message": "by an admin"},
            {"type": "DrainInProgress", "status": "True", "message": "NodeMaintenance m"},
        ]);
        let patch = |ends| patch(&running, status, ends, &node(&there), now()).unwrap();
        assert_eq!(
            patch(true)["status"]["conditions"],
            json!([{"type": "DrainInProgress", "$patch": "delete"}])
        );
        assert_eq!(said(&maintenance("Failed", "False", "False"), &there), ["DrainInProgress=-/-"]);
    }
}
