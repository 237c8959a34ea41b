//! What is recorded of the commands and Jobs of a node.

use serde::{Deserialize, Serialize};

/// A command or a Job of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    /// From 1. It is begun again after it has failed.
    pub(crate) attempt: u32,
    /// [`ActionState::Running`] unless its end was seen: if no program runs it, how it ended is unknown.
    pub state: ActionState,
}

impl ActionRecord {
    /// Whether it runs, or its end was not seen.
    pub fn is_running(&self) -> bool {
        self.state == ActionState::Running
    }
}

/// How far a command or a Job has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActionState {
    /// It runs, or its end was not seen.
    Running,
    /// The command returned exit code 0, or the Job is complete.
    Succeeded,
    /// The command lost its connection, as `ssh NODE reboot` does: exit code 255.
    Disconnected,
    /// The action failed; why.
    Failed(String),
    /// All pods failed that the Job may have, also because their node reboots.
    JobFailed(String),
    /// Nothing of the Job has run: it could not be created, or none of its pods has started; why.
    NotStarted(String),
}
