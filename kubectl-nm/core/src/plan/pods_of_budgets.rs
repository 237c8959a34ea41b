//! What the pods show of budgets that count too few healthy ones to allow an eviction.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::core::Selector;
use nm_shared::cluster::disruption_budget::{Budget, BudgetKey};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::budget_allowance::Stuck;

use crate::client::cluster::Cluster;
use crate::client::list_pages;
use crate::client::pod_problem::{has_failing_container, is_ready_while_it_runs, is_unschedulable};
use crate::error::Error;
use crate::plan::pods_elsewhere::MAX_CONCURRENT;
use crate::plan::snapshot_pods::SnapshotPods;

/// Of how many budgets the pods are read at most.
const MAX_BUDGETS: usize = 20;

/// What is known of the pods of these budgets.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodsOfBudgets {
    /// The budgets whose status is older than their pods, and that would allow an eviction once these are counted.
    pub(crate) outdated: BTreeSet<BudgetKey>,
    /// The pods that are not Ready, on no planned node, by their uids: several budgets may select one.
    pub(crate) unready_elsewhere: BTreeMap<String, Pod>,
}

impl PodsOfBudgets {
    /// The pods on no planned node that are on no way to become Ready.
    pub(crate) fn stuck_elsewhere(&self, now: Timestamp) -> impl Iterator<Item = (DrainPod, Stuck)> {
        let stuck = move |pod: &Pod| Some((DrainPod::from(pod), stuck_because(pod, now)?));
        self.unready_elsewhere.values().filter_map(stuck)
    }
}

/// Reads the pods of the budgets that guard pods on planned nodes and count too few healthy ones to allow an eviction.
pub(super) async fn read(
    pods: Option<&SnapshotPods>,
    budgets: &[PodDisruptionBudget],
    cluster: &Cluster,
) -> Result<PodsOfBudgets, Error> {
    let Some(pods) = pods else { return Ok(PodsOfBudgets::default()) };
    let is_elsewhere = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_none_or(|node| !pods.planned.contains_key(node))
    };
    let planned = pods.planned.values().flatten();
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
        let add = |(all, unready): &mut (Vec<DrainPod>, Vec<Pod>), pod: Pod| {
            let known = DrainPod::from(&pod);
            unready.extend((!pod::is_ready(&known) && is_elsewhere(&pod)).then_some(pod));
            all.push(known);
        };
        let is_outdated = |(all, _): &(Vec<DrainPod>, _)| budget.allows_once_counted(all.iter());
        let read = list_pages::until(&of_namespace, cluster, "list pods", selected, add, is_outdated).await?;
        Ok::<_, Error>((is_outdated(&read).then(|| budget.version().key.clone()), read.1))
    });
    let read: Vec<(Option<BudgetKey>, Vec<Pod>)> = read.buffered(MAX_CONCURRENT).try_collect().await?;
    let (outdated, unready): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let by_uid = |pod: Pod| Some((pod.metadata.uid.clone()?, pod));
    Ok(PodsOfBudgets {
        outdated: outdated.into_iter().flatten().collect(),
        unready_elsewhere: unready.into_iter().flatten().filter_map(by_uid).collect(),
    })
}

/// Why a pod that is not Ready is on no way to become so; none if it may become Ready.
fn stuck_because(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if is_unschedulable(pod, now) {
        return Some(Stuck::Unschedulable);
    }
    failing_because(pod, now)
}

/// Whether a pod of which a container fails is on no way to become Ready at all, or but for moments; none if no container fails.
pub(super) fn failing_because(pod: &Pod, now: Timestamp) -> Option<Stuck> {
    let why = if is_ready_while_it_runs(pod, now) { Stuck::Crashing } else { Stuck::Unready };
    has_failing_container(pod, now).then_some(why)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::cluster;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn pod(name: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    }

    /// What is read of a budget that requires one of two pods, with these healthy and these evicted ones.
    async fn found(healthy: i32, evicted: &Value, second: &Value) -> PodsOfBudgets {
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
        read(Some(&pods), &budgets, &cluster).await.unwrap()
    }

    async fn is_outdated(healthy: i32, evicted: &Value, second: &Value) -> bool {
        !found(healthy, evicted, second).await.outdated.is_empty()
    }

    #[tokio::test]
    async fn pods_for_which_the_scheduler_finds_no_node_for_a_while_are_stuck() {
        let pending = |reason: &str, since: &str| {
            let mut pod = pod("web-1");
            pod["spec"] = json!({"containers": []});
            pod["status"] = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                "reason": reason, "message": "0/3 nodes are available: 3 Insufficient cpu.", "lastTransitionTime": since}]});
            pod
        };
        let stuck = async |second: &Value| -> Vec<Stuck> {
            let found = found(1, &json!({}), second).await;
            found.stuck_elsewhere(NOW.parse().unwrap()).map(|(_, why)| why).collect()
        };
        let long_ago = "2026-01-02T03:00:00Z";
        assert_eq!(stuck(&pending("Unschedulable", long_ago)).await, [Stuck::Unschedulable]);
        assert_eq!(stuck(&pending("Unschedulable", "2026-01-02T03:03:45Z")).await, [], "just tried");
        assert_eq!(stuck(&pending("SchedulingGated", long_ago)).await, []);
        let (mut nominated, mut terminating) =
            (pending("Unschedulable", long_ago), pending("Unschedulable", long_ago));
        nominated["status"]["nominatedNodeName"] = json!("n2");
        terminating["metadata"]["deletionTimestamp"] = json!(NOW);
        assert_eq!((stuck(&nominated).await, stuck(&terminating).await), (vec![], vec![]));
        let mut crashing = pod("web-1");
        crashing["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "app", "image": "", "imageID": "",
            "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        assert_eq!(stuck(&crashing).await, [], "that of a planned node is judged with its node");
        crashing["spec"]["nodeName"] = json!("n2");
        assert_eq!(stuck(&crashing).await, [Stuck::Unready], "it has never run");
        crashing["spec"]["containers"] = json!([{"name": "app"}]);
        crashing["status"]["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 1}});
        assert_eq!(stuck(&crashing).await, [Stuck::Crashing]);
        let probe = json!({"httpGet": {"port": 80}});
        for (path, value) in [
            ("/spec/containers/0/readinessProbe", probe.clone()),
            ("/spec/containers/0/startupProbe", probe),
            ("/spec/readinessGates", json!([{"conditionType": "g"}])),
            ("/status/containerStatuses/0/lastState", json!({})),
        ] {
            let mut probed = crashing.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            probed.pointer_mut(parent).unwrap()[name] = value;
            assert_eq!(stuck(&probed).await, [Stuck::Unready], "{path}");
        }
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
