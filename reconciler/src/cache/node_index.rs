//! An index of maintenances by node, so that an event on one node does not search all of them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::reflector::{ObjectRef, Store};
use nm_shared::GroupedMaintenance;

type References = HashSet<ObjectRef<GroupedMaintenance>>;

/// The maintenances of a store, by node.
pub(crate) struct NodeIndex {
    store: Store<GroupedMaintenance>,
    by_node: Mutex<HashMap<String, References>>,
}

impl NodeIndex {
    /// An index of a store. Each change has to be reported with [`Self::update`], [`Self::remove`] or [`Self::rebuild`].
    pub(crate) fn new(store: Store<GroupedMaintenance>) -> Self {
        Self { store, by_node: Mutex::default() }
    }

    /// The maintenances of the store that name this node.
    pub(crate) fn on_node(&self, node: &str) -> Vec<Arc<GroupedMaintenance>> {
        let by_node = self.lock();
        let found = by_node.get(node).into_iter().flatten().filter_map(|reference| self.store.get(reference));
        // Where no webhook refuses it, the node of a maintenance can change.
        found.filter(|maintenance| maintenance.spec.node_name == node).collect()
    }

    /// Indexes a maintenance that was created or changed.
    pub(crate) fn update(&self, maintenance: &GroupedMaintenance) {
        let mut by_node = self.lock();
        by_node.entry(maintenance.spec.node_name.clone()).or_default().insert(reference(maintenance));
    }

    /// Forgets a maintenance that is gone.
    pub(crate) fn remove(&self, maintenance: &GroupedMaintenance) {
        let mut by_node = self.lock();
        if let Entry::Occupied(mut references) = by_node.entry(maintenance.spec.node_name.clone()) {
            references.get_mut().remove(&reference(maintenance));
            if references.get().is_empty() {
                references.remove();
            }
        }
    }

    /// Indexes the store anew after a list.
    pub(crate) fn rebuild(&self) {
        let mut by_node = HashMap::<String, References>::new();
        for maintenance in self.store.state() {
            by_node.entry(maintenance.spec.node_name.clone()).or_default().insert(reference(&maintenance));
        }
        *self.lock() = by_node;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, References>> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reference(maintenance: &GroupedMaintenance) -> ObjectRef<GroupedMaintenance> {
    ObjectRef::from_obj_with(maintenance, maintenance.group)
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use nm_shared::Group;
    use serde_json::json;

    use super::*;

    fn maintenance(name: &str, node: &str) -> GroupedMaintenance {
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "metadata": {"name": name}, "spec": {"nodeName": node}});
        serde_json::from_value(maintenance).unwrap()
    }

    fn names(index: &NodeIndex, node: &str) -> Vec<String> {
        let mut names: Vec<String> = index.on_node(node).iter().map(|found| found.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_index_follows_the_watch() {
        let mut writer = Writer::new(Group::Medik8s);
        let index = NodeIndex::new(writer.as_reader());
        for event in [Event::Init, Event::InitApply(maintenance("a", "n")), Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        index.rebuild();
        writer.apply_watcher_event(&Event::Apply(maintenance("b", "n")));
        index.update(&maintenance("b", "n"));
        assert_eq!((names(&index, "n"), names(&index, "m")), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        writer.apply_watcher_event(&Event::Apply(maintenance("b", "m")));
        index.update(&maintenance("b", "m"));
        assert_eq!((names(&index, "n"), names(&index, "m")), (vec!["a".to_owned()], vec!["b".to_owned()]));
        writer.apply_watcher_event(&Event::Delete(maintenance("b", "m")));
        index.remove(&maintenance("b", "m"));
        assert_eq!((names(&index, "n"), names(&index, "m")), (vec!["a".to_owned()], vec![]));
        writer.apply_watcher_event(&Event::Delete(maintenance("a", "n")));
        index.remove(&maintenance("a", "n"));
        assert_eq!((names(&index, "n"), index.lock().contains_key("m")), (vec![], false));
    }
}
