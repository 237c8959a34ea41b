//! What the dashboard wants done outside of itself.

use nm_shared::NodeMaintenance;

/// Something to be done by others than `update`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Watch the pods of this node and the events about it, instead of those of another.
    Open(String),
    /// Watch no node's pods any more.
    Close,
    /// Begin every watch anew, now, and draw everything anew.
    Reconnect,
    /// Create these maintenances.
    Start(Vec<NodeMaintenance>),
    /// Delete the maintenances of these names, unless they are others than those with these uids.
    Stop(Vec<(String, String)>),
    /// Put this on the clipboard of the user's terminal (OSC 52).
    Copy(String),
    /// Stop as Ctrl-Z does, and take the screen again afterwards.
    Suspend,
    /// Give the screen back and end.
    Quit,
}
