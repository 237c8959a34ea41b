//! Observing: everything that a decision about one maintenance needs, in one look at the state. Nothing here waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_shared::api::hold::Hook;
use nm_shared::cluster::node;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::cluster::volume_attachment::NodeVolumes;
use nm_shared::decide::cluster_state::{Announcement, ClusterState, StartBatch};
use nm_shared::decide::drain_plan::needs_volumes;
use nm_shared::decide::hold;
use nm_shared::decide::needs_pods;
use nm_shared::drain::budget_allowance::Budgets;
use nm_shared::drain::evacuation::{Evacuations, KubevirtView};
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::drain::pod_state;
use nm_shared::drain::returning::Returning;
use nm_shared::drain::surge::{WorkloadKey, WorkloadState};
use nm_shared::gate::etcd::Etcd;
use nm_shared::gate::etcd_guard::EtcdGuard;
use nm_shared::gate::ownership;
use nm_shared::gate::quorum;
use nm_shared::gate::{Gate, overrides_quorum};
use nm_shared::{
    GroupedMaintenance, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStatus, Phase, Suspension,
};

use crate::cache::term_state::TermState;
use crate::controller::context::Context;

/// Whether `maintenance` is about to take a node that may run etcd, which the guard of etcd may forbid.
pub(crate) fn may_take_etcd_member(
    state: &mut TermState,
    context: &Context,
    maintenance: &GroupedMaintenance,
) -> bool {
    !context.has_external_etcd
        && maintenance.metadata.deletion_timestamp.is_none()
        && !maintenance.spec.suspend
        && !ownership::has_begun(maintenance)
        && state.nodes.latest(&maintenance.spec.node_name).is_some_and(|node| node::may_run_etcd(&node))
}

/// The cluster as far as it concerns `maintenance`. Facts that are not known yet are none. So are those about pods, if the
/// maintenance waits. `is_openshift` matters only to a maintenance that takes a node that may run etcd: the result is
/// none until the pods of that node are listed.
pub(crate) fn observe(
    state: &mut TermState,
    context: &Context,
    maintenance: &GroupedMaintenance,
    is_openshift: bool,
    now: Timestamp,
) -> Option<ClusterState> {
    let etcd = if is_openshift {
        Etcd::Guarded(etcd_guard(state, context, &maintenance.spec.node_name)?)
    } else if context.has_external_etcd {
        Etcd::External
    } else {
        Etcd::OnNodes
    };
    let observed = observe_gate(state, context, maintenance, &etcd);
    Some(if needs_pods(maintenance, &observed, now) {
        observe_pods(state, context, maintenance, observed, now)
    } else {
        observed
    })
}

/// What decides whether the maintenance may work on its node.
fn observe_gate(
    state: &mut TermState,
    context: &Context,
    maintenance: &GroupedMaintenance,
    etcd: &Etcd,
) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let node = state.nodes.latest(name);
    let lease = state.nodes.latest_lease(name);
    let uid = ownership::uid(maintenance);
    state.maintenances.note_suspension(uid, maintenance.spec.suspend);
    let (recordons, has_returned, status_written, prunes_details) = state.maintenances.memory(uid, |known| {
        (known.recordons(), known.has_returned, known.status_written, known.prunes_details())
    });
    let others = others(state, maintenance);
    ClusterState {
        group: maintenance.group,
        prunes_details,
        daemon_sets: state.daemon_sets.clone(),
        gate: gate(state, context, maintenance, node.as_deref(), etcd),
        leases_forbidden: lease.as_ref().err().cloned(),
        lease: lease.ok().flatten(),
        node_conditions: context.node_conditions,
        node_conditions_forbidden: state.conditions_denied.as_ref().map(|(_, denied)| denied.clone()),
        own_pod: context.own_pod.clone(),
        competing: competing(&others),
        other_uids: others.iter().map(|other| ownership::uid(other).to_owned()).collect(),
        other_was_planned: others.iter().any(|other| ownership::was_planned(other)),
        return_hooks: node.iter().flat_map(|node| return_hooks(&others, node)).collect(),
        recordons,
        has_returned,
        status_written,
        steady_now: state.evictions.now(),
        node,
        ..ClusterState::default()
    }
}

