//! The page that shows what kubectl prints: its keys, and its lines.

use crossterm::event::{KeyCode, KeyEvent};

use crate::dashboard::layout::OutputLayout;
use crate::dashboard::message::Effect;
use crate::dashboard::model::Model;
use crate::dashboard::model::output::OutputChange;
use crate::dashboard::update::motion::Motion;
use crate::dashboard::update::pod_actions;

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    let height = OutputLayout::whole(model).rows();
    let page = model.output.as_mut()?;
    if let Some(motion) = Motion::of_key(key) {
        page.scroll(motion.target(page.top, height), height);
        return None;
    }
    match key.code {
        KeyCode::Esc | KeyCode::Char('q') => {
            model.output = None;
            return Some(Effect::StopReading);
        }
        KeyCode::Char('W') => page.toggle_wrap(),
        KeyCode::Char('r') => return pod_actions::read_again(model),
        KeyCode::Char('c') => {
            let command = page.command.clone();
            model.notify(format!("copied: {command}"));
            return Some(Effect::Copy(command));
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
