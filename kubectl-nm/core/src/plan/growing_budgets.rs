//! The budgets that may count more pods in a moment, so that what they allow at most is not known.

use std::collections::{BTreeMap, BTreeSet};

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

/// More pods of a workload make no difference.
const MAX_COUNTED: i32 = 1_000_000;

/// A workload that controls pods itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Workload {
    namespace: String,
    is_set: bool,
    name: String,
}

/// How many pods a workload wants, how many it has, and how many it is still to create.
#[derive(Debug, Clone, Copy, Default)]
struct PodNumbers {
    wanted: i32,
    there: i32,
    missing: i32,
}

/// The budget, if its controller can count, and has not counted yet, or if it is `known` to count more pods later. If that is
/// not known, it may if some of the pods that there are only start, and its `minAvailable` is a number, with which those that
/// are still to be created do not count.
pub(super) fn growing(budget: &PodDisruptionBudget, known: &BTreeMap<BudgetKey, bool>) -> Option<BudgetKey> {
    let (view, status) = (Budget::from(budget), budget.status.clone().unwrap_or_default());
    let key = view.version().key.clone();
    let is_starting = || counts_existing(budget) && status.current_healthy < status.expected_pods;
    let grows = known.get(&key).copied().unwrap_or_else(is_starting);
    (view.is_counted() && (!view.is_processed() || grows)).then_some(key)
}

/// Whether its `minAvailable` is a number of pods.
fn counts_existing(budget: &PodDisruptionBudget) -> bool {
    let minimum = budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref());
    matches!(minimum, Some(IntOrString::Int(_)))
}

