//! The command line: typing in it, completion, and its commands.

use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent};

use crate::config::action_table::Action;
use crate::config::appearance::ThemeName;
use crate::message::Effect;
use crate::model::Model;
use crate::model::command_line::TypedCommand;
use crate::model::lists::filter::Filter;
use crate::model::lists::listing::Sort;
use crate::model::text_field::Field;
use crate::update::keys;

pub(super) fn press(model: &mut Model, mut field: Field, key: KeyEvent) -> Option<Effect> {
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Enter => return run(model, field.text()),
        // As in vi, nothing is left to delete.
        KeyCode::Backspace if field.text().is_empty() => return None,
        KeyCode::Tab => {
            if let Some(rest) = model.completion(field.text()).filter(|_| field.is_at_end()) {
                field.add(&rest);
            }
        }
        _ => field.press(key),
    }
    model.command = Some(field);
    None
}

fn run(model: &mut Model, line: &str) -> Option<Effect> {
    if line.trim().is_empty() {
        return None;
    }
    let TypedCommand { action, argument } = match TypedCommand::parse(line) {
        Ok(command) => command,
        Err(error) => {
            model.show_error(error.to_string());
            return None;
        }
    };
    match action {
        _ if argument.is_empty() => return keys::perform(model, action),
        Action::Filter => {
            model.rearrange(|view| view.filter = Filter::new(argument));
            keys::check_filter(model);
        }
        Action::Sort => {
            let sort = Sort::named(&argument).filter(|sort| model.rows().sorts().contains(sort));
            match sort {
                Some(sort) => model.rearrange(|view| view.sort = sort),
                None => model.show_error(format!("these rows have no order \"{argument}\"")),
            }
        }
        Action::Theme => match ThemeName::from_str(&argument, true) {
            Ok(theme) => keys::choose_theme(model, theme),
            Err(_) => model.show_error(format!("there is no theme \"{argument}\"")),
        },
        Action::Open => match model.node_named(&argument) {
            Ok(node) => return keys::open(model, &node),
            Err(error) => model.show_error(error.to_string()),
        },
        _ => {}
    }
    None
}
