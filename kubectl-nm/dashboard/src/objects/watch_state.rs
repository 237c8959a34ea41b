//! What is known of the watches and of the counts of pods.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum WatchKind {
    Maintenances,
    Nodes,
    Pods,
    Events,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// Not listed yet, or not since the watches were restarted.
    Connecting,
    Live,
    /// The connection is lost, and is retried.
    Lost {
        /// Since when the data may be out of date.
        since: Timestamp,
        error: String,
    },
    /// The user has no permission; the text is the server's. It is not retried until the user asks for it.
    Forbidden(String),
    /// A replay has nothing of it: nobody watched it when the recording was made.
    Unrecorded,
}

/// Why pods were not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodCountError {
    /// The user has no permission; it is not tried again until the user asks for it.
    Forbidden,
    /// Anything else; it is tried again after a while.
    Failed,
}
