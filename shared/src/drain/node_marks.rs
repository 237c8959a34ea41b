//! What a maintenance sets on its node, and reading it.

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::api::group::Group;
use crate::api::names::{PLANNED_TAINT, PREFER_NO_SCHEDULE, UNSCHEDULABLE_TAINT};
use crate::cluster::node_fit::taint;

/// The taint of a planned maintenance.
pub(super) fn planned_taint() -> Taint {
    Taint { effect: PREFER_NO_SCHEDULE.to_owned(), ..taint(PLANNED_TAINT) }
}

/// The taints of a maintenance that has started.
pub(super) fn marks(group: Group) -> [Taint; 2] {
    [group.drain_taint(), UNSCHEDULABLE_TAINT].map(taint)
}

/// Whether two taints are the same one, whatever their values.
pub(super) fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// How the undo record names a taint.
pub(super) fn id(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// The taints of the node.
pub(super) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// The value of a label of the node.
pub(super) fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
