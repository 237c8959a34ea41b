//! What maintenances show of rolls.

use serde_json::json;

use super::*;
use crate::testing::objects::requested;

fn object(annotation: &str, value: &Value) -> NodeMaintenance {
    let mut object = requested("n1");
    object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
    object.metadata.annotations = Some([(annotation.to_owned(), value.to_string())].into());
    object
}

fn runner(seconds: i64) -> Value {
    json!({"id": "x", "who": "ada@vm", "at": Timestamp::from_second(seconds).unwrap()})
}

#[test]
fn a_roll_has_a_runner_while_its_heartbeats_come_and_nodes_may_begin() {
    for (state, seconds, expected) in [
        (json!({"revision": 2, "runner": runner(100)}), 159, Some("ada@vm")),
        (json!({"revision": 2, "runner": runner(100)}), 160, None),
        (json!({"revision": 2, "runner": runner(100), "paused": true}), 101, None),
        (json!({"revision": 2, "runner": runner(100), "halt": halt()}), 101, None),
        (json!({"revision": 2}), 101, None),
        (json!("{"), 101, None),
    ] {
        let of_roll = [object(STATE, &state), object(NODE, &json!({"step": "Planned"}))];
        let runners = RollRunners::of(&of_roll);
        let now = Timestamp::from_second(seconds).unwrap();
        assert_eq!(runners.runner("k2", now), expected, "{state} at {seconds}");
        assert_eq!(runners.runner("k1", now), None);
    }
}

#[test]
fn what_a_roll_does_depends_on_who_runs_it_and_on_what_has_stopped_it() {
    let ada = || String::from("ada@vm");
    for (state, expected) in [
        (json!({"runner": runner(100)}), RollStanding::Running(ada())),
        (json!({"runner": runner(100), "paused": true}), RollStanding::Paused),
        (json!({"paused": true}), RollStanding::Paused),
        (json!({"runner": runner(100), "halt": halt()}), RollStanding::Halted),
        (json!({"runner": runner(10)}), RollStanding::Abandoned),
        (json!({"runner": runner(100), "paused": true, "aborted": "bob"}), RollStanding::Ending(ada())),
        (json!({"runner": runner(10), "paused": true, "aborted": "bob"}), RollStanding::Over),
        (json!({"runner": runner(100), "aborted": "bob", "halt": halt()}), RollStanding::Over),
    ] {
        let rolls = RollRunners::of([&object(STATE, &state)]);
        let now = Timestamp::from_second(101).unwrap();
        assert_eq!(rolls.standing("k2", now), Some(expected), "{state}");
        assert_eq!(rolls.standing("k1", now), None);
    }
}

#[test]
fn a_paused_roll_has_who_paused_it_unless_it_has_halted_or_was_aborted() {
    let pause = json!({"by": "bob@desk", "at": Timestamp::UNIX_EPOCH});
    let now = Timestamp::from_second(720).unwrap();
    for (state, expected) in [
        (json!({"paused": true, "pause": pause}), Some("paused by bob@desk 12m ago")),
        (json!({"paused": true}), Some("paused")),
        (json!({"revision": 2}), None),
        (json!({"paused": true, "pause": pause, "halt": halt()}), None),
        (json!({"paused": true, "pause": pause, "aborted": "ada"}), None),
    ] {
        let rolls = RollRunners::of([&object(STATE, &state)]);
        let words = rolls.is_paused("k2").then(|| paused_words(rolls.pause("k2"), TimeStyle::Ago(now)));
        assert_eq!(words.as_deref(), expected, "{state}");
    }
}

fn halt() -> Value {
    json!({"node": "n1", "message": "its command failed", "at": Timestamp::UNIX_EPOCH})
}

