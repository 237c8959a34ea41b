//! The keys of the views.

use clap::ValueEnum;
use crossterm::event::KeyEvent;
use kube::ResourceExt;

use crate::config::action_table::{Action, ActionEntry, View};
use crate::config::appearance::ThemeName;
use crate::layout::is_small;
use crate::message::Effect;
use crate::model::dialogs::Dialog;
use crate::model::lists::filter::{Filter, FilterField};
use crate::model::lists::listing::{Arrangement, Row};
use crate::model::state_words::begins_a_state;
use crate::model::text_field::Field;
use crate::model::{Model, Page, SideContent, SidePane};
use crate::objects::watch_state::WatchKind;
use crate::update::navigation::{Motion, travel};
use crate::update::{dialogs, pod_actions};

/// Handles a key while no dialog is open and no filter is being typed.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    let action = model.options.config.keys.action(key)?;
    perform(model, action)
}

/// Carries out an action, if the dashboard may and the view has it.
pub(super) fn perform(model: &mut Model, action: Action) -> Option<Effect> {
    let entry = action.entry();
    if entry.changes && is_refused(model, entry) {
        return None;
    }
    if !model.options.offers(entry) {
        model.show_error(format!("a replay has no cluster: {} is disabled", entry.name));
        return None;
    }
    if !entry.views.contains(&model.view()) {
        if model.open.is_none() {
            let keys = &model.options.config.keys;
            let (open, key) = (keys.shortest(Action::Open), keys.shortest(action));
            model
                .show_error(format!("{key} is a key of an open node: press {open} to open the selected one"));
        }
        return None;
    }
    if let Some(motion) = Motion::of(action) {
        travel(model, motion);
        return None;
    }
    if concerns_row(action, model.open.is_some()) {
        model.rows_mut().choose();
    }
    if let Some(question) = pod_actions::question_of(action) {
        return pod_actions::open_question(model, question);
    }
    match action {
        Action::Quit => return Some(Effect::Quit),
        Action::Suspend => return Some(Effect::Suspend),
        Action::Open if model.open.is_some() => toggle_side(model, SideContent::Details),
        Action::Open => return enter(model),
        Action::Back => return leave(model),
        Action::Reconnect => {
            model.notify(String::from("reconnecting"));
            model.health.renew(model.now);
            model.nodes.pods.renew();
            return Some(Effect::Reconnect);
        }
        Action::Copy => {
            let text = model.copy_text()?;
            model.notify(format!("copied: {text}"));
            return Some(Effect::Copy(text));
        }
        Action::Filter => {
            let filter = model.arrangement().filter.clone();
            model.typing = Some((Field::new(filter.text()), filter));
        }
        Action::Sort => {
            let sorts = model.rows().sorts();
            model.rearrange(|view| view.sort = view.sort.next(sorts));
        }
        // A tree upside down would have its pods above their workload.
        Action::Reverse if model.view() == View::Tree => {}
        Action::Reverse => model.rearrange(|view| view.reversed = !view.reversed),
        Action::Attention => model.rearrange(|view| view.blocked_only = !view.blocked_only),
        Action::Mark => mark(model),
        Action::Replacements => {
            if let Some(open) = &mut model.open {
                open.tree.toggle();
            }
        }
        Action::Events => toggle_side(model, SideContent::Events),
        Action::Yaml => toggle_side(model, SideContent::Document),
        Action::Details => toggle_side(model, SideContent::Details),
        Action::Theme => next_theme(model),
        Action::Switch => match &mut model.side {
            Some(side) => side.has_focus = !side.has_focus,
            None => return turn_page(model),
        },
        Action::Logs => return pod_actions::open_logs(model, false),
        Action::PreviousLogs => return pod_actions::open_logs(model, true),
        Action::Describe => return pod_actions::open_description(model),
        Action::Start => return dialogs::open_start(model),
        Action::Stop => dialogs::open_stop(model),
        Action::Pause => return dialogs::open_pause(model),
        Action::Help => model.dialog = Some(Dialog::Help(0)),
        // Motions, and questions about a pod, were handled above, and only a page has two sizes.
        Action::Down
        | Action::Up
        | Action::PageDown
        | Action::PageUp
        | Action::Top
        | Action::Bottom
        | Action::Evict
        | Action::Delete
        | Action::Zoom => {}
    }
    None
}

