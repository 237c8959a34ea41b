//! One line about a maintenance: its state, its progress, and the reason why it waits or failed.

use kube::ResourceExt;
use nm_shared::api::condition::ConditionType;
use nm_shared::api::names::FINALIZER;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase, PodCounts};

use crate::args::duration::age;
use crate::maintenance::fields::{
    ROLL_FINALIZER, attached_volumes, condition, cordoned_since, pods_to_go, roll_name, status, true_since,
};
use crate::maintenance::state::State;
use crate::terminal::text::Line;

/// `Blocked 40%: 4 pods remaining (1 blocked, 3 evicting), 4 gone`.
pub fn headline(maintenance: &NodeMaintenance) -> Line {
    let state = State::of(maintenance);
    let line = Line::default().with(state.style(), state.word());
    let status = status(maintenance);
    match state {
        State::Requested => line.and(": nm-reconciler has not begun yet"),
        State::Planned => line.and(": begins when it is resumed"),
        State::Queued | State::Failed => match reason(maintenance) {
            "" => line,
            reason => line.and(": ").and(reason),
        },
        State::Draining | State::Blocked | State::Paused => {
            let gone = pods_gone(status);
            let gone = if gone > 0 { format!(", {gone} gone") } else { String::new() };
            let volumes = match attached(maintenance) {
                volumes if volumes.is_empty() => volumes,
                volumes => format!(", waiting for {volumes} to be detached"),
            };
            line.and(format!(" {}%: {}{gone}{volumes}", status.drain_progress, remaining(status)))
        }
        State::Drained => {
            // Reconcilers that do not tell departures apart report how many pods are gone.
            let result = drain_result(maintenance).filter(|_| status.departed_pods.is_some());
            let result = match (result, pods_gone(status)) {
                (Some(result), 1..) => result,
                (None, gone @ 1..) => format!("{} gone", pods(gone)),
                _ => String::from("no pods had to go"),
            };
            line.and(format!(": {result}{}", still_attached(maintenance)))
        }
        State::Stopping => line.and(": ").and(stop_progress(maintenance)),
    }
}

/// What a maintenance that is being deleted waits for: nm-reconciler until the node is back in service, then others'
/// finalizers.
pub fn stop_progress(maintenance: &NodeMaintenance) -> String {
    let finalizers = maintenance.finalizers();
    if finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return String::from("the node is returning to service");
    }
    if let Some(roll) = kept_by_roll(maintenance) {
        return format!("back in service; roll {roll} checks that it and its workloads stay healthy");
    }
    format!("back in service; finalizers: {}", finalizers.join(", "))
}

/// The roll that keeps a maintenance although its node is back in service.
pub fn kept_by_roll(maintenance: &NodeMaintenance) -> Option<&str> {
    let is_of_roll = |finalizers: &[String]| matches!(finalizers, [only] if only == ROLL_FINALIZER);
    roll_name(maintenance).filter(|_| is_of_roll(maintenance.finalizers()))
}

/// How many pods that had to go are gone. Where the status counts none, they are derived from the pods at the beginning.
pub fn pods_gone(status: &NodeMaintenanceStatus) -> i32 {
    match status.pod_counts {
        counts if counts == PodCounts::default() => {
            status.eviction_pods.saturating_sub(pods_to_go(status)).max(0)
        }
        counts => counts.gone,
    }
}

fn remaining(status: &NodeMaintenanceStatus) -> String {
    let pending = status.pod_counts.by_state().filter(|(state, _)| state.is_pending());
    let by_state: Vec<String> =
        pending.map(|(state, count)| format!("{count} {}", state.word().to_lowercase())).collect();
    let remaining = format!("{} remaining", pods(pods_to_go(status)));
    if by_state.is_empty() { remaining } else { format!("{remaining} ({})", by_state.join(", ")) }
}

