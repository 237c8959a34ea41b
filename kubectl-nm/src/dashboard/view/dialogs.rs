//! Dialogs: what will happen is listed before it does.

use ratatui::layout::Rect;

use crate::dashboard::message::Feed;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::{Dialog, StartDialog, StartField, StopDialog, is_confirmed};
use crate::dashboard::model::field::Field;
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::model::start_plan::StartPlan;
use crate::dashboard::view::excerpt::{Entry, Worth, excerpt};
use crate::dashboard::view::header::age_word;
use crate::dashboard::view::help;
use crate::dashboard::view::pen::{Pen, line};
use crate::dashboard::view::theme::{Glyphs, Tone};

/// The widest that a dialog gets.
const WIDEST: u16 = 76;

/// How many lines of a list of nodes are shown at most.
const LISTED: usize = 10;

/// A dialog before everything else.
pub(super) fn draw(model: &Model, dialog: &Dialog, pen: &mut Pen<'_>, area: Rect) {
    match dialog {
        Dialog::Help(top) => draw_help(model, *top, pen, area),
        Dialog::Start(dialog) => {
            let plan = plan(model, dialog);
            let count = plan.nodes.len();
            let title = match count {
                0 => String::from("put nodes into maintenance"),
                1 => String::from("start 1 node"),
                count => format!("start {count} nodes"),
            };
            let lines = start_lines(model, dialog, &plan, &Typed::of(pen, area));
            boxed(pen, area, &title, &lines);
        }
        Dialog::Stop(dialog) => {
            let count = dialog.targets.len();
            let title = if count == 1 {
                String::from("stop 1 maintenance")
            } else {
                format!("stop {count} maintenances")
            };
            let lines = stop_lines(model, dialog, &Typed::of(pen, area));
            boxed(pen, area, &title, &lines);
        }
    }
}

/// A dialog where there is room for one line, which is none for what has to be read first.
pub(super) fn draw_line(dialog: &Dialog, pen: &mut Pen<'_>, area: Rect) {
    let text = match dialog {
        Dialog::Help(_) => "q quit, Esc back; a larger window shows more",
        Dialog::Start(_) | Dialog::Stop(_) => "window too small; Esc leaves",
    };
    pen.write(line(area, 0), area.x, text, Tone::Strong);
}

/// How a line that is being typed is shown.
struct Typed {
    glyphs: &'static Glyphs,
    /// How many columns a line has.
    width: usize,
}

impl Typed {
    fn of(pen: &Pen<'_>, area: Rect) -> Self {
        Self { glyphs: pen.glyphs, width: usize::from(width_in(area).saturating_sub(4)) }
    }

    /// The line with a name before it.
    fn line(&self, name: &str, field: &Field) -> String {
        let width = self.width.saturating_sub(name.len() + 1);
        format!("{name} {}", field.shown(self.glyphs.caret, self.glyphs.more, width))
    }
}

/// How wide a dialog is.
fn width_in(area: Rect) -> u16 {
    area.width.saturating_sub(2).min(WIDEST)
}

fn boxed(pen: &mut Pen<'_>, area: Rect, title: &str, lines: &[Entry]) {
    let width = width_in(area);
    let lines = excerpt(lines, width.saturating_sub(4), usize::from(area.height.saturating_sub(2)));
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 3, width, height };
    let inner = pen.frame(outer, title, Tone::Plain);
    for (row, Entry { text, tone, .. }) in (0u16..).zip(&lines) {
        pen.write(line(inner, row), inner.x, text, *tone);
    }
}

fn plan(model: &Model, dialog: &StartDialog) -> StartPlan {
    StartPlan::of(dialog.nodes.text(), &model.fleet, model.nodes_are_known()).because(dialog.reason.text())
}

