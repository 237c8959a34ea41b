//! What the decisions of a roll depend on apart from its maintenances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::args::duration;
use crate::roll::record::Step;

/// A node as the gates read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeView {
    /// Since when this program has seen the node Ready without interruption; none if it is not Ready.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) boot_id: String,
    /// Its conditions that report pressure.
    pub(crate) pressure: BTreeSet<String>,
}

/// The health of what is probed for a node: its DaemonSet pods while it is [`Step::Checking`], and what its drain disturbed
/// while it is [`Step::Recovering`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Healthy,
    /// What is not healthy.
    Waiting(String),
}

/// The command or the Job for a node, as this program has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActionState {
    Running,
    Succeeded,
    /// The command lost its connection, as `ssh NODE reboot` does: exit code 255.
    Disconnected,
    Failed(String),
}

/// What is observed apart from the maintenances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// Since when this program runs the roll. No gate times out because of the time before.
    pub(crate) started: Timestamp,
    /// The id of this program.
    pub(crate) runner: String,
    /// Whether the maintenances and nodes are up to date, as far as is known.
    pub(crate) is_current: bool,
    pub(crate) nodes: BTreeMap<String, NodeView>,
    pub(crate) health: BTreeMap<(String, Step), Health>,
    pub(crate) actions: BTreeMap<String, ActionState>,
    /// The answers to the question whether the roll goes on with a drained node.
    pub(crate) confirmed: BTreeMap<String, bool>,
    /// Why the maintenance of a node cannot begin yet.
    pub(crate) refused: BTreeMap<String, String>,
}

impl Observed {
    pub(super) fn elapsed(&self, since: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(since)).unwrap_or_default()
    }

    /// Whether a gate that is waited for since then has timed out. The time before this program started does not count.
    pub(super) fn has_timed_out(&self, since: Timestamp, seconds: u64) -> bool {
        self.elapsed(since.max(self.started)) >= Duration::from_secs(seconds)
    }
}

/// A number of seconds as people write it.
pub(super) fn shown(seconds: u64) -> String {
    duration::show(Duration::from_secs(seconds))
}
