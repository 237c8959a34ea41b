//! The undo record: what a maintenance has changed on its node, as an annotation of the node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::group::Group;
use crate::api::maintenance::{Autoscalers, DrainSpec};
use crate::api::names::{
    AUTOSCALER_ANNOTATIONS, EXCLUDE_LABEL, EXCLUDE_VALUE, LOAD_BALANCER_LABEL, UNDO_ANNOTATION,
    UNSCHEDULABLE_TAINT,
};
use crate::cluster::node_fit::taint;
use crate::cluster::selector;
use crate::drain::node_marks::{id, label, marks, planned_taint, taints};

/// The undo record: what the cordon changed, or the plan before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct UndoRecord {
    /// The uid of the maintenance that owns the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) maintenance: Option<String>,
    /// The uid of the maintenance that inherits the node, until it owns the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) heir: Option<String>,
    /// Everything is reverted. Such a record stays until its maintenance is gone on a node that had our label or taint
    /// before, which would be mistaken for ours without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) restored: bool,
    /// The maintenance is planned: it has not cordoned the node, and has changed nothing but `added_taints`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) planned: bool,
    /// The node was schedulable.
    pub(super) made_unschedulable: bool,
    /// Taints that were not there, as `key:effect`.
    pub(super) added_taints: Vec<String>,
    /// The previous values of our labels; null if they did not exist.
    pub(super) labels_before: BTreeMap<String, Option<String>>,
    /// Since when load balancers leave the node out; none if an earlier version wrote that, or nobody asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) excluded_since: Option<Timestamp>,
    /// The record cannot be read, and counts as one that reverts everything.
    #[serde(skip)]
    pub(super) unreadable: bool,
    /// The previous values of our annotations; null if they did not exist.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations_before: BTreeMap<String, Option<String>>,
}

/// What a maintenance asks others to do with its node (`spec.drain`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Whether load balancers leave the node out.
    pub excluded_from_load_balancers: bool,
    /// Whether autoscalers keep the node.
    pub protected_from_autoscalers: bool,
}

impl Neighbours {
    /// What the drain asks for.
    pub fn of(drain: Option<&DrainSpec>) -> Self {
        Self {
            excluded_from_load_balancers: drain.is_some_and(DrainSpec::excludes_from_load_balancers),
            protected_from_autoscalers: drain.is_some_and(|drain| drain.autoscalers == Autoscalers::Protect),
        }
    }
}

impl UndoRecord {
    /// Records the marks that only this group has, unless an earlier maintenance of the group has recorded them.
    pub(super) fn with_marks(mut self, node: &Node, missing: &[Taint], group: Group) -> Self {
        let added = missing.iter().filter(|taint| taint.key == group.drain_taint()).map(id);
        let added: Vec<String> = added.filter(|id| !self.added_taints.contains(id)).collect();
        self.added_taints.extend(added);
        if group.has_exclude_label() {
            let before = || label(node, EXCLUDE_LABEL).map(str::to_owned);
            self.labels_before.entry(EXCLUDE_LABEL.to_owned()).or_insert_with(before);
        }
        self
    }

    /// Whether the record shows that what the neighbours are to do has been asked of them, and nothing else.
    pub(super) fn has_asked(&self, neighbours: Neighbours) -> bool {
        let asks =
            |before: &BTreeMap<String, _>, key: &str, is_asked: bool| before.contains_key(key) == is_asked;
        asks(&self.labels_before, LOAD_BALANCER_LABEL, neighbours.excluded_from_load_balancers)
            && AUTOSCALER_ANNOTATIONS
                .iter()
                .all(|key| asks(&self.annotations_before, key, neighbours.protected_from_autoscalers))
    }

    /// Whether the record shows that load balancers have been asked to leave the node out.
    pub(super) fn excludes(&self) -> bool {
        self.labels_before.contains_key(LOAD_BALANCER_LABEL)
    }

    /// Records what is asked of the neighbours, as if nothing had been there before.
    pub(super) fn assume_asked(&mut self, neighbours: Neighbours) {
        let bare = ObjectMeta::default();
        self.ask(&bare, neighbours);
    }

    /// Records what is asked of the neighbours, and no longer what is not. Returns the labels and annotations to write. What
    /// someone changes afterwards is left alone until the end.
    pub(super) fn ask(
        &mut self,
        metadata: &ObjectMeta,
        neighbours: Neighbours,
    ) -> (Map<String, Value>, Map<String, Value>) {
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        let label = value(metadata.labels.as_ref(), LOAD_BALANCER_LABEL);
        // Load balancers go by its presence; service controllers of later Kubernetes versions let `false` mean its absence.
        let wanted = neighbours
            .excluded_from_load_balancers
            .then(|| label.filter(|value| *value != "false").unwrap_or("true").to_owned());
        mark(&mut self.labels_before, LOAD_BALANCER_LABEL, label, wanted, &mut labels);
        for key in AUTOSCALER_ANNOTATIONS {
            let wanted = neighbours.protected_from_autoscalers.then(|| "true".to_owned());
            mark(
                &mut self.annotations_before,
                key,
                value(metadata.annotations.as_ref(), key),
                wanted,
                &mut annotations,
            );
        }
        (labels, annotations)
    }

