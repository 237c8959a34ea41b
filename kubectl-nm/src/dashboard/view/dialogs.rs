//! The dialogs: each lists what will happen before it does.

use nm_shared::NodeMaintenance;
use ratatui::layout::Rect;

use crate::dashboard::layout::is_small;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::{Dialog, StopDialog, is_confirmed};
use crate::dashboard::model::field::Field;
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::view::canvas::{Canvas, line};
use crate::dashboard::view::dialog_lines::{DialogLine, LinePriority, age_of_nodes, fit_lines, listed};
use crate::dashboard::view::start_dialog::start_lines;
use crate::dashboard::view::theme::Tone;
use crate::maintenance::{State, node, uid};
use crate::terminal::text::counted;

const WIDEST: u16 = 76;

pub(super) fn draw(model: &Model, dialog: &Dialog, canvas: &mut Canvas<'_>, area: Rect) {
    if is_small(model) && !matches!(dialog, Dialog::Help(_)) {
        canvas.write(line(area, 0), area.x, "window too small  [Esc] cancel", Tone::Alarm);
        return;
    }
    let width = area.width.saturating_sub(2).min(WIDEST);
    let area = Rect { x: area.x + (area.width - width) / 2, width, ..area };
    let (caret, more) = (canvas.glyphs.caret, canvas.glyphs.more);
    let typed = |name: &str, field: &Field| {
        let space = usize::from(width).saturating_sub(name.len() + 5);
        format!("{name} {}", field.shown(caret, more, space))
    };
    match dialog {
        Dialog::Help(top) => draw_help(model, *top, canvas, area),
        Dialog::Start(dialog) => {
            let plan = model.start_plan(dialog);
            let title = match plan.nodes.len() {
                0 => String::from("put nodes into maintenance"),
                count => format!("start {}", counted(count, "node")),
            };
            draw_lines(canvas, area, &title, &start_lines(model, dialog, &plan, typed));
        }
        Dialog::Stop(dialog) => {
            let title = format!("stop {}", counted(dialog.targets.len(), "maintenance"));
            draw_lines(canvas, area, &title, &stop_lines(model, dialog, typed));
        }
        Dialog::Pause(target) => {
            let verb = if target.spec.suspend { "resume" } else { "pause" };
            draw_lines(canvas, area, &format!("{verb} 1 maintenance"), &pause_lines(model, target, verb));
        }
    }
}

fn draw_lines(canvas: &mut Canvas<'_>, area: Rect, title: &str, lines: &[DialogLine]) {
    let lines = fit_lines(lines, area.width.saturating_sub(4), usize::from(area.height.saturating_sub(2)));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let inner = canvas.frame(Rect { y: area.y + (area.height - height) / 3, height, ..area }, title);
    for (line, DialogLine { text, tone, .. }) in inner.rows().zip(&lines) {
        canvas.write(line, line.x, text, *tone);
    }
}

/// The state of a maintenance as it is by now.
fn state_of(model: &Model, target: &NodeMaintenance) -> String {
    let row = model.fleet.maintenance(&uid(target)).map(|object| FleetRow::of(object));
    row.map_or_else(|| String::from("already gone"), |row| format!("{} {}%", row.state_word(), row.percent))
}

fn pause_lines(model: &Model, target: &NodeMaintenance, verb: &str) -> Vec<DialogLine> {
    let sentence = |text: &str| DialogLine::new(text, Tone::Plain, LinePriority::Consequence);
    let what = match (target.spec.suspend, State::of(target)) {
        (true, State::Planned) => "The maintenance begins, and its pods are evicted:",
        (true, _) => "The drain continues:",
        (false, State::Requested | State::Queued) => "The maintenance does not begin until it is resumed:",
        (false, _) => "No more pods are evicted until it is resumed. The node stays cordoned:",
    };
    let named = format!("  {}  {}", node(target), state_of(model, target));
    vec![
        sentence(what),
        DialogLine::blank(),
        DialogLine::new(named, Tone::Plain, LinePriority::Listed),
        DialogLine::blank(),
        DialogLine::new(format!("[Enter] {verb}  [Esc] cancel"), Tone::Quiet, LinePriority::Required),
    ]
}

