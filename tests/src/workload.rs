//! Workloads: deployments, stateful sets, pods and disruption budgets in a namespace of the test's own.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SUITE_LABEL};
use crate::wait::wait_until_all;

/// A namespace of a test's own.
pub struct Workload {
    client: Client,
    namespace: String,
}

impl Workload {
    /// Creates a namespace `e2e-NAME-…`.
    pub async fn new(cluster: &Cluster, name: &str) -> Self {
        let client = cluster.client.clone();
        let params = PostParams::default();
        let namespace =
            parse(json!({"metadata": {"generateName": format!("e2e-{name}-"), "labels": {SUITE_LABEL: ""}}}));
        let namespace =
            Api::<Namespace>::all(client.clone()).create(&params, &namespace).await.unwrap().name_any();
        // Pods need this account, and the controller that creates it may be slower than the test.
        let account = parse(json!({"metadata": {"name": "default"}}));
        let created =
            Api::<ServiceAccount>::namespaced(client.clone(), &namespace).create(&params, &account).await;
        assert!(
            created.is_ok() || matches!(&created, Err(kube::Error::Api(status)) if status.code == 409),
            "{created:?}"
        );
        Self { client, namespace }
    }

    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pods of the namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The disruption budgets of the namespace.
    pub fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The deployments of the namespace.
    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a deployment, and waits until all of its pods are Running.
    pub async fn deployment(&self, name: &str, replicas: usize) {
        self.deployment_of(name, replicas, &pod_spec()).await;
    }

    /// Creates a deployment with this pod spec, and waits until all of its pods are Running.
    pub async fn deployment_of(&self, name: &str, replicas: usize, spec: &Value) {
        let deployment = parse(scalable(name, replicas, spec));
        self.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        self.until_running(name, replicas).await;
    }

    /// Creates a stateful set with this pod spec, and waits until all of its pods are Running.
    pub async fn stateful_set_of(&self, name: &str, replicas: usize, spec: &Value) {
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut set = scalable(name, replicas, spec);
        set["spec"]["serviceName"] = json!(name);
        sets.create(&PostParams::default(), &parse(set)).await.unwrap();
        self.until_running(name, replicas).await;
    }

    /// Creates a replica set without a deployment, and waits until all of its pods are Running.
    pub async fn replica_set_of(&self, name: &str, replicas: usize, spec: &Value) {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let set = parse(scalable(name, replicas, spec));
        sets.create(&PostParams::default(), &set).await.unwrap();
        self.until_running(name, replicas).await;
    }

    /// Creates a daemon set that tolerates every taint, without waiting for its pods.
    pub async fn create_daemon_set(&self, name: &str) {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut spec = pod_spec();
        spec["tolerations"] = json!([{"operator": "Exists"}]);
        let labels = json!({"app": name});
        let set = parse(json!({"metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec},
        }}));
        sets.create(&PostParams::default(), &set).await.unwrap();
    }

    /// Creates a budget for the pods of an app of the same name, and waits until the budget's status counts them.
    pub async fn budget(&self, name: &str, min_available: usize) {
        self.create_budget(name, name, min_available).await;
        let counted = |budgets: &[PodDisruptionBudget]| {
            budgets.iter().all(|budget| budget.status.as_ref().is_some_and(|status| status.expected_pods > 0))
        };
        wait_until_all(&self.budgets(), watcher::Config::default(), "the budget counts its pods", counted)
            .await;
    }

    /// Creates a budget for the pods of an app without waiting for its status.
    pub async fn create_budget(&self, name: &str, app: &str, min_available: usize) {
        let budget = parse(json!({
            "metadata": {"name": name},
            "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
        }));
        self.budgets().create(&PostParams::default(), &budget).await.unwrap();
    }

    /// Creates a deployment of one pod, and a budget of the same name that allows no disruption. Returns the running pod.
    pub async fn pod_behind_budget(&self, name: &str) -> Pod {
        self.deployment(name, 1).await;
        self.budget(name, 1).await;
        self.until_running(name, 1).await.remove(0)
    }

    /// Deletes a budget.
    pub async fn delete_budget(&self, name: &str) {
        self.budgets().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Creates a pod without a controller on a node, and waits until it is Running. `extra` is merged into the pod.
    pub async fn pod_on(&self, node: &str, name: &str, extra: Value) -> Pod {
        self.create_pod(node, name, extra).await;
        self.until_running(name, 1).await.remove(0)
    }

    /// Creates a pod without a controller on a node. It may be evicted before it runs.
    pub async fn create_pod(&self, node: &str, name: &str, extra: Value) -> Pod {
        let mut spec = pod_spec();
        spec["nodeName"] = json!(node);
        let mut pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        merge(&mut pod, extra);
        self.pods().create(&PostParams::default(), &parse(pod)).await.unwrap()
    }

    /// Removes all finalizers of a pod.
    pub async fn remove_finalizers(&self, pod: &str) {
        let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.pods().patch(pod, &PatchParams::default(), &without_finalizers).await.unwrap();
    }

    /// The pods of an app, once there are `count`, all Running and none terminating.
    pub async fn until_running(&self, app: &str, count: usize) -> Vec<Pod> {
        let selection = watcher::Config::default().labels(&format!("app={app}"));
        let running = |pods: &[Pod]| pods.len() == count && pods.iter().all(is_running);
        wait_until_all(&self.pods(), selection, &format!("{count} pods of {app} are running"), running).await
    }
}

/// A finalizer, to be merged into a pod: once deleted it stays until [`Workload::remove_finalizers`].
pub fn with_finalizer() -> Value {
    json!({"metadata": {"finalizers": ["kubectl-nm.dev/e2e-hold"]}})
}

/// The pods on a node.
pub async fn pods_on(client: &Client, node: &str) -> Vec<Pod> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    Api::<Pod>::all(client.clone()).list(&on_node).await.unwrap().items
}

/// The node of a pod; empty before it is scheduled.
pub fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Lets pods be scheduled on the other nodes than this one, or on none of them.
pub async fn schedule_beside(cluster: &Cluster, node: &str, is_allowed: bool) {
    for other in cluster.nodes().await.into_iter().filter(|other| other != node) {
        cluster.patch_node(&other, json!({"spec": {"unschedulable": !is_allowed}})).await;
    }
}

/// Merges JSON objects, field by field.
pub fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}

/// Whether a pod runs and is not being deleted.
pub fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// What a deployment and a stateful set have in common.
fn scalable(name: &str, replicas: usize, pod_spec: &Value) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": pod_spec,
        }},
    })
}

/// The spec of a pod that runs on this node only, and tolerates every taint.
pub fn pinned_to(node: &str) -> Value {
    let here = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let mut spec = pod_spec();
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    spec["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]},
    }});
    spec
}

/// The spec of a pod that is bound to this node without the scheduler, and tolerates nothing.
pub fn bound_to(node: &str) -> Value {
    let mut spec = pod_spec();
    spec["nodeName"] = json!(node);
    spec
}

/// The spec of a pod that runs on any node and does nothing.
pub fn pod_spec() -> Value {
    json!({
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
    })
}

/// A typed object from JSON.
pub fn parse<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}
