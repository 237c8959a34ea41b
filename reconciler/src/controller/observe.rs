//! Reading: everything that a decision about one maintenance needs, from the watches.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use nm_shared::cluster::node;
use nm_shared::cluster::pod;
use nm_shared::decide::cluster_state::{ClusterState, StartBatch};
use nm_shared::drain::budget_forecast::Budgets;
use nm_shared::drain::cordon_backoff::RecordonBackoff;
use nm_shared::drain::node_patch::{is_cordoned, record_names};
use nm_shared::drain::virtual_machine::Evacuations;
use nm_shared::gate::max_unavailable_queue;
use nm_shared::gate::ownership;
use nm_shared::gate::quorum::{self, EtcdGuard};
use nm_shared::gate::{Gate, overrides_quorum};
use nm_shared::{Group, Grouped, NodeMaintenance, Phase};

use crate::controller::context::{Context, Memory};
use crate::evict::eviction_state::Ledger;
use crate::watch::pod_watches::Pods;

/// Whether `maintenance` is about to take a node of the control plane, so that what guards etcd matters to it.
pub(crate) fn takes_control_plane(context: &Context, maintenance: &Grouped) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
        && !ownership::has_begun(maintenance)
        && node(context, &maintenance.spec.node_name).is_some_and(|node| node::is_control_plane(&node))
}

/// What surrounds `maintenance`. Nothing is waited for: what is not known yet is none. Whether this is OpenShift matters
/// only to one that takes a node of the control plane.
pub(crate) fn observe(context: &Context, maintenance: &Grouped, is_openshift: bool) -> ClusterState {
    let name = &maintenance.spec.node_name;
    let node = node(context, name);
    let ending = maintenance.metadata.deletion_timestamp.is_some();
    let known = if ending || node.is_none() { Pods::Unknown } else { context.pods.on_node(name) };
    let (pods, forbidden) = match known {
        Pods::Unknown => (None, None),
        Pods::Known(pods) => (Some(pods), None),
        Pods::Forbidden(sentence) => (None, Some(sentence.as_str().into())),
    };
    let mut ledger = context.evictor.ledger();
    let mut returned = HashSet::new();
    if let Some(pods) = &pods {
        // Before the node is cordoned pods are welcome.
        if node.as_deref().is_some_and(|node| is_cordoned(node, maintenance.group)) {
            returned = ledger.returned(name, pods);
        }
        let uids: HashSet<&str> = pods.iter().map(|pod| pod::uid(pod)).collect();
        ledger.forget_gone(name, |uid| uids.contains(uid));
    }
    let attempts = ledger.attempts(name);
    let budgets = budgets(context, pods.as_deref().unwrap_or_default(), &mut ledger);
    drop(ledger);
    let lease = context.leases.on_node(name);
    let memory = context.memories.update(&maintenance.uid().unwrap_or_default(), |_| ());
    let guard = is_openshift.then(|| {
        let on_node = pods.as_deref().unwrap_or_default();
        let budgets = context.cluster.budgets.objects.state();
        EtcdGuard::among(budgets.iter().map(AsRef::as_ref), on_node.iter().map(AsRef::as_ref))
    });
    let others = others(context, maintenance);
    ClusterState {
        group: maintenance.group,
        daemon_sets: context.cluster.daemon_sets(),
        pods_forbidden: forbidden,
        gate: gate(context, maintenance, node.as_deref(), guard.as_ref()),
        leases_forbidden: lease.as_ref().err().map(|sentence| sentence.as_str().into()),
        lease: lease.ok().flatten(),
        budgets,
        evacuations: machines(context, maintenance, pods.as_deref()),
        respawned: returned,
        node_conditions: context.node_conditions,
        node_conditions_forbidden: context.conditions.refusal(),
        own_pod: context.own_pod.clone(),
        competing: rivals(&others),
        other_uids: others.iter().map(|other| ownership::uid(other).to_owned()).collect(),
        recordons: recordons(memory),
        batch: gathering(context, maintenance, memory),
        status_written: memory.status_written,
        steady_now: context.evictor.now(),
        attempts,
        node,
        pods,
    }
}