/// Adds the pods on the node, and what their evictions depend on. The first call starts the watch on the pods.
fn observe_pods(
    state: &mut TermState,
    context: &Context,
    maintenance: &GroupedMaintenance,
    observed: ClusterState,
    now: Timestamp,
) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let pods = context.watches.pods(state, name);
    let pods_forbidden = pods.as_ref().err().cloned();
    let pods = pods.unwrap_or_default();

    let mut returning = Returning::default();
    if let Some(pods) = &pods {
        // Pods that return count only once the node is cordoned.
        if observed.node.as_deref().is_some_and(|node| is_cordoned(node, maintenance.group)) {
            let cordoned = maintenance.status.as_ref().and_then(NodeMaintenanceStatus::begun_at);
            returning = state.evictions.returning(name, pods, cordoned, now);
        }
        let uids: HashSet<&str> = pods.iter().map(|pod| pod::uid(pod)).collect();
        state.evictions.forget_gone(name, |uid| uids.contains(uid));
        let readiness = observed.readiness();
        for pod in pods {
            if let Some(left) = pod_state::time_left(pod, readiness, now) {
                state.evictions.note_terminating(name, pod, left, &state.budgets);
            }
        }
    }
    let known_pods = pods.as_deref().unwrap_or_default();
    let observed = ClusterState {
        pods_forbidden,
        budgets: budgets(state, known_pods),
        evacuations: evacuations(state, context, maintenance, known_pods, now),
        returning,
        blocked_after: context.blocked_after,
        workloads: workloads(state, name),
        restart_refusals: state.workloads.refusals(),
        batch: start_batch(state, maintenance, now),
        steady_now: state.evictions.now(),
        attempts: state.evictions.attempts(name),
        deleted: state.evictions.deleted(name),
        pods,
        ..observed
    };
    let needs_volumes = needs_volumes(maintenance, &observed, now);
    let (volumes, volumes_forbidden) = volumes(state, context, maintenance, needs_volumes);
    ClusterState { volumes, volumes_forbidden, ..observed }
}

/// The guard of etcd, which may be among the pods on the node, and whose readiness decides. None until they are listed,
/// which triggers the next reconcile.
fn etcd_guard(state: &mut TermState, context: &Context, node: &str) -> Option<EtcdGuard> {
    let pods = match context.watches.pods(state, node) {
        Ok(pods) => pods?,
        Err(_) => Vec::new(),
    };
    let budgets = state.budgets.received.iter().map(AsRef::as_ref);
    Some(EtcdGuard::among(budgets, pods.iter().map(AsRef::as_ref)))
}

/// The budgets of the namespaces of `pods`, less the evictions that they do not show yet.
fn budgets(state: &mut TermState, pods: &[Arc<DrainPod>]) -> Budgets {
    let TermState { budgets, evictions, .. } = state;
    let namespaces: HashSet<&str> = pods.iter().map(|pod| pod::names(pod).namespace).collect();
    let budgets = namespaces.into_iter().flat_map(|namespace| budgets.in_namespace(namespace));
    budgets.map(|budget| evictions.left(budget)).collect()
}

/// What controls the pods that are replaced first. Whether there is a node for a replacement depends on the other nodes.
fn workloads(state: &mut TermState, node: &str) -> HashMap<WorkloadKey, WorkloadState> {
    let TermState { workloads, nodes, .. } = state;
    let others = || nodes.received.iter().filter(|other| other.name() != node);
    workloads.states(node, || others().map(AsRef::as_ref))
}

/// The volumes attached to the node, if the maintenance waits for them and they are `needed` now.
fn volumes(
    state: &mut TermState,
    context: &Context,
    maintenance: &GroupedMaintenance,
    needed: bool,
) -> (NodeVolumes, Option<AccessDenied>) {
    let NodeMaintenanceSpec { node_name, drain, .. } = &maintenance.spec;
    let is_deleted = maintenance.metadata.deletion_timestamp.is_some();
    if !is_deleted && drain.as_ref().is_some_and(|drain| drain.wait_for_volume_detach.is_some()) {
        let known = context.volumes.for_node(state, node_name);
        return if needed { known.on_node(node_name) } else { (NodeVolumes::default(), known.denied()) };
    }
    state.volumes.retain_nodes(|node| node != node_name);
    Default::default()
}

fn evacuations(
    state: &mut TermState,
    context: &Context,
    maintenance: &NodeMaintenance,
    pods: &[Arc<DrainPod>],
    now: Timestamp,
) -> Evacuations {
    let node = &maintenance.spec.node_name;
    let Some(found) = context.watches.virtual_machines(state, node, pods) else {
        state.migrations.retain_nodes(|other| other != node);
        return Evacuations::default();
    };
    let known = context.migrations.for_node(state, node);
    let migrations = known.all();
    let kubevirt = KubevirtView {
        migrations: migrations.as_deref(),
        cancels: known.cancels,
        start_timeout: context.migration_start_timeout,
        seen_at: now,
    };
    let began = maintenance.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Evacuations::leaving(found, &kubevirt, node, began)
}

