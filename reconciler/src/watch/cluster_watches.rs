//! The watches that all maintenances share, one each for the whole cluster: nodes, `DaemonSet`s and disruption budgets.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tracing::error;

use crate::cache::compact_node::CompactNode;
use crate::cache::projected_node::ProjectedNode;
use crate::cache::shared_state::SharedState;
use crate::cache::term_state::TermState;
use crate::cache::watched::WatchUpdate;
use crate::telemetry::readiness::ReadinessCheck;
use crate::watch::watch_stream::{drop_managed_fields, map_object, run_watch, watch_stream};

/// Budgets and `DaemonSet`s that cannot be listed delay the first reconcile no longer than this.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// How many objects are listed in a page: a node is up to 20 KiB of JSON, of which a tenth is kept.
const PAGE_SIZE: u32 = 200;

/// Runs the watches and never ends. The check passes while that on nodes is healthy.
pub(crate) async fn watch_cluster(client: Client, state: Arc<SharedState>, nodes_check: ReadinessCheck) {
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    let nodes = watch_stream(Api::<ProjectedNode>::all(client.clone()), config.clone())
        .map_ok(|event| map_object(event, |ProjectedNode(node)| CompactNode::from(node)));
    let daemon_sets = watch_stream(Api::<PartialObjectMeta<DaemonSet>>::all(client.clone()), config.clone())
        .modify(drop_managed_fields);
    let budgets = watch_stream(Api::<PodDisruptionBudget>::all(client), config).modify(drop_managed_fields);
    futures::join!(
        run_watch("nodes", Some(nodes_check), nodes, |update| {
            log_refusal("nodes", &update);
            state.lock().apply_node(update);
        }),
        run_watch("daemonsets", None, daemon_sets, |update| {
            log_refusal("daemonsets", &update);
            state.lock().apply_daemon_set(update);
        }),
        run_watch("poddisruptionbudgets", None, budgets, |update| {
            log_refusal("poddisruptionbudgets", &update);
            state.lock().apply_budget(update);
        }),
    );
}

/// Waits until nodes and their leases are known, and a limited time for what only drains need.
pub(crate) async fn until_known(state: &SharedState) {
    let drains = state.until_listed(TermState::are_drains_known);
    let drains = tokio::time::timeout(INITIAL_LIST_TIMEOUT, drains);
    let _ = tokio::join!(state.until_listed(TermState::are_nodes_known), drains);
}

fn log_refusal<K>(resource: &str, update: &WatchUpdate<K>) {
    if let WatchUpdate::Forbidden(refusal) = update {
        error!(resource, "cannot be listed: {refusal}");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use nm_shared::GroupedMaintenance;
    use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
    use serde_json::{Value, json};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::runtime::clock::Clock;
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
        let pending: GroupedMaintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "metadata": {"name": "m", "uid": "m"},
            "spec": {"nodeName": "other"}, "status": {
                "phase": "Pending", "queue": {"position": 1, "length": 1, "limit": 1},
                "lastError": "position 1 of 1 in the queue: 1 of 2 nodes are unavailable and the limit is 1",
            },
        }))
        .unwrap();
        let (state, [(_, mut triggered), ..]) = SharedState::new([], NonZeroUsize::MIN);
        state.lock().maintenance_applied(Arc::new(pending));
        let check = Readiness::default().check("nodes");
        let run = tokio::spawn(watch_cluster(server(), state.clone(), check));
        let began = Instant::now();
        for _ in ["nodes", "daemonsets", "poddisruptionbudgets"] {
            triggered.next().await;
        }
        assert!(began.elapsed() < RECOVERY_DELAY, "each list triggers every maintenance");
        let limit = Some(MaxUnavailable::Nodes(1));
        let waiting = tokio::spawn(trigger_waiting(state, limit, Clock::system()));
        assert!(timeout(2 * RECOVERY_DELAY, triggered.next()).await.is_ok());
        assert!(began.elapsed() >= RECOVERY_DELAY, "not before");
        for task in [run, waiting] {
            task.abort();
        }
    }
}
