//! The state of a roll, which is kept in annotations of its maintenances and nowhere else.
//!
//! Each maintenance of the roll has the settings of the roll and the [`NodeRecord`] of its node. Before the roll deletes a
//! maintenance, so that its node returns to service, it adds a finalizer to it. The finalizer keeps the object, with its
//! records, until the node has recovered and soaked. The [`RollRecord`] is about the roll as a whole. It is in one of the
//! maintenances, the anchor: the last one in the order that is not done. Before the anchor is done, the record is written to
//! another maintenance; the record with the highest `revision` counts.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use nm_core::maintenance::departures::Departures;
use nm_core::maintenance::{pods_in_all, status};
use nm_shared::api::names::PRE_DRAIN_HOOK;
use nm_shared::cluster::node;
use nm_shared::gate::ownership;
use nm_shared::{Hook, NodeMaintenance};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::absence::{AbsentNode, LeftNode};
use crate::error::RollError;
use crate::settings::RollSettings;

pub use crate::action_record::{ActionRecord, ActionState};
pub(crate) use crate::health_record::DisturbedKind;
pub use crate::health_record::DisturbedObject;
pub use crate::health_record::{Baseline, Health, ProbedHealth};
pub use crate::totals::{DoneNodes, EarlierPods};
pub use nm_core::maintenance::roll::{
    HEARTBEAT_TIMEOUT, Halt, HaltCause, NODE, Pause, Runner, SETTINGS, STATE, Step,
};
pub use nm_core::maintenance::{ROLL_FINALIZER as FINALIZER, ROLL_LABEL as LABEL, roll_name};

/// The annotation by which a roll holds the first eviction of a node until the command or the Job of `--before` has ended.
pub fn hook() -> String {
    format!("{PRE_DRAIN_HOOK}/roll")
}

pub use nm_core::maintenance::roll_hook_owner as hook_owner;

/// All annotations of an object together may have 256 KiB.
const MAX_NAMES_BYTES: usize = 160 * 1024;

/// The record of a node, in an annotation of its maintenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// From 0.
    pub wave: usize,
    /// In the order of the whole roll, from 0.
    pub position: usize,
    /// Current step.
    pub step: Step,
    /// When the step started.
    pub since: Timestamp,
    /// When its maintenance began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The [working time](RollRecord::worked_millis) of the roll, in milliseconds, when its maintenance began.
    #[serde(default)]
    pub began_millis: i64,
    /// Its bootID when its drain had ended or, if there is an action, when that began. With `--expect-reboot` it has to change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The command or the Job of `--before`; none before it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ActionRecord>,
    /// None before the command or the Job has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionRecord>,
    /// The command or the Job of `--after`; none before it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ActionRecord>,
    /// What was unhealthy before the maintenance started.
    #[serde(default)]
    pub baseline: Baseline,
}

impl NodeRecord {
    /// The record of a node that has not begun.
    pub fn planned(wave: usize, position: usize, since: Timestamp) -> Self {
        Self {
            wave,
            position,
            step: Step::Planned,
            since,
            began: None,
            began_millis: 0,
            boot_id: String::new(),
            before: None,
            action: None,
            after: None,
            baseline: Baseline::default(),
        }
    }

    /// The command or the Job of a step; none before it has begun.
    pub fn action_of(&self, step: Step) -> Option<&ActionRecord> {
        match step {
            Step::Preparing => self.before.as_ref(),
            Step::Acting => self.action.as_ref(),
            Step::Finishing => self.after.as_ref(),
            _ => None,
        }
    }

    /// The command or the Job of its current step; none before it has begun.
    pub fn current_action(&self) -> Option<&ActionRecord> {
        self.action_of(self.step)
    }

    /// The command or the Job of its current step if it has ended, and the step has not.
    pub fn failed_action(&self) -> Option<&ActionRecord> {
        self.current_action()
            .filter(|action| !matches!(action.state, ActionState::Running | ActionState::Succeeded))
    }

    /// The record with this about the command or the Job of its current step.
    pub(crate) fn with_action(mut self, action: ActionRecord) -> Self {
        let field = match self.step {
            Step::Preparing => &mut self.before,
            Step::Finishing => &mut self.after,
            _ => &mut self.action,
        };
        *field = Some(action);
        self
    }
}

