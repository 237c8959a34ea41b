//! A stand-in for the parts of KubeVirt that a drain meets: VMs that live-migrate when their pods are evicted.
//!
//! [`install`] adds the CRDs (`objects`), the webhooks that reject evictions of `virt-launcher` pods and request an
//! evacuation instead (`interceptor`), and the controller that creates migrations and the pods of instances
//! (`virt_controller`) and takes migrations from phase to phase (`migration`). The object `kubevirt` has the limits
//! (`settings`).
//!
//! Messages, fields, phases and their order are those that the controllers of KubeVirt (main of 22 August 2026) were seen to
//! write, since programs match on them. The subresource that cancels an evacuation is in `http`: it removes the mark and nothing else, so
//! every migration that exists still happens, unless it is deleted before its target pod is handed over.

mod interceptor;
mod migration;
mod objects;
mod settings;
mod virt_controller;

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::registry::definitions::install as define;
use crate::cluster::registry::{self, Effect};
use crate::cluster::store::Collection;
use crate::controllers::Controllers;
use crate::model::status_error::StatusError;

pub use crate::kubevirt::objects::{
    CANCEL, HOTPLUG, KUBEVIRTS, MIGRATION_FAILS, MIGRATIONS, NAMESPACE, NOT_MIGRATABLE, SERVICE,
    SUBRESOURCES, VMIS, Vmi, hotplug_pod,
};
pub(crate) use crate::kubevirt::settings::drain_taint;
pub use crate::kubevirt::settings::{BACKOFF, CONTROLLER_DOWN, UNSCHEDULABLE_TIMEOUT};

/// Installs KubeVirt. A migration takes the given time after its target pod is Ready.
///
/// The webhooks are served in this process. Withdraw the service [`SERVICE`] in [`NAMESPACE`] to make it unavailable.
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
    create(cluster, &objects::WEBHOOKS, objects::webhooks())?;
    create(cluster, &KUBEVIRTS, settings::kubevirt())?;
    cluster.catalog.aggregated.offer(SUBRESOURCES, "v1", &[CANCEL]);
    controllers.add(cluster, virt_controller::VirtController::new(migration));
    Ok(())
}

/// Turns it into a KubeVirt older than 1.7, which cannot cancel an evacuation.
pub fn withdraw_cancel(cluster: &Cluster) {
    cluster.catalog.aggregated.offer(SUBRESOURCES, "v1", &[]);
}

/// Keeps the status of an instance: what others than KubeVirt's own accounts write to it is reverted.
pub(crate) fn keep_status(
    collection: &Collection,
    current: &serde_json::Value,
    next: &mut serde_json::Value,
) {
    if *collection == VMIS {
        next["status"] = current["status"].clone();
    }
}

fn create(cluster: &Cluster, collection: &Collection, object: serde_json::Value) -> Result<(), StatusError> {
    let missing = || StatusError::not_found(&collection.group, &collection.plural, "");
    let resource = cluster.catalog.of(collection).ok_or_else(missing)?;
    let now = cluster.clock.now();
    cluster.store.write(|state| registry::create(state, &resource, object, now, Effect::Real)).map(|_| ())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timeline_tests;
