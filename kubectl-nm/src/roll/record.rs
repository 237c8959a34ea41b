//! The state of a roll, which is kept in annotations of its maintenances and nowhere else.
//!
//! Each maintenance of the roll has the settings of the roll and the [`NodeRecord`] of its node. A node whose maintenance no
//! longer exists has returned to service. The [`RollRecord`] is about the roll as a whole and about nodes that have returned
//! to service. It is in one of the maintenances, the anchor: the last one in the order. Before the anchor is deleted, the
//! record is written to another maintenance; the record with the highest `revision` counts.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::node;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::roll_error::RollError;
use crate::roll::settings::RollSettings;

pub(crate) use crate::maintenance::{ROLL_LABEL as LABEL, roll_name};

pub(crate) const SETTINGS: &str = "kubectl-nm.dev/roll-settings";
pub(crate) const NODE: &str = "kubectl-nm.dev/roll-node";
pub(crate) const STATE: &str = "kubectl-nm.dev/roll-state";

/// How far a node has come, from its maintenance being planned to its return to service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Its maintenance is suspended.
    Planned,
    Draining,
    /// It is drained, and somebody has to confirm before the roll continues.
    Confirming,
    /// The command or the Job is under way.
    Acting,
    /// It has to reboot, or to become Ready.
    Rejoining,
    /// It has to stay Ready, without new pressure and with its DaemonSet pods Ready.
    Checking,
    /// Its maintenance is being deleted.
    Returning,
    /// It is in service. The workloads and budgets that its drain disturbed have to be healthy again.
    Recovering,
    Soaking,
}

impl Step {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Planned => "Planned",
            Self::Draining => "Draining",
            Self::Confirming => "Confirming",
            Self::Acting => "Acting",
            Self::Rejoining => "Rejoining",
            Self::Checking => "Checking",
            Self::Returning => "Returning",
            Self::Recovering => "Recovering",
            Self::Soaking => "Soaking",
        }
    }
}

/// The state of a node before its maintenance began. What was unhealthy then does not have to be healthy afterwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Baseline {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) boot_id: String,
    /// Its conditions that reported pressure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pressure: Vec<String>,
    /// The healthy workloads and budgets of its pods, and each `DaemonSet` whose pod on it was Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) healthy: Vec<Disturbed>,
}

/// A workload or a budget that a drain disturbs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Disturbed {
    pub(crate) kind: DisturbedKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum DisturbedKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    PodDisruptionBudget,
}

/// The record of a node, in an annotation of its maintenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeRecord {
    /// From 0.
    pub(crate) wave: usize,
    /// In the order of the whole roll, from 0.
    pub(crate) position: usize,
    pub(crate) step: Step,
    pub(crate) since: Timestamp,
    /// When its maintenance began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) began: Option<Timestamp>,
    #[serde(default)]
    pub(crate) baseline: Baseline,
}

/// The record of the roll as a whole, in an annotation of the anchor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollRecord {
    pub(crate) revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runner: Option<Runner>,
    /// Whether no further node begins, because somebody paused the roll.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) halt: Option<Halt>,
    /// The nodes that return to service or have returned, and whose gates are not passed yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) returned: Vec<ReturnedNode>,
    pub(crate) done: DoneNodes,
}

/// Who runs a roll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Runner {
    /// Distinguishes the programs.
    pub(crate) id: String,
    /// The user and the machine, for people.
    pub(crate) who: String,
    /// When the program last wrote this.
    pub(crate) at: Timestamp,
}

/// Why a roll halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Halt {
    pub(crate) node: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}

/// A node that returns to service, or has returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReturnedNode {
    pub(crate) node: String,
    pub(crate) wave: usize,
    pub(crate) position: usize,
    /// [`Step::Returning`] or later.
    pub(crate) step: Step,
    pub(crate) since: Timestamp,
    pub(crate) began: Timestamp,
    /// How many pods its drain moved.
    pub(crate) pods: i64,
    pub(crate) disturbed: Vec<Disturbed>,
}

/// The nodes that are done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DoneNodes {
    pub(crate) nodes: usize,
    /// The pods that their drains moved.
    pub(crate) pods: i64,
    /// The sum of their times from begin to end, in seconds.
    pub(crate) seconds: i64,
    /// The time of the slowest, in seconds.
    pub(crate) slowest_seconds: i64,
}

/// A maintenance of a roll.
#[derive(Clone, Debug)]
pub(crate) struct RollNode {
    pub(crate) object: Arc<NodeMaintenance>,
    pub(crate) record: NodeRecord,
    /// The revision of the record of the roll that this object has.
    pub(crate) revision: Option<u64>,
}

impl RollNode {
    pub(crate) fn node(&self) -> &str {
        &self.object.spec.node_name
    }

