//! The watches of the dashboard, each a task that sends messages.
//!
//! The fleet needs the maintenances and the metadata of nodes and nothing else, so that its cost does not grow with the
//! number of pods in the cluster. While a node is open, its pods are watched too. Objects are reduced to what the dashboard needs before they are sent.

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PartialObjectMeta};
use kube::{Client, ResourceExt};
use nm_shared::NodeMaintenance;
use nm_shared::cluster::node::has_control_plane_label;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::node_patch;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::client::watch_stream::{WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch};
use crate::dashboard::message::{Message, NodeMetadata, WatchKind, WatchState};
use crate::dashboard::node_pod::NodePod;
use crate::error::{Error, RESOURCE};

pub(crate) struct Watches {
    client: Client,
    server: String,
    to: Sender<Message>,
    fleet: JoinSet<()>,
    /// The open node, and the watch on its pods.
    node: Option<(String, JoinSet<()>)>,
}

impl Watches {
    pub(crate) fn start(client: Client, server: &str, to: Sender<Message>) -> Self {
        let server = server.to_owned();
        let mut watches = Self { client, server, to, fleet: JoinSet::new(), node: None };
        watches.watch_fleet();
        watches
    }

    /// Watches the pods of this node, and no longer those of another.
    pub(crate) fn open(&mut self, node: &str) {
        let mut pods = JoinSet::new();
        pods.spawn(self.pods(node));
        self.node = Some((node.to_owned(), pods));
    }

    pub(crate) fn close(&mut self) {
        self.node = None;
    }

    pub(crate) fn reconnect(&mut self) {
        self.watch_fleet();
        if let Some((node, _)) = self.node.take() {
            self.open(&node);
        }
    }

    fn watch_fleet(&mut self) {
        self.fleet = JoinSet::new();
        let target = self.target(Api::all(self.client.clone()), RESOURCE, None);
        let maintenances =
            watch(target, WatchPolicy::DASHBOARD, |object| Some(without_managed_fields(object)));
        let forwarder = self.forwarder(WatchKind::Maintenances, None);
        self.fleet.spawn(forwarder.run(maintenances, Message::Maintenances));
        let target = self.target::<PartialObjectMeta<Node>>(Api::all(self.client.clone()), "nodes", None);
        let nodes = watch(target, WatchPolicy::DASHBOARD, |node| Some(metadata(&node)));
        let forwarder = self.forwarder(WatchKind::Nodes, None);
        self.fleet.spawn(forwarder.run(nodes, Message::Nodes));
    }

    fn pods(&self, node: &str) -> impl Future<Output = ()> + Send + use<> {
        let on_node = format!("spec.nodeName={node}");
        let target = self.target::<DrainPod>(Api::all(self.client.clone()), "pods", Some(on_node));
        let pods = watch(target, WatchPolicy::DASHBOARD, |pod| Some(NodePod::from(pod)));
        let node = node.to_owned();
        let forwarder = self.forwarder(WatchKind::Pods, Some(&node));
        forwarder.run(pods, move |change| Message::Pods { node: node.clone(), change })
    }

    fn target<K>(&self, api: Api<K>, resource: &'static str, selector: Option<String>) -> WatchTarget<K> {
        WatchTarget { api, field_selector: selector, resource, server: self.server.clone() }
    }

    fn forwarder(&self, kind: WatchKind, node: Option<&str>) -> Forwarder {
        Forwarder { to: self.to.clone(), kind, node: node.map(str::to_owned) }
    }
}

struct Forwarder {
    to: Sender<Message>,
    kind: WatchKind,
    node: Option<String>,
}

impl Forwarder {
    /// Runs until the user turns out to have no permission.
    async fn run<T>(
        self,
        mut watch: BoxStream<'static, Result<WatchUpdate<T>, Error>>,
        message: impl Fn(WatchChange<T>) -> Message,
    ) {
        while let Some(update) = watch.next().await {
            match update {
                Ok(WatchUpdate::Change(change)) => self.send(message(change)).await,
                Ok(WatchUpdate::Live) => self.report(WatchState::Live).await,
                Ok(WatchUpdate::Lost { since, error }) => {
                    self.report(WatchState::Lost { since, error: error.to_string() }).await;
                }
                Err(error) => return self.report(WatchState::Forbidden(error.to_string())).await,
            }
        }
    }

    async fn report(&self, state: WatchState) {
        self.send(Message::Watch { kind: self.kind, node: self.node.clone(), state }).await;
    }

    async fn send(&self, message: Message) {
        // The receiver is gone when the dashboard has ended; then this task ends as well.
        let _ = self.to.send(message).await;
    }
}

fn without_managed_fields(mut maintenance: NodeMaintenance) -> NodeMaintenance {
    maintenance.metadata.managed_fields = None;
    maintenance
}

fn metadata(node: &PartialObjectMeta<Node>) -> NodeMetadata {
    NodeMetadata {
        name: node.name_any(),
        was_schedulable: node_patch::was_schedulable(&node.metadata),
        control_plane: has_control_plane_label(&node.metadata),
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
