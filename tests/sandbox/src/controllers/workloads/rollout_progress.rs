//! The condition `Progressing` of a Deployment: whether its rollout is done, goes on, or exceeded its deadline.
//!
//! Source: kubernetes `pkg/controller/deployment/progress.go` and `util/deployment_util.go`, v1.36.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::condition;

const COMPLETE: &str = "NewReplicaSetAvailable";
const UPDATED: &str = "ReplicaSetUpdated";
const EXCEEDED: &str = "ProgressDeadlineExceeded";

/// The condition of a Deployment that is paused.
pub(crate) fn paused() -> Value {
    json!({"type": "Progressing", "status": "Unknown", "reason": "DeploymentPaused", "message": "Deployment is paused"})
}

/// The condition after a status with new counts, and when the rollout exceeds its deadline.
pub(crate) fn next(
    before: &Value,
    counts: &Value,
    is_complete: bool,
    deadline: SignedDuration,
    now: Timestamp,
) -> (Value, Option<Timestamp>) {
    let last = condition::find(before, "Progressing").cloned().unwrap_or_default();
    let last_progress = last["lastUpdateTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let is_under_way = last["reason"] == UPDATED || last["reason"] == EXCEEDED;
    let since = last_progress
        .filter(|_| if is_complete { last["reason"] == COMPLETE } else { is_under_way })
        .filter(|_| is_complete || !has_progressed(before, counts))
        .unwrap_or(now);
    let exceeded_at = since.saturating_add(deadline).unwrap_or(Timestamp::MAX);
    let (status, reason, next) = if is_complete {
        ("True", COMPLETE, None)
    } else if exceeded_at <= now {
        ("False", EXCEEDED, None)
    } else {
        ("True", UPDATED, Some(exceeded_at))
    };
    let time = metav1_time(since);
    (json!({"type": "Progressing", "status": status, "reason": reason, "lastUpdateTime": time}), next)
}

/// Whether more pods are updated, ready or available, or fewer old ones are left.
fn has_progressed(before: &Value, after: &Value) -> bool {
    let count = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
    let old = |status: &Value| count(status, "replicas") - count(status, "updatedReplicas");
    let grew = |field: &str| count(after, field) > count(before, field);
    grew("updatedReplicas") || grew("readyReplicas") || grew("availableReplicas") || old(after) < old(before)
}
