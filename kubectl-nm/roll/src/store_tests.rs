use std::sync::Mutex;

use nm_core::testing::fake_server::{cluster, failure, list, reading_cluster};
use serde_json::Value;

use super::*;
use crate::record::{ActionRecord, ActionState, LABEL, NODE, NodeRecord, SETTINGS, annotation};

/// The maintenance of the only node of a roll, at this step.
fn object(step: Step, action: Option<ActionState>) -> NodeMaintenance {
    let mut object = nm_core::testing::objects::requested("n1");
    let settings = json!({"waves": [1], "maxUnavailable": 1, "action": {"run": "reboot"}, "minReadySeconds": 30,
        "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let record = NodeRecord {
        step,
        began: Some(Timestamp::UNIX_EPOCH),
        action: action.map(|state| ActionRecord { attempt: 1, state }),
        ..NodeRecord::planned(0, 0, Timestamp::UNIX_EPOCH)
    };
    object.labels_mut().insert(LABEL.into(), "r".into());
    let annotations = [
        (SETTINGS.to_owned(), settings.to_string()),
        (NODE.to_owned(), annotation(&record)),
        (STATE.to_owned(), annotation(&RollRecord::default())),
    ];
    object.annotations_mut().extend(annotations);
    object
}

/// Removes the nodes whose action has not begun, while a node of the roll goes on to this step.
async fn removed(step: Step, action: Option<ActionState>) -> (usize, usize) {
    let changed = object(step, action);
    let left = Mutex::new(1);
    let (cluster, requests) = cluster(move |method, path| match (method, path.ends_with("/n1")) {
        ("GET", false) => list(&[object(Step::Draining, None)]),
        ("GET", true) => (200, json!(changed)),
        ("DELETE", _) if std::mem::take(&mut *left.lock().unwrap()) > 0 => failure(409, "Conflict", "n1"),
        ("DELETE", _) => {
            (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        _ => failure(500, "InternalError", "n1"),
    });
    let removed = remove(&cluster, "r", |node| node.record.action.is_none()).await.unwrap();
    let deletions = requests.lock().unwrap().iter().filter(|request| request.starts_with("DELETE ")).count();
    (removed.len(), deletions)
}

#[tokio::test]
async fn a_node_whose_action_begins_while_it_is_removed_is_judged_again() {
    assert_eq!(removed(Step::Acting, Some(ActionState::Running)).await, (0, 1), "it stays");
    assert_eq!(removed(Step::Draining, None).await, (1, 2), "only its status has changed");
}

/// Two nodes of a roll, the second of which is stopped. Its maintenance has this record.
fn two_objects(record: &RollRecord) -> [NodeMaintenance; 2] {
    let (mut rest, mut stopped) = (object(Step::Planned, None), object(Step::Planned, None));
    rest.annotations_mut().remove(STATE);
    stopped.spec.node_name = "n2".into();
    (stopped.metadata.name, stopped.metadata.uid) = (Some("n2".into()), Some("uid-n2".into()));
    let node = NodeRecord::planned(0, 1, Timestamp::UNIX_EPOCH);
    stopped.annotations_mut().insert(NODE.into(), annotation(&node));
    stopped.annotations_mut().insert(STATE.into(), annotation(record));
    [rest, stopped]
}

/// Writes the record of this request to a maintenance.
fn write(object: &mut NodeMaintenance, body: &Value) {
    let text = body["metadata"]["annotations"][STATE].as_str().unwrap();
    object.annotations_mut().insert(STATE.into(), text.to_owned());
}

/// The record that the rest of the roll has, if these records are written to the stopped node's maintenance while the record
/// moves, each right after a write to the rest.
async fn moved(record: &RollRecord, others: impl IntoIterator<Item = RollRecord>) -> Option<RollRecord> {
    let stored = Arc::new(Mutex::new(two_objects(record)));
    let others = Mutex::new(others.into_iter().collect::<Vec<_>>().into_iter());
    let objects = Arc::clone(&stored);
    let cluster = reading_cluster(move |method, path, body| {
        let mut objects = objects.lock().unwrap();
        match (method, path.rsplit('/').next()) {
            ("PATCH", Some("n1")) => {
                write(&mut objects[0], body);
                if let Some(other) = others.lock().unwrap().next() {
                    objects[1].annotations_mut().insert(STATE.into(), annotation(&other));
                }
                (200, json!(objects[0]))
            }
            ("GET", _) => list(&*objects),
            _ => failure(500, "InternalError", path),
        }
    });
    keep_record(&cluster, "r", |node| node.node() == "n2").await.unwrap();
    let rest = stored.lock().unwrap()[0].clone();
    RollRecord::of(&rest).unwrap()
}

#[tokio::test]
async fn what_others_write_to_a_removed_node_after_the_record_has_moved_is_kept() {
    let record = RollRecord { revision: 5, ..RollRecord::default() };
    let later = RollRecord { paused: true, ..record.next().next() };
    let stored = Arc::new(Mutex::new(two_objects(&record)));
    let objects = Arc::clone(&stored);
    let (conflicts, written) = (Mutex::new(1), later.clone());
    let cluster = reading_cluster(move |method, path, body| {
        let mut objects = objects.lock().unwrap();
        match (method, path.rsplit('/').next()) {
            ("PATCH", Some("n1")) => {
                write(&mut objects[0], body);
                (200, json!(objects[0]))
            }
            ("DELETE", _) if std::mem::take(&mut *conflicts.lock().unwrap()) > 0 => {
                objects[1].annotations_mut().insert(STATE.into(), annotation(&written));
                failure(409, "Conflict", "n2")
            }
            ("DELETE", _) => {
                (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
            }
            ("GET", Some("n2")) => (200, json!(objects[1])),
            ("GET", _) => list(&*objects),
            _ => failure(500, "InternalError", path),
        }
    });
    assert_eq!(remove(&cluster, "r", |node| node.node() == "n2").await.unwrap().len(), 1);
    let rest = stored.lock().unwrap()[0].clone();
    assert_eq!(RollRecord::of(&rest).unwrap(), Some(later.next()));
}

#[tokio::test]
async fn what_others_write_while_the_record_moves_is_kept() {
    let record = RollRecord { revision: 5, ..RollRecord::default() };
    let paused = RollRecord { paused: true, ..record.next() };
    let later = RollRecord { worked_millis: 1, ..paused.next().next() };
    let rest = async |others: &[&RollRecord]| {
        moved(&record, others.iter().map(|other| (*other).clone())).await.unwrap()
    };
    assert_eq!(rest(&[]).await, record.next());
    assert_eq!(rest(&[&record]).await, record.next(), "nothing was written");
    assert_eq!(rest(&[&paused]).await, paused.next(), "a write of the same revision");
    assert_eq!(rest(&[&later]).await, later.next(), "a later one");
    assert_eq!(rest(&[&paused, &later]).await, later.next(), "one after the other");
}
