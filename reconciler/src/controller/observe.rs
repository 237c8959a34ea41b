//! Observing: everything that a decision about one maintenance needs, from the watches. Nothing here waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use nm_shared::cluster::node;
use nm_shared::cluster::pod;
use nm_shared::decide::cluster_state::{ClusterState, StartBatch};
use nm_shared::drain::budget_forecast::Budgets;
use nm_shared::drain::node_patch::{is_cordoned, record_names};
use nm_shared::drain::virtual_machine::Evacuations;
use nm_shared::gate::max_unavailable_queue;
use nm_shared::gate::ownership;
use nm_shared::gate::quorum::{self, EtcdGuard};
use nm_shared::gate::{Gate, overrides_quorum};
use nm_shared::{Group, Grouped, NodeMaintenance, Phase};

use crate::controller::context::Context;
use crate::evict::eviction_state::EvictionState;

/// Whether `maintenance` is about to take a node of the control plane, so that what guards etcd matters to it.
pub(crate) fn takes_control_plane(context: &Context, maintenance: &Grouped) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
        && !ownership::has_begun(maintenance)
        && node(context, &maintenance.spec.node_name).is_some_and(|node| node::is_control_plane(&node))
}

/// The cluster as far as it concerns `maintenance`. What is not known yet is none. `is_openshift` matters only to a
/// maintenance that takes a node of the control plane.
pub(crate) fn observe(context: &Context, maintenance: &Grouped, is_openshift: bool) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let node = node(context, name);
    let is_ending = maintenance.metadata.deletion_timestamp.is_some();
    let pods = if is_ending || node.is_none() { Ok(None) } else { context.watches.pods(name) };
    let forbidden = pods.as_ref().err().map(|refusal| refusal.to_string().as_str().into());
    let pods = pods.unwrap_or_default();
    let on_node = pods.as_deref().unwrap_or_default();

    let mut evictions = context.evictor.state();
    let mut respawned = HashSet::new();
    if let Some(pods) = &pods {
        // Pods that return count only once the node is cordoned.
        if node.as_deref().is_some_and(|node| is_cordoned(node, maintenance.group)) {
            respawned = evictions.respawned(name, pods);
        }
        let uids: HashSet<&str> = pods.iter().map(|pod| pod::uid(pod)).collect();
        evictions.forget_gone(name, |uid| uids.contains(uid));
    }
    let attempts = evictions.attempts(name);
    let budgets = budgets(context, on_node, &mut evictions);
    drop(evictions);

    let lease = context.leases.on_node(name);
    let uid = maintenance.uid().unwrap_or_default();
    let (first_seen, recordons, status_written, prunes_details) = context.state.maintenance(&uid, |state| {
        (state.first_seen, state.recordons(), state.status_written, state.prunes_details())
    });
    let guard = is_openshift.then(|| {
        let budgets = context.cluster.budgets.objects.state();
        EtcdGuard::among(budgets.iter().map(AsRef::as_ref), on_node.iter().map(AsRef::as_ref))
    });
    let others = others(context, maintenance);
    ClusterState {
        group: maintenance.group,
        prunes_details,
        daemon_sets: context.cluster.daemon_sets(),
        pods_forbidden: forbidden,
        gate: gate(context, maintenance, node.as_deref(), guard.as_ref()),
        leases_forbidden: lease.as_ref().err().map(|refusal| refusal.to_string().as_str().into()),
        lease: lease.ok().flatten(),
        budgets,
        evacuations: evacuations(context, maintenance, pods.as_deref()),
        respawned,
        node_conditions: context.node_conditions,
        node_conditions_forbidden: context.conditions.refusal(),
        own_pod: context.own_pod.clone(),
        competing: competing(&others),
        other_uids: others.iter().map(|other| ownership::uid(other).to_owned()).collect(),
        recordons,
        batch: start_batch(context, maintenance, first_seen),
        status_written,
        steady_now: context.evictor.now(),
        attempts,
        node,
        pods,
    }
}

fn node(context: &Context, name: &str) -> Option<Arc<Node>> {
    let received = context.cluster.nodes.get(&ObjectRef::new(name))?;
    Some(context.state.latest_node(received))
}

