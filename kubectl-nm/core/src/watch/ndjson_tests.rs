//! Watches, as a program reads them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::terminal::output::captured::output;
use crate::testing::objects::listed;
use crate::testing::objects::{requested, running, stopping, with_status};
use crate::watch::goal_tracker::{ExitCondition, Goal};

fn noon() -> Timestamp {
    "2026-01-02T12:00:00.4004Z".parse().unwrap()
}

fn change(change: WatchChange<NodeMaintenance>) -> LoopEvent {
    LoopEvent::Watch(WatchUpdate::Change(change))
}

fn list(objects: Vec<NodeMaintenance>) -> Vec<LoopEvent> {
    vec![change(listed(objects))]
}

fn changed(version: &str, mut object: NodeMaintenance) -> LoopEvent {
    object.metadata.resource_version = Some(version.to_owned());
    change(WatchChange::Applied(Arc::new(object)))
}

/// The exit code and the lines after these events, without the fields of every line, which are checked.
fn play(
    condition: ExitCondition,
    nodes: &[&str],
    events: Vec<LoopEvent>,
) -> (Result<Option<Exit>, Error>, Vec<Value>) {
    let (mut out, captured) = output();
    let nodes = nodes.iter().map(ToString::to_string).collect();
    let mut reporter = NdjsonReporter::new(&mut out, &noon, GoalTracker::new(nodes, condition));
    let exit = events.into_iter().try_fold(None, |exit, event| match reporter.react(event)? {
        ControlFlow::Break(exit) => Ok(Some(exit)),
        ControlFlow::Continue(()) => Ok(exit),
    });
    let said = captured.data();
    let lines = said.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let object = value.as_object_mut().unwrap();
        assert_eq!(object.remove("version"), Some(json!(1)));
        assert_eq!(object.remove("time"), Some(json!("2026-01-02T12:00:00.4Z")));
        value
    });
    (exit, lines.collect())
}

#[test]
fn a_line_begins_with_its_version_and_type() {
    let said = line(noon(), RecordBody::Snapshot { live: true, maintenances: vec![] }).unwrap();
    assert_eq!(
        said,
        "{\"version\":1,\"type\":\"snapshot\",\"live\":true,\"maintenances\":[],\"time\":\"2026-01-02T12:00:00.4Z\"}\n"
    );
}

