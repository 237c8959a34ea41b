//! Opening nodes by their name, also while another one is open.

use crossterm::event::KeyCode;
use nm_core::client::watch_stream::WatchChange;

use crate::message::{Effect, Message};
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options, RecordingMode};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{empty, fleet, node, options, pods, press, send, set_watch, type_in};

fn open(model: &mut Model, node: &str) -> Vec<Effect> {
    type_in(model, &format!(":open {node}"));
    press(model, KeyCode::Enter)
}

fn pods_shown(model: &Model) -> usize {
    model.open.as_ref().map_or(0, |open| open.pods.rows.total())
}

#[test]
fn opening_the_open_node_again_leaves_it_as_it_is() {
    let mut model = node(options());
    let before = pods_shown(&model);
    assert_eq!(open(&mut model, "worker-07"), []);
    assert_eq!(open(&mut model, "node/worker-07"), [], "as kubectl prints it");
    assert_eq!((model.opened(), pods_shown(&model)), (Some("worker-07"), before));
    assert_eq!(*model.freshness(), WatchState::Live);
}

#[test]
fn opening_another_node_closes_the_one_before() {
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

#[test]
fn a_node_that_does_not_exist_is_not_opened() {
    for mut model in [fleet(options()), node(options())] {
        let before = model.opened().map(str::to_owned);
        for (name, said) in [
            ("worker-99", "node worker-99 does not exist"),
            ("worker-07 worker-12", "worker-07 worker-12: a node name consists of"),
        ] {
            assert_eq!(open(&mut model, name), [], "{name}");
            assert!(text(&model).contains(said), "{}", text(&model));
        }
        assert_eq!(model.opened().map(str::to_owned), before);
    }
    // Without permission to list nodes, they are not known.
    let mut model = empty(options());
    assert_eq!(open(&mut model, "worker-99"), [Effect::Open("worker-99".into())]);
}
