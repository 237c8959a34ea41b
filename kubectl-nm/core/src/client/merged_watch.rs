//! One watch of the maintenances of several API groups.
//!
//! Its lists contain the maintenances of all groups, and it is live when the watches of all groups are. An older group
//! that is no longer served has no maintenances any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, select_all};
use kube::ResourceExt;
use kube::api::Api;
use nm_shared::{GroupedMaintenance, NodeMaintenance};

use crate::client::cluster::Cluster;
use crate::client::watch_stream::{
    WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch, watch_current_maintenances,
};
use crate::error::Error;

type Update = WatchUpdate<NodeMaintenance>;

/// Watches the maintenances of the current group, and of the older groups of `cluster`.
pub fn watch_maintenances(
    cluster: &Cluster,
    policy: WatchPolicy,
    keep: fn(NodeMaintenance) -> NodeMaintenance,
) -> BoxStream<'static, Result<Update, Error>> {
    let current = watch_current_maintenances(cluster, policy);
    let older = cluster.older_groups().iter().map(|group| {
        let api: Api<GroupedMaintenance> = Api::all_with(cluster.client(), group);
        let target = WatchTarget::all(api, &group.definition(), cluster.server());
        watch(target, policy, |object| Some(object.maintenance))
    });
    let watches: Vec<_> = std::iter::once(current).chain(older).collect();
    merged(watches).map(move |update| update.map(|update| kept(update, keep))).boxed()
}

fn kept(update: Update, keep: fn(NodeMaintenance) -> NodeMaintenance) -> Update {
    let keep = |object: Arc<NodeMaintenance>| Arc::new(keep(Arc::unwrap_or_clone(object)));
    match update {
        WatchUpdate::Change(WatchChange::Listed(objects)) => {
            WatchUpdate::Change(WatchChange::Listed(objects.into_iter().map(keep).collect()))
        }
        WatchUpdate::Change(WatchChange::Applied(object)) => {
            WatchUpdate::Change(WatchChange::Applied(keep(object)))
        }
        WatchUpdate::Change(WatchChange::Deleted(object)) => {
            WatchUpdate::Change(WatchChange::Deleted(keep(object)))
        }
        other => other,
    }
}

/// Merges watches, of which the first is that of the current group.
fn merged(
    mut watches: Vec<BoxStream<'static, Result<Update, Error>>>,
) -> BoxStream<'static, Result<Update, Error>> {
    if watches.len() == 1 {
        return watches.remove(0);
    }
    let mut groups = Groups(watches.iter().map(|_| GroupState::default()).collect());
    let numbered = watches.into_iter().enumerate();
    let updates = select_all(numbered.map(|(at, watch)| watch.map(move |update| (at, update)).boxed()));
    updates.flat_map(move |(at, update)| stream::iter(groups.take(at, update))).boxed()
}

struct Groups(Vec<GroupState>);

#[derive(Default)]
struct GroupState {
    /// Its maintenances by uid.
    objects: BTreeMap<String, Arc<NodeMaintenance>>,
    is_listed: bool,
    is_live: bool,
}

impl Groups {
    /// Takes in an update of a group, and returns those of all groups together.
    fn take(&mut self, at: usize, update: Result<Update, Error>) -> Vec<Result<Update, Error>> {
        let update = match update {
            Ok(WatchUpdate::Lost { error, .. }) | Err(error) if at > 0 && error.is_unserved() => {
                let gone = WatchUpdate::Change(WatchChange::Listed(Vec::new()));
                let mut updates = self.take(at, Ok(gone));
                updates.extend(self.take(at, Ok(WatchUpdate::Live)));
                return updates;
            }
            Ok(update) => update,
            Err(error) => return vec![Err(error)],
        };
        let group = &mut self.0[at];
        let uid = |object: &Arc<NodeMaintenance>| object.uid().unwrap_or_default();
        let passed = match update {
            WatchUpdate::Change(WatchChange::Listed(objects)) => {
                group.objects = objects.into_iter().map(|object| (uid(&object), object)).collect();
                group.is_listed = true;
                self.all().map(|all| WatchUpdate::Change(WatchChange::Listed(all)))
            }
            WatchUpdate::Change(change) => {
                match &change {
                    WatchChange::Deleted(object) => _ = group.objects.remove(&uid(object)),
                    WatchChange::Applied(object) => _ = group.objects.insert(uid(object), object.clone()),
                    WatchChange::Listed(_) => {}
                }
                // Before the first list of all groups, it will be part of that.
                self.is_listed().then_some(WatchUpdate::Change(change))
            }
            WatchUpdate::Live => {
                group.is_live = true;
                self.0.iter().all(|group| group.is_live).then_some(WatchUpdate::Live)
            }
            WatchUpdate::Lost { since, error } => {
                group.is_live = false;
                Some(WatchUpdate::Lost { since, error })
            }
        };
        passed.into_iter().map(Ok).collect()
    }

