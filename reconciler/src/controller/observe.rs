//! Observing: everything that a decision about one maintenance needs, from the watches. Nothing here waits.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use nm_shared::cluster::node;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::cluster::volume_attachment::NodeVolumes;
use nm_shared::decide::cluster_state::{ClusterState, StartBatch};
use nm_shared::decide::drain_plan::needs_volumes;
use nm_shared::decide::needs_pods;
use nm_shared::drain::budget_allowance::Budgets;
use nm_shared::drain::evacuation::{Evacuations, KubevirtView};
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::drain::returning::Returning;
use nm_shared::gate::etcd::Etcd;
use nm_shared::gate::etcd_guard::EtcdGuard;
use nm_shared::gate::ownership;
use nm_shared::gate::quorum;
use nm_shared::gate::{Gate, overrides_quorum};
use nm_shared::{GroupedMaintenance, NodeMaintenance, NodeMaintenanceSpec, Phase, Suspension};

use crate::cache::gate_index::SoleDecision;
use crate::controller::context::Context;
use crate::evict::eviction_state::EvictionState;

/// Whether `maintenance` is about to take a node that may run etcd, which the guard of etcd may forbid.
pub(crate) fn may_take_etcd_member(context: &Context, maintenance: &GroupedMaintenance) -> bool {
    !context.has_external_etcd
        && maintenance.metadata.deletion_timestamp.is_none()
        && !maintenance.spec.suspend
        && !ownership::has_begun(maintenance)
        && node(context, &maintenance.spec.node_name).is_some_and(|node| node::may_run_etcd(&node))
}

/// The cluster as far as it concerns `maintenance`. Facts that are not known yet are none. So are those about pods, if the
/// maintenance waits. `is_openshift` matters only to a maintenance that takes a node that may run etcd: the result is
/// none until the pods of that node are listed.
pub(crate) fn observe(
    _: &SoleDecision<'_>,
    context: &Context,
    maintenance: &GroupedMaintenance,
    is_openshift: bool,
    now: Timestamp,
) -> Option<ClusterState> {
    let etcd = if is_openshift {
        Etcd::Guarded(etcd_guard(context, &maintenance.spec.node_name)?)
    } else if context.has_external_etcd {
        Etcd::External
    } else {
        Etcd::OnNodes
    };
    let observed = observe_gate(context, maintenance, &etcd);
    Some(if needs_pods(maintenance, &observed, now) {
        observe_pods(context, maintenance, observed, now)
    } else {
        observed
    })
}

/// What decides whether the maintenance may work on its node.
fn observe_gate(context: &Context, maintenance: &GroupedMaintenance, etcd: &Etcd) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let node = node(context, name);
    let lease = context.leases.on_node(name);
    let uid = ownership::uid(maintenance);
    context.state.note_suspension(uid, maintenance.spec.suspend);
    let (recordons, status_written, prunes_details) = context
        .state
        .maintenance(uid, |state| (state.recordons(), state.status_written, state.prunes_details()));
    let others = others(context, maintenance);
    ClusterState {
        group: maintenance.group,
        prunes_details,
        daemon_sets: context.cluster.daemon_sets(),
        gate: gate(context, maintenance, node.as_deref(), etcd),
        leases_forbidden: lease.as_ref().err().map(|refusal| refusal.to_string().as_str().into()),
        lease: lease.ok().flatten(),
        node_conditions: context.node_conditions,
        node_conditions_forbidden: context.conditions.refusal(),
        own_pod: context.own_pod.clone(),
        competing: competing(&others),
        other_uids: others.iter().map(|other| ownership::uid(other).to_owned()).collect(),
        other_was_planned: others.iter().any(|other| ownership::was_planned(other)),
        recordons,
        status_written,
        steady_now: context.evictor.now(),
        node,
        ..ClusterState::default()
    }
}

/// Adds the pods on the node, and what their evictions depend on. The first call starts the watch on the pods.
fn observe_pods(
    context: &Context,
    maintenance: &GroupedMaintenance,
    observed: ClusterState,
    now: Timestamp,
) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let pods = context.watches.pods(name);
    let pods_forbidden = pods.as_ref().err().map(|refusal| refusal.to_string().as_str().into());
    let pods = pods.unwrap_or_default();

    let mut evictions = context.evictor.state();
    let mut returning = Returning::default();
    if let Some(pods) = &pods {
        // Pods that return count only once the node is cordoned.
        if observed.node.as_deref().is_some_and(|node| is_cordoned(node, maintenance.group)) {
            returning = evictions.returning(name, pods);
        }
        let uids: HashSet<&str> = pods.iter().map(|pod| pod::uid(pod)).collect();
        evictions.forget_gone(name, |uid| uids.contains(uid));
    }
    let attempts = evictions.attempts(name);
    let budgets = budgets(context, pods.as_deref().unwrap_or_default(), &mut evictions);
    drop(evictions);
    let observed = ClusterState {
        pods_forbidden,
        budgets,
        evacuations: evacuations(context, maintenance, pods.as_deref().unwrap_or_default(), now),
        returning,
        workloads: context.workloads.states(name),
        restart_refusals: context.workloads.refusals(),
        batch: start_batch(context, maintenance),
        steady_now: context.evictor.now(),
        attempts,
        pods,
        ..observed
    };
    let (volumes, volumes_forbidden) =
        volumes(context, maintenance, needs_volumes(maintenance, &observed, now));
    ClusterState { volumes, volumes_forbidden, ..observed }
}

