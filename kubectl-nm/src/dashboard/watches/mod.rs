//! The watches of the dashboard, each a task that sends messages.
//!
//! The fleet needs the maintenances and the metadata of nodes, and nothing else, so that its cost does not grow with the
//! cluster's pods. While a node is open, its pods are watched too, and the events about it and its maintenance:
//! [`collection`] is one such part of the API, [`relay`] says what is in it and whether that still holds, and [`slim`]
//! what is kept of an object.

mod collection;
mod slim;
mod watch_task;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, PartialObjectMeta};
use kube::{Client, ResourceExt};
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use self::collection::Collection;
use self::watch_task::{Teller, relay};
use crate::dashboard::message::{Change, Feed, Message};
use crate::dashboard::pod_facts::Facts;
use crate::error::RESOURCE;

/// Where events live that are about objects outside of namespaces, as nodes and maintenances are.
const EVENTS_NAMESPACE: &str = "default";

/// The watches. They end when this is dropped.
pub(crate) struct Feeds {
    client: Client,
    server: String,
    to: Sender<Message>,
    fleet: JoinSet<()>,
    node: Option<Open>,
    /// The node of each maintenance, by the maintenance's name.
    nodes: BTreeMap<String, String>,
}

/// The watches of the node that is open.
struct Open {
    name: String,
    /// Held, so that it goes on.
    _pods: JoinSet<()>,
    events: JoinSet<()>,
    /// Whose events are watched.
    about: BTreeSet<String>,
}

impl Feeds {
    /// Begins to watch the fleet.
    pub(crate) fn start(client: Client, server: &str, to: Sender<Message>) -> Self {
        let server = server.to_owned();
        let mut feeds =
            Self { client, server, to, fleet: JoinSet::new(), node: None, nodes: BTreeMap::new() };
        feeds.watch_fleet();
        feeds
    }

    /// Watches the pods of this node and the events about it, instead of those of another.
    pub(crate) fn open(&mut self, node: &str) {
        let (mut pods, mut events) = (JoinSet::new(), JoinSet::new());
        let about = self.subjects(node);
        pods.spawn(self.pods(node));
        events.spawn(self.events(node, &about));
        self.node = Some(Open { name: node.to_owned(), _pods: pods, events, about });
    }

    /// Watches no node's pods any more.
    pub(crate) fn close(&mut self) {
        self.node = None;
    }

    /// Begins every watch anew, now.
    pub(crate) fn reconnect(&mut self) {
        self.watch_fleet();
        if let Some(open) = self.node.take() {
            self.open(&open.name);
        }
    }

    /// Takes note of what maintenances there are: the one of the open node may have a name of its own, by which the
    /// events about it are found.
    pub(crate) fn notice(&mut self, change: &Change<NodeMaintenance>) {
        let mut note = |object: &NodeMaintenance| {
            self.nodes.insert(object.name_any(), object.spec.node_name.clone());
        };
        match change {
            Change::All(objects) => objects.iter().for_each(|object| note(object)),
            Change::Applied(object) => note(object),
            // Events about what is gone are still worth reading.
            Change::Gone(_) => return,
        }
        let Some(mut open) = self.node.take() else { return };
        let about = self.subjects(&open.name);
        if !about.is_subset(&open.about) {
            open.events = JoinSet::new();
            open.events.spawn(self.events(&open.name, &about));
            open.about = about;
        }
        self.node = Some(open);
    }

    /// The names that events about a node and its maintenances are found by.
    fn subjects(&self, node: &str) -> BTreeSet<String> {
        let own = self.nodes.iter().filter(|(_, of)| *of == node).map(|(name, _)| name.clone());
        own.chain([node.to_owned()]).collect()
    }

    fn watch_fleet(&mut self) {
        self.fleet = JoinSet::new();
        let maintenances: Collection<NodeMaintenance> =
            self.collection(Api::all(self.client.clone()), RESOURCE, None);
        self.fleet.spawn(relay(
            vec![maintenances],
            Teller {
                to: self.to.clone(),
                feed: Feed::Maintenances,
                node: None,
                slim: |maintenance| Some(slim::maintenance(maintenance)),
                message: Box::new(Message::Maintenances),
            },
        ));
        let nodes: Collection<PartialObjectMeta<Node>> =
            self.collection(Api::all(self.client.clone()), "nodes", None);
        self.fleet.spawn(relay(
            vec![nodes],
            Teller {
                to: self.to.clone(),
                feed: Feed::Nodes,
                node: None,
                slim: |node| Some(slim::node(&node)),
                message: Box::new(Message::Nodes),
            },
        ));
    }

    fn pods(&self, node: &str) -> impl Future<Output = ()> + Send + use<> {
        let on_node = format!("spec.nodeName={node}");
        let pods: Collection<Pod> = self.collection(Api::all(self.client.clone()), "pods", Some(on_node));
        let node = node.to_owned();
        relay(
            vec![pods],
            Teller {
                to: self.to.clone(),
                feed: Feed::Pods,
                node: Some(node.clone()),
                slim: |pod| Some(Facts::of(&pod)),
                message: Box::new(move |change| Message::Pods { node: node.clone(), change }),
            },
        )
    }

    fn events(&self, node: &str, about: &BTreeSet<String>) -> impl Future<Output = ()> + Send + use<> {
        let collection = |name: &String| {
            let api: Api<Event> = Api::namespaced(self.client.clone(), EVENTS_NAMESPACE);
            self.collection(api, "events.events.k8s.io", Some(format!("regarding.name={name}")))
        };
        let events = about.iter().map(collection).collect();
        let node = node.to_owned();
        relay(
            events,
            Teller {
                to: self.to.clone(),
                feed: Feed::Events,
                node: Some(node.clone()),
                slim: slim::event,
                message: Box::new(move |change| Message::Events { node: node.clone(), change }),
            },
        )
    }

    fn collection<K>(&self, api: Api<K>, name: &'static str, fields: Option<String>) -> Collection<K> {
        Collection { api, fields, name, server: self.server.clone() }
    }
}
