use std::sync::Mutex;

use nm_core::testing::fake_server::{cluster, failure, list};

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
