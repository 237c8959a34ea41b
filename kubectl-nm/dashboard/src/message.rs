//! The messages that change the model, and the effects that `update` returns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use nm_core::client::watch_stream::WatchChange;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::cluster_facts::{ClusterFacts, FactsToRead};
use nm_core::explain::lasting_outages::{KnownOutages, SeenOutages};
use nm_core::leader::gap::LeaderGap;
use nm_core::maintenance::roll::RollRunners;
use nm_shared::NodeMaintenance;

use crate::model::dialogs::pod_dialog::{PodAction, PodFacts, PodTarget, in_words};
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest};
use crate::model::panes::output::OutputChange;
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::node_pod::NodePod;
use crate::objects::replacements::{ReplacementChange, ReplacementScope};
use crate::objects::watch_state::{PodCountError, WatchKind, WatchState};

#[derive(Debug)]
pub(crate) enum Message {
    Input(crossterm::event::Event),
    /// The clock ticked; once a second.
    Tick(Timestamp),
    Maintenances(WatchChange<NodeMaintenance>),
    Nodes(WatchChange<NodeMetadata>),
    Pods {
        /// The node of the watch. A watch on a node that was closed meanwhile may still deliver messages.
        node: String,
        change: WatchChange<NodePod>,
    },
    Events {
        node: String,
        change: WatchChange<Event>,
    },
    /// From a watch for the tree of replacements.
    Replacements {
        node: String,
        scope: ReplacementScope,
        change: ReplacementChange,
    },
    Watch {
        kind: WatchKind,
        /// The node of the watch, if it is on one; see [`Message::Pods`].
        node: Option<String>,
        state: WatchState,
    },
    /// Why no reconciler leads; none if one does, or if that is not known.
    Leader(Option<LeaderGap>),
    /// How many pods run on nodes; an error ends a count early.
    PodCounts {
        counts: Vec<(String, usize)>,
        error: Option<PodCountError>,
    },
    /// The plan of what was typed in the start dialog.
    Planned {
        request: PlanRequest,
        plan: DrainPlan,
    },
    /// What is known of the pod that a dialog is about.
    PodFacts {
        action: PodAction,
        target: PodTarget,
        result: Result<Box<PodFacts>, Error>,
    },
    /// What the cluster shows behind the budgets of a node.
    CauseFacts {
        node: String,
        facts: Box<ClusterFacts>,
    },
    /// The workloads that drains have left without a ready pod, each with its namespace, by the uids of the maintenances.
    Outages(BTreeMap<String, SeenOutages>),
    /// From the run of kubectl with this number.
    Output {
        id: u64,
        change: OutputChange,
    },
    /// The answer to the request with this number.
    Answered {
        id: u64,
        outcome: Result<String, CommandError>,
    },
    /// A program that we started, such as a credential plugin, wrote to standard error.
    ProgramOutput(String),
    /// The watches on a node have ended, so that its data grows old. Only in recordings.
    NodeClosed(String),
    /// The recording ended early, for this reason.
    RecordingFailed(String),
}

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Some requests failed; the error is that of the first.
    #[error("{name}{}: {}{}", if *others > 0 { format!(" and {others} more") } else { String::new() },
        in_words(source), succeeded.as_ref().map(|words| format!("; {words}")).unwrap_or_default())]
    Refused { name: String, others: usize, source: Box<Error>, succeeded: Option<String> },
    /// The API server's answer to an eviction, in words.
    #[error("{pod}: {answer}")]
    NotEvicted { pod: String, answer: String },
    /// The dashboard ended before the answer. `flags` are the connection flags, each with a space before it.
    #[error(
        "the API server did not answer a request of the dashboard, which may have succeeded; \
         run `kubectl nm status{flags}` to check"
    )]
    NoAnswer { flags: String },
}

#[cfg(test)]
impl CommandError {
    /// One request that failed.
    pub(crate) fn refused(name: &str) -> Self {
        Self::Refused { name: name.to_owned(), others: 0, source: Box::new(Error::Declined), succeeded: None }
    }
}

/// An action outside of the model, carried out in `run`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Watch the pods of this node and the events about it, and stop watching those of another.
    Open(String),
    Close,
    /// Watch these nodes, and no others, beside the open one.
    Follow(BTreeSet<String>),
    /// Watch this for the tree of replacements of the open node, beside what is watched for it already.
    WatchReplacements(BTreeSet<ReplacementScope>),
    /// Watch whole nodes instead of their metadata, from now on.
    WatchWholeNodes,
    /// Count the pods on these nodes.
    CountPods(Vec<String>),
    /// Read what is behind the budgets of this node. These are the maintenances of all nodes, and who runs their rolls.
    ReadCauses {
        node: String,
        wanted: FactsToRead,
        all: Vec<Arc<NodeMaintenance>>,
        rolls: RollRunners,
    },
    /// Read which workloads the drains of these maintenances have left without a ready pod.
    ReadOutages(Vec<KnownOutages>),
    /// Make the plan of the start dialog, a moment after the last such request.
    Plan(PlanRequest),
    /// Make it at once, within the time for which `start` waits.
    CheckPlan(PlanRequest),
    /// The plan is not needed any more.
    CancelPlan,
    /// Restart every watch now, and redraw the whole screen.
    Reconnect,
    /// Change something in the cluster; [`Message::Answered`] has the same number.
    Send {
        id: u64,
        request: ClusterRequest,
    },
    /// Find out what there is to know of a pod before this is done.
    LookUp {
        action: PodAction,
        target: PodTarget,
    },
    /// Run kubectl with these arguments and show what it prints; this ends an earlier run.
    Read {
        id: u64,
        arguments: Vec<String>,
    },
    /// Nobody reads what kubectl prints any more.
    StopReading,
    /// Copy this to the clipboard of the user's terminal (OSC 52).
    Copy(String),
    /// Suspend as Ctrl-Z does, and take the screen again afterwards.
    Suspend,
    /// End, because the goal was reached or never will be.
    End(Exit),
    /// Release the screen and end.
    Quit,
}

/// What the dashboard changes in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClusterRequest {
    /// Create the maintenances; those that are suspended are planned.
    Start(Vec<NodeMaintenance>),
    /// Delete exactly these maintenances.
    Stop(Vec<Arc<NodeMaintenance>>),
    /// Stop these maintenances, and leave their nodes cordoned.
    StopKeepingCordons(Vec<Arc<NodeMaintenance>>),
    /// Pause the maintenances, or resume them.
    Pause { targets: Vec<Arc<NodeMaintenance>>, pause: bool },
    /// Request the eviction of the pod with this uid.
    Evict { target: PodTarget, uid: String },
    /// Delete the pod, if it still has this uid.
    DeletePod { target: PodTarget, uid: String },
}

impl ClusterRequest {
    /// Whether it comes from a dialog whose plan nobody reads any more.
    pub(crate) fn ends_plan(&self) -> bool {
        match self {
            Self::Start(_) => true,
            Self::Pause { pause, .. } => !pause,
            Self::Stop(_) | Self::StopKeepingCordons(_) | Self::Evict { .. } | Self::DeletePod { .. } => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_drains_ends_the_plan_of_a_dialog() {
        assert!(ClusterRequest::Start(Vec::new()).ends_plan());
        assert!(!ClusterRequest::Stop(Vec::new()).ends_plan());
        for pause in [true, false] {
            assert_eq!(ClusterRequest::Pause { targets: Vec::new(), pause }.ends_plan(), !pause);
        }
    }
}
