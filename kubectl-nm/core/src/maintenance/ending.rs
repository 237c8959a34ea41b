//! What becomes of a node when its maintenance ends: the undo record on the node shows it beforehand.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use nm_shared::api::names::{KEEP_CORDON_ANNOTATION, OUT_OF_SERVICE_TAINT};
use nm_shared::drain::node_patch;
use nm_shared::gate::ownership;
use nm_shared::{GroupedMaintenance, NodeMaintenance};
use serde_json::{Value, json};

use crate::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use crate::error::Error;
use crate::maintenance::{node, status, uid};

/// What becomes of a node when its maintenance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEnding {
    /// It is uncordoned.
    InService,
    /// It is uncordoned, and was not Ready before.
    NotReady,
    /// It is uncordoned, and has the taint of a machine that is off, which somebody has to remove.
    OutOfService {
        /// Whether the node was Ready before.
        is_ready: bool,
    },
    /// It was cordoned before, and stays so.
    CordonedBefore,
    /// It stays cordoned, because its maintenance asks for that.
    CordonKept,
}

impl NodeEnding {
    /// The ending of a maintenance of this node. None if the node has no undo record: then the maintenance has not cordoned it, or
    /// the medik8s operator did.
    pub fn of(node: &Node, keeps_cordon: bool) -> Option<Self> {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let is_out_of_service = taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT);
        let is_ready = nm_shared::cluster::node::is_ready(node);
        match node_patch::was_schedulable(&node.metadata)? {
            false => Some(Self::CordonedBefore),
            true if keeps_cordon => Some(Self::CordonKept),
            true if is_out_of_service => Some(Self::OutOfService { is_ready }),
            true if !is_ready => Some(Self::NotReady),
            true => Some(Self::InService),
        }
    }

    /// `stays cordoned, as before`.
    pub fn words(self) -> &'static str {
        match self {
            Self::InService => "back in service",
            Self::NotReady => "uncordoned; the node was not Ready",
            Self::OutOfService { is_ready: false } => {
                "uncordoned; the node was not Ready, and its taint node.kubernetes.io/out-of-service keeps pods away until \
                 somebody removes it"
            }
            Self::OutOfService { is_ready: true } => {
                "uncordoned; its taint node.kubernetes.io/out-of-service keeps pods away until somebody removes it"
            }
            Self::CordonedBefore => "stays cordoned, as before",
            Self::CordonKept => "stays cordoned",
        }
    }
}

/// What becomes of the nodes of these maintenances when they end, as far as the user may see it.
pub async fn endings(
    cluster: &Cluster,
    maintenances: &[GroupedMaintenance],
    keep_cordon: bool,
) -> BTreeMap<String, NodeEnding> {
    let begun = maintenances.iter().filter(|object| status(object).has_begun());
    let endings: Vec<Option<(String, NodeEnding)>> = stream::iter(begun)
        .map(async |object| {
            // What the command is about does not depend on it.
            let found = cluster.node(node(object)).await.ok()??;
            let stays = keep_cordon || ownership::keeps_cordon(object);
            Some((node(object).to_owned(), NodeEnding::of(&found, stays)?))
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    endings.into_iter().flatten().collect()
}

/// Lets the node of a maintenance stay cordoned when it ends. It is written before the maintenance is deleted, so whoever sees
/// the deletion sees it.
///
/// # Errors
///
/// If the medik8s operator manages the maintenance, which ignores it ([`Error::KeepCordonIgnored`]), or if the request fails.
pub async fn keep_cordon(cluster: &Cluster, object: &GroupedMaintenance) -> Result<(), Error> {
    if is_of_medik8s_operator(object) {
        return Err(Error::KeepCordonIgnored(node(object).to_owned()));
    }
    cluster.patch_grouped(object, &keep_cordon_patch(&uid(object))).await
}

/// The merge patch that lets the node of the maintenance with this uid stay cordoned when it ends.
pub fn keep_cordon_patch(uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "annotations": {KEEP_CORDON_ANNOTATION: "true"}}})
}

/// Whether the medik8s operator manages a maintenance, and not nm-reconciler: that operator writes no conditions.
pub fn is_of_medik8s_operator(object: &NodeMaintenance) -> bool {
    status(object).phase.is_some() && status(object).conditions.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_undo_record_shows_what_becomes_of_a_node() {
        let node = |record: Option<bool>, is_ready: bool, taint: &str| -> Node {
            let undo = |schedulable| json!({"kubectl-nm.dev/undo": json!({"madeUnschedulable": schedulable}).to_string()});
            let ready = if is_ready { "True" } else { "Unknown" };
            serde_json::from_value(json!({
                "metadata": {"name": "n1", "annotations": record.map(undo),
                    "labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}},
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let off = "node.kubernetes.io/out-of-service";
        let out = "uncordoned; its taint node.kubernetes.io/out-of-service keeps pods away until somebody removes it";
        let off_and_unready = "uncordoned; the node was not Ready, and its taint node.kubernetes.io/out-of-service keeps pods away \
            until somebody removes it";
        for (node, keeps, words) in [
            (node(Some(true), true, "pool"), false, Some("back in service")),
            (node(Some(true), false, "pool"), false, Some("uncordoned; the node was not Ready")),
            (node(Some(true), true, off), false, Some(out)),
            (node(Some(true), false, off), false, Some(off_and_unready)),
            (node(Some(true), false, off), true, Some("stays cordoned")),
            (node(Some(false), false, "pool"), false, Some("stays cordoned, as before")),
            (node(Some(false), true, "pool"), true, Some("stays cordoned, as before")),
            (node(None, true, "pool"), true, None),
        ] {
            assert_eq!(NodeEnding::of(&node, keeps).map(NodeEnding::words), words);
        }
    }
}
