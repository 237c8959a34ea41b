//! The leases on nodes: one watch for all of them, and the writes that take, renew and delete one.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease::{self, LeaseWrite};
use nm_shared::decide::decision::LeaseRelease;
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::cache::shared_state::SharedState;
use crate::cache::watched::WatchUpdate;
use crate::client::{patch_params, post_params, with_timeout};
use crate::telemetry::readiness::ReadinessCheck;
use crate::watch::watch_stream::{drop_managed_fields, run_watch, watch_stream};

/// How long a lease has to be left without a maintenance before it is deleted.
const ORPHAN_DELAY: Duration = Duration::from_secs(1);

/// How long to wait for the answer to its deletion.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct NodeLeases {
    client: Client,
    state: Arc<SharedState>,
}

impl NodeLeases {
    pub(crate) fn new(client: Client, state: Arc<SharedState>) -> Self {
        Self { client, state }
    }

    /// Runs the watch and never ends. The check passes while it is healthy.
    pub(crate) async fn watch(self, check: ReadinessCheck) {
        let stream = watch_stream(self.api(), watcher::Config::default()).modify(drop_managed_fields);
        let state = self.state.clone();
        let (orphan_sender, orphans) = unbounded();
        let report_orphan = move |lease: &Lease| {
            if node_lease::is_ours(lease) {
                // The receiver is gone only when the term ends.
                let _ = orphan_sender.unbounded_send((lease.clone(), Instant::now() + ORPHAN_DELAY));
            }
        };
        let watch = run_watch("leases on nodes", Some(check), stream, |update| {
            match &update {
                WatchUpdate::Applied(lease) => report_orphan(lease),
                WatchUpdate::Listed(all) => all.iter().for_each(&report_orphan),
                WatchUpdate::Deleted(_) | WatchUpdate::Interrupted => {}
                WatchUpdate::Forbidden(refusal) => {
                    error!(namespace = LEASE_NAMESPACE, "leases cannot be listed: {refusal}");
                }
            }
            state.lock().apply_lease(update);
        });
        tokio::join!(watch, self.delete_orphans(orphans));
    }

    /// Deletes leases that are ours on nodes without a maintenance. A request of an earlier leader can create one late,
    /// after another leader has released the node, and nobody else may change the node while it is valid.
    async fn delete_orphans(self, mut found: UnboundedReceiver<(Lease, Instant)>) {
        while let Some((lease, due)) = found.next().await {
            let name = lease.name_any();
            let Some(node) = node_lease::node(&name) else { continue };
            let is_in_maintenance = || self.state.lock().maintenances.is_in_maintenance(node);
            if is_in_maintenance() == Some(true) {
                continue;
            }
            // The maintenance, or the lease's deletion, may be on its way.
            tokio::time::sleep_until(due).await;
            let left = self.state.lock().nodes.received_lease(node).cloned();
            let Some(left) = left else { continue };
            let is_orphan = is_in_maintenance() == Some(false);
            if left.resource_version() != lease.resource_version() || !is_orphan {
                continue;
            }
            match with_timeout(DELETE_TIMEOUT, self.delete(&left)).await {
                Ok(_) => info!(lease = name, "deleted a lease on a node without a maintenance"),
                Err(error) => {
                    debug!(lease = name, %error, "the lease on a node without a maintenance expires");
                }
            }
        }
    }

    /// Takes or renews the lease on `node`.
    pub(crate) async fn write(&self, node: &str, write: &LeaseWrite) -> kube::Result<()> {
        let answer = match write {
            LeaseWrite::Create(lease) => self.create(lease).await,
            LeaseWrite::Patch(patch) => {
                self.api().patch(&node_lease::name(node), &patch_params(), &Patch::Merge(patch)).await
            }
        };
        self.state.lock().remember_lease(node, answer.as_ref().ok().cloned());
        answer.map(drop)
    }

    /// Deletes our lease on `node`, if there is one. Returns the observed lease if it is gone. One that was not observed may have
    /// been created since by the reconcile of another maintenance: `is_inherited` is whether there is one.
    pub(crate) async fn release(
        &self,
        node: &str,
        lease: LeaseRelease,
        is_inherited: impl Fn() -> bool,
    ) -> kube::Result<Option<Arc<Lease>>> {
        match lease {
            LeaseRelease::Observed(lease) => Ok(self.delete(&lease).await?.then_some(lease)),
            LeaseRelease::Unobserved => {
                // The permissions do not include to get it.
                let only = ListParams::default().fields(&format!("metadata.name={}", node_lease::name(node)));
                let found = match self.api().list(&only).await {
                    Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
                    found => found?,
                };
                let ours = found.items.iter().find(|lease| node_lease::is_ours(lease));
                if let Some(lease) = ours.filter(|_| !is_inherited()) {
                    self.delete(lease).await?;
                }
                Ok(None)
            }
        }
    }

    /// Deletes our lease, unless it has changed hands. Without permission to delete it, it expires: returning a node to
    /// service does not wait for that. Returns whether it is gone.
    async fn delete(&self, lease: &Lease) -> kube::Result<bool> {
        let preconditions = Preconditions { uid: lease.uid(), resource_version: lease.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api().delete(&lease.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!(
                    lease = lease.name_any(),
                    "the lease is not deleted and will expire: {}", status.message
                );
                Ok(false)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(error),
            Ok(_) => Ok(true),
        }
    }

    /// The manifests create the namespace. If someone has deleted it, it is created again where that is permitted. The
    /// permissions in the manifests do not include it: they are deleted with the namespace, and permission to create
    /// namespaces cannot be limited to one name.
    async fn create(&self, lease: &Lease) -> kube::Result<Lease> {
        let params = post_params();
        match self.api().create(&params, lease).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let namespace = serde_json::from_value(json!({"metadata": {"name": LEASE_NAMESPACE}}))
                    .map_err(kube::Error::SerdeError)?;
                Api::<Namespace>::all(self.client.clone()).create(&params, &namespace).await?;
                self.api().create(&params, lease).await
            }
            answer => answer,
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), LEASE_NAMESPACE)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use nm_shared::api::names::LEASE_HOLDER;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_maintenance_has_just_created_is_not_deleted() {
        for (is_inherited, deletions) in [(false, 1), (true, 0)] {
            let deleted = Arc::new(AtomicUsize::new(0));
            let counted = deleted.clone();
            let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                counted.fetch_add(usize::from(request.method() == http::Method::DELETE), Ordering::Relaxed);
                async {
                    let spec = json!({"holderIdentity": LEASE_HOLDER});
                    let lease = json!({"metadata": {"name": "node-n", "resourceVersion": "9"}, "spec": spec});
                    let list = json!({"metadata": {}, "items": [lease]});
                    Ok::<_, Infallible>(http::Response::new(Body::from(list.to_string())))
                }
            });
            let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
            let leases = NodeLeases::new(Client::new(server, "default"), state);
            leases.release("n", LeaseRelease::Unobserved, || is_inherited).await.unwrap();
            assert_eq!(deleted.load(Ordering::Relaxed), deletions);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_arrives_after_the_end_of_a_maintenance_is_not_remembered() {
        let server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let lease = json!({"metadata": {"name": "node-n", "resourceVersion": "9"}});
            Ok::<_, Infallible>(http::Response::new(Body::from(lease.to_string())))
        });
        let client = Client::new(server, "default");
        let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
        let leases = NodeLeases::new(client, state.clone());
        leases.write("n", &LeaseWrite::Patch(json!({}))).await.unwrap();
        assert!(!state.lock().nodes.remembers("n"));
    }
}
