//! The watches that all maintenances share, one each for the whole cluster: nodes, `DaemonSet`s and disruption budgets.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use nm_shared::drain::plan::DaemonSets;
use nm_shared::gate::max_unavailable_queue::GateNode;
use tokio::sync::watch;
use tracing::error;

use crate::cache::leader_state::{LeaderState, ListForbidden};
use crate::cache::pdb_index::PdbIndex;
use crate::cache::triggers::Triggers;
use crate::evict::evictor::Evictor;
use crate::telemetry::readiness::ReadinessCheck;
use crate::watch::projected_node::{ProjectedNode, is_alike, node_event};
use crate::watch::watch_stream::{WatchUpdate, drop_managed_fields, run_watch, watch_stream};

/// Budgets and `DaemonSet`s that cannot be listed delay the first reconcile no longer than this.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// How many objects are listed in a page: a node is up to 20 KiB of JSON, of which a tenth is kept.
const PAGE_SIZE: u32 = 200;

pub(crate) struct ClusterWatches {
    /// Every node, without the parts that nothing here reads.
    pub(crate) nodes: Store<Node>,
    /// Every disruption budget. Where they cannot be listed, more evictions are refused.
    pub(crate) budgets: Arc<PdbIndex>,
    daemon_sets: watch::Receiver<Arc<DaemonSets>>,
}

impl ClusterWatches {
    /// Starts to watch. The future runs the watches and never ends; the check passes while that on nodes is healthy.
    pub(crate) fn start(
        client: &Client,
        state: Arc<LeaderState>,
        triggers: &Triggers,
        evictor: &Arc<Evictor>,
        nodes_check: ReadinessCheck,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (nodes, node_writer) = reflector::store();
        let (daemon_sets, daemon_set_writer) = reflector::store();
        let (budgets, budget_writer) = reflector::store();
        let config = watcher::Config::default().page_size(PAGE_SIZE);
        let node_stream = watch_stream(Api::<ProjectedNode>::all(client.clone()), config.clone())
            .map_ok(node_event)
            .reflect(node_writer);
        let daemon_set_stream =
            watch_stream(Api::<PartialObjectMeta<DaemonSet>>::all(client.clone()), config.clone())
                .modify(drop_managed_fields)
                .reflect(daemon_set_writer);
        let budget_stream = watch_stream(Api::<PodDisruptionBudget>::all(client.clone()), config)
            .modify(drop_managed_fields)
            .reflect(budget_writer);

        let (daemon_set_sender, known_daemon_sets) = watch::channel(Arc::new(unlisted()));
        let budgets = Arc::new(PdbIndex::new(budgets));
        let (triggers, evictor, index) = (triggers.clone(), evictor.clone(), budgets.clone());
        let all_nodes = nodes.clone();
        let run = async move {
            let gate_node = |node: Arc<Node>| GateNode::from(&*state.latest_node(node));
            let mut seen = HashMap::new();
            let handle_node = |update: WatchUpdate<'_, Node>| match update {
                WatchUpdate::Changed(node) => {
                    let name = node.name_any();
                    let now = all_nodes.get(&ObjectRef::new(&name));
                    let before = match &now {
                        Some(now) => seen.insert(name.clone(), now.clone()),
                        None => seen.remove(&name),
                    };
                    // Kubelets write to their nodes all the time.
                    if now.as_ref().zip(before.as_ref()).is_some_and(|(now, before)| is_alike(now, before)) {
                        return;
                    }
                    let alone = state.gate.begin_decision();
                    state.gate.update_node(&alone, &name, now.map(gate_node));
                    drop(alone);
                    triggers.node(&name);
                }
                WatchUpdate::Listed => {
                    state.nodes_listed();
                    seen = all_nodes.state().into_iter().map(|node| (node.name_any(), node)).collect();
                    let alone = state.gate.begin_decision();
                    let nodes = seen.iter().map(|(name, node)| (name.clone(), gate_node(node.clone())));
                    state.gate.replace_nodes(&alone, nodes.collect());
                    drop(alone);
                    triggers.all();
                }
                WatchUpdate::Interrupted => {}
                WatchUpdate::Forbidden(refusal) => log_refusal("nodes", &refusal),
            };
            let handle_daemon_set = |update: WatchUpdate<'_, PartialObjectMeta<DaemonSet>>| match update {
                WatchUpdate::Changed(_) => {
                    daemon_set_sender.send_replace(Arc::new(listed(&daemon_sets)));
                }
                WatchUpdate::Listed => {
                    daemon_set_sender.send_replace(Arc::new(listed(&daemon_sets)));
                    triggers.all();
                }
                WatchUpdate::Interrupted => {
                    daemon_set_sender
                        .send_modify(|known| Arc::make_mut(known).interrupted = !known.incomplete);
                }
                WatchUpdate::Forbidden(refusal) => {
                    daemon_set_sender.send_replace(Arc::new(unlisted()));
                    log_refusal("daemonsets", &refusal);
                }
            };
            let handle_budget = |update: WatchUpdate<'_, PodDisruptionBudget>| match update {
                WatchUpdate::Changed(budget) => {
                    index.update(budget);
                    evictor.budget_changed(&budget.namespace().unwrap_or_default());
                }
                WatchUpdate::Listed => {
                    index.rebuild();
                    triggers.all();
                }
                WatchUpdate::Interrupted => {}
                WatchUpdate::Forbidden(refusal) => log_refusal("poddisruptionbudgets", &refusal),
            };
            futures::join!(
                run_watch("nodes", Some(nodes_check), node_stream, handle_node),
                run_watch("daemonsets", None, daemon_set_stream, handle_daemon_set),
                run_watch("poddisruptionbudgets", None, budget_stream, handle_budget),
            );
        };
        (Self { nodes, budgets, daemon_sets: known_daemon_sets }, run)
    }

    /// Waits until the nodes have been listed, because a node that is not in the store does not exist. Also waits a
    /// limited time for budgets, without which too many evictions are sent, and for `DaemonSet`s, without which pods that
    /// have to be evicted are skipped at first.
    pub(crate) async fn ready(&self) {
        let budgets = tokio::time::timeout(INITIAL_LIST_TIMEOUT, self.budgets.wait_until_listed());
        let mut daemon_sets = self.daemon_sets.clone();
        let daemon_sets = async move {
            let _ = daemon_sets.wait_for(|sets| !sets.incomplete).await;
        };
        let daemon_sets = tokio::time::timeout(INITIAL_LIST_TIMEOUT, daemon_sets);
        // The writers live as long as the term, so waiting for the stores cannot fail.
        let _ = tokio::join!(self.nodes.wait_until_ready(), budgets, daemon_sets);
    }

    pub(crate) fn daemon_sets(&self) -> Arc<DaemonSets> {
        self.daemon_sets.borrow().clone()
    }
}

