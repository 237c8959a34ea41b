//! The dialogs: opening them, typing in them, and confirming.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nm_core::maintenance::node;
use nm_shared::NodeMaintenance;

use crate::config::action_table::Action;
use crate::layout::is_small;
use crate::message::{ClusterRequest, Effect};
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest, StartPreview};
use crate::model::dialogs::{Dialog, PauseDialog, StartDialog, StopDialog, is_confirmed};
use crate::model::text_field::Field;
use crate::model::{Model, Page};
use crate::update::navigation::Motion;
use crate::update::requests;
use crate::update::{pod_actions, start_dialog};

/// Opens the start dialog, with the idle nodes among the marked or selected ones.
pub(super) fn open_start(model: &mut Model) -> Option<Effect> {
    let mut idle = match model.opened() {
        Some(node) => vec![node.to_owned()],
        None => model.chosen_nodes(),
    };
    idle.retain(|node| model.fleet.maintenance_of(node).is_none());
    let nodes = Field::suggested(idle.join(" "));
    start_dialog::show(model, StartDialog { nodes, ..StartDialog::default() })
}

/// Opens the stop dialog for the open node's maintenance, the marked ones, or the selected one.
pub(super) fn open_stop(model: &mut Model) {
    let Some(targets) = chosen(model, "stop") else { return };
    model.dialog = Some(Dialog::Stop(StopDialog { targets, keep_cordon: false, count: Field::default() }));
}

/// Opens the dialog that pauses the open node's maintenance, the marked ones, or the selected one. If all of them are
/// suspended, it resumes them.
pub(super) fn open_pause(model: &mut Model) -> Option<Effect> {
    let mut targets = chosen(model, "pause")?;
    let pause = targets.iter().any(|target| !target.spec.suspend);
    targets.retain(|target| target.spec.suspend != pause);
    let mut dialog =
        PauseDialog { targets, pause, count: Field::default(), preview: StartPreview::default() };
    let step = dialog.preview.follow(dialog.request(), model.node_count());
    model.dialog = Some(Dialog::Pause(dialog));
    step.map(requests::plan)
}

/// The maintenances that a key acts on, in the order of their nodes. If there is none, that is reported.
fn chosen(model: &mut Model, verb: &str) -> Option<Vec<Arc<NodeMaintenance>>> {
    let fleet = &model.fleet;
    let mut objects: Vec<_> = if model.open.is_some() || model.marked().is_empty() {
        model.maintenance().into_iter().cloned().collect()
    } else if model.page == Page::Nodes {
        model.marked().iter().filter_map(|node| fleet.maintenance_of(node)).cloned().collect()
    } else {
        model.marked().iter().filter_map(|key| fleet.maintenance(key)).cloned().collect()
    };
    if objects.is_empty() {
        model.show_error(format!("no maintenance to {verb} here"));
        return None;
    }
    objects.retain(|object| object.metadata.deletion_timestamp.is_none());
    if objects.is_empty() {
        model.show_error(String::from("the maintenance is already stopping"));
        return None;
    }
    objects.sort_by(|a, b| node(a).cmp(node(b)));
    Some(objects)
}

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    match model.dialog.take() {
        Some(Dialog::Help(top)) => {
            help(model, top, key);
            None
        }
        // What is not visible is not confirmed.
        Some(dialog) if is_small(model) => {
            model.dialog = Some(dialog).filter(|_| key.code != KeyCode::Esc);
            model.dialog.is_none().then_some(Effect::CancelPlan)
        }
        Some(Dialog::Start(dialog)) => start_dialog::press(model, *dialog, key),
        Some(Dialog::Stop(dialog)) => stop(model, dialog, key),
        Some(Dialog::Pause(dialog)) => pause(model, dialog, key),
        Some(Dialog::Pod(dialog)) => pod_actions::press(model, *dialog, key),
        None => None,
    }
}

/// Takes the plan of what a dialog begins, and begins what was confirmed before the plan was there and harms nothing.
pub(super) fn planned(model: &mut Model, request: PlanRequest, plan: DrainPlan) -> Option<Effect> {
    let begins = model.dialog.as_mut()?.preview()?.take(request, plan);
    // What was typed may select other nodes by now, so it is read again as for a new key.
    if begins { press(model, KeyEvent::from(KeyCode::Enter)) } else { None }
}

pub(super) fn paste(model: &mut Model, text: &str) -> Option<Effect> {
    let dialog = model.dialog.as_mut()?;
    dialog.field()?.add(text);
    if let Some(preview) = dialog.preview() {
        preview.hold();
    }
    match model.dialog.take() {
        Some(Dialog::Start(dialog)) => start_dialog::show(model, *dialog),
        other => {
            model.dialog = other;
            None
        }
    }
}

fn help(model: &mut Model, top: usize, key: KeyEvent) {
    let keys = &model.options.config.keys;
    let top = match Motion::of_key(keys, key) {
        Some(motion) => motion.target(top, usize::from(model.size.1)),
        None if matches!(key.code, KeyCode::Esc | KeyCode::Enter) => return,
        None if matches!(keys.action(key), Some(Action::Back | Action::Help | Action::Quit)) => return,
        None => top,
    };
    model.dialog = Some(Dialog::Help(top));
}

fn stop(model: &mut Model, mut dialog: StopDialog, key: KeyEvent) -> Option<Effect> {
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Enter if dialog.is_confirmed() => {
            model.marked_mut().clear();
            let words = match dialog.targets.as_slice() {
                [target] => format!("stopping {} ...", node(target)),
                targets => format!("stopping {} maintenances ...", targets.len()),
            };
            let request = if dialog.keep_cordon {
                ClusterRequest::StopKeepingCordons(dialog.targets)
            } else {
                ClusterRequest::Stop(dialog.targets)
            };
            return Some(requests::send(model, words, request));
        }
        KeyCode::Tab | KeyCode::BackTab => {
            dialog.keep_cordon = dialog.has_cordons() && !dialog.keep_cordon;
        }
        _ => dialog.count.press(key),
    }
    model.dialog = Some(Dialog::Stop(dialog));
    None
}

fn pause(model: &mut Model, mut dialog: PauseDialog, key: KeyEvent) -> Option<Effect> {
    let effect = match key.code {
        KeyCode::Esc => return dialog.preview.is_pending().then_some(Effect::CancelPlan),
        KeyCode::Char('p') if key.modifiers == KeyModifiers::CONTROL => {
            dialog.request().map(|request| requests::plan(dialog.preview.make(request)))
        }
        KeyCode::Enter if is_confirmed(&dialog.count, dialog.targets.len()) => {
            if let Some(request) = dialog.request().filter(|wanted| !dialog.preview.is_made_for(wanted)) {
                let step = dialog.preview.check(request);
                model.dialog = Some(Dialog::Pause(dialog));
                return step.map(requests::plan);
            }
            model.marked_mut().clear();
            let verb = if dialog.pause { "pausing" } else { "resuming" };
            let words = match dialog.targets.as_slice() {
                [target] => format!("{verb} {} ...", node(target)),
                targets => format!("{verb} {} maintenances ...", targets.len()),
            };
            let request = ClusterRequest::Pause { targets: dialog.targets, pause: dialog.pause };
            return Some(requests::send(model, words, request));
        }
        _ => {
            dialog.preview.hold();
            dialog.count.press(key);
            // Its nodes may be known by now.
            let step = dialog.preview.follow(dialog.request(), model.node_count());
            step.map(requests::plan)
        }
    };
    model.dialog = Some(Dialog::Pause(dialog));
    effect
}
