//! Dialogs: what will happen is listed before it does.

use ratatui::layout::Rect;

use super::help::HELP;
use super::pen::{Pen, line};
use super::theme::Tone;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::{Dialog, Field, StartDialog, StartField, StopDialog, is_confirmed};
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::model::start_plan::StartPlan;

/// The widest that a dialog gets.
const WIDEST: u16 = 76;

/// How many lines of a list of nodes are shown at most.
const LISTED: usize = 10;

/// A dialog before everything else.
pub(super) fn draw(model: &Model, dialog: &Dialog, pen: &mut Pen<'_>, area: Rect) {
    match dialog {
        Dialog::Help(top) => help(*top, pen, area),
        Dialog::Start(dialog) => {
            let plan = plan(model, dialog);
            let count = plan.nodes.len();
            let title = match count {
                0 => String::from("put nodes into maintenance"),
                1 => String::from("start 1 node"),
                count => format!("start {count} nodes"),
            };
            boxed(pen, area, &title, &start_lines(dialog, &plan, pen.glyphs.caret));
        }
        Dialog::Stop(dialog) => {
            let count = dialog.targets.len();
            let title = if count == 1 {
                String::from("stop 1 maintenance")
            } else {
                format!("stop {count} maintenances")
            };
            boxed(pen, area, &title, &stop_lines(model, dialog, pen.glyphs.caret));
        }
    }
}

/// A dialog where there is room for one line.
pub(super) fn draw_line(model: &Model, dialog: &Dialog, pen: &mut Pen<'_>, area: Rect) {
    let text = match dialog {
        Dialog::Help(_) => String::from("q quit, Esc back; a larger window shows more"),
        Dialog::Start(dialog) => {
            let count = plan(model, dialog).nodes.len();
            match dialog.focus {
                StartField::Nodes => format!("start ({count}): {}", dialog.nodes.text()),
                StartField::Reason => format!("reason: {}", dialog.reason.text()),
                StartField::Count => format!("type {count} to start: {}", dialog.count.text()),
            }
        }
        Dialog::Stop(dialog) => match dialog.targets.as_slice() {
            [target] => format!("stop {}? [Enter] [Esc]", target.node),
            targets => format!("type {} to stop: {}", targets.len(), dialog.count.text()),
        },
    };
    let x = pen.write(line(area, 0), area.x, &text, Tone::Strong);
    pen.write(line(area, 0), x, pen.glyphs.caret, Tone::Plain);
}

type Lines = Vec<(String, Tone)>;

fn boxed(pen: &mut Pen<'_>, area: Rect, title: &str, lines: &Lines) {
    let width = area.width.saturating_sub(2).min(WIDEST);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 3, width, height };
    let inner = pen.frame(outer, title, Tone::Plain);
    // The last lines say how to go on: they stay when there is no room for all.
    let hidden = lines.len().saturating_sub(usize::from(inner.height));
    let shown = lines.iter().take(2).chain(lines.iter().skip(2 + hidden));
    for (row, (text, tone)) in (0u16..).zip(shown) {
        pen.write(line(inner, row), inner.x, text, *tone);
    }
}

fn plan(model: &Model, dialog: &StartDialog) -> StartPlan {
    StartPlan::of(dialog.nodes.text(), &model.fleet, model.nodes_are_known())
}

