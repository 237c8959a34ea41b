//! What a replay adds to the model: where in the recording it is, and the nodes that are not open.
//!
//! A recording has the nodes that were watched when it was made, and whoever replays it opens others at other times. So in a
//! replay every recorded node is kept as an open one is, and opening it only shows it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::model::open_node::OpenNode;

/// Where the replay is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplayStatus {
    /// The recorded time.
    pub(crate) at: Timestamp,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// How many times as fast as it was.
    pub(crate) speed: f64,
    pub(crate) is_paused: bool,
    /// Whether it is on its way to another position.
    pub(crate) is_seeking: bool,
}

impl ReplayStatus {
    pub(crate) fn position(&self) -> SignedDuration {
        self.at.duration_since(self.start)
    }

    pub(crate) fn length(&self) -> SignedDuration {
        self.end.duration_since(self.start)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.at >= self.end && !self.is_seeking
    }

    /// The position in thousandths of the length.
    pub(crate) fn permille(&self) -> i32 {
        let (position, length) = (self.position().as_millis(), self.length().as_millis().max(1));
        i32::try_from(position.saturating_mul(1000) / length).unwrap_or(1000).clamp(0, 1000)
    }
}

/// Nodes that are not open: the recorded ones in a replay, and else those that are watched for the panel, or because their drain
/// is under way, so that what left a node before it is opened is known then. What left them is kept as long as they are in
/// maintenance.
#[derive(Debug, Clone, Default)]
pub(crate) struct BackgroundNodes(BTreeMap<String, OpenNode>);

impl BackgroundNodes {
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenNode> {
        self.0.values_mut()
    }

    /// The node, which is kept from now on.
    pub(crate) fn get(&mut self, node: &str) -> &mut OpenNode {
        self.0.entry(node.to_owned()).or_insert_with(|| OpenNode::new(node))
    }

    /// The node, if it is kept.
    pub(crate) fn known(&self, node: &str) -> Option<&OpenNode> {
        self.0.get(node)
    }

    pub(crate) fn known_mut(&mut self, node: &str) -> Option<&mut OpenNode> {
        self.0.get_mut(node)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&OpenNode) -> bool) {
        self.0.retain(|_, node| keep(node));
    }

    pub(crate) fn take(&mut self, node: &str) -> Option<OpenNode> {
        self.0.remove(node)
    }

    pub(crate) fn keep(&mut self, node: OpenNode) {
        self.0.insert(node.name.clone(), node);
    }
}
