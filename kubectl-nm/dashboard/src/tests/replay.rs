//! The line of a replay, in every size and theme, and its keys in the help.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use insta::assert_snapshot;
use jiff::SignedDuration;

use crate::config::appearance::{Appearance, ThemeName};
use crate::message::Message;
use crate::model::replay::ReplayStatus;
use crate::model::{Model, Options, RecordingMode};
use crate::tests::painted::{buffer, lines, painted, text};
use crate::tests::scenes::{node, now, options, press, send};

fn status() -> ReplayStatus {
    let start = now() - SignedDuration::from_secs(4000);
    let end = now() + SignedDuration::from_secs(2000);
    ReplayStatus { at: now(), start, end, speed: 10.0, is_paused: false, is_seeking: false }
}

/// The scene of a node, as a replay shows it.
fn replayed(options: Options, status: ReplayStatus) -> Model {
    let mut model = node(options);
    model.options.recording = RecordingMode::Replay;
    (model.options.readonly, model.replay) = (true, Some(status));
    send(&mut model, Message::Tick(now()));
    model
}

#[test]
fn a_replay_on_screens_of_any_size() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (45, 20)] {
        let options = Options { size: (width, height), ..options() };
        assert_snapshot!(format!("replay_{width}x{height}"), painted(&replayed(options, status())));
    }
}

#[test]
fn a_replay_in_every_theme_and_in_ascii() {
    let sized = |appearance| Options { size: (80, 12), appearance, ..options() };
    for (name, theme) in
        [("light", ThemeName::Light), ("colour_blind", ThemeName::ColourBlind), ("mono", ThemeName::Mono)]
    {
        let appearance = Appearance { theme, ..Appearance::default() };
        assert_snapshot!(format!("replay_{name}"), painted(&replayed(sized(appearance), status())));
    }
    let ascii = replayed(sized(Appearance { ascii: true, ..Appearance::default() }), status());
    assert!(text(&ascii).is_ascii());
    assert_snapshot!("replay_ascii", painted(&ascii));
}

#[test]
fn the_line_says_what_the_replay_is_doing() {
    let mut shown = Vec::new();
    for (what, status) in [
        ("playing", status()),
        ("paused", ReplayStatus { is_paused: true, speed: 0.25, ..status() }),
        ("seeking", ReplayStatus { is_seeking: true, speed: 1000.0, ..status() }),
        ("ended", ReplayStatus { at: status().end, ..status() }),
        ("empty", ReplayStatus { at: now(), start: now(), end: now(), ..status() }),
    ] {
        for width in [200, 120, 80, 45, 20] {
            let model = replayed(Options { size: (width, 10), ..options() }, status.clone());
            let lines = lines(&buffer(&model));
            shown.push(format!("{what} {width}\n{}\n{}", lines[8], lines[9]));
        }
    }
    assert_snapshot!("replay_lines", shown.join("\n"));
}

/// The help of a replay.
pub(super) fn help(options: Options) -> Model {
    let mut model = replayed(options, status());
    press(&mut model, KeyCode::Char('?'));
    model
}

#[test]
fn the_help_of_a_replay_has_its_keys_and_none_that_needs_a_cluster() {
    let mut model = help(Options { size: (80, 40), ..options() });
    let help = text(&model);
    assert!(
        help.contains("jump to 0%") && !help.contains("reconnect") && !help.contains("mark a node"),
        "{help}"
    );
    let line = |what: &str| help.lines().find(|line| line.contains(what)).unwrap_or_default();
    for (what, key, taken) in [("the first row", " g ", "Home"), ("the last row", " G ", "End")] {
        assert!(line(what).contains(key) && !line(what).contains(taken), "{help}");
    }
    let key = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
    send(&mut model, Message::Input(Event::Key(key)));
    assert!(!text(&model).contains("jump to 0%"));
}
