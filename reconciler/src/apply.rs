//! Writing: a decision, step by step, in the order that keeps it safe to be killed between any two steps.
//!
//! The finalizer comes before the node is touched, and goes after it was given back. The status is written before the
//! first eviction, because it says how many pods there were.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use nm_shared::decision::Decision;
use nm_shared::names::FIELD_MANAGER;
use nm_shared::observed::Observed;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus};
use serde_json::{Value, json};

use crate::context::Context;

/// A step that failed. The steps before it are done, those after it are not; the next decision goes on from there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot put the finalizer on NodeMaintenance {name}")]
    Adopt { name: String, source: kube::Error },
    #[error("cannot patch node {name}")]
    Node { name: String, source: kube::Error },
    #[error("cannot write the status of NodeMaintenance {name}")]
    Status { name: String, source: kube::Error },
    #[error("cannot take the finalizer off NodeMaintenance {name}")]
    Release { name: String, source: kube::Error },
}

impl ApplyError {
    /// Whether someone else wrote in between, so that a fresh look is all it takes.
    pub(crate) fn is_conflict(&self) -> bool {
        let (Self::Adopt { source, .. }
        | Self::Node { source, .. }
        | Self::Status { source, .. }
        | Self::Release { source, .. }) = self;
        matches!(source, kube::Error::Api(status) if status.code == 409)
    }
}

/// Carries out `decision`.
pub(crate) async fn apply(
    context: &Context,
    maintenance: &NodeMaintenance,
    observed: &Observed,
    decision: Decision,
) -> Result<(), ApplyError> {
    let name = maintenance.name_any();
    let node = &maintenance.spec.node_name;
    if decision.release.is_some() && observed.rivals.is_empty() {
        // Before anything else: a node that is given back loses no further pod.
        context.evictor.stop(node);
        context.pods.stop(node);
    }
    if let Some(patch) = &decision.adopt {
        let adopted = patch_metadata(context, &name, patch).await;
        let adopted = adopted.map_err(|source| ApplyError::Adopt { name: name.clone(), source })?;
        context.own_maintenances.remember(adopted);
    }
    if let Some(patch) = &decision.node {
        let patched = context.node_api().patch(node, &patch_params(), &Patch::Merge(&patch.0)).await;
        let patched = patched.map_err(|source| ApplyError::Node { name: node.clone(), source })?;
        context.own_nodes.remember(patched);
    }
    if let Some(status) = &decision.status {
        let written = write_status(context, &name, status).await;
        let written = written.map_err(|source| ApplyError::Status { name: name.clone(), source })?;
        let uid = written.uid().unwrap_or_default();
        context.memories.update(&uid, |memory| memory.status_written = Some(Timestamp::now()));
        context.own_maintenances.remember(written);
    }
    let reference = ObjectRef::from_obj(maintenance);
    for eviction in decision.evictions {
        context.evictor.submit(&reference, node, eviction);
    }
    for announcement in &decision.events {
        context.announcer.publish(maintenance, observed.node.as_deref(), announcement).await;
    }
    if let Some(patch) = &decision.release {
        match patch_metadata(context, &name, patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => return Err(ApplyError::Release { name, source }),
            Ok(_) => {}
        }
        let uid = maintenance.uid().unwrap_or_default();
        context.memories.forget(&uid);
        context.own_maintenances.forget(&uid);
    }
    Ok(())
}

async fn patch_metadata(context: &Context, name: &str, patch: &Value) -> kube::Result<NodeMaintenance> {
    context.maintenance_api().patch(name, &patch_params(), &Patch::Merge(patch)).await
}

async fn write_status(
    context: &Context,
    name: &str,
    status: &NodeMaintenanceStatus,
) -> kube::Result<NodeMaintenance> {
    let patch = json!({
        "apiVersion": NodeMaintenance::api_version(&()), "kind": NodeMaintenance::kind(&()), "status": status,
    });
    context.maintenance_api().patch_status(name, &patch_params(), &Patch::Merge(&patch)).await
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
