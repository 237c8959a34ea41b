//! One workload: its kind, replicas, pod template and budget.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, STATEFUL_SETS};
use crate::cluster::registry::{self, Effect};
use crate::cluster::store::Collection;
use crate::model::status_error::StatusError;

/// The kind of owner of an app's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A `StatefulSet`.
    StatefulSet,
    /// A `DaemonSet`.
    DaemonSet,
    /// A Job.
    Job,
    /// No owner: one bare pod.
    Pod,
}

/// A workload in a namespace.
#[derive(Debug, Clone)]
pub struct App {
    kind: Kind,
    namespace: String,
    name: String,
    replicas: usize,
    labels: Value,
    annotations: Value,
    pod_spec: Value,
    budget: Option<Value>,
}

impl App {
    /// An app with one replica, whose pods have the label `app: <name>`.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        let app = Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            replicas: 1,
            labels: json!({"app": name}),
            annotations: json!({}),
            pod_spec: json!({"containers": [{"name": "app", "image": format!("registry.example/{name}:1")}]}),
            budget: None,
        };
        match kind {
            Kind::Job => app.pod("restartPolicy", json!("Never")),
            _ => app,
        }
    }

    /// The number of pods.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Adds a label to every pod.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels[name] = json!(value);
        self
    }

    /// Adds an annotation to every pod, such as those of `controllers::kubelet::annotations`.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations[name] = json!(value);
        self
    }

    /// `terminationGracePeriodSeconds`.
    #[must_use]
    pub fn grace(self, seconds: i64) -> Self {
        self.pod("terminationGracePeriodSeconds", json!(seconds))
    }

    /// Adds a toleration to every pod, such as `{"key": "dedicated", "operator": "Exists"}`.
    #[must_use]
    pub fn toleration(mut self, toleration: Value) -> Self {
        match self.pod_spec["tolerations"].as_array_mut() {
            Some(tolerations) => tolerations.push(toleration),
            None => self.pod_spec["tolerations"] = json!([toleration]),
        }
        self
    }

    /// Tolerates every taint, including the one of a cordon.
    #[must_use]
    pub fn tolerates_everything(self) -> Self {
        self.toleration(json!({"operator": "Exists"}))
    }

    /// `nodeName`: binds the pods to this node without the scheduler.
    #[must_use]
    pub fn node_name(self, node: &str) -> Self {
        self.pod("nodeName", json!(node))
    }

    /// Adds a label to the node selector of the pods.
    #[must_use]
    pub fn node_selector(mut self, label: &str, value: &str) -> Self {
        self.pod_spec["nodeSelector"][label] = json!(value);
        self
    }

    /// Sets a field of the pod spec.
    #[must_use]
    pub fn pod(mut self, field: &str, value: Value) -> Self {
        self.pod_spec[field] = value;
        self
    }

    /// Adds a `PodDisruptionBudget` of the same name, such as `{"minAvailable": 1}`.
    #[must_use]
    pub fn budget(mut self, rule: Value) -> Self {
        self.budget = Some(rule);
        self
    }

    /// The number of its pods in a cluster of so many nodes.
    pub fn pods(&self, nodes: usize) -> usize {
        match self.kind {
            Kind::DaemonSet => nodes,
            Kind::Pod => 1,
            _ => self.replicas,
        }
    }

    /// Its objects, each with its collection.
    pub fn objects(&self) -> Vec<(Collection, Value)> {
        let mut objects = Vec::new();
        if let Some(rule) = &self.budget {
            let mut spec = rule.clone();
            spec["selector"] = json!({"matchLabels": {"app": self.name}});
            objects.push((BUDGETS, self.object(&spec)));
        }
        objects.push((self.collection(), self.workload()));
        objects
    }

    /// Creates its objects.
    ///
    /// # Errors
    /// The error of the API server: the namespace is missing, or an object exists.
    pub fn create(&self, cluster: &Cluster) -> Result<(), StatusError> {
        let now = cluster.clock.now();
        cluster.store.write(|state| {
            for (collection, object) in self.objects() {
                let resource = cluster.catalog.of(&collection).ok_or_else(|| {
                    StatusError::not_found(&collection.group, &collection.plural, &self.name)
                })?;
                registry::create(state, &resource, object, now, Effect::Real)?;
            }
            Ok(())
        })
    }

    fn collection(&self) -> Collection {
        match self.kind {
            Kind::Deployment => DEPLOYMENTS,
            Kind::StatefulSet => STATEFUL_SETS,
            Kind::DaemonSet => DAEMON_SETS,
            Kind::Job => JOBS,
            Kind::Pod => PODS,
        }
    }

    fn workload(&self) -> Value {
        let mut template = json!({"metadata": {"labels": self.labels}, "spec": self.pod_spec});
        if self.annotations != json!({}) {
            template["metadata"]["annotations"] = self.annotations.clone();
        }
        let selector = json!({"matchLabels": {"app": self.name}});
        match self.kind {
            Kind::Deployment | Kind::StatefulSet => {
                self.object(&json!({"replicas": self.replicas, "selector": selector, "template": template}))
            }
            Kind::DaemonSet => self.object(&json!({"selector": selector, "template": template})),
            Kind::Job => self.object(&json!({
                "parallelism": self.replicas, "completions": self.replicas, "template": template,
            })),
            Kind::Pod => {
                let mut pod = self.object(&self.pod_spec);
                pod["metadata"]["annotations"] = self.annotations.clone();
                pod
            }
        }
    }

    fn object(&self, spec: &Value) -> Value {
        json!({
            "metadata": {"namespace": self.namespace, "name": self.name, "labels": self.labels}, "spec": spec,
        })
    }
}