#[test]
fn a_halted_roll_has_its_cause_unless_it_was_aborted() {
    for (state, expected) in [
        (json!({"revision": 2, "halt": halt()}), Some("its command failed")),
        (json!({"revision": 2, "halt": halt(), "aborted": "ada"}), None),
        (json!({"revision": 2}), None),
    ] {
        let rolls = RollRunners::of([&object(STATE, &state)]);
        assert_eq!(rolls.halt("k2").map(|halt| halt.message.as_str()), expected, "{state}");
        let all: Vec<&str> = rolls.halts().map(|(name, _)| name).collect();
        assert_eq!(all, expected.map(|_| "k2").into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_roll_has_halted_for_each_of_its_maintenances_and_for_no_other() {
    let anchor = object(STATE, &json!({"revision": 2, "halt": halt()}));
    let other = object(NODE, &json!({"step": "Planned"}));
    let rolls = RollRunners::of([&anchor, &other]);
    assert_eq!(rolls.halts_of([&requested("n3")]).len(), 0);
    let of_other = rolls.halts_of([&other]);
    assert_eq!(
        halted_line("k2", of_other["k2"], " --context blue").to_string(),
        "roll k2 halted: its command failed; `kubectl nm roll status k2 --context blue` shows more"
    );
}

#[test]
fn a_pod_runs_the_action_of_a_roll_until_it_has_finished() {
    let words = |phase: &str| {
        let pod =
            json!({"metadata": {"name": "p", "labels": {ROLL_LABEL: "k2"}}, "status": {"phase": phase}});
        stay_words(&serde_json::from_value(pod).unwrap(), StayReason::NotSelected)
    };
    assert_eq!(words("Running"), "runs the action of roll k2");
    assert_eq!(words("Succeeded"), "ran the action of roll k2");
}

#[test]
fn the_newest_record_of_a_roll_counts_until_its_maintenance_is_gone() {
    let (old, new) = (
        object(STATE, &json!({"revision": 7, "runner": runner(100)})),
        object(STATE, &json!({"revision": 8})),
    );
    let now = Timestamp::from_second(101).unwrap();
    let mut runners = RollRunners::of([&new, &old]);
    assert_eq!(runners.runner("k2", now), None);
    runners.forget(&new);
    runners.note(&old);
    assert_eq!(runners.runner("k2", now), Some("ada@vm"));
}

#[test]
fn a_drained_node_of_a_roll_shows_what_the_roll_does_with_it() {
    let at = |step: &str| roll_progress(&object(NODE, &json!({"step": step})));
    // A roll that is paused has not started it.
    assert_eq!(at("Acting").as_deref(), Some("roll k2 has not started its action"));
    // Whether somebody runs the roll, or it has halted, is not known here.
    assert_eq!(at("Checking").as_deref(), Some("roll k2 has not finished its checks"));
    assert_eq!(at("Rejoining").as_deref(), Some("roll k2 has not seen the node return"));
    // Whether a program asks for it is not known here.
    assert_eq!(at("Confirming").as_deref(), Some("roll k2 needs a confirmation"));
    let failed = json!({"step": "Acting", "action": {"attempt": 1, "state": {"failed": "exit code 1"}}});
    let failed = roll_progress(&object(NODE, &failed));
    assert_eq!(failed.as_deref(), Some("roll k2 stopped because its action failed"));
    let running = json!({"step": "Acting", "action": {"attempt": 1, "state": "running"}});
    let running = roll_progress(&object(NODE, &running));
    assert_eq!(running.as_deref(), Some("roll k2 has started its action"));
    let failed = json!({"step": "Finishing", "action": {"attempt": 1, "state": "succeeded"},
        "after": {"attempt": 1, "state": {"failed": "exit code 1"}}});
    let failed = roll_progress(&object(NODE, &failed));
    assert_eq!(failed.as_deref(), Some("roll k2 stopped because its --after action failed"));
    assert_eq!(at("Finishing").as_deref(), Some("roll k2 has not started its --after action"));
    let running = json!({"step": "Finishing", "after": {"attempt": 1, "state": "running"}});
    let running = roll_progress(&object(NODE, &running));
    assert_eq!(running.as_deref(), Some("roll k2 has started its --after action"));
    assert_eq!(at("Draining"), None);
    assert_eq!(roll_progress(&requested("n1")), None);
}
