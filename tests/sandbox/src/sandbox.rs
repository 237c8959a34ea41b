//! A whole cluster: the API server, everything that acts on its objects, and something that runs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::controllers::Controllers;
use crate::controllers::kubelet::Pace;
use crate::faults::Faults;
use crate::http;
use crate::kubevirt;
use crate::pod;
use crate::refusal::Refusal;
use crate::request_log::RequestLog;
use crate::resource::PODS;
use crate::server::{Server, Service};
use crate::store::{Object, State, journal};
use crate::workload;

/// What a sandbox is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// How many pods of deployments; a `DaemonSet` adds one a node.
    pub pods: usize,
    /// From bound to Ready.
    pub start_delay: Duration,
    /// From deleted to gone, where the grace allows it.
    pub stop_delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 6,
            pods: 60,
            start_delay: Duration::from_millis(200),
            stop_delay: Duration::from_secs(1),
        }
    }
}

/// A running cluster. Dropping it stops everything at once, [`Sandbox::stop`] in good order.
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
    /// When the nodes have no room for the pods, or when no port of loopback can be had.
    pub async fn start(options: Options) -> io::Result<Self> {
        let room = options.nodes.saturating_mul(workload::ROOM - 1);
        if options.pods > room {
            let message = format!(
                "{} pods do not fit on {} nodes: there is room for {room}",
                options.pods, options.nodes
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let cluster = Arc::new(Cluster::new(Clock::start()));
        // What would be forgotten before anybody could read it is not written.
        if options.pods > journal::KEPT {
            cluster.store.write(|state| state.journal.close());
        }
        let refused = |refusal: Refusal| io::Error::other(refusal.message);
        workload::seed_nodes(&cluster, options.nodes).map_err(refused)?;
        let pods = workload::seed_apps(&cluster, options.nodes, options.pods).map_err(refused)?;
        let server = Server::start(cluster.clone()).await?;
        let pace = Pace { start: options.start_delay, stop: options.stop_delay };
        let controllers = Controllers::start(&cluster, pace);
        until_ready(&cluster, pods).await;
        cluster.store.write(|state| state.journal.open());
        Ok(Self { cluster, server, controllers })
    }

    /// Brings a stand-in for KubeVirt to the cluster, whose migrations take so long: see [`kubevirt::install`].
    ///
    /// # Errors
    /// When it is there already.
    pub fn with_kubevirt(mut self, migration: Duration) -> Result<Self, Refusal> {
        kubevirt::install(&self.cluster, &mut self.controllers, migration)?;
        Ok(self)
    }

    /// The same with a KubeVirt before 1.7, which cannot be told to call an evacuation off.
    ///
    /// # Errors
    /// When it is there already.
    pub fn with_kubevirt_before_1_7(self, migration: Duration) -> Result<Self, Refusal> {
        let sandbox = self.with_kubevirt(migration)?;
        kubevirt::withdraw_cancel(&sandbox.cluster);
        Ok(sandbox)
    }

    /// Installs a `CustomResourceDefinition`, or replaces the one of the same name. It is served from the next request.
    ///
    /// # Errors
    /// 422 when the definition is invalid.
    pub fn install_crd(&self, definition: Value) -> Result<(), Refusal> {
        http::install(&self.cluster, definition).map(|_| ())
    }

    /// A kubeconfig of the administrator, in YAML.
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig()
    }

    /// A kubeconfig of somebody who is in these groups, and in `system:authenticated`; what they may do is for roles
    /// and bindings to say.
    pub fn add_user(&self, name: &str, groups: &[&str]) -> String {
        let token = self.server.api().add_user(name, groups);
        self.server.kubeconfig_of(&token)
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The objects, the kinds and the time.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// What the API server was asked so far.
    pub fn requests(&self) -> &RequestLog {
        self.server.requests()
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What goes wrong on demand.
    pub fn faults(&self) -> &Faults {
        self.server.api().faults()
    }

    /// The API server as a service, for clients in this process that use no socket, as `kube::Client::new` takes it.
    /// They are the administrator unless they say who they are.
    ///
    /// Without sockets nothing waits for anything but time and other tasks, so a test may run on tokio's paused time.
    pub fn service(&self) -> Service {
        Service::admin(self.server.api().clone())
    }

    /// Kills the API server: see [`Server::kill`]. The kubelets and controllers go on meanwhile, as if another API
    /// server of the same cluster were still there, so clients miss changes.
    pub async fn server_down(&self) {
        self.server.kill().await;
    }

    /// Restarts the API server where it was, with what it knew: see [`Server::restart`].
    ///
    /// # Errors
    /// When somebody else has taken the port.
    pub async fn server_up(&self) -> io::Result<()> {
        self.server.restart().await
    }

    /// Ends open watches and stops everything.
    pub async fn stop(self) {
        self.controllers.stop().await;
        self.server.shutdown().await;
    }
}

/// Waits until so many pods are Ready, counting changes and not pods.
async fn until_ready(cluster: &Cluster, wanted: usize) {
    let mut wake = cluster.store.subscribe();
    let mut census = Census::default();
    loop {
        wake.borrow_and_update();
        cluster.store.read(|state| census.update(state));
        if census.ready >= wanted || wake.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Debug, Default)]
struct Census {
    ready: usize,
    seen: Option<u64>,
}

impl Census {
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
    async fn a_sandbox_is_ready_when_all_its_pods_are() {
        let options = Options { nodes: 3, pods: 10, start_delay: Duration::ZERO, stop_delay: Duration::ZERO };
        let sandbox = Sandbox::start(options).await.unwrap();
        let pods: Vec<Object> = sandbox.cluster().store.read(|state| state.list(&PODS, None).collect());
        assert_eq!(pods.len(), 13);
        assert!(pods.iter().all(|pod| pod::is_ready(pod)));
        assert!(sandbox.kubeconfig().contains(&sandbox.url()));
        sandbox.stop().await;
    }

    #[tokio::test]
    async fn more_pods_than_the_nodes_take_are_refused() {
        let options = Options { nodes: 1, pods: 110, ..Options::default() };
        let error = Sandbox::start(options).await.unwrap_err();
        assert_eq!(error.to_string(), "110 pods do not fit on 1 nodes: there is room for 109");
    }
}
