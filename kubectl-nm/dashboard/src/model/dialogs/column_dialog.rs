//! The dialog that chooses the columns of a list and their order.

use crate::config::columns::{Columns, ListName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnDialog {
    pub(crate) list: ListName,
    /// All columns of the list, and whether each is shown. Those that are shown come first at the beginning.
    pub(crate) entries: Vec<(&'static str, bool)>,
    /// The selected one.
    pub(crate) at: usize,
}

impl ColumnDialog {
    pub(crate) fn new(list: ListName, columns: &Columns) -> Self {
        let shown = columns.of(list);
        let hidden = list.columns().iter().map(|column| column.name).filter(|name| !shown.contains(name));
        let entries =
            shown.iter().map(|name| (*name, true)).chain(hidden.map(|name| (name, false))).collect();
        Self { list, entries, at: 0 }
    }

    pub(crate) fn select(&mut self, index: usize) {
        self.at = index.min(self.entries.len().saturating_sub(1));
    }

    /// Shows the selected column, or hides it. The last one that is shown stays.
    pub(crate) fn toggle(&mut self) {
        let shown = self.chosen().len();
        if let Some((_, is_shown)) = self.entries.get_mut(self.at)
            && (!*is_shown || shown > 1)
        {
            *is_shown = !*is_shown;
        }
    }

    /// Moves the selected column towards the left, or the right.
    pub(crate) fn shift(&mut self, by: isize) {
        let to = self.at.saturating_add_signed(by);
        if to < self.entries.len() {
            self.entries.swap(self.at, to);
            self.at = to;
        }
    }

    /// Chooses what is shown unless somebody chooses.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.list, &Columns::default());
    }

    /// The columns that are shown, in their order.
    pub(crate) fn chosen(&self) -> Vec<&'static str> {
        self.entries.iter().filter(|(_, is_shown)| *is_shown).map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_shown_hidden_and_moved() {
        let mut dialog = ColumnDialog::new(ListName::Nodes, &Columns::default());
        assert_eq!(dialog.chosen()[..3], ["node", "ready", "cordoned-by"]);
        dialog.select(1);
        dialog.shift(1);
        assert_eq!((dialog.at, &dialog.chosen()[..3]), (2, &["node", "cordoned-by", "ready"][..]));
        dialog.toggle();
        assert_eq!(dialog.chosen()[..3], ["node", "cordoned-by", "maintenance"]);
        dialog.select(99);
        dialog.shift(1);
        assert_eq!(dialog.at, 8);
        dialog.reset();
        assert_eq!(dialog, ColumnDialog::new(ListName::Nodes, &Columns::default()));
    }

    #[test]
    fn at_least_one_column_is_shown() {
        let mut columns = Columns::default();
        columns.choose(ListName::Pods, vec!["pod"]);
        let mut dialog = ColumnDialog::new(ListName::Pods, &columns);
        dialog.toggle();
        assert_eq!(dialog.chosen(), ["pod"]);
    }
}
