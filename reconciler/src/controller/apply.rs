//! Applying a decision: its steps, one after the other, until one fails. [`nm_shared::decide::steps`] has their order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::core::Status;
use kube::{Resource, ResourceExt};
use nm_shared::api::latency_budget::STATUS_WRITE_INTERVAL;
use nm_shared::cluster::node;
use nm_shared::cluster::refusal::Refusal;
use nm_shared::decide::cluster_state::ClusterState;
use nm_shared::decide::decision::Decision;
use nm_shared::decide::failed_write::{FailedWrite, WriteFailure, lease_denied};
use nm_shared::decide::status_events::deleted_after_refusal;
use nm_shared::decide::steps::DecisionStep;
use nm_shared::drain::node_patch::{self, NodePatch, is_cordoned};
use nm_shared::drain::transitions::transitions;
use nm_shared::gate::ownership::Adoption;
use nm_shared::{GroupedMaintenance, NodeMaintenance, NodeMaintenanceStatus};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::cache::compact_node::is_alike;
use crate::cache::projected_node::{ProjectedNode, has_same_cordon};
use crate::client::throttle::Flow;
use crate::client::{patch_params, with_timeout};
use crate::controller::context::Context;
use crate::controller::observe::has_heir;
use crate::evict::end_evacuations::end_evacuations;

