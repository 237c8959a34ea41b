//! One line about a maintenance: its state, its progress, and the reason why it waits or failed.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_shared::api::condition::ConditionType;
use nm_shared::api::names::FINALIZER;
use nm_shared::decide::drain_status;
use nm_shared::decide::status_events::deleted_after_refusal;
use nm_shared::{Hold, Hook, NodeMaintenance, NodeMaintenanceStatus, Phase, PodCounts};

use crate::args::duration::age;
use crate::maintenance::departures::{Departures, departure_words};
use crate::maintenance::fields::{
    ROLL_FINALIZER, attached_volumes, condition, cordoned_since, has_timed_out, pods_to_go, roll_name,
    status, timeout_seconds,
};
use crate::maintenance::roll::{planned_begin, roll_progress};
use crate::maintenance::state::State;
use crate::terminal::text::{Line, counted};

/// A pod that appears later is moved too, and the status does not count it.
const NOTHING_TO_MOVE: &str = "no pods had to move when the drain started";

/// `Blocked 40%: 4 pods remaining (1 blocked, 3 evicting), 4 gone`.
pub fn headline(maintenance: &NodeMaintenance) -> Line {
    let state = State::of(maintenance);
    let line = Line::default().with(state.style(), state.word());
    let status = status(maintenance);
    match state {
        State::Requested => line.and(": nm-reconciler has not started the maintenance yet"),
        State::Planned => line.and(": ").and(planned_begin(maintenance)),
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
            let hold = hold(maintenance).map(|hold| format!(", waiting for {hold}")).unwrap_or_default();
            let later = came_later(maintenance).map(|later| format!("; {later}")).unwrap_or_default();
            let limit = drain_times_out(maintenance);
            let limit = limit.map(|at| format!("; times out at {at}")).unwrap_or_default();
            let remaining = remaining(status);
            line.and(format!(" {}%: {remaining}{gone}{volumes}{hold}{later}{limit}", percent_gone(status)))
        }
        State::Drained => {
            let of_roll = roll_progress(maintenance).map(|what| format!("; {what}")).unwrap_or_default();
            // Reconcilers that do not tell departures apart report how many pods are gone.
            let result = drain_result(maintenance).filter(|_| status.departed_pods.is_some());
            let result = result.unwrap_or_else(|| match pods_gone(status) {
                gone @ 1.. => format!("{} gone", pods(gone)),
                _ => String::from(NOTHING_TO_MOVE),
            });
            line.and(format!(": {result}{}{of_roll}", still_attached(maintenance)))
        }
        State::Stopping => line.and(": ").and(stop_progress(maintenance)),
    }
}

/// Whether a maintenance is being deleted, and nm-reconciler has not finished with it.
pub fn is_ending(maintenance: &NodeMaintenance) -> bool {
    let finalizers = maintenance.finalizers();
    let is_ours = finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    is_ours && maintenance.metadata.deletion_timestamp.is_some()
}

/// What a maintenance waits for as a whole. One that is being deleted waits for the hooks before the return of its node.
pub fn hold(maintenance: &NodeMaintenance) -> Option<&Hold> {
    let is_deleted = maintenance.metadata.deletion_timestamp.is_some();
    let keeps_node = || is_ending(maintenance) && !Hook::before_return(&maintenance.metadata).is_empty();
    status(maintenance).hold.as_ref().filter(|_| !is_deleted || keeps_node())
}

/// Whether hooks keep a maintenance from going on.
pub fn is_held_by_hooks(maintenance: &NodeMaintenance) -> bool {
    hold(maintenance).is_some_and(|hold| !hold.hooks.is_empty())
}

/// The hooks that delay the first eviction of a maintenance: those that are waited for, or that it has before it starts.
pub fn hooks_before_eviction(maintenance: &NodeMaintenance) -> Vec<Hook> {
    if status(maintenance).has_begun() {
        hold(maintenance).map(|hold| hold.hooks.clone()).unwrap_or_default()
    } else {
        Hook::before_eviction(&maintenance.metadata)
    }
}

/// `hook heal (owner: ceph) is removed`, as the end of what these hooks delay; none if there are none.
pub fn hooks_removed(hooks: &[Hook]) -> Option<String> {
    let names: Vec<String> = hooks.iter().map(Hook::to_string).collect();
    match names.as_slice() {
        [] => None,
        [only] => Some(format!("hook {only} is removed")),
        all => Some(format!("hooks {} are removed", all.join(", "))),
    }
}

