//! The maintenances that a watch has shown, and what each of its events changes.
//!
//! A watch begins with a list of all objects, and does so again after it was interrupted. What is missing from the new
//! list was deleted meanwhile. Objects are told apart by uid, so that one that is deleted and created again under the
//! same name counts as two.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;

use crate::maintenance::changes::MaintenanceChange;
use crate::maintenance::{node, uid};

/// The maintenances of some nodes, or of all.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceCache {
    nodes: Vec<String>,
    objects: BTreeMap<String, NodeMaintenance>,
    /// The list that is being received.
    incoming: Option<BTreeMap<String, NodeMaintenance>>,
    complete: bool,
}

impl MaintenanceCache {
    /// A cache of the maintenances of these nodes; of all nodes if there are none.
    pub(crate) fn new(nodes: Vec<String>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Whether a whole list was received, so that what is not in the cache does not exist.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The object with that uid.
    pub(crate) fn get(&self, uid: &str) -> Option<&NodeMaintenance> {
        self.objects.get(uid)
    }

    /// All objects, in no particular order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &NodeMaintenance> {
        self.objects.values()
    }

    /// Applies an event of the watch, and returns what it changed, ordered by node.
    pub(crate) fn apply(&mut self, event: Event<NodeMaintenance>) -> Vec<MaintenanceChange> {
        match event {
            Event::Init => {
                self.incoming = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if self.concerns(&object) {
                    self.incoming.get_or_insert_default().insert(uid(&object), object);
                }
                Vec::new()
            }
            Event::InitDone => {
                let listed = self.incoming.take().unwrap_or_default();
                self.complete = true;
                self.replace(listed)
            }
            Event::Apply(object) if self.concerns(&object) => self.upsert(object).into_iter().collect(),
            Event::Delete(object) => self.remove(object).into_iter().collect(),
            Event::Apply(_) => Vec::new(),
        }
    }

    fn concerns(&self, object: &NodeMaintenance) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|wanted| wanted == node(object))
    }

    fn upsert(&mut self, object: NodeMaintenance) -> Option<MaintenanceChange> {
        let before = self.objects.insert(uid(&object), object.clone());
        let unchanged =
            before.as_ref().is_some_and(|before| before.resource_version() == object.resource_version());
        (!unchanged)
            .then(|| MaintenanceChange::Updated { before: before.map(Box::new), now: Box::new(object) })
    }

    fn remove(&mut self, last: NodeMaintenance) -> Option<MaintenanceChange> {
        self.objects.remove(&uid(&last)).map(|_| MaintenanceChange::Deleted(Box::new(last)))
    }

    fn replace(&mut self, listed: BTreeMap<String, NodeMaintenance>) -> Vec<MaintenanceChange> {
        let missing: Vec<NodeMaintenance> =
            self.objects.values().filter(|known| !listed.contains_key(&uid(known))).cloned().collect();
        let mut changes: Vec<MaintenanceChange> =
            missing.into_iter().filter_map(|last| self.remove(last)).collect();
        changes.extend(listed.into_values().filter_map(|object| self.upsert(object)));
        // The sort is stable: a deleted object comes before the one that took its place.
        changes.sort_by(|a, b| a.node().cmp(b.node()));
        changes
    }
}

/// Caches for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A complete cache of these maintenances.
    pub(crate) fn cache(objects: impl IntoIterator<Item = NodeMaintenance>) -> MaintenanceCache {
        let mut cache = MaintenanceCache::new(vec![]);
        cache.apply(Event::Init);
        for object in objects {
            cache.apply(Event::InitApply(object));
        }
        cache.apply(Event::InitDone);
        cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::fixture::{named, requested};

    fn at(version: &str, mut object: NodeMaintenance) -> NodeMaintenance {
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn list(cache: &mut MaintenanceCache, objects: Vec<NodeMaintenance>) -> Vec<String> {
        let mut changes = cache.apply(Event::Init);
        for object in objects {
            changes.extend(cache.apply(Event::InitApply(object)));
        }
        assert!(changes.is_empty(), "a list is applied when it is complete");
        described(&cache.apply(Event::InitDone))
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
    fn events_of_other_nodes_are_ignored() {
        let mut cache = MaintenanceCache::new(vec!["n1".into()]);
        assert!(list(&mut cache, vec![requested("n2")]).is_empty());
        assert_eq!(described(&cache.apply(Event::Apply(requested("n1")))), ["new uid-n1"]);
        assert!(cache.apply(Event::Apply(requested("n1"))).is_empty());
        assert!(cache.apply(Event::Apply(requested("n2"))).is_empty());
        assert!(cache.apply(Event::Delete(requested("n2"))).is_empty());
        assert_eq!(described(&cache.apply(Event::Delete(requested("n1")))), ["deleted uid-n1"]);
        assert_eq!(cache.objects().count(), 0);
    }
}