/// Whether an action is about the selected row, which stays selected then.
fn concerns_row(action: Action, is_node_open: bool) -> bool {
    match action {
        Action::Open
        | Action::Details
        | Action::Logs
        | Action::PreviousLogs
        | Action::Describe
        | Action::Evict
        | Action::Delete => true,
        // With an open node, these are about the node.
        Action::Yaml | Action::Stop | Action::Pause => !is_node_open,
        _ => false,
    }
}

/// Whether nothing may be changed now, which is reported.
fn is_refused(model: &mut Model, entry: &ActionEntry) -> bool {
    if model.options.readonly {
        model.show_error(format!("read-only: {} is disabled", entry.name));
    } else if is_small(model) && entry.action != Action::Mark {
        model.show_error(String::from("window too small for that"));
    } else {
        return false;
    }
    true
}

/// Opens the selected node.
fn enter(model: &mut Model) -> Option<Effect> {
    let node = model.selected_node()?.to_owned();
    let subject = model.fleet.maintenance_of(&node).map(|maintenance| maintenance.name_any());
    let is_recording = model.options.is_recording();
    let open = model.open_node(&node);
    open.subject = subject.unwrap_or_else(|| node.clone());
    if is_recording {
        open.tree.watch();
    }
    model.side = None;
    Some(Effect::Open(node))
}

/// Reports a regular expression that the filter leaves out, and a word that cannot be meant.
pub(super) fn check_filter(model: &mut Model) {
    let filter = &model.arrangement().filter;
    let problem = filter.problem().map(|problem| format!("not in the filter: {problem}"));
    // In the tree of workloads, replacements are on other nodes.
    let same: &[FilterField] = match &model.open {
        Some(open) if open.tree.is_shown => &[FilterField::Phase],
        Some(_) => &[FilterField::Node, FilterField::Phase],
        None => &[],
    };
    let doubt = || filter.doubt(begins_a_state, same).map(|doubt| doubt.to_string());
    if let Some(problem) = problem.or_else(doubt) {
        model.show_error(problem);
    }
}

/// Closes what was opened last.
fn leave(model: &mut Model) -> Option<Effect> {
    if model.side.take().is_some() {
        return None;
    }
    let Arrangement { filter, blocked_only, .. } = model.arrangement();
    if !filter.text().is_empty() || *blocked_only {
        model.rearrange(|view| (view.filter, view.blocked_only) = (Filter::default(), false));
    } else if let Some(open) = model.open.as_mut().filter(|open| open.tree.is_shown) {
        open.tree.toggle();
    } else if model.close_node() {
        return Some(Effect::Close);
    } else {
        model.marked_mut().clear();
    }
    None
}

/// Shows all nodes instead of the maintenances, or the other way round.
fn turn_page(model: &mut Model) -> Option<Effect> {
    if model.open.is_some() {
        return None;
    }
    if model.page == Page::Nodes {
        model.page = Page::Fleet;
        return None;
    }
    model.page = Page::Nodes;
    if model.nodes.is_watched {
        return None;
    }
    model.nodes.watch(&model.fleet);
    model.health.restart(WatchKind::Nodes, model.now);
    Some(Effect::WatchWholeNodes)
}

/// Uses the next theme until the dashboard ends.
fn next_theme(model: &mut Model) {
    if let Some(cause) = model.options.without_colours {
        return model.show_error(format!("{cause} turns colours off: the theme stays mono"));
    }
    let (themes, theme) = (ThemeName::value_variants(), &mut model.options.appearance.theme);
    let at = themes.iter().position(|known| known == theme).map_or(0, |at| at + 1);
    *theme = themes[at % themes.len()];
}

fn mark(model: &mut Model) {
    let key = match (&model.open, model.page) {
        (Some(_), _) => None,
        (None, Page::Nodes) => model.nodes.rows.selected().map(|row| row.key().to_owned()),
        (None, Page::Fleet) => model.fleet.rows.selected().map(|row| row.key().to_owned()),
    };
    let Some(key) = key else { return };
    let marked = model.marked_mut();
    if !marked.remove(&key) {
        marked.insert(key);
    }
    let rows = model.rows_mut();
    rows.select(rows.at() + 1);
}

fn toggle_side(model: &mut Model, shows: SideContent) {
    let is_shown = model.side.is_some_and(|side| side.shows == shows);
    model.side = (!is_shown).then_some(SidePane { shows, has_focus: false, top: 0 });
}
