//! Writing: a decision, step by step, in the order that keeps it safe to be killed between any two steps.
//!
//! What is under way for a node that nobody has any more stops first. The finalizer comes before the lease, the lease
//! before the node is touched, and they go in the reverse order after it was given back. The status is written before
//! the first eviction, because it says how many pods there were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use nm_shared::decide::cluster_state::ClusterState;
use nm_shared::decide::decision::Decision;
use nm_shared::decide::{STATUS_WRITE_INTERVAL, lease_denied};
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::node_patch::{self, NodePatch};
use nm_shared::drain::transitions::transitions;
use nm_shared::gate::max_unavailable_queue;
use nm_shared::{Grouped, NodeMaintenance, NodeMaintenanceStatus};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::client::write_params::patch_params;
use crate::controller::context::Context;
use crate::evict::cancel_evacuation::call_off;
use crate::watch::cluster_watches::slim_node;

/// A step that failed. The steps before it are done, those after it are not; the next decision goes on from there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot ask whether the cluster is OpenShift, which decides about etcd's quorum")]
    Platform(#[source] kube::Error),
    #[error("cannot put the finalizer on NodeMaintenance {name}")]
    Adopt { name: String, source: kube::Error },
    #[error("cannot write the lease on node {name}")]
    Lease { name: String, source: kube::Error },
    #[error("cannot patch node {name}")]
    Node { name: String, source: kube::Error },
    #[error("cannot write the status of NodeMaintenance {name}")]
    Status { name: String, source: kube::Error },
    #[error("cannot take the finalizer off NodeMaintenance {name}")]
    Release { name: String, source: kube::Error },
}

impl ApplyError {
    /// Whether the world has moved on: someone else wrote, or the object is gone. A fresh look is all it takes.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self.cause(), kube::Error::Api(status) if matches!(status.code, 404 | 409))
    }

    /// The denial, if the API server denies taking the lease or patching the node.
    pub(crate) fn access_denied(&self) -> Option<AccessDenied> {
        match self {
            Self::Lease { source: kube::Error::Api(status), .. } if status.code == 403 => {
                Some(lease_denied(status.message.as_str().into()))
            }
            Self::Node { source: kube::Error::Api(status), .. } if status.code == 403 => {
                Some(status.message.as_str().into())
            }
            _ => None,
        }
    }

    fn cause(&self) -> &kube::Error {
        match self {
            Self::Platform(source)
            | Self::Adopt { source, .. }
            | Self::Lease { source, .. }
            | Self::Node { source, .. }
            | Self::Status { source, .. }
            | Self::Release { source, .. } => source,
        }
    }
}

/// A write that takes longer than this is given up and tried anew.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the record of a maintenance that is over is tried to be removed while others write to the node.
const FORGETTING: usize = 5;

/// Carries out `decision`, which was made at `now`.
pub(crate) async fn apply(
    context: &Context,
    maintenance: &Grouped,
    observed: &ClusterState,
    decision: Decision,
    now: Timestamp,
) -> Result<(), ApplyError> {
    let name = maintenance.name_any();
    let node = &maintenance.spec.node_name;
    let uid = maintenance.uid().unwrap_or_default();
    if decision.node_released {
        context.leave(|other| other != node);
    }
    if let Some(wanted) = &decision.evictable {
        context.evictor.take_back(node, wanted);
    }
    context.evictor.take_back_outdated(maintenance, decision.at_work);
    if let Some(patch) = &decision.add_finalizer {
        let adopted = patch_metadata(context, maintenance, patch).await;
        let adopted = adopted.map_err(|source| ApplyError::Adopt { name: name.clone(), source })?;
        context.own_maintenances.remember(adopted);
    }
    if let Some(write) = &decision.lease {
        let taken = bounded(context.leases.write(node, write)).await;
        taken.map_err(|source| ApplyError::Lease { name: node.clone(), source })?;
    }
    let mut current_node = observed.node.clone();
    if let Some(patch) = &decision.node {
        let patched = patch_node(context, node, patch).await;
        current_node = Some(patched.map_err(|source| ApplyError::Node { name: node.clone(), source })?);
    }
    if let Some(count) = decision.recordon_count {
        context.memories.update(&uid, |memory| {
            memory.recordons = count;
            memory.recordoned_at = Some(Instant::now());
        });
        // Who came meanwhile came to a node that took pods.
        context.evictor.ledger().forget_returns(node);
    }
    if let Some(status) = &decision.status {
        let sent = Timestamp::now();
        let written = write_status(context, maintenance, status).await;
        let written = written.map_err(|source| ApplyError::Status { name: name.clone(), source })?;
        // From one request to the next, but an API server that is slow to answer has half of that to itself.
        let answered = Timestamp::now().checked_sub(STATUS_WRITE_INTERVAL / 2).unwrap_or(sent);
        context.memories.update(&uid, |memory| memory.status_written = Some(sent.max(answered)));
        tell(context, maintenance, status, now);
        context.maintenances.remember(status, &written);
        context.own_maintenances.remember(written);
        if max_unavailable_queue::frees_a_place(maintenance.status.as_ref(), status) {
            context.triggers.wake_pending();
        }
    }
    if let Some(wanted) = decision.node_conditions {
        context.conditions.want(node, wanted);
    }
    context.evictor.hold(node, &decision.blocked_by_budget, observed.steady_now);
    for eviction in decision.evictions {
        context.evictor.submit(maintenance, eviction);
    }
    if decision.cancel_evacuation {
        call_off(&context.client, node).await;
    }
    if let Some(lease) = &decision.release_lease {
        let dropped = bounded(context.leases.drop(lease)).await;
        dropped.map_err(|source| ApplyError::Lease { name: node.clone(), source })?;
    }
    if let Some(patch) = &decision.remove_finalizer {
        let released = patch_metadata(context, maintenance, patch).await;
        let released = released.map_err(|source| ApplyError::Release { name, source })?;
        context.memories.update(&uid, |memory| memory.released = true);
        context.own_maintenances.remember(released);
        // Whoever inherits the node may begin.
        context.triggers.wake_node(node);
        if let Some(current) = current_node {
            forget_record(context, current, &uid).await;
        }
    }
    for announcement in &decision.events {
        context.announcer.publish(maintenance, observed.node.as_deref(), announcement).await;
    }
    Ok(())
}

