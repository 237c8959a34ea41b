//! The dialogs: opening them, typing in them, and confirming.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};
use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::dashboard::layout::is_small;
use crate::dashboard::message::Effect;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::{Dialog, StartDialog, StartField};
use crate::dashboard::model::field::Field;
use crate::dashboard::update::motion::Motion;
use crate::maintenance::{node, uid};

/// Opens the start dialog, with the open or selected node if it is idle.
pub(super) fn open_start(model: &mut Model) {
    if is_refused(model) {
        return;
    }
    let idle = match &model.open {
        Some(open) => Some(&open.name).filter(|name| model.fleet.maintenance_of(name).is_none()),
        None => model.fleet.rows.selected().filter(|row| row.state.is_none()).map(|row| &row.node),
    };
    let nodes = Field::new(idle.cloned().unwrap_or_default());
    model.dialog = Some(Dialog::Start(StartDialog { nodes, ..StartDialog::default() }));
}

/// Opens the stop dialog for the maintenance of the open or selected node.
pub(super) fn open_stop(model: &mut Model) {
    if is_refused(model) {
        return;
    }
    match model.maintenance().cloned() {
        None => model.show_error(String::from("no maintenance to stop here")),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            model.show_error(String::from("the maintenance is already stopping"));
        }
        Some(object) => model.dialog = Some(Dialog::Stop(object)),
    }
}

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    match model.dialog.take() {
        Some(Dialog::Help(top)) => {
            help(model, top, key.code);
            None
        }
        // What is not visible is not confirmed.
        Some(dialog @ (Dialog::Start(_) | Dialog::Stop(_))) if is_small(model) => {
            model.dialog = Some(dialog).filter(|_| key.code != KeyCode::Esc);
            None
        }
        Some(Dialog::Start(dialog)) => start(model, dialog, key),
        Some(Dialog::Stop(target)) => stop(model, target, key.code),
        None => None,
    }
}

pub(super) fn paste(model: &mut Model, text: &str) {
    match &mut model.dialog {
        Some(Dialog::Start(dialog)) => dialog.field().add(text),
        Some(Dialog::Stop(_) | Dialog::Help(_)) | None => {}
    }
}

fn help(model: &mut Model, top: usize, code: KeyCode) {
    let top = match Motion::of_key(code) {
        Some(motion) => motion.target(top, usize::from(model.size.1)),
        None if matches!(code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?' | 'q')) => return,
        None => top,
    };
    model.dialog = Some(Dialog::Help(top));
}

fn start(model: &mut Model, mut dialog: StartDialog, key: KeyEvent) -> Option<Effect> {
    let plan = model.start_plan(&dialog);
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Tab | KeyCode::Down => dialog.next(plan.nodes.len() > 1),
        KeyCode::BackTab | KeyCode::Up => dialog.back(plan.nodes.len() > 1),
        KeyCode::Enter if plan.is_confirmed(&dialog.count) => {
            let objects = plan.objects(dialog.reason.text());
            model.note_request(match plan.nodes.as_slice() {
                [node] => format!("starting {node} ..."),
                nodes => format!("starting {} nodes ...", nodes.len()),
            });
            return Some(Effect::Start(objects));
        }
        // Move to the field that is still missing.
        KeyCode::Enter if plan.problems.is_empty() && plan.nodes.len() > 1 => {
            dialog.focus = StartField::Count;
        }
        KeyCode::Enter => dialog.focus = StartField::Nodes,
        _ => dialog.field().press(key),
    }
    model.dialog = Some(Dialog::Start(dialog));
    None
}

fn stop(model: &mut Model, target: Arc<NodeMaintenance>, code: KeyCode) -> Option<Effect> {
    match code {
        KeyCode::Esc => None,
        KeyCode::Enter => {
            model.note_request(format!("stopping {} ...", node(&target)));
            Some(Effect::Stop { name: target.name_any(), uid: uid(&target) })
        }
        _ => {
            model.dialog = Some(Dialog::Stop(target));
            None
        }
    }
}

/// Whether starting and stopping is not possible, which is reported.
fn is_refused(model: &mut Model) -> bool {
    if model.options.readonly {
        model.show_error(String::from("read-only: starting and stopping is disabled"));
    } else if is_small(model) {
        model.show_error(String::from("window too small for that"));
    }
    model.options.readonly || is_small(model)
}
