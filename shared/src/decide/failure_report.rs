//! How a maintenance shows that its decision could not be applied.

use jiff::Timestamp;

use crate::api::condition::ConditionReason;
use crate::api::maintenance::NodeMaintenance;
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::Decision;
use crate::decide::failed_write::{FailedWrite, WriteFailure};
use crate::decide::{Decider, drain_status};

/// The decision for a maintenance whose decision could not be applied. Only the node and the group of what is `observed` matter.
pub fn report_failure(
    maintenance: &NodeMaintenance,
    observed: &ClusterState,
    write: FailedWrite,
    now: Timestamp,
) -> Decision {
    let mut decider = Decider { maintenance, observed, now, decision: Decision::default() };
    match write.cause {
        WriteFailure::Denied(denied) => decider.forbid(denied),
        WriteFailure::Refused(message) if !drain_status::has_succeeded(maintenance) => {
            decider.evict_nothing();
            decider.fail(ConditionReason::WriteFailed, format!("{}: {message}", write.attempt), None);
        }
        // A node that is drained stays drained while its lease is not renewed.
        WriteFailure::Refused(message) | WriteFailure::Failed(message) => {
            let error = format!("{}: {message}", write.attempt);
            let uncordoned = decider.is_uncordoned();
            decider.settle_status(drain_status::write_failed(maintenance, uncordoned, error, now), None);
        }
    }
    decider.decision
}
