//! The metadata of all nodes, joined with the details of those in maintenance.
//!
//! Whether a node is Ready is in its status. A watch on the few nodes in maintenance, by their label, shows it without the cost of
//! watching all nodes as a whole.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream, select};
use nm_core::client::watch_stream::{WatchChange, WatchUpdate};
use nm_core::error::Error;

use crate::objects::node_metadata::{NodeDetails, NodeMetadata};

type Update = Result<WatchUpdate<NodeMetadata>, Error>;

/// The updates of a watch on the metadata of `all` nodes, with the details of those that are `in_maintenance`.
pub(super) fn with_details(
    all: BoxStream<'static, Update>,
    in_maintenance: BoxStream<'static, Update>,
) -> BoxStream<'static, Update> {
    let all = all.map(|update| (Source::All, update));
    let in_maintenance = in_maintenance.map(|update| (Source::InMaintenance, update));
    let mut known = KnownNodes::default();
    select(all, in_maintenance)
        .flat_map(move |(source, update)| stream::iter(known.joined(source, update)))
        .boxed()
}

#[derive(Clone, Copy)]
enum Source {
    All,
    InMaintenance,
}

#[derive(Default)]
struct KnownNodes {
    all: HashMap<String, Arc<NodeMetadata>>,
    details: HashMap<String, NodeDetails>,
    /// Whether the watches are live: on all nodes, and on those in maintenance.
    live: (bool, bool),
}

impl KnownNodes {
    fn joined(&mut self, source: Source, update: Update) -> Vec<Update> {
        match (source, update) {
            (Source::All, Ok(WatchUpdate::Change(change))) => {
                vec![Ok(WatchUpdate::Change(self.change(change)))]
            }
            (Source::InMaintenance, Ok(WatchUpdate::Change(change))) => {
                let names = self.note_details(change);
                let known = names.iter().filter_map(|name| self.all.get(name));
                known
                    .map(|node| Ok(WatchUpdate::Change(WatchChange::Applied(self.with_details(node)))))
                    .collect()
            }
            (Source::All, Ok(WatchUpdate::Live)) => {
                self.live.0 = true;
                self.live_update()
            }
            // If these cannot be watched, the names of all nodes are known nevertheless.
            (Source::InMaintenance, Ok(WatchUpdate::Live) | Err(_)) => {
                self.live.1 = true;
                self.live_update()
            }
            (Source::All, lost @ Ok(WatchUpdate::Lost { .. })) => {
                self.live.0 = false;
                vec![lost]
            }
            (Source::InMaintenance, lost @ Ok(WatchUpdate::Lost { .. })) => {
                self.live.1 = false;
                vec![lost]
            }
            (Source::All, error @ Err(_)) => vec![error],
        }
    }

    fn live_update(&self) -> Vec<Update> {
        if self.live == (true, true) { vec![Ok(WatchUpdate::Live)] } else { Vec::new() }
    }

    fn change(&mut self, change: WatchChange<NodeMetadata>) -> WatchChange<NodeMetadata> {
        match change {
            WatchChange::Listed(nodes) => {
                self.all = nodes.iter().map(|node| (node.name.clone(), Arc::clone(node))).collect();
                WatchChange::Listed(nodes.iter().map(|node| self.with_details(node)).collect())
            }
            WatchChange::Applied(node) => {
                self.all.insert(node.name.clone(), Arc::clone(&node));
                WatchChange::Applied(self.with_details(&node))
            }
            WatchChange::Deleted(node) => {
                self.all.remove(&node.name);
                WatchChange::Deleted(node)
            }
        }
    }

