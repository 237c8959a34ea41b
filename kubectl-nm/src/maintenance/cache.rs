//! The maintenances as a watch has shown them, and what each of its events changes.
//!
//! A watch begins with all objects, and does so again when it had to be set up anew. What went missing in between was
//! deleted; objects are known by uid, so that one deleted and created again under its name is two.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;

use crate::maintenance::changes::Change;
use crate::maintenance::{node, uid};

/// The maintenances of some nodes, or of all.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    nodes: Vec<String>,
    objects: BTreeMap<String, NodeMaintenance>,
    arriving: Option<BTreeMap<String, NodeMaintenance>>,
    complete: bool,
}

impl Picture {
    /// A picture of these nodes' maintenances; of all nodes' if none is named.
    pub(crate) fn of(nodes: Vec<String>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Whether everything has been seen once, so that what is not in the picture does not exist.
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

    /// Takes in what the watch shows, and tells what changed by it, ordered by node.
    pub(crate) fn apply(&mut self, event: Event<NodeMaintenance>) -> Vec<Change> {
        match event {
            Event::Init => {
                self.arriving = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if self.concerns(&object) {
                    self.arriving.get_or_insert_default().insert(uid(&object), object);
                }
                Vec::new()
            }
            Event::InitDone => {
                let arrived = self.arriving.take().unwrap_or_default();
                self.complete = true;
                self.replace(arrived)
            }
            Event::Apply(object) if self.concerns(&object) => self.see(object).into_iter().collect(),
            Event::Delete(object) => self.forget(object).into_iter().collect(),
            Event::Apply(_) => Vec::new(),
        }
    }

    fn concerns(&self, object: &NodeMaintenance) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|wanted| wanted == node(object))
    }

    fn see(&mut self, object: NodeMaintenance) -> Option<Change> {
        let before = self.objects.insert(uid(&object), object.clone());
        let unchanged =
            before.as_ref().is_some_and(|was| was.resource_version() == object.resource_version());
        (!unchanged).then(|| Change::Seen { before: before.map(Box::new), now: Box::new(object) })
    }

    fn forget(&mut self, last: NodeMaintenance) -> Option<Change> {
        self.objects.remove(&uid(&last)).map(|_| Change::Gone(Box::new(last)))
    }

    fn replace(&mut self, arrived: BTreeMap<String, NodeMaintenance>) -> Vec<Change> {
        let missing: Vec<NodeMaintenance> =
            self.objects.values().filter(|known| !arrived.contains_key(&uid(known))).cloned().collect();
        let mut changes: Vec<Change> = missing.into_iter().filter_map(|last| self.forget(last)).collect();
        changes.extend(arrived.into_values().filter_map(|object| self.see(object)));
        // Stable, so that an object gone is told before the one that took its place.
        changes.sort_by(|a, b| a.node().cmp(b.node()));
        changes
    }
}

/// Pictures for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// One that has been told of these maintenances and no others.
    pub(crate) fn picture(objects: impl IntoIterator<Item = NodeMaintenance>) -> Picture {
        let mut picture = Picture::of(vec![]);
        picture.apply(Event::Init);
        for object in objects {
            picture.apply(Event::InitApply(object));
        }
        picture.apply(Event::InitDone);
        picture
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

    fn list(picture: &mut Picture, objects: Vec<NodeMaintenance>) -> Vec<String> {
        let mut changes = picture.apply(Event::Init);
        for object in objects {
            changes.extend(picture.apply(Event::InitApply(object)));
        }
        assert!(changes.is_empty(), "a list counts when it is complete");
        told(&picture.apply(Event::InitDone))
    }

    fn told(changes: &[Change]) -> Vec<String> {
        changes
            .iter()
            .map(|change| match change {
                Change::Seen { before: None, now } => format!("new {}", uid(now)),
                Change::Seen { before: Some(_), now } => format!("changed {}", uid(now)),
                Change::Gone(last) => format!("gone {}", uid(last)),
            })
            .collect()
    }

    #[test]
    fn a_second_list_tells_only_what_changed_meanwhile() {
        let mut picture = Picture::of(vec![]);
        assert!(!picture.is_complete());
        let first = vec![requested("n2"), requested("n1"), requested("n3")];
        assert_eq!(list(&mut picture, first), ["new uid-n1", "new uid-n2", "new uid-n3"]);
        assert!(picture.is_complete());
        let second = vec![requested("n1"), at("2", requested("n2")), named("n4", "n4", "uid-n4")];
        assert_eq!(list(&mut picture, second), ["changed uid-n2", "gone uid-n3", "new uid-n4"]);
    }

    #[test]
    fn an_object_created_again_under_its_name_is_another() {
        let mut picture = Picture::of(vec![]);
        list(&mut picture, vec![requested("n1")]);
        assert_eq!(list(&mut picture, vec![named("n1", "n1", "second")]), ["gone uid-n1", "new second"]);
    }

    #[test]
    fn events_are_taken_for_the_wanted_nodes_only() {
        let mut picture = Picture::of(vec!["n1".into()]);
        assert!(list(&mut picture, vec![requested("n2")]).is_empty());
        assert_eq!(told(&picture.apply(Event::Apply(requested("n1")))), ["new uid-n1"]);
        assert!(picture.apply(Event::Apply(requested("n1"))).is_empty());
        assert!(picture.apply(Event::Apply(requested("n2"))).is_empty());
        assert!(picture.apply(Event::Delete(requested("n2"))).is_empty());
        assert_eq!(told(&picture.apply(Event::Delete(requested("n1")))), ["gone uid-n1"]);
        assert_eq!(picture.objects().count(), 0);
    }
}
