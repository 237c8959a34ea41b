//! What new settings do to a drain that is under way, or has failed: their times have begun with its cordon, or with the first refusal
//! of an eviction.

use jiff::{SignedDuration, Timestamp};
use nm_shared::{NodeMaintenance, PodReference, WaitReason};
use serde_json::{Map, Value};

use crate::maintenance::{
    State, blocked_pods, has_timed_out, is_refused, time_limit_end, waiting_for, waiting_pods,
};
use crate::terminal::text::{counted, first_names};

/// What the maintenance does with these fields of `spec.drain` that would surprise whoever sets them, in clauses.
pub fn effects(existing: &NodeMaintenance, drain: &Map<String, Value>, now: Timestamp) -> Vec<String> {
    let has_failed = State::of(existing) == State::Failed && has_timed_out(existing);
    if !has_failed && !matches!(State::of(existing), State::Draining | State::Blocked) {
        return Vec::new();
    }
    let set = |field: &str| drain.get(field).and_then(Value::as_i64).filter(|seconds| *seconds > 0);
    // Of a drain that has failed, the new end is said with the command.
    let end = set("timeoutSeconds").filter(|_| !has_failed);
    let end = end.and_then(|seconds| time_limit_end(existing, seconds));
    let end = end.map(|end| {
        format!("its time limit counts from the cordon, so that the drain fails {}", when(end, now))
    });
    let deleted = set("deleteAfterSeconds").and_then(|seconds| deleted(existing, seconds, now));
    let evicted = awaited_until(existing, drain, has_failed).and_then(|end| evicted(existing, end, now));
    [end, deleted, evicted].into_iter().flatten().collect()
}

fn when(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("at {at}") } else { String::from("at once") }
}

/// The pods that are deleted at once, or from when on they are.
fn deleted(existing: &NodeMaintenance, seconds: i64, now: Timestamp) -> Option<String> {
    let refused = blocked_pods(existing).iter().filter(|pod| is_refused(pod));
    let refused = refused.map(|pod| (pod.since.0, pod.reference()));
    let turns = waiting_pods(existing).iter().filter(|pod| pod.reason == WaitReason::BudgetTurn);
    let turns = turns.map(|pod| (pod.since.0, pod.reference()));
    let pods: Vec<(Timestamp, PodReference)> = refused.chain(turns).collect();
    let at =
        |since: Timestamp| since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let over: Vec<String> =
        pods.iter().filter(|(since, _)| at(*since) <= now).map(|(_, pod)| pod.to_string()).collect();
    let regardless = "regardless of disruption budgets";
    let first = pods.iter().map(|(since, _)| at(*since)).min()?;
    Some(if over.is_empty() {
        format!("from {first} on, pods whose evictions are refused are deleted, {regardless}")
    } else {
        let are = if over.len() == 1 { "is" } else { "are" };
        let count = counted(over.len(), "pod");
        format!(
            "{count} whose evictions are refused for that long {are} deleted at once, {regardless}: {}",
            first_names(&over)
        )
    })
}

/// When pods are evicted that are to terminate on their own, if these settings set that time, or let it matter again.
fn awaited_until(
    existing: &NodeMaintenance,
    drain: &Map<String, Value>,
    has_failed: bool,
) -> Option<Timestamp> {
    let seconds = match drain.get("waitForCompletion") {
        Some(completion) => completion["timeoutSeconds"].as_i64(),
        None if has_failed => existing
            .spec
            .drain
            .as_ref()?
            .wait_for_completion
            .as_ref()
            .map(|completion| completion.timeout_seconds),
        None => None,
    };
    time_limit_end(existing, seconds?)
}

fn evicted(existing: &NodeMaintenance, end: Timestamp, now: Timestamp) -> Option<String> {
    let pods: Vec<String> =
        waiting_for(existing, WaitReason::Completing).map(|pod| pod.reference().to_string()).collect();
    (!pods.is_empty()).then(|| {
        let names = first_names(&pods);
        format!("pods that are to terminate on their own are evicted {}: {names}", when(end, now))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::with_status;

    fn maintenance(phase: &str, reason: &str) -> NodeMaintenance {
        let at = "2026-01-02T03:04:05Z";
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
        let budget = json!({"name": "web"});
        let pod = |name: &str, reason: &str, since: &str| json!({"namespace": "shop", "name": name, "reason": reason, "since": since, "message": "no", "attempts": 3, "budget": budget});
        let mut untried = pod("web-2", "DisruptionBudget", at);
        untried["attempts"] = json!(0);
        let status = json!({
            "phase": phase,
            "conditions": [condition("Cordoned", "True", "Cordoned"), condition("Drained", "False", reason)],
            "blockedPods": [pod("web-0", "DisruptionBudget", at), pod("web-1", "DisruptionBudget", "2026-01-02T03:05:00Z"), untried],
            "waitingPods": [pod("db-0", "BudgetTurn", at), pod("import-x", "Completing", at)],
        });
        with_status("n1", status)
    }

    fn said(existing: &NodeMaintenance, drain: Value) -> Vec<String> {
        let Value::Object(drain) = drain else { panic!() };
        effects(existing, &drain, "2026-01-02T03:05:05Z".parse().unwrap())
    }

    #[test]
    fn times_that_are_over_do_at_once_what_they_announce() {
        let drain = maintenance("Running", "Evicting");
        assert_eq!(said(&drain, json!({"force": true})), [""; 0]);
        let fails = "its time limit counts from the cordon, so that the drain fails at ";
        assert_eq!(said(&drain, json!({"timeoutSeconds": 60})), [format!("{fails}once")]);
        assert_eq!(said(&drain, json!({"timeoutSeconds": 61})), [format!("{fails}2026-01-02T03:05:06Z")]);
        let deleted = "3 pods whose evictions are refused for that long are deleted at once, regardless of disruption budgets: shop/web-0, \
                       shop/web-2, shop/db-0";
        assert_eq!(said(&drain, json!({"deleteAfterSeconds": 30})), [deleted]);
        let later = "from 2026-01-02T03:06:05Z on, pods whose evictions are refused are deleted, regardless of disruption budgets";
        assert_eq!(said(&drain, json!({"deleteAfterSeconds": 120})), [later]);
        let evicted = "pods that are to terminate on their own are evicted at once: shop/import-x";
        assert_eq!(said(&drain, json!({"waitForCompletion": {"timeoutSeconds": 9}})), [evicted]);
        assert_eq!(said(&drain, json!({"waitForCompletion": {"timeoutSeconds": 0}})), [""; 0]);
    }

    #[test]
    fn a_drain_that_failed_evicts_what_it_waited_for_once_it_continues() {
        let mut failed = maintenance("Failed", "TimedOut");
        let limited = json!({"timeoutSeconds": 60, "waitForCompletion": {"timeoutSeconds": 30}});
        failed.spec.drain = Some(serde_json::from_value(limited).unwrap());
        let evicted = "pods that are to terminate on their own are evicted at once: shop/import-x";
        assert_eq!(said(&failed, json!({"timeoutSeconds": 0})), [evicted]);
        failed.spec.drain = None;
        assert_eq!(said(&failed, json!({"timeoutSeconds": 0})), [""; 0]);
    }
}
