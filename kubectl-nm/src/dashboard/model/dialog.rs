//! The dialogs, with what is typed in them.

use std::sync::Arc;

use nm_shared::NodeMaintenance;

use crate::dashboard::model::field::Field;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dialog {
    /// The help, scrolled by so many lines.
    Help(usize),
    Start(StartDialog),
    Stop(StopDialog),
    /// The maintenance that was selected when the dialog opened, to be paused or resumed.
    Pause(Arc<NodeMaintenance>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StartField {
    #[default]
    Nodes,
    Reason,
    Count,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StartDialog {
    /// Names and patterns of nodes.
    pub(crate) nodes: Field,
    pub(crate) reason: Field,
    pub(crate) count: Field,
    pub(crate) focus: StartField,
}

impl StartDialog {
    pub(crate) fn field(&mut self) -> &mut Field {
        match self.focus {
            StartField::Nodes => &mut self.nodes,
            StartField::Reason => &mut self.reason,
            StartField::Count => &mut self.count,
        }
    }

    pub(crate) fn back(&mut self, several: bool) {
        self.focus = match self.focus {
            StartField::Nodes if several => StartField::Count,
            StartField::Nodes | StartField::Count => StartField::Reason,
            StartField::Reason => StartField::Nodes,
        };
    }

    pub(crate) fn next(&mut self, several: bool) {
        self.focus = match self.focus {
            StartField::Nodes => StartField::Reason,
            StartField::Reason if several => StartField::Count,
            StartField::Reason | StartField::Count => StartField::Nodes,
        };
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StopDialog {
    /// The maintenances that were selected when the dialog opened.
    pub(crate) targets: Vec<Arc<NodeMaintenance>>,
    pub(crate) count: Field,
}

/// Whether what was typed confirms so many: one needs only Enter, several need their number.
pub(crate) fn is_confirmed(typed: &Field, count: usize) -> bool {
    count == 1 || (count > 1 && typed.text().trim() == count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
