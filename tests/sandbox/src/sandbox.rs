//! A whole cluster: the API server, the controllers, nodes and workloads.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::PODS;
use crate::cluster::registry::definitions;
use crate::cluster::store::{Object, State, event_log};
use crate::controllers::Controllers;
use crate::controllers::nodes::kubelet::Pace;
use crate::faults::Faults;
use crate::model::clock::Clock;
use crate::model::pod;
use crate::model::status_error::StatusError;
use crate::request_log::RequestLog;
use crate::server::{Server, Service};
use crate::{kubevirt, workload};

/// Size and speed of a sandbox.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of pods of deployments; a `DaemonSet` adds one pod on each node.
    pub pods: usize,
    /// From binding to Ready.
    pub start_delay: Duration,
    /// From deletion to removal, at most the grace period.
    pub stop_delay: Duration,
    /// How long a `Job` waits before it replaces its first failed pod. Each further failure doubles that, up to sixty times as long.
    pub job_backoff: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 6,
            pods: 60,
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_secs(1),
            job_backoff: Duration::from_secs(10),
        }
    }
}

/// A running cluster. Dropping it stops everything at once; [`Sandbox::stop`] ends watches and connections cleanly.
#[derive(Debug)]
pub struct Sandbox {
    cluster: Arc<Cluster>,
    server: Server,
    controllers: Controllers,
}

