//! What becomes of the model when something happens, and what is to be done about it.
//!
//! Everything here is pure: what touches the world is an [`Effect`].

mod cluster;
mod dialogs;
mod input;
mod keys;
mod motion;
mod mouse;
mod typing;

use crate::dashboard::effect::Effect;
use crate::dashboard::geometry::Screen;
use crate::dashboard::message::Message;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::{Model, Side};

/// For how many seconds a good word in passing stays; a bad one stays until the next key.
const NOTICE_SECONDS: i64 = 8;

/// Takes in what happened.
pub(crate) fn update(model: &mut Model, message: Message) -> Vec<Effect> {
    let effects = match message {
        Message::Input(event) => input::update(model, event),
        Message::Tick(now) => {
            model.now = now;
            let is_old = |notice: &crate::dashboard::model::Notice| {
                !notice.is_bad && now.duration_since(notice.at).as_secs() >= NOTICE_SECONDS
            };
            model.notice.take_if(|notice| is_old(notice));
            if model.paused.is_none() {
                cluster::tick(model);
            }
            Vec::new()
        }
        Message::Done(outcome) => {
            model.answered();
            match outcome {
                Ok(words) => model.say(words),
                Err(words) => model.complain(words),
            }
            Vec::new()
        }
        Message::Overheard(words) => {
            model.complain(words);
            Vec::new()
        }
        Message::Link { feed, node, link } => {
            cluster::link(model, feed, node.as_deref(), link);
            Vec::new()
        }
        // The picture stands still; what is missed is told anew when it goes on. But of a node that was opened meanwhile
        // there is no picture yet.
        Message::Pods { node, change } if !model.has_pods(&node) => {
            cluster::pods(model, &node, &change);
            Vec::new()
        }
        Message::Events { node, change } if !model.has_events(&node) => {
            cluster::events(model, &node, &change);
            Vec::new()
        }
        _ if model.paused.is_some() => Vec::new(),
        Message::Maintenances(change) => {
            cluster::maintenances(model, &change);
            Vec::new()
        }
        Message::Nodes(change) => {
            model.fleet.see_nodes(&change);
            Vec::new()
        }
        Message::Pods { node, change } => {
            cluster::pods(model, &node, &change);
            Vec::new()
        }
        Message::Events { node, change } => {
            cluster::events(model, &node, &change);
            Vec::new()
        }
    };
    settle(model);
    effects
}

/// Brings what depends on the size of the screen and on the selection up to date.
fn settle(model: &mut Model) {
    if model.side == Some(Side::Document) {
        let maintenance = model.maintenance().cloned();
        model.document.refresh(maintenance.as_deref());
    }
    let screen = Screen::whole(model);
    if let Some(open) = &mut model.open {
        open.pods.rows.pin();
        open.pods.rows.fit(screen.rows());
    } else {
        model.fleet.rows.pin();
        model.fleet.rows.fit(screen.rows());
    }
    let lines = match (model.side, &model.open) {
        (Some(Side::Document), _) => model.document.lines.len(),
        (Some(Side::Events), Some(open)) => open.happenings.latest().len(),
        _ => 0,
    };
    model.side_top = model.side_top.min(lines.saturating_sub(screen.side_rows()));
    if let Some(Dialog::Help(top)) = &mut model.dialog {
        *top = (*top).min(usize::from(u8::MAX));
    }
}
