//! The start dialog: typing in it, its plan, and starting.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::message::{ClusterRequest, Effect};
use crate::model::Model;
use crate::model::dialogs::start_options::completion;
use crate::model::dialogs::start_plan::StartPlan;
use crate::model::dialogs::start_preview::PlanRequest;
use crate::model::dialogs::{Dialog, StartDialog, StartField};
use crate::update::requests;

/// Shows the dialog as it is now, and follows what is typed with the plan.
pub(super) fn show(model: &mut Model, mut dialog: StartDialog) -> Option<Effect> {
    let plan = model.start_plan(&dialog);
    let step = dialog.preview.follow(plan.request(), model.node_count());
    model.dialog = Some(Dialog::Start(Box::new(dialog)));
    step.map(requests::plan)
}

pub(super) fn press(model: &mut Model, mut dialog: StartDialog, key: KeyEvent) -> Option<Effect> {
    let plan = model.start_plan(&dialog);
    let several = plan.nodes.len() > 1;
    // Whoever goes on typing does not start it yet.
    if !matches!(key.code, KeyCode::Enter | KeyCode::PageDown | KeyCode::PageUp) {
        dialog.preview.hold();
    }
    match key.code {
        KeyCode::Esc => return dialog.preview.is_pending().then_some(Effect::CancelPlan),
        KeyCode::Char('p') if key.modifiers == KeyModifiers::CONTROL => {
            let step = plan.request().map(|request| dialog.preview.make(request));
            model.dialog = Some(Dialog::Start(Box::new(dialog)));
            return step.map(requests::plan);
        }
        KeyCode::Tab => match rest_of_option(&dialog) {
            Some(rest) => dialog.options.add(&rest),
            None => dialog.move_focus(several, 1),
        },
        KeyCode::PageDown => dialog.page += 1,
        KeyCode::PageUp => dialog.page -= 1,
        KeyCode::Down => dialog.move_focus(several, 1),
        KeyCode::BackTab | KeyCode::Up => dialog.move_focus(several, -1),
        KeyCode::Enter if plan.is_confirmed(&dialog.count) => {
            let Some(request) = unseen(&dialog, &plan) else { return Some(begin(model, &dialog, &plan)) };
            // What it harms is on the first page.
            dialog.page = 0;
            let step = dialog.preview.check(request);
            model.dialog = Some(Dialog::Start(Box::new(dialog)));
            return step.map(requests::plan);
        }
        // Move to the field that is still missing, or wrong.
        KeyCode::Enter if plan.problems.is_empty() && several => dialog.focus = StartField::Count,
        KeyCode::Enter => dialog.focus = plan.wrong.unwrap_or_default(),
        _ => {
            dialog.page = 0;
            dialog.field().press(key);
        }
    }
    show(model, dialog)
}

/// The plan that is still missing on the screen; none if no drain begins.
fn unseen(dialog: &StartDialog, plan: &StartPlan) -> Option<PlanRequest> {
    plan.request().filter(|wanted| !plan.is_suspended && !dialog.preview.is_made_for(wanted))
}

fn begin(model: &mut Model, dialog: &StartDialog, plan: &StartPlan) -> Effect {
    model.marked_mut().clear();
    let verb = if plan.is_suspended { "planning" } else { "starting" };
    let words = match plan.nodes.as_slice() {
        [node] => format!("{verb} {node} ..."),
        nodes => format!("{verb} {} nodes ...", nodes.len()),
    };
    requests::send(model, words, ClusterRequest::Start(plan.objects(dialog.reason.text())))
}

/// What completes the option before the cursor.
fn rest_of_option(dialog: &StartDialog) -> Option<String> {
    let is_typed = dialog.focus == StartField::Options && dialog.options.is_at_end();
    completion(dialog.options.text()).filter(|_| is_typed)
}
