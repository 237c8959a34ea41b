//! Why a maintenance makes no progress, as far as its object shows that.

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::FINALIZER;

use crate::args::duration::{TimeStyle, age};
use crate::maintenance::roll::{RollRunners, paused_words, planned_begin};
use crate::maintenance::slow_surge::SlowSurge;
use crate::maintenance::{State, hold, node, roll_name, stop_progress};
use crate::terminal::command_context::shell_quoted;
use crate::watch::goal_tracker::Goal;

/// `surge of Deployment shop/web: 2 of its new pods are not Ready; ... shows why`; none before it takes long.
pub(super) fn slow_surge(object: &NodeMaintenance, flags: &str, now: Timestamp) -> Option<String> {
    let surge = SlowSurge::of(object)?;
    let explain = format!("`kubectl nm explain {}{flags}`", shell_quoted(node(object)));
    Some(format!("{}; {explain} shows why", surge.words(now)?))
}

/// Why a maintenance makes no progress towards the goal, as far as its object shows that.
pub(super) fn stall_reason(
    object: &NodeMaintenance,
    goal: Goal,
    rolls: &RollRunners,
    flags: &str,
    now: Timestamp,
) -> Option<String> {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    match (goal, State::of(object)) {
        (Goal::Drained, State::Requested) => {
            let created = object.metadata.creation_timestamp.as_ref();
            let waited = created.map(|at| format!(" after {}", age(now.duration_since(at.0).as_secs())));
            Some(format!(
                "nm-reconciler has not started the maintenance{}; `kubectl nm explain {}{flags}` shows why",
                waited.unwrap_or_default(),
                node(object)
            ))
        }
        (Goal::Drained, State::Draining | State::Blocked) => {
            let hold = hold(object).map(|hold| format!("waiting for {hold}"));
            hold.or_else(|| slow_surge(object, flags, now))
        }
        // Resumed alone, the node would not wait for the gates and the limit of its roll.
        (Goal::Drained, State::Planned) if roll_name(object).is_some() => {
            let roll = roll_name(object).unwrap_or_default();
            let command = |verb: &str| format!("`kubectl nm roll {verb} {}{flags}`", shell_quoted(roll));
            let planned = format!("the maintenance {}", planned_begin(object));
            Some(if rolls.is_paused(roll) {
                let paused = paused_words(rolls.pause(roll), TimeStyle::Ago(now));
                format!("{planned}, which is {paused}; {} continues it", command("resume"))
            } else {
                format!("{planned}; {} shows how far it is", command("status"))
            })
        }
        (Goal::Drained, state @ (State::Planned | State::Paused)) => Some(format!(
            "the maintenance is {}; `kubectl nm resume {}{flags}` continues it",
            state.word().to_lowercase(),
            node(object)
        )),
        (Goal::Stopped, State::Stopping) if hold(object).is_some() => Some(stop_progress(object)),
        (Goal::Stopped, State::Stopping) if finalizers.is_empty() => {
            Some(String::from("the object still exists, although it has no finalizers"))
        }
        (Goal::Stopped, State::Stopping) if finalizers.iter().any(|finalizer| finalizer == FINALIZER) => {
            Some(format!(
                "waiting for finalizers: {}; nm-reconciler removes {FINALIZER}: is it running?",
                finalizers.join(", ")
            ))
        }
        (Goal::Stopped, State::Stopping) => Some(stop_progress(object)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::with_status;

    #[test]
    fn a_wait_names_the_surge_that_takes_long_and_what_explains_it() {
        let pod = json!({"namespace": "shop", "name": "web-x", "deployment": "web", "restarted": true,
            "since": "2026-01-02T03:04:05Z", "replacement": {"name": "web-y", "node": "n2", "ready": false}});
        let object = with_status("n1", json!({"phase": "Running", "surgingPods": [pod]}));
        let reason = |now: &str| {
            let rolls = RollRunners::default();
            stall_reason(&object, Goal::Drained, &rolls, " --context=c", now.parse().unwrap())
        };
        assert_eq!(reason("2026-01-02T03:04:30Z"), None);
        assert_eq!(
            reason("2026-01-02T03:05:00Z").as_deref(),
            Some(
                "surge of Deployment shop/web: 1 of its new pods is not Ready; `kubectl nm explain n1 --context=c` shows \
                 why"
            )
        );
    }
}
