//! Which maintenances end because their nodes were deleted. No object of a maintenance shows that: the garbage collector deletes
//! it as it is. So the API server is asked for the node when a maintenance ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nm_shared::NodeMaintenance;
use tokio::time::timeout;

use crate::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use crate::client::watch_stream::{WatchChange, WatchUpdate};
use crate::error::Error;
use crate::maintenance::{node, uid};

/// How long the answer about a node may delay the lines about its maintenance.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The maintenances whose nodes were deleted, as far as the user may read nodes.
#[derive(Debug, Default)]
pub struct DeletedNodes {
    /// Their uids.
    maintenances: RefCell<BTreeSet<String>>,
    /// The maintenances of the watch, by uid.
    known: RefCell<BTreeMap<String, Ending>>,
    /// Whether a request was refused: then none follows.
    is_refused: Cell<bool>,
}

/// What has to be known of a maintenance to ask for its node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ending {
    node: String,
    /// The uid of the node that owns it; none if no node does.
    owner: Option<String>,
}

impl From<&NodeMaintenance> for Ending {
    fn from(object: &NodeMaintenance) -> Self {
        let owners = object.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|owner| owner.kind == "Node" && owner.name == node(object));
        Self { node: node(object).to_owned(), owner: owners.next().map(|owner| owner.uid.clone()) }
    }
}

impl Ending {
    /// Whether its node is not the one that exists with the name.
    fn is_of_deleted_node(&self, found: Option<&ObjectMeta>) -> bool {
        // A maintenance of a node that has never existed has no owner either.
        let Some(found) = found else { return self.owner.is_some() };
        let is_another = self.owner.as_ref().is_some_and(|owner| found.uid.as_ref() != Some(owner));
        is_another || found.deletion_timestamp.is_some()
    }
}

impl DeletedNodes {
    /// Whether a maintenance ends, or has ended, because its node was deleted.
    pub(crate) fn has(&self, maintenance: &NodeMaintenance) -> bool {
        self.has_uid(&uid(maintenance))
    }

    pub(crate) fn has_uid(&self, uid: &str) -> bool {
        self.maintenances.borrow().contains(uid)
    }

    /// Passes a watch on. Before it shows that a maintenance of these nodes ends, or of any node if there are none, its node is
    /// asked for.
    pub fn follow<'a>(
        &'a self,
        nodes: &'a [String],
        cluster: &'a Cluster,
        watch: impl Stream<Item = Result<WatchUpdate<NodeMaintenance>, Error>> + 'a,
    ) -> impl Stream<Item = Result<WatchUpdate<NodeMaintenance>, Error>> + 'a {
        watch.then(async move |update| {
            if let Ok(WatchUpdate::Change(change)) = &update {
                let ending = self.note(change);
                let is_shown = |ending: &Ending| nodes.is_empty() || nodes.contains(&ending.node);
                let shown = ending.into_iter().filter(|(_, ending)| is_shown(ending));
                let asked =
                    stream::iter(shown).map(async |(uid, ending)| self.ask(uid, &ending, cluster).await);
                asked.buffer_unordered(MAX_CONCURRENT_REQUESTS).collect::<()>().await;
            }
            update
        })
    }

    /// The maintenances that end with this change, or whose end it shows, unless it is known that their nodes were deleted.
    fn note(&self, change: &WatchChange<NodeMaintenance>) -> Vec<(String, Ending)> {
        let mut known = self.known.borrow_mut();
        let is_ending = |object: &NodeMaintenance| object.metadata.deletion_timestamp.is_some();
        let mut ending = Vec::new();
        match change {
            WatchChange::Listed(all) => {
                let now: BTreeMap<String, Ending> =
                    all.iter().map(|object| (uid(object), Ending::from(&**object))).collect();
                let gone = std::mem::take(&mut *known).into_iter().filter(|(uid, _)| !now.contains_key(uid));
                ending.extend(gone);
                let stopping = all.iter().filter(|object| is_ending(object));
                ending.extend(stopping.map(|object| (uid(object), Ending::from(&**object))));
                *known = now;
            }
            WatchChange::Applied(object) => {
                let seen = (uid(object), Ending::from(&**object));
                known.insert(seen.0.clone(), seen.1.clone());
                ending.extend(is_ending(object).then_some(seen));
            }
            WatchChange::Deleted(last) => {
                known.remove(&uid(last));
                ending.push((uid(last), Ending::from(&**last)));
            }
        }
        ending.retain(|(uid, _)| !self.has_uid(uid));
        ending
    }

    async fn ask(&self, uid: String, ending: &Ending, cluster: &Cluster) {
        if self.is_refused.get() {
            return;
        }
        match timeout(MAX_WAIT, cluster.node_metadata(&ending.node)).await {
            Ok(Ok(found)) if ending.is_of_deleted_node(found.as_ref()) => {
                self.maintenances.borrow_mut().insert(uid);
            }
            Ok(Err(error)) if error.status().is_some_and(kube::core::Status::is_forbidden) => {
                self.is_refused.set(true);
            }
            // What the watch shows does not depend on it.
            Ok(_) | Err(_) => {}
        }
    }

    /// Those of which this is known.
    #[cfg(test)]
    pub(crate) fn known(uids: &[&str]) -> Self {
        let uids = uids.iter().map(ToString::to_string).collect();
        Self { maintenances: RefCell::new(uids), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::fake_server::{cluster, failure};
    use crate::testing::objects::{listed, named, stopping};

    fn owned(name: &str) -> NodeMaintenance {
        let mut object = named(name, name, name);
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": "old"}]);
        object.metadata.owner_references = serde_json::from_value(owner).unwrap();
        object
    }

    #[tokio::test]
    async fn the_node_is_asked_for_once_its_maintenance_ends_and_only_until_that_is_refused() {
        let node = |uid: &str| (200, json!({"metadata": {"name": "n", "uid": uid}}));
        for (answer, is_deleted, requests) in [
            (failure(404, "NotFound", "n1"), true, 1),
            (node("new"), true, 1),
            (node("old"), false, 2),
            (failure(403, "Forbidden", "n1"), false, 1),
        ] {
            let (cluster, log) = cluster(move |_, _| answer.clone());
            let deleted = DeletedNodes::default();
            let other = Arc::new(stopping(owned("n2")));
            let changes = [
                listed([owned("n1"), owned("n2")]),
                WatchChange::Deleted(other),
                WatchChange::Applied(Arc::new(stopping(owned("n1")))),
                WatchChange::Deleted(Arc::new(stopping(owned("n1")))),
            ];
            let changes = changes.map(|change| Ok(WatchUpdate::Change(change)));
            let shown = [String::from("n1")];
            let seen = deleted.follow(&shown, &cluster, stream::iter(changes));
            assert_eq!(seen.count().await, 4);
            assert_eq!((deleted.has(&owned("n1")), deleted.has(&owned("n2"))), (is_deleted, false));
            assert_eq!(log.lock().unwrap().len(), requests);
        }
    }

    #[tokio::test]
    async fn a_maintenance_that_a_new_list_does_not_have_any_more_has_ended() {
        let (cluster, _) = cluster(|_, _| failure(404, "NotFound", "n1"));
        let deleted = DeletedNodes::default();
        let changes = [listed([owned("n1")]), listed([])];
        let changes = changes.map(|change| Ok(WatchUpdate::Change(change)));
        deleted.follow(&[], &cluster, stream::iter(changes)).count().await;
        assert!(deleted.has(&owned("n1")));
    }
}
