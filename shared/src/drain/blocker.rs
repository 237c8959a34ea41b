//! What blocks a pod.

use jiff::Timestamp;

use crate::api::status::{BlockFacts, BlockReason, truncated};

/// What blocks a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The machine-readable reason.
    pub reason: BlockReason,
    /// The human-readable message.
    pub message: String,
    /// The facts in the message.
    pub facts: BlockFacts,
    /// The time since which the pod is in this state, if that is known.
    pub since: Option<Timestamp>,
    /// The number of refused evictions.
    pub refusals: u32,
}

/// The owners of pods, budgets and webhooks choose how long a message becomes, and 50 of them must fit into one object.
const MAX_MESSAGE_BYTES: usize = 1024;

impl Blocker {
    pub(crate) fn new(reason: BlockReason, message: impl Into<String>) -> Self {
        let message = truncated(message.into(), MAX_MESSAGE_BYTES);
        Self { reason, message, facts: BlockFacts::default(), since: None, refusals: 0 }
    }

    pub(crate) fn with(self, facts: BlockFacts) -> Self {
        Self { facts, ..self }
    }
}
