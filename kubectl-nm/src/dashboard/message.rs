//! Everything that can happen to the dashboard.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use nm_shared::NodeMaintenance;

use crate::dashboard::pod_facts::Facts;

/// Something happened.
#[derive(Debug)]
pub(crate) enum Message {
    /// A key, the mouse, a paste, or a new size.
    Input(crossterm::event::Event),
    /// The clock, once a second.
    Tick(Timestamp),
    /// A watch on maintenances.
    Maintenances(Change<NodeMaintenance>),
    /// The watch on nodes.
    Nodes(Change<NodeMarks>),
    /// The watch on the pods of the node that is open.
    Pods {
        /// The node that the watch is on: one that was closed meanwhile may still have a word to say.
        node: String,
        /// What it said; a pod itself does not outlive the page that it came in.
        change: Change<Facts>,
    },
    /// The watch on events about the node that is open and its maintenance.
    Events {
        /// The node that the watch is on.
        node: String,
        /// What it said.
        change: Change<Event>,
    },
    /// How a watch is doing.
    Link {
        /// Which watch.
        feed: Feed,
        /// The node that the watch is on, if it is on one: one that was closed meanwhile may still have a word to say.
        node: Option<String>,
        /// How it is doing.
        link: Link,
    },
    /// What became of a command that changes the cluster.
    Done(Result<String, String>),
    /// What a program that we started, such as one for credentials, would have written on the screen.
    Overheard(String),
}

/// What a watch says. Each replaces or amends what was known.
#[derive(Debug, Clone)]
pub(crate) enum Change<K> {
    /// All objects, at first and after every interruption.
    All(Vec<Arc<K>>),
    /// One is new or changed.
    Applied(Arc<K>),
    /// One is gone; its last state.
    Gone(Arc<K>),
}

/// What the fleet view knows of a node, from its metadata alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeMarks {
    /// Its name.
    pub(crate) name: String,
    /// Whether the cordon of a maintenance is on it, and if so whether it was schedulable before.
    pub(crate) was_schedulable: Option<bool>,
    /// Whether it is of the control plane, by its label.
    pub(crate) control_plane: bool,
}

/// The watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Feed {
    /// Maintenances.
    Maintenances,
    /// Nodes.
    Nodes,
    /// The pods of the node that is open.
    Pods,
    /// Events about it.
    Events,
}

/// How a watch is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// What was said last is so now.
    Live,
    /// The connection is lost; it is being made anew.
    Lost {
        /// Since when.
        since: Timestamp,
        /// Why, in a sentence.
        error: String,
    },
    /// The user lacks the right, in the server's words. Nobody tries again before the user asks for it.
    Forbidden(String),
}
