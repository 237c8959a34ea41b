//! The dialogs: opening them, typing in them, and confirming.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent};
use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::dashboard::layout::is_small;
use crate::dashboard::message::Effect;
use crate::dashboard::model::dialog::{Dialog, StartDialog, StopDialog, is_confirmed};
use crate::dashboard::model::field::Field;
use crate::dashboard::model::{Model, Page};
use crate::dashboard::update::motion::Motion;
use crate::dashboard::update::start_dialog;
use crate::maintenance::{node, uid};

/// Opens the start dialog, with the idle nodes among the marked or selected ones.
pub(super) fn open_start(model: &mut Model) -> Option<Effect> {
    if is_refused(model) {
        return None;
    }
    let mut idle = match model.opened() {
        Some(node) => vec![node.to_owned()],
        None => model.chosen_nodes(),
    };
    idle.retain(|node| model.fleet.maintenance_of(node).is_none());
    let nodes = Field::new(idle.join(" "));
    start_dialog::show(model, StartDialog { nodes, ..StartDialog::default() })
}

/// Opens the stop dialog for the open node's maintenance, the marked ones, or the selected one.
pub(super) fn open_stop(model: &mut Model) {
    if is_refused(model) {
        return;
    }
    let fleet = &model.fleet;
    let mut objects: Vec<_> = if model.open.is_some() || model.marked().is_empty() {
        model.maintenance().into_iter().cloned().collect()
    } else if model.page == Page::Nodes {
        model.marked().iter().filter_map(|node| fleet.maintenance_of(node)).cloned().collect()
    } else {
        model.marked().iter().filter_map(|key| fleet.maintenance(key)).cloned().collect()
    };
    if objects.is_empty() {
        return model.show_error(String::from("no maintenance to stop here"));
    }
    objects.retain(|object| object.metadata.deletion_timestamp.is_none());
    if objects.is_empty() {
        return model.show_error(String::from("the maintenance is already stopping"));
    }
    objects.sort_by(|a, b| node(a).cmp(node(b)));
    model.dialog = Some(Dialog::Stop(StopDialog { targets: objects, count: Field::default() }));
}

/// Opens the dialog that pauses the maintenance of the open or selected node, or resumes it.
pub(super) fn open_pause(model: &mut Model) {
    if is_refused(model) {
        return;
    }
    match model.maintenance().cloned() {
        None => model.show_error(String::from("no maintenance to pause here")),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            model.show_error(String::from("the maintenance is already stopping"));
        }
        Some(object) => model.dialog = Some(Dialog::Pause(object)),
    }
}

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    match model.dialog.take() {
        Some(Dialog::Help(top)) => {
            help(model, top, key.code);
            None
        }
        // What is not visible is not confirmed.
        Some(dialog @ (Dialog::Start(_) | Dialog::Stop(_) | Dialog::Pause(_))) if is_small(model) => {
            model.dialog = Some(dialog).filter(|_| key.code != KeyCode::Esc);
            model.dialog.is_none().then_some(Effect::CancelPlan)
        }
        Some(Dialog::Start(dialog)) => start_dialog::press(model, *dialog, key),
        Some(Dialog::Stop(dialog)) => stop(model, dialog, key),
        Some(Dialog::Pause(target)) => pause(model, target, key.code),
        None => None,
    }
}

pub(super) fn paste(model: &mut Model, text: &str) -> Option<Effect> {
    match model.dialog.take() {
        Some(Dialog::Start(mut dialog)) => {
            dialog.field().add(text);
            return start_dialog::show(model, *dialog);
        }
        Some(Dialog::Stop(mut dialog)) => {
            dialog.count.add(text);
            model.dialog = Some(Dialog::Stop(dialog));
        }
        other => model.dialog = other,
    }
    None
}

fn help(model: &mut Model, top: usize, code: KeyCode) {
    let top = match Motion::of_key(code) {
        Some(motion) => motion.target(top, usize::from(model.size.1)),
        None if matches!(code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?' | 'q')) => return,
        None => top,
    };
    model.dialog = Some(Dialog::Help(top));
}

fn stop(model: &mut Model, mut dialog: StopDialog, key: KeyEvent) -> Option<Effect> {
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Enter if is_confirmed(&dialog.count, dialog.targets.len()) => {
            model.marked_mut().clear();
            model.note_request(match dialog.targets.as_slice() {
                [target] => format!("stopping {} ...", node(target)),
                targets => format!("stopping {} maintenances ...", targets.len()),
            });
            let targets = dialog.targets.iter().map(|target| (target.name_any(), uid(target)));
            return Some(Effect::Stop(targets.collect()));
        }
        _ => dialog.count.press(key),
    }
    model.dialog = Some(Dialog::Stop(dialog));
    None
}

fn pause(model: &mut Model, target: Arc<NodeMaintenance>, code: KeyCode) -> Option<Effect> {
    match code {
        KeyCode::Esc => None,
        KeyCode::Enter => {
            let pause = !target.spec.suspend;
            let verb = if pause { "pausing" } else { "resuming" };
            model.note_request(format!("{verb} {} ...", node(&target)));
            Some(Effect::Pause { target, pause })
        }
        _ => {
            model.dialog = Some(Dialog::Pause(target));
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
