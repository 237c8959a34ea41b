//! The watches that every maintenance shares: nodes, `DaemonSet`s and disruption budgets, once for the cluster.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use nm_shared::cluster::node::is_ready;
use nm_shared::drain::plan::DaemonSets;
use tokio::sync::watch;
use tracing::error;

use crate::cache::pdb_index::KnownBudgets;
use crate::cache::triggers::Triggers;
use crate::evict::evictor::Evictor;
use crate::telemetry::readiness::Check;
use crate::watch::watch_stream::{News, follow, watched, without_managed_fields};

/// Budgets and `DaemonSet`s that cannot be listed hold nothing up for longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shared stores.
pub(crate) struct ClusterWatches {
    /// Every node, without the parts that nobody here reads.
    pub(crate) nodes: Store<Node>,
    /// Every disruption budget. Without them evictions are sent blindly, and refused more often.
    pub(crate) budgets: Arc<KnownBudgets>,
    daemon_sets: watch::Receiver<Arc<DaemonSets>>,
}

impl ClusterWatches {
    /// Begins to watch. The future runs the watches for ever; the check holds while that on nodes goes on.
    pub(crate) fn start(
        client: &Client,
        triggers: &Triggers,
        evictor: &Arc<Evictor>,
        nodes_known: Check,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (nodes, node_writer) = reflector::store();
        let (daemon_sets, daemon_set_writer) = reflector::store();
        let (budgets, budget_writer) = reflector::store();
        let config = watcher::Config::default();
        let node_stream =
            watched(Api::<Node>::all(client.clone()), config.clone()).modify(slim_node).reflect(node_writer);
        let daemon_set_stream =
            watched(Api::<PartialObjectMeta<DaemonSet>>::all(client.clone()), config.clone())
                .modify(without_managed_fields)
                .reflect(daemon_set_writer);
        let budget_stream = watched(Api::<PodDisruptionBudget>::all(client.clone()), config)
            .modify(without_managed_fields)
            .reflect(budget_writer);

        let (daemon_set_names, daemon_sets_known) = watch::channel(Arc::new(unlisted()));
        let budgets = Arc::new(KnownBudgets::new(budgets));
        let (triggers, evictor, known) = (triggers.clone(), evictor.clone(), budgets.clone());
        let all_nodes = nodes.clone();
        let run = async move {
            let mut unready = Unready::default();
            let hear_node = |news: News<'_, Node>| match news {
                News::Changed(node) => {
                    triggers.wake_node(&node.name_any());
                    if unready.note(node) {
                        triggers.wake_pending();
                    }
                }
                News::Listed => {
                    unready.listed(&all_nodes);
                    triggers.wake_all();
                }
                News::Interrupted => {}
                News::Forbidden(sentence) => without("nodes", &sentence),
            };
            let hear_daemon_set = |news: News<'_, PartialObjectMeta<DaemonSet>>| match news {
                News::Changed(_) => {
                    daemon_set_names.send_replace(Arc::new(named(&daemon_sets)));
                }
                News::Listed => {
                    daemon_set_names.send_replace(Arc::new(named(&daemon_sets)));
                    triggers.wake_all();
                }
                News::Interrupted => {
                    daemon_set_names
                        .send_modify(|known| Arc::make_mut(known).interrupted = !known.incomplete);
                }
                News::Forbidden(sentence) => {
                    daemon_set_names.send_replace(Arc::new(unlisted()));
                    without("daemonsets", &sentence);
                }
            };
            let hear_budget = |news: News<'_, PodDisruptionBudget>| match news {
                News::Changed(budget) => {
                    known.changed(budget);
                    evictor.wake_for_budget(&budget.namespace().unwrap_or_default());
                }
                News::Listed => {
                    known.listed();
                    triggers.wake_all();
                }
                News::Interrupted => {}
                News::Forbidden(sentence) => without("poddisruptionbudgets", &sentence),
            };
            futures::join!(
                follow("nodes", Some(nodes_known), node_stream, hear_node),
                follow("daemonsets", None, daemon_set_stream, hear_daemon_set),
                follow("poddisruptionbudgets", None, budget_stream, hear_budget),
            );
        };
        (Self { nodes, budgets, daemon_sets: daemon_sets_known }, run)
    }

    /// Waits until the nodes have been listed: a node that is not known does not exist. And for budgets and `DaemonSet`s,
    /// where they may be listed: without the ones more would be asked than they allow, and without the others pods that
    /// are to go would be left out at first.
    pub(crate) async fn ready(&self) {
        let budgets = tokio::time::timeout(PATIENCE, self.budgets.until_listed());
        let mut daemon_sets = self.daemon_sets.clone();
        let daemon_sets = async move {
            let _ = daemon_sets.wait_for(|sets| !sets.incomplete).await;
        };
        let daemon_sets = tokio::time::timeout(PATIENCE, daemon_sets);
        // The writers live as long as the program, so the stores are never abandoned.
        let _ = tokio::join!(self.nodes.wait_until_ready(), budgets, daemon_sets);
    }

    /// The `DaemonSet`s that are known.
    pub(crate) fn daemon_sets(&self) -> Arc<DaemonSets> {
        self.daemon_sets.borrow().clone()
    }
}

