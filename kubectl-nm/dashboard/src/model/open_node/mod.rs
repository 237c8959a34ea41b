//! A node whose pods are shown.

pub(crate) mod pod_row;
pub(crate) mod pod_target;
pub(crate) mod pods;

use std::collections::BTreeMap;

use nm_shared::NodeMaintenance;

use crate::model::lists::listing::{Row, Sort};
use crate::model::open_node::pod_row::PodRow;
use crate::model::open_node::pods::PodList;
use crate::model::panes::events::NodeEvents;
use crate::model::tree::Tree;
use crate::model::tree::tree_row::{TreeItem, TreeRow};
use crate::objects::watch_state::{WatchKind, WatchState};

#[derive(Debug, Clone)]
pub(crate) struct OpenNode {
    pub(crate) name: String,
    pub(crate) pods: PodList,
    /// Where the pods went.
    pub(crate) tree: Tree,
    pub(crate) events: NodeEvents,
    /// The name of its maintenance, to which events refer. Usually it is that of the node.
    pub(crate) subject: String,
    /// The states of the watches on it, in a replay.
    pub(crate) health: BTreeMap<WatchKind, WatchState>,
}

impl OpenNode {
    pub(crate) fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self {
            subject: name.clone(),
            name,
            pods: PodList::default(),
            tree: Tree::default(),
            events: NodeEvents::default(),
            health: BTreeMap::new(),
        }
    }

    /// Keeps only the pods that have left it, because nothing watches it any more.
    pub(crate) fn keep_gone(&mut self, maintenance: Option<&NodeMaintenance>) {
        let mut pods = std::mem::take(&mut self.pods);
        pods.keep_gone(maintenance);
        *self = Self { pods, ..Self::new(&self.name) };
    }

    /// The selected pod of the node; none if a row of the tree is selected that is something else.
    pub(crate) fn selected_pod(&self) -> Option<&PodRow> {
        if self.tree.is_shown { self.selected_in_tree()?.pod() } else { self.pods.rows.selected() }
    }

    /// The pod that the selected row is about: of a workload, the one that needs attention most.
    pub(crate) fn pod_of_selected(&self) -> Option<&PodRow> {
        self.selected_pod().or_else(|| {
            let row = self.selected_in_tree()?;
            let (namespace, owner) = &row.group.name;
            let is_of_workload = |pod: &&PodRow| (&pod.id.namespace, &pod.id.owner) == (namespace, owner);
            let pods = self.pods.rows.all().filter(|_| matches!(row.item, TreeItem::Workload { .. }));
            let order =
                |one: &&PodRow, other: &&PodRow| one.lead(other, Sort::Risk).then_with(|| one.by_name(other));
            pods.filter(is_of_workload).min_by(order)
        })
    }

    /// Whether the user has chosen the selected row.
    pub(super) fn has_chosen(&self) -> bool {
        if self.tree.is_shown { self.tree.rows.chosen().is_some() } else { self.pods.rows.chosen().is_some() }
    }

    pub(super) fn selected_in_tree(&self) -> Option<&TreeRow> {
        self.tree.rows.selected().filter(|_| self.tree.is_shown)
    }
}