    /// The record of a node that was cordoned before.
    pub(super) fn with_cordon_before(mut self) -> Self {
        let cordon = id(&taint(UNSCHEDULABLE_TAINT));
        self.made_unschedulable = false;
        self.added_taints.retain(|added| *added != cordon);
        self
    }

    /// Whether the node has a mark that only a maintenance sets, and that it did not have before.
    pub(super) fn is_visible_on(&self, node: &Node) -> bool {
        let is_drain_taint = |taint: &Taint| Group::ALL.iter().any(|group| taint.key == group.drain_taint());
        let added = |taint: &Taint| self.added_taints.contains(&id(taint));
        let labelled = self.labels_before.get(EXCLUDE_LABEL).is_some_and(|before| {
            before.as_deref() != Some(EXCLUDE_VALUE) && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE)
        });
        labelled || taints(node).iter().any(|taint| is_drain_taint(taint) && added(taint))
    }
}

/// The record of a maintenance that is only known to have set every mark.
pub(super) fn everything(node: &Node, group: Group) -> UndoRecord {
    let before = label(node, EXCLUDE_LABEL).filter(|value| *value != EXCLUDE_VALUE).map(str::to_owned);
    let labels = group.has_exclude_label().then(|| (EXCLUDE_LABEL.to_owned(), before));
    UndoRecord {
        made_unschedulable: true,
        added_taints: marks(group).iter().map(id).collect(),
        labels_before: labels.into_iter().collect(),
        ..UndoRecord::default()
    }
}

/// The undo record in a node's annotations. A record that cannot be parsed counts as one that reverts everything, so that
/// the node does not stay cordoned forever.
///
/// Of a record only the marks of maintenances count. More programs may write the annotation than may write labels and
/// taints, such as the kubelet of the node (the admission plugin `NodeRestriction` lets it write annotations of its own
/// node, but no taints and not every label). None of them changes labels and taints of others through this program.
pub(super) fn recorded(metadata: &ObjectMeta) -> Option<UndoRecord> {
    let text = metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?;
    let marks = Group::ALL.iter().flat_map(|group| marks(*group)).chain([planned_taint()]);
    let marks: Vec<String> = marks.map(|taint| id(&taint)).collect();
    let mut undo = serde_json::from_str(text).unwrap_or_else(|_| UndoRecord {
        made_unschedulable: true,
        added_taints: marks.clone(),
        labels_before: BTreeMap::from([(EXCLUDE_LABEL.to_owned(), None)]),
        unreadable: true,
        ..UndoRecord::default()
    });
    undo.added_taints.retain(|added| marks.contains(added));
    undo.labels_before.retain(|label, _| [EXCLUDE_LABEL, LOAD_BALANCER_LABEL].contains(&label.as_str()));
    undo.annotations_before.retain(|key, _| AUTOSCALER_ANNOTATIONS.contains(&key.as_str()));
    for before in undo.labels_before.values_mut() {
        // The API server would refuse the patch.
        *before = before.take().filter(|value| selector::is_value(value));
    }
    Some(undo)
}

fn value<'a>(all: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key).map(String::as_str)
}

/// Sets a label or an annotation to the `wanted` value, and records the one before it; if none is wanted, undoes that. Writes
/// the change, if any.
fn mark(
    before: &mut BTreeMap<String, Option<String>>,
    key: &str,
    is: Option<&str>,
    wanted: Option<String>,
    changes: &mut Map<String, Value>,
) {
    let next = match wanted {
        Some(_) if before.contains_key(key) => return,
        Some(wanted) => {
            before.insert(key.to_owned(), is.map(str::to_owned));
            Some(wanted)
        }
        None => match before.remove(key) {
            Some(before) => before,
            None => return,
        },
    };
    if next.as_deref() != is {
        changes.insert(key.to_owned(), json!(next));
    }
}

/// The record of a maintenance that has started.
pub(super) fn cordon_record(metadata: &ObjectMeta) -> Option<UndoRecord> {
    recorded(metadata).filter(|undo| !undo.planned)
}

/// The record of a maintenance that is planned.
pub(super) fn planned_record(metadata: &ObjectMeta) -> Option<UndoRecord> {
    recorded(metadata).filter(|undo| undo.planned)
}