fn stop_lines(model: &Model, dialog: &StopDialog, typed: impl Fn(&str, &Field) -> String) -> Vec<DialogLine> {
    let count = dialog.targets.len();
    let they = if count == 1 { "the node returns" } else { "the nodes return" };
    let sentence = |text: &str| DialogLine::new(text, Tone::Plain, LinePriority::Consequence);
    let mut lines = vec![sentence(&format!("The drain ends, and {they} to service:")), DialogLine::blank()];
    lines.extend(listed(dialog.targets.iter().map(|target| {
        let state = state_of(model, target);
        let back = match model.fleet.node(node(target)).and_then(|metadata| metadata.was_schedulable) {
            Some(true) => ", becomes schedulable",
            Some(false) => ", stays cordoned, as before the maintenance",
            None => "",
        };
        format!("  {}  {state}{back}", node(target))
    })));
    lines.push(sentence("Pods that were evicted are not moved back."));
    lines.extend(age_of_nodes(model));
    lines.push(DialogLine::blank());
    if count > 1 {
        let count = typed(&format!("Type {count} to stop {count} maintenances:"), &dialog.count);
        lines.push(DialogLine::new(count, Tone::Strong, LinePriority::Required));
    }
    let ready = is_confirmed(&dialog.count, count);
    let keys = format!("{}[Esc] cancel", if ready { "[Enter] stop  " } else { "" });
    lines.push(DialogLine::new(keys, Tone::Quiet, LinePriority::Required));
    lines
}

fn draw_help(model: &Model, top: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let readonly = model.options.readonly;
    let is_shown = |(key, _): &&(&str, &str)| !(readonly && WRITING_KEYS.contains(key));
    draw_keys(HELP.iter().filter(is_shown), top, canvas, area);
}

/// Draws keys and what they do, from line `top` on. Without a key, a line is a heading or a sentence.
pub(crate) fn draw_keys<'a>(
    keys: impl Iterator<Item = &'a (&'a str, &'a str)>,
    top: usize,
    canvas: &mut Canvas<'_>,
    area: Rect,
) {
    let lines: Vec<&(&str, &str)> = keys.collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer = Rect { y: area.y + (area.height - height) / 2, height, ..area };
    let inner = canvas.frame(outer, "help  [j k] scroll  [Esc] close");
    let top = top.min(lines.len().saturating_sub(usize::from(inner.height)));
    for (line, (key, what)) in inner.rows().zip(&lines[top..]) {
        if key.is_empty() {
            let is_heading = what.len() < 12;
            canvas.write(line, line.x, what, if is_heading { Tone::Strong } else { Tone::Plain });
        } else {
            canvas.write(line, line.x + 2, key, Tone::Strong);
            canvas.write(line, line.x + 15, what, Tone::Plain);
        }
    }
}

/// A key and what it does. Without a key, a heading or a sentence.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("", "Navigation"),
    ("arrows, j k", "up and down"),
    ("PgUp PgDn", "a page up and down"),
    ("g G", "first and last"),
    ("Enter", "open the selected node"),
    ("Esc", "close the pane or the node, clear the filter"),
    ("", ""),
    ("", "View"),
    ("/", "filter: ns:x state:blocked node:worker-1* text"),
    ("s S", "sort by risk, name, progress, pool or age; reverse"),
    ("f", "show only blocked rows; of all nodes, unavailable ones"),
    ("w", "where the pods of the open node went"),
    ("e", "events about the open node"),
    ("y", "the maintenance as YAML"),
    ("Tab", "all nodes, or those in maintenance; with a pane, its focus"),
    ("c", "copy the suggested command, or the row"),
    ("r", "reconnect and redraw"),
    ("", ""),
    ("", "Actions"),
    ("n", "put nodes into maintenance; there, Ctrl-P makes the plan"),
    ("Space", "mark a node"),
    ("x", "stop the marked maintenances, or the selected one"),
    ("p", "pause the maintenance, or resume it"),
    ("q, Ctrl-C", "quit; maintenances continue"),
    ("Ctrl-Z", "suspend"),
    ("", ""),
    ("", "All words of a filter have to match. ns: and node: take a prefix of a"),
    ("", "name or a pattern with * and ?. state: takes a prefix of a state:"),
    ("", "  requested planned queued draining blocked paused drained failed"),
    ("", "  stopping (nodes)"),
    ("", "  waiting evicting blocked terminating migrating surging staying"),
    ("", "  gone (pods)"),
    ("", "  unscheduled starting notready ready (replacements)"),
    ("", ""),
    ("", "! blocked or failed   ~ in progress   > migrating, surging   . waiting"),
    ("", "? not picked up by nm-reconciler   < stopping   = staying   : paused"),
];

/// The keys that change maintenances, which read-only disables.
const WRITING_KEYS: [&str; 4] = ["n", "Space", "x", "p"];
