//! The lines of a recording.
//!
//! Within a version of the format, fields keep their meaning. A recording has no more of an object than a bug report: all
//! objects pass through [`redact`]. Texts of errors are not in it, because they may quote what a credential program printed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::creator::creator_fields;
use nm_core::redact;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::pod::DrainPod;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::Message;
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::node_pod::NodePod;
use crate::objects::replacement_pod::{Replica, ReplicaState, WaitsFor};
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::{PodCountError, WatchKind, WatchState};
use crate::objects::workload::{Workload, WorkloadKind};
use crate::recording::pod_json;

/// The version of the format. A program reads its own version and older ones.
pub const RECORDING_VERSION: u64 = 1;

/// What a replay shows as the cause of a lost connection.
const LOST: &str = "The connection to the API server was lost";

/// What a replay shows as the cause of a missing permission.
const FORBIDDEN: &str = "the user who recorded this had no permission";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The version of the format.
    pub recording: u64,
    /// The version of the program that recorded.
    pub program: String,
    /// When the recording started.
    pub started: Timestamp,
    /// The name of the kubeconfig's context.
    #[serde(default)]
    pub context: String,
    /// The nodes on the command line.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Whether the dashboard began with all nodes of the cluster.
    #[serde(default)]
    pub all_nodes: bool,
}

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordedLine {
    /// First in the line, so that a reader finds it without decoding the message.
    pub(crate) time: Timestamp,
    pub(crate) message: RecordedMessage,
}

/// A message, or that there was none.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum RecordedMessage {
    /// Nothing happened for a while, and the recording continued.
    Idle,
    Maintenances(RecordedChange<RecordedMaintenance>),
    Nodes(RecordedChange<Arc<NodeMetadata>>),
    Pods {
        node: String,
        change: RecordedChange<RecordedPod>,
    },
    Events {
        node: String,
        change: RecordedChange<RecordedEvent>,
    },
    Replicas {
        node: String,
        namespace: String,
        change: RecordedChange<Arc<Replica>>,
    },
    Workloads {
        node: String,
        namespace: String,
        kind: WorkloadKind,
        change: RecordedChange<Arc<Workload>>,
    },
    /// The state of a watch for the tree of replacements: on workloads of a kind, or on pods.
    ReplacementWatch {
        node: String,
        namespace: String,
        kind: Option<WorkloadKind>,
        state: RecordedWatchState,
    },
    Watch {
        kind: WatchKind,
        node: Option<String>,
        state: RecordedWatchState,
    },
    PodCounts {
        counts: BTreeMap<String, usize>,
        #[serde(default)]
        is_forbidden: bool,
    },
    /// The watches on a node ended, because nobody looks at it any more.
    NodeClosed(String),
}

/// [`WatchChange`] in a recording.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RecordedChange<T> {
    Listed(Vec<T>),
    Applied(T),
    Deleted(T),
}

/// [`WatchState`] in a recording, without the texts of errors.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RecordedWatchState {
    Connecting,
    Live,
    Lost { since: Timestamp },
    Forbidden,
}

/// A maintenance, redacted when it is written.
#[derive(Debug, Clone)]
pub(crate) struct RecordedMaintenance(Arc<NodeMaintenance>);

/// A pod, redacted when it is written.
#[derive(Debug, Clone)]
pub(crate) struct RecordedPod(Arc<NodePod>);

/// An event, redacted when it is written.
#[derive(Debug, Clone)]
pub(crate) struct RecordedEvent(Arc<Event>);

impl Serialize for RecordedMaintenance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = serde_json::to_value(&*self.0).map_err(S::Error::custom)?;
        let mut kept = redact::plain(&whole);
        if let Some(fields) = creator_fields(&self.0) {
            kept["metadata"]["managedFields"] = serde_json::to_value(fields).map_err(S::Error::custom)?;
        }
        kept.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordedMaintenance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Arc::deserialize(deserializer).map(Self)
    }
}

impl Serialize for RecordedPod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        pod_json::of(&self.0.pod).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DrainPod::deserialize(deserializer).map(|pod| Self(Arc::new(NodePod::from(pod))))
    }
}

impl Serialize for RecordedEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = serde_json::to_value(&*self.0).map_err(S::Error::custom)?;
        redact::event(&whole).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordedEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Arc::deserialize(deserializer).map(Self)
    }
}

impl<T> RecordedChange<T> {
    fn of<S>(change: &WatchChange<S>, record: impl Fn(Arc<S>) -> T) -> Self {
        match change {
            WatchChange::Listed(all) => Self::Listed(all.iter().cloned().map(record).collect()),
            WatchChange::Applied(one) => Self::Applied(record(Arc::clone(one))),
            WatchChange::Deleted(last) => Self::Deleted(record(Arc::clone(last))),
        }
    }

    fn into_change<S>(self, read: impl Fn(T) -> Arc<S>) -> WatchChange<S> {
        match self {
            Self::Listed(all) => WatchChange::Listed(all.into_iter().map(read).collect()),
            Self::Applied(one) => WatchChange::Applied(read(one)),
            Self::Deleted(last) => WatchChange::Deleted(read(last)),
        }
    }
}

