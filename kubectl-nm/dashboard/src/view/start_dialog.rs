//! The lines of the start dialog.

use nm_core::terminal::text::{Line, Style};

use crate::config::action_table::Action;
use crate::model::Model;
use crate::model::dialogs::start_options::offered;
use crate::model::dialogs::start_plan::StartPlan;
use crate::model::dialogs::start_preview::StartPreview;
use crate::model::dialogs::{StartDialog, StartField};
use crate::model::text_field::Field;
use crate::view::dialog_lines::{DialogLine, LinePriority, age_of_nodes, listed};
use crate::view::theme::Tone;

pub(super) fn start_lines(
    model: &Model,
    dialog: &StartDialog,
    plan: &StartPlan,
    typed: impl Fn(&str, &Field) -> String,
) -> Vec<DialogLine> {
    let field = |name: &str, field: &Field, of: StartField| {
        let is_typed = dialog.focus == of;
        let text = if is_typed { typed(name, field) } else { format!("{name} {}", field.text()) };
        DialogLine::new(text, if is_typed { Tone::Strong } else { Tone::Plain }, LinePriority::Required)
    };
    let count = plan.nodes.len();
    let mut lines = vec![
        field("Nodes:  ", &dialog.nodes, StartField::Nodes),
        field("Reason: ", &dialog.reason, StartField::Reason),
        field("Options:", &dialog.options, StartField::Options),
    ];
    if count > 1 {
        lines.push(field("At a time:", &dialog.at_a_time, StartField::AtATime));
    }
    lines.push(DialogLine::blank());
    if plan.is_empty() {
        lines.push(sentence("Names or patterns such as worker-1*, separated by spaces.", Tone::Quiet));
    }
    lines.extend(
        plan.problems.iter().map(|problem| DialogLine::new(problem, Tone::Bad, LinePriority::Problem)),
    );
    lines
        .extend(plan.skipped.iter().map(|notice| DialogLine::new(notice, Tone::Busy, LinePriority::Problem)));
    let begin = model.hint(Action::Pause);
    match dialog.focus {
        StartField::Options => lines.extend(options(dialog)),
        StartField::AtATime => {
            let words = "How many nodes begin now; the others are planned, and";
            lines.push(sentence(&format!("{words} {begin} begins each. Blank begins all."), Tone::Quiet));
        }
        _ => lines.extend(nodes(plan)),
    }
    if count > 0 {
        lines.push(sentence(&consequence(plan, &begin), Tone::Plain));
        if plan.unchecked {
            lines.push(sentence(
                "The list of nodes is not available: nothing verified that they exist.",
                Tone::Busy,
            ));
        }
    }
    lines.extend(age_of_nodes(model));
    lines.extend(preview(&dialog.preview));
    if plan.problems.is_empty() {
        let commands = plan.commands(dialog.reason.text(), dialog.options.text(), &model.options.kubectl);
        let command = |command| DialogLine::new(command, Tone::Quiet, LinePriority::Listed);
        lines.extend(commands.into_iter().map(command));
    }
    lines.push(DialogLine::blank());
    if count > 1 {
        lines.push(field(&format!("Type {count} to start {count} nodes:"), &dialog.count, StartField::Count));
    }
    let ready = plan.is_confirmed(&dialog.count);
    let keys = format!("{}[Tab] next field  [Esc] cancel", if ready { "[Enter] start  " } else { "" });
    lines.push(DialogLine::new(keys, Tone::Quiet, LinePriority::Required));
    lines
}

fn sentence(text: &str, tone: Tone) -> DialogLine {
    DialogLine::new(text, tone, LinePriority::Consequence)
}

fn nodes(plan: &StartPlan) -> Vec<DialogLine> {
    let (_, later) = plan.split();
    listed(plan.nodes.iter().map(|node| {
        let role = if plan.control_plane.contains(node) { "  control plane" } else { "" };
        let planned = if later.contains(node) { "  planned" } else { "" };
        format!("  {node}{role}{planned}")
    }))
}

/// The flags of `start` that fit what is typed.
fn options(dialog: &StartDialog) -> impl Iterator<Item = DialogLine> {
    offered(dialog.options.text()).into_iter().map(|option| {
        let text = format!("  {:<34} {}", option.flag, option.help);
        DialogLine::new(text, Tone::Quiet, LinePriority::Listed)
    })
}

fn consequence(plan: &StartPlan, begin: &str) -> String {
    let (now, later) = plan.split();
    let them = |count| if count == 1 { "The node is" } else { "The nodes are" };
    match (now.len(), later.len()) {
        (count, 0) => format!("{} cordoned, and the pods are evicted.", them(count)),
        (0, count) => {
            format!(
                "{} only planned: the scheduler prefers others, and {begin} begins the maintenance.",
                them(count)
            )
        }
        (first, others) => {
            let begins = if first == 1 { "1 node begins" } else { &format!("{first} nodes begin") };
            format!(
                "{begins} now; the other {others} {} planned, and {begin} begins each. `kubectl nm roll` goes through \
                 nodes by itself.",
                if others == 1 { "is" } else { "are" }
            )
        }
    }
}

fn preview(preview: &StartPreview) -> Vec<DialogLine> {
    match preview {
        StartPreview::Nothing => Vec::new(),
        StartPreview::OnRequest => {
            vec![sentence("[Ctrl-P] plans: it reads all pods of this large cluster.", Tone::Quiet)]
        }
        StartPreview::Pending(_) => {
            vec![DialogLine::blank(), sentence("Plan: reading the cluster ...", Tone::Busy)]
        }
        StartPreview::Failed(_, why) => {
            vec![DialogLine::blank(), sentence(&format!("Plan: not available: {why}"), Tone::Bad)]
        }
        StartPreview::Made(_, made) => {
            let first = made.first().map(|verdict| (format!("Plan: {verdict}"), tone(verdict)));
            let others = made.iter().skip(1).map(|line| (line.to_string(), tone(line)));
            let lines = first.into_iter().chain(others).map(|(text, tone)| sentence(&text, tone));
            std::iter::once(DialogLine::blank()).chain(lines).collect()
        }
    }
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
