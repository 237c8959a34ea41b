//! The watches of the dashboard, each a task that sends messages.
//!
//! The fleet needs the maintenances and the metadata of nodes, and the pods and events of the few nodes that are followed,
//! so that its cost does not grow with the number of pods in the cluster. The nodes in maintenance are watched as a whole, by their label:
//! whether they are Ready is not in their metadata. The view of all nodes needs all of them as a whole, which are watched instead once it
//! was shown. While a node is open, its pods are watched too, and the events about it and its maintenance. Objects are
//! reduced to what the dashboard needs before they are sent.

mod changed_nodes;
mod nodes_in_maintenance;
mod replacements;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, PartialObjectMeta};
use nm_core::client::cluster::Cluster;
use nm_core::client::merged_watch::watch_maintenances;
use nm_core::client::watch_stream::{WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch};
use nm_core::error::Error;
use nm_core::maintenance::creator::keep_creator;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::{EXCLUDE_LABEL, EXCLUDE_VALUE};
use nm_shared::cluster::node::has_control_plane_label;
use nm_shared::cluster::pod::ReceivedPod;
use nm_shared::drain::node_patch;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::message::Message;
use crate::objects::listed_node::ListedNode;
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::node_pod::NodePod;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::watches::changed_nodes::changed_nodes;
use crate::watches::nodes_in_maintenance::with_details;
use crate::watches::replacements::ReplacementWatches;

/// The namespace of events about cluster-scoped objects, such as nodes and maintenances.
const EVENTS_NAMESPACE: &str = "default";

pub(crate) struct Watches {
    cluster: Cluster,
    to: Sender<Message>,
    maintenances: JoinSet<()>,
    nodes: JoinSet<()>,
    /// Whether nodes are watched as a whole, and not only their metadata.
    whole_nodes: bool,
    node: Option<NodeWatches>,
    /// Nodes that are watched although they are not open.
    followed: BTreeMap<String, NodeWatches>,
    wanted: BTreeSet<String>,
}

/// The open node, the name of its maintenance, and the watches on its pods and on events about both.
struct NodeWatches {
    node: String,
    subject: String,
    pods: JoinSet<()>,
    replacements: ReplacementWatches,
    /// Kept so that the task goes on.
    _events: JoinSet<()>,
}

impl Watches {
    pub(crate) fn start(cluster: &Cluster, whole_nodes: bool, to: Sender<Message>) -> Self {
        let mut watches = Self {
            cluster: cluster.clone(),
            to,
            maintenances: JoinSet::new(),
            nodes: JoinSet::new(),
            whole_nodes,
            node: None,
            followed: BTreeMap::new(),
            wanted: BTreeSet::new(),
        };
        watches.watch_maintenances();
        watches.watch_nodes();
        watches
    }

    /// Watches whole nodes from now on.
    pub(crate) fn watch_whole_nodes(&mut self) {
        if !std::mem::replace(&mut self.whole_nodes, true) {
            self.watch_nodes();
        }
    }

    /// Watches the pods of this node, and the events about it and the maintenance named `subject`. Returns the node that was
    /// open before, if it is another one and not watched for a recording. Pods that are followed and listed stay watched.
    pub(crate) fn open(&mut self, node: &str, subject: &str, is_listed: bool) -> Option<String> {
        // Whoever opens a node needs the list with which the watch on its pods begins.
        let followed = self.followed.remove(node).filter(|_| is_listed);
        let (same, other) = match self.node.take() {
            Some(open) if open.node == node => (Some(open), None),
            open => (followed, open.map(|open| open.node)),
        };
        self.node = Some(self.watch_node(node, subject, same));
        self.follow_wanted();
        other.filter(|node| !self.wanted.contains(node))
    }

    /// Closes the open node. Returns it, unless it is watched for a recording.
    pub(crate) fn close(&mut self) -> Option<String> {
        let closed = self.node.take()?.node;
        self.follow_wanted();
        (!self.wanted.contains(&closed)).then_some(closed)
    }

    /// Watches the pods of these nodes and the events about them, and those of no others except for the open node.
    /// Returns the nodes that are not watched any more.
    pub(crate) fn follow(&mut self, nodes: BTreeSet<String>) -> Vec<String> {
        self.wanted = nodes;
        self.follow_wanted();
        let is_over = |node: &&String| !self.wanted.contains(*node);
        let over: Vec<String> = self.followed.keys().filter(is_over).cloned().collect();
        self.followed.retain(|node, _| self.wanted.contains(node));
        over
    }

    fn follow_wanted(&mut self) {
        let open = self.node.as_ref().map(|open| open.node.clone());
        let is_new = |node: &&String| !self.followed.contains_key(*node) && open.as_ref() != Some(*node);
        let new: Vec<String> = self.wanted.iter().filter(is_new).cloned().collect();
        for node in new {
            let watches = self.watch_node(&node, &node, None);
            self.followed.insert(node, watches);
        }
    }

    /// Watches a node. Its pods stay watched if they are already.
    fn watch_node(&self, node: &str, subject: &str, before: Option<NodeWatches>) -> NodeWatches {
        let (pods, replacements) = match before {
            Some(open) => (open.pods, open.replacements),
            None => (JoinSet::from_iter([self.pods(node)]), self.replacements(node)),
        };
        let events = JoinSet::from_iter([self.events(node, subject)]);
        let (node, subject) = (node.to_owned(), subject.to_owned());
        NodeWatches { node, subject, pods, replacements, _events: events }
    }

