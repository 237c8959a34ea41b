use std::fmt::Write;
use std::io::Cursor;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use jiff::{SignedDuration, Timestamp};

use super::Player;
use crate::message::Message;
use crate::model::Options;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::recording::format::{Header, RECORDING_VERSION, RecordedLine, RecordedMessage};
use crate::recording::recording_file::RecordingFile;
use crate::replay::keys;
use crate::replay::pace::Pace;
use crate::tests::painted::text;
use crate::tests::scenes::{maintenances, node_messages, now, options};

/// As long as it takes.
const FOREVER: Duration = Duration::MAX;

/// A recording of these messages, each some seconds after the one before.
pub(crate) fn recording(messages: &[(i64, Message)]) -> String {
    let header = Header {
        recording: RECORDING_VERSION,
        program: String::from("0.1.0"),
        started: now(),
        context: String::from("prod-eu"),
        nodes: Vec::new(),
        all_nodes: false,
    };
    let mut text = serde_json::to_string(&header).unwrap();
    for (seconds, message) in messages {
        let time = now() + SignedDuration::from_secs(*seconds);
        let message = RecordedMessage::of(message).unwrap();
        write!(text, "\n{}", serde_json::to_string(&RecordedLine { time, message }).unwrap()).unwrap();
    }
    text + "\n"
}

pub(crate) fn player(text: &str, options: Options) -> Player {
    let file =
        RecordingFile::read(Box::new(Cursor::new(text.as_bytes().to_vec())), String::from("r")).unwrap();
    Player::new(file, options, Pace::new(1.0))
}

fn live() -> Message {
    Message::Watch { kind: WatchKind::Maintenances, node: None, state: WatchState::Live }
}

/// The scene of a node, five seconds a message, and then progress.
fn scene() -> Vec<(i64, Message)> {
    let mut messages: Vec<(i64, Message)> = (0..).step_by(5).zip(node_messages()).collect();
    for (at, gone) in (60..).step_by(5).zip(15..24) {
        let mut object = maintenances().remove(0);
        object.status.as_mut().unwrap().pod_counts.gone = gone;
        object.metadata.resource_version = Some(gone.to_string());
        let change = nm_core::client::watch_stream::WatchChange::Applied(std::sync::Arc::new(object));
        messages.push((at, Message::Maintenances(change)));
    }
    messages
}

fn press(player: &mut Player, code: KeyCode) {
    let key = KeyEvent::new(code, KeyModifiers::NONE);
    if !keys::press(player, key) {
        player.input(Event::Key(key));
    }
    player.work(FOREVER);
}

fn at(player: &Player) -> i64 {
    player.model.replay.as_ref().unwrap().position().as_secs()
}

#[test]
fn what_is_shown_does_not_depend_on_how_the_replay_got_there() {
    let text_of = recording(&scene());
    let mut played = player(&text_of, options());
    press(&mut played, KeyCode::Char('1'));
    let mut screens = Vec::new();
    let mut positions = vec![at(&played)];
    screens.push(text(&played.model));
    while !played.has_ended() {
        played.pass(Duration::from_millis(700));
        played.work(FOREVER);
        positions.push(at(&played));
        screens.push(text(&played.model));
    }
    assert!(screens.len() > 50);
    // From a player that never was elsewhere, and from one that goes back and forth.
    let mut wanderer = player(&text_of, options());
    for step in [1, 7, 31, 64, 2, 90, 45, 12] {
        let index = step % screens.len();
        let position = played.start
            + (SignedDuration::from_millis(10_000)
                + SignedDuration::from_millis(700) * i32::try_from(index).unwrap());
        for replay in [&mut player(&text_of, options()), &mut wanderer] {
            replay.seek_to(position.min(replay.end));
            replay.work(FOREVER);
            assert_eq!(text(&replay.model), screens[index], "{position}");
        }
    }
}

#[test]
fn keys_pause_seek_and_change_the_speed() {
    let mut replay = player(&recording(&scene()), options());
    for (code, position) in [
        (KeyCode::Right, 10),
        (KeyCode::Right, 20),
        (KeyCode::Left, 10),
        (KeyCode::End, 100),
        (KeyCode::Left, 90),
        (KeyCode::Char('5'), 50),
        (KeyCode::Home, 0),
        (KeyCode::Left, 0),
    ] {
        press(&mut replay, code);
        assert_eq!(at(&replay), position, "{code:?}");
    }
    replay.pass(Duration::from_secs(3));
    replay.work(FOREVER);
    assert_eq!(at(&replay), 3);
    press(&mut replay, KeyCode::Char('+'));
    replay.pass(Duration::from_secs(3));
    replay.work(FOREVER);
    assert_eq!(at(&replay), 9);
    press(&mut replay, KeyCode::Char(' '));
    replay.pass(Duration::from_secs(3));
    replay.work(FOREVER);
    assert_eq!(at(&replay), 9, "paused");
    press(&mut replay, KeyCode::End);
    press(&mut replay, KeyCode::Char(' '));
    assert_eq!((at(&replay), replay.pace.is_paused), (0, false), "at the end, a replay begins again");
}

