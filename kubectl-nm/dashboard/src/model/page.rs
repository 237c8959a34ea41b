//! The rows of the page that is shown while no node is open: the selected one and the marked ones.

use std::collections::BTreeSet;

use crate::model::fleet::fleet_row::FleetRow;
use crate::model::fleet::node_row::NodeRow;
use crate::model::{Model, Page};

impl Model {
    /// Whether a panel has something to show: about the selected maintenance, or the events about the open node.
    pub(crate) fn has_panel(&self) -> bool {
        match &self.open {
            Some(open) => !open.tree.is_shown && !open.events.latest().is_empty(),
            None => self.panel_row().is_some(),
        }
    }

    /// The row whose node the panel is about: the selected maintenance.
    pub(crate) fn panel_row(&self) -> Option<&FleetRow> {
        let is_fleet = self.open.is_none() && self.page == Page::Fleet;
        self.fleet.rows.selected().filter(|row| is_fleet && row.state.is_some())
    }

    /// Whether all nodes are shown.
    pub(crate) fn shows_nodes(&self) -> bool {
        self.open.is_none() && self.page == Page::Nodes
    }

    /// The node of the selected row, while no node is open.
    pub(crate) fn selected_node(&self) -> Option<&str> {
        match (&self.open, self.page) {
            (Some(_), _) => None,
            (None, Page::Nodes) => self.nodes.rows.selected().map(NodeRow::name),
            (None, Page::Fleet) => self.fleet.rows.selected().map(|row| row.node.as_str()),
        }
    }

    /// The keys of the marked rows.
    pub(crate) fn marked(&self) -> &BTreeSet<String> {
        if self.page == Page::Nodes { &self.nodes.marked } else { &self.fleet.marked }
    }

    pub(crate) fn marked_mut(&mut self) -> &mut BTreeSet<String> {
        if self.page == Page::Nodes { &mut self.nodes.marked } else { &mut self.fleet.marked }
    }

    /// The nodes of the marked rows, or of the selected one if none is marked.
    pub(crate) fn chosen_nodes(&self) -> Vec<String> {
        let marked: Vec<String> = match self.page {
            Page::Nodes => self.nodes.marked.iter().cloned().collect(),
            Page::Fleet => {
                let rows = self.fleet.marked.iter().filter_map(|key| self.fleet.rows.get(key));
                rows.map(|row| row.node.clone()).collect()
            }
        };
        if marked.is_empty() { self.selected_node().map(str::to_owned).into_iter().collect() } else { marked }
    }
}
