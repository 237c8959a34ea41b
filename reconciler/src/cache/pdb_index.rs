//! An index of the cluster's disruption budgets, each parsed once when it changes and not with every reconcile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use nm_shared::cluster::disruption_budget::Budget;
use tokio::sync::watch;

/// The budgets of each namespace, by name.
type BudgetsByNamespace = HashMap<String, HashMap<String, Arc<Budget>>>;

/// The disruption budgets of a store, by namespace.
pub(crate) struct PdbIndex {
    pub(crate) objects: Store<PodDisruptionBudget>,
    by_namespace: Mutex<BudgetsByNamespace>,
    is_listed: watch::Sender<bool>,
}

impl PdbIndex {
    /// An index of a store. Each change has to be reported with [`Self::update`] or [`Self::rebuild`].
    pub(crate) fn new(objects: Store<PodDisruptionBudget>) -> Self {
        Self { objects, by_namespace: Mutex::default(), is_listed: watch::Sender::new(false) }
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<Budget>> {
        self.lock().get(namespace).into_iter().flat_map(HashMap::values).cloned().collect()
    }

    /// Indexes a budget that was created, changed or deleted.
    pub(crate) fn update(&self, budget: &PodDisruptionBudget) {
        let now = self.objects.get(&ObjectRef::from_obj(budget));
        let mut by_namespace = self.lock();
        let budgets = by_namespace.entry(budget.namespace().unwrap_or_default()).or_default();
        match now {
            Some(now) => budgets.insert(now.name_any(), Arc::new(Budget::from(&*now))),
            None => budgets.remove(&budget.name_any()),
        };
    }

    /// Indexes the store anew after a list.
    pub(crate) fn rebuild(&self) {
        let mut all = BudgetsByNamespace::new();
        for budget in self.objects.state() {
            let budgets = all.entry(budget.namespace().unwrap_or_default()).or_default();
            budgets.insert(budget.name_any(), Arc::new(Budget::from(&*budget)));
        }
        *self.lock() = all;
        self.is_listed.send_replace(true);
    }

    pub(crate) async fn wait_until_listed(&self) {
        // The sender lives as long as this.
        let _ = self.is_listed.subscribe().wait_for(|listed| *listed).await;
    }

    fn lock(&self) -> MutexGuard<'_, BudgetsByNamespace> {
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
    fn the_index_follows_the_watch() {
        let (objects, mut writer) = reflector::store();
        let index = PdbIndex::new(objects);
        let in_namespace = |namespace: &str| {
            let budgets = index.in_namespace(namespace);
            let mut budgets: Vec<String> = budgets
                .iter()
                .map(|budget| format!("{} {}", budget.version().key, budget.version().version))
                .collect();
            budgets.sort();
            budgets
        };
        writer.apply_watcher_event(&Event::Init);
        for budget in [budget("a", "x", "1"), budget("a", "y", "1"), budget("b", "x", "1")] {
            writer.apply_watcher_event(&Event::InitApply(budget));
        }
        writer.apply_watcher_event(&Event::InitDone);
        index.rebuild();
        assert_eq!(
            (in_namespace("a"), in_namespace("c")),
            (vec!["a/x 1".to_owned(), "a/y 1".to_owned()], vec![])
        );
        writer.apply_watcher_event(&Event::Apply(budget("a", "x", "2")));
        index.update(&budget("a", "x", "2"));
        writer.apply_watcher_event(&Event::Delete(budget("a", "y", "3")));
        index.update(&budget("a", "y", "3"));
        assert_eq!(
            (in_namespace("a"), in_namespace("b")),
            (vec!["a/x 2".to_owned()], vec!["b/x 1".to_owned()])
        );
    }
}
