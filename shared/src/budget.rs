//! Which disruption budgets guard a pod, and whether they would let one more go.
//!
//! The API server stays the judge: what is read here only says when asking it again is worth while.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt};

/// A budget with its selector ready to use.
#[derive(Debug, Clone)]
struct Budget {
    object: Arc<PodDisruptionBudget>,
    /// None where it selects nothing, as `selector: null` does.
    selector: Option<Selector>,
    /// Disruptions that it allows and that nobody has asked for yet.
    allowed: i32,
}

/// The budgets of some namespaces, and what is left of them while a decision is made.
#[derive(Debug, Clone, Default)]
pub struct Budgets {
    budgets: Vec<Budget>,
}

impl Budgets {
    /// Reads the budgets as they are now.
    pub fn new(budgets: impl IntoIterator<Item = Arc<PodDisruptionBudget>>) -> Self {
        let budgets = budgets.into_iter().map(|budget| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
            let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
            let allowed = budget.status.as_ref().map_or(0, |status| status.disruptions_allowed);
            Budget { object: budget, selector, allowed }
        });
        Self { budgets: budgets.collect() }
    }

    /// The names of the budgets that guard `pod`.
    pub fn guarding(&self, pod: &Pod) -> Vec<String> {
        let name = |budget: &Budget| budget.object.metadata.name.clone().unwrap_or_default();
        self.budgets.iter().filter(|budget| budget.guards(pod)).map(name).collect()
    }

    /// Takes one disruption for `pod` from each budget that guards it; false, and nothing taken, if one has none left.
    pub fn charge(&mut self, pod: &Pod) -> bool {
        if self.budgets.iter().any(|budget| budget.guards(pod) && budget.allowed <= 0) {
            return false;
        }
        for budget in self.budgets.iter_mut().filter(|budget| budget.guards(pod)) {
            budget.allowed -= 1;
        }
        true
    }
}

impl Budget {
    fn guards(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        self.object.metadata.namespace == pod.metadata.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn budget(name: &str, selector: &Value, allowed: i32) -> Arc<PodDisruptionBudget> {
        let budget = json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"selector": selector},
            "status": {"currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": allowed, "expectedPods": 3},
        });
        Arc::new(serde_json::from_value(budget).unwrap())
    }

    fn pod(namespace: &str, app: &str) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"namespace": namespace, "name": "p", "labels": {"app": app}}}),
        )
        .unwrap()
    }

    #[test]
    fn a_budget_guards_by_selector_within_its_namespace() {
        let cart = json!({"matchLabels": {"app": "cart"}});
        let budgets = Budgets::new([
            budget("cart", &cart, 1),
            budget("all", &json!({}), 1),
            budget("none", &Value::Null, 0),
        ]);
        assert_eq!(budgets.guarding(&pod("shop", "cart")), ["cart", "all"]);
        assert_eq!(budgets.guarding(&pod("shop", "web")), ["all"]);
        assert!(budgets.guarding(&pod("elsewhere", "cart")).is_empty());
    }

    #[test]
    fn no_more_is_asked_for_than_a_budget_allows() {
        let mut budgets = Budgets::new([budget("cart", &json!({"matchLabels": {"app": "cart"}}), 2)]);
        let asked: Vec<bool> = (0..3).map(|_| budgets.charge(&pod("shop", "cart"))).collect();
        assert_eq!(asked, [true, true, false]);
        assert!(budgets.charge(&pod("shop", "web")), "nothing guards it");
    }
}
