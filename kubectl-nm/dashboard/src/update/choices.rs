//! What is chosen and remembered: the theme, and the columns of the lists.

use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::config::appearance::ThemeName;
use crate::config::remembered_choice::Choice;
use crate::message::Effect;
use crate::model::Model;
use crate::model::dialogs::Dialog;
use crate::model::dialogs::column_dialog::ColumnDialog;
use crate::update::navigation::Motion;

/// Opens the dialog that chooses the columns of the list that is shown.
pub(super) fn open_columns(model: &mut Model) {
    match model.list_name() {
        Some(list) => {
            let dialog = ColumnDialog::new(list, &model.options.config.columns);
            model.dialog = Some(Dialog::Columns(dialog));
        }
        None => model.notify(String::from("the columns of the tree cannot be chosen")),
    }
}

/// Handles a key in the dialog. Columns change at once, and are remembered when it is confirmed.
pub(super) fn press(model: &mut Model, mut dialog: ColumnDialog, key: KeyEvent) -> Option<Effect> {
    let is_letter = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Enter => {
            let (list, chosen) = (dialog.list, dialog.chosen());
            model.options.config.columns.choose(list, chosen.clone());
            return Some(Effect::Remember(Choice::Columns(list, chosen)));
        }
        KeyCode::Char(' ') if is_letter => dialog.toggle(),
        KeyCode::Char('J') if is_letter => dialog.shift(1),
        KeyCode::Char('K') if is_letter => dialog.shift(-1),
        KeyCode::Right => dialog.shift(1),
        KeyCode::Left => dialog.shift(-1),
        KeyCode::Char('r') if is_letter => dialog.reset(),
        _ => {
            if let Some(motion) = Motion::of_key(&model.options.config.keys, key) {
                dialog.select(motion.target(dialog.at, dialog.entries.len()));
            }
        }
    }
    model.dialog = Some(Dialog::Columns(dialog));
    None
}

pub(super) fn next_theme(model: &mut Model) -> Option<Effect> {
    let themes = ThemeName::value_variants();
    let at = themes.iter().position(|theme| *theme == model.options.appearance.theme);
    let next = themes.get(at.map_or(0, |at| (at + 1) % themes.len()))?;
    choose_theme(model, *next)
}

/// Uses a theme from now on, and remembers it.
pub(super) fn choose_theme(model: &mut Model, theme: ThemeName) -> Option<Effect> {
    if let Some(cause) = model.options.without_colours {
        model.show_error(format!("{cause} turns colours off: the theme stays mono"));
        return None;
    }
    model.options.appearance.theme = theme;
    Some(Effect::Remember(Choice::Theme(theme)))
}