/// What a maintenance that is being deleted waits for: nm-reconciler until the node is back in service, then others'
/// finalizers.
pub fn stop_progress(maintenance: &NodeMaintenance) -> String {
    let finalizers = maintenance.finalizers();
    if let Some(hold) = hold(maintenance) {
        return format!("the node stays cordoned, waiting for {hold}");
    }
    if is_ending(maintenance) {
        // Whether the node still exists is not known here: its deletion ends a maintenance too.
        return String::from("the maintenance is ending");
    }
    if let Some(roll) = kept_by_roll(maintenance) {
        return format!("back in service; the checks of roll {roll} are not done");
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

/// How many pods had to leave when the drain started; with those that came later while they are there.
pub fn pods_in_all(status: &NodeMaintenanceStatus) -> i32 {
    status.eviction_pods.max(pods_gone(status).saturating_add(pods_to_go(status)))
}

/// The percentage of these pods that are gone. `drainProgress` takes pods that came later for ones that were there.
pub fn percent_gone(status: &NodeMaintenanceStatus) -> i32 {
    match pods_in_all(status) {
        all if all > status.eviction_pods => {
            i32::try_from(i64::from(pods_gone(status)) * 100 / i64::from(all)).unwrap_or_default()
        }
        _ => status.drain_progress,
    }
}

fn remaining(status: &NodeMaintenanceStatus) -> String {
    let pending = status.pod_counts.by_state().filter(|(state, _)| state.is_pending());
    let by_state: Vec<String> =
        pending.map(|(state, count)| format!("{count} {}", state.word().to_lowercase())).collect();
    let remaining = format!("{} remaining", pods(pods_to_go(status)));
    if by_state.is_empty() { remaining } else { format!("{remaining} ({})", by_state.join(", ")) }
}

/// `the drain timed out after 45 s, waiting for hook heal (owner: ceph)`, without the pods that are left; none if it has not. The
/// time limit may have been removed since.
pub fn timeout_words(maintenance: &NodeMaintenance) -> Option<String> {
    let limit = timeout_seconds(maintenance);
    let after = if limit > 0 { format!(" after {limit} s") } else { String::new() };
    let waited = hold(maintenance).map(|hold| format!(", waiting for {hold}")).unwrap_or_default();
    has_timed_out(maintenance).then(|| format!("the drain timed out{after}{waited}"))
}

/// When a time limit of so many seconds ends, which does not run during pauses. 0 is none.
pub fn time_limit_end(maintenance: &NodeMaintenance, seconds: i64) -> Option<Timestamp> {
    let paused = status(maintenance).paused_seconds.unwrap_or(0);
    let after = SignedDuration::from_secs(seconds.saturating_add(paused));
    let end = cordoned_since(maintenance)?.checked_add(after).ok()?;
    (seconds > 0).then_some(end)
}

/// When a drain that is under way times out; none without a time limit, and of a node that was drained before.
pub fn drain_times_out(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let is_under_way = matches!(State::of(maintenance), State::Draining | State::Blocked);
    let is_first = status(maintenance).phase != Some(Phase::Succeeded);
    time_limit_end(maintenance, timeout_seconds(maintenance)).filter(|_| is_under_way && is_first)
}

/// What a drain has done once it has ended: `30 pods gone in 4m12s, including 1 deleted (no controller)`. The time is from the
/// cordon until the last pod was gone. None before.
pub fn drain_result(maintenance: &NodeMaintenance) -> Option<String> {
    let status = status(maintenance);
    let gone = pods_gone(status);
    let departures = Departures::of(status, gone).unwrap_or_default();
    match status.phase {
        Some(Phase::Succeeded) if gone == 0 && departures.total() == 0 => {
            return Some(format!("{NOTHING_TO_MOVE}{}", but_unselected(status)));
        }
        Some(Phase::Succeeded) => {}
        Some(Phase::Failed) if status.eviction_pods > 0 => {
            return Some(format!("{gone} of {} gone", pods(status.eviction_pods)));
        }
        _ => return None,
    }
    let drained = drain_ended(maintenance);
    let time = drain_began(maintenance).zip(drained).map(|(cordoned, drained)| {
        let paused = match status.paused_seconds {
            Some(seconds) if seconds > 0 => format!(", paused for {}", age(seconds)),
            _ => String::new(),
        };
        format!(" in {}{paused}", age(drained.duration_since(cordoned).as_secs()))
    });
    let words = departure_words(gone.into(), &departures, time.as_deref().unwrap_or_default());
    let lost = status.departed_pods.map_or(0, |departed| departed.losing_empty_dir_data);
    let its = if lost == 1 { "its" } else { "their" };
    let words = if lost > 0 { format!("{words}; {} lost {its} emptyDir data", pods(lost)) } else { words };
    let words = match deleted_after_refusal(status) {
        0 => words,
        refused => format!("{words}; {} deleted after refused evictions", pods(refused)),
    };
    Some(format!("{words}{}", but_unselected(status)))
}

/// `; 7 pods stay: podSelector does not match them`, after what the drain has done; empty if there are none.
pub fn but_unselected(status: &NodeMaintenanceStatus) -> String {
    match status.unselected_pods {
        None | Some(..=0) => String::new(),
        Some(1) => String::from("; 1 pod stays: podSelector does not match it"),
        Some(several) => format!("; {several} pods stay: podSelector does not match them"),
    }
}

/// When a drain began: when its node was cordoned. None before.
pub fn drain_began(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    cordoned_since(maintenance)
}

/// When a drain ended: the last pod was gone for the first time, or the time limit was over. None while it is under way, and if
/// that is not known. What comes later, such as pods that return, does not change it.
pub fn drain_ended(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let status = status(maintenance);
    if status.phase != Some(Phase::Failed) {
        return status.first_drained_at();
    }
    if !has_timed_out(maintenance) {
        return None;
    }
    let drain = maintenance.spec.drain.clone().unwrap_or_default();
    drain_status::deadline(maintenance, &drain, status.last_update.as_ref()?.0)
}

/// Since when pods leave a node that was drained before; none if it is drained, or was not yet.
pub fn drained_again_since(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let drained =
        condition(maintenance, ConditionType::Drained).filter(|drained| drained.status != "True")?;
    status(maintenance).first_drained.as_ref().map(|_| drained.last_transition_time.0)
}

/// `1 pod came after the node was drained`: why a node that was drained is not any more. None if no pod has to leave it again.
pub fn came_later(maintenance: &NodeMaintenance) -> Option<String> {
    drained_again_since(maintenance)?;
    let later = pods_to_go(status(maintenance));
    (later > 0).then(|| format!("{} came after the node was drained", pods(later)))
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
        count => counted(count, "volume"),
    }
}

fn still_attached(maintenance: &NodeMaintenance) -> String {
    match attached(maintenance) {
        volumes if volumes.is_empty() => volumes,
        volumes => format!(", {volumes} still attached"),
    }
}

fn pods(count: i32) -> String {
    counted(count, "pod")
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
        let mut again = done(&late);
        again["firstDrained"] = json!("2026-01-02T03:06:15Z");
        let mut refused = done(&conditions);
        refused["departedPods"] = json!({"deletedAfterRefusal": 2});
        let mut partial = done(&conditions);
        partial["unselectedPods"] = json!(7);
        let mut paused = done(&conditions);
        paused["pausedSeconds"] = json!(60);
        for (status, expected) in [
            (json!({"phase": "Running", "evictionPods": 3}), None),
            (done(&conditions), Some("3 pods gone in 2m10s")),
            (paused, Some("3 pods gone in 2m10s, paused for 1m")),
            (partial, Some("3 pods gone in 2m10s; 7 pods stay: podSelector does not match them")),
            (done(&late), Some("3 pods gone")),
            (again, Some("3 pods gone in 2m10s")),
            (refused, Some("3 pods gone in 2m10s; 2 pods deleted after refused evictions")),
            (of_older, Some("3 pods gone in 2m10s")),
            (bare, Some("3 pods deleted (no controller) in 2m10s")),
            (
                mixed,
                Some(
                    "37 pods gone in 2m10s, including 1 migrated, 1 restarted in place, 1 deleted (no controller), \
                     2 deleted (finished before); 1 pod lost its emptyDir data",
                ),
            ),
            (json!({"phase": "Succeeded"}), Some("no pods had to move when the drain started")),
            (
                json!({"phase": "Succeeded", "unselectedPods": 1}),
                Some(
                    "no pods had to move when the drain started; 1 pod stays: podSelector does not match it",
                ),
            ),
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
    fn a_drain_ends_when_the_last_pod_is_gone_or_its_time_is_over_whatever_is_written_later() {
        let condition = |type_: &str, status: &str, reason: &str, time: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": format!("2026-01-02T03:{time}Z")})
        };
        let cordoned = condition("Cordoned", "True", "Cordoned", "04:05");
        for (phase, drained, expected) in [
            ("Succeeded", condition("Drained", "True", "Drained", "04:13"), Some("2026-01-02T03:04:13Z")),
            ("Failed", condition("Drained", "False", "TimedOut", "04:06"), Some("2026-01-02T03:05:05Z")),
            ("Failed", condition("Drained", "False", "NodeNotFound", "04:06"), None),
            ("Running", condition("Drained", "False", "Evicting", "04:06"), None),
        ] {
            let status = json!({"phase": phase, "evictionPods": 3, "lastUpdate": "2026-01-02T03:06:08Z",
                "conditions": [cordoned, drained]});
            let mut object = objects::with_status("n1", status);
            object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": 60})).unwrap();
            assert_eq!(drain_began(&object), "2026-01-02T03:04:05Z".parse().ok());
            assert_eq!(drain_ended(&object), expected.and_then(|at| at.parse().ok()), "{phase}");
        }
    }

    #[test]
    fn a_node_of_a_roll_says_what_the_roll_does_with_it() {
        let of_roll = |status: serde_json::Value, step: &str| {
            let mut object = objects::with_status("n1", status);
            object.metadata.labels = Some([(String::from("kubectl-nm.dev/roll"), String::from("k2"))].into());
            let record = json!({"step": step}).to_string();
            object.metadata.annotations = Some([(String::from("kubectl-nm.dev/roll-node"), record)].into());
            headline(&object).to_string()
        };
        let planned = of_roll(suspended("Pending", "Planned"), "Planned");
        assert_eq!(planned, "Planned: waits for its turn in roll k2");
        let acting = of_roll(json!({"phase": "Succeeded", "evictionPods": 3}), "Acting");
        assert_eq!(acting, "Drained: 3 pods gone; roll k2 has not started its action");
    }

    #[test]
    fn a_node_that_pods_came_to_after_its_drain_says_so() {
        let drained = json!({"type": "Drained", "status": "False", "reason": "Evicting", "message": "",
            "lastTransitionTime": "2026-01-02T03:08:15Z"});
        let status = |first: Option<&str>| {
            json!({"phase": "Succeeded", "evictionPods": 3, "firstDrained": first, "conditions": [drained],
                "drainProgress": 66, "podCounts": {"gone": 3, "terminating": 1}, "pendingPods": ["late"]})
        };
        let line = |first| headline(&objects::with_status("n1", status(first))).to_string();
        let draining = "Draining 75%: 1 pod remaining (1 terminating), 3 gone";
        assert_eq!(
            line(Some("2026-01-02T03:06:15Z")),
            format!("{draining}; 1 pod came after the node was drained")
        );
        assert_eq!(line(None), draining);
    }

    #[test]
    fn a_drain_with_a_time_limit_says_when_it_ends() {
        let line = |phase: &str, paused: i64| {
            let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"});
            let status = json!({"phase": phase, "drainProgress": 50, "evictionPods": 2, "pendingPods": ["a"],
                "pausedSeconds": paused, "conditions": [cordoned]});
            let mut object = objects::with_status("n1", status);
            object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": 60})).unwrap();
            headline(&object).to_string()
        };
        let draining = "Draining 50%: 1 pod remaining, 1 gone";
        assert_eq!(line("Running", 0), format!("{draining}; times out at 2026-01-02T03:05:05Z"));
        assert_eq!(line("Running", 30), format!("{draining}; times out at 2026-01-02T03:05:35Z"));
    }

    #[test]
    fn headlines_have_the_state_and_the_progress() {
        for (status, expected) in [
            (json!({}), "Requested: nm-reconciler has not started the maintenance yet"),
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
            (
                json!({"phase": "Succeeded", "drainProgress": 50, "evictionPods": 2,
                    "podCounts": {"gone": 2, "waiting": 1}, "conditions": [{"type": "Drained",
                    "status": "False", "reason": "Evicting", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}),
                "Draining 66%: 1 pod remaining (1 waiting), 2 gone",
            ),
            (json!({"phase": "Succeeded", "evictionPods": 3}), "Drained: 3 pods gone"),
            (
                json!({"phase": "Succeeded", "evictionPods": 25,
                    "departedPods": {"unmanaged": 2, "losingEmptyDirData": 1}}),
                "Drained: 25 pods gone, including 2 deleted (no controller); 1 pod lost its emptyDir data",
            ),
            (
                json!({"phase": "Succeeded", "departedPods": {}}),
                "Drained: no pods had to move when the drain started",
            ),
            (suspended("Pending", "Planned"), "Planned: starts when it is resumed"),
            (suspended("Running", "Paused"), "Paused 0%: 0 pods remaining"),
            (json!({"phase": "Succeeded"}), "Drained: no pods had to move when the drain started"),
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
        assert_eq!(headline(&stopping).to_string(), "Stopping: the maintenance is ending");
        stopping.metadata.finalizers = Some(vec!["a.example.com/x".into(), "b.example.com/y".into()]);
        let expected = "Stopping: back in service; finalizers: a.example.com/x, b.example.com/y";
        assert_eq!(headline(&stopping).to_string(), expected);
        stopping.metadata.finalizers = Some(vec![ROLL_FINALIZER.into()]);
        stopping.metadata.labels =
            Some([(String::from("kubectl-nm.dev/roll"), String::from("kernel"))].into());
        let expected = "Stopping: back in service; the checks of roll kernel are not done";
        assert_eq!(headline(&stopping).to_string(), expected);
    }
}
