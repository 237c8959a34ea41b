//! The keys of a replay. Where a dialog is open or a filter is typed, keys belong to that; all other keys are those of the
//! dashboard.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use jiff::SignedDuration;

use crate::config::action_table::Action;
use crate::model::Model;
use crate::replay::player::Player;

/// How far the arrows seek.
const STEP: SignedDuration = SignedDuration::from_secs(10);

/// How far they seek with Shift.
const LONG_STEP: SignedDuration = SignedDuration::from_mins(1);

/// Handles a key of the replay. Returns whether it is one.
pub(super) fn press(player: &mut Player, key: KeyEvent) -> bool {
    let is_busy = |model: &Model| model.dialog.is_some() || model.typing.is_some();
    let modified = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    if key.kind == KeyEventKind::Release || modified || is_busy(&player.model) {
        return false;
    }
    let step = if key.modifiers.contains(KeyModifiers::SHIFT) { LONG_STEP } else { STEP };
    match key.code {
        KeyCode::Char(' ') if player.has_ended() => {
            player.pace.is_paused = false;
            player.seek_to_start();
        }
        KeyCode::Char(' ') => player.pace.is_paused = !player.pace.is_paused,
        KeyCode::Left => player.seek_by(-step),
        KeyCode::Right => player.seek_by(step),
        KeyCode::Home => player.seek_to_start(),
        KeyCode::End => player.seek_to_end(),
        KeyCode::Char('+' | '=') => player.pace.faster(),
        KeyCode::Char('-') => player.pace.slower(),
        KeyCode::Char(digit @ '0'..='9') => player.seek_to_tenth(digit.to_digit(10).unwrap_or(0)),
        _ => return refuse(&mut player.model, key),
    }
    true
}

/// Refuses a key that changes a cluster or asks one. Returns whether it is one.
fn refuse(model: &mut Model, key: KeyEvent) -> bool {
    let action = model.options.config.keys.action(key);
    let is_refused = action.is_some_and(|action| action.entry().changes || action == Action::Reconnect);
    if is_refused {
        model.show_error(String::from("a replay has no cluster"));
    }
    is_refused
}