impl Sandbox {
    /// Starts a cluster and waits until every pod in it is Ready.
    ///
    /// # Errors
    /// When the nodes lack capacity for the pods, or when no loopback port is free.
    pub async fn start(options: Options) -> io::Result<Self> {
        let capacity = options.nodes.saturating_mul(workload::ROOM - 1);
        if options.pods > capacity {
            let message = format!(
                "{} pods do not fit on {} nodes: their capacity is {capacity}",
                options.pods, options.nodes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let cluster = Arc::new(Cluster::new(Clock::start()));
        // With so many pods, most events would be dropped before anybody could read them.
        if options.pods > event_log::KEPT {
            cluster.store.write(|state| state.event_log.close());
        }
        let refused = |refusal: StatusError| io::Error::other(refusal.message);
        workload::seed_nodes(&cluster, options.nodes).map_err(refused)?;
        let pods = workload::seed_apps(&cluster, options.nodes, options.pods).map_err(refused)?;
        let server = Server::start(cluster.clone()).await?;
        let pace = Pace { start: options.start_delay, stop: options.stop_delay };
        let controllers = Controllers::start(&cluster, pace, options.job_backoff);
        until_ready(&cluster, pods).await;
        cluster.store.write(|state| state.event_log.open());
        Ok(Self { cluster, server, controllers })
    }

    /// Lets only users who may delete an object change its owner references: see [`Api::enforce_owner_references`].
    ///
    /// [`Api::enforce_owner_references`]: crate::http::Api::enforce_owner_references
    #[must_use]
    pub fn enforcing_owner_references(self) -> Self {
        self.server.api().enforce_owner_references();
        self
    }

    /// Installs a stand-in for KubeVirt; migrations take the given time. See [`kubevirt::install`].
    ///
    /// # Errors
    /// When it is already installed.
    pub fn with_kubevirt(mut self, migration: Duration) -> Result<Self, StatusError> {
        kubevirt::install(&self.cluster, &mut self.controllers, migration)?;
        Ok(self)
    }

    /// Installs a KubeVirt older than 1.7, which cannot cancel an evacuation.
    ///
    /// # Errors
    /// When it is already installed.
    pub fn with_kubevirt_before_1_7(self, migration: Duration) -> Result<Self, StatusError> {
        let sandbox = self.with_kubevirt(migration)?;
        kubevirt::withdraw_cancel(&sandbox.cluster);
        Ok(sandbox)
    }

    /// Installs a `CustomResourceDefinition`, or replaces the one of the same name. It is served from the next request.
    ///
    /// # Errors
    /// 422 when the definition is invalid.
    pub fn install_crd(&self, definition: Value) -> Result<(), StatusError> {
        definitions::install(&self.cluster, definition).map(|_| ())
    }

    /// A kubeconfig of the administrator, in YAML.
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// The server's own certificate, in PEM, which its authority issued.
    pub fn server_certificate(&self) -> &str {
        self.server.certificate()
    }

    /// A kubeconfig of a user in these groups and in `system:authenticated`. Roles and bindings define their
    /// permissions.
    pub fn add_user(&self, name: &str, groups: &[&str]) -> String {
        let token = self.server.api().add_user(name, groups);
        self.server.kubeconfig_of(&token)
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The state of the cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The requests that the API server received.
    pub fn requests(&self) -> &RequestLog {
        self.server.requests()
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Failures on demand.
    pub fn faults(&self) -> &Faults {
        self.server.api().faults()
    }

    /// The API server as a service for clients in this process, as `kube::Client::new` takes it. Requests without
    /// credentials are the administrator's.
    ///
    /// Without sockets a test can run on tokio's paused time.
    pub fn service(&self) -> Service {
        Service::admin(self.server.api().clone())
    }

    /// Kills the API server: see [`Server::kill`]. Kubelets and controllers continue, as if another API server of the
    /// same cluster were still running, so clients miss changes.
    pub async fn server_down(&self) {
        self.server.kill().await;
    }

    /// Restarts the API server at the same address with the same objects: see [`Server::restart`].
    ///
    /// # Errors
    /// When the port is no longer free.
    pub async fn server_up(&self) -> io::Result<()> {
        self.server.restart().await
    }

    /// Ends open watches and stops the cluster.
    pub async fn stop(self) {
        self.controllers.stop().await;
        self.server.shutdown().await;
    }
}

/// Waits until so many pods are Ready. Counts changes, since listing all pods each time would be slow.
async fn until_ready(cluster: &Cluster, wanted: usize) {
    let mut wake = cluster.store.subscribe();
    let mut census = ReadyCount::default();
    loop {
        wake.borrow_and_update();
        cluster.store.read(|state| census.update(state));
        if census.ready >= wanted || wake.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Debug, Default)]
struct ReadyCount {
    ready: usize,
    seen: Option<u64>,
}

impl ReadyCount {
    fn update(&mut self, state: &State) {
        let is_ready = |pod: &Option<Object>| pod.as_ref().is_some_and(|pod| pod::is_ready(pod));
        if let Some(changes) = self.seen.and_then(|seen| state.changes_since(&PODS, seen)) {
            for change in changes {
                self.ready += usize::from(is_ready(&change.after));
                self.ready -= usize::from(is_ready(&change.before));
            }
        } else {
            let pods = state.list(&PODS, None);
            self.ready = pods.filter(|pod| pod::is_ready(pod)).count();
        }
        self.seen = Some(state.revision());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sandbox_starts_with_all_its_pods_ready() {
        let (start_delay, stop_delay) = (Duration::ZERO, Duration::ZERO);
        let options = Options { nodes: 3, pods: 10, start_delay, stop_delay, ..Options::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let pods: Vec<Object> = sandbox.cluster().store.read(|state| state.list(&PODS, None).collect());
        assert_eq!(pods.len(), 13);
        assert!(pods.iter().all(|pod| pod::is_ready(pod)));
        assert!(sandbox.kubeconfig().contains(&sandbox.url()));
        sandbox.stop().await;
    }

    #[tokio::test]
    async fn more_pods_than_the_capacity_of_the_nodes_are_rejected() {
        let options = Options { nodes: 1, pods: 110, ..Options::default() };
        let error = Sandbox::start(options).await.unwrap_err();
        assert_eq!(error.to_string(), "110 pods do not fit on 1 nodes: their capacity is 109");
    }
}
