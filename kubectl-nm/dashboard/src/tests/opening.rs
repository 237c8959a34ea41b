//! Opening a node after another one.

use crossterm::event::KeyCode;
use nm_core::client::watch_stream::WatchChange;

use crate::message::{Effect, Message};
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options, RecordingMode};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::scenes::{node, options, pods, press, send, set_watch, type_in};

/// Closes the node that is open, and opens another one.
fn open(model: &mut Model, node: &str) -> Vec<Effect> {
    press(model, KeyCode::Esc);
    // The filter by which the node before was found.
    press(model, KeyCode::Esc);
    type_in(model, &format!("/node:{node}"));
    press(model, KeyCode::Enter);
    press(model, KeyCode::Enter)
}

fn pods_shown(model: &Model) -> usize {
    model.open.as_ref().map_or(0, |open| open.pods.rows.total())
}

#[test]
fn nothing_of_the_node_before_is_left() {
    let mut model = node(options());
    set_watch(&mut model, WatchKind::Events, WatchState::Forbidden("no".into()));
    assert_eq!(open(&mut model, "worker-12"), [Effect::Open("worker-12".into())]);
    assert_eq!(pods_shown(&model), 0);
    for kind in [WatchKind::Pods, WatchKind::Events] {
        assert_eq!(*model.health.of(kind), WatchState::Connecting, "{kind:?} of the node before");
        assert_eq!(model.health.stale_since(kind), None, "{kind:?} of the node before");
    }
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods()) });
    assert_eq!(pods_shown(&model), 0, "they are on the node before");
}

#[test]
fn a_replay_keeps_the_node_before() {
    let mut model = node(Options { recording: RecordingMode::Replay, ..options() });
    let before = pods_shown(&model);
    open(&mut model, "worker-12");
    open(&mut model, "worker-07");
    assert_eq!((model.opened(), pods_shown(&model)), (Some("worker-07"), before));
}