fn start_lines(dialog: &StartDialog, plan: &StartPlan, caret: &str) -> Lines {
    let field = |name: &str, field: &Field, of: StartField| {
        let is_typed = dialog.focus == of;
        let text = format!("{name} {}{}", field.text(), if is_typed { caret } else { "" });
        (text, if is_typed { Tone::Strong } else { Tone::Plain })
    };
    let count = plan.nodes.len();
    let mut lines = vec![
        field("Nodes: ", &dialog.nodes, StartField::Nodes),
        field("Reason:", &dialog.reason, StartField::Reason),
        (String::new(), Tone::Plain),
    ];
    if plan.nodes.is_empty() && plan.problems.is_empty() {
        lines.push((String::from("Names or patterns such as worker-1*, with spaces between."), Tone::Quiet));
    }
    for problem in plan.problems.iter().take(LISTED) {
        lines.push((problem.clone(), Tone::Bad));
    }
    lines.extend(listed(plan.nodes.iter().map(|node| {
        let role = if plan.control_plane.contains(node) { "  control plane" } else { "" };
        (format!("  {node}{role}"), Tone::Plain)
    })));
    if count > 0 {
        let them = if count == 1 { "It is" } else { "They are" };
        lines.push((format!("{them} cordoned, and the pods there are moved away by eviction."), Tone::Plain));
        if plan.unchecked {
            lines.push((
                String::from("The nodes are not known here: nobody checked that they exist."),
                Tone::Busy,
            ));
        }
    }
    lines.push((String::new(), Tone::Plain));
    if count > 1 {
        lines.push(field(&format!("Type {count} to start {count} nodes:"), &dialog.count, StartField::Count));
    }
    let ready = is_confirmed(&dialog.count, count);
    lines.push((
        format!("{}[Tab] next field  [Esc] leave it", if ready { "[Enter] start  " } else { "" }),
        Tone::Quiet,
    ));
    lines
}

fn stop_lines(model: &Model, dialog: &StopDialog, caret: &str) -> Lines {
    let count = dialog.targets.len();
    let they = if count == 1 { "the node is" } else { "the nodes are" };
    let mut lines =
        vec![(format!("The drain ends, and {they} given back:"), Tone::Plain), (String::new(), Tone::Plain)];
    lines.extend(listed(dialog.targets.iter().map(|target| {
        let row = model.fleet.maintenance(&target.uid).map(|object| FleetRow::of(object));
        let state = row.map_or_else(
            || String::from("gone already"),
            |row| format!("{} {}%", row.state.word(), row.percent),
        );
        let back = match model.fleet.marks(&target.node).and_then(|marks| marks.was_schedulable) {
            Some(true) => ", becomes schedulable",
            Some(false) => ", stays cordoned as before",
            None => "",
        };
        (format!("  {}  {state}{back}", target.node), Tone::Plain)
    })));
    lines.push((String::from("Pods that went stay where they are."), Tone::Plain));
    lines.push((String::new(), Tone::Plain));
    if count > 1 {
        let typed = format!("Type {count} to stop {count} maintenances: {}{caret}", dialog.count.text());
        lines.push((typed, Tone::Strong));
    }
    let ready = is_confirmed(&dialog.count, count);
    lines.push((format!("{}[Esc] leave it", if ready { "[Enter] stop  " } else { "" }), Tone::Quiet));
    lines
}

/// The first of the lines, and how many more there are.
fn listed(lines: impl ExactSizeIterator<Item = (String, Tone)>) -> Lines {
    let more = lines.len().saturating_sub(LISTED);
    let mut shown: Lines = lines.take(LISTED).collect();
    if more > 0 {
        shown.push((format!("  and {more} more"), Tone::Plain));
    }
    shown
}

fn help(top: usize, pen: &mut Pen<'_>, area: Rect) {
    let width = area.width.saturating_sub(2).min(WIDEST);
    let height = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let inner = pen.frame(outer, "help: j k scroll, Esc closes", Tone::Plain);
    let top = top.min(HELP.len().saturating_sub(usize::from(inner.height)));
    for (row, (key, what)) in (0u16..).zip(&HELP[top..]) {
        let line = line(inner, row);
        match (*key, *what) {
            ("", what) => {
                pen.write(line, line.x, what, if what.len() < 12 { Tone::Strong } else { Tone::Plain })
            }
            (key, what) => {
                pen.write(line, line.x + 2, key, Tone::Strong);
                pen.write(line, line.x + 15, what, Tone::Plain)
            }
        };
    }
}
