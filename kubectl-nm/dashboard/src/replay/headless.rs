//! A replay without a terminal: what it shows after each of some keys.

use std::io::Cursor;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::config::appearance::Appearance;
use crate::config::config_file::Config;
use crate::headless::text;
use crate::model::{Options, RecordingMode};
use crate::recording::error::RecordingError;
use crate::recording::recording_file::RecordingFile;
use crate::replay::keys;
use crate::replay::pace::Pace;
use crate::replay::player::Player;
use crate::view;

/// Each part of a replay and of the dashboard, at several times.
const KEYS: [KeyCode; 22] = [
    KeyCode::End,
    KeyCode::Enter,
    KeyCode::Char('w'),
    KeyCode::Char('e'),
    KeyCode::Char('5'),
    KeyCode::Char('y'),
    KeyCode::Right,
    KeyCode::Char('n'),
    KeyCode::Left,
    KeyCode::Esc,
    KeyCode::Esc,
    KeyCode::Char('7'),
    KeyCode::Esc,
    KeyCode::Tab,
    KeyCode::Home,
    KeyCode::Char('j'),
    KeyCode::Enter,
    KeyCode::Char('+'),
    KeyCode::End,
    KeyCode::Char('?'),
    KeyCode::Esc,
    KeyCode::Char(' '),
];

/// The screens of a replay, and the error with which it ends.
///
/// # Errors
///
/// If the bytes cannot be read as a recording.
pub fn replay_screens(
    recording: Vec<u8>,
    size: (u16, u16),
) -> Result<(Vec<String>, Option<RecordingError>), RecordingError> {
    let file = RecordingFile::read(Box::new(Cursor::new(recording)), String::from("recording"))?;
    let options = Options {
        nodes: file.header().nodes.clone(),
        all_nodes: file.header().all_nodes,
        context: String::new(),
        kubectl: String::from("kubectl"),
        readonly: true,
        recording: RecordingMode::Replay,
        config: Config::default(),
        notice: None,
        appearance: Appearance::default(),
        without_colours: None,
        size,
        now: Timestamp::UNIX_EPOCH,
    };
    let mut player = Player::new(file, options, Pace::new(1.0));
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    let mut shown = Vec::new();
    for code in KEYS {
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        if !keys::press(&mut player, key) {
            player.input(Event::Key(key));
        }
        player.pass(Duration::from_millis(100));
        player.work(Duration::MAX);
        let Ok(_) = terminal.draw(|frame| view::draw(&player.model, frame));
        shown.push(text(terminal.backend().buffer()));
    }
    player.seek_to_end();
    player.work(Duration::MAX);
    Ok((shown, player.into_failure()))
}