/// The step that failed. The steps before it are done and those after it are not; the next decision continues from there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot discover whether the cluster is OpenShift, which decides what guards etcd's quorum")]
    Discovery(#[source] kube::Error),
    #[error("cannot verify {kind} {name}")]
    Verify { kind: &'static str, name: String, source: kube::Error },
    #[error("{kind} {name} is not as it was observed")]
    Outdated { kind: &'static str, name: String },
    #[error("cannot add the finalizer to NodeMaintenance {name}")]
    Adopt { name: String, source: kube::Error },
    #[error("cannot write the lease on node {name}")]
    Lease { name: String, source: kube::Error },
    #[error("cannot patch node {name}")]
    Node { name: String, source: kube::Error },
    #[error("cannot write the status of NodeMaintenance {name}")]
    Status { name: String, source: kube::Error },
    #[error("cannot remove the finalizer from NodeMaintenance {name}")]
    Release { name: String, source: kube::Error },
}

impl ApplyError {
    /// Whether someone else wrote the object first, or it is gone: another reconcile resolves this, once the watch has caught
    /// up.
    pub(crate) fn is_conflict(&self) -> bool {
        self.cause()
            .is_none_or(|cause| matches!(cause, kube::Error::Api(status) if matches!(status.code, 404 | 409)))
    }

    /// What the maintenance shows of it; none if it is a conflict.
    pub(crate) fn failed_write(&self) -> Option<FailedWrite> {
        let cause = match (self, self.cause()?) {
            (Self::Lease { .. }, kube::Error::Api(status)) if is_without_namespace(status) => {
                WriteFailure::Refused(status.message.clone())
            }
            (_, kube::Error::Api(status)) => WriteFailure::of_status(status)?,
            (_, unanswered) => WriteFailure::Failed(unanswered.to_string()),
        };
        let cause = match cause {
            WriteFailure::Denied(denied) if matches!(self, Self::Lease { .. }) => {
                WriteFailure::Denied(lease_denied(denied))
            }
            cause => cause,
        };
        Some(FailedWrite { attempt: self.to_string(), cause })
    }

    fn cause(&self) -> Option<&kube::Error> {
        match self {
            Self::Outdated { .. } => None,
            Self::Discovery(source)
            | Self::Verify { source, .. }
            | Self::Adopt { source, .. }
            | Self::Lease { source, .. }
            | Self::Node { source, .. }
            | Self::Status { source, .. }
            | Self::Release { source, .. } => Some(source),
        }
    }
}

/// Whether an object cannot be created because its namespace does not exist.
fn is_without_namespace(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

/// How long to wait for the answer to a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the removal of an undo record is attempted while others write to the node.
const MAX_RECORD_REMOVALS: usize = 5;

/// Applies `decision`, which was made at `now`.
pub(crate) async fn apply(
    context: &Context,
    maintenance: &GroupedMaintenance,
    observed: &ClusterState,
    decision: Decision,
    now: Timestamp,
) -> Result<(), ApplyError> {
    let version = maintenance.resource_version();
    let mut run = DecisionRun { context, maintenance, observed, now, version, node: observed.node.clone() };
    for step in decision.into_steps() {
        run.perform(step).await?;
    }
    Ok(())
}

/// A decision that is being applied.
struct DecisionRun<'a> {
    context: &'a Context,
    maintenance: &'a GroupedMaintenance,
    observed: &'a ClusterState,
    now: Timestamp,
    /// The resourceVersion of the maintenance, as the steps so far left it.
    version: Option<String>,
    /// The node as the steps so far left it.
    node: Option<Arc<Node>>,
}

impl DecisionRun<'_> {
    async fn perform(&mut self, step: DecisionStep) -> Result<(), ApplyError> {
        let Self { context, maintenance, observed, now, .. } = *self;
        let node = &maintenance.spec.node_name;
        let (name, uid) = (maintenance.name_any(), maintenance.uid().unwrap_or_default());
        match step {
            DecisionStep::VerifyMaintenance => verify_maintenance(context, maintenance).await?,
            DecisionStep::VerifyNode => {
                verify_node(context, node, observed.node.as_deref(), is_alike).await?;
            }
            DecisionStep::VerifyReturned => {
                verify_node(context, node, self.node.as_deref(), has_same_cordon).await?;
            }
            DecisionStep::LeaveNode => context.state.lock().leave_node(node),
            DecisionStep::WithdrawUnwanted(wanted) => {
                context.state.lock().evictions.withdraw_unwanted(node, &wanted);
            }
            DecisionStep::WithdrawRestarts(wanted) => {
                context.state.lock().workloads.withdraw_restarts(node, &wanted);
            }
            DecisionStep::WithdrawOutdated { has_node } => {
                context.state.lock().withdraw_outdated(maintenance, has_node);
            }
            DecisionStep::AddFinalizer(adoption) => {
                let adopted = adopt(context, maintenance, &adoption).await;
                let adopted = adopted.map_err(|source| ApplyError::Adopt { name, source })?;
                self.version = adopted.resource_version();
                context
                    .state
                    .lock()
                    .maintenances
                    .memory(&uid, |state| _ = state.last_write.remember(adopted));
            }
            DecisionStep::WriteLease(write) => {
                let taken = with_timeout(REQUEST_TIMEOUT, context.leases.write(node, &write)).await;
                taken.map_err(|source| ApplyError::Lease { name: node.clone(), source })?;
            }
            DecisionStep::PatchNode(patch) => {
                let patched = patch_node(context, node, &patch).await;
                let patched = patched.map_err(|source| ApplyError::Node { name: node.clone(), source })?;
                // A node that is returned is left, and nothing counts there any more.
                if is_cordoned(&patched, maintenance.group) {
                    context.state.lock().evictions.begin_returns(node);
                }
                self.node = Some(patched);
            }
            DecisionStep::RecordReturn => {
                context.state.lock().maintenances.memory(&uid, |known| known.has_returned = true);
            }
            DecisionStep::RecordRecordon(count) => {
                let mut state = context.state.lock();
                state.maintenances.memory(&uid, |known| known.record_recordon(count));
                state.evictions.forget_returns(node);
            }
            DecisionStep::WriteStatus(status) => {
                let written = apply_status(context, maintenance, self.version.as_deref(), &status, now).await;
                written.map_err(|source| ApplyError::Status { name, source })?;
                let before = maintenance.status.as_ref().map_or(0, deleted_after_refusal);
                if deleted_after_refusal(&status) > before || status.departed_pods.is_none() {
                    context.state.lock().evictions.forget_deleted(node, observed.deleted.len());
                }
            }
            DecisionStep::PublishConditions(wanted) => context.conditions.publish(node, wanted),
            DecisionStep::Defer(pods) => context.state.lock().defer(node, &pods, observed.steady_now),
            DecisionStep::Evict(evictions) => context.evictor.submit(maintenance, evictions),
            DecisionStep::WatchWorkloads(wanted) => context.workloads.watch(node, &wanted),
            DecisionStep::RestartDeployment(restart) => {
                let now = context.state.lock().evictions.now();
                context.workloads.restart(node, restart, now);
            }
            DecisionStep::EndEvacuations => {
                // A pause of all requests does not use up the time that KubeVirt has.
                context.throttle.ended(Flow::Others).await;
                for event in end_evacuations(&context.client, node).await {
                    context.events.publish(maintenance, observed.node.as_deref(), &event);
                }
            }
            DecisionStep::DeleteLease(lease) => {
                let is_inherited = || has_heir(&mut context.state.lock(), maintenance);
                let released = context.leases.release(node, lease, is_inherited);
                let dropped = with_timeout(REQUEST_TIMEOUT, released).await;
                let gone = dropped.map_err(|source| ApplyError::Lease { name: node.clone(), source })?;
                if let Some(lease) = gone {
                    context.state.lock().nodes.lease_deleted(&lease);
                }
            }
            DecisionStep::RemoveFinalizer(patch) => {
                let released = release(context, maintenance, &patch).await;
                released.map_err(|source| ApplyError::Release { name, source })?;
            }
            DecisionStep::RemoveRecord => {
                if let Some(node) = self.node.clone() {
                    remove_undo_record(context, node, &uid).await;
                }
            }
            DecisionStep::PublishEvent(event) => {
                context.events.publish(maintenance, observed.node.as_deref(), &event);
            }
        }
        Ok(())
    }
}

/// Verifies that the maintenance is as it was observed. A GET without a resourceVersion is answered by a quorum of etcd.
async fn verify_maintenance(context: &Context, maintenance: &GroupedMaintenance) -> Result<(), ApplyError> {
    let (kind, name) = ("NodeMaintenance", maintenance.name_any());
    let api = context.maintenance_api(maintenance.group);
    match with_timeout(REQUEST_TIMEOUT, api.get_metadata(&name)).await {
        Ok(current)
            if current.uid() == maintenance.uid()
                && current.resource_version() == maintenance.resource_version() =>
        {
            Ok(())
        }
        Ok(_) => Err(ApplyError::Outdated { kind, name }),
        Err(source) => Err(ApplyError::Verify { kind, name, source }),
    }
}

/// Verifies that the node, or its absence, is as it is known. Changes that no decision depends on do not count.
async fn verify_node(
    context: &Context,
    name: &str,
    known: Option<&Node>,
    is_alike: fn(&Node, &Node) -> bool,
) -> Result<(), ApplyError> {
    // There is no node with an invalid name, which would change the request's path.
    if !node::is_valid_name(name) {
        return Ok(());
    }
    let (kind, name) = ("node", name.to_owned());
    let current = with_timeout(REQUEST_TIMEOUT, context.node_api().get_opt(&name)).await;
    let current = match current {
        Ok(current) => current.map(|ProjectedNode(node)| node),
        Err(source) => return Err(ApplyError::Verify { kind, name, source }),
    };
    let is_current = match (known, &current) {
        (Some(known), Some(current)) => is_alike(known, current),
        (None, None) => true,
        _ => false,
    };
    if is_current { Ok(()) } else { Err(ApplyError::Outdated { kind, name }) }
}

/// Writes the status and reports what has changed.
async fn apply_status(
    context: &Context,
    maintenance: &GroupedMaintenance,
    version: Option<&str>,
    status: &NodeMaintenanceStatus,
    now: Timestamp,
) -> kube::Result<()> {
    let sent = context.clock.now();
    let written = write_status(context, maintenance, version, status).await?;
    // The interval counts from the request, but at least half of it has to follow the answer of a slow API server.
    let answered = context.clock.now().checked_sub(STATUS_WRITE_INTERVAL / 2).unwrap_or(sent);
    let uid = maintenance.uid().unwrap_or_default();
    report_transitions(context, maintenance, status, now);
    let mut state = context.state.lock();
    state.maintenances.memory(&uid, |known| known.status_written = Some(sent.max(answered)));
    state.remember_status(status, written);
    Ok(())
}

/// Adds the finalizer and the owner reference; only the finalizer where the API server forbids the owner reference.
async fn adopt(
    context: &Context,
    maintenance: &GroupedMaintenance,
    adoption: &Adoption,
) -> kube::Result<GroupedMaintenance> {
    let Some(without_owner) = &adoption.without_owner else {
        return patch_metadata(context, maintenance, &adoption.patch).await;
    };
    if !context.owners_denied.load(Ordering::Relaxed) {
        match patch_metadata(context, maintenance, &adoption.patch).await {
            Err(kube::Error::Api(status)) if Refusal::from(&*status) == Refusal::OwnerReference => {}
            answer => return answer,
        }
    }
    let adopted = patch_metadata(context, maintenance, without_owner).await?;
    if !context.owners_denied.swap(true, Ordering::Relaxed) {
        warn!(
            "the API server forbids owner references on maintenances (OwnerReferencesPermissionEnforcement): a maintenance \
             is not deleted with its node"
        );
    }
    Ok(adopted)
}

/// Removes the finalizer and lets the next maintenance of the node begin.
async fn release(context: &Context, maintenance: &GroupedMaintenance, patch: &Value) -> kube::Result<()> {
    let released = patch_metadata(context, maintenance, patch).await?;
    let uid = maintenance.uid().unwrap_or_default();
    let mut state = context.state.lock();
    state.maintenances.memory(&uid, |known| {
        known.released = true;
        _ = known.last_write.remember(released);
    });
    state.trigger_node(&maintenance.spec.node_name);
    Ok(())
}

/// Patches the node and returns it as the API server answered it.
async fn patch_node(context: &Context, node: &str, patch: &NodePatch) -> kube::Result<Arc<Node>> {
    let patched = with_timeout(
        REQUEST_TIMEOUT,
        context.node_api().patch(node, &patch_params(), &Patch::Merge(&patch.0)),
    )
    .await;
    let ProjectedNode(patched) = patched?;
    context.state.lock().remember_node(node, patched.clone());
    Ok(Arc::new(patched))
}

/// Removes the undo record of a maintenance that is over, if there is one. If this fails, the record is an orphan.
async fn remove_undo_record(context: &Context, mut node: Arc<Node>, uid: &str) {
    let name = node.name_any();
    for _ in 0..MAX_RECORD_REMOVALS {
        let Some(patch) = node_patch::remove_record(&node, uid) else { return };
        match patch_node(context, &name, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return debug!(node = name, %error, "the undo record stays on the node"),
            Ok(_) => return,
        }
        // Kubelets and others write to nodes too.
        match with_timeout(REQUEST_TIMEOUT, context.node_api().get(&name)).await {
            Ok(ProjectedNode(current)) => node = Arc::new(current),
            Err(error) => return debug!(node = name, %error, "the undo record stays on the node"),
        }
    }
}

async fn patch_metadata(
    context: &Context,
    maintenance: &GroupedMaintenance,
    patch: &Value,
) -> kube::Result<GroupedMaintenance> {
    let api = context.maintenance_api(maintenance.group);
    with_timeout(REQUEST_TIMEOUT, api.patch(&maintenance.name_any(), &patch_params(), &Patch::Merge(patch)))
        .await
}

/// Logs and measures how a new status differs from the old one.
fn report_transitions(
    context: &Context,
    maintenance: &NodeMaintenance,
    status: &NodeMaintenanceStatus,
    now: Timestamp,
) {
    let unknown = NodeMaintenanceStatus::default();
    let transitions = transitions(maintenance.status.as_ref().unwrap_or(&unknown), status, now);
    let (name, node) = (maintenance.name_any(), &maintenance.spec.node_name);
    if transitions.waits {
        info!(maintenance = name, node, why = status.last_error, "waiting");
    }
    for pod in &transitions.blocked {
        let (reason, why, pod) = (pod.reason.as_str(), &pod.message, pod.reference().to_string());
        warn!(maintenance = name, node, pod, reason, why, "pod is blocked");
    }
    for pod in &transitions.unblocked {
        info!(maintenance = name, node, pod = pod.reference().to_string(), "pod is no longer blocked");
    }
    context.metrics.reached(&transitions, now);
}

/// The resourceVersion keeps the status from replacing a newer one: a former leader may have sent it, and what a status
/// records, such as a restart, would be lost. It also keeps it from another object of the same name.
async fn write_status(
    context: &Context,
    maintenance: &GroupedMaintenance,
    version: Option<&str>,
    status: &NodeMaintenanceStatus,
) -> kube::Result<GroupedMaintenance> {
    let group = maintenance.group;
    let patch = json!({
        "apiVersion": GroupedMaintenance::api_version(&group), "kind": GroupedMaintenance::kind(&group),
        "metadata": {"resourceVersion": version}, "status": status,
    });
    let api = context.maintenance_api(group);
    with_timeout(
        REQUEST_TIMEOUT,
        api.patch_status(&maintenance.name_any(), &patch_params(), &Patch::Merge(&patch)),
    )
    .await
}
