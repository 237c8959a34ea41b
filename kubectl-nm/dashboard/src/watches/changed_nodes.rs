//! The changes of nodes that change what the dashboard shows.
//!
//! Each kubelet writes the status of its node every few minutes, so that thousands of nodes change all the time in ways that
//! nobody sees. Dropping these changes here costs no redraw.

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use nm_core::client::watch_stream::{WatchChange, WatchUpdate};
use nm_core::error::Error;

use crate::objects::node_metadata::NodeMetadata;

/// The updates of a watch on nodes, without those that change nothing.
pub(super) fn changed_nodes(
    updates: BoxStream<'static, Result<WatchUpdate<NodeMetadata>, Error>>,
) -> BoxStream<'static, Result<WatchUpdate<NodeMetadata>, Error>> {
    let mut known = HashMap::new();
    updates
        .filter(move |update| {
            ready(match update {
                Ok(WatchUpdate::Change(change)) => is_news(&mut known, change),
                _ => true,
            })
        })
        .boxed()
}

fn is_news(known: &mut HashMap<String, Arc<NodeMetadata>>, change: &WatchChange<NodeMetadata>) -> bool {
    match change {
        WatchChange::Listed(nodes) => {
            *known = nodes.iter().map(|node| (node.name.clone(), Arc::clone(node))).collect();
            true
        }
        WatchChange::Applied(node) => {
            known.insert(node.name.clone(), Arc::clone(node)).is_none_or(|before| before != *node)
        }
        WatchChange::Deleted(node) => {
            known.remove(&node.name);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn a_heartbeat_is_dropped_and_everything_else_is_passed_on() {
        let node = |control_plane| {
            Arc::new(NodeMetadata { name: "n1".into(), control_plane, ..NodeMetadata::default() })
        };
        let change = |change| Ok(WatchUpdate::Change(change));
        let updates = stream::iter([
            change(WatchChange::Applied(node(false))),
            change(WatchChange::Applied(node(false))),
            Ok(WatchUpdate::Live),
            change(WatchChange::Applied(node(true))),
            change(WatchChange::Deleted(node(true))),
            change(WatchChange::Applied(node(true))),
            change(WatchChange::Listed(vec![node(false)])),
            change(WatchChange::Applied(node(false))),
            change(WatchChange::Applied(node(true))),
        ]);
        let kept: Vec<String> = changed_nodes(updates.boxed())
            .map(|update| match update.unwrap() {
                WatchUpdate::Change(WatchChange::Applied(node)) => format!("applied {}", node.control_plane),
                WatchUpdate::Change(WatchChange::Deleted(_)) => String::from("deleted"),
                WatchUpdate::Change(WatchChange::Listed(_)) => String::from("listed"),
                _ => String::from("live"),
            })
            .collect()
            .await;
        assert_eq!(
            kept,
            ["applied false", "live", "applied true", "deleted", "applied true", "listed", "applied true"]
        );
    }
}