/// What is known of `DaemonSet`s before they are listed.
fn unlisted() -> DaemonSets {
    DaemonSets { incomplete: true, ..DaemonSets::default() }
}

fn listed(sets: &Store<PartialObjectMeta<DaemonSet>>) -> DaemonSets {
    DaemonSets::listed(sets.state().iter().map(|set| &set.metadata))
}

fn log_refusal(resource: &str, refusal: &ListForbidden) {
    error!(resource, "cannot be listed: {refusal}");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use kube::runtime::reflector::store::Writer;
    use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
    use nm_shared::{Group, GroupedMaintenance};
    use serde_json::{Value, json};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::client::TermClient;
    use crate::client::throttle::Throttle;
    use crate::runtime::clock::Clock;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::readiness::Readiness;
    use crate::watch::queue_updates::trigger_waiting;

    /// The node becomes Ready this long after it is first listed.
    const RECOVERY_DELAY: Duration = Duration::from_secs(1);

    fn node(ready: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "resourceVersion": "8"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    /// An API server with two nodes, one of which is not Ready at first, and nothing else.
    fn server() -> Client {
        let server = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let is_of_nodes = request.uri().path() == "/api/v1/nodes";
            let body = if request.uri().query().unwrap_or_default().contains("watch=true") {
                let recovered = format!("{}\n", json!({"type": "MODIFIED", "object": node("True")}));
                let recovers = stream::once(async move {
                    sleep(RECOVERY_DELAY).await;
                    Ok::<_, Infallible>(recovered)
                });
                let events = if is_of_nodes { recovers.boxed() } else { stream::empty().boxed() };
                Body::from_stream(events.chain(stream::pending()))
            } else {
                let other = json!({"metadata": {"name": "other", "resourceVersion": "7"}});
                let items = if is_of_nodes { json!([node("False"), other]) } else { json!([]) };
                Body::from(json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string())
            };
            Ok::<_, Infallible>(http::Response::new(body))
        });
        Client::new(server, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_recovers_triggers_the_maintenance_whose_turn_it_is() {
        let mut writer = Writer::new(Group::Medik8s);
        let pending: GroupedMaintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m", "uid": "m"},
            "spec": {"nodeName": "other"}, "status": {
                "phase": "Pending", "queue": {"position": 1, "length": 1, "limit": 1},
                "lastError": "position 1 of 1 in the queue: 1 of 2 nodes are unavailable and the limit is 1",
            },
        }))
        .unwrap();
        let state = Arc::new(LeaderState::new([(Group::Medik8s, writer.as_reader())]));
        writer.apply_watcher_event(&watcher::Event::Apply(pending.clone()));
        state.index(Arc::new(pending));
        let (triggers, [mut triggered, ..]) = Triggers::new(state.clone());
        let (client, metrics) = (server(), Arc::new(Metrics::new()));
        let term = TermClient { client: client.clone(), throttle: Throttle::default() };
        let evictor = Evictor::new(term, triggers.clone(), metrics, NonZeroUsize::MIN);
        let check = Readiness::default().check("nodes");
        let (_watches, run) =
            ClusterWatches::start(&client, state.clone(), &triggers, &Arc::new(evictor), check);
        let run = tokio::spawn(run);
        let began = Instant::now();
        for _ in ["nodes", "daemonsets", "poddisruptionbudgets"] {
            triggered.next().await;
        }
        assert!(began.elapsed() < RECOVERY_DELAY, "each list triggers every maintenance");
        let waiting =
            tokio::spawn(trigger_waiting(state, triggers, Some(MaxUnavailable::Nodes(1)), Clock::system()));
        assert!(timeout(2 * RECOVERY_DELAY, triggered.next()).await.is_ok());
        assert!(began.elapsed() >= RECOVERY_DELAY, "not before");
        for task in [run, waiting] {
            task.abort();
        }
    }
}