/// The guard of etcd, which may be among the pods on the node, and whose readiness decides. None until they are listed,
/// which triggers the next reconcile.
fn etcd_guard(context: &Context, node: &str) -> Option<EtcdGuard> {
    let pods = match context.watches.pods(node) {
        Ok(pods) => pods?,
        Err(_) => Vec::new(),
    };
    let budgets = context.cluster.budgets.objects.state();
    Some(EtcdGuard::among(budgets.iter().map(AsRef::as_ref), pods.iter().map(AsRef::as_ref)))
}

/// The node as the watch or the answer to its last patch shows it.
pub(crate) fn node(context: &Context, name: &str) -> Option<Arc<Node>> {
    let received = context.cluster.nodes.get(&ObjectRef::new(name))?;
    Some(context.state.latest_node(received))
}

/// The budgets of the namespaces of `pods`, less the evictions that they do not show yet.
fn budgets(context: &Context, pods: &[Arc<DrainPod>], evictions: &mut EvictionState) -> Budgets {
    let namespaces: HashSet<&str> = pods.iter().map(|pod| pod::names(pod).namespace).collect();
    let budgets =
        namespaces.into_iter().flat_map(|namespace| context.cluster.budgets.in_namespace(namespace));
    budgets.map(|budget| evictions.left(&budget)).collect()
}

/// The volumes attached to the node, if the maintenance waits for them and they are `needed` now.
fn volumes(
    context: &Context,
    maintenance: &GroupedMaintenance,
    needed: bool,
) -> (NodeVolumes, Option<AccessDenied>) {
    let NodeMaintenanceSpec { node_name, drain, .. } = &maintenance.spec;
    let is_deleted = maintenance.metadata.deletion_timestamp.is_some();
    if !is_deleted && drain.as_ref().is_some_and(|drain| drain.wait_for_volume_detach.is_some()) {
        if needed {
            return context.volumes.on_node(node_name);
        }
        return (NodeVolumes::default(), context.volumes.prepare(node_name));
    }
    context.volumes.leave_node(node_name);
    Default::default()
}

fn evacuations(
    context: &Context,
    maintenance: &NodeMaintenance,
    pods: &[Arc<DrainPod>],
    now: Timestamp,
) -> Evacuations {
    let node = &maintenance.spec.node_name;
    let Some(found) = context.watches.virtual_machines(node, pods) else {
        context.migrations.leave_node(node);
        return Evacuations::default();
    };
    let (migrations, cancels) = context.migrations.for_node(node);
    let kubevirt = KubevirtView {
        migrations: migrations.as_deref(),
        cancels,
        start_timeout: context.migration_start_timeout,
        seen_at: now,
    };
    let began = maintenance.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Evacuations::leaving(found, &kubevirt, node, began)
}

/// What keeps a maintenance from beginning. One that is at work without a status that shows this may have overridden
/// the quorum, which then still has to be reported.
fn gate(context: &Context, maintenance: &NodeMaintenance, node: Option<&Node>, etcd: &Etcd) -> Gate {
    let index = &context.state.gate;
    let is_at_work = index.has_begun(maintenance);
    let is_gated = !is_at_work || (!ownership::has_begun(maintenance) && overrides_quorum(maintenance));
    let Some(node) = node.filter(|_| is_gated) else { return Gate::default() };
    let quorum = node::may_run_etcd(node).then(|| {
        let taken = index.nodes_taken_before(maintenance);
        let nodes = context.cluster.nodes.state();
        quorum::violation(node, nodes.iter().map(AsRef::as_ref), |name| taken.contains(name), etcd)
    });
    let limit = context.max_unavailable.filter(|_| !is_at_work);
    let queue = limit.and_then(|limit| index.queue(limit).get(ownership::uid(maintenance)).cloned());
    Gate { quorum: quorum.flatten(), queue }
}

