//! What the selected row is, for actions on it.

use kube::ResourceExt;
use nm_core::explain::owner::Owner;
use nm_core::maintenance::{State, node, waiting_pods};
use nm_shared::{BlockReason, DrainSpec, NodeMaintenance, PodReference, PodState};

use crate::config::action_table::{Action, View};
use crate::model::dialogs::pod_dialog::{PodDialog, PodTarget, ReplacementPlace};
use crate::model::open_node::pod_row::PodRow;
use crate::model::tree::tree_row::TreeItem;
use crate::model::{Model, Page};
use crate::objects::node_pod::PodId;

/// An object in the cluster, as the selected row stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SelectedObject {
    Pod(PodTarget),
    /// With its namespace.
    Workload(String, Owner),
    Node(String),
    /// The name of a `NodeMaintenance`.
    Maintenance(String),
}

impl Model {
    pub(crate) fn view(&self) -> View {
        match &self.open {
            Some(open) if open.tree.is_shown => View::Tree,
            Some(_) => View::Pods,
            None if self.page == Page::Nodes => View::Nodes,
            None => View::Fleet,
        }
    }

    pub(crate) fn selected_object(&self) -> Option<SelectedObject> {
        let Some(open) = &self.open else {
            return match self.page {
                Page::Nodes => self.selected_node().map(|node| SelectedObject::Node(node.to_owned())),
                Page::Fleet => Some(match self.maintenance() {
                    Some(maintenance) => SelectedObject::Maintenance(maintenance.name_any()),
                    None => SelectedObject::Node(self.selected_node()?.to_owned()),
                }),
            };
        };
        if let Some(row) = open.selected_pod() {
            return Some(SelectedObject::Pod(self.target(&row.id)));
        }
        let row = open.selected_in_tree()?;
        match &row.item {
            TreeItem::Replacement { replica, .. } => Some(SelectedObject::Pod(self.target(&replica.id))),
            TreeItem::Workload { .. } => {
                let (namespace, owner) = row.group.name.clone();
                owner.map(|owner| SelectedObject::Workload(namespace, owner))
            }
            TreeItem::NoReplacement(_) | TreeItem::Pod(_) => None,
        }
    }

    fn target(&self, id: &PodId) -> PodTarget {
        let spec = self.maintenance().and_then(|object| object.spec.drain.clone()).unwrap_or_default();
        PodTarget {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            uid: (!id.is_named_only()).then(|| id.key.clone()),
            grace: Some(spec.grace_period_seconds).filter(|seconds| *seconds >= 0),
        }
    }

    /// Where the replacement of the pod that a dialog is about starts.
    pub(crate) fn place_of_replacement(&self, dialog: &PodDialog) -> ReplacementPlace {
        let PodTarget { namespace, name, .. } = &dialog.target;
        let pod = PodReference { namespace: namespace.clone(), name: name.clone() };
        let Some(open) = &self.open else { return ReplacementPlace::Unknown };
        let mut rows = open.pods.rows.all().filter(|row| row.id.reference() == pod);
        let is_assigned = dialog.facts().is_some_and(|facts| facts.is_assigned);
        if is_assigned || rows.any(|row| row.progress.reason == Some(BlockReason::KeepsReturning)) {
            ReplacementPlace::SameNode
        } else if self.first_causes.of_node(&open.name).is_some_and(|causes| causes.lacks_node(&pod)) {
            ReplacementPlace::Nowhere
        } else {
            ReplacementPlace::Unknown
        }
    }

    /// Why the drain does not evict the selected pod of the node now; none if nothing but the cluster prevents it.
    pub(crate) fn why_not_evicted(&self, row: &PodRow) -> Option<String> {
        let Some(maintenance) = self.maintenance() else {
            return Some(String::from("the node is not in maintenance"));
        };
        let state = row.progress.state.or_else(|| row.progress.is_unknown.then_some(PodState::Evicting));
        let of_pod = match state? {
            PodState::Staying => Some(format!("it stays on the node: {}", row.progress.message)),
            PodState::Terminating => Some(String::from("it is terminating already")),
            PodState::Gone => Some(String::from("it is gone")),
            PodState::Migrating => Some(String::from("KubeVirt is migrating its virtual machine")),
            PodState::Surging => Some(format!("it is being replaced first: {}", row.progress.message)),
            PodState::Blocked if row.progress.reason == Some(BlockReason::KeepsReturning) => {
                Some(String::from("its replacement would start on this node again"))
            }
            PodState::Blocked => excluded(row.progress.reason, maintenance),
            PodState::Waiting => Some(row.progress.message.clone()).filter(|_| {
                waiting_pods(maintenance)
                    .iter()
                    .any(|pod| (&pod.namespace, &pod.name) == (&row.id.namespace, &row.id.name))
            }),
            PodState::Evicting => None,
        };
        of_pod.or_else(|| {
            let resume = self.hint(Action::Pause);
            Some(match State::of(maintenance) {
                State::Stopping => {
                    let since = maintenance.metadata.deletion_timestamp.as_ref().map_or(self.now, |at| at.0);
                    self.fleet.ending(node(maintenance), since, self.now).into_owned()
                }
                State::Paused => format!("the drain is paused, {resume} resumes it"),
                State::Planned => format!("the drain has not started, {resume} starts it"),
                State::Queued | State::Requested => String::from("the drain has not started"),
                State::Failed => String::from("the drain has failed"),
                State::Draining | State::Blocked | State::Drained => return None,
            })
        })
    }
}

/// Why the drain's own settings exclude the pod.
fn excluded(reason: Option<BlockReason>, maintenance: &NodeMaintenance) -> Option<String> {
    let DrainSpec { force, delete_empty_dir_data, .. } = maintenance.spec.drain.clone().unwrap_or_default();
    match reason? {
        BlockReason::Unmanaged if !force => {
            Some(String::from("no controller recreates it, and the drain has --force=false"))
        }
        BlockReason::LocalStorage if !delete_empty_dir_data => {
            Some(String::from("it has emptyDir data, and the drain has --delete-emptydir-data=false"))
        }
        _ => None,
    }
}
