//! The maintenances that a watch has shown, and what each of its events changes.
//!
//! A watch begins with a list of all objects, and does so again after it was interrupted. What is missing from the new
//! list was deleted meanwhile. Objects are distinguished by uid, so that one that is deleted and created again under the
//! same name counts as two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nm_shared::NodeMaintenance;

use crate::client::watch_stream::WatchChange;
use crate::maintenance::changes::MaintenanceChange;
use crate::maintenance::{node, uid};

/// All maintenances, with a view of those of some nodes.
#[derive(Clone, Debug, Default)]
pub struct MaintenanceCache {
    /// The nodes in the view; all if there are none.
    nodes: BTreeSet<String>,
    objects: BTreeMap<String, Arc<NodeMaintenance>>,
    complete: bool,
}

impl MaintenanceCache {
    pub(crate) fn new(nodes: Vec<String>) -> Self {
        Self { nodes: nodes.into_iter().collect(), ..Self::default() }
    }

    /// Whether a list was received, so that what is not in the cache does not exist.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The maintenance with this uid, on any node.
    pub fn get(&self, uid: &str) -> Option<&Arc<NodeMaintenance>> {
        self.objects.get(uid)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &NodeMaintenance> {
        self.in_view().map(AsRef::as_ref)
    }

    /// The maintenances on the nodes in view.
    pub fn in_view(&self) -> impl Iterator<Item = &Arc<NodeMaintenance>> {
        self.all().filter(|object| self.has_in_view(node(object)))
    }

    /// All maintenances, on any node.
    pub fn all(&self) -> impl Iterator<Item = &Arc<NodeMaintenance>> {
        self.objects.values()
    }

    pub(crate) fn has_in_view(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }

    /// Whether what another watch reported is known already, or outdated.
    pub fn has_seen(&self, change: &WatchChange<NodeMaintenance>) -> bool {
        let version = |object: &NodeMaintenance| -> Option<u64> {
            object.metadata.resource_version.as_ref()?.parse().ok()
        };
        let has = |object: &Arc<NodeMaintenance>| {
            self.get(&uid(object)).is_some_and(|known| version(known) >= version(object))
        };
        self.complete
            && match change {
                WatchChange::Listed(objects) => {
                    objects.iter().all(has) && objects.len() == self.objects.len()
                }
                WatchChange::Applied(object) => has(object),
                WatchChange::Deleted(object) => self.get(&uid(object)).is_none(),
            }
    }

    /// Applies what the watch reported, and returns what changed on any node, ordered by node.
    pub fn apply(&mut self, change: &WatchChange<NodeMaintenance>) -> Vec<MaintenanceChange> {
        match change {
            WatchChange::Listed(objects) => {
                self.complete = true;
                self.replace(objects)
            }
            WatchChange::Applied(object) => self.upsert(object).into_iter().collect(),
            WatchChange::Deleted(object) => self.remove(object).into_iter().collect(),
        }
    }

    fn upsert(&mut self, object: &Arc<NodeMaintenance>) -> Option<MaintenanceChange> {
        let before = self.objects.insert(uid(object), Arc::clone(object));
        let unchanged = before.as_ref() == Some(object);
        (!unchanged).then(|| MaintenanceChange::Updated { before, now: Arc::clone(object) })
    }

    fn remove(&mut self, last: &Arc<NodeMaintenance>) -> Option<MaintenanceChange> {
        self.objects.remove(&uid(last)).map(|_| MaintenanceChange::Deleted(Arc::clone(last)))
    }

    fn replace(&mut self, listed: &[Arc<NodeMaintenance>]) -> Vec<MaintenanceChange> {
        let uids: BTreeSet<String> = listed.iter().map(|object| uid(object)).collect();
        let missing: Vec<Arc<NodeMaintenance>> =
            self.all().filter(|known| !uids.contains(&uid(known))).cloned().collect();
        let mut changes: Vec<MaintenanceChange> =
            missing.iter().filter_map(|last| self.remove(last)).collect();
        changes.extend(listed.iter().filter_map(|object| self.upsert(object)));
        // The sort is stable: a deleted object comes before the one that took its place.
        changes.sort_by(|a, b| a.node().cmp(b.node()));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::objects::{self, named, requested};

    fn at(version: &str, mut object: NodeMaintenance) -> NodeMaintenance {
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn list(cache: &mut MaintenanceCache, objects: Vec<NodeMaintenance>) -> Vec<String> {
        described(&cache.apply(&objects::listed(objects)))
    }

    fn described(changes: &[MaintenanceChange]) -> Vec<String> {
        changes
            .iter()
            .map(|change| match change {
                MaintenanceChange::Updated { before: None, now } => format!("new {}", uid(now)),
                MaintenanceChange::Updated { before: Some(_), now } => format!("changed {}", uid(now)),
                MaintenanceChange::Deleted(last) => format!("deleted {}", uid(last)),
            })
            .collect()
    }

    #[test]
    fn a_second_list_yields_only_what_changed_since_the_first() {
        let mut cache = MaintenanceCache::new(vec![]);
        assert!(!cache.is_complete());
        let first = vec![requested("n2"), requested("n1"), requested("n3")];
        assert_eq!(list(&mut cache, first), ["new uid-n1", "new uid-n2", "new uid-n3"]);
        assert!(cache.is_complete());
        let second = vec![requested("n1"), at("2", requested("n2")), named("n4", "n4", "uid-n4")];
        assert_eq!(list(&mut cache, second), ["changed uid-n2", "deleted uid-n3", "new uid-n4"]);
    }

    #[test]
    fn an_object_created_again_under_its_name_is_another_object() {
        let mut cache = MaintenanceCache::new(vec![]);
        list(&mut cache, vec![requested("n1")]);
        assert_eq!(list(&mut cache, vec![named("n1", "n1", "second")]), ["deleted uid-n1", "new second"]);
    }

    #[test]
    fn only_objects_of_the_wanted_nodes_are_in_the_view() {
        let mut cache = MaintenanceCache::new(vec!["n1".into()]);
        assert_eq!(list(&mut cache, vec![requested("n2")]), ["new uid-n2"]);
        let applied = |node: &str| WatchChange::Applied(Arc::new(requested(node)));
        assert_eq!(described(&cache.apply(&applied("n1"))), ["new uid-n1"]);
        assert!(cache.apply(&applied("n1")).is_empty());
        assert_eq!((cache.objects().count(), cache.all().count()), (1, 2));
        let deleted = WatchChange::Deleted(Arc::new(requested("n1")));
        assert_eq!(described(&cache.apply(&deleted)), ["deleted uid-n1"]);
        assert!(cache.apply(&deleted).is_empty());
        assert_eq!((cache.objects().count(), cache.all().count()), (0, 1));
    }
}
