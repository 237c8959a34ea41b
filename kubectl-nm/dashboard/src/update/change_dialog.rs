//! The dialog that changes the timeout and the pod selector of a drain.

use crossterm::event::{KeyCode, KeyEvent};
use nm_core::maintenance::{State, node};

use crate::message::{ClusterRequest, Effect};
use crate::model::Model;
use crate::model::dialogs::Dialog;
use crate::model::dialogs::change_dialog::ChangeDialog;
use crate::update::requests;

/// Opens the dialog for the maintenance of the open or selected node.
pub(super) fn open(model: &mut Model) {
    let Some(target) = model.maintenance().cloned() else {
        return model.show_error(String::from("no maintenance to change here"));
    };
    match State::of(&target) {
        State::Stopping => model.show_error(String::from("the maintenance is already stopping")),
        State::Drained => model.show_error(String::from("the drain is complete: a change has no effect")),
        _ => model.dialog = Some(Dialog::Change(Box::new(ChangeDialog::new(target)))),
    }
}

pub(super) fn press(model: &mut Model, mut dialog: ChangeDialog, key: KeyEvent) -> Option<Effect> {
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Tab | KeyCode::BackTab | KeyCode::Up | KeyCode::Down => dialog.switch(),
        KeyCode::Enter => {
            if let Some(patch) = dialog.patch() {
                let words = format!("changing {} ...", node(&dialog.target));
                return Some(requests::send(
                    model,
                    words,
                    ClusterRequest::Change { target: dialog.target, patch },
                ));
            }
        }
        _ => dialog.field().press(key),
    }
    model.dialog = Some(Dialog::Change(Box::new(dialog)));
    None
}
