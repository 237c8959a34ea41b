//! The output of `explain` for the nodes of a roll that has halted.

use nm_core::maintenance::ROLL_LABEL;
use nm_core::terminal::output::captured::output;
use nm_core::testing::objects::{stopping, with_status};
use nm_roll::halted::{HaltedRoll, HaltingNode, find_rolls};
use nm_roll::record::{NODE, RollRecord, SETTINGS, STATE, annotation, hook};
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use super::explain_rolls::Probed;
use super::tests::reconcilers;
use super::*;

const STATUS: &str = "Ongoing for 3m20s, since 2026-01-02T03:04:05Z.";

/// A node of roll `kernel`, in this status and at this step, which has halted the roll.
fn halting(status: Value, settings: &Value, node: &Value, halt: &Value) -> NodeMaintenance {
    let mut all = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let mut record = json!({"wave": 0, "position": 0, "since": "2026-01-02T03:04:05Z"});
    let mut halt = halt.clone();
    (halt["node"], halt["at"]) = (json!("n1"), json!("2026-01-02T03:04:05.716405103Z"));
    for (into, from) in [(&mut all, settings), (&mut record, node)] {
        into.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    }
    let state = json!({"revision": 2, "halt": halt});
    let mut object = with_status("n1", status);
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
    let annotations = [(SETTINGS, all), (NODE, record), (STATE, state)];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_string()));
    object.metadata.annotations = Some(annotations.into());
    object
}

fn explained(object: &NodeMaintenance, node: Option<Value>) -> (String, bool) {
    explained_with(object, node, Probed::new())
}

fn explained_with(object: &NodeMaintenance, node: Option<Value>, probed: Probed) -> (String, bool) {
    let mut facts = ClusterFacts::of_maintenances([object]);
    facts.halted.extend(node.map(|node| ("n1".to_owned(), serde_json::from_value(node).unwrap())));
    let (mut out, captured) = output();
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &facts,
        kubectl: "kubectl --context blue",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let all = std::slice::from_ref(object);
    let runners = RollRunners::of(all);
    let halts = runners.halts_of(all);
    let rolls = find_rolls(&roll_name(object).into_iter().collect(), all);
    let halted = halted_rolls(&halts, &rolls, &facts, probed, context.now);
    let is_blocked = explain(object, &halted, &context, &mut out).unwrap();
    (captured.data(), is_blocked)
}

/// The roll, of which this is the only node.
fn halted_roll(object: &NodeMaintenance) -> HaltedRoll {
    let runners = RollRunners::of([object]);
    let halt = runners.halt("kernel").unwrap();
    let rolls = find_rolls(&["kernel"].into(), std::slice::from_ref(object));
    HaltedRoll::of("kernel", halt, rolls.get("kernel"), HaltingNode::default(), halt.at)
}

fn view(boot: &str, ready: &str) -> Value {
    json!({"metadata": {"name": "n1", "uid": "u"}, "status": {"conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {"bootID": boot, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
            "systemUUID": ""}}})
}

fn failed_action(state: &Value) -> Value {
    json!({"step": "Acting", "action": {"attempt": 2, "state": state}})
}

#[test]
fn the_node_of_a_roll_that_has_halted_is_blocked() {
    let message = "the action for node n1 failed: the command ended with exit code 1";
    let node = failed_action(&json!({"failed": "the command ended with exit code 1"}));
    let drained = json!({"phase": "Succeeded", "evictionPods": 3});
    let object = halting(drained, &json!({}), &node, &json!({"message": message}));
    let expected = format!(
        "\
node/n1: Drained: 3 pods gone; roll kernel stopped because its action failed
It is part of roll kernel, at step Acting.

Roll kernel halted at 2026-01-02 03:04:05 UTC: the action for node n1 failed: the command ended with exit code 1.
The action of n1 failed, and runs again on resume.
  {STATUS}
  When nothing prevents it any more, continue the roll; or continue without the node, which returns it to service as it is, or abort the roll:
    kubectl nm roll resume kernel --context blue
    kubectl nm roll resume kernel --skip n1 --context blue
    kubectl nm roll abort kernel --context blue --yes
"
    );
    assert_eq!(explained(&object, None), (expected, true));

    for unknown in [annotation(&RollRecord::default()), String::from("{")] {
        let mut object = object.clone();
        object.metadata.annotations.as_mut().unwrap().insert(STATE.to_owned(), unknown);
        assert!(!explained(&object, None).0.contains("halted"));
    }
}

