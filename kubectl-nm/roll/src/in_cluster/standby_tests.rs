//! What a program that stands by for a halted roll writes while its watch is behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nm_core::testing::fake_server::{NEVER, list, reading_cluster};
use nm_core::testing::objects::named;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::record::{Halt, LABEL, NODE, SETTINGS, STATE, annotation};

fn me() -> Runner {
    let at = Timestamp::UNIX_EPOCH;
    Runner { id: "pod/1".into(), who: "roll r".into(), at, in_cluster: true, node: None }
}

/// The record of a roll that has halted, and whose last heartbeat was long ago.
fn halted(revision: u64) -> RollRecord {
    let at = Timestamp::UNIX_EPOCH;
    let halt = Halt { node: "n1".into(), message: "the Job failed".into(), at, cause: None };
    RollRecord { revision, runner: Some(me()), halt: Some(halt), ..RollRecord::default() }
}

/// A maintenance of a roll of two nodes.
fn object(name: &str, uid: &str, began: bool, record: Option<&RollRecord>) -> NodeMaintenance {
    let settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let at = Timestamp::UNIX_EPOCH;
    let node = json!({"wave": 0, "position": u8::from(name == "n2"), "step": "Planned", "since": at,
        "began": began.then_some(at)});
    let mut object = named(name, name, uid);
    object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
    let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string())].into_iter();
    let annotations = annotations.chain(record.map(|record| (STATE, annotation(record))));
    object.metadata.annotations = Some(annotations.map(|(key, text)| (key.to_owned(), text)).collect());
    object
}

/// The maintenances of the roll that has halted.
fn halted_objects() -> [NodeMaintenance; 2] {
    [object("n1", "a", true, None), object("n2", "b", false, Some(&halted(5)))]
}

/// A server whose watch shows only these objects. Others are stored, which it lists to those who ask later. What it receives
/// after that first list is sent: the method, the name of the object, and the content.
fn behind(
    shown: Vec<NodeMaintenance>,
    stored: Vec<NodeMaintenance>,
) -> (Cluster, UnboundedReceiver<(String, String, Value)>) {
    let (lists, (sent, received)) = (AtomicUsize::new(0), unbounded_channel());
    let cluster = reading_cluster(move |method, path, body| {
        if path == "watch" {
            return (NEVER, Value::Null);
        }
        let is_first = lists.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first {
            return list(&shown);
        }
        let name = path.rsplit('/').next().unwrap();
        let _ = sent.send((method.to_owned(), name.to_owned(), body.clone()));
        match method {
            "PATCH" => (200, json!(stored.iter().find(|object| object.spec.node_name == name))),
            _ => list(&stored),
        }
    });
    (cluster, received)
}

/// The first record that is written by a program that stands by, and the object that it is written to; none if nothing is written
/// before the program has read the roll twice.
///
/// # Errors
///
/// With which the wait ends.
async fn written(
    shown: Vec<NodeMaintenance>,
    stored: Vec<NodeMaintenance>,
) -> Result<Option<(String, RollRecord)>, Error> {
    let (cluster, mut received) = behind(shown, stored);
    let (me, mut keeper, mut reads) = (me(), HistoryKeeper::new(), 0);
    let roll = Roll::find("r", &halted_objects().map(Arc::new)).unwrap().unwrap();
    let mut wait = Box::pin(wait_until_resumed(&cluster, roll, &me, halted(5), &mut keeper));
    loop {
        tokio::select! {
            biased;
            Some((method, name, body)) = received.recv() => if method == "PATCH" {
                let record = body["metadata"]["annotations"][STATE].as_str().unwrap();
                return Ok(Some((name, serde_json::from_str(record).unwrap())));
            } else {
                reads += 1;
                if reads > 2 {
                    return Ok(None);
                }
            },
            ended = &mut wait => return Err(ended.expect_err("the roll is not resumed")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_deletion_the_watch_does_not_show_yet_is_stored_again() {
    let resumed = RollRecord { halt: None, ..halted(4) };
    for rest in [
        object("n1", "a", true, None),
        object("n1", "a", false, None),
        object("n1", "a", true, Some(&resumed)),
    ] {
        let (name, record) =
            written(halted_objects().into(), vec![rest]).await.unwrap().expect("it is stored");
        assert_eq!((name.as_str(), record.revision), ("n1", 6));
        assert_eq!(record.halt, halted(5).halt);
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_roll_of_the_same_name_never_gets_the_record() {
    let begins = RollRecord { revision: 1, ..RollRecord::default() };
    for record in [None, Some(&begins)] {
        let later = || vec![object("n1", "c", false, None), object("n2", "d", false, record)];
        assert_eq!(written(halted_objects().into(), later()).await.unwrap(), None);
        let error = written(later(), later()).await.unwrap_err();
        assert!(matches!(error.above(), Some(RollError::Unknown(_))), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_roll_that_the_watch_does_not_show_is_over_if_it_is_not_stored() {
    let written_first = written(Vec::new(), halted_objects().into()).await.unwrap();
    assert_eq!(written_first.unwrap().0, "n2", "the watch is older than the roll");
    let error = written(Vec::new(), Vec::new()).await.unwrap_err();
    assert!(matches!(error.above(), Some(RollError::Unknown(_))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_watch_is_behind_a_heartbeat_is_written_once() {
    let (cluster, mut received) = behind(halted_objects().into(), halted_objects().into());
    let (me, mut keeper) = (me(), HistoryKeeper::new());
    let roll = Roll::find("r", &halted_objects().map(Arc::new)).unwrap().unwrap();
    let wait = wait_until_resumed(&cluster, roll, &me, halted(5), &mut keeper);
    tokio::time::timeout(10 * CHECK_INTERVAL, wait).await.unwrap_err();
    let written = std::iter::from_fn(|| received.try_recv().ok()).filter(|(method, ..)| method == "PATCH");
    assert_eq!(written.count(), 1);
}
