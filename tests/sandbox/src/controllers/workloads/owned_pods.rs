//! An index of pods by their controllers, and of the controllers whose pods have changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::cluster::catalog::resource::PODS;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::workloads::pod_summary::PodSummary;
use crate::model::pod;

/// The pods of one controller, by name.
#[derive(Debug, Default)]
struct Siblings {
    owner: Option<Key>,
    pods: BTreeMap<String, PodSummary>,
}

/// The pods of all controllers of one kind, and the controllers to reconcile.
#[derive(Debug)]
pub(crate) struct OwnedPods {
    kind: &'static str,
    pods: HashMap<String, Siblings>,
    dirty: BTreeSet<Key>,
}

impl OwnedPods {
    /// An empty index for controllers of this kind.
    pub(crate) fn of_kind(kind: &'static str) -> Self {
        Self { kind, pods: HashMap::new(), dirty: BTreeSet::new() }
    }

    /// Observes a change of a pod.
    pub(crate) fn observe_pod(&mut self, change: &Change) {
        let (before, after) = (self.owner(change.before.as_ref()), self.owner(change.after.as_ref()));
        if let Some((uid, key)) = before
            && after.as_ref().is_none_or(|(after, _)| *after != uid)
        {
            self.dirty.insert(key);
            if let (Some(siblings), Some(pod)) = (self.pods.get_mut(&uid), &change.before) {
                siblings.pods.remove(pod::name(pod));
                if siblings.pods.is_empty() {
                    self.pods.remove(&uid);
                }
            }
        }
        if let Some(((uid, key), pod)) = after.zip(change.after.as_ref()) {
            let siblings = self.pods.entry(uid).or_default();
            let brief = PodSummary::of(pod, siblings.pods.values().next());
            siblings.pods.insert(pod::name(pod).to_owned(), brief);
            siblings.owner = Some(key.clone());
            self.dirty.insert(key);
        }
    }

    /// Observes a change of a controller.
    pub(crate) fn observe_owner(&mut self, change: &Change) {
        if let Some(owner) = &change.after {
            self.dirty.insert(Key::of(owner));
        }
    }

    /// Observes a change of a pod or of a controller.
    pub(crate) fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == PODS {
            self.observe_pod(change);
        } else {
            self.observe_owner(change);
        }
    }

    /// Drops all pods if the history of pods is lost.
    pub(crate) fn forget(&mut self, collection: &Collection) {
        if *collection == PODS {
            self.forget_pods();
        }
    }

    /// Drops all pods. Controllers that had pods will reconcile.
    pub(crate) fn forget_pods(&mut self) {
        let siblings = std::mem::take(&mut self.pods).into_values();
        self.dirty.extend(siblings.filter_map(|siblings| siblings.owner));
    }

    /// The pods of the controller with this uid, by name.
    pub(crate) fn of(&self, uid: &str) -> impl Iterator<Item = (&str, &PodSummary)> {
        let pods = self.pods.get(uid).into_iter().flat_map(|siblings| &siblings.pods);
        pods.map(|(name, pod)| (name.as_str(), pod))
    }

    /// The pod objects, for controllers with few pods.
    pub(crate) fn objects(&self, ctx: &ReconcileContext<'_>, owner: &Value) -> Vec<Object> {
        let names = self.of(pod::uid(owner)).map(|(name, _)| name);
        names.filter_map(|name| ctx.get(&PODS, &Key::new(pod::namespace(owner), name))).collect()
    }

    /// The next controller to reconcile.
    pub(crate) fn next(&mut self) -> Option<Key> {
        self.dirty.pop_first()
    }

    /// Adds a controller to reconcile.
    pub(crate) fn again(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    fn owner(&self, pod: Option<&Object>) -> Option<(String, Key)> {
        let pod: &Value = pod?;
        let owner = pod::controller(pod).filter(|owner| owner["kind"] == self.kind)?;
        let key = Key::new(pod::namespace(pod), owner["name"].as_str()?);
        Some((owner["uid"].as_str()?.to_owned(), key))
    }
}