    fn is_listed(&self) -> bool {
        self.0.iter().all(|group| group.is_listed)
    }

    fn all(&self) -> Option<Vec<Arc<NodeMaintenance>>> {
        let objects = self.0.iter().flat_map(|group| group.objects.values().cloned());
        self.is_listed().then(|| objects.collect())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// An object with this uid.
    fn object(uid: &str) -> Arc<NodeMaintenance> {
        let object = serde_json::json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": uid}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn listed(uids: &[&str]) -> Update {
        WatchUpdate::Change(WatchChange::Listed(uids.iter().copied().map(object).collect()))
    }

    /// The updates in short, in order.
    fn taken(groups: &mut Groups, at: usize, update: Result<Update, Error>) -> Vec<String> {
        let names = |objects: &[Arc<NodeMaintenance>]| {
            objects.iter().map(|object| object.name_any()).collect::<Vec<_>>()
        };
        let short = |update| match update {
            Ok(WatchUpdate::Change(WatchChange::Listed(objects))) => names(&objects).join(" "),
            Ok(WatchUpdate::Change(WatchChange::Applied(object))) => format!("+{}", object.name_any()),
            Ok(WatchUpdate::Change(WatchChange::Deleted(object))) => format!("-{}", object.name_any()),
            Ok(WatchUpdate::Live) => String::from("live"),
            Ok(WatchUpdate::Lost { .. }) => String::from("lost"),
            Err(_) => String::from("error"),
        };
        groups.take(at, update).into_iter().map(short).collect()
    }

    #[test]
    fn a_list_has_the_maintenances_of_all_groups_and_all_watches_must_be_live() {
        let groups = &mut Groups(vec![GroupState::default(), GroupState::default()]);
        let applied = |uid| Ok(WatchUpdate::Change(WatchChange::Applied(object(uid))));
        let deleted = |uid| Ok(WatchUpdate::Change(WatchChange::Deleted(object(uid))));
        let lost = || Ok(WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: Error::Declined });
        let nothing: [&str; 0] = [];
        assert_eq!(taken(groups, 0, Ok(listed(&["a"]))), nothing);
        assert_eq!(taken(groups, 0, Ok(WatchUpdate::Live)), nothing);
        assert_eq!(taken(groups, 0, applied("b")), nothing);
        assert_eq!(taken(groups, 1, Ok(listed(&["x"]))), ["a b x"]);
        assert_eq!(taken(groups, 1, Ok(WatchUpdate::Live)), ["live"]);
        assert_eq!(taken(groups, 1, applied("y")), ["+y"]);
        assert_eq!(taken(groups, 0, deleted("a")), ["-a"]);
        assert_eq!(taken(groups, 1, lost()), ["lost"]);
        assert_eq!(taken(groups, 0, Ok(listed(&["b"]))), ["b x y"], "after an interruption");
        let gone = || Error::NotServed { server: String::from("https://a"), asked: String::from("watch x") };
        assert_eq!(taken(groups, 1, Err(gone())), ["b", "live"], "its definition was removed");
        assert_eq!(taken(groups, 1, Ok(listed(&["z"]))), ["b z"], "and created again");
        let lost = WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: gone() };
        assert_eq!(taken(groups, 1, Ok(lost)), ["b", "live"], "a watch that is retried sees the same");
        assert_eq!(taken(groups, 0, Err(gone())), ["error"]);
        // What cannot be seen is not gone: a stop that waits would report success.
        assert_eq!(taken(groups, 1, Err(Error::Declined)), ["error"]);
    }
}
