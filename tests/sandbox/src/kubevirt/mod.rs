//! A stand-in for the parts of KubeVirt that a drain meets: VMs that live-migrate when their pods are evicted.
//!
//! [`install`] adds the CRDs (`objects`), the webhook that rejects evictions of `virt-launcher` pods and requests an
//! evacuation instead (`interceptor`), and the controller that migrates VMs (`virt_controller`). The controller creates
//! the pod of every `VirtualMachineInstance`.
//!
//! Messages and fields are those of KubeVirt 1.7, since programs match on them. The subresource that cancels an evacuation
//! is in `http`; as in KubeVirt, a migration in progress still completes.

mod interceptor;
mod objects;
mod virt_controller;

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::registry;
use crate::cluster::registry::Effect;
use crate::cluster::registry::definitions::install as define;
use crate::cluster::store::Collection;
use crate::controllers::Controllers;
use crate::model::status_error::StatusError;

pub use crate::kubevirt::objects::{
    CANCEL, HOTPLUG, MIGRATIONS, NAMESPACE, NOT_MIGRATABLE, SERVICE, SUBRESOURCES, VMIS, Vmi, hotplug_pod,
};

/// Installs KubeVirt. A migration takes the given time after its target pod is Ready.
///
/// The webhook is served in this process. Withdraw the service [`SERVICE`] in [`NAMESPACE`] to make it unavailable.
///
/// # Errors
/// The error of the API server, as when it is already installed.
pub fn install(
    cluster: &Arc<Cluster>,
    controllers: &mut Controllers,
    migration: Duration,
) -> Result<(), StatusError> {
    for definition in objects::definitions() {
        define(cluster, definition)?;
    }
    create(cluster, &NAMESPACES, serde_json::json!({"metadata": {"name": NAMESPACE}}))?;
    let interceptor = interceptor::Interceptor::new(Arc::downgrade(cluster));
    cluster.admission.services.answer(NAMESPACE, SERVICE, Arc::new(interceptor));
    create(cluster, &objects::WEBHOOKS, objects::webhook())?;
    cluster.catalog.aggregated.offer(SUBRESOURCES, "v1", &[CANCEL]);
    controllers.add(cluster, virt_controller::VirtController::new(migration));
    Ok(())
}

/// Turns it into a KubeVirt older than 1.7, which cannot cancel an evacuation.
pub fn withdraw_cancel(cluster: &Cluster) {
    cluster.catalog.aggregated.offer(SUBRESOURCES, "v1", &[]);
}

fn create(cluster: &Cluster, collection: &Collection, object: serde_json::Value) -> Result<(), StatusError> {
    let missing = || StatusError::not_found(&collection.group, &collection.plural, "");
    let resource = cluster.catalog.of(collection).ok_or_else(missing)?;
    let now = cluster.clock.now();
    cluster.store.write(|state| registry::create(state, &resource, object, now, Effect::Real)).map(|_| ())
}

#[cfg(test)]
mod tests;
