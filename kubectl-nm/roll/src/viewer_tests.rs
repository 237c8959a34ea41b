//! A roll that another program runs.

use std::sync::Arc;

use nm_core::terminal::output::captured::output;
use serde_json::{Value, json};

use super::*;
use crate::record::{LABEL, Pause, SETTINGS, STATE, annotation};
use crate::report::{LineFormat, LineReporter};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

/// The maintenance of a node at a step, which has a record if it is the first one.
fn object(roll: &str, node: &str, step: Step, record: Option<&RollRecord>) -> Arc<NodeMaintenance> {
    let settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": true});
    let position = usize::from(node != "n0");
    let own = json!({"wave": 0, "position": position, "step": step.word(), "since": at(0)});
    let mut object = nm_core::testing::objects::requested(node);
    object.labels_mut().insert(LABEL.into(), roll.into());
    object
        .annotations_mut()
        .extend([(SETTINGS.into(), settings.to_string()), (NODE.into(), own.to_string())]);
    object.annotations_mut().extend(record.map(|record| (STATE.into(), annotation(record))));
    Arc::new(object)
}

fn run_at(seconds: i64) -> RollRecord {
    let (id, who, at) = ("x".into(), "Job nm-roll-r".into(), at(seconds));
    let runner = Some(Runner { id, who, at, in_cluster: true, node: None });
    RollRecord { revision: 1, runner, ..RollRecord::default() }
}

fn listed(record: &RollRecord) -> Viewer<'static> {
    let mut viewer = Viewer::new("r");
    let objects =
        vec![object("r", "n0", Step::Draining, Some(record)), object("r", "n1", Step::Planned, None)];
    let urgency = viewer.note_maintenances(WatchUpdate::Change(WatchChange::Listed(objects)));
    assert_eq!(urgency, Urgency::Now);
    viewer
}

fn apply(viewer: &mut Viewer<'_>, object: Arc<NodeMaintenance>) -> Urgency {
    viewer.note_maintenances(WatchUpdate::Change(WatchChange::Applied(object)))
}