/// Patches the node, and returns it as it is now.
async fn patch_node(context: &Context, node: &str, patch: &NodePatch) -> kube::Result<Arc<Node>> {
    let patched = bounded(context.node_api().patch(node, &patch_params(), &Patch::Merge(&patch.0))).await;
    let mut patched = patched?;
    slim_node(&mut patched);
    context.own_nodes.remember(patched.clone());
    Ok(Arc::new(patched))
}

/// Removes the record of a maintenance that is over, if one is left. Should that fail, it counts as a leftover.
async fn forget_record(context: &Context, mut node: Arc<Node>, uid: &str) {
    let name = node.name_any();
    for _ in 0..FORGETTING {
        let Some(patch) = node_patch::remove_record(&node, uid) else { return };
        match patch_node(context, &name, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return debug!(node = name, %error, "the record stays on the node"),
            Ok(_) => return,
        }
        // Others write to nodes too: kubelets, for one.
        match bounded(context.node_api().get(&name)).await {
            Ok(current) => node = Arc::new(current),
            Err(error) => return debug!(node = name, %error, "the record stays on the node"),
        }
    }
}

async fn patch_metadata(context: &Context, maintenance: &Grouped, patch: &Value) -> kube::Result<Grouped> {
    let api = context.maintenance_api(maintenance.group);
    bounded(api.patch(&maintenance.name_any(), &patch_params(), &Patch::Merge(patch))).await
}

/// Logs and measures what the new status tells.
fn tell(context: &Context, maintenance: &NodeMaintenance, status: &NodeMaintenanceStatus, now: Timestamp) {
    let unknown = NodeMaintenanceStatus::default();
    let changed = transitions(maintenance.status.as_ref().unwrap_or(&unknown), status, now);
    let (name, node) = (maintenance.name_any(), &maintenance.spec.node_name);
    if changed.waits {
        info!(maintenance = name, node, why = status.last_error, "waiting");
    }
    for pod in &changed.blocked {
        let (reason, why, pod) = (pod.reason.as_str(), &pod.message, pod.reference().to_string());
        warn!(maintenance = name, node, pod, reason, why, "pod is blocked");
    }
    for pod in &changed.unblocked {
        info!(maintenance = name, node, pod = pod.reference().to_string(), "pod is blocked no more");
    }
    context.metrics.reached(&changed, now);
}

/// The uid makes sure that the status of an object is not written to another of the same name.
async fn write_status(
    context: &Context,
    maintenance: &Grouped,
    status: &NodeMaintenanceStatus,
) -> kube::Result<Grouped> {
    let group = maintenance.group;
    let patch = json!({
        "apiVersion": Grouped::api_version(&group), "kind": Grouped::kind(&group),
        "metadata": {"uid": maintenance.metadata.uid}, "status": status,
    });
    let api = context.maintenance_api(group);
    bounded(api.patch_status(&maintenance.name_any(), &patch_params(), &Patch::Merge(&patch))).await
}

async fn bounded<T>(write: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(PATIENCE, write).await {
        Ok(answered) => answered,
        Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
    }
}