#[test]
fn a_drain_is_reported_from_the_snapshot_to_the_end() {
    let mut before = running(40, &[("cart-0", "budget cart has 1")]);
    before["pendingPodsRefs"] =
        json!([{"namespace": "shop", "name": "cart-0"}, {"namespace": "web", "name": "front"}]);
    let mut freed = running(60, &[]);
    freed["pendingPodsRefs"] = json!([{"namespace": "shop", "name": "cart-0"}]);
    freed["conditions"] = json!([{"type": "Drained", "status": "False", "reason": "Draining", "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let mut events = list(vec![with_status("n1", before)]);
    events.push(changed("2", with_status("n1", freed)));
    events.push(changed("3", with_status("n1", json!({"phase": "Succeeded"}))));
    let (exit, lines) = play(ExitCondition::Goal(Goal::Drained), &["n1"], events);
    assert_eq!(exit.unwrap(), Some(Exit::Done));
    let brief: Vec<String> = lines
        .iter()
        .map(|line| {
            let word = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            match line["type"].as_str().unwrap() {
                "snapshot" => format!("snapshot {}", line["maintenances"][0]["progress"]),
                "node" => format!("node {} {} {}", word("node"), word("state"), line["progress"]),
                "pod" => format!("pod {}/{} {}", word("namespace"), word("name"), word("state")),
                "condition" => format!("condition {} {}", word("condition"), word("status")),
                _ => format!("done {} {} {}", line["exitCode"], word("result"), line["nodes"]),
            }
        })
        .collect();
    assert_eq!(
        brief,
        [
            "snapshot 40",
            "pod shop/cart-0 blocked",
            "node n1 draining 60",
            "condition Drained False",
            "pod shop/cart-0 unblocked",
            "pod web/front gone",
            "node n1 drained 0",
            "pod shop/cart-0 gone",
            "done 0 reached [{\"node\":\"n1\",\"result\":\"reached\"}]",
        ]
    );
    let blocked = json!({"type": "pod", "node": "n1", "namespace": "shop", "name": "cart-0", "state": "blocked",
        "reason": "DisruptionBudget", "message": "budget cart has 1", "since": "2026-01-02T03:04:05Z", "attempts": 3});
    assert_eq!(lines[1], blocked);
}

#[test]
fn a_pod_that_was_deleted_after_refusals_is_not_reported_as_unblocked() {
    let blocked = running(40, &[("cart-0", "budget cart has 1")]);
    let mut deleted = running(40, &[]);
    deleted["departedPods"] = json!({"deletedAfterRefusal": 1});
    let mut events = list(vec![with_status("n1", blocked)]);
    events.push(changed("2", with_status("n1", deleted)));
    let (_, lines) = play(ExitCondition::Never, &[], events);
    let pods: Vec<&str> = lines.iter().filter_map(|line| line["state"].as_str()).collect();
    assert_eq!(pods, ["blocked", "draining", "deleted"]);
}

#[test]
fn a_workload_that_is_down_is_a_line_and_another_one_when_it_has_recovered() {
    let mut events = list(vec![requested("n1")]);
    for is_down in [true, false] {
        let workload = String::from("shop/deploy/web");
        events.push(LoopEvent::Outage(OutageChange { node: "n1".into(), workload, is_down }));
    }
    let (_, lines) = play(ExitCondition::Never, &[], events);
    let of = |state: &str| json!({"type": "workload", "node": "n1", "workload": "shop/deploy/web", "state": state});
    assert_eq!(lines[lines.len() - 2..], [of("down"), of("recovered")]);
}

#[test]
fn a_pod_that_the_drain_waits_for_is_reported_once_with_its_reason() {
    let mut waits = running(40, &[]);
    waits["waitingPods"] = json!([{"namespace": "shop", "name": "import-x", "reason": "Completing",
            "since": "2026-01-02T03:04:05Z"}]);
    let mut limited = waits.clone();
    limited["waitingPods"][0]["until"] = json!("2026-01-02T04:04:05Z");
    let mut events = list(vec![with_status("n1", waits.clone())]);
    events.push(changed("2", with_status("n1", waits)));
    events.push(changed("3", with_status("n1", limited)));
    let (_, lines) = play(ExitCondition::Never, &[], events);
    let pods: Vec<&Value> = lines.iter().filter(|line| line["type"] == "pod").collect();
    let waiting = |until: Value| {
        json!({"type": "pod", "node": "n1", "namespace": "shop", "name": "import-x", "state": "waiting",
            "reason": "Completing", "since": "2026-01-02T03:04:05Z", "until": until})
    };
    assert_eq!(pods, [&waiting(json!(null)), &waiting(json!("2026-01-02T04:04:05Z"))]);
}

#[test]
fn stale_data_is_never_marked_as_live() {
    let mut events = list(vec![requested("n1")]);
    let lost = Error::Refused { server: "https://c".into() };
    events.extend([
        LoopEvent::Watch(WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: lost }),
        LoopEvent::Heartbeat,
        LoopEvent::Watch(WatchUpdate::Live),
    ]);
    events.push(change(WatchChange::Deleted(Arc::new(stopping(requested("n1"))))));
    events.push(LoopEvent::Interrupted);
    let (exit, lines) = play(ExitCondition::Never, &[], events);
    assert_eq!(exit.unwrap(), Some(Exit::Interrupted));
    let live: Vec<&Value> = lines.iter().map(|line| &line["live"]).take(4).collect();
    assert_eq!(live, [true, false, false, true]);
    assert_eq!((&lines[4]["type"], &lines[4]["state"]), (&json!("node"), &json!("gone")));
    assert_eq!(lines[5], json!({"type": "done", "exitCode": 130, "result": "interrupted", "nodes": []}));
}

#[test]
fn a_node_that_was_deleted_is_marked_in_the_lines_of_its_maintenance() {
    let (mut out, captured) = output();
    let object = requested("n1");
    let deleted = DeletedNodes::known(&[&uid(&object)]);
    let tracker = GoalTracker::new(vec![], ExitCondition::Never);
    let mut reporter = NdjsonReporter::new(&mut out, &noon, tracker).with_deleted_nodes(&deleted);
    let gone = change(WatchChange::Deleted(Arc::new(stopping(object.clone()))));
    for event in list(vec![object]).into_iter().chain([gone]) {
        let _ = reporter.react(event).unwrap();
    }
    let last: Value = serde_json::from_str(captured.data().lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["nodeDeleted"]), (&json!("gone"), &json!(true)));
}

#[test]
fn the_last_line_names_the_nodes_that_were_not_complete() {
    let mut events = list(vec![with_status("n1", json!({"phase": "Succeeded"})), requested("n2")]);
    events.push(LoopEvent::TimedOut(std::time::Duration::from_secs(60)));
    let (exit, lines) = play(ExitCondition::AllComplete, &[], events);
    assert_eq!(exit.unwrap(), Some(Exit::TimedOut));
    let nodes = json!([{"node": "n2", "result": "open"}]);
    assert_eq!(
        lines.last(),
        Some(&json!({"type": "done", "exitCode": 124, "result": "timedOut", "nodes": nodes}))
    );
}
