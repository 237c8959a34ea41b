//! What was read to explain a node of a roll.

use jiff::{SignedDuration, Timestamp};
use nm_core::explain::cluster_facts::ClusterFacts;

/// A read that is this old is repeated.
pub(super) const REREAD_AFTER: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct ExplainedNode {
    /// The node; empty if none is explained.
    pub(super) node: String,
    /// When what its causes depend on was requested.
    pub(super) requested: Option<Timestamp>,
    /// What its causes depend on, once it is read.
    pub(super) facts: Option<Box<ClusterFacts>>,
}

impl ExplainedNode {
    /// Turns to a node, and drops what was read of another one. Returns whether this node was explained before.
    pub(super) fn turn_to(&mut self, node: &str) -> bool {
        let is_same = self.node == node;
        if !is_same {
            *self = Self { node: node.to_owned(), ..Self::default() };
        }
        is_same
    }
}
