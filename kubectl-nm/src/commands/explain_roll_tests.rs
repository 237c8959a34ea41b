//! The output of `explain` for the nodes of a roll that has halted.

use nm_core::maintenance::ROLL_LABEL;
use nm_core::terminal::output::captured::output;
use nm_core::testing::objects::with_status;
use nm_roll::record::{NODE, RollRecord, SETTINGS, STATE, annotation};
use serde_json::json;

use super::tests::reconcilers;
use super::*;

#[test]
fn the_node_of_a_roll_that_has_halted_is_blocked() {
    let drained = with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3}));
    let halt = Halt {
        node: String::from("n1"),
        message: String::from("the action for node n1 failed: the command ended with exit code 1"),
        at: "2026-01-02T03:04:05.716405103Z".parse().unwrap(),
        timed_out: false,
    };
    let record = RollRecord { halt: Some(halt), ..RollRecord::default() };
    let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z",
        "action": {"attempt": 1, "state": {"failed": "the command ended with exit code 1"}}});
    let of_roll = |state: String| {
        let mut object = drained.clone();
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
        let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string()), (STATE, state)];
        object.metadata.annotations = Some(annotations.map(|(name, value)| (name.to_owned(), value)).into());
        object
    };
    let object = of_roll(annotation(&record));
    let halt = halt_of_roll(&object, std::slice::from_ref(&object));
    let (mut out, captured) = output();
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &ClusterFacts::default(),
        kubectl: "kubectl --context blue",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let is_blocked = explain(&object, halt.as_ref(), &context, &mut out).unwrap();
    let expected = "\
node/n1: Drained: 3 pods gone; roll kernel stopped because its action failed
It is part of roll kernel.

Roll kernel halted: the action for node n1 failed: the command ended with exit code 1.
  Ongoing for 3m20s, since 2026-01-02T03:04:05Z.
  When nothing prevents it any more, continue the roll; or continue without the node, which returns it to service as it is, or abort the roll:
    kubectl nm roll resume kernel --context blue
    kubectl nm roll resume kernel --skip n1 --context blue
    kubectl nm roll abort kernel --context blue --yes
";
    assert_eq!((captured.data().as_str(), is_blocked), (expected, true));

    for unknown in [annotation(&RollRecord::default()), String::from("{")] {
        let object = of_roll(unknown);
        assert_eq!(halt_of_roll(&object, std::slice::from_ref(&object)), None);
    }
}

#[test]
fn the_other_nodes_of_a_halted_roll_have_the_commands_that_continue_it_once() {
    let halt = json!({"node": "n1", "message": "node n1 is drained, and was not confirmed", "at": "2026-01-02T03:04:05Z"});
    let planned = json!({"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:00Z"});
    let mut object = with_status("n2", json!({"phase": "Pending", "conditions": [planned]}));
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
    let state = json!({"revision": 2, "halt": halt}).to_string();
    object.metadata.annotations = Some([(STATE.to_owned(), state)].into());
    let halt = halt_of_roll(&object, std::slice::from_ref(&object));
    let (mut out, captured) = output();
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &ClusterFacts::of_maintenances([&object]),
        kubectl: "kubectl",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let _ = explain(&object, halt.as_ref(), &context, &mut out).unwrap();
    let expected = "\
node/n2: Planned: starts when its turn in roll kernel comes
It is part of roll kernel.

Roll kernel halted: node n1 is drained, and was not confirmed.
  Ongoing for 3m20s, since 2026-01-02T03:04:05Z.
  When nothing prevents it any more, continue the roll; or continue without the node, which returns it to service as it is, or abort the roll:
    kubectl nm roll resume kernel
    kubectl nm roll resume kernel --skip n1
    kubectl nm roll abort kernel --yes

The maintenance starts when its turn in roll kernel comes, but the roll starts no node now.
  Ongoing for 3m25s, since 2026-01-02T03:04:00Z.
";
    assert_eq!(captured.data(), expected);
}