/// What keeps a maintenance from beginning. One that is at work without a status that shows this may have overridden
/// the quorum, which then still has to be reported.
fn gate(
    state: &mut TermState,
    context: &Context,
    maintenance: &NodeMaintenance,
    node: Option<&Node>,
    etcd: &Etcd,
) -> Gate {
    let is_at_work = state.gate.has_begun(maintenance);
    let is_gated = !is_at_work || (!ownership::has_begun(maintenance) && overrides_quorum(maintenance));
    let Some(node) = node.filter(|_| is_gated) else { return Gate::default() };
    let quorum = node::may_run_etcd(node).then(|| {
        let taken = state.gate.nodes_taken_before(maintenance);
        let candidates = state.nodes.received.iter().filter(|node| node.may_run_etcd());
        let candidates: Vec<Node> = candidates.map(|node| Node::from(&**node)).collect();
        quorum::violation(node, &candidates, |name| taken.contains(name), etcd)
    });
    let limit = context.max_unavailable.filter(|_| !is_at_work);
    let queue = limit.and_then(|limit| state.gate.queue(limit).get(ownership::uid(maintenance)).cloned());
    Gate { quorum: quorum.flatten(), queue }
}

/// The other maintenances of the same node, including those being deleted.
fn others(state: &mut TermState, maintenance: &NodeMaintenance) -> Vec<Arc<GroupedMaintenance>> {
    let same_node = state.maintenances.on_node(&maintenance.spec.node_name);
    let others = same_node.filter(|other| other.metadata.uid != maintenance.metadata.uid);
    let others: Vec<_> = others.cloned().collect();
    others.into_iter().map(|other| state.maintenances.latest(other)).collect()
}

/// Those of them that are not being deleted.
/// Whether another maintenance has taken over the node, or will.
pub(super) fn has_heir(state: &mut TermState, maintenance: &GroupedMaintenance) -> bool {
    ownership::heir(&competing(&others(state, maintenance))).is_some()
}

fn competing(others: &[Arc<GroupedMaintenance>]) -> Vec<Arc<NodeMaintenance>> {
    let competing = others.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    competing.map(|other| Arc::new(other.maintenance.clone())).collect()
}

/// The hooks because of which some of them keep the node.
fn return_hooks(others: &[Arc<GroupedMaintenance>], node: &Node) -> Vec<Hook> {
    others.iter().flat_map(|other| hold::hooks_of_return(other, node)).collect()
}

/// Whether the maintenance is no longer planned, and its status does not show this yet.
fn is_resumed(maintenance: &NodeMaintenance) -> bool {
    let suspension = maintenance.status.as_ref().and_then(Suspension::in_status);
    suspension == Some(Suspension::Planned) && !maintenance.spec.suspend
}

fn start_batch(state: &mut TermState, maintenance: &NodeMaintenance, now: Timestamp) -> StartBatch {
    let uid = ownership::uid(maintenance);
    let age = state.maintenances.memory(uid, |known| known.first_seen.elapsed());
    let announcement = Announcement::of_new(maintenance, now);
    if age >= StartBatch::MAX_DELAY && announcement.is_none() {
        return StartBatch { age, ..StartBatch::default() };
    }
    let uncordoned = |other: &GroupedMaintenance| {
        let phase = other.status.as_ref().and_then(|status| status.phase);
        other.metadata.uid != maintenance.metadata.uid
            && other.metadata.deletion_timestamp.is_none()
            && !other.spec.suspend
            && (is_resumed(other) || !matches!(phase, Some(Phase::Failed | Phase::Pending)))
            && state.gate.is_uncordoned(&other.spec.node_name)
    };
    let companions = || announcement.into_iter().flat_map(|ours| state.maintenances.announced(ours.id));
    // Those that were not announced are awaited for less long.
    let uncordoned = if age < StartBatch::MAX_DELAY {
        state.maintenances.received().any(|other| uncordoned(other))
    } else {
        companions().any(|other| uncordoned(other))
    };
    StartBatch {
        age,
        quiet_for: state.maintenances.quiet_for(),
        uncordoned,
        announced: announcement.is_some(),
        incomplete: announcement.is_some_and(|its| companions().count() < its.count),
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