#[test]
fn a_replay_looks_at_the_same_things_after_a_seek() {
    let mut replay = player(&recording(&scene()), options());
    press(&mut replay, KeyCode::End);
    press(&mut replay, KeyCode::Char('s'));
    press(&mut replay, KeyCode::Char('j'));
    press(&mut replay, KeyCode::Char('j'));
    let selected = replay.model.selected_node().unwrap().to_owned();
    press(&mut replay, KeyCode::Left);
    assert_eq!(replay.model.selected_node(), Some(selected.as_str()));
    press(&mut replay, KeyCode::Char('k'));
    let selected = replay.model.selected_node().unwrap().to_owned();
    press(&mut replay, KeyCode::Enter);
    press(&mut replay, KeyCode::Char('y'));
    press(&mut replay, KeyCode::Left);
    press(&mut replay, KeyCode::Char('?'));
    assert_eq!(replay.model.opened(), Some(selected.as_str()));
    press(&mut replay, KeyCode::Esc);
    let screen = text(&replay.model);
    assert!(screen.contains("YAML"), "{screen}");
}

#[test]
fn a_node_that_was_not_recorded_shows_the_pods_of_its_status() {
    let mut replay =
        player(&recording(&scene()), Options { nodes: vec![String::from("worker-12")], ..options() });
    press(&mut replay, KeyCode::End);
    let screen = text(&replay.model);
    assert!(screen.contains("no pods of this node") && screen.contains("pg-1"), "{screen}");
    press(&mut replay, KeyCode::Esc);
    press(&mut replay, KeyCode::Char('w'));
    assert!(text(&replay.model).contains("press Enter to open the selected one"));
}

#[test]
fn a_node_that_was_closed_while_it_was_recorded_grows_old() {
    let mut messages = scene();
    messages.push((110, Message::NodeClosed(String::from("worker-07"))));
    messages.push((140, node_messages().remove(0)));
    let mut replay =
        player(&recording(&messages), Options { nodes: vec![String::from("worker-07")], ..options() });
    press(&mut replay, KeyCode::End);
    let screen = text(&replay.model);
    assert!(
        screen.contains("data 30s old") && screen.contains("contains no further data about this node"),
        "{screen}"
    );
    (0..5).for_each(|_| press(&mut replay, KeyCode::Left));
    let screen = text(&replay.model);
    assert!(screen.contains("replay") && !screen.contains("old"), "{screen}");
}

#[test]
fn nothing_in_a_replay_changes_a_cluster() {
    let mut replay = player(&recording(&scene()), options());
    press(&mut replay, KeyCode::End);
    for key in ['n', 'x', 'p', 'r'] {
        press(&mut replay, KeyCode::Char(key));
        assert!(replay.model.dialog.is_none(), "{key}");
        assert!(text(&replay.model).contains("a replay has no cluster"), "{key}");
        press(&mut replay, KeyCode::Char('j'));
    }
    let shown = text(&replay.model);
    let footer = shown.lines().last().unwrap();
    assert!(footer.contains("quit") && !footer.contains("start") && !footer.contains("stop"), "{shown}");
}

#[test]
fn a_line_that_is_not_valid_ends_the_replay_there() {
    let mut lines: Vec<String> = recording(&scene()).lines().map(str::to_owned).collect();
    lines[7] = String::from(r#"{"time":"2026-01-02T03:10:30Z","message":{}}"#);
    let mut replay = player(&lines.join("\n"), options());
    press(&mut replay, KeyCode::End);
    assert!(
        text(&replay.model).contains("line 8 of the recording r is not valid"),
        "{}",
        text(&replay.model)
    );
    assert!(replay.has_ended());
    assert_eq!(at(&replay), 25);
    press(&mut replay, KeyCode::Left);
    assert_eq!(at(&replay), 15);
    press(&mut replay, KeyCode::End);
    assert_eq!(at(&replay), 25);
    assert!(replay.into_failure().is_some());
}

#[test]
fn extreme_times_do_no_harm() {
    let line = |time: Timestamp| format!("{{\"time\":\"{time}\",\"message\":\"idle\"}}\n");
    let text_of = recording(&scene()) + &line(Timestamp::MAX) + &line(Timestamp::MIN);
    let mut replay = player(&text_of, options());
    for code in [KeyCode::End, KeyCode::Left, KeyCode::Char('5'), KeyCode::Right, KeyCode::Home, KeyCode::End]
    {
        press(&mut replay, code);
        assert!(text(&replay.model).contains("1x"));
    }
    replay.pass(Duration::MAX);
    replay.work(FOREVER);
}

#[test]
fn copies_of_the_model_are_few_however_long_the_recording() {
    let many: Vec<(i64, Message)> = (0..40_000).map(|at| (at / 10, live())).collect();
    let mut replay = player(&recording(&many), options());
    press(&mut replay, KeyCode::End);
    assert!((super::MAX_CHECKPOINTS / 2..=super::MAX_CHECKPOINTS).contains(&replay.checkpoints.len()));
    for position in [3000, 17, 2500, 3999] {
        replay.seek_to(now() + SignedDuration::from_secs(position));
        replay.work(FOREVER);
        assert_eq!(at(&replay), position);
    }
}

#[test]
fn a_long_seek_is_done_in_parts_and_says_so() {
    let many: Vec<(i64, Message)> = (0..5_000).map(|at| (at, live())).collect();
    let mut replay = player(&recording(&many), options());
    replay.seek_to_end();
    replay.work(Duration::ZERO);
    assert!(replay.is_seeking() && text(&replay.model).contains("seeking"));
    let mut parts = 1;
    while replay.is_seeking() {
        replay.work(Duration::ZERO);
        parts += 1;
    }
    assert!(parts > 100 && text(&replay.model).contains("ended"), "{parts}");
}
