//! Messages, and the keys beside them.

use std::sync::Arc;

use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::BlockedPod;

use crate::message::{CommandError, Message};
use crate::model::{Model, Options};
use crate::tests::painted::text;
use crate::tests::scenes::{confirm, fleet, node, now, options, send, type_in, worker_07};

/// The last line of the screen.
fn last_line(model: &Model) -> String {
    text(model).lines().last().unwrap_or_default().to_owned()
}

fn fail(model: &mut Model) {
    send(model, Message::Answered { id: 1, outcome: Err(CommandError::refused("worker-05")) });
}

#[test]
fn messages_and_requests_are_shown_above_the_keys() {
    for size in [(80, 24), (200, 60), (80, 10)] {
        let mut model = fleet(Options { size, ..options() });
        type_in(&mut model, "nworker-05");
        confirm(&mut model);
        assert!(text(&model).contains("starting worker-05 ..."), "{}", text(&model));
        assert!(last_line(&model).contains("[q]"), "{}", text(&model));
        fail(&mut model);
        assert!(text(&model).contains("worker-05: "), "{}", text(&model));
        assert!(last_line(&model).contains("[q]"), "{}", text(&model));
    }
}

#[test]
fn where_only_one_line_is_left_a_message_gives_way_to_the_keys_after_a_few_seconds() {
    let mut model = fleet(Options { size: (80, 9), ..options() });
    fail(&mut model);
    assert!(last_line(&model).contains("worker-05: "), "{}", text(&model));
    send(&mut model, Message::Tick(now() + SignedDuration::from_secs(5)));
    assert!(last_line(&model).contains("[q]"), "{}", text(&model));
}

#[test]
fn blocked_pods_that_the_status_does_not_list_are_counted() {
    let mut object = worker_07();
    let status = object.status.as_mut().unwrap();
    let first = status.blocked_pods[0].clone();
    status.blocked_pods =
        (0..50).map(|at| BlockedPod { name: format!("cart-{at}"), ..first.clone() }).collect();
    status.pod_counts.blocked = 300;
    for (make, keys, shown) in [
        (node as fn(Options) -> Model, "", "(the status lists 50 of 300 blocked pods)"),
        (fleet, "v", "and 280 more blocked pods; the status lists 50 of 300"),
    ] {
        let mut model = make(Options { size: (200, 60), ..options() });
        let change = WatchChange::Applied(Arc::new(object.clone()));
        send(&mut model, Message::Maintenances(change));
        type_in(&mut model, keys);
        assert!(text(&model).contains(shown), "{}", text(&model));
    }
}