/// Whether the budgets that demand as many pods as there are will have more than they demand once their workloads have created
/// all of theirs. Where a workload could not be read, or is not known, that is left out.
pub(super) async fn read(
    pods: Option<&SnapshotPods>,
    budgets: &[PodDisruptionBudget],
    cluster: &Cluster,
) -> Result<BTreeMap<BudgetKey, bool>, Error> {
    let of_number = budgets.iter().filter(|budget| counts_existing(budget));
    let exhausted = of_number.map(|object| (Budget::from(object), object));
    let exhausted: Vec<_> = exhausted.filter(|(budget, _)| budget.is_unsatisfiable()).collect();
    if exhausted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let planned = pods.iter().flat_map(|pods| pods.planned.values().flatten());
    let planned: Vec<DrainPod> = planned.map(|pod| DrainPod::from(&**pod)).collect();
    // None if something else creates some of its pods.
    let of_budget = |budget: &Budget| -> Option<BTreeSet<Workload>> {
        let mut guarded = planned.iter().filter(|pod| budget.guards(pod)).peekable();
        guarded.peek()?;
        guarded.filter(|pod| pod::controller(pod).is_some()).map(workload).collect()
    };
    let exhausted = exhausted.into_iter().filter_map(|(budget, object)| {
        let workloads = of_budget(&budget)?;
        Some((budget, object, workloads))
    });
    let exhausted: Vec<_> = exhausted.collect();
    let wanted: BTreeSet<Workload> =
        exhausted.iter().flat_map(|(_, _, workloads)| workloads.clone()).take(MAX_WORKLOADS).collect();
    let read = async |workload: Workload| {
        let numbers = numbers(&workload, cluster).await?;
        Ok::<_, Error>(numbers.map(|numbers| (workload, numbers)))
    };
    let read: Vec<Option<(Workload, PodNumbers)>> =
        stream::iter(wanted).map(read).buffered(MAX_CONCURRENT).try_collect().await?;
    let numbers: BTreeMap<Workload, PodNumbers> = read.into_iter().flatten().collect();
    let grows = |(budget, object, workloads): (Budget, &PodDisruptionBudget, BTreeSet<Workload>)| {
        let status = object.status.as_ref()?;
        let mut all = PodNumbers::default();
        for workload in &workloads {
            let of_one = numbers.get(workload)?;
            all.wanted = all.wanted.saturating_add(of_one.wanted);
            all.there = all.there.saturating_add(of_one.there);
            all.missing = all.missing.saturating_add(of_one.missing);
        }
        // It may not have counted the last pods that were created.
        let expected = status.expected_pods.saturating_add(all.missing).max(all.wanted);
        let grows = expected > status.desired_healthy;
        // A workload without a pod on these nodes was not read, and may create more.
        let are_all = all.there >= status.expected_pods;
        (grows || are_all).then(|| (budget.version().key.clone(), grows))
    };
    Ok(exhausted.into_iter().filter_map(grows).collect())
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

/// The numbers of a workload; none without access.
async fn numbers(workload: &Workload, cluster: &Cluster) -> Result<Option<PodNumbers>, Error> {
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
        Ok(None) => Ok(Some(PodNumbers::default())),
        Ok(Some((wanted, there))) => {
            let wanted = wanted.unwrap_or(1).clamp(0, MAX_COUNTED);
            let there = there.unwrap_or_default().clamp(0, MAX_COUNTED);
            Ok(Some(PodNumbers { wanted, there, missing: wanted.saturating_sub(there) }))
        }
        Err(Error::Server { status, .. }) if status.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    fn budget(minimum: &Value, expected: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"currentHealthy": 1, "desiredHealthy": minimum.as_i64().unwrap_or(1), "disruptionsAllowed": 0,
                "expectedPods": expected},
        }))
        .unwrap()
    }

    async fn read_with(minimum: Value, answer: (u16, Value)) -> Option<bool> {
        read_of(&budget(&minimum, 1), answer).await
    }

    async fn read_of(budget: &PodDisruptionBudget, answer: (u16, Value)) -> Option<bool> {
        read_beside(&[], budget, answer).await
    }

    /// With pods of the same labels in other namespaces, whose workloads must not be read.
    async fn read_beside(
        others: &[&str],
        budget: &PodDisruptionBudget,
        answer: (u16, Value),
    ) -> Option<bool> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c4", "uid": "o", "controller": true});
        let pod = |namespace: &&str| {
            let pod = json!({"metadata": {"namespace": namespace, "name": "web-6c4-a", "uid": "u", "labels": {"app": "web"},
                "ownerReferences": [owner]}, "spec": {"nodeName": "n1", "containers": []}});
            let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
            pod.into()
        };
        let mut pods = SnapshotPods::default();
        pods.planned.insert("n1".into(), others.iter().chain([&"shop"]).map(pod).collect());
        let (cluster, _) = cluster(move |_, path| {
            assert_eq!(path, "/apis/apps/v1/namespaces/shop/replicasets/web-6c4");
            answer.clone()
        });
        read(Some(&pods), std::slice::from_ref(budget), &cluster).await.unwrap().into_values().next()
    }

    #[tokio::test]
    async fn a_budget_grows_if_a_workload_of_its_pods_wants_more_than_there_are() {
        let set = |wanted: i32| {
            (
                200,
                json!({"metadata": {"name": "web-6c4"}, "spec": {"replicas": wanted}, "status": {"replicas": 1}}),
            )
        };
        assert_eq!(read_with(json!(1), set(2)).await, Some(true));
        assert_eq!(read_with(json!(1), set(1)).await, Some(false));
        assert_eq!(read_with(json!(2), set(2)).await, Some(false), "it demands all of them then, too");
        assert_eq!(read_with(json!(2), set(3)).await, Some(true));
        let of_two = read_of(&budget(&json!(2), 2), set(1)).await;
        assert_eq!(of_two, None, "another workload, of which no pod is planned to leave, may create more");
        assert_eq!(read_with(json!("100%"), set(2)).await, None, "it counts the pods that are wanted");
        assert_eq!(read_with(json!(1), failure(403, "Forbidden", "no")).await, None);
        assert_eq!(
            read_with(json!(1), failure(404, "NotFound", "no")).await,
            None,
            "something else has made its pod"
        );
    }

    #[tokio::test]
    async fn workloads_of_other_namespaces_with_the_same_labels_do_not_make_a_budget_grow() {
        let all =
            json!({"metadata": {"name": "web-6c4"}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
        let alone = read_beside(&["bank", "media"], &budget(&json!(1), 1), (200, all)).await;
        assert_eq!(alone, Some(false), "all of its pods are there, and it demands all of them");
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
        let none = BTreeMap::new();
        assert_eq!(growing(&budget(1), &none), None);
        assert!(growing(&budget(0), &none).is_some(), "its controller may not have counted them yet");
        let mut uncountable = budget(0);
        let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
            "message": "jobs.batch does not implement the scale subresource", "lastTransitionTime": "2026-01-02T03:00:00Z"}]);
        uncountable.status.as_mut().unwrap().conditions = serde_json::from_value(failed).unwrap();
        assert_eq!(growing(&uncountable, &none), None, "it cannot count them");
    }
}