/// The record of the roll as a whole, in an annotation of the anchor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollRecord {
    /// Number of times that the record was written; the highest revision counts.
    pub revision: u64,
    /// When the roll began; none if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The program that runs the roll; `None` if it has ended properly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
    /// Whether no further node and no further action begins, because somebody paused the roll.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Who paused it, and when; none if it is not paused, or if somebody aborted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Why the roll halted; `None` while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// Who aborted the roll. Nodes whose action had begun are finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// Whether somebody waits for a heartbeat, to know whether the runner is alive.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// The nodes that count as [`done`](Self::done), and whose maintenances are not gone yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
    /// The nodes that the roll began with and that are not done; none if their names are too long for an annotation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The nodes whose `Node` objects were deleted, and their maintenances with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<AbsentNode>,
    /// The nodes that have left the roll although they are not done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftNode>,
    /// The nodes that somebody took out of the roll with `--skip`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Totals of the nodes that are done.
    pub done: DoneNodes,
    /// The pods that are gone from the other nodes whose maintenances have ended.
    #[serde(skip_serializing_if = "EarlierPods::is_empty")]
    pub gone: EarlierPods,
    /// For how many milliseconds a program has run the roll, without the time while it was paused or halted.
    pub worked_millis: i64,
    /// What the program that runs the roll has found when it last probed its nodes. It writes this with its heartbeat only, for
    /// those who show the roll.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<ProbedHealth>,
    /// Of how many nodes nothing is known, because an earlier record was deleted with its maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<usize>,
}

/// A maintenance of a roll.
#[derive(Clone, Debug)]
pub struct RollNode {
    /// The maintenance.
    pub object: Arc<NodeMaintenance>,
    /// The record in its annotation.
    pub record: NodeRecord,
    /// The revision of the record of the roll that this object has.
    pub revision: Option<u64>,
}

impl RollNode {
    /// # Errors
    ///
    /// When the node's name or the record is not valid.
    pub(crate) fn of(object: &Arc<NodeMaintenance>) -> Result<Self, RollError> {
        // Commands and selectors contain the name.
        if !node::is_valid_name(&object.spec.node_name) {
            return Err(RollError::InvalidNode {
                roll: roll_of(object),
                maintenance: object.name_any(),
                node: object.spec.node_name.clone(),
            });
        }
        let record = required(object, NODE)?;
        let revision = RollRecord::of(object)?.map(|state| state.revision);
        Ok(Self { object: Arc::clone(object), record, revision })
    }

    /// Whether one of its commands or Jobs has begun or, without one, its drain has ended, and it is not back in service.
    pub fn is_worked_on(&self) -> bool {
        let NodeRecord { step, before, action, .. } = &self.record;
        *step < Step::Returning && (*step > Step::Acting || before.is_some() || action.is_some())
    }

    /// Whether somebody has started its drain before its turn.
    pub fn is_started_early(&self) -> bool {
        self.record.step == Step::Planned && !self.object.spec.suspend && status(&self.object).has_begun()
    }

    /// Whether the roll holds its first eviction.
    pub(crate) fn is_hooked(&self) -> bool {
        self.object.annotations().contains_key(&hook())
    }

    /// How many of the pods that had to go are gone, and how many there were.
    pub(crate) fn pods(&self) -> (i64, i64) {
        let status = status(&self.object);
        (status.pod_counts.gone.into(), pods_in_all(status).into())
    }

    /// What became of the pods that are gone, if its drain reports that.
    pub fn departures(&self) -> Option<Departures> {
        let status = status(&self.object);
        Departures::of(status, status.pod_counts.gone)
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.object.spec.node_name
    }

    /// Whether its drain is under way, or waits for the command or the Job of `--before`.
    pub(crate) fn is_in_drain(&self) -> bool {
        matches!(self.record.step, Step::Preparing | Step::Draining)
    }

    /// Whether its drain is under way and not paused.
    pub(crate) fn drains(&self) -> bool {
        self.is_in_drain() && !self.object.spec.suspend
    }

