//! A stand-in for KubeVirt, as far as a drain meets it: virtual machines that live-migrate instead of being evicted.
//!
//! [`install`] brings the definitions (`objects`), the webhook that catches evictions of `virt-launcher` pods and asks
//! for an evacuation instead (`interceptor`), and what carries evacuations out (`virt_controller`). A
//! `VirtualMachineInstance` that is written, by [`Vmi`] or by kubectl, gets its pod by itself.
//!
//! The wording and the fields are those of KubeVirt 1.7, which programs match on. Its subresource by which an evacuation
//! is called off is in `http`; what is under way goes on to its end, as there.

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

/// Brings KubeVirt to a cluster. A migration takes so long from the moment when its target pod is Ready.
///
/// The webhook is answered in this process; withdraw the service [`SERVICE`] in [`NAMESPACE`] to have it down.
///
/// # Errors
/// What the API server would answer, as when it is there already.
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

/// Makes it a KubeVirt before 1.7, which cannot be told to call an evacuation off.
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
