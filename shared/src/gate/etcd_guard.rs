//! The guard of etcd on OpenShift: a disruption budget and the pods that it selects.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use kube::core::{Selector, SelectorExt};

use crate::cluster::pod::{ConditionStatus, DrainPod};

/// The namespace of OpenShift's etcd, its guard pods and their budget.
pub const ETCD_NAMESPACE: &str = "openshift-etcd";

/// An API group that only OpenShift serves.
const OPENSHIFT_GROUP: &str = "config.openshift.io";

/// Whether a cluster that serves these API groups is OpenShift.
pub fn is_openshift(served: &APIGroupList) -> bool {
    served.groups.iter().any(|group| group.name == OPENSHIFT_GROUP)
}

/// The guard of etcd on OpenShift.
#[derive(Debug, Clone, Default)]
pub struct EtcdGuard {
    /// The disruption budgets in [`ETCD_NAMESPACE`].
    pub budgets: Vec<PodDisruptionBudget>,
    /// The pods in that namespace that the budget selects.
    pub pods: Vec<DrainPod>,
}

impl EtcdGuard {
    /// The budgets in etcd's namespace, and the pods there that the only one selects. With several budgets, the pods do not
    /// matter.
    pub fn among<'a>(
        budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>,
        pods: impl IntoIterator<Item = &'a DrainPod>,
    ) -> Self {
        let budgets =
            budgets.into_iter().filter(|it| it.metadata.namespace.as_deref() == Some(ETCD_NAMESPACE));
        let budgets: Vec<_> = budgets.cloned().collect();
        let mut selector = None;
        if let [budget] = budgets.as_slice() {
            let labels = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
            selector = labels.and_then(|labels| Selector::try_from(labels).ok());
        }
        let is_guard = |pod: &&DrainPod| {
            &*pod.namespace == ETCD_NAMESPACE
                && selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
        };
        Self { pods: pods.into_iter().filter(is_guard).cloned().collect(), budgets }
    }

    /// Whether the guard allows a disruption of etcd on this node. Without exactly one budget it is unknown, which counts as
    /// not allowed.
    pub(crate) fn allows(&self, node: &str) -> bool {
        let [budget] = self.budgets.as_slice() else { return false };
        if budget.status.as_ref().is_some_and(|status| status.disruptions_allowed >= 1) {
            return true;
        }
        // A pod with an unknown condition may be Ready.
        let may_be_ready = |pod: &DrainPod| pod.ready.is_some_and(|ready| ready != ConditionStatus::False);
        // A node whose etcd is disrupted already, or that runs none, is allowed.
        self.pods.iter().find(|pod| &*pod.node == node).is_none_or(|pod| !may_be_ready(pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
    use serde_json::{Value, json};

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_guards_are_the_pods_that_the_only_budget_in_etcds_namespace_selects() {
        let budget = |namespace: &str| -> PodDisruptionBudget {
            let spec = json!({"selector": {"matchLabels": {"app": "guard"}}});
            parse(json!({"metadata": {"namespace": namespace, "name": "b"}, "spec": spec}))
        };
        let pod = |namespace: &str, app: &str| -> DrainPod {
            let metadata =
                json!({"namespace": namespace, "name": format!("{namespace}-{app}"), "labels": {"app": app}});
            parse(json!({"metadata": metadata, "spec": {"containers": []}}))
        };
        let pods = [pod(ETCD_NAMESPACE, "guard"), pod(ETCD_NAMESPACE, "etcd"), pod("shop", "guard")];
        let found = |budgets: &[PodDisruptionBudget]| {
            let EtcdGuard { budgets, pods } = EtcdGuard::among(budgets, &pods);
            (budgets.len(), pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>())
        };
        assert_eq!(found(&[]), (0, vec![]));
        assert_eq!(
            found(&[budget("shop"), budget(ETCD_NAMESPACE)]),
            (1, vec!["openshift-etcd-guard".into()])
        );
        assert_eq!(found(&[budget(ETCD_NAMESPACE), budget(ETCD_NAMESPACE)]), (2, vec![]));
    }

    #[test]
    fn openshift_is_recognized_by_a_group_that_it_serves() {
        let served = |names: &[&str]| {
            let group = |name: &&str| APIGroup { name: (*name).to_owned(), ..APIGroup::default() };
            APIGroupList { groups: names.iter().map(group).collect() }
        };
        assert!(is_openshift(&served(&["apps", "config.openshift.io"])));
        assert!(!is_openshift(&served(&["apps", "policy", "console.openshift.io.example.com"])));
    }
}
