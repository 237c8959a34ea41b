//! What has to be so once the harm has stopped.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nm_shared::api::names::{LEASE_HOLDER, PLANNED_TAINT};
use nm_shared::gate::ownership::age_rank;
use nm_shared::{NodeMaintenance, Suspension};
use nm_tests::invariants::{NodeMarks, maintenance_has_settled};

use crate::history::Seen;
use crate::node_story::{has_record, is_planned};

/// Every maintenance has ended as its object says. Those that are suspended say that they are.
///
/// # Errors
/// What is not so yet.
pub(crate) fn maintenances(seen: &Seen) -> Result<(), String> {
    for (node, all) in by_node(seen) {
        let oldest = all.iter().min_by_key(|maintenance| age_rank(maintenance));
        if let Some(suspended) = oldest.filter(|oldest| oldest.spec.suspend) {
            let status = suspended.status.as_ref();
            let is_reported = status.is_some_and(|status| Suspension::in_status(status).is_some());
            if suspended.metadata.deletion_timestamp.is_some() || !is_reported {
                return Err(format!("{} is suspended: {status:?}", suspended.name_any()));
            }
            continue;
        }
        // One that is suspended and has not the node has nothing to report but that.
        let others: Vec<&NodeMaintenance> = all.into_iter().filter(|one| !one.spec.suspend).collect();
        let left = pods_left(seen, &node);
        maintenance_has_settled(seen.nodes.named(&node), &others, left).map_err(|it| it.to_string())?;
    }
    Ok(())
}

/// Nothing is left of any maintenance: no object, no lease, no mark. The remainder of an undo record may be left, which says
/// that everything is restored: it stays if the answer to the last write of a maintenance is lost.
///
/// # Errors
/// What is left.
pub(crate) fn nothing_is_left(seen: &Seen) -> Result<(), String> {
    if let Some(maintenance) = seen.maintenances.present().next() {
        return Err(format!("a maintenance is left: {:?} {:?}", maintenance.metadata, maintenance.status));
    }
    let is_ours = |holder: Option<&String>| holder.is_some_and(|holder| holder == LEASE_HOLDER);
    for lease in seen.leases.present() {
        if is_ours(lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref())) {
            return Err(format!("the lease {} is left", lease.name_any()));
        }
    }
    for node in seen.nodes.present() {
        let is_tainted = NodeMarks::of(node).taints.iter().any(|taint| taint.starts_with(PLANNED_TAINT));
        if is_tainted || has_record(node) || is_planned(node) {
            return Err(format!("{}: {:?}, {:?}", node.name_any(), NodeMarks::of(node), node.annotations()));
        }
    }
    Ok(())
}

fn by_node(seen: &Seen) -> BTreeMap<String, Vec<&NodeMaintenance>> {
    let mut nodes: BTreeMap<String, Vec<&NodeMaintenance>> = BTreeMap::new();
    for maintenance in seen.maintenances.present() {
        nodes.entry(maintenance.spec.node_name.clone()).or_default().push(maintenance);
    }
    nodes
}

/// The pods of the run on a node, all of which have to leave.
fn pods_left(seen: &Seen, node: &str) -> usize {
    let is_on = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    seen.pods.present().filter(is_on).count()
}
