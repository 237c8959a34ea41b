//! Actions on the pod of the selected row: its logs, its description, its eviction, and its deletion.

use crossterm::event::{KeyCode, KeyEvent};
use nm_core::error::Error;

use crate::config::action_table::Action;
use crate::message::{ClusterRequest, Effect};
use crate::model::Model;
use crate::model::dialogs::Dialog;
use crate::model::dialogs::pod_dialog::{
    Lookup, PodAction, PodDialog, PodFacts, PodTarget, in_words, shown_command, with_object,
};
use crate::model::open_node::pod_target::SelectedObject;
use crate::model::panes::output::OutputPage;
use crate::update::requests;

/// How many lines of a log are read at first.
const LOG_LINES: &str = "--tail=1000";

/// Shows the logs of the selected pod, or of a pod of the selected workload.
pub(super) fn open_logs(model: &mut Model, previous: bool) -> Option<Effect> {
    let (namespace, object) = match model.selected_object() {
        Some(SelectedObject::Pod(target)) => (target.namespace, target.name),
        Some(SelectedObject::Workload(namespace, owner)) => (namespace, owner.argument().into_owned()),
        _ => {
            select_a_pod(model);
            return None;
        }
    };
    let which: &[&str] = if previous {
        // A container that did not restart has no previous log.
        &["--previous", "--ignore-errors"]
    } else {
        &["--follow", "--max-log-requests=50"]
    };
    let flags = [&["--all-containers", "--prefix", LOG_LINES], which].concat();
    let arguments = with_object(&["-n", &namespace, "logs"], &[&object], &flags);
    Some(read(model, arguments, true))
}

/// Describes the object of the selected row.
pub(super) fn open_description(model: &mut Model) -> Option<Effect> {
    let arguments = match model.selected_object()? {
        SelectedObject::Pod(PodTarget { namespace, name, .. }) => {
            with_object(&["-n", &namespace, "describe"], &["pod", &name], &[])
        }
        SelectedObject::Workload(namespace, owner) => {
            with_object(&["-n", &namespace, "describe"], &[&owner.argument()], &[])
        }
        SelectedObject::Node(name) => with_object(&["describe"], &["node", &name], &[]),
        SelectedObject::Maintenance(name) => with_object(&["describe"], &["nm", &name], &[]),
    };
    Some(read(model, arguments, false))
}

/// Reports what to do where the selected row is not a pod.
fn select_a_pod(model: &mut Model) {
    let open = model.hint(Action::Open);
    model.show_error(format!("select a pod for that: {open} opens a node"));
}

fn read(model: &mut Model, arguments: Vec<String>, follows: bool) -> Effect {
    model.runs += 1;
    let command = shown_command(&model.options.kubectl, &arguments);
    model.output = Some(OutputPage::new(model.runs, command, arguments.clone(), follows));
    Effect::Read { id: model.runs, arguments }
}

/// Runs the command of the page again.
pub(super) fn read_again(model: &mut Model) -> Option<Effect> {
    let page = model.output.take()?;
    let follows = page.arguments.iter().any(|word| word == "logs");
    Some(read(model, page.arguments, follows))
}

/// Opens the dialog that asks before something is done to the selected pod.
pub(super) fn open_question(model: &mut Model, action: PodAction) -> Option<Effect> {
    let Some(SelectedObject::Pod(target)) = model.selected_object() else {
        select_a_pod(model);
        return None;
    };
    if action == PodAction::Evict {
        let row = model.open.as_ref().and_then(|open| open.selected_pod());
        let refusal = match row {
            Some(row) => model.why_not_evicted(row),
            None => Some(String::from("it is not on this node")),
        };
        if let Some(why) = refusal {
            model.show_error(format!("{} is not evicted: {why}", target.path()));
            return None;
        }
    }
    model.dialog = Some(Dialog::Pod(Box::new(PodDialog::new(action, target.clone()))));
    Some(Effect::LookUp { action, target })
}

/// Shows what was found out about the pod, if the dialog still asks about it.
pub(super) fn answer(
    model: &mut Model,
    action: PodAction,
    target: &PodTarget,
    result: Result<Box<PodFacts>, Error>,
) {
    if let Some(Dialog::Pod(dialog)) = &mut model.dialog
        && dialog.action == action
        && dialog.target == *target
    {
        dialog.lookup = result.map_or_else(|error| Lookup::Failed(in_words(&error)), Lookup::Known);
    }
}

/// Handles a key in the dialog.
pub(super) fn press(model: &mut Model, mut dialog: PodDialog, key: KeyEvent) -> Option<Effect> {
    match key.code {
        KeyCode::Esc => return None,
        KeyCode::Enter if dialog.is_confirmed() => return confirm(model, &dialog),
        KeyCode::Enter => {}
        _ if dialog.action == PodAction::Delete => dialog.typed.press(key),
        _ => {}
    }
    model.dialog = Some(Dialog::Pod(Box::new(dialog)));
    None
}

fn confirm(model: &mut Model, dialog: &PodDialog) -> Option<Effect> {
    let target = dialog.target.clone();
    match dialog.action {
        PodAction::Evict => {
            let words = format!("evicting {} ...", target.path());
            Some(requests::send(model, words, ClusterRequest::Evict { uid: dialog.uid()?, target }))
        }
        PodAction::Delete => {
            let words = format!("deleting {} ...", target.path());
            Some(requests::send(model, words, ClusterRequest::DeletePod { uid: dialog.uid()?, target }))
        }
    }
}

/// The question that an action asks about the pod, if it asks one.
pub(super) fn question_of(action: Action) -> Option<PodAction> {
    match action {
        Action::Evict => Some(PodAction::Evict),
        Action::Delete => Some(PodAction::Delete),
        _ => None,
    }
}