/// The other maintenances of the same node, including those being deleted.
fn others(context: &Context, maintenance: &NodeMaintenance) -> Vec<Arc<GroupedMaintenance>> {
    let same_node = context.state.received_on(&maintenance.spec.node_name);
    let others = same_node.filter(|other| other.metadata.uid != maintenance.metadata.uid);
    others.map(|other| context.state.latest(other)).collect()
}

/// Those of them that are not being deleted.
fn competing(others: &[Arc<GroupedMaintenance>]) -> Vec<Arc<NodeMaintenance>> {
    let competing = others.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    competing.map(|other| Arc::new(other.maintenance.clone())).collect()
}

/// Whether the maintenance is no longer planned, and its status does not show this yet.
fn is_resumed(maintenance: &NodeMaintenance) -> bool {
    let suspension = maintenance.status.as_ref().and_then(Suspension::in_status);
    suspension == Some(Suspension::Planned) && !maintenance.spec.suspend
}

fn start_batch(context: &Context, maintenance: &NodeMaintenance) -> StartBatch {
    let age = context.state.maintenance(ownership::uid(maintenance), |state| state.first_seen.elapsed());
    if age >= StartBatch::MAX_DELAY {
        return StartBatch { age, ..StartBatch::default() };
    }
    let uncordoned = |other: &GroupedMaintenance| {
        let phase = other.status.as_ref().and_then(|status| status.phase);
        other.metadata.uid != maintenance.metadata.uid
            && other.metadata.deletion_timestamp.is_none()
            && !other.spec.suspend
            && (is_resumed(other) || !matches!(phase, Some(Phase::Failed | Phase::Pending)))
            && context.state.gate.is_uncordoned(&other.spec.node_name)
    };
    StartBatch {
        age,
        quiet_for: context.state.quiet_for(),
        uncordoned: context.state.filter_received(uncordoned).next().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use nm_shared::DrainSpec;
    use nm_shared::api::pod_selector::{MAX_REQUIREMENTS, MAX_VALUES, PodSelector};
    use nm_shared::decide::drain_plan::drain_plan;
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::thread_time::measured;

    /// A selector of so many requirements with the longest keys and values that the definition admits.
    fn selector(requirements: usize) -> Value {
        let key = |at: usize| format!("{}a.b.c/{at:063}", format!("{:061}.", 0).repeat(4));
        let values: Vec<String> = (0..MAX_VALUES).map(|at| format!("{at:063}")).collect();
        let expressions: Vec<Value> = (0..requirements)
            .map(|at| json!({"key": key(at), "operator": "NotIn", "values": values}))
            .collect();
        json!({"matchExpressions": expressions})
    }

    #[test]
    #[ignore = "it measures"]
    fn the_processor_time_of_large_selectors_is_measured() {
        const MAINTENANCES: u32 = 100;
        let pod = |at: usize| -> Arc<DrainPod> {
            let metadata = json!({"namespace": "shop", "name": format!("p{at}"), "uid": format!("p{at}")});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {}})).unwrap())
        };
        let observed = ClusterState { pods: Some((0..30).map(pod).collect()), ..ClusterState::default() };
        let decide = |spec: &DrainSpec| {
            let of_node = NodeMaintenanceSpec { drain: Some(spec.clone()), ..NodeMaintenanceSpec::default() };
            drop(drain_plan(&NodeMaintenance::new("m", of_node), spec, &observed, Timestamp::UNIX_EPOCH));
        };
        for requirements in [0, 4, MAX_REQUIREMENTS, 16 * MAX_REQUIREMENTS] {
            let drain = json!({"podSelector": selector(requirements),
                "waitForCompletion": {"podSelector": selector(requirements)}});
            let bytes = drain.to_string().len();
            let objects = || -> Vec<DrainSpec> {
                (0..MAINTENANCES).map(|_| serde_json::from_value(drain.clone()).unwrap()).collect()
            };
            let specs = objects();
            let ((), first) = measured(|| specs.iter().for_each(decide));
            let ((), again) = measured(|| specs.iter().for_each(decide));
            let anew = |spec: &DrainSpec| {
                let mut spec = spec.clone();
                let fresh = |selector: &PodSelector| PodSelector::from((**selector).clone());
                spec.pod_selector = spec.pod_selector.as_ref().map(fresh);
                if let Some(wait) = &mut spec.wait_for_completion {
                    wait.pod_selector = wait.pod_selector.as_ref().map(fresh);
                }
                decide(&spec);
            };
            let ((), compiled) = measured(|| specs.iter().for_each(anew));
            println!(
                "{requirements} requirements, {bytes} bytes: {:.1?} first, {:.1?} again, {:.1?} if compiled each time",
                first / MAINTENANCES,
                again / MAINTENANCES,
                compiled / MAINTENANCES,
            );
        }
    }
}
