//! The keys of the views.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kube::ResourceExt;

use crate::dashboard::message::{Effect, WatchKind};
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::field::Field;
use crate::dashboard::model::filter::Filter;
use crate::dashboard::model::listing::{Arrangement, Row};
use crate::dashboard::model::{Model, OpenNode, Page, SideContent, SidePane};
use crate::dashboard::update::dialogs;
use crate::dashboard::update::motion::{Motion, travel};

/// Handles a key while no dialog is open and no filter is being typed.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    if let Some(motion) = Motion::of_key(key.code) {
        travel(model, motion);
        return None;
    }
    match key.code {
        KeyCode::Char('q') => return Some(Effect::Quit),
        KeyCode::Enter => return enter(model),
        KeyCode::Esc => return leave(model),
        KeyCode::Char('r') => {
            model.notify(String::from("reconnecting"));
            model.health.renew(model.now);
            model.nodes.pods.renew();
            return Some(Effect::Reconnect);
        }
        KeyCode::Char('c') => {
            let text = model.copy_text()?;
            model.notify(format!("copied: {text}"));
            return Some(Effect::Copy(text));
        }
        KeyCode::Char('/') => {
            let filter = model.arrangement().filter.clone();
            model.typing = Some((Field::new(filter.text()), filter));
        }
        KeyCode::Char('s') => {
            let sorts = model.rows().sorts();
            model.rearrange(|view| view.sort = view.sort.next(sorts));
        }
        // A tree upside down would have its pods above their workload.
        KeyCode::Char('S') if model.open.as_ref().is_some_and(|open| open.tree.is_shown) => {}
        KeyCode::Char('S') => model.rearrange(|view| view.reversed = !view.reversed),
        KeyCode::Char('f') => model.rearrange(|view| view.blocked_only = !view.blocked_only),
        KeyCode::Char(' ') => mark(model),
        KeyCode::Char('e') if model.open.is_none() => {
            model.notify(String::from("press Enter to open a node and see its events"));
        }
        KeyCode::Char('w') => match &mut model.open {
            Some(open) => open.tree.toggle(),
            None => model.notify(String::from("press Enter to open a node and see where its pods went")),
        },
        KeyCode::Char('e') => toggle_side(model, SideContent::Events),
        KeyCode::Char('y') => toggle_side(model, SideContent::Document),
        KeyCode::Tab | KeyCode::BackTab => match &mut model.side {
            Some(side) => side.has_focus = !side.has_focus,
            None => return turn_page(model),
        },
        KeyCode::Char('n') => return dialogs::open_start(model),
        KeyCode::Char('x') => dialogs::open_stop(model),
        KeyCode::Char('p') => dialogs::open_pause(model),
        KeyCode::Char('?') => model.dialog = Some(Dialog::Help(0)),
        _ => {}
    }
    None
}

fn enter(model: &mut Model) -> Option<Effect> {
    let node = model.selected_node()?.to_owned();
    let mut open = OpenNode::new(&node);
    if let Some(maintenance) = model.fleet.maintenance_of(&node) {
        open.subject = maintenance.name_any();
    }
    model.open = Some(open);
    model.side = None;
    Some(Effect::Open(node))
}

/// Closes what was opened last.
fn leave(model: &mut Model) -> Option<Effect> {
    if model.side.take().is_some() {
        return None;
    }
    let Arrangement { filter, blocked_only, .. } = model.arrangement();
    if !filter.is_empty() || *blocked_only {
        model.rearrange(|view| (view.filter, view.blocked_only) = (Filter::default(), false));
    } else if let Some(open) = model.open.as_mut().filter(|open| open.tree.is_shown) {
        open.tree.toggle();
    } else if model.open.take().is_some() {
        model.health.close();
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
