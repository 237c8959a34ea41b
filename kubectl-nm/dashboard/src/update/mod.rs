//! `update`: what a message does to the model, and the effects it has.
//!
//! Everything here is pure: what acts on the world is an [`Effect`].

pub(crate) mod causes;
mod cluster;
mod dialogs;
mod follow;
mod input;
mod keys;
pub(super) mod navigation;
mod open_node;
mod output;
mod pod_actions;
mod replacements;
mod requests;
mod start_dialog;

use crate::layout::{OutputLayout, ScreenLayout};
use crate::message::{Effect, Message};
use crate::model::dialogs::Dialog;
use crate::model::{Model, NOTICE_STAYS, RecordingMode, SideContent};

pub(crate) fn update(model: &mut Model, message: Message) -> Option<Effect> {
    let is_tick = matches!(message, Message::Tick(_));
    // Without an effect of its own, a message may show that more has to be watched.
    let effect = apply(model, message).or_else(|| replacements::rebuild(model, is_tick));
    settle(model);
    let effect = effect.or_else(|| cluster::count_pods(model));
    // The clock ticks once a second, so this is not asked for each of thousands of messages.
    let effect = effect.or_else(|| is_tick.then(|| causes::read(model)).flatten());
    let effect = effect.or_else(|| follow::follow(model, is_tick));
    effect.or_else(|| is_tick.then(|| causes::read_outages(model)).flatten())
}

/// The same for a message of a replay, which may be one of thousands before the next frame: what depends on the screen is left
/// to [`show`].
pub(crate) fn absorb(model: &mut Model, message: Message) {
    let is_tick = matches!(message, Message::Tick(_));
    apply(model, message);
    replacements::rebuild_all(model, is_tick);
}

/// Updates what depends on the screen, before the next frame of a replay.
pub(crate) fn show(model: &mut Model) -> Option<Effect> {
    let effect = replacements::rebuild(model, true);
    settle(model);
    effect
}

fn apply(model: &mut Model, message: Message) -> Option<Effect> {
    match message {
        Message::Input(event) => return input::update(model, event),
        Message::Maintenances(change) => return cluster::maintenances(model, &change),
        Message::Tick(now) => {
            model.now = now;
            model.notice.take_if(|notice| !notice.is_bad && now.duration_since(notice.at) >= NOTICE_STAYS);
            cluster::tick(model);
            navigation::return_to_top(model);
        }
        Message::Answered { id, outcome } => {
            model.pending_requests.remove(&id);
            match outcome {
                Ok(words) => model.notify(words),
                Err(error) => model.show_error(error.to_string()),
            }
        }
        Message::ProgramOutput(words) => model.show_error(words),
        Message::NodeClosed(node) => cluster::node_closed(model, &node),
        Message::RecordingFailed(why) => {
            model.options.recording = RecordingMode::Off;
            model.show_error(format!("{why}; the dashboard continues without recording"));
        }
        Message::Leader(gap) => {
            model.fleet.is_leaderless = gap.is_some();
            model.leader_gap = gap;
            causes::word(model);
        }
        Message::Watch { kind, node, state } => cluster::watch_state(model, kind, node.as_deref(), state),
        Message::Nodes(change) => cluster::nodes(model, &change),
        Message::Planned { request, plan } => return dialogs::planned(model, request, plan),
        Message::PodFacts { action, target, result } => {
            pod_actions::answer(model, action, &target, result);
        }
        Message::CauseFacts { node, facts } => causes::apply(model, &node, facts),
        Message::Outages(seen) => causes::apply_outages(model, seen),
        Message::Output { id, change } => output::apply(model, id, change),
        Message::PodCounts { counts, error } => model.nodes.pods.end(counts, error, model.now),
        Message::Pods { node, change } => cluster::pods(model, &node, &change),
        Message::Replacements { node, scope, change } => replacements::apply(model, &node, &scope, change),
        Message::Events { node, change } => cluster::events(model, &node, &change),
    }
    None
}

/// Updates what depends on the size of the screen and on the selection.
fn settle(model: &mut Model) {
    causes::word_shown(model);
    if model.side.is_some_and(|side| side.shows == SideContent::Document) {
        let maintenance = model.maintenance().cloned();
        model.document.refresh(maintenance.as_deref());
    }
    let page = OutputLayout::whole(model);
    if let Some(output) = &mut model.output {
        output.fit((page.columns(), page.rows()));
    }
    follow::prepare_panel(model);
    let screen = ScreenLayout::whole(model);
    model.rows_mut().fit(screen.rows());
    let lines = model.pane_lines(screen.side_columns()).len();
    if let Some(side) = &mut model.side {
        side.top = side.top.min(lines.saturating_sub(screen.side_rows()));
    }
    if let Some(Dialog::Help(top)) = &mut model.dialog {
        *top = (*top).min(usize::from(u8::MAX));
    }
}
