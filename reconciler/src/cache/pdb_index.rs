//! The cluster's disruption budgets, each read once when it changes and not at every look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use nm_shared::cluster::disruption_budget::Budget;
use tokio::sync::watch;

/// The budgets of a namespace, by name.
type Neighbours = HashMap<String, Arc<Budget>>;

/// What a watch has told of disruption budgets.
pub(crate) struct KnownBudgets {
    /// The objects themselves.
    pub(crate) objects: Store<PodDisruptionBudget>,
    by_namespace: Mutex<HashMap<String, Neighbours>>,
    is_listed: watch::Sender<bool>,
}

impl KnownBudgets {
    /// Those in a store, which tells of every change by [`Self::changed`] or [`Self::listed`].
    pub(crate) fn new(objects: Store<PodDisruptionBudget>) -> Self {
        Self { objects, by_namespace: Mutex::default(), is_listed: watch::Sender::new(false) }
    }

    /// The budgets of a namespace.
    pub(crate) fn within(&self, namespace: &str) -> Vec<Arc<Budget>> {
        self.by_namespace().get(namespace).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// A budget is new, another, or gone.
    pub(crate) fn changed(&self, budget: &PodDisruptionBudget) {
        let now = self.objects.get(&ObjectRef::from_obj(budget));
        let mut by_namespace = self.by_namespace();
        let neighbours = by_namespace.entry(budget.namespace().unwrap_or_default()).or_default();
        match now {
            Some(now) => neighbours.insert(now.name_any(), Arc::new(Budget::from(&*now))),
            None => neighbours.remove(&budget.name_any()),
        };
    }

    /// All are known, for the first time or again.
    pub(crate) fn listed(&self) {
        let mut all: HashMap<String, Neighbours> = HashMap::new();
        for budget in self.objects.state() {
            let neighbours = all.entry(budget.namespace().unwrap_or_default()).or_default();
            neighbours.insert(budget.name_any(), Arc::new(Budget::from(&*budget)));
        }
        *self.by_namespace() = all;
        self.is_listed.send_replace(true);
    }

    /// Waits until all are known.
    pub(crate) async fn until_listed(&self) {
        // The sender lives as long as this.
        let _ = self.is_listed.subscribe().wait_for(|listed| *listed).await;
    }

    fn by_namespace(&self) -> MutexGuard<'_, HashMap<String, Neighbours>> {
        self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn budget(namespace: &str, name: &str, version: &str) -> PodDisruptionBudget {
        let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": version});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn what_is_known_follows_the_watch() {
        let (objects, mut writer) = reflector::store();
        let known = KnownBudgets::new(objects);
        let within = |namespace: &str| {
            let mut seen: Vec<String> = known
                .within(namespace)
                .iter()
                .map(|budget| format!("{} {}", budget.version().key, budget.version().version))
                .collect();
            seen.sort();
            seen
        };
        writer.apply_watcher_event(&Event::Init);
        for budget in [budget("a", "x", "1"), budget("a", "y", "1"), budget("b", "x", "1")] {
            writer.apply_watcher_event(&Event::InitApply(budget));
        }
        writer.apply_watcher_event(&Event::InitDone);
        known.listed();
        assert_eq!((within("a"), within("c")), (vec!["a/x 1".to_owned(), "a/y 1".to_owned()], vec![]));
        writer.apply_watcher_event(&Event::Apply(budget("a", "x", "2")));
        known.changed(&budget("a", "x", "2"));
        writer.apply_watcher_event(&Event::Delete(budget("a", "y", "3")));
        known.changed(&budget("a", "y", "3"));
        assert_eq!((within("a"), within("b")), (vec!["a/x 2".to_owned()], vec!["b/x 1".to_owned()]));
    }
}