fn node(context: &Context, name: &str) -> Option<Arc<Node>> {
    let seen = context.cluster.nodes.get(&ObjectRef::new(name))?;
    Some(context.own_nodes.freshest(seen))
}

/// The budgets of the namespaces of `pods`, less what was asked of them already.
fn budgets(context: &Context, pods: &[Arc<Pod>], ledger: &mut Ledger) -> Budgets {
    let namespaces: HashSet<&str> = pods.iter().map(|pod| pod::names(pod).namespace).collect();
    let near = namespaces.into_iter().flat_map(|namespace| context.cluster.budgets.within(namespace));
    near.map(|budget| ledger.left(&budget)).collect()
}

fn machines(context: &Context, maintenance: &NodeMaintenance, pods: Option<&[Arc<Pod>]>) -> Evacuations {
    let node = &maintenance.spec.node_name;
    let found = match pods {
        Some(pods) => context.machines.on_node(node, pods),
        None => context.machines.last_seen_on(node),
    };
    let began = maintenance.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    found.map(|found| Evacuations::leaving(found, node, began)).unwrap_or_default()
}

/// What keeps a maintenance that has not begun from beginning.
/// One that is at work and has no status that says so may have overridden the quorum, which is still to be told.
fn gate(
    context: &Context,
    maintenance: &NodeMaintenance,
    node: Option<&Node>,
    guard: Option<&EtcdGuard>,
) -> Gate {
    let at_work = |other: &NodeMaintenance| {
        let marked = |node: &Node| {
            Group::ALL.into_iter().any(|group| is_cordoned(node, group))
                || record_names(node, ownership::uid(other))
        };
        let cordoned = || self::node(context, &other.spec.node_name).is_some_and(|node| marked(&node));
        ownership::has_begun(other)
            || other.metadata.uid.as_deref().is_some_and(|uid| context.memories.is_at_work(uid))
            || cordoned()
    };
    let is_at_work = at_work(maintenance);
    let concerns = !is_at_work || (!ownership::has_begun(maintenance) && overrides_quorum(maintenance));
    let Some(node) = node.filter(|_| concerns) else { return Gate::default() };
    let maintenances = context.complete_maintenances();
    let others = || maintenances.iter().filter(|other| other.metadata.uid != maintenance.metadata.uid);
    // Of two that begin together the younger sees the older, unless that cannot begin for another reason.
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

/// The other maintenances of the same node, those being deleted included.
fn others(context: &Context, maintenance: &NodeMaintenance) -> Vec<Arc<Grouped>> {
    context.maintenances.filter(|other| {
        other.spec.node_name == maintenance.spec.node_name && other.metadata.uid != maintenance.metadata.uid
    })
}

/// Those of them that are not being deleted.
fn rivals(others: &[Arc<Grouped>]) -> Vec<Arc<NodeMaintenance>> {
    let rivals = others.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    rivals.map(|rival| Arc::new(rival.maintenance.clone())).collect()
}

fn recordons(memory: Memory) -> RecordonBackoff {
    let since_last = memory.recordoned_at.map(|at| at.elapsed());
    since_last.map_or_else(RecordonBackoff::default, |since_last| RecordonBackoff {
        count: memory.recordons,
        since_last,
    })
}

fn gathering(context: &Context, maintenance: &NodeMaintenance, memory: Memory) -> StartBatch {
    let age = memory.first_seen.elapsed();
    if age >= StartBatch::MAX_DELAY {
        return StartBatch { age, ..StartBatch::default() };
    }
    let uncordoned = |other: &Grouped| {
        other.metadata.uid != maintenance.metadata.uid
            && other.metadata.deletion_timestamp.is_none()
            && !matches!(
                other.status.as_ref().and_then(|status| status.phase),
                Some(Phase::Failed | Phase::Pending)
            )
            && node(context, &other.spec.node_name).is_some_and(|node| !is_cordoned(&node, other.group))
    };
    StartBatch {
        age,
        quiet_for: context.memories.quiet_for(),
        uncordoned: !context.maintenances.filter(uncordoned).is_empty(),
    }
}