    pub(crate) fn reconnect(&mut self) {
        self.watch_maintenances();
        self.watch_nodes();
        if let Some(mut open) = self.node.take() {
            open.pods = JoinSet::from_iter([self.pods(&open.node)]);
            open.replacements.reconnect();
            let (node, subject) = (open.node.clone(), open.subject.clone());
            self.node = Some(open);
            self.open(&node, &subject, true);
        }
        self.followed.clear();
        self.follow_wanted();
    }

    /// Watches this for the tree of replacements of the open node, beside what is watched for it already.
    pub(crate) fn watch_replacements(&mut self, scopes: &BTreeSet<ReplacementScope>) {
        if let Some(open) = &mut self.node {
            open.replacements.extend(scopes);
        }
    }

    fn replacements(&self, node: &str) -> ReplacementWatches {
        ReplacementWatches::new(self.cluster.client(), self.cluster.server(), self.to.clone(), node)
    }

    fn watch_maintenances(&mut self) {
        let maintenances = watch_maintenances(&self.cluster, WatchPolicy::DASHBOARD, reduced);
        let forwarder = self.forwarder(WatchKind::Maintenances, None);
        self.maintenances = JoinSet::from_iter([forwarder.run(vec![maintenances], Message::Maintenances)]);
    }

    fn watch_nodes(&mut self) {
        let nodes = if self.whole_nodes {
            let target = self.target::<ListedNode>(Api::all(self.cluster.client()), "nodes", None);
            watch(target, WatchPolicy::DASHBOARD, |node| Some(node.shown()))
        } else {
            let target =
                self.target::<PartialObjectMeta<Node>>(Api::all(self.cluster.client()), "nodes", None);
            let all = watch(target, WatchPolicy::DASHBOARD, |node| Some(metadata(&node)));
            let target = self.target::<ListedNode>(Api::all(self.cluster.client()), "nodes", None);
            let label_selector = Some(format!("{EXCLUDE_LABEL}={EXCLUDE_VALUE}"));
            let target = WatchTarget { label_selector, ..target };
            with_details(all, watch(target, WatchPolicy::DASHBOARD, |node| Some(node.shown())))
        };
        let forwarder = self.forwarder(WatchKind::Nodes, None);
        self.nodes = JoinSet::from_iter([forwarder.run(vec![changed_nodes(nodes)], Message::Nodes)]);
    }

    fn pods(&self, node: &str) -> impl Future<Output = ()> + Send + use<> {
        let on_node = format!("spec.nodeName={node}");
        let target = self.target::<ReceivedPod>(Api::all(self.cluster.client()), "pods", Some(on_node));
        let pods = watch(target, WatchPolicy::DASHBOARD, |received| Some(NodePod::from(received.pod)));
        let node = node.to_owned();
        let forwarder = self.forwarder(WatchKind::Pods, Some(&node));
        forwarder.run(vec![pods], move |change| Message::Pods { node: node.clone(), change })
    }

    fn events(&self, node: &str, subject: &str) -> impl Future<Output = ()> + Send + use<> {
        let about = |name: &str| {
            let api: Api<Event> = Api::namespaced(self.cluster.client(), EVENTS_NAMESPACE);
            let selector = Some(format!("regarding.name={name}"));
            watch(self.target(api, "events.events.k8s.io", selector), WatchPolicy::DASHBOARD, relevant)
        };
        let events = BTreeSet::from([node, subject]).into_iter().map(about).collect();
        let forwarder = self.forwarder(WatchKind::Events, Some(node));
        let node = node.to_owned();
        forwarder.run(events, move |change| Message::Events { node: node.clone(), change })
    }

    fn target<K>(&self, api: Api<K>, resource: &'static str, selector: Option<String>) -> WatchTarget<K> {
        WatchTarget { field_selector: selector, ..WatchTarget::all(api, resource, self.cluster.server()) }
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
    /// Runs until the user turns out to have no permission. Several watches together are live when all of them are.
    async fn run<T>(
        self,
        watches: Vec<BoxStream<'static, Result<WatchUpdate<T>, Error>>>,
        message: impl Fn(WatchChange<T>) -> Message,
    ) {
        let mut live = vec![false; watches.len()];
        let numbered = watches.into_iter().enumerate();
        let mut updates =
            select_all(numbered.map(|(at, watch)| watch.map(move |update| (at, update)).boxed()));
        while let Some((at, update)) = updates.next().await {
            match update {
                Ok(WatchUpdate::Change(change)) => self.send(message(change)).await,
                Ok(WatchUpdate::Live) => {
                    live[at] = true;
                    if live.iter().all(|live| *live) {
                        self.report(WatchState::Live).await;
                    }
                }
                Ok(WatchUpdate::Lost { since, error }) => {
                    live[at] = false;
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

fn reduced(mut maintenance: NodeMaintenance) -> NodeMaintenance {
    keep_creator(&mut maintenance);
    maintenance
}

fn metadata(node: &PartialObjectMeta<Node>) -> NodeMetadata {
    NodeMetadata {
        name: node.name_any(),
        was_schedulable: node_patch::was_schedulable(&node.metadata),
        control_plane: has_control_plane_label(&node.metadata),
        details: None,
    }
}

/// An event about a node or a maintenance. The field selector selects by name, and other objects may have that name.
fn relevant(mut event: Event) -> Option<Event> {
    event.metadata.managed_fields = None;
    let kind = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
    matches!(kind, Some("Node" | "NodeMaintenance")).then_some(event)
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
