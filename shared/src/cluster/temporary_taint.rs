//! The taints of a node that go when its maintenance, its cordon or its condition ends.

use crate::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT, OUT_OF_SERVICE_TAINT, UNSCHEDULABLE_TAINT};

/// What the taints begin with that the control plane sets for conditions of a node.
const OF_CONDITIONS: &str = "node.kubernetes.io/";

/// Whether a maintenance or a cordon sets the taint with this key.
pub fn is_of_maintenance(key: &str) -> bool {
    [DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT, UNSCHEDULABLE_TAINT].contains(&key)
}

/// Whether the control plane sets the taint, which begins with its key, for a condition of a node.
pub fn is_of_condition(taint: &str) -> bool {
    taint.starts_with(OF_CONDITIONS) && !taint.starts_with(OUT_OF_SERVICE_TAINT)
}