#[test]
fn a_node_of_a_roll_whose_program_may_have_died_names_the_step_and_the_last_sign_of_the_program() {
    let shown = |step: &str, sign: &str| {
        let record = json!({"wave": 0, "position": 0, "step": step, "since": "2026-01-02T03:04:05Z"});
        let state = json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": sign}});
        let mut object = with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3}));
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
        let annotations = [(NODE, record), (STATE, state)];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_string()));
        object.metadata.annotations = Some(annotations.into());
        explained(&object, None).0
    };
    let recent = shown("Acting", "2026-01-02T03:07:13Z");
    let runs = "It is part of roll kernel, at step Acting; ada@vm runs the roll, last seen 12s ago.\n";
    assert!(recent.ends_with(&format!("{runs}Nothing is blocked.\n")), "{recent}");
    let old = shown("Checking", "2026-01-02T03:02:25Z");
    let ran = "It is part of roll kernel, at step Checking; ada@vm ran the roll, last seen 5m ago.\n";
    assert!(old.contains(&format!("{ran}\nNobody runs roll kernel, so the node stays")), "{old}");
    // Its cause is what it waits for.
    let planned = shown("Planned", "2026-01-02T03:07:13Z");
    assert!(planned.contains("\nIt is part of roll kernel.\n"), "{planned}");
}

