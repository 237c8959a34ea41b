//! What is drained in the cluster that `NM_E2E_KUBECONFIG` names: the pods of some deployments, gathered onto the same nodes
//! before each round, so that all rounds do the same work.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use nm_shared::cluster::pod::{self, DrainPod, ReceivedPod};
use nm_tests::cluster::{Cluster, SUITE_LABEL};
use nm_tests::manifests;
use nm_tests::wait::{wait_until, wait_until_all};
use serde_json::{Value, json};

use crate::route::Route;
use crate::scenario::{Pod, PreparedCluster, set_unschedulable};

const NAMESPACE: &str = "nm-drain-benchmark";
/// Pods of a deployment.
const REPLICAS: usize = 50;
/// How many pods are deleted at once while they are gathered.
const CONCURRENT_DELETIONS: usize = 64;

/// A cluster with one workload for all rounds.
pub(crate) struct GatheredPods {
    cluster: Arc<Cluster>,
    route: Arc<Route>,
    /// The nodes to drain.
    pub(crate) drained: Vec<String>,
    /// The nodes for the replacements.
    spare: Vec<String>,
    /// How many pods there are.
    pub(crate) pods: usize,
}

impl GatheredPods {
    /// Deployments with `pods_per_node` pods for each of `nodes` nodes, which terminate within `grace_period` at most. The
    /// cluster needs twice as many nodes.
    ///
    /// As for the end-to-end suite, every `NodeMaintenance` of the cluster is deleted first.
    pub(crate) async fn create(nodes: usize, pods_per_node: usize, grace_period: Duration) -> Self {
        let cluster = Cluster::start(2 * nodes).await;
        let mut names = cluster.nodes().await;
        names.sort_unstable();
        let spare = names.split_off(nodes);
        let route = Arc::new(Route::to(&cluster).await);
        let pods = nodes * pods_per_node;
        let gathered = Self { cluster: Arc::new(cluster), route, drained: names, spare, pods };
        gathered.set_priority_level().await;
        gathered.fill(grace_period).await;
        gathered
    }

    /// Installs the flow schemas of the manifests, which give the reconciler a priority level of its own.
    /// `NM_DRAIN_FLOW_SCHEMA` is `none` to remove them, the number of that level's shares, or the name of another level, such
    /// as `exempt`.
    async fn set_priority_level(&self) {
        let level = std::env::var("NM_DRAIN_FLOW_SCHEMA").ok();
        let shares = level.as_ref().and_then(|level| level.parse::<u32>().ok());
        for mut object in manifests::flow_schemas() {
            if level.as_deref() == Some("none") {
                self.cluster.remove(&object).await;
                continue;
            }
            let spec = &mut object.data["spec"];
            if let (Some(shares), Some(limited)) = (shares, spec.get_mut("limited")) {
                limited["nominalConcurrencyShares"] = json!(shares);
            }
            // The other FlowSchema is that of the lease.
            if let Some(level) = level.as_ref().filter(|_| shares.is_none())
                && spec["priorityLevelConfiguration"]["name"] == "nm-reconciler"
            {
                spec["priorityLevelConfiguration"]["name"] = json!(level);
            }
            self.cluster.apply(&object).await;
        }
    }

    async fn fill(&self, grace_period: Duration) {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let is_gone = |namespace: Option<&Namespace>| namespace.is_none();
        wait_until(&namespaces, NAMESPACE, "the namespace of an earlier run is gone", is_gone).await;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {SUITE_LABEL: ""}},
        });
        self.cluster.apply(&object(namespace)).await;
        let mut left = self.pods;
        for number in 0..self.pods.div_ceil(REPLICAS) {
            let app = format!("app-{number}");
            let replicas = left.min(REPLICAS);
            left -= replicas;
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": app, "namespace": NAMESPACE},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": app}},
                    "template": {
                        "metadata": {"labels": {"app": app}},
                        "spec": {
                            "terminationGracePeriodSeconds": grace_period.as_secs(),
                            "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
                        },
                    },
                },
            });
            self.cluster.apply(&object(deployment)).await;
        }
    }

    /// Moves all pods to the nodes to drain.
    pub(crate) async fn gather(&self) -> PreparedCluster {
        set_unschedulable(&self.cluster, &self.drained, false).await;
        set_unschedulable(&self.cluster, &self.spare, true).await;
        let api: Api<ReceivedPod> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let all = api.list(&ListParams::default()).await.unwrap().items;
        let elsewhere = all.into_iter().filter(|pod| !self.is_on_drained_node(&pod.pod));
        let now = DeleteParams::default().grace_period(0);
        stream::iter(elsewhere)
            .for_each_concurrent(CONCURRENT_DELETIONS, |pod| {
                let (api, now) = (&api, &now);
                // It may be gone already.
                async move { drop(api.delete(&pod.name_any(), now).await) }
            })
            .await;
        let is_gathered = |ReceivedPod { pod, .. }: &ReceivedPod| {
            self.is_on_drained_node(pod) && pod::is_ready(pod) && pod.deletion.is_none()
        };
        let gathered = |pods: &[ReceivedPod]| pods.len() == self.pods && pods.iter().all(is_gathered);
        let selection = watcher::Config::default();
        let pods =
            wait_until_all(&api, selection, "all pods are Ready on the nodes to drain", gathered).await;
        set_unschedulable(&self.cluster, &self.spare, false).await;
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let available = |deployments: &[Deployment]| {
            let count = |deployment: &Deployment| deployment.status.as_ref()?.available_replicas;
            let all: i32 = deployments.iter().filter_map(count).sum();
            usize::try_from(all).is_ok_and(|all| all == self.pods)
        };
        wait_until_all(&deployments, watcher::Config::default(), "all replicas are available", available)
            .await;
        let pods = pods.into_iter().map(DrainPod::from).map(|pod| Pod {
            namespace: NAMESPACE.to_owned(),
            name: pod.name.into(),
            uid: pod.uid.into(),
            app: pod.labels.get("app").cloned().unwrap_or_default(),
            node: pod.node.to_string(),
        });
        PreparedCluster {
            cluster: self.cluster.clone(),
            route: self.route.clone(),
            nodes: self.drained.clone(),
            pods: pods.collect(),
        }
    }

    fn is_on_drained_node(&self, pod: &DrainPod) -> bool {
        self.drained.iter().any(|node| **node == *pod.node)
    }
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}