    /// Whether its `Node` object was deleted, and its maintenance with it: the object is what is created again.
    pub(crate) fn is_absent(&self) -> bool {
        self.object.metadata.uid.is_none()
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Whether the roll keeps the object although it is deleted.
    pub(crate) fn is_kept(&self) -> bool {
        is_kept(&self.object)
    }

    /// Whether somebody has deleted the maintenance: the node leaves the roll.
    pub fn is_leaving(&self) -> bool {
        self.is_deleted() && !self.is_kept()
    }

    /// Whether hooks keep nm-reconciler from returning the node to service.
    pub(crate) fn is_return_held(&self) -> bool {
        !self.is_in_service() && !Hook::before_return(&self.object.metadata).is_empty()
    }

    /// Whether nm-reconciler has returned the node to service.
    pub fn is_in_service(&self) -> bool {
        ownership::is_released(&self.object)
    }
}

/// A roll as its maintenances describe it.
#[derive(Clone, Debug)]
pub struct Roll {
    /// Name of the roll.
    pub name: String,
    /// The settings in the annotations.
    pub settings: RollSettings,
    /// In the order of the roll.
    pub nodes: Vec<RollNode>,
    /// None while its maintenances are being created.
    pub record: Option<RollRecord>,
}

impl Roll {
    /// The roll of this name among maintenances; none if there is none of it.
    ///
    /// # Errors
    ///
    /// When an annotation of one of its maintenances is not valid.
    pub fn find<'a>(
        name: &str,
        all: impl IntoIterator<Item = &'a Arc<NodeMaintenance>>,
    ) -> Result<Option<Self>, RollError> {
        let (mut nodes, mut newest, mut settings) = (Vec::new(), None::<RollRecord>, None);
        let mut settings_text = None;
        for object in all.into_iter().filter(|object| roll_name(object) == Some(name)) {
            let node = RollNode::of(object)?;
            // Nearly always all maintenances have the same text, which may contain a whole Job.
            let text = annotation_text(object, SETTINGS);
            if text.is_none() || text != settings_text {
                settings.get_or_insert(required(object, SETTINGS)?);
                settings_text = text;
            }
            let state = RollRecord::of(object)?;
            newest = newest.into_iter().chain(state).max_by_key(|state| state.revision);
            nodes.push(node);
        }
        nodes.sort_by_key(|node: &RollNode| node.record.position);
        Ok(settings.map(|settings| Self { name: name.to_owned(), settings, nodes, record: newest }))
    }

    /// Whether this is the roll that was read earlier. All maintenances of a later roll of the same name are new.
    pub(crate) fn is_same(&self, earlier: &Self) -> bool {
        let is_known = |node: &RollNode| {
            earlier.nodes.iter().any(|known| known.object.metadata.uid == node.object.metadata.uid)
        };
        self.nodes.iter().any(|node| !node.is_absent() && is_known(node))
    }

    /// The maintenance that has the record of the roll: the last one that is not done, or else the last one.
    pub(crate) fn anchor(&self, record: &RollRecord) -> Option<&RollNode> {
        let is_left = |node: &RollNode| !record.released.iter().any(|released| released == node.node());
        self.staying()
            .max_by_key(|node| (is_left(node), node.record.position, Reverse(node.object.name_any())))
    }

    /// The nodes whose maintenances exist and are not being deleted.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &RollNode> {
        self.nodes.iter().filter(|node| !node.is_leaving() && !node.is_absent())
    }

    /// The record of a roll whose maintenances are all created. If it was interrupted right after that, an empty one. If
    /// somebody has deleted the maintenance with the record, what the others show of it.
    ///
    /// # Errors
    ///
    /// If not all maintenances were created ([`RollError::Incomplete`]).
    pub fn complete_record(&self) -> Result<RollRecord, RollError> {
        let (created, all) = (self.nodes.len(), self.settings.nodes());
        match &self.record {
            Some(record) => Ok(record.clone()),
            None if self.is_record_lost() => Ok(RollRecord {
                worked_millis: self.nodes.iter().map(|node| node.record.began_millis).max().unwrap_or(0),
                unknown: Some(all.saturating_sub(created)),
                ..RollRecord::default()
            }),
            None if created == all => Ok(RollRecord::default()),
            None => Err(RollError::Incomplete { name: self.name.clone(), created, all }),
        }
    }

    /// Whether the maintenance with the record of the roll was deleted. Before the first node begins, that cannot be
    /// distinguished from a roll whose maintenances were not all created.
    pub fn is_record_lost(&self) -> bool {
        self.record.is_none() && self.nodes.iter().any(|node| node.record.began.is_some())
    }

    /// Whether all maintenances of the roll have these settings. Others may write them.
    pub fn has_only(&self, settings: &RollSettings) -> bool {
        let stored = |node: &RollNode| parse::<RollSettings>(&node.object, SETTINGS).ok().flatten();
        self.nodes.iter().all(|node| stored(node).as_ref() == Some(settings))
    }

    /// The nodes whose health is checked in their step.
    pub(crate) fn checked_nodes(&self) -> impl Iterator<Item = &RollNode> {
        let is_checked = |node: &&RollNode| matches!(node.record.step, Step::Checking | Step::Recovering);
        self.nodes.iter().filter(is_checked).filter(|node| !node.is_leaving())
    }

    /// The node of this name; `None` if it has no maintenance in the roll.
    pub fn node(&self, name: &str) -> Option<&RollNode> {
        self.nodes.iter().find(|node| node.node() == name)
    }
}