#[test]
fn a_roll_that_a_failed_job_has_halted_names_the_command_that_shows_its_log() {
    let node = failed_action(&json!({"jobFailed": "Job ops/kernel-0-1767323045-2: backoff limit"}));
    let job = json!({"action": {"job": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ops"}}}});
    let drained = json!({"phase": "Succeeded", "evictionPods": 3});
    let halt = json!({"message": "the action for node n1 failed"});
    let (shown, _) = explained(&halting(drained.clone(), &job, &node, &halt), None);
    assert!(
        shown.contains("  The log of the Job may show why. When nothing prevents it any more"),
        "{shown}"
    );
    let log =
        "    kubectl --context blue -n ops logs job/kernel-0-1767323045-2\n    kubectl nm roll resume kernel";
    assert!(shown.contains(log), "{shown}");
    // A Job that ran for too long was deleted.
    let node = failed_action(&json!({"failed": "Job ops/kernel-0-1767323045-2 did not finish within 1s"}));
    let (shown, _) = explained(&halting(drained, &job, &node, &halt), None);
    assert!(shown.contains("The action of n1 failed") && !shown.contains("logs"), "{shown}");
}

#[test]
fn a_halted_roll_offers_a_skip_only_of_a_node_that_it_has_and_says_what_becomes_of_that_node() {
    let cordoned = json!([{"type": "Cordoned", "status": "True", "reason": "r", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let begun = json!({"phase": "Succeeded", "conditions": cordoned});
    let returns = "; or continue without the node, which returns it to service as it is, or";
    for (halted_by, step, status, expected) in [
        ("n1", "Acting", &begun, returns),
        ("n1", "Planned", &json!({}), "; or continue without the node, which stays in service, or"),
        ("n1", "Planned", &begun, returns),
        ("n1", "Recovering", &begun, "; or continue without the node, or"),
        ("n2", "Acting", &begun, "By now, node n2 is not part of the roll any more."),
        ("", "Acting", &begun, "continue the roll, or abort the roll"),
    ] {
        let mut object =
            halting(status.clone(), &json!({}), &json!({"step": step}), &json!({"message": "m"}));
        if step == "Recovering" {
            object = stopping(object);
            object.metadata.finalizers = Some(vec![String::from("kubectl-nm.dev/roll")]);
        }
        let state = object.metadata.annotations.as_mut().unwrap().get_mut(STATE).unwrap();
        *state = state.replace("\"node\":\"n1\"", &format!("\"node\":\"{halted_by}\""));
        let cause = halted_roll(&object).cause("kubectl");
        let shown = format!("{} {}", cause.what.join(" "), cause.advice);
        assert!(shown.contains(expected), "{step}: {shown}");
        let offers = cause.commands.iter().any(|command| command.contains("--skip"));
        let roll = find_rolls(&["kernel"].into(), std::slice::from_ref(&object)).remove("kernel").unwrap();
        assert_eq!(offers, roll.node(halted_by).is_some(), "a skip of another node is refused: {step}");
    }
}

#[test]
fn a_before_action_does_not_run_again_once_somebody_has_removed_its_hook() {
    let node = json!({"step": "Preparing", "before": {"attempt": 1, "state": {"failed": "exit code 1"}}});
    let settings = json!({"before": {"run": "leave {}"}});
    let halt = json!({"message": "the --before action for node n1 failed: exit code 1"});
    let mut object = halting(json!({"phase": "Running"}), &settings, &node, &halt);
    let removed = "By now, the roll's hook of node n1 is removed, so its drain does not wait for the --before action.\n";
    let again = "The action of n1 (--before) failed, and runs again on resume.\n";
    let (shown, _) = explained(&object, None);
    assert!(shown.contains(removed) && !shown.contains(again), "{shown}");
    assert!(shown.contains("  Continue the roll; or"), "{shown}");
    object.metadata.annotations.get_or_insert_default().insert(hook(), String::from("roll/kernel"));
    let (shown, _) = explained(&object, None);
    assert!(shown.contains(again) && !shown.contains(removed), "{shown}");
}

#[test]
fn a_job_that_never_started_is_changed_or_its_cause_corrected_before_the_roll_is_resumed() {
    let why = "Job ops/kernel-0-1767323045 did not start within 10m: pod p: ErrImagePull: not found";
    let node = failed_action(&json!({"notStarted": why}));
    let job = json!({"action": {"job": {"metadata": {"namespace": "ops"}}}});
    let halt = json!({"message": format!("the action for node n1 failed: {why}")});
    let drained = json!({"phase": "Succeeded", "evictionPods": 3});
    let (shown, _) = explained(&halting(drained, &job, &node, &halt), None);
    let expected = "  To change the Job, abort the roll, which also ends what runs for its other nodes and returns them to service, and \
                    start a new one. Or correct what kept it from starting, and continue the roll; or continue without the node, which \
                    returns it to service as it is:
    kubectl nm roll abort kernel --return --context blue --yes
    kubectl nm roll resume kernel --context blue
    kubectl nm roll resume kernel --skip n1 --context blue\n";
    assert!(shown.ends_with(expected), "{shown}");
    assert!(!shown.contains(" logs "), "nothing has run: {shown}");
}

#[test]
fn a_roll_that_a_failed_command_has_halted_names_the_file_with_its_output_if_it_is_here() {
    let drained = json!({"phase": "Succeeded", "evictionPods": 3});
    let settings = json!({"action": {"run": "reboot {}"}});
    let of = |state: Value| {
        let node = failed_action(&state);
        let object = halting(drained.clone(), &settings, &node, &json!({"message": "m"}));
        let halted = halted_roll(&object).with_output(|node, since| {
            assert_eq!(since.to_string(), "2026-01-02T03:04:05Z");
            Some(format!("/state/{node}.log").into())
        });
        halted.cause("kubectl").what
    };
    // Exit code 255 is that of a connection that was lost.
    for state in [json!({"failed": "the command ended with exit code 1"}), json!("disconnected")] {
        let expected = [
            "Roll kernel halted at 2026-01-02 03:04:05 UTC: m.",
            "The action of n1 failed, and runs again on resume.",
            "The output of the command is in /state/n1.log.",
        ];
        assert_eq!(of(state), expected);
    }
    assert_eq!(of(json!("running")), ["Roll kernel halted at 2026-01-02 03:04:05 UTC: m."]);
}

#[test]
fn a_roll_that_a_drain_has_halted_is_resumed_after_the_drain_which_is_named_first() {
    let condition = json!([{"type": "Drained", "status": "False", "reason": "TimedOut",
        "message": "the drain timed out after 8 s", "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let failed =
        json!({"phase": "Failed", "lastError": "the drain timed out after 8 s", "conditions": &condition});
    let halt = json!({"message": "the drain of node n1 failed: m", "cause": "drainTimedOut"});
    let draining = json!({"step": "Draining"});
    let of = |status: Value| explained(&halting(status, &json!({}), &draining, &halt), None).0;
    let shown = of(failed);
    let (drain, roll) =
        (shown.find("The drain timed out").unwrap(), shown.find("Roll kernel halted").unwrap());
    assert!(drain < roll, "{shown}");
    assert!(
        shown.contains("  First let the drain of node n1 continue; then continue the roll; or"),
        "{shown}"
    );

    let failed = halting(json!({"phase": "Failed", "conditions": condition}), &json!({}), &draining, &halt);
    assert!(halted_roll(&failed).awaits_drain());
    assert!(!halted_roll(&stopping(failed)).awaits_drain(), "its drain is over");

    let shown = of(json!({"phase": "Succeeded", "evictionPods": 3}));
    let now = "Roll kernel halted at 2026-01-02 03:04:05 UTC: the drain of node n1 failed: m.\nBy now, node n1 is drained.\n";
    assert!(shown.contains(now) && shown.contains("  Continue the roll; or"), "{shown}");
    let shown = of(json!({"phase": "Running", "podCounts": {"waiting": 1}}));
    assert!(shown.contains("By now, the drain of node n1 is under way.\n"), "{shown}");
}

#[test]
fn a_node_that_has_not_rebooted_is_to_be_rebooted_before_its_roll_is_resumed() {
    let waits =
        json!({"step": "Rejoining", "bootId": "boot-0", "action": {"attempt": 1, "state": "succeeded"}});
    let halt = json!({"message": "node n1 is not back after 15s: it has not rebooted", "cause": "notBack"});
    let drained = json!({"phase": "Succeeded", "evictionPods": 3});
    let object = halting(drained, &json!({"expectReboot": true}), &waits, &halt);
    let again = "The action of n1 runs again when the roll is resumed and the node is Ready, unless it has rebooted by then.\n";
    let unknown = "  Whether node n1 has rebooted since is not known, because it could not be read.\n";
    for (node, expected) in [
        (
            Some(view("boot-0", "True")),
            "  Unless node n1 is still at work, reboot it or power it on; then continue the roll; or",
        ),
        (
            None,
            &*format!(
                "{unknown}  Unless node n1 has rebooted or is still at work, reboot it or power it on; then continue the roll; or"
            ),
        ),
    ] {
        let (shown, _) = explained(&object, node);
        assert!(shown.contains(again) && shown.contains(expected), "{shown}");
    }
    for (ready, expected) in [
        ("True", "By now, node n1 has rebooted and is Ready.\n"),
        ("Unknown", "By now, node n1 has rebooted, but is not Ready.\n"),
    ] {
        let (shown, _) = explained(&object, Some(view("boot-1", ready)));
        assert!(shown.contains(expected) && !shown.contains("runs again"), "{shown}");
        assert!(shown.contains("  Continue the roll; or"), "{shown}");
    }
}

#[test]
fn a_roll_that_workloads_have_halted_says_whether_they_have_recovered_by_now() {
    let why = "Deployment h/rec has 0 of 1 replicas available";
    let message = format!("workloads affected by the drain of node n1 are not healthy after 10m: {why}");
    let recovering = json!({"step": "Recovering"});
    let halt = json!({"message": message, "cause": "unhealthy"});
    let mut object = stopping(halting(json!({"phase": "Succeeded"}), &json!({}), &recovering, &halt));
    object.metadata.finalizers = Some(vec![String::from("kubectl-nm.dev/roll")]);
    let of = |health: Option<Value>| {
        let probed = health.map(|health| json!({"node": "n1", "step": "Recovering", "health": health}));
        let probed = probed.map(|one| (String::from("kernel"), serde_json::from_value(one).unwrap()));
        explained_with(&object, Some(view("b", "True")), probed.into_iter().collect()).0
    };
    let halted = format!("Roll kernel halted at 2026-01-02 03:04:05 UTC: {message}.\n");
    let unknown = of(None);
    assert!(unknown.contains(&halted) && !unknown.contains("By now"), "{unknown}");
    let over = of(Some(json!("healthy")));
    let expected = format!(
        "{halted}By now, node n1 and the workloads affected by its drain are healthy.\n  {STATUS}\n  Continue the roll; or"
    );
    assert!(over.contains(&expected), "{over}");
    let still = of(Some(json!({"waiting": "Deployment h/rec has 1 of 2 replicas available"})));
    let expected = format!("{halted}Still not healthy: Deployment h/rec has 1 of 2 replicas available.\n");
    assert!(still.contains(&expected), "{still}");
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
    let expected = format!(
        "\
node/n2: Planned: waits for its turn in roll kernel
It is part of roll kernel.

Roll kernel halted at 2026-01-02 03:04:05 UTC: node n1 is drained, and was not confirmed.
  {STATUS}
  When nothing prevents it any more, continue the roll; or continue without the node, or abort the roll:
    kubectl nm roll resume kernel --context blue
    kubectl nm roll resume kernel --skip n1 --context blue
    kubectl nm roll abort kernel --context blue --yes

The maintenance starts when its turn in roll kernel comes, but the roll starts no node now.
  Ongoing for 3m25s, since 2026-01-02T03:04:00Z.
"
    );
    assert_eq!(explained(&object, None).0, expected);
}