impl From<&WatchState> for RecordedWatchState {
    fn from(state: &WatchState) -> Self {
        match state {
            WatchState::Connecting => Self::Connecting,
            WatchState::Live => Self::Live,
            WatchState::Lost { since, .. } => Self::Lost { since: *since },
            WatchState::Forbidden(_) | WatchState::Unrecorded => Self::Forbidden,
        }
    }
}

impl From<RecordedWatchState> for WatchState {
    fn from(state: RecordedWatchState) -> Self {
        match state {
            RecordedWatchState::Connecting => Self::Connecting,
            RecordedWatchState::Live => Self::Live,
            RecordedWatchState::Lost { since } => Self::Lost { since, error: LOST.to_owned() },
            RecordedWatchState::Forbidden => Self::Forbidden(FORBIDDEN.to_owned()),
        }
    }
}

impl RecordedMessage {
    /// What is recorded of a message; none for those that do not come from the cluster.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        Some(match message {
            Message::Maintenances(change) => {
                Self::Maintenances(RecordedChange::of(change, RecordedMaintenance))
            }
            Message::Nodes(change) => Self::Nodes(RecordedChange::of(change, |node| node)),
            Message::Pods { node, change } => {
                Self::Pods { node: node.clone(), change: RecordedChange::of(change, RecordedPod) }
            }
            Message::Events { node, change } => {
                Self::Events { node: node.clone(), change: RecordedChange::of(change, RecordedEvent) }
            }
            Message::Replacements { node, scope, change } => {
                let (node, namespace) = (node.clone(), scope.namespace.clone());
                match change {
                    ReplacementChange::Replicas(change) => Self::Replicas {
                        node,
                        namespace,
                        change: RecordedChange::of(change, without_termination_message),
                    },
                    ReplacementChange::Workloads(kind, change) => {
                        let change = RecordedChange::of(change, |workload| workload);
                        Self::Workloads { node, namespace, kind: *kind, change }
                    }
                    ReplacementChange::State(state) => {
                        Self::ReplacementWatch { node, namespace, kind: scope.kind, state: state.into() }
                    }
                }
            }
            Message::Watch { kind, node, state } => {
                Self::Watch { kind: *kind, node: node.clone(), state: state.into() }
            }
            Message::PodCounts { counts, error } => Self::PodCounts {
                counts: counts.iter().cloned().collect(),
                is_forbidden: *error == Some(PodCountError::Forbidden),
            },
            Message::NodeClosed(node) => Self::NodeClosed(node.clone()),
            Message::Input(_)
            | Message::Tick(_)
            | Message::Leader(_)
            | Message::Planned { .. }
            | Message::PodFacts { .. }
            | Message::CauseFacts { .. }
            | Message::Outages(_)
            | Message::Output { .. }
            | Message::Answered { .. }
            | Message::ProgramOutput(_)
            | Message::RecordingFailed(_) => return None,
        })
    }

    /// The message to replay; none if there was none.
    pub(crate) fn into_message(self) -> Option<Message> {
        Some(match self {
            Self::Idle => return None,
            Self::Maintenances(change) => Message::Maintenances(change.into_change(|object| object.0)),
            Self::Nodes(change) => Message::Nodes(change.into_change(|node| node)),
            Self::Pods { node, change } => Message::Pods { node, change: change.into_change(|pod| pod.0) },
            Self::Events { node, change } => {
                Message::Events { node, change: change.into_change(|event| event.0) }
            }
            Self::Replicas { node, namespace, change } => Message::Replacements {
                node,
                scope: ReplacementScope { namespace, kind: None },
                change: ReplacementChange::Replicas(change.into_change(|replica| replica)),
            },
            Self::Workloads { node, namespace, kind, change } => Message::Replacements {
                node,
                scope: ReplacementScope { namespace, kind: Some(kind) },
                change: ReplacementChange::Workloads(kind, change.into_change(|workload| workload)),
            },
            Self::ReplacementWatch { node, namespace, kind, state } => Message::Replacements {
                node,
                scope: ReplacementScope { namespace, kind },
                change: ReplacementChange::State(state.into()),
            },
            Self::Watch { kind, node, state } => Message::Watch { kind, node, state: state.into() },
            Self::PodCounts { counts, is_forbidden } => Message::PodCounts {
                counts: counts.into_iter().collect(),
                error: is_forbidden.then_some(PodCountError::Forbidden),
            },
            Self::NodeClosed(node) => Message::NodeClosed(node),
        })
    }
}

/// The message of a container is what its program wrote last, as a rule.
fn without_termination_message(replica: Arc<Replica>) -> Arc<Replica> {
    match &replica.state {
        ReplicaState::Waiting(WaitsFor::Container { name, reason, message }) if !message.is_empty() => {
            let container =
                WaitsFor::Container { name: name.clone(), reason: reason.clone(), message: String::new() };
            Arc::new(Replica { state: ReplicaState::Waiting(container), ..(*replica).clone() })
        }
        _ => replica,
    }
}
