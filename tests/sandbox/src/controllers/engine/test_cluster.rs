//! A cluster with controllers and without HTTP, on tokio's paused time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{NAMESPACES, NODES, PODS};
use crate::cluster::registry::{self, DeleteOptions, Effect, Part, eviction};
use crate::cluster::store::{Collection, Key, Object, State};
use crate::controllers::Controllers;
use crate::controllers::nodes::kubelet::Pace;
use crate::model::clock::Clock;
use crate::model::pod;
use crate::model::status_error::StatusError;
use crate::workload::{self, App, Kind};

pub(crate) const PACE: Pace = Pace { start: Duration::from_millis(200), stop: Duration::from_secs(1) };

/// As in Kubernetes.
pub(crate) const JOB_BACKOFF: Duration = Duration::from_secs(10);

pub(crate) struct TestCluster {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) controllers: Controllers,
}

impl TestCluster {
    /// A cluster with nodes, all controllers and the namespace `ns`.
    pub(crate) fn new(nodes: usize) -> Self {
        let cluster = Arc::new(Cluster::new(Clock::start()));
        workload::seed_nodes(&cluster, nodes).unwrap();
        workload::seed_namespace(&cluster, "ns").unwrap();
        let controllers = Controllers::start(&cluster, PACE, JOB_BACKOFF);
        Self { cluster, controllers }
    }

    /// Creates an app and waits until all its pods are Ready.
    pub(crate) async fn run(&self, app: App) {
        app.create(&self.cluster).unwrap();
        let nodes = self.read(|state| state.list(&NODES, None).count());
        self.until("the app is ready", |state| {
            ready(state).len() >= app.pods(nodes) && pods(state).len() == ready(state).len()
        })
        .await;
    }

    pub(crate) fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.cluster.store.read(look)
    }

    pub(crate) fn get(&self, collection: &Collection, key: &Key) -> Option<Object> {
        self.read(|state| state.get(collection, key))
    }

    /// Waits until a condition holds, for at most ten minutes of the cluster's time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let mut wake = self.cluster.store.subscribe();
        let reached = async {
            while !self.read(&holds) {
                wake.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_secs(600), reached).await.is_err() {
            let pods = self.read(|state| pods(state).iter().map(|pod| summary(pod)).collect::<Vec<_>>());
            panic!("never: {what}; pods: {pods:#?}");
        }
    }

    /// Lets all tasks run until they wait for time, and this much time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) fn create(&self, collection: &Collection, object: Value) -> Object {
        let resource = self.cluster.catalog.of(collection).unwrap();
        let now = self.cluster.clock.now();
        self.cluster
            .store
            .write(|state| registry::create(state, &resource, object, now, Effect::Real))
            .unwrap()
    }

    pub(crate) fn edit(
        &self,
        collection: &Collection,
        key: &Key,
        part: Part,
        change: impl FnOnce(&mut Value),
    ) {
        let resource = self.cluster.catalog.of(collection).unwrap();
        self.cluster.store.write(|state| {
            let mut object = Value::clone(&state.get(collection, key).unwrap());
            change(&mut object);
            registry::update(state, &resource, &object, part, Effect::Real).unwrap();
        });
    }

    pub(crate) fn delete(&self, collection: &Collection, key: &Key, options: &DeleteOptions) {
        let resource = self.cluster.catalog.of(collection).unwrap();
        let now = self.cluster.clock.now();
        self.cluster
            .store
            .write(|state| registry::delete(state, &resource, key, options, now, Effect::Real))
            .unwrap();
    }

    pub(crate) fn cordon(&self, node: &str) {
        self.edit(&NODES, &Key::cluster(node), Part::Main, |node| {
            node["spec"]["unschedulable"] = json!(true);
        });
    }

    /// Sets the Ready condition of a node.
    pub(crate) fn set_ready(&self, node: &str, status: &str) {
        self.edit(&NODES, &Key::cluster(node), Part::Status, |node| {
            node["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        });
    }

    pub(crate) fn evict(&self, pod: &Value) -> Result<(), StatusError> {
        self.evict_with(pod, &json!({}), Effect::Real)
    }

    pub(crate) fn evict_with(
        &self,
        pod: &Value,
        delete_options: &Value,
        effect: Effect,
    ) -> Result<(), StatusError> {
        let (namespace, name) = (pod::namespace(pod), pod::name(pod));
        let body = json!({"metadata": {"name": name}, "deleteOptions": delete_options});
        let now = self.cluster.clock.now();
        self.cluster
            .store
            .write(|state| eviction::evict(state, &self.cluster.catalog, namespace, name, &body, effect, now))
    }

    pub(crate) fn terminate_namespace(&self, name: &str) {
        self.delete(&NAMESPACES, &Key::cluster(name), &DeleteOptions::default());
    }
}

/// A deployment with one pod.
pub(crate) fn web() -> App {
    App::new(Kind::Deployment, "ns", "web")
}

pub(crate) fn pods(state: &State) -> Vec<Object> {
    state.list(&PODS, Some("ns")).collect()
}

pub(crate) fn ready(state: &State) -> Vec<Object> {
    let mut pods = pods(state);
    pods.retain(|pod| pod::is_ready(pod) && pod::is_active(pod));
    pods
}

fn summary(pod: &Value) -> String {
    let (name, node) = (pod::name(pod), pod::node(pod).unwrap_or("no node"));
    format!("{name} on {node}: {}, ready {}, {}", pod::phase(pod), pod::is_ready(pod), pod["metadata"])
}