    /// Notes the details of nodes in maintenance. Returns the names of the nodes that this is about.
    fn note_details(&mut self, change: WatchChange<NodeMetadata>) -> BTreeSet<String> {
        let details = |node: &NodeMetadata| Some((node.name.clone(), node.details.clone()?));
        match change {
            WatchChange::Listed(nodes) => {
                let before = std::mem::take(&mut self.details);
                self.details = nodes.iter().filter_map(|node| details(node)).collect();
                before.into_keys().chain(self.details.keys().cloned()).collect()
            }
            // Most changes are heartbeats.
            WatchChange::Applied(node) if self.details.get(&node.name) == node.details.as_ref() => {
                BTreeSet::new()
            }
            WatchChange::Applied(node) => {
                self.details.extend(details(&node));
                BTreeSet::from([node.name.clone()])
            }
            // Its maintenance has ended, or it is gone.
            WatchChange::Deleted(node) => {
                self.details.remove(&node.name);
                BTreeSet::from([node.name.clone()])
            }
        }
    }

    fn with_details(&self, node: &Arc<NodeMetadata>) -> Arc<NodeMetadata> {
        match self.details.get(&node.name) {
            Some(details) => {
                Arc::new(NodeMetadata { details: Some(details.clone()), ..node.as_ref().clone() })
            }
            None => Arc::clone(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::node_metadata::NodeReadiness;

    fn node(name: &str, readiness: Option<NodeReadiness>) -> Arc<NodeMetadata> {
        let details = readiness.map(|readiness| NodeDetails { readiness, ..NodeDetails::default() });
        Arc::new(NodeMetadata { name: name.into(), details, ..NodeMetadata::default() })
    }

    /// What is sent for an update, in short.
    fn sent(known: &mut KnownNodes, source: Source, update: Update) -> String {
        let shown = |node: &NodeMetadata| {
            let readiness = node.details.as_ref().map_or("-", |details| details.readiness.word());
            format!("{}:{readiness}", node.name)
        };
        let words = |update: Update| match update {
            Ok(WatchUpdate::Change(WatchChange::Listed(nodes))) => {
                nodes.iter().map(|node| shown(node)).collect::<Vec<_>>().join(",")
            }
            Ok(WatchUpdate::Change(WatchChange::Applied(node))) => shown(&node),
            Ok(WatchUpdate::Change(WatchChange::Deleted(node))) => format!("{} deleted", node.name),
            Ok(WatchUpdate::Live) => "live".into(),
            Ok(WatchUpdate::Lost { .. }) => "lost".into(),
            Err(_) => "error".into(),
        };
        known.joined(source, update).into_iter().map(words).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nodes_in_maintenance_have_details_whichever_watch_is_first() {
        use NodeReadiness::{NotReady, Ready};
        use Source::{All, InMaintenance};
        let change = |change| Ok(WatchUpdate::Change(change));
        let mut known = KnownNodes::default();
        let mut check =
            |source, update, expected: &str| assert_eq!(sent(&mut known, source, update), expected);
        check(InMaintenance, change(WatchChange::Listed(vec![node("a", Some(Ready))])), "");
        check(InMaintenance, Ok(WatchUpdate::Live), "");
        check(All, change(WatchChange::Listed(vec![node("a", None), node("b", None)])), "a:Ready,b:-");
        check(All, Ok(WatchUpdate::Live), "live");
        check(InMaintenance, change(WatchChange::Applied(node("b", Some(NotReady)))), "b:NotReady");
        check(All, change(WatchChange::Applied(node("b", None))), "b:NotReady");
        check(InMaintenance, change(WatchChange::Applied(node("b", Some(NotReady)))), "");
        check(InMaintenance, change(WatchChange::Listed(vec![node("b", Some(Ready))])), "a:- b:Ready");
        check(InMaintenance, change(WatchChange::Deleted(node("b", Some(Ready)))), "b:-");
        check(All, change(WatchChange::Deleted(node("b", None))), "b deleted");
        check(InMaintenance, change(WatchChange::Applied(node("c", Some(Ready)))), "");
        // Without permission for these nodes alone, nothing else is missing.
        check(InMaintenance, Err(Error::Declined), "live");
        check(All, Err(Error::Declined), "error");
    }
}
