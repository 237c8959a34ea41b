//! All nodes of the cluster, with or without a maintenance.

use std::collections::BTreeSet;
use std::sync::Arc;

use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;

use crate::model::fleet::Fleet;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::fleet::node_row::NodeRow;
use crate::model::fleet::pod_counts::CountedPods;
use crate::model::lists::listing::Listing;
use crate::objects::node_metadata::NodeMetadata;

/// Empty until the view is shown for the first time.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeList {
    /// Whether whole nodes are watched, because the view was shown.
    pub(crate) is_watched: bool,
    /// Whether whole nodes were listed.
    pub(crate) is_listed: bool,
    pub(crate) rows: Listing<NodeRow>,
    /// The nodes that have halted their rolls, as the rows show them.
    pub(crate) halted: BTreeSet<(String, String)>,
    /// The names of the marked nodes.
    pub(crate) marked: BTreeSet<String>,
    pub(crate) pods: CountedPods,
}

impl NodeList {
    /// Applies a change that the watch on nodes reported, and that the fleet knows.
    pub(crate) fn apply_nodes(&mut self, change: &WatchChange<NodeMetadata>, fleet: &Fleet) {
        if !self.is_watched {
            return;
        }
        match change {
            WatchChange::Listed(nodes) => {
                self.is_listed |= nodes.iter().all(|node| node.details.is_some());
                self.rebuild(fleet);
            }
            WatchChange::Applied(node) => self.refresh(&node.name, fleet),
            WatchChange::Deleted(node) => {
                self.rows.remove(&node.name);
                self.marked.remove(&node.name);
            }
        }
    }

    /// Applies a change that the watch on maintenances reported, and that the fleet knows.
    pub(crate) fn apply_maintenances(&mut self, change: &WatchChange<NodeMaintenance>, fleet: &Fleet) {
        if !self.is_watched {
            return;
        }
        match change {
            WatchChange::Listed(_) => self.rebuild(fleet),
            WatchChange::Applied(object) | WatchChange::Deleted(object) => {
                self.refresh(&object.spec.node_name, fleet);
                // The maintenance of another node may show that a roll has halted.
                let before = std::mem::replace(&mut self.halted, fleet.halted.clone());
                for (node, _) in before.symmetric_difference(&fleet.halted) {
                    self.refresh(node, fleet);
                }
            }
        }
    }

    /// Begins to show the nodes that the fleet knows.
    pub(crate) fn watch(&mut self, fleet: &Fleet) {
        self.is_watched = true;
        self.rebuild(fleet);
    }

    fn rebuild(&mut self, fleet: &Fleet) {
        let maintenances = fleet.maintenances_by_node();
        let row = |node: &Arc<NodeMetadata>| {
            let maintenance = maintenances.get(node.name.as_str());
            let maintenance =
                maintenance.map_or_else(|| FleetRow::idle(&node.name), |object| fleet.row(object));
            NodeRow::new(Arc::clone(node), &maintenance)
        };
        self.rows.replace(fleet.nodes().map(row));
        self.halted.clone_from(&fleet.halted);
        let rows = &self.rows;
        self.marked.retain(|name| rows.get(name).is_some());
    }

    fn refresh(&mut self, node: &str, fleet: &Fleet) {
        let Some(metadata) = fleet.shared_node(node) else { return };
        let maintenance = fleet.maintenance_of(node);
        let maintenance = maintenance.map_or_else(|| FleetRow::idle(node), |object| fleet.row(object));
        self.rows.upsert(NodeRow::new(Arc::clone(metadata), &maintenance));
    }
}