fn node(ready: &str, heartbeat: &str) -> WatchUpdate<Node> {
    let conditions = json!([{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat,
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let node: Value = json!({"metadata": {"name": "n0", "uid": "u"}, "status": {"conditions": conditions}});
    WatchUpdate::Change(WatchChange::Applied(Arc::new(serde_json::from_value(node).unwrap())))
}

#[test]
fn a_roll_is_computed_again_only_when_its_maintenances_or_nodes_have_changed() {
    let mut viewer = listed(&run_at(0));
    // What was computed before is dropped only afterwards, so that the memory tells them apart.
    let is_computed = |viewer: &mut Viewer<'_>| {
        let before = viewer.seen.as_ref().map(|seen| seen.roll.nodes.as_ptr());
        viewer.refresh(at(1)).unwrap();
        before != viewer.seen.as_ref().map(|seen| seen.roll.nodes.as_ptr())
    };
    assert!(is_computed(&mut viewer) && !is_computed(&mut viewer));
    assert_eq!(apply(&mut viewer, object("other", "n7", Step::Planned, None)), Urgency::Never);
    assert!(!is_computed(&mut viewer));
    let unchanged = Arc::new(nm_core::testing::objects::requested("n8"));
    assert_eq!(apply(&mut viewer, unchanged), Urgency::Never);
    assert!(!is_computed(&mut viewer));
    // The status of a maintenance can wait, a step cannot.
    assert_eq!(apply(&mut viewer, object("r", "n1", Step::Planned, None)), Urgency::Soon);
    assert!(is_computed(&mut viewer));
    assert_eq!(apply(&mut viewer, object("r", "n0", Step::Rejoining, Some(&run_at(0)))), Urgency::Now);
    assert!(is_computed(&mut viewer));
    assert_eq!(viewer.note_nodes(node("True", "2026-01-02T03:04:05Z")), Urgency::Soon);
    assert!(is_computed(&mut viewer));
    // A heartbeat of its kubelet.
    assert_eq!(viewer.note_nodes(node("True", "2026-01-02T03:05:05Z")), Urgency::Never);
    assert!(!is_computed(&mut viewer));
    assert_eq!(viewer.note_nodes(node("False", "2026-01-02T03:05:15Z")), Urgency::Soon);
}

/// What a viewer prints of a roll at a time.
fn printed(record: &RollRecord, job: Option<&str>, seconds: &[i64]) -> String {
    let mut viewer = listed(record);
    viewer.starting = job.map(str::to_owned);
    let (mut out, captured) = output();
    let mut reporter = LineReporter::new(&mut out, LineFormat::Text);
    for second in seconds {
        viewer.refresh(at(*second)).unwrap();
        viewer.show(&mut reporter, at(*second)).unwrap();
    }
    captured.data()
}

#[test]
fn a_roll_that_nobody_runs_names_the_job_that_is_starting_and_does_not_count_seconds() {
    let nobody = RollRecord { runner: None, ..run_at(0) };
    assert!(printed(&nobody, None, &[1]).contains("no node is started: nobody runs the roll\n"));
    let job = printed(&nobody, Some("Job a/b is starting"), &[1]);
    assert!(job.contains("no node is started: Job a/b is starting\n") && !job.contains("nobody"), "{job}");
    let lost = printed(&run_at(0), None, &[1, 61, 62, 63]);
    let said = "no node is started: Job nm-roll-r ran the roll, last seen at 1970-01-12 13:46:40 UTC\n";
    assert_eq!((lost.matches(said).count(), lost.matches("no node is started").count()), (1, 1), "{lost}");
}

#[test]
fn a_node_whose_job_does_not_start_shows_why() {
    let mut viewer = listed(&run_at(0));
    viewer.problems = [("n0".to_owned(), "pod p: ErrImagePull".to_owned())].into();
    let (mut out, captured) = output();
    let mut reporter = LineReporter::new(&mut out, LineFormat::Text);
    viewer.refresh(at(1)).unwrap();
    viewer.seen.as_mut().unwrap().progress[0].detail.clear();
    // Lines leave out what passes in a moment.
    viewer.show(&mut reporter, at(61)).unwrap();
    assert!(captured.data().contains("pod p: ErrImagePull"), "{}", captured.data());
}

#[test]
fn a_paused_roll_names_who_paused_it_and_when() {
    let pause = Some(Pause { by: "bob@desk".into(), at: at(0) });
    let paused = RollRecord { paused: true, pause, ..run_at(0) };
    let line = "no node is started: paused by bob@desk at 1970-01-12 13:46:40 UTC\n";
    assert!(printed(&paused, None, &[1]).contains(line));
}

#[test]
fn a_roll_that_starts_no_node_until_its_window_opens_shows_when_that_is() {
    let opens = "no node is started: the window opens at Mon 12 Jan 14:00 UTC\n";
    let shown = |step: Step| {
        let object = object("r", "n0", step, Some(&run_at(0)));
        let mut object = Arc::unwrap_or_clone(object);
        let settings = object.annotations_mut().get_mut(SETTINGS).unwrap();
        *settings = settings.replacen('{', r#"{"windows":["14:00-15:00 UTC"],"#, 1);
        let mut viewer = Viewer::new("r");
        viewer.note_maintenances(WatchUpdate::Change(WatchChange::Listed(vec![Arc::new(object)])));
        let (mut out, captured) = output();
        let mut reporter = LineReporter::new(&mut out, LineFormat::Text);
        viewer.refresh(at(1)).unwrap();
        viewer.show(&mut reporter, at(1)).unwrap();
        captured.data()
    };
    assert!(shown(Step::Planned).contains(opens), "{}", shown(Step::Planned));
    assert!(!shown(Step::Draining).contains("no node is started"), "{}", shown(Step::Draining));
}

#[test]
fn the_job_of_a_roll_is_read_only_while_nobody_runs_it() {
    let awaits = |record: RollRecord| {
        let mut viewer = listed(&record);
        viewer.refresh(at(1)).unwrap();
        viewer.awaits_job(at(1))
    };
    assert!(!awaits(run_at(0)));
    assert!(awaits(run_at(-60)) && awaits(RollRecord { runner: None, ..run_at(0) }));
    assert!(!awaits(RollRecord { paused: true, ..run_at(-60) }));
    assert!(awaits(RollRecord { paused: true, aborted: Some("ada".into()), ..run_at(-60) }));
}
