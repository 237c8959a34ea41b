//! A row of the view of all nodes.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::maintenance::State;
use nm_shared::drain::cordon_owner::CordonOwner;

use crate::model::fleet::fleet_row::{Attention, FleetRow, IDLE};
use crate::model::lists::filter::{FilterField, Searchable};
use crate::model::lists::listing::{Row, Sort};
use crate::objects::node_metadata::{NodeMetadata, NodeReadiness};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) node: Arc<NodeMetadata>,
    /// The state of its maintenance, if it has one.
    pub(crate) state: Option<State>,
    /// The order of attention among maintenances.
    attention: Attention,
    /// Its readiness and who cordoned it, for filters.
    words: String,
}

impl NodeRow {
    /// The row of a node, with that of its maintenance.
    pub(crate) fn new(node: Arc<NodeMetadata>, maintenance: &FleetRow) -> Self {
        let details = node.details.as_ref();
        let readiness = details.map_or("", |details| details.readiness.word());
        let cordon = details.and_then(|details| details.cordon.as_ref()).map_or("", cordon_words);
        let words = format!("{readiness} {cordon}");
        Self { node, state: maintenance.state, attention: maintenance.attention(), words }
    }

    pub(crate) fn name(&self) -> &str {
        &self.node.name
    }

    /// Whether the node is Ready; none until whole nodes are listed.
    pub(crate) fn readiness(&self) -> Option<NodeReadiness> {
        Some(self.node.details.as_ref()?.readiness)
    }

    pub(crate) fn cordon(&self) -> Option<&CordonOwner> {
        self.node.details.as_ref()?.cordon.as_ref()
    }

    pub(crate) fn pool(&self) -> &str {
        self.text(|node| node.details.as_ref()?.pool.as_deref())
    }

    pub(crate) fn zone(&self) -> &str {
        self.text(|node| node.details.as_ref()?.zone.as_deref())
    }

    pub(crate) fn version(&self) -> &str {
        self.text(|node| Some(node.details.as_ref()?.version.as_str()))
    }

    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.node.details.as_ref()?.created
    }

    pub(crate) fn state_word(&self) -> &'static str {
        self.state.map_or(IDLE, State::word)
    }

    fn text(&self, of: impl FnOnce(&NodeMetadata) -> Option<&str>) -> &str {
        of(&self.node).unwrap_or_default()
    }

    /// The row as a line of text.
    pub(crate) fn line(&self) -> String {
        let cordon = self.cordon().map(|owner| format!("cordoned by {}", cordon_words(owner)));
        let readiness = self.readiness().map_or("", NodeReadiness::word);
        let parts = [self.name(), readiness, cordon.as_deref().unwrap_or_default(), self.pool(), self.zone()];
        let parts: Vec<&str> =
            parts.into_iter().chain([self.version()]).filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }

    /// Nodes without a pool come last.
    fn place(&self) -> (bool, &str, &str) {
        (self.pool().is_empty(), self.pool(), self.zone())
    }

    /// Nodes without a known age come last.
    fn age(&self) -> (bool, Option<Timestamp>) {
        let created = self.created();
        (created.is_none(), created)
    }

    fn is_ready(&self) -> bool {
        self.readiness().is_none_or(|readiness| readiness == NodeReadiness::Ready)
    }

    /// The rank in the order of attention: nodes that are not Ready although nobody cordoned them, then those that others
    /// than a maintenance cordoned, and those in maintenance in the order of their list. A node of a maintenance may be
    /// rebooting, so that it is not Ready matters less.
    fn rank(&self) -> (u8, Option<NodeReadiness>, Attention, Option<NodeReadiness>) {
        let rank = match self.cordon() {
            None if !self.is_ready() => 0,
            None if self.state.is_none() => 3,
            None | Some(CordonOwner::Maintenance) => 2,
            Some(_) => 1,
        };
        let readiness = self.readiness();
        let (first, last) = if rank == 2 { (None, readiness) } else { (readiness, None) };
        (rank, first, self.attention, last)
    }
}

/// Who cordoned a node, in words.
pub(crate) fn cordon_words(owner: &CordonOwner) -> &str {
    match owner {
        CordonOwner::Maintenance => "maintenance",
        CordonOwner::Controller(key) => key,
        CordonOwner::Program(name) => name,
        CordonOwner::Person => "a person",
    }
}

impl Searchable for NodeRow {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        match field {
            FilterField::Node | FilterField::Object => is_match(self.name()),
            FilterField::State => is_match(self.state_word()),
            FilterField::Text => {
                [self.pool(), self.zone(), self.version(), &self.words].into_iter().any(is_match)
            }
            FilterField::Namespace
            | FilterField::Phase
            | FilterField::Reason
            | FilterField::Workload
            | FilterField::Path => false,
        }
    }
}

impl Row for NodeRow {
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name, Sort::Pool, Sort::Age];

    fn key(&self) -> &str {
        self.name()
    }

    fn lead(&self, other: &Self, by: Sort) -> Ordering {
        match by {
            Sort::Risk => self.rank().cmp(&other.rank()),
            Sort::Pool => self.place().cmp(&other.place()),
            Sort::Age => self.age().cmp(&other.age()),
            Sort::Name | Sort::Progress => Ordering::Equal,
        }
    }

    fn by_name(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }

    /// Whether it is unavailable: not Ready, or cordoned.
    fn is_blocked(&self) -> bool {
        !self.is_ready() || self.cordon().is_some()
    }
}
