//! The lines of the start dialog: what is typed stays in place, and what is known about it scrolls.

use nm_core::terminal::text::{Line, Style};

use crate::config::action_table::Action;
use crate::model::Model;
use crate::model::dialogs::start_options::offered;
use crate::model::dialogs::start_plan::StartPlan;
use crate::model::dialogs::start_preview::StartPreview;
use crate::model::dialogs::{StartDialog, StartField};
use crate::model::text_field::Field;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::view::dialog_lines::{DialogLine, LinePriority, age_of_nodes, page_of};
use crate::view::theme::Tone;

/// The start dialog: what is typed, what is known about it, which scrolls, and what confirms it.
pub(super) struct StartLines {
    pub(super) fields: Vec<DialogLine>,
    pub(super) body: Vec<DialogLine>,
    pub(super) foot: Vec<DialogLine>,
}

/// The lines of the dialog for a space of so many columns and rows. Where it is scarce, only the field that is typed is
/// there.
pub(super) fn start_lines(
    model: &Model,
    dialog: &StartDialog,
    plan: &StartPlan,
    (width, rows): (u16, usize),
    typed: impl Fn(&str, &Field) -> String,
) -> StartLines {
    let field = |name: &str, field: &Field, of: StartField| {
        let is_typed = dialog.focus == of;
        let text = if is_typed { typed(name, field) } else { format!("{name} {}", field.text()) };
        DialogLine::new(text, if is_typed { Tone::Strong } else { Tone::Plain }, LinePriority::Required)
    };
    let count = plan.nodes.len();
    let mut fields = vec![
        (StartField::Nodes, field("Nodes:  ", &dialog.nodes, StartField::Nodes)),
        (StartField::Reason, field("Reason: ", &dialog.reason, StartField::Reason)),
        (StartField::Options, field("Options:", &dialog.options, StartField::Options)),
    ];
    if rows < fields.len() + SCARCE {
        fields.retain(|(of, _)| *of == dialog.focus);
    }
    let mut fields: Vec<DialogLine> = fields.into_iter().map(|(_, line)| line).collect();
    let mut foot = Vec::new();
    if count > 1 {
        foot.push(field(&format!("Type {count} to start {count} nodes:"), &dialog.count, StartField::Count));
    }
    let ready = plan.is_confirmed(&dialog.count);
    let enter =
        if plan.is_suspended { String::from("[Enter] start  ") } else { enter("start", &dialog.preview) };
    let keys = format!("{}[Tab] next field  [Esc] cancel", if ready { enter.as_str() } else { "" });
    foot.push(DialogLine::new(keys, Tone::Quiet, LinePriority::Required));
    let left = rows.saturating_sub(fields.len() + foot.len());
    let body = body(model, dialog, plan, (width, left));
    // Blanks set the parts apart where everything fits.
    if left > 2 && page_of(&body, width, left - 2, 0).1.is_none() {
        fields.push(DialogLine::blank());
        foot.insert(0, DialogLine::blank());
    }
    StartLines { fields, body, foot }
}

/// With fewer rows than this besides the fields, only one of them is there.
const SCARCE: usize = 6;

/// What is wrong with what is typed, and then what happens: to which nodes, what does not fit and what is lost.
fn body(
    model: &Model,
    dialog: &StartDialog,
    plan: &StartPlan,
    (width, rows): (u16, usize),
) -> Vec<DialogLine> {
    let mut lines = Vec::new();
    if plan.is_empty() {
        lines.push(sentence("Names or patterns such as worker-1*, separated by spaces.", Tone::Quiet));
    }
    lines.extend(
        plan.problems.iter().map(|problem| DialogLine::new(problem, Tone::Bad, LinePriority::Problem)),
    );
    lines
        .extend(plan.skipped.iter().map(|notice| DialogLine::new(notice, Tone::Busy, LinePriority::Problem)));
    // All names may need many lines, and what follows matters more.
    let (first, all) = names(plan, width, (rows / 3).max(1));
    lines.extend(first);
    lines.extend(preview(model, &dialog.preview));
    if !plan.nodes.is_empty() {
        lines.push(sentence(&consequence(plan, model), Tone::Plain));
        if plan.unchecked {
            lines.push(sentence(
                "The list of nodes is not available, so it is not verified that these nodes exist.",
                Tone::Busy,
            ));
        }
    }
    lines.extend(age_of_nodes(model));
    if plan.problems.is_empty() {
        let command = plan.command(dialog.reason.text(), dialog.options.text(), &model.options.kubectl);
        lines.extend(command.map(|command| sentence(&command, Tone::Quiet)));
    }
    // What happens matters more than which other flags there are. While one is incomplete, there is no plan.
    if dialog.focus == StartField::Options {
        lines.extend(options(dialog));
    }
    lines.extend(all);
    lines
}