impl RollRecord {
    /// The record that a maintenance has; none if it has none.
    pub(crate) fn of(object: &NodeMaintenance) -> Result<Option<Self>, RollError> {
        parse(object, STATE)
    }

    /// `paused by ada@laptop at 2026-01-02 03:04:05 UTC`, as far as that is known: for lines that are printed once.
    pub(crate) fn paused_words(&self) -> String {
        self.pause.as_ref().map_or_else(
            || String::from("paused"),
            |Pause { by, at }| format!("paused by {by} at {}", at.strftime("%Y-%m-%d %H:%M:%S UTC")),
        )
    }

    /// The next revision.
    pub(crate) fn next(&self) -> Self {
        Self { revision: self.revision.saturating_add(1), ..self.clone() }
    }
}

/// Whether a roll keeps the object although it is deleted.
pub(crate) fn is_kept(object: &NodeMaintenance) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The finalizers of an object with that of the roll, or without it.
pub(crate) fn finalizers(object: &NodeMaintenance, is_kept: bool) -> Vec<String> {
    let others = object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER);
    others.cloned().chain(is_kept.then(|| FINALIZER.to_owned())).collect()
}

/// The names of the nodes of a roll, as they fit into its record.
pub fn node_names(roll: &Roll) -> Vec<String> {
    let bytes = roll.nodes.iter().fold(0_usize, |bytes, node| bytes.saturating_add(node.node().len() + 3));
    if bytes > MAX_NAMES_BYTES {
        return Vec::new();
    }
    roll.nodes.iter().map(|node| node.node().to_owned()).collect()
}

/// The names of the rolls that maintenances are part of.
pub fn roll_names(all: &[NodeMaintenance]) -> Vec<&str> {
    let mut names: Vec<&str> = all.iter().filter_map(roll_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A value as the text of an annotation.
pub fn annotation(value: &impl Serialize) -> String {
    // Maps with text keys and finite numbers are always valid JSON.
    serde_json::to_string(value).unwrap_or_default()
}

/// A merge patch of an annotation, for an object at exactly this version.
pub fn annotation_patch(object: &NodeMaintenance, annotation: &str, value: &impl Serialize) -> Value {
    let mut patch = version_patch(object);
    patch["metadata"]["annotations"] = json!({annotation: self::annotation(value)});
    patch
}

/// A merge patch for an object at exactly this version, which changes nothing yet.
pub(crate) fn version_patch(object: &NodeMaintenance) -> Value {
    let ObjectMeta { uid, resource_version, .. } = &object.metadata;
    json!({"metadata": {"uid": uid, "resourceVersion": resource_version}})
}

fn annotation_text<'a>(object: &'a NodeMaintenance, annotation: &str) -> Option<&'a String> {
    object.metadata.annotations.as_ref()?.get(annotation)
}

fn roll_of(object: &NodeMaintenance) -> String {
    roll_name(object).unwrap_or_default().to_owned()
}

fn required<T: DeserializeOwned>(object: &NodeMaintenance, annotation: &'static str) -> Result<T, RollError> {
    let missing =
        || RollError::NoRecord { roll: roll_of(object), maintenance: object.name_any(), annotation };
    parse(object, annotation)?.ok_or_else(missing)
}

fn parse<T: DeserializeOwned>(
    object: &NodeMaintenance,
    annotation: &'static str,
) -> Result<Option<T>, RollError> {
    let text = annotation_text(object, annotation);
    let invalid = |source| RollError::InvalidRecord {
        roll: roll_of(object),
        maintenance: object.name_any(),
        annotation,
        source,
    };
    text.map(|text| serde_json::from_str(text)).transpose().map_err(invalid)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
