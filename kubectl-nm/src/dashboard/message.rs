//! The messages that change the model, and the effects that `update` returns.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use nm_shared::NodeMaintenance;

use crate::client::watch_stream::WatchChange;
use crate::dashboard::compact_pod::CompactPod;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Message {
    /// A key, the mouse, a paste, or a new size.
    Input(crossterm::event::Event),
    /// The clock ticked; once a second.
    Tick(Timestamp),
    /// The watch on maintenances reported a change.
    Maintenances(WatchChange<NodeMaintenance>),
    /// The watch on node metadata reported a change.
    Nodes(WatchChange<NodeMetadata>),
    /// The watch on the pods of the open node reported a change.
    Pods {
        /// The node of the watch. A watch on a node that was closed meanwhile may still deliver messages.
        node: String,
        /// The change.
        change: WatchChange<CompactPod>,
    },
    /// The watch on events about the open node and its maintenance reported a change.
    Events {
        /// The node of the watch.
        node: String,
        /// The change.
        change: WatchChange<Event>,
    },
    /// The state of a watch changed.
    Watch {
        /// Which watch.
        kind: WatchKind,
        /// The node of the watch, if it is on one; see [`Message::Pods`].
        node: Option<String>,
        /// Its state.
        state: WatchState,
    },
    /// A command that changes the cluster has ended.
    Done(Result<String, String>),
    /// A program that we started, such as a credential plugin, wrote to standard error.
    ProgramOutput(String),
}

/// What the dashboard knows of a node, from its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeMetadata {
    /// Its name.
    pub(crate) name: String,
    /// While the node has the cordon of a maintenance: whether it was schedulable before.
    pub(crate) was_schedulable: Option<bool>,
    /// Whether it has a control-plane label.
    pub(crate) control_plane: bool,
}

/// The watches of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WatchKind {
    /// Maintenances.
    Maintenances,
    /// Nodes.
    Nodes,
    /// Pods of the open node.
    Pods,
    /// Events about the open node and its maintenance.
    Events,
}

/// The state of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// The data is current.
    Live,
    /// The connection is lost, and is retried.
    Lost {
        /// Since when the data may be out of date.
        since: Timestamp,
        /// Why.
        error: String,
    },
    /// The user has no permission; the text is the server's. It is not retried until the user asks for it.
    Forbidden(String),
}

/// An action outside of the model, carried out in `run`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Watch the pods of this node and the events about it, and stop watching those of another.
    Open(String),
    /// Stop watching pods and events.
    Close,
    /// Restart every watch now, and redraw the whole screen.
    Reconnect,
    /// Create these maintenances.
    Start(Vec<NodeMaintenance>),
    /// Delete the maintenances with these names, each only if it still has this uid.
    Stop(Vec<(String, String)>),
    /// Copy this to the clipboard of the user's terminal (OSC 52).
    Copy(String),
    /// Suspend as Ctrl-Z does, and take the screen again afterwards.
    Suspend,
    /// Release the screen and end.
    Quit,
}