/// The names of the nodes in so many lines at most, and if those are too few, all of them for the end of the dialog.
fn names(plan: &StartPlan, width: u16, most: usize) -> (Vec<DialogLine>, Vec<DialogLine>) {
    let name = |node: &String| {
        let role = if plan.control_plane.contains(node) { " (control plane)" } else { "" };
        let planned = if plan.is_suspended { " (planned)" } else { "" };
        format!("{node}{role}{planned}")
    };
    let lines = in_lines(plan.nodes.iter().map(name), usize::from(width));
    let line = |text: &String| DialogLine::new(format!("  {text}"), Tone::Plain, LinePriority::Listed);
    if lines.len() <= most {
        return (lines.iter().map(|(text, _)| line(text)).collect(), Vec::new());
    }
    let shown: Vec<&String> = lines.iter().take(most.saturating_sub(1)).map(|(text, _)| text).collect();
    let named: usize = lines.iter().take(shown.len()).map(|(_, count)| count).sum();
    let more = sentence(&format!("  and {} more, below", plan.nodes.len() - named), Tone::Plain);
    let first = shown.into_iter().map(line).chain([more]).collect();
    let heading = sentence("All nodes:", Tone::Quiet);
    (first, std::iter::once(heading).chain(lines.iter().map(|(text, _)| line(text))).collect())
}

/// Names next to each other, with how many there are in each line.
fn in_lines(names: impl Iterator<Item = String>, width: usize) -> Vec<(String, usize)> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some((line, count)) if line.len() + name.len() + 4 <= width => {
                line.push_str("  ");
                line.push_str(&name);
                *count += 1;
            }
            _ => lines.push((name, 1)),
        }
    }
    lines
}

fn sentence(text: &str, tone: Tone) -> DialogLine {
    DialogLine::new(text, tone, LinePriority::Consequence)
}

/// The flags of `start` that fit what is typed.
fn options(dialog: &StartDialog) -> impl Iterator<Item = DialogLine> {
    offered(dialog.options.text()).into_iter().map(|option| {
        let text = format!("  {:<34} {}", option.flag, option.help);
        DialogLine::new(text, Tone::Quiet, LinePriority::Listed)
    })
}

fn consequence(plan: &StartPlan, model: &Model) -> String {
    let them = if plan.nodes.len() == 1 { "The node is" } else { "The nodes are" };
    if !plan.is_suspended {
        return format!("{them} cordoned, and the pods are evicted.");
    }
    let begin = model.hint(Action::Pause);
    format!("{them} only planned: the scheduler prefers others, and {begin} starts the maintenance.")
}

pub(super) fn preview(model: &Model, preview: &StartPreview) -> Vec<DialogLine> {
    match preview {
        StartPreview::Nothing => Vec::new(),
        StartPreview::OnRequest => {
            let why_not_yet = match model.health.of(WatchKind::Nodes) {
                WatchState::Forbidden(_) => {
                    ": you have no permission to list nodes, so this cluster may be a large one."
                }
                _ => match model.node_count() {
                    Some(nodes) if StartPreview::takes_long(nodes) => {
                        ", which takes longer in this large cluster."
                    }
                    Some(_) => ".",
                    None => ": the nodes of this cluster are not known yet.",
                },
            };
            vec![sentence(&format!("[Ctrl-P] previews the drain{why_not_yet}"), Tone::Quiet)]
        }
        StartPreview::Pending(_) | StartPreview::Checking(_) => {
            vec![DialogLine::blank(), sentence("Plan: reading the cluster ...", Tone::Busy)]
        }
        StartPreview::Made(_, made) => {
            let made = &made.lines;
            let first = made.first().map(|verdict| (format!("Plan: {verdict}"), tone(verdict)));
            let others = made.iter().skip(1).map(|line| (line.to_string(), tone(line)));
            let lines = first.into_iter().chain(others).map(|(text, tone)| sentence(&text, tone));
            std::iter::once(DialogLine::blank()).chain(lines).collect()
        }
    }
}

/// What Enter does once everything is confirmed: it does this, it does this although something is harmed, or it has been pressed
/// and waits for the plan.
pub(super) fn enter(verb: &str, preview: &StartPreview) -> String {
    if preview.is_checking() {
        return String::from("checking what it would harm ...  ");
    }
    format!("[Enter] {verb}{}  ", if preview.warns() { " anyway" } else { "" })
}

fn tone(line: &Line) -> Tone {
    match line.style() {
        Style::Plain => Tone::Plain,
        Style::Good => Tone::Good,
        Style::Busy => Tone::Busy,
        Style::Bad => Tone::Bad,
        Style::Dim => Tone::Quiet,
    }
}
