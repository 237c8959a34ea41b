//! What runs on a test's cluster.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SUITE_LABEL};
use crate::until::until_all;

/// A namespace of a test's own.
pub struct Workload {
    client: Client,
    namespace: String,
}

impl Workload {
    /// A new namespace.
    pub async fn new(cluster: &Cluster, name: &str) -> Self {
        let client = cluster.client.clone();
        let params = PostParams::default();
        let namespace =
            parse(json!({"metadata": {"generateName": format!("e2e-{name}-"), "labels": {SUITE_LABEL: ""}}}));
        let namespace =
            Api::<Namespace>::all(client.clone()).create(&params, &namespace).await.unwrap().name_any();
        // Pods need it, and a controller may take a moment to make it.
        let account = parse(json!({"metadata": {"name": "default"}}));
        let made =
            Api::<ServiceAccount>::namespaced(client.clone(), &namespace).create(&params, &account).await;
        assert!(
            made.is_ok() || matches!(&made, Err(kube::Error::Api(status)) if status.code == 409),
            "{made:?}"
        );
        Self { client, namespace }
    }

    /// Its name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A deployment, once all of its pods are Running.
    pub async fn deployment(&self, name: &str, replicas: usize) {
        self.deployment_of(name, replicas, &pod_spec()).await;
    }

    /// The same with pods of another spec.
    pub async fn deployment_of(&self, name: &str, replicas: usize, spec: &Value) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let deployment = parse(owner(name, replicas, spec));
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        self.until_running(name, replicas).await;
    }

    /// A stateful set, once all of its pods are Running.
    pub async fn stateful_set_of(&self, name: &str, replicas: usize, spec: &Value) {
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut set = owner(name, replicas, spec);
        set["spec"]["serviceName"] = json!(name);
        sets.create(&PostParams::default(), &parse(set)).await.unwrap();
        self.until_running(name, replicas).await;
    }

    /// A budget for the pods of a deployment.
    pub async fn budget(&self, name: &str, min_available: usize) {
        let budget = parse(json!({
            "metadata": {"name": name},
            "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": name}}},
        }));
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        let current = |budgets: &[PodDisruptionBudget]| {
            budgets.iter().all(|budget| budget.status.as_ref().is_some_and(|status| status.expected_pods > 0))
        };
        until_all(&budgets, watcher::Config::default(), "the budget counts its pods", current).await;
    }

    /// The only pod of a new deployment, which a budget of the same name lets nobody evict. It runs.
    pub async fn pod_behind_budget(&self, name: &str) -> Pod {
        self.deployment(name, 1).await;
        self.budget(name, 1).await;
        self.until_running(name, 1).await.remove(0)
    }

    /// Removes the budget of that name.
    pub async fn free(&self, budget: &str) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        budgets.delete(budget, &DeleteParams::default()).await.unwrap();
    }

    /// A pod without a controller on a node, once it is Running. `extra` is merged into it.
    pub async fn pod_on(&self, node: &str, name: &str, extra: Value) -> Pod {
        self.place(node, name, extra).await;
        self.until_running(name, 1).await.remove(0)
    }

    /// The same without waiting for it to run, for nodes that it is moved from at once.
    pub async fn place(&self, node: &str, name: &str, extra: Value) -> Pod {
        let mut spec = pod_spec();
        spec["nodeName"] = json!(node);
        let mut pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        merge(&mut pod, extra);
        self.pods().create(&PostParams::default(), &parse(pod)).await.unwrap()
    }

    /// Removes what [`held`] put on a pod.
    pub async fn let_go(&self, pod: &str) {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.pods().patch(pod, &PatchParams::default(), &free).await.unwrap();
    }

    /// The pods of an app once `count` of them are Running and none is on its way out.
    pub async fn until_running(&self, app: &str, count: usize) -> Vec<Pod> {
        let selection = watcher::Config::default().labels(&format!("app={app}"));
        let running = |pods: &[Pod]| pods.len() == count && pods.iter().all(is_running);
        until_all(&self.pods(), selection, &format!("{count} pods of {app} are running"), running).await
    }
}

/// What makes a pod stay where it is once it has ended, until it is let go.
pub fn held() -> Value {
    json!({"metadata": {"finalizers": ["kubectl-nm.dev/e2e-hold"]}})
}

/// The pods on a node.
pub async fn pods_on(client: &Client, node: &str) -> Vec<Pod> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    Api::<Pod>::all(client.clone()).list(&on_node).await.unwrap().items
}

/// The node that a pod runs on.
pub fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
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

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// What makes new pods out of a template.
fn owner(name: &str, replicas: usize, pod_spec: &Value) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": pod_spec,
        }},
    })
}

/// The spec of pods that run on this node and nowhere else, whatever becomes of it.
pub fn pinned_to(node: &str) -> Value {
    let here = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let mut spec = pod_spec();
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    spec["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]},
    }});
    spec
}

/// The spec of a pod that runs anywhere and does nothing.
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
