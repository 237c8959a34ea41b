//! What the watches of the dashboard send.

use futures::stream;
use jiff::Timestamp;
use nm_core::testing::fake_server::{NEVER, cluster};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn metadata_has_the_control_plane_label_and_the_state_before_the_cordon() {
    let of = |value: Value| metadata(&parse(json!({"metadata": value})));
    let cordoned = of(json!({
        "name": "n1",
        "labels": {"node-role.kubernetes.io/control-plane": "", "remediation.medik8s.io/exclude-from-remediation": "true"},
        "annotations": {"kubectl-nm.dev/undo": "{\"madeUnschedulable\":true}"},
    }));
    let expected =
        NodeMetadata { name: "n1".into(), was_schedulable: Some(true), control_plane: true, details: None };
    assert_eq!(cordoned, expected);
    assert_eq!(of(json!({"name": "n2"})), NodeMetadata { name: "n2".into(), ..NodeMetadata::default() });
}

#[test]
fn events_about_other_objects_of_the_same_name_are_dropped() {
    for (kind, kept) in [("Node", true), ("NodeMaintenance", true), ("Pod", false)] {
        let event: Event =
            parse(json!({"metadata": {}, "regarding": {"kind": kind, "name": "n1"}, "eventTime": null}));
        assert_eq!(relevant(event).is_some(), kept, "{kind}");
    }
}

#[tokio::test]
async fn several_watches_are_live_when_all_are_and_lost_when_one_is() {
    let lost = || WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: Error::Declined };
    let forbidden = Error::Unconfirmed;
    let first = stream::iter([Ok(WatchUpdate::Live)]).chain(stream::pending()).boxed();
    let second = stream::iter([Ok(WatchUpdate::Live), Ok(lost()), Ok(WatchUpdate::Live), Err(forbidden)]);
    let (to, mut from) = mpsc::channel(16);
    let forwarder = Forwarder { to, kind: WatchKind::Events, node: Some("n1".into()) };
    let message = |change| Message::Events { node: "n1".into(), change };
    forwarder.run(vec![first, second.boxed()], message).await;
    let mut states = Vec::new();
    while let Some(message) = from.recv().await {
        match message {
            Message::Watch { kind: WatchKind::Events, node: Some(_), state } => states.push(state),
            other => panic!("{other:?}"),
        }
    }
    let [WatchState::Live, WatchState::Lost { .. }, WatchState::Live, WatchState::Forbidden(_)] = &states[..]
    else {
        panic!("{states:?}")
    };
}

#[tokio::test]
async fn opening_another_node_ends_the_watches_on_the_one_before() {
    let (cluster, _) = cluster(|_, _| (NEVER, Value::Null));
    let (to, _from) = mpsc::channel(16);
    let mut watches = Watches::start(&cluster, false, to);
    assert_eq!(watches.open("a", "a", false), None);
    assert_eq!(watches.open("a", "its-maintenance", true), None, "the same node");
    assert_eq!(watches.open("b", "b", false).as_deref(), Some("a"));
    // What belongs in a recording is still watched.
    assert_eq!(watches.follow(BTreeSet::from(["b".to_owned()])), Vec::<String>::new());
    assert_eq!(watches.open("c", "c", false), None);
    assert!(watches.followed.contains_key("b"));
    assert_eq!(watches.close().as_deref(), Some("c"));
}