/// The budgets of the namespaces of `pods`, less the evictions that they do not show yet.
fn budgets(context: &Context, pods: &[Arc<Pod>], evictions: &mut EvictionState) -> Budgets {
    let namespaces: HashSet<&str> = pods.iter().map(|pod| pod::names(pod).namespace).collect();
    let budgets =
        namespaces.into_iter().flat_map(|namespace| context.cluster.budgets.in_namespace(namespace));
    budgets.map(|budget| evictions.left(&budget)).collect()
}

fn evacuations(context: &Context, maintenance: &NodeMaintenance, pods: Option<&[Arc<Pod>]>) -> Evacuations {
    let node = &maintenance.spec.node_name;
    let found = match pods {
        Some(pods) => context.watches.virtual_machines(node, pods),
        None => context.watches.last_seen_virtual_machines(node),
    };
    let began = maintenance.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    found.map(|found| Evacuations::leaving(found, node, began)).unwrap_or_default()
}

/// What keeps a maintenance from beginning. One that is at work without a status that shows this may have overridden
/// the quorum, which then still has to be reported.
fn gate(
    context: &Context,
    maintenance: &NodeMaintenance,
    node: Option<&Node>,
    guard: Option<&EtcdGuard>,
) -> Gate {
    let at_work = |other: &NodeMaintenance| {
        let is_marked = |node: &Node| {
            Group::ALL.into_iter().any(|group| is_cordoned(node, group))
                || record_names(node, ownership::uid(other))
        };
        ownership::has_begun(other)
            || context.state.is_at_work(ownership::uid(other))
            || self::node(context, &other.spec.node_name).is_some_and(|node| is_marked(&node))
    };
    let is_at_work = at_work(maintenance);
    let is_gated = !is_at_work || (!ownership::has_begun(maintenance) && overrides_quorum(maintenance));
    let Some(node) = node.filter(|_| is_gated) else { return Gate::default() };
    let maintenances = context.latest_maintenances();
    let others = || maintenances.iter().filter(|other| other.metadata.uid != maintenance.metadata.uid);
    // Of two that begin together the older goes first, unless something else keeps it from beginning.
    let goes_first = |other: &NodeMaintenance| {
        at_work(other)
            || (other.metadata.deletion_timestamp.is_none()
                && max_unavailable_queue::may_be_queued(other)
                && ownership::age_rank(other) < ownership::age_rank(maintenance))
    };
    let in_maintenance = |name: &str| others().any(|other| other.spec.node_name == name && goes_first(other));
    let nodes = context.cluster.nodes.state();
    let quorum = quorum::violation(node, nodes.iter().map(AsRef::as_ref), in_maintenance, guard);
    let all = maintenances.iter().map(|other| &other.maintenance);
    let limit = context.max_unavailable.filter(|_| !is_at_work);
    let queue =
        limit.and_then(|limit| max_unavailable_queue::position(maintenance, all, at_work, &nodes, limit));
    Gate { quorum, queue }
}

/// The other maintenances of the same node, including those being deleted.
fn others(context: &Context, maintenance: &NodeMaintenance) -> Vec<Arc<Grouped>> {
    context.state.filter(|other| {
        other.spec.node_name == maintenance.spec.node_name && other.metadata.uid != maintenance.metadata.uid
    })
}

/// Those of them that are not being deleted.
fn competing(others: &[Arc<Grouped>]) -> Vec<Arc<NodeMaintenance>> {
    let competing = others.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    competing.map(|other| Arc::new(other.maintenance.clone())).collect()
}

fn start_batch(context: &Context, maintenance: &NodeMaintenance, first_seen: Instant) -> StartBatch {
    let age = first_seen.elapsed();
    if age >= StartBatch::MAX_DELAY {
        return StartBatch { age, ..StartBatch::default() };
    }
    let uncordoned = |other: &Grouped| {
        let phase = other.status.as_ref().and_then(|status| status.phase);
        other.metadata.uid != maintenance.metadata.uid
            && other.metadata.deletion_timestamp.is_none()
            && !matches!(phase, Some(Phase::Failed | Phase::Pending))
            && node(context, &other.spec.node_name).is_some_and(|node| !is_cordoned(&node, other.group))
    };
    StartBatch {
        age,
        quiet_for: context.state.quiet_for(),
        uncordoned: !context.state.filter(uncordoned).is_empty(),
    }
}
