//! The budgets that may count more pods in a moment, so that what they allow at most is not known.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::Api;
use nm_shared::cluster::disruption_budget::{Budget, BudgetKey};
use nm_shared::cluster::metadata;
use nm_shared::cluster::pod::{self, DrainPod};

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::plan::pods_elsewhere::MAX_CONCURRENT;
use crate::plan::snapshot_pods::SnapshotPods;

/// How many workloads are read at most.
const MAX_WORKLOADS: usize = 50;

/// A workload that controls pods itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Workload {
    namespace: String,
    is_set: bool,
    name: String,
}

/// The budget, if its controller has not counted yet, or if some of the pods that there are only start, and its
/// `minAvailable` is a number, with which those that are still to be created do not count.
pub(super) fn growing(budget: &PodDisruptionBudget) -> Option<BudgetKey> {
    let (view, status) = (Budget::from(budget), budget.status.clone().unwrap_or_default());
    let is_starting = counts_existing(budget) && status.current_healthy < status.expected_pods;
    (!view.is_processed() || is_starting).then(|| view.version().key.clone())
}

/// Whether its `minAvailable` is a number of pods.
fn counts_existing(budget: &PodDisruptionBudget) -> bool {
    let minimum = budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref());
    matches!(minimum, Some(IntOrString::Int(_)))
}

/// The budgets whose number of pods is as many as there are, of which a workload is to create more.
pub(super) async fn read(
    pods: Option<&SnapshotPods>,
    budgets: &[PodDisruptionBudget],
    cluster: &Cluster,
) -> Result<BTreeSet<BudgetKey>, Error> {
    let exhausted = budgets.iter().filter(|budget| counts_existing(budget)).map(Budget::from);
    let exhausted: Vec<Budget> = exhausted.filter(Budget::is_unsatisfiable).collect();
    if exhausted.is_empty() {
        return Ok(BTreeSet::new());
    }
    let planned = pods.iter().flat_map(|pods| pods.planned.values().flatten());
    let guarded = planned.map(|pod| DrainPod::from(&**pod)).flat_map(|pod| {
        let guards = exhausted.iter().filter(|budget| budget.guards(&pod));
        let keys: Vec<BudgetKey> = guards.map(|budget| budget.version().key.clone()).collect();
        keys.into_iter().filter_map(move |key| Some((workload(&pod)?, key)))
    });
    let guarded: BTreeSet<(Workload, BudgetKey)> = guarded.collect();
    let lacks_pods = async |(workload, key): (Workload, BudgetKey)| {
        Ok::<_, Error>(lacks_pods(&workload, cluster).await?.then_some(key))
    };
    let read = stream::iter(guarded.into_iter().take(MAX_WORKLOADS)).map(lacks_pods).buffered(MAX_CONCURRENT);
    Ok(read.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
}

fn workload(pod: &DrainPod) -> Option<Workload> {
    let owner = pod::controller(pod)?;
    let is_set = metadata::is_of(owner, "apps", "StatefulSet");
    let namespace = pod::names(pod).namespace.to_owned();
    (is_set || metadata::is_of(owner, "apps", "ReplicaSet")).then(|| Workload {
        namespace,
        is_set,
        name: owner.name.clone(),
    })
}

/// Whether the workload wants more pods than it has; false without access.
async fn lacks_pods(workload: &Workload, cluster: &Cluster) -> Result<bool, Error> {
    let Workload { namespace, is_set, name } = workload;
    let numbers = if *is_set {
        let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), namespace);
        let read = cluster.request("get statefulsets.apps", async || sets.get_opt(name).await).await;
        read.map(|set| {
            set.map(|set| (set.spec.and_then(|spec| spec.replicas), set.status.map(|status| status.replicas)))
        })
    } else {
        let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), namespace);
        let read = cluster.request("get replicasets.apps", async || sets.get_opt(name).await).await;
        read.map(|set| {
            set.map(|set| (set.spec.and_then(|spec| spec.replicas), set.status.map(|status| status.replicas)))
        })
    };
    match numbers {
        Ok(numbers) => {
            Ok(numbers.is_some_and(|(wanted, there)| wanted.unwrap_or(1) > there.unwrap_or_default()))
        }
        Err(Error::Server { status, .. }) if status.is_forbidden() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    fn budget(minimum: &Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1},
        }))
        .unwrap()
    }

    async fn read_with(minimum: Value, answer: (u16, Value)) -> usize {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c4", "uid": "o", "controller": true});
        let pod = json!({"metadata": {"namespace": "shop", "name": "web-6c4-a", "uid": "u", "labels": {"app": "web"},
            "ownerReferences": [owner]}, "spec": {"nodeName": "n1", "containers": []}});
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        let mut pods = SnapshotPods::default();
        pods.planned.insert("n1".into(), vec![pod.into()]);
        let (cluster, _) = cluster(move |_, path| {
            assert_eq!(path, "/apis/apps/v1/namespaces/shop/replicasets/web-6c4");
            answer.clone()
        });
        read(Some(&pods), &[budget(&minimum)], &cluster).await.unwrap().len()
    }

    #[tokio::test]
    async fn a_budget_grows_if_a_workload_of_its_pods_wants_more_than_there_are() {
        let set = |wanted: i32| {
            (
                200,
                json!({"metadata": {"name": "web-6c4"}, "spec": {"replicas": wanted}, "status": {"replicas": 1}}),
            )
        };
        assert_eq!(read_with(json!(1), set(2)).await, 1);
        assert_eq!(read_with(json!(1), set(1)).await, 0);
        assert_eq!(read_with(json!("100%"), set(2)).await, 0, "it counts the pods that are wanted");
        assert_eq!(read_with(json!(1), failure(403, "Forbidden", "no")).await, 0);
        assert_eq!(read_with(json!(1), failure(404, "NotFound", "no")).await, 0);
    }

    #[test]
    fn a_budget_that_expects_no_pods_because_they_have_no_controller_is_not_to_grow() {
        let budget = |healthy: i32| {
            let status = json!({"observedGeneration": 1, "expectedPods": 0, "desiredHealthy": 0, "currentHealthy": healthy,
                "disruptionsAllowed": 0});
            let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}});
            let metadata = json!({"name": "web", "namespace": "shop", "generation": 1});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
        };
        assert_eq!(growing(&budget(1)), None);
        assert!(growing(&budget(0)).is_some(), "its controller may not have counted them yet");
    }
}
