//! The dialogs that start and stop maintenances, as far as they are filled in.

/// A line that is being typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Field(String);

impl Field {
    /// With this in it.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What it says.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Adds typed or pasted text; line breaks become spaces, other controls are dropped.
    pub(crate) fn add(&mut self, text: &str) {
        // Terminals send pasted line breaks as they send Enter.
        let text = text.replace("\r\n", "\n");
        let text = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        self.0.extend(text.filter(|c| !c.is_control()));
    }

    /// Takes the last character back.
    pub(crate) fn back(&mut self) {
        self.0.pop();
    }

    /// Takes the last word back.
    pub(crate) fn back_word(&mut self) {
        let kept = self.0.trim_end();
        let kept = kept.rfind(' ').map_or(0, |at| at + 1);
        self.0.truncate(kept);
    }

    /// Takes everything back.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

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
    fn fields_take_text_and_give_it_back() {
        let mut field = Field::default();
        field.add("new kernel\n6.12\x1b[31m");
        assert_eq!(field.text(), "new kernel 6.12[31m");
        field.back_word();
        assert_eq!(field.text(), "new kernel ");
        field.back();
        field.back_word();
        assert_eq!(field.text(), "new ");
        field.clear();
        field.back();
        field.back_word();
        assert_eq!(field.text(), "");
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
