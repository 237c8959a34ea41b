//! Sends evictions, many at once, and remembers what came of them. It decides nothing.
//!
//! A pod is known by its uid, which is also the precondition of its eviction: a replacement of the same name is
//! another pod. One bound holds for the cluster and one for each node, so that a node with thousands of pods leaves
//! room for the others.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::core::Status;
use kube::runtime::reflector::ObjectRef;
use nm_shared::attempt::Attempt;
use nm_shared::decision::Eviction;
use nm_shared::eviction_outcome::EvictionOutcome;
use nm_shared::{NodeMaintenance, pod};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::triggers::Triggers;

/// An answer that takes longer than this is as good as none: webhooks have at most 30 s.
const PATIENCE: Duration = Duration::from_secs(35);

/// Evictions under way on one node, of those allowed in all.
const SHARE_OF_A_NODE: usize = 2;

/// Sends evictions and remembers the answers.
pub(crate) struct Evictor {
    client: Client,
    triggers: Triggers,
    cluster: Arc<Semaphore>,
    a_node: usize,
    nodes: Mutex<HashMap<String, Ledger>>,
}

/// The evictions of one node.
struct Ledger {
    slots: Arc<Semaphore>,
    pods: HashMap<String, Entry>,
}

struct Entry {
    attempt: Attempt,
    namespace: String,
    maintenance: ObjectRef<NodeMaintenance>,
    request: Option<AbortHandle>,
}

impl Evictor {
    /// At most `limit` evictions are under way at once.
    pub(crate) fn new(client: Client, triggers: Triggers, limit: NonZeroUsize) -> Self {
        let a_node = limit.get().div_ceil(SHARE_OF_A_NODE);
        Self {
            client,
            triggers,
            cluster: Arc::new(Semaphore::new(limit.get())),
            a_node,
            nodes: Mutex::default(),
        }
    }

    /// Evicts a pod of `node`, unless its eviction is under way already.
    pub(crate) fn submit(
        self: &Arc<Self>,
        maintenance: &ObjectRef<NodeMaintenance>,
        node: &str,
        eviction: Eviction,
    ) {
        let uid = pod::uid(&eviction.pod).to_owned();
        let mut nodes = self.lock();
        let ledger = nodes.entry(node.to_owned()).or_insert_with(|| Ledger::new(self.a_node));
        let entry = ledger.pods.entry(uid.clone()).or_insert_with(|| Entry {
            attempt: Attempt::default(),
            namespace: eviction.pod.metadata.namespace.clone().unwrap_or_default(),
            maintenance: maintenance.clone(),
            request: None,
        });
        if entry.attempt.in_flight {
            return;
        }
        entry.attempt.begin();
        let task = self.clone().send(node.to_owned(), uid, ledger.slots.clone(), eviction);
        entry.request = Some(tokio::spawn(task).abort_handle());
    }

    /// What is known of the evictions on `node`, by the pod's uid. Those of pods that `exists` denies are forgotten.
    pub(crate) fn attempts(&self, node: &str, exists: impl Fn(&str) -> bool) -> HashMap<String, Attempt> {
        let mut nodes = self.lock();
        let Some(ledger) = nodes.get_mut(node) else { return HashMap::new() };
        ledger.pods.retain(|uid, entry| entry.attempt.in_flight || exists(uid));
        ledger.pods.iter().map(|(uid, entry)| (uid.clone(), entry.attempt.clone())).collect()
    }

    /// Stops at once: what is not sent yet never is.
    pub(crate) fn stop(&self, node: &str) {
        if let Some(ledger) = self.lock().remove(node) {
            for request in ledger.pods.into_values().filter_map(|entry| entry.request) {
                request.abort();
            }
        }
    }

    /// Wakes the maintenances whose pods wait for a budget in `namespace`.
    pub(crate) fn wake_for_budget(&self, namespace: &str) {
        let nodes = self.lock();
        let waits = |entry: &&Entry| {
            entry.namespace == namespace
                && matches!(
                    entry.attempt.last,
                    Some((_, EvictionOutcome::RefusedByBudget(_) | EvictionOutcome::MultipleBudgets(_)))
                )
        };
        for ledger in nodes.values() {
            if let Some(entry) = ledger.pods.values().find(waits) {
                self.triggers.wake(entry.maintenance.clone());
            }
        }
    }

    async fn send(self: Arc<Self>, node: String, uid: String, slots: Arc<Semaphore>, eviction: Eviction) {
        // Semaphores are never closed.
        let Ok(_node_slot) = slots.acquire().await else { return };
        let Ok(_cluster_slot) = self.cluster.acquire().await else { return };
        let outcome = self.evict(&eviction).await;
        let pod = pod::reference(&eviction.pod);
        let now = Timestamp::now();
        let mut nodes = self.lock();
        let entry = nodes.get_mut(&node).and_then(|ledger| ledger.pods.get_mut(&uid));
        let Some(entry) = entry else { return };
        log(&node, &pod.to_string(), &entry.attempt, &outcome);
        entry.attempt.end(outcome, now);
        entry.request = None;
        self.triggers.wake(entry.maintenance.clone());
    }

    /// Posts the eviction. kube's own helper writes the key `delete_options`, which the API server ignores, and with
    /// it the precondition; so the body is made here.
    async fn evict(&self, eviction: &Eviction) -> EvictionOutcome {
        let pod::Names { namespace, name, uid } = pod::names(&eviction.pod);
        let mut options = json!({"preconditions": {"uid": uid}});
        if let Some(seconds) = eviction.grace_period_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": options,
        });
        let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes());
        let request = match request {
            Ok(request) => request,
            Err(error) => return EvictionOutcome::Unknown(error.to_string()),
        };
        match tokio::time::timeout(PATIENCE, self.client.request::<Status>(request)).await {
            Ok(Ok(status)) => EvictionOutcome::from(&Status { code: 201, ..status }),
            Ok(Err(kube::Error::Api(status))) => EvictionOutcome::from(status.as_ref()),
            Ok(Err(error)) => EvictionOutcome::Unknown(error.to_string()),
            Err(_) => EvictionOutcome::Unknown(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Ledger>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn new(slots: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), pods: HashMap::new() }
    }
}

/// One line for each thing that a person would want to know, none for a retry that was refused the same way.
fn log(node: &str, pod: &str, before: &Attempt, outcome: &EvictionOutcome) {
    let again = before.last.as_ref().is_some_and(|(_, last)| last == outcome);
    match outcome {
        EvictionOutcome::Accepted => info!(node, pod, "eviction accepted"),
        EvictionOutcome::Gone => debug!(node, pod, "pod was gone before its eviction"),
        refusal if again => debug!(node, pod, ?refusal, "eviction refused again"),
        refusal => warn!(node, pod, ?refusal, "eviction refused"),
    }
}