/// What a drain has done once it has ended: `30 pods moved in 4m12s, 1 deleted (no controller)`. The time is from the cordon
/// until the last pod was gone. None before.
pub fn drain_result(maintenance: &NodeMaintenance) -> Option<String> {
    let status = status(maintenance);
    let gone = pods_gone(status);
    match status.phase {
        Some(Phase::Succeeded) if gone == 0 => return Some(String::from("no pods had to move")),
        Some(Phase::Succeeded) => {}
        Some(Phase::Failed) if status.eviction_pods > 0 => {
            return Some(format!("{gone} of {} gone", pods(status.eviction_pods)));
        }
        _ => return None,
    }
    let drained = true_since(maintenance, ConditionType::Drained);
    let time = cordoned_since(maintenance).zip(drained).map(|(cordoned, drained)| {
        let paused = match status.paused_seconds {
            Some(seconds) if seconds > 0 => format!(", paused for {}", age(seconds)),
            _ => String::new(),
        };
        format!(" in {}{paused}", age(drained.duration_since(cordoned).as_secs()))
    });
    let (kinds, lost) = departures(status, gone);
    let kinds = kinds.into_iter().enumerate().map(|(index, (count, what))| {
        if index == 0 {
            format!("{} {what}{}", pods(count), time.as_deref().unwrap_or_default())
        } else {
            format!("{count} {what}")
        }
    });
    let lost = (lost > 0).then(|| format!("emptyDir data of {} lost", pods(lost)));
    Some(kinds.chain(lost).collect::<Vec<_>>().join(", "))
}

