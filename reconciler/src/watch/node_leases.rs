//! The leases on nodes: one watch for all of them, and the writes that take, keep and drop one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease::{self, LeaseWrite};
use serde_json::json;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::cache::read_your_writes::OwnWrites;
use crate::cache::triggers::Triggers;
use crate::client::write_params::{patch_params, post_params};
use crate::telemetry::readiness::Check;
use crate::watch::watch_stream::{Known, News, follow, watched, without_managed_fields};

/// Every lease on a node.
pub(crate) struct NodeLeases {
    client: Client,
    leases: Store<Lease>,
    known: watch::Receiver<Known>,
    own: OwnWrites<Lease>,
    created: Created,
}

/// The leases that this process made and its watch has not told of yet, by name: without them the next look would make
/// them again.
type Created = Arc<Mutex<HashMap<String, Arc<Lease>>>>;

impl NodeLeases {
    /// Begins to watch. The future runs the watch for ever; the check holds while it goes on.
    pub(crate) fn start(
        client: &Client,
        triggers: &Triggers,
        check: Check,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (leases, writer) = reflector::store();
        let api = Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE);
        let stream = watched(api, watcher::Config::default()).modify(without_managed_fields).reflect(writer);
        let (sender, known) = watch::channel(Known::Unlisted);
        let triggers = triggers.clone();
        let created = Created::default();
        let untold = created.clone();
        let run = async move {
            follow("leases on nodes", Some(check), stream, |news| match news {
                News::Changed(lease) => {
                    lock(&untold).remove(&lease.name_any());
                    if let Some(node) = node_lease::node(&lease.name_any()) {
                        triggers.wake_node(node);
                    }
                }
                News::Listed => {
                    lock(&untold).clear();
                    sender.send_replace(Known::Listed);
                    triggers.wake_all();
                }
                News::Interrupted => {}
                News::Forbidden(sentence) => {
                    error!(namespace = LEASE_NAMESPACE, "leases cannot be listed: {sentence}");
                    if sender.send_replace(Known::Forbidden(sentence)) == Known::Listed {
                        triggers.wake_all();
                    }
                }
            })
            .await;
        };
        (Self { client: client.clone(), leases, known, own: OwnWrites::default(), created }, run)
    }

    /// Waits until the leases are known, or known to be out of reach.
    pub(crate) async fn ready(&self) {
        // An error means that the watch is gone, and with it the program.
        let _ = self.known.clone().wait_for(|known| *known != Known::Unlisted).await;
    }

    /// The lease on `node`, or the API server's sentence by which it refuses to tell.
    pub(crate) fn on_node(&self, node: &str) -> Result<Option<Arc<Lease>>, String> {
        if let Known::Forbidden(sentence) = &*self.known.borrow() {
            return Err(sentence.clone());
        }
        let name = node_lease::name(node);
        let seen = self.leases.get(&ObjectRef::new(&name).within(LEASE_NAMESPACE));
        let seen = seen.or_else(|| lock(&self.created).get(&name).cloned());
        Ok(seen.map(|seen| self.own.freshest(seen)))
    }

    /// Takes or renews the lease on `node`.
    pub(crate) async fn write(&self, node: &str, write: &LeaseWrite) -> kube::Result<()> {
        let name = node_lease::name(node);
        lock(&self.created).remove(&name);
        let lease = match write {
            LeaseWrite::Create(lease) => {
                let lease = self.create(lease).await?;
                lock(&self.created).insert(name, Arc::new(lease.clone()));
                lease
            }
            LeaseWrite::Patch(patch) => {
                self.api().patch(&name, &patch_params(), &Patch::Merge(patch)).await?
            }
        };
        self.own.remember(lease);
        Ok(())
    }

    /// Deletes our lease, unless it has become another's. Where the right is missing it runs out by itself: a node that
    /// is given back waits for nothing.
    pub(crate) async fn drop(&self, lease: &Lease) -> kube::Result<()> {
        let preconditions = Preconditions { uid: lease.uid(), resource_version: lease.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api().delete(&lease.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!(lease = lease.name_any(), "not deleted, it will run out: {}", status.message);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Forgets what was written for nodes other than those in maintenance.
    pub(crate) fn retain(&self, in_maintenance: impl Fn(&str) -> bool) {
        let matters = |lease: &Lease| node_lease::node(&lease.name_any()).is_some_and(&in_maintenance);
        self.own.retain(matters);
        lock(&self.created).retain(|_, lease| matters(lease));
    }

    /// The namespace comes with the manifests; where someone removed it, it is made if the rights allow. Those of the
    /// manifests do not: they went with it, and a right to make namespaces cannot be narrowed to one name.
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

fn lock(created: &Created) -> MutexGuard<'_, HashMap<String, Arc<Lease>>> {
    created.lock().unwrap_or_else(PoisonError::into_inner)
}
