//! The budgets whose status is older than their pods.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::core::Selector;
use nm_shared::cluster::disruption_budget::{Budget, BudgetKey};
use nm_shared::cluster::pod::DrainPod;

use crate::client::cluster::Cluster;
use crate::client::list_pages;
use crate::error::Error;
use crate::plan::pods_elsewhere::MAX_CONCURRENT;
use crate::plan::snapshot_pods::SnapshotPods;

/// Of how many budgets the pods are read at most.
const MAX_BUDGETS: usize = 20;

/// The budgets of pods on planned nodes that count too few healthy pods to allow an eviction, and fewer than there are.
pub(super) async fn read(
    pods: Option<&SnapshotPods>,
    budgets: &[PodDisruptionBudget],
    cluster: &Cluster,
) -> Result<BTreeSet<BudgetKey>, Error> {
    let planned = pods.iter().flat_map(|pods| pods.planned.values().flatten());
    let planned: Vec<DrainPod> = planned.map(|pod| DrainPod::from(&**pod)).collect();
    let lacking = budgets.iter().filter_map(|object| {
        let budget = Budget::from(object);
        let lacks = budget.is_processed() && budget.allowed() == 0 && budget.surplus() <= 0;
        let is_concerned = lacks && planned.iter().any(|pod| budget.guards(pod));
        let selector = object.spec.as_ref()?.selector.clone().filter(|_| is_concerned)?;
        Some((budget, Selector::try_from(selector).ok()?))
    });
    let read = stream::iter(lacking.take(MAX_BUDGETS)).map(async |(budget, selector)| {
        let of_namespace: Api<Pod> = Api::namespaced(cluster.client(), &budget.version().key.namespace);
        let selected = ListParams::default().labels_from(&selector);
        let add = |kept: &mut Vec<DrainPod>, pod: Pod| kept.push(DrainPod::from(&pod));
        let is_outdated = |kept: &Vec<DrainPod>| budget.is_outdated(kept.iter());
        let kept = list_pages::until(&of_namespace, cluster, "list pods", selected, add, is_outdated).await?;
        Ok::<_, Error>(is_outdated(&kept).then(|| budget.version().key.clone()))
    });
    let outdated: Vec<Option<BudgetKey>> = read.buffered(MAX_CONCURRENT).try_collect().await?;
    Ok(outdated.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::cluster;

    fn pod(name: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    /// Whether a budget is outdated that requires one of two pods, with these healthy and these evicted ones.
    async fn is_outdated(healthy: i32, evicted: &Value, second: &Value) -> bool {
        let status = json!({"observedGeneration": 1, "expectedPods": 2, "desiredHealthy": 1, "currentHealthy": healthy,
            "disruptionsAllowed": 0, "disruptedPods": evicted});
        let budget = json!({"metadata": {"namespace": "shop", "name": "web", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status});
        let first = pod("web-0");
        let list = json!({"metadata": {}, "items": [&first, second]});
        let (cluster, _) = cluster(move |_, path| {
            assert_eq!(path, "/api/v1/namespaces/shop/pods");
            (200, list.clone())
        });
        let mut pods = SnapshotPods::default();
        pods.planned.insert("n1".into(), vec![Arc::new(serde_json::from_value(first).unwrap())]);
        let budgets = [serde_json::from_value(budget).unwrap()];
        !read(Some(&pods), &budgets, &cluster).await.unwrap().is_empty()
    }

    #[tokio::test]
    async fn a_budget_is_outdated_if_more_of_its_pods_are_ready_than_it_counts() {
        let (none, ready) = (json!({}), pod("web-1"));
        assert!(is_outdated(1, &none, &ready).await);
        let (mut unready, mut terminating) = (pod("web-1"), pod("web-1"));
        unready["status"]["conditions"] = json!([]);
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        for second in [unready, terminating] {
            assert!(!is_outdated(1, &none, &second).await, "{second}");
        }
        assert!(!is_outdated(1, &json!({"web-1": "2026-01-02T03:04:05Z"}), &ready).await, "evicted");
        assert!(!is_outdated(2, &none, &ready).await);
    }
}
