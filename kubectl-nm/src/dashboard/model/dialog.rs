//! The dialogs that start and stop maintenances, as far as they are filled in.

use crate::dashboard::model::field::Field;

/// What stands before everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dialog {
    /// The keys and the filter language, scrolled by so many lines.
    Help(usize),
    /// Nodes are to be put into maintenance.
    Start(StartDialog),
    /// Maintenances are to be stopped.
    Stop(StopDialog),
}

/// The fields of the dialog that starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StartField {
    /// Names and patterns of nodes.
    #[default]
    Nodes,
    /// Why, for whoever looks at them next.
    Reason,
    /// How many there are.
    Count,
}

/// Nodes are to be put into maintenance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StartDialog {
    /// Names and patterns of nodes.
    pub(crate) nodes: Field,
    /// Why.
    pub(crate) reason: Field,
    /// How many there are, if there are several.
    pub(crate) count: Field,
    /// What is being typed.
    pub(crate) focus: StartField,
}

impl StartDialog {
    /// The field that is being typed.
    pub(crate) fn field(&mut self) -> &mut Field {
        match self.focus {
            StartField::Nodes => &mut self.nodes,
            StartField::Reason => &mut self.reason,
            StartField::Count => &mut self.count,
        }
    }

    /// Goes back to the field before.
    pub(crate) fn back(&mut self, several: bool) {
        self.focus = match self.focus {
            StartField::Nodes if several => StartField::Count,
            StartField::Nodes | StartField::Count => StartField::Reason,
            StartField::Reason => StartField::Nodes,
        };
    }

    /// Goes on to the next field.
    pub(crate) fn next(&mut self, several: bool) {
        self.focus = match self.focus {
            StartField::Nodes => StartField::Reason,
            StartField::Reason if several => StartField::Count,
            StartField::Reason | StartField::Count => StartField::Nodes,
        };
    }
}

/// A maintenance that is to be stopped. Its uid tells it from a later one of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The node.
    pub(crate) node: String,
    /// The object's name.
    pub(crate) name: String,
    /// The object's uid.
    pub(crate) uid: String,
}

/// Maintenances are to be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopDialog {
    /// Which, as of when the dialog opened.
    pub(crate) targets: Vec<Target>,
    /// How many there are, if there are several.
    pub(crate) count: Field,
}

/// Whether what was typed lets so many through: one needs no confirmation but Enter.
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
