//! The page that shows what kubectl prints: its keys, and its lines.

use crossterm::event::{KeyCode, KeyEvent};

use crate::config::action_table::Action;
use crate::layout::OutputLayout;
use crate::message::Effect;
use crate::model::Model;
use crate::model::panes::output::OutputChange;
use crate::update::navigation::Motion;
use crate::update::pod_actions;

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    let height = OutputLayout::whole(model).rows();
    let page = model.output.as_mut()?;
    if let Some(motion) = Motion::of_key(&model.options.config.keys, key) {
        page.scroll(motion.target(page.top, height), height);
        return None;
    }
    match model.options.config.keys.action(key) {
        Some(Action::Zoom) => model.has_whole_page = !model.has_whole_page,
        Some(Action::Reconnect) => return pod_actions::read_again(model),
        Some(Action::Copy) => {
            let command = page.command.clone();
            model.notify(format!("copied: {command}"));
            return Some(Effect::Copy(command));
        }
        action if matches!(action, Some(Action::Back | Action::Quit)) || key.code == KeyCode::Esc => {
            model.output = None;
            return Some(Effect::StopReading);
        }
        _ => {}
    }
    None
}

pub(super) fn apply(model: &mut Model, id: u64, change: OutputChange) {
    if let Some(page) = model.output.as_mut().filter(|page| page.id == id) {
        page.apply(change);
    }
}
