//! The watches that every maintenance shares: nodes, `DaemonSet`s and disruption budgets, once for the cluster.

use std::fmt::Debug;
use std::future::Future;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::warn;

/// The shared stores.
pub(crate) struct ClusterWatches {
    /// Every node, without the parts that nobody here reads.
    pub(crate) nodes: Store<Node>,
    /// Every `DaemonSet`, as metadata.
    pub(crate) daemon_sets: Store<PartialObjectMeta<DaemonSet>>,
    /// Every disruption budget.
    pub(crate) budgets: Store<PodDisruptionBudget>,
}

impl ClusterWatches {
    /// Begins to watch. The future runs the watches for ever; `on_node` and `on_budget` hear of every change.
    pub(crate) fn start(
        client: &Client,
        on_node: impl Fn(&Node) + Send + 'static,
        on_budget: impl Fn(&PodDisruptionBudget) + Send + 'static,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let config = watcher::Config::default();
        let (nodes, node_writer) = reflector::store();
        let (daemon_sets, daemon_set_writer) = reflector::store();
        let (budgets, budget_writer) = reflector::store();
        let node_stream = watcher(Api::<Node>::all(client.clone()), config.clone());
        let node_stream = node_stream.modify(slim_node).default_backoff().reflect(node_writer);
        let daemon_set_stream =
            watcher(Api::<PartialObjectMeta<DaemonSet>>::all(client.clone()), config.clone());
        let daemon_set_stream = daemon_set_stream.default_backoff().reflect(daemon_set_writer);
        let budget_stream = watcher(Api::<PodDisruptionBudget>::all(client.clone()), config);
        let budget_stream =
            budget_stream.modify(without_managed_fields).default_backoff().reflect(budget_writer);
        let run = async move {
            futures::join!(
                follow("nodes", node_stream, on_node),
                follow("daemonsets", daemon_set_stream, |_| ()),
                follow("poddisruptionbudgets", budget_stream, on_budget),
            );
        };
        (Self { nodes, daemon_sets, budgets }, run)
    }

    /// Waits until every store has been filled once.
    pub(crate) async fn ready(&self) {
        // The writers live as long as the program, so no store is ever abandoned.
        let _ = futures::join!(
            self.nodes.wait_until_ready(),
            self.daemon_sets.wait_until_ready(),
            self.budgets.wait_until_ready(),
        );
    }
}

/// Drains a watch, tells `on_change` of every object, and says once when the watch is interrupted.
pub(crate) async fn follow<K>(
    what: &str,
    stream: impl futures::Stream<Item = watcher::Result<watcher::Event<K>>>,
    on_change: impl Fn(&K),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(stream);
    let mut interrupted = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(
                watcher::Event::Apply(object)
                | watcher::Event::InitApply(object)
                | watcher::Event::Delete(object),
            ) => {
                interrupted = false;
                on_change(&object);
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => interrupted = false,
            Err(error) if !interrupted => {
                interrupted = true;
                warn!(what, %error, "watch interrupted; it will be resumed");
            }
            Err(_) => {}
        }
    }
}

fn slim_node(node: &mut Node) {
    without_managed_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// Server-side apply's bookkeeping is often the larger half of an object, and nobody here reads it.
pub(crate) fn without_managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}
