//! The dialogs, with what is typed in them.

pub(crate) mod pod_dialog;
pub(crate) mod start_options;
pub(crate) mod start_plan;
pub(crate) mod start_preview;

use std::sync::Arc;

use nm_core::maintenance::ending::is_of_medik8s_operator;
use nm_core::maintenance::{State, node, status};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_shared::NodeMaintenance;

use crate::model::dialogs::pod_dialog::PodDialog;
use crate::model::dialogs::start_preview::{PlanRequest, StartPreview};
use crate::model::text_field::Field;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dialog {
    /// The help, scrolled by so many lines.
    Help(usize),
    Start(Box<StartDialog>),
    Stop(StopDialog),
    Pause(PauseDialog),
    Pod(Box<PodDialog>),
}

impl Dialog {
    /// The plan that it shows.
    pub(crate) fn preview(&mut self) -> Option<&mut StartPreview> {
        match self {
            Self::Start(dialog) => Some(&mut dialog.preview),
            Self::Pause(dialog) => Some(&mut dialog.preview),
            Self::Help(_) | Self::Stop(_) | Self::Pod(_) => None,
        }
    }

    /// The field that is typed in, and that a text can be pasted into.
    pub(crate) fn field(&mut self) -> Option<&mut Field> {
        match self {
            Self::Start(dialog) => Some(dialog.field()),
            Self::Stop(StopDialog { count, .. }) | Self::Pause(PauseDialog { count, .. }) => Some(count),
            Self::Help(_) | Self::Pod(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StartField {
    #[default]
    Nodes,
    Reason,
    /// The flags of `start`.
    Options,
    Count,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StartDialog {
    /// Names and patterns of nodes.
    pub(crate) nodes: Field,
    pub(crate) reason: Field,
    pub(crate) options: Field,
    pub(crate) count: Field,
    pub(crate) focus: StartField,
    pub(crate) preview: StartPreview,
    /// The page of what is known about the start. Pages follow each other in a circle.
    pub(crate) page: isize,
}

impl StartDialog {
    pub(crate) fn field(&mut self) -> &mut Field {
        match self.focus {
            StartField::Nodes => &mut self.nodes,
            StartField::Reason => &mut self.reason,
            StartField::Options => &mut self.options,
            StartField::Count => &mut self.count,
        }
    }

    /// Moves through the fields, and from the last to the first. The last one is only there for several nodes.
    pub(crate) fn move_focus(&mut self, several: bool, by: isize) {
        let fields = [StartField::Nodes, StartField::Reason, StartField::Options, StartField::Count];
        let fields = if several { &fields[..] } else { &fields[..3] };
        // A field that is no longer there counts as the last one.
        let at = fields.iter().position(|field| *field == self.focus).unwrap_or(fields.len() - 1);
        let to = at.checked_add_signed(by).unwrap_or(fields.len() - 1);
        self.focus = fields.get(to).copied().unwrap_or_default();
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StopDialog {
    /// The maintenances that were selected when the dialog opened.
    pub(crate) targets: Vec<Arc<NodeMaintenance>>,
    /// Whether the nodes stay cordoned.
    pub(crate) keep_cordon: bool,
    pub(crate) count: Field,
}

impl StopDialog {
    /// The maintenances whose nodes the medik8s operator would uncordon although they are to stay cordoned.
    pub(crate) fn ignoring(&self) -> impl Iterator<Item = &NodeMaintenance> {
        let targets = self.targets.iter().map(AsRef::as_ref);
        targets.filter(|target| self.is_ignored_by(target))
    }

    /// Whether the node of a maintenance is uncordoned although it is to stay cordoned.
    pub(crate) fn is_ignored_by(&self, target: &NodeMaintenance) -> bool {
        self.keep_cordon && is_of_medik8s_operator(target)
    }

    /// Whether a node may be cordoned: one that is only planned is not.
    pub(crate) fn has_cordons(&self) -> bool {
        self.targets.iter().any(|target| State::of(target) != State::Planned)
    }

    /// Whether Enter stops the maintenances.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.ignoring().next().is_none() && is_confirmed(&self.count, self.targets.len())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PauseDialog {
    /// The maintenances that were selected when the dialog opened, and that this changes.
    pub(crate) targets: Vec<Arc<NodeMaintenance>>,
    /// Whether they are paused, and not resumed.
    pub(crate) pause: bool,
    pub(crate) count: Field,
    /// What the drains harm that begin: those of planned maintenances.
    pub(crate) preview: StartPreview,
}

impl PauseDialog {
    /// What the preview is about; none if no drain begins.
    pub(crate) fn request(&self) -> Option<PlanRequest> {
        let begins = self.targets.iter().filter(|target| !self.pause && !status(target).has_begun());
        let nodes: Vec<String> = begins.map(|target| node(target).to_owned()).collect();
        (!nodes.is_empty()).then_some(PlanRequest { nodes, drain: None })
    }
}

/// The command of the plugin for these maintenances. `kubectl` is kubectl with the connection flags.
pub(crate) fn plugin_command(kubectl: &str, verb: &str, targets: &[Arc<NodeMaintenance>]) -> String {
    let nodes: Vec<_> = targets.iter().map(|target| shell_quoted(node(target))).collect();
    let nodes = nodes.join(" ");
    // The API server accepts any name of a node in a maintenance.
    if targets.iter().any(|target| node(target).starts_with('-')) {
        return format!("{} -- {nodes}", nm_command(kubectl, verb));
    }
    nm_command(kubectl, &format!("{verb} {nodes}"))
}

/// Whether what was typed confirms so many: one needs only Enter, several need their number.
pub(crate) fn is_confirmed(typed: &Field, count: usize) -> bool {
    count == 1 || (count > 1 && typed.text().trim() == count.to_string())
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::requested;

    use super::*;

    #[test]
    fn the_name_of_a_node_is_never_a_flag() {
        let command =
            |node: &str| plugin_command("kubectl --context c", "stop", &[Arc::new(requested(node))]);
        assert_eq!(command("n1"), "kubectl nm stop n1 --context c");
        assert_eq!(command("--all"), "kubectl nm stop --context c -- --all");
    }

    #[test]
    fn several_nodes_need_their_number_typed() {
        for (typed, count, confirmed) in [
            ("", 0, false),
            ("0", 0, false),
            ("", 1, true),
            ("", 2, false),
            ("3", 2, false),
            (" 2 ", 2, true),
        ] {
            assert_eq!(is_confirmed(&Field::new(typed), count), confirmed, "{typed} {count}");
        }
    }
}