fn start_lines(model: &Model, dialog: &StartDialog, plan: &StartPlan, typed: &Typed) -> Vec<Entry> {
    let field = |name: &str, field: &Field, of: StartField| {
        let is_typed = dialog.focus == of;
        let text = if is_typed { typed.line(name, field) } else { format!("{name} {}", field.text()) };
        Entry::new(text, if is_typed { Tone::Strong } else { Tone::Plain }, Worth::Kept)
    };
    let told = |text: &str, tone| Entry::new(text, tone, Worth::Told);
    let count = plan.nodes.len();
    let mut lines = vec![
        field("Nodes: ", &dialog.nodes, StartField::Nodes),
        field("Reason:", &dialog.reason, StartField::Reason),
        Entry::blank(),
    ];
    if plan.is_empty() {
        lines.push(told("Names or patterns such as worker-1*, with spaces between.", Tone::Quiet));
    }
    lines.extend(plan.problems.iter().map(|problem| Entry::new(problem, Tone::Bad, Worth::Problem)));
    lines.extend(plan.left_out.iter().map(|notice| Entry::new(notice, Tone::Busy, Worth::Problem)));
    lines.extend(listed(plan.nodes.iter().map(|node| {
        let role = if plan.control_plane.contains(node) { "  control plane" } else { "" };
        format!("  {node}{role}")
    })));
    if count > 0 {
        let them = if count == 1 { "It is" } else { "They are" };
        let what = format!("{them} cordoned, and the pods there are moved away by eviction.");
        lines.push(told(&what, Tone::Plain));
        if plan.unchecked {
            lines.push(told("The nodes are not known here: nobody checked that they exist.", Tone::Busy));
        }
    }
    lines.extend(age_of_nodes(model));
    lines.push(Entry::blank());
    if count > 1 {
        lines.push(field(&format!("Type {count} to start {count} nodes:"), &dialog.count, StartField::Count));
    }
    let ready = plan.is_confirmed(&dialog.count);
    let keys = format!("{}[Tab] next field  [Esc] leave it", if ready { "[Enter] start  " } else { "" });
    lines.push(Entry::new(keys, Tone::Quiet, Worth::Kept));
    lines
}

fn stop_lines(model: &Model, dialog: &StopDialog, typed: &Typed) -> Vec<Entry> {
    let count = dialog.targets.len();
    let they = if count == 1 { "the node is" } else { "the nodes are" };
    let told = |text: &str| Entry::new(text, Tone::Plain, Worth::Told);
    let mut lines = vec![told(&format!("The drain ends, and {they} given back:")), Entry::blank()];
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
        format!("  {}  {state}{back}", target.node)
    })));
    lines.push(told("Pods that went stay where they are."));
    lines.extend(age_of_nodes(model));
    lines.push(Entry::blank());
    if count > 1 {
        let count = typed.line(&format!("Type {count} to stop {count} maintenances:"), &dialog.count);
        lines.push(Entry::new(count, Tone::Strong, Worth::Kept));
    }
    let ready = is_confirmed(&dialog.count, count);
    let keys = format!("{}[Esc] leave it", if ready { "[Enter] stop  " } else { "" });
    lines.push(Entry::new(keys, Tone::Quiet, Worth::Kept));
    lines
}

/// The first of the lines, and how many more there are.
fn listed(lines: impl ExactSizeIterator<Item = String>) -> Vec<Entry> {
    let more = lines.len().saturating_sub(LISTED);
    let and_more = (more > 0).then(|| format!("  and {more} more"));
    lines.take(LISTED).chain(and_more).map(|text| Entry::new(text, Tone::Plain, Worth::Listed)).collect()
}

/// That what is known of the nodes may be so no more.
fn age_of_nodes(model: &Model) -> Option<Entry> {
    model.fleet.node_names().next()?;
    let (age, _) = age_word(&model.links.of(Feed::Nodes), model.now)?;
    Some(Entry::new(format!("What is known of the nodes is old: {age}"), Tone::Busy, Worth::Problem))
}

fn draw_help(model: &Model, top: usize, pen: &mut Pen<'_>, area: Rect) {
    let lines: Vec<(&str, &str)> = help::lines(model.options.readonly).collect();
    let width = area.width.saturating_sub(2).min(WIDEST);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let outer =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let inner = pen.frame(outer, "help: j k scroll, Esc closes", Tone::Plain);
    let top = top.min(lines.len().saturating_sub(usize::from(inner.height)));
    for (row, (key, what)) in (0u16..).zip(&lines[top..]) {
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
