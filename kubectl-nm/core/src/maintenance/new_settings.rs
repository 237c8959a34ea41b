//! What new settings do to a drain that is under way, or has failed: their times have begun with its cordon, or with the first refusal
//! of an eviction.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nm_shared::{NodeMaintenance, Phase, PodReference, WaitReason};
use serde_json::{Map, Value};

use crate::args::duration;
use crate::maintenance::{
    State, blocked_pods, has_timed_out, hold, is_refused, status, time_limit_end, timeout_seconds,
    waiting_for, waiting_pods,
};
use crate::terminal::text::{counted, first_names};

/// What the maintenance does with these fields of `spec.drain` that would surprise whoever sets them, in clauses.
pub fn effects(existing: &NodeMaintenance, drain: &Map<String, Value>, now: Timestamp) -> Vec<String> {
    let has_failed = State::of(existing) == State::Failed && has_timed_out(existing);
    let is_under_way = matches!(State::of(existing), State::Draining | State::Blocked);
    if !has_failed && !is_under_way {
        return Vec::new();
    }
    let seconds = |field: &str| drain.get(field).and_then(Value::as_i64);
    let set = |field: &str| seconds(field).filter(|seconds| *seconds > 0);
    let limit = seconds("timeoutSeconds").unwrap_or_else(|| timeout_seconds(existing));
    // A drain that has succeeded once does not time out.
    let is_first = status(existing).phase != Some(Phase::Succeeded);
    let times_out = time_limit_end(existing, limit).filter(|_| is_first);
    // Of a drain that has failed, the new end is said with the command.
    let is_new = set("timeoutSeconds").is_some() && !has_failed;
    let end = times_out.filter(|_| is_new).map(|end| {
        format!("its time limit counts from the cordon, so that the drain fails {}", when(end, now))
    });
    let deleted = set("deleteAfterSeconds").and_then(|after| {
        if has_failed { Some(deleted_later(after)) } else { deleted(existing, after, now) }
    });
    let evicted = awaited_until(existing, drain, has_failed)
        .filter(|end| times_out.is_none_or(|times_out| *end < times_out))
        .and_then(|end| evicted(existing, end, now));
    [end, deleted, evicted].into_iter().flatten().collect()
}

fn when(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("at {at}") } else { String::from("at once") }
}

/// A drain that has failed counts refusals anew once it continues.
fn deleted_later(after: i64) -> String {
    let after = duration::show(Duration::from_secs(after.try_into().unwrap_or_default()));
    format!("{after} after it continues, pods whose evictions are refused are deleted, {REGARDLESS}")
}

const REGARDLESS: &str = "regardless of disruption budgets, if nm-reconciler may delete pods";

/// The pods that are deleted at once, or from when on they are; none while nothing is evicted. Of those that wait for their turn,
/// the status does not show the first refusal, but a later time.
fn deleted(existing: &NodeMaintenance, after: i64, now: Timestamp) -> Option<String> {
    let refused = blocked_pods(existing).iter().filter(|pod| is_refused(pod));
    let refused = refused.map(|pod| (pod.since.0, pod.reference()));
    let turns = waiting_pods(existing).iter().filter(|pod| pod.reason == WaitReason::BudgetTurn);
    let turns = turns.map(|pod| (pod.since.0, pod.reference()));
    let pods: Vec<(Timestamp, PodReference)> =
        refused.chain(turns).filter(|_| hold(existing).is_none()).collect();
    let at =
        |since: Timestamp| since.saturating_add(SignedDuration::from_secs(after)).unwrap_or(Timestamp::MAX);
    let over: Vec<String> =
        pods.iter().filter(|(since, _)| at(*since) <= now).map(|(_, pod)| pod.to_string()).collect();
    let first = pods.iter().map(|(since, _)| at(*since)).min()?;
    Some(if over.is_empty() {
        format!("pods whose evictions are refused are deleted, the first by {first}, {REGARDLESS}")
    } else {
        let are = if over.len() == 1 { "is" } else { "are" };
        let count = counted(over.len(), "pod");
        let names = first_names(&over);
        format!(
            "{count} whose evictions are refused for that long {are} deleted at once, {REGARDLESS}: {names}"
        )
    })
}

/// When pods are evicted that are to terminate on their own, if these settings set that time, or let it matter again.
fn awaited_until(
    existing: &NodeMaintenance,
    drain: &Map<String, Value>,
    has_failed: bool,
) -> Option<Timestamp> {
    let of_existing = || Some(existing.spec.drain.as_ref()?.wait_for_completion.as_ref()?.timeout_seconds);
    let seconds = match drain.get("waitForCompletion") {
        Some(completion) => completion["timeoutSeconds"].as_i64(),
        None => of_existing().filter(|_| has_failed),
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
        let deleted = "3 pods whose evictions are refused for that long are deleted at once, regardless of disruption budgets, if \
                       nm-reconciler may delete pods: shop/web-0, shop/web-2, shop/db-0";
        assert_eq!(said(&drain, json!({"deleteAfterSeconds": 30})), [deleted]);
        let later = "pods whose evictions are refused are deleted, the first by 2026-01-02T03:06:05Z, regardless of disruption budgets, if \
                     nm-reconciler may delete pods";
        assert_eq!(said(&drain, json!({"deleteAfterSeconds": 120})), [later]);
        let evicted = "pods that are to terminate on their own are evicted at once: shop/import-x";
        assert_eq!(said(&drain, json!({"waitForCompletion": {"timeoutSeconds": 9}})), [evicted]);
        assert_eq!(said(&drain, json!({"waitForCompletion": {"timeoutSeconds": 0}})), [""; 0]);
        let both = json!({"timeoutSeconds": 61, "waitForCompletion": {"timeoutSeconds": 70}});
        assert_eq!(said(&drain, both), [format!("{fails}2026-01-02T03:05:06Z")], "it fails before");
        let mut again = maintenance("Running", "Evicting");
        again.status.as_mut().unwrap().phase = Some(Phase::Succeeded);
        assert!(said(&again, json!({"timeoutSeconds": 60})).is_empty(), "it was drained before");
        let mut held = maintenance("Running", "WaitingForHooks");
        held.status.as_mut().unwrap().hold = serde_json::from_value(
            json!({"since": "2026-01-02T03:04:05Z", "hooks": [{"name": "flush", "owner": "a"}]}),
        )
        .unwrap();
        assert_eq!(said(&held, json!({"deleteAfterSeconds": 30})), [""; 0], "nothing is evicted yet");
    }

    #[test]
    fn a_drain_that_failed_evicts_what_it_waited_for_once_it_continues() {
        let mut failed = maintenance("Failed", "TimedOut");
        let limited = json!({"timeoutSeconds": 60, "waitForCompletion": {"timeoutSeconds": 30}});
        failed.spec.drain = Some(serde_json::from_value(limited).unwrap());
        let evicted = "pods that are to terminate on their own are evicted at once: shop/import-x";
        assert_eq!(said(&failed, json!({"timeoutSeconds": 0})), [evicted]);
        let later = "30s after it continues, pods whose evictions are refused are deleted, regardless of disruption budgets, if \
                     nm-reconciler may delete pods";
        assert_eq!(said(&failed, json!({"timeoutSeconds": 0, "deleteAfterSeconds": 30})), [later, evicted]);
        failed.spec.drain = None;
        assert_eq!(said(&failed, json!({"timeoutSeconds": 0})), [""; 0]);
    }
}
