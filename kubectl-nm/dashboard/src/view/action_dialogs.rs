//! The lines of the dialogs about a pod.

use nm_core::terminal::text::counted;
use nm_shared::BudgetFacts;

use crate::model::Model;
use crate::model::dialogs::pod_dialog::{
    DELETE_WORD, GuardingBudgets, Lookup, MachinePart, PodAction, PodDialog, PodFacts, ReplacementPlace,
    denial,
};
use crate::model::text_field::Field;
use crate::view::dialog_lines::{DialogLine, LinePriority};
use crate::view::theme::Tone;

fn sentence(text: impl Into<String>, tone: Tone) -> DialogLine {
    DialogLine::new(text, tone, LinePriority::Consequence)
}

fn problem(text: impl Into<String>) -> DialogLine {
    DialogLine::new(text, Tone::Bad, LinePriority::Problem)
}

fn keys(verb: &str, is_ready: bool, more: &str) -> DialogLine {
    let enter = if is_ready { format!("[Enter] {verb}  ") } else { String::new() };
    DialogLine::new(format!("{enter}{more}[Esc] cancel"), Tone::Quiet, LinePriority::Required)
}

fn verb(dialog: &PodDialog) -> &'static str {
    match dialog.action {
        PodAction::Evict => "evict",
        PodAction::Delete => "delete",
    }
}

pub(super) fn pod_title(dialog: &PodDialog) -> String {
    format!("{} {}", verb(dialog), dialog.target.path())
}

pub(super) fn pod_lines(
    model: &Model,
    dialog: &PodDialog,
    typed: impl Fn(&str, &Field) -> String,
) -> Vec<DialogLine> {
    let mut lines = Vec::new();
    match &dialog.lookup {
        Lookup::Pending => lines.push(sentence("Reading the pod and its budgets ...", Tone::Busy)),
        Lookup::Failed(why) => lines.push(problem(format!("The pod could not be read: {why}"))),
        Lookup::Known(facts) => lines.extend(known(dialog, facts, model.place_of_replacement(dialog))),
    }
    if dialog.action == PodAction::Evict {
        let words = "This requests the eviction of the pod once, with your permissions. Budgets and webhooks apply, as for \
             nm-reconciler.";
        lines.push(sentence(words, Tone::Plain));
    }
    if dialog.is_possible() {
        lines.push(DialogLine::blank());
        lines.push(sentence(dialog.command(&model.options.kubectl), Tone::Strong));
    }
    lines.push(DialogLine::blank());
    let is_typed = dialog.action == PodAction::Delete && dialog.is_possible();
    if is_typed {
        let field = typed(&format!("Type {DELETE_WORD} to delete it:"), &dialog.typed);
        lines.push(DialogLine::new(field, Tone::Strong, LinePriority::Required));
    }
    lines.push(keys(verb(dialog), dialog.is_confirmed(), ""));
    lines
}

fn known(dialog: &PodDialog, facts: &PodFacts, place: ReplacementPlace) -> Vec<DialogLine> {
    let mut lines = Vec::new();
    if let Some(access) = &facts.denied {
        lines.push(problem(format!("Not permitted: {}", denial(access))));
    }
    if dialog.target.uid.as_ref().is_some_and(|uid| *uid != facts.uid) {
        lines.push(problem("The pod is gone, and another pod now has its name."));
    }
    if !facts.kept_by.is_empty() {
        let (finalizers, keep, removed) = if facts.kept_by.len() == 1 {
            ("finalizer", "keeps", "the owner of its finalizer must remove it")
        } else {
            ("finalizers", "keep", "the owners of its finalizers must remove them")
        };
        let named = facts.kept_by.join(", ");
        lines.push(problem(format!("It is already being deleted, and only {finalizers} {named} {keep} it.")));
        lines.push(problem(format!("Another deletion changes nothing: {removed}.")));
        return lines;
    }
    if facts.is_terminating {
        let words = "It is already being deleted: the kubelet of its node has to end its containers first.";
        lines.push(problem(words));
        lines.push(problem("Another deletion changes nothing, unless its grace period is shorter."));
        lines.extend(finalizers(facts));
        return lines;
    }
    match &facts.budgets {
        GuardingBudgets::Unknown(why) => lines.push(problem(format!("Its budgets are not known: {why}"))),
        GuardingBudgets::Known(budgets) if budgets.is_empty() => {
            lines.push(sentence("No disruption budget guards it.", Tone::Plain));
        }
        GuardingBudgets::Known(budgets) => {
            lines.extend(budgets.iter().map(|budget| of_budget(dialog, budget)));
        }
    }
    let loss = |text: &str| DialogLine::new(text, Tone::Bad, LinePriority::Problem);
    match (&facts.machine, dialog.action) {
        (Some(MachinePart::Launcher(machine)), PodAction::Delete) => {
            lines.push(loss(&format!("The deletion shuts down the virtual machine {machine}.")));
        }
        (Some(MachinePart::Disk(machine)), PodAction::Delete) => {
            lines.push(loss(&format!(
                "The deletion unplugs a disk of the running virtual machine {machine}."
            )));
        }
        (None, _) if facts.has_empty_dir => lines.push(loss("The data in its emptyDir volumes is lost.")),
        _ => {}
    }
    lines.push(match (&facts.owner, place) {
        (None, _) => loss("No controller recreates it: it never comes back."),
        (Some(owner), ReplacementPlace::SameNode) if facts.is_assigned => problem(format!(
            "{owner} recreates it on the same node: its pod template assigns it to that node (nodeName)."
        )),
        (Some(owner), ReplacementPlace::SameNode) => {
            problem(format!("{owner} recreates it, and its pods keep returning to this node."))
        }
        (Some(owner), ReplacementPlace::Nowhere) => {
            problem(format!("{owner} recreates it, but no node is left: its replacement will be Pending."))
        }
        (Some(owner), ReplacementPlace::Unknown) => sentence(format!("{owner} recreates it."), Tone::Plain),
    });
    lines.extend(finalizers(facts));
    lines
}

fn finalizers(facts: &PodFacts) -> impl Iterator<Item = DialogLine> {
    facts.finalizers.iter().map(|finalizer| {
        problem(format!("Until its finalizer {finalizer} is removed, the pod stays Terminating."))
    })
}

/// `PDB shop/cart allows 0 disruptions now (needs 3, has 3): the deletion bypasses it.`
fn of_budget(dialog: &PodDialog, budget: &BudgetFacts) -> DialogLine {
    let BudgetFacts { name, desired_healthy, current_healthy, disruptions_allowed, .. } = budget;
    let allowed = disruptions_allowed.unwrap_or(0);
    let disruptions = counted(allowed, "disruption");
    let numbers = match (desired_healthy, current_healthy) {
        (Some(needs), Some(has)) => format!(" (needs {needs}, has {has})"),
        _ => String::new(),
    };
    let bypasses = dialog.action == PodAction::Delete && allowed <= 0;
    let consequence = if bypasses { ": the deletion bypasses it" } else { "" };
    let text =
        format!("PDB {}/{name} allows {disruptions} now{numbers}{consequence}.", dialog.target.namespace);
    if bypasses { problem(text) } else { sentence(text, Tone::Plain) }
}