/// How many of the pods that are gone became what, and how many of them lost data. Where the status does not tell them apart, they
/// are just gone.
fn departures(status: &NodeMaintenanceStatus, gone: i32) -> (Vec<(i32, &'static str)>, i32) {
    let Some(departed) = status.departed_pods else { return (vec![(gone, "gone")], 0) };
    let restarted =
        status.returned_pods.as_ref().map_or(0, |pods| i32::try_from(pods.len()).unwrap_or(i32::MAX));
    let others = [
        (departed.migrated, "migrated"),
        (restarted, "restarted in place"),
        (departed.completed, "completed"),
        (departed.unmanaged, "deleted (no controller)"),
        (departed.finished, "deleted (finished before)"),
    ];
    let moved = others.iter().fold(gone, |moved, (count, _)| moved.saturating_sub(*count)).max(0);
    let all = [(moved, "moved")].into_iter().chain(others);
    (all.filter(|(count, _)| *count > 0).collect(), departed.losing_empty_dir_data)
}

/// Why a maintenance is queued or failed; empty if the status has no reason.
pub fn reason(maintenance: &NodeMaintenance) -> &str {
    match status(maintenance).last_error.as_str() {
        "" => condition(maintenance, ConditionType::Drained).map_or("", |condition| &condition.message),
        error => error,
    }
}

/// The volumes that the maintenance waits for, or has waited for; empty if there are none.
fn attached(maintenance: &NodeMaintenance) -> String {
    let detached = condition(maintenance, ConditionType::VolumesDetached);
    if detached.is_none_or(|detached| detached.status != "False") {
        return String::new();
    }
    match attached_volumes(maintenance).len() {
        0 => String::from("volumes"),
        1 => String::from("1 volume"),
        count => format!("{count} volumes"),
    }
}

fn still_attached(maintenance: &NodeMaintenance) -> String {
    match attached(maintenance) {
        volumes if volumes.is_empty() => volumes,
        volumes => format!(", {volumes} still attached"),
    }
}

fn pods(count: i32) -> String {
    if count == 1 { String::from("1 pod") } else { format!("{count} pods") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects;

    fn suspended(phase: &str, reason: &str) -> serde_json::Value {
        json!({"phase": phase, "conditions": [{"type": "Suspended", "status": "True", "reason": reason,
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    }

    #[test]
    fn the_result_of_a_drain_has_its_pods_and_its_time_as_far_as_they_are_known() {
        let at = |type_: &str, status: &str, time: &str| {
            json!({"type": type_, "status": status, "reason": "R", "message": "",
                "lastTransitionTime": format!("2026-01-02T03:{time}Z")})
        };
        let conditions = json!([at("Cordoned", "True", "04:05"), at("Drained", "True", "06:15")]);
        let late = json!([at("Cordoned", "True", "04:05"), at("Drained", "False", "06:15")]);
        let done = |conditions: &serde_json::Value| json!({"phase": "Succeeded", "evictionPods": 3, "conditions": conditions, "departedPods": {}});
        let mut of_older = done(&conditions);
        of_older["departedPods"] = json!(null);
        let mut mixed = done(&conditions);
        mixed["evictionPods"] = json!(37);
        mixed["departedPods"] =
            json!({"unmanaged": 1, "finished": 2, "losingEmptyDirData": 1, "migrated": 1});
        mixed["returnedPods"] = json!([{"namespace": "a", "name": "b", "since": "2026-01-02T03:04:05Z"}]);
        let mut bare = done(&conditions);
        bare["departedPods"] = json!({"unmanaged": 3});
        let mut paused = done(&conditions);
        paused["pausedSeconds"] = json!(60);
        for (status, expected) in [
            (json!({"phase": "Running", "evictionPods": 3}), None),
            (done(&conditions), Some("3 pods moved in 2m10s")),
            (paused, Some("3 pods moved in 2m10s, paused for 60s")),
            (done(&late), Some("3 pods moved")),
            (of_older, Some("3 pods gone in 2m10s")),
            (bare, Some("3 pods deleted (no controller) in 2m10s")),
            (
                mixed,
                Some(
                    "32 pods moved in 2m10s, 1 migrated, 1 restarted in place, 1 deleted (no controller), \
                     2 deleted (finished before), emptyDir data of 1 pod lost",
                ),
            ),
            (json!({"phase": "Succeeded"}), Some("no pods had to move")),
            (
                json!({"phase": "Failed", "evictionPods": 3, "podCounts": {"gone": 1, "blocked": 2}}),
                Some("1 of 3 pods gone"),
            ),
            (json!({"phase": "Failed", "lastError": "no such node"}), None),
        ] {
            assert_eq!(drain_result(&objects::with_status("n1", status)).as_deref(), expected);
        }
    }

    #[test]
    fn headlines_have_the_state_and_the_progress() {
        for (status, expected) in [
            (json!({}), "Requested: nm-reconciler has not begun yet"),
            (json!({"phase": "Pending"}), "Queued"),
            (json!({"phase": "Pending", "lastError": "lease taken"}), "Queued: lease taken"),
            (
                objects::running(40, &[("a", "m")]),
                "Blocked 40%: 4 pods remaining (1 blocked, 1 terminating, 2 evicting), 4 gone",
            ),
            (
                json!({"phase": "Running", "drainProgress": 50, "evictionPods": 2, "pendingPods": ["a"]}),
                "Draining 50%: 1 pod remaining, 1 gone",
            ),
            (json!({"phase": "Succeeded", "evictionPods": 3}), "Drained: 3 pods gone"),
            (
                json!({"phase": "Succeeded", "evictionPods": 25,
                    "departedPods": {"unmanaged": 2, "losingEmptyDirData": 1}}),
                "Drained: 23 pods moved, 2 deleted (no controller), emptyDir data of 1 pod lost",
            ),
            (json!({"phase": "Succeeded", "departedPods": {}}), "Drained: no pods had to go"),
            (suspended("Pending", "Planned"), "Planned: begins when it is resumed"),
            (suspended("Running", "Paused"), "Paused 0%: 0 pods remaining"),
            (json!({"phase": "Succeeded"}), "Drained: no pods had to go"),
            (
                json!({"phase": "Failed", "lastError": "nodes \"x\" not found"}),
                "Failed: nodes \"x\" not found",
            ),
        ] {
            assert_eq!(headline(&objects::with_status("n1", status)).to_string(), expected);
        }
        let detach = |mut status: serde_json::Value, attached: usize| {
            let volume = |number| {
                json!({"attachment": format!("csi-{number}"), "driver": "d",
                "since": "2026-01-02T03:04:05Z"})
            };
            status["attachedVolumes"] = (0..attached).map(volume).collect();
            status["conditions"] = json!([{"type": "VolumesDetached", "status": "False", "reason": "DetachingVolumes",
                "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
            headline(&objects::with_status("n1", status)).to_string()
        };
        let waits = json!({"phase": "Running", "drainProgress": 100, "evictionPods": 2});
        let expected = "Draining 100%: 0 pods remaining, 2 gone, waiting for 1 volume to be detached";
        assert_eq!(detach(waits.clone(), 1), expected);
        assert!(detach(waits, 0).ends_with("waiting for volumes to be detached"));
        let drained = json!({"phase": "Succeeded", "evictionPods": 2});
        assert_eq!(detach(drained, 2), "Drained: 2 pods gone, 2 volumes still attached");
        let mut stopping = objects::stopping(objects::requested("n1"));
        assert_eq!(headline(&stopping).to_string(), "Stopping: the node is returning to service");
        stopping.metadata.finalizers = Some(vec!["a.example.com/x".into(), "b.example.com/y".into()]);
        let expected = "Stopping: back in service; finalizers: a.example.com/x, b.example.com/y";
        assert_eq!(headline(&stopping).to_string(), expected);
        stopping.metadata.finalizers = Some(vec![ROLL_FINALIZER.into()]);
        stopping.metadata.labels =
            Some([(String::from("kubectl-nm.dev/roll"), String::from("kernel"))].into());
        let expected = "Stopping: back in service; roll kernel checks that it and its workloads stay healthy";
        assert_eq!(headline(&stopping).to_string(), expected);
    }
}