    /// Whether its drain is under way and not paused.
    pub(crate) fn drains(&self) -> bool {
        self.record.step == Step::Draining && !self.object.spec.suspend
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// A roll as its maintenances describe it.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    pub(crate) name: String,
    pub(crate) settings: RollSettings,
    /// In the order of the roll.
    pub(crate) nodes: Vec<RollNode>,
    /// None while its maintenances are being created.
    pub(crate) record: Option<RollRecord>,
}

impl Roll {
    /// The roll of this name among maintenances; none if there is none of it.
    ///
    /// # Errors
    ///
    /// When an annotation of one of its maintenances is not valid.
    pub(crate) fn find<'a>(
        name: &str,
        all: impl IntoIterator<Item = &'a Arc<NodeMaintenance>>,
    ) -> Result<Option<Self>, RollError> {
        let (mut nodes, mut newest, mut settings) = (Vec::new(), None::<RollRecord>, None);
        let mut settings_text = None;
        for object in all.into_iter().filter(|object| roll_name(object) == Some(name)) {
            // Commands and selectors contain the name.
            if !node::is_valid_name(&object.spec.node_name) {
                return Err(RollError::InvalidNode {
                    maintenance: object.name_any(),
                    node: object.spec.node_name.clone(),
                });
            }
            let record = required(object, NODE)?;
            // Nearly always all maintenances have the same text, which may contain a whole Job.
            let text = annotation_text(object, SETTINGS);
            if text.is_none() || text != settings_text {
                settings.get_or_insert(required(object, SETTINGS)?);
                settings_text = text;
            }
            let state = parse::<RollRecord>(object, STATE)?;
            let revision = state.as_ref().map(|state| state.revision);
            newest = newest.into_iter().chain(state).max_by_key(|state| state.revision);
            nodes.push(RollNode { object: Arc::clone(object), record, revision });
        }
        nodes.sort_by_key(|node: &RollNode| node.record.position);
        Ok(settings.map(|settings| Self { name: name.to_owned(), settings, nodes, record: newest }))
    }

    /// The maintenance that has the record of the roll: the last one that is not about to be deleted.
    pub(crate) fn anchor(&self, record: &RollRecord) -> Option<&RollNode> {
        let stays = |node: &&RollNode| {
            !node.is_deleted() && !record.returned.iter().any(|returned| returned.node == node.node())
        };
        self.nodes
            .iter()
            .filter(stays)
            .max_by_key(|node| (node.record.position, Reverse(node.object.name_any())))
    }

    /// The record of a roll whose maintenances are all created; an empty one if it was interrupted right after that.
    pub(crate) fn complete_record(&self) -> Result<RollRecord, RollError> {
        let (created, all) = (self.nodes.len(), self.settings.nodes());
        match &self.record {
            Some(record) => Ok(record.clone()),
            None if created == all => Ok(RollRecord::default()),
            None => Err(RollError::Incomplete { name: self.name.clone(), created, all }),
        }
    }

    pub(crate) fn node(&self, name: &str) -> Option<&RollNode> {
        self.nodes.iter().find(|node| node.node() == name)
    }
}

impl RollRecord {
    /// The next revision.
    pub(crate) fn next(&self) -> Self {
        Self { revision: self.revision.saturating_add(1), ..self.clone() }
    }
}

/// The names of the rolls that maintenances are part of.
pub(crate) fn roll_names(all: &[NodeMaintenance]) -> Vec<&str> {
    let mut names: Vec<&str> = all.iter().filter_map(roll_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A value as the text of an annotation.
pub(crate) fn annotation(value: &impl Serialize) -> String {
    // Maps with text keys and finite numbers are always valid JSON.
    serde_json::to_string(value).unwrap_or_default()
}

/// A merge patch of an annotation, for an object at exactly this version.
pub(crate) fn annotation_patch(object: &NodeMaintenance, annotation: &str, value: &impl Serialize) -> Value {
    json!({"metadata": {
        "uid": object.metadata.uid,
        "resourceVersion": object.metadata.resource_version,
        "annotations": {annotation: self::annotation(value)},
    }})
}

fn annotation_text<'a>(object: &'a NodeMaintenance, annotation: &str) -> Option<&'a String> {
    object.metadata.annotations.as_ref()?.get(annotation)
}

fn required<T: DeserializeOwned>(object: &NodeMaintenance, annotation: &'static str) -> Result<T, RollError> {
    let missing = || RollError::NoRecord { maintenance: object.name_any(), annotation };
    parse(object, annotation)?.ok_or_else(missing)
}

fn parse<T: DeserializeOwned>(
    object: &NodeMaintenance,
    annotation: &'static str,
) -> Result<Option<T>, RollError> {
    let text = annotation_text(object, annotation);
    let invalid = |source| RollError::InvalidRecord { maintenance: object.name_any(), annotation, source };
    text.map(|text| serde_json::from_str(text)).transpose().map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_is_refused_if_it_has_a_node_name_that_no_node_can_have() {
        for name in ["n1; reboot", "$(reboot)", "`reboot`", "../n1", "-oProxyCommand=x", "n1\nn2", ""] {
            let object: NodeMaintenance = serde_json::from_value(json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "n1", "labels": {LABEL: "r"}},
                "spec": {"nodeName": name},
            }))
            .unwrap();
            let refused = Roll::find("r", &[Arc::new(object)]);
            assert!(matches!(refused, Err(RollError::InvalidNode { .. })), "{name:?}: {refused:?}");
        }
    }
}