/// What is known of `DaemonSet`s while they are not listed.
fn unlisted() -> DaemonSets {
    DaemonSets { incomplete: true, ..DaemonSets::default() }
}

fn named(sets: &Store<PartialObjectMeta<DaemonSet>>) -> DaemonSets {
    DaemonSets::listed(sets.state().iter().map(|set| &set.metadata))
}

/// The nodes that are not Ready.
#[derive(Default)]
struct Unready(HashSet<String>);

impl Unready {
    /// Begins anew with these nodes.
    fn listed(&mut self, nodes: &Store<Node>) {
        let nodes = nodes.state();
        self.0 = nodes.iter().filter(|node| !is_ready(node)).map(|node| node.name_any()).collect();
    }

    /// Notes a node's state, and whether it is another than before.
    fn note(&mut self, node: &Node) -> bool {
        let name = node.name_any();
        if is_ready(node) { self.0.remove(&name) } else { self.0.insert(name) }
    }
}

fn without(resource: &str, sentence: &str) {
    error!(resource, "cannot be listed: {sentence}");
}

/// Images are most of a node's size, and nobody here reads them.
pub(crate) fn slim_node(node: &mut Node) {
    without_managed_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use kube::runtime::reflector::store::Writer;
    use nm_shared::{Group, Grouped};
    use serde_json::{Value, json};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::cache::maintenances::Maintenances;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::readiness::Readiness;

    /// So long after it is first seen the node is Ready.
    const RECOVERS: Duration = Duration::from_secs(1);

    fn node(ready: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "resourceVersion": "8"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    /// An API server with one node, which is not Ready at first, and nothing else.
    fn server() -> Client {
        let server = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let is_of_nodes = request.uri().path() == "/api/v1/nodes";
            let body = if request.uri().query().unwrap_or_default().contains("watch=true") {
                let recovered = format!("{}\n", json!({"type": "MODIFIED", "object": node("True")}));
                let recovers = stream::once(async move {
                    sleep(RECOVERS).await;
                    Ok::<_, Infallible>(recovered)
                });
                let events = if is_of_nodes { recovers.boxed() } else { stream::empty().boxed() };
                Body::from_stream(events.chain(stream::pending()))
            } else {
                let items = if is_of_nodes { json!([node("False")]) } else { json!([]) };
                Body::from(json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string())
            };
            Ok::<_, Infallible>(http::Response::new(body))
        });
        Client::new(server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_not_ready_from_the_beginning_wakes_who_waits_when_it_recovers() {
        let mut writer = Writer::new(Group::Medik8s);
        let waits: Grouped = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m"},
            "spec": {"nodeName": "other"}, "status": {"phase": "Pending"},
        }))
        .unwrap();
        let all = Maintenances::new([(Group::Medik8s, writer.as_reader())]);
        writer.apply_watcher_event(&watcher::Event::Apply(waits));
        let (triggers, [mut woken, ..]) = Triggers::new(Arc::new(all));
        let (client, metrics) = (server(), Arc::new(Metrics::new()));
        let evictor = Evictor::new(client.clone(), triggers.clone(), metrics, NonZeroUsize::MIN);
        let check = Readiness::default().check("nodes");
        let (_watches, run) = ClusterWatches::start(&client, &triggers, &Arc::new(evictor), check);
        let run = tokio::spawn(run);
        let began = Instant::now();
        for _ in ["nodes", "daemonsets", "poddisruptionbudgets"] {
            woken.next().await;
        }
        assert!(began.elapsed() < RECOVERS, "each list wakes everybody");
        assert!(timeout(2 * RECOVERS, woken.next()).await.is_ok());
        run.abort();
    }
}
