//! Fuzz targets: each takes any bytes, and panics if a promise about bad input does not hold. It returns whether the bytes
//! were understood at all, so that a suite can report how many of its inputs were.
//!
//! No target may panic otherwise or take long. Objects that the API server would not store, because they do not parse, are
//! left out.

#![allow(clippy::missing_panics_doc, reason = "each target panics if a promise does not hold")]

pub mod plugin;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::Status;
use nm_shared::admission::review::{self, InvalidReview, RequestedChange, ReviewAnswer};
use nm_shared::admission::{self, LiveState};
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_shared::cluster::pod::DrainPod;
use nm_shared::cluster::pod_requests::Resources;
use nm_shared::cluster::volume_attachment::{NodeVolumes, VolumeAttachment};
use nm_shared::cluster::{node, quantity, selector};
use nm_shared::decide::cluster_state::{ClusterState, StartBatch};
use nm_shared::decide::decide;
use nm_shared::drain::budget_allowance::Budgets;
use nm_shared::drain::eviction_attempts::Attempt;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::node_patch::NodePatch;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus};
use serde::Deserialize;
use serde_json::Value;

/// The maximum length of a message in the status.
const MAX_MESSAGE: usize = 1024;

/// A maintenance and what surrounds it, each object as the API server stores it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    maintenance: NodeMaintenance,
    node: Option<Node>,
    lease: Option<Lease>,
    #[serde(default)]
    pods: Vec<Pod>,
    #[serde(default)]
    budgets: Vec<PodDisruptionBudget>,
    #[serde(default)]
    competing: Vec<NodeMaintenance>,
    #[serde(default)]
    attachments: Vec<VolumeAttachment>,
    /// The answer to the first pod's eviction.
    answer: Option<Status>,
    now: Timestamp,
}

/// Objects of any content: a decision is made, its status can be stored and read again, and its patch of the node leaves
/// labels, annotations and taints of others alone.
pub fn state(data: &[u8]) -> bool {
    let Ok(state) = serde_json::from_slice::<State>(data) else { return false };
    let pods: Vec<Arc<DrainPod>> = state.pods.iter().map(|pod| Arc::new(DrainPod::from(pod))).collect();
    let steady_now = SteadyTime::default();
    let mut attempts = std::collections::HashMap::new();
    if let (Some(answer), Some(uid)) = (&state.answer, pods.first().map(|pod| pod.uid.to_string())) {
        let mut attempt = Attempt::default();
        attempt.begin(steady_now);
        attempt.end(EvictionOutcome::from(answer), steady_now);
        attempts.insert(uid, attempt);
    }
    let observed = ClusterState {
        node: state.node.clone().map(Arc::new),
        lease: state.lease.map(Arc::new),
        pods: Some(pods),
        budgets: Budgets::from_objects(&state.budgets),
        volumes: NodeVolumes {
            attachments: state.attachments.into_iter().map(Arc::new).collect(),
            is_complete: true,
            ..NodeVolumes::default()
        },
        competing: state.competing.into_iter().map(Arc::new).collect(),
        batch: StartBatch { age: StartBatch::MAX_DELAY, ..StartBatch::default() },
        node_conditions: true,
        steady_now,
        attempts,
        ..ClusterState::default()
    };
    for pod in &state.pods {
        let _ = Resources::of_pod(pod);
    }
    let mut maintenance = state.maintenance;
    // The second decision is made with the status that the first one wrote.
    for _ in 0..2 {
        let decision = decide(&maintenance, &observed, state.now);
        if let (Some(NodePatch(patch)), Some(node)) = (&decision.node, &observed.node) {
            changes_only_own_marks(patch, node);
        }
        let uids: Vec<&str> = decision.evictions.iter().map(|eviction| &*eviction.pod.uid).collect();
        let unique: std::collections::HashSet<&&str> = uids.iter().collect();
        assert!(
            maintenance.metadata.deletion_timestamp.is_none() || uids.is_empty(),
            "evicts while stopping"
        );
        assert!(unique.len() <= observed.pods.as_ref().map_or(0, Vec::len), "evicts pods that are not there");
        let Some(status) = decision.status else { break };
        can_be_stored(&status);
        maintenance.status = Some(status);
    }
    true
}

fn can_be_stored(status: &NodeMaintenanceStatus) {
    let written = serde_json::to_value(status).expect("a status can be written");
    let read: NodeMaintenanceStatus = serde_json::from_value(written).expect("a status can be read");
    assert!(read == *status, "a status changes when it is stored: {status:?}");
    assert!(status.blocked_pods.len() <= 50, "{} blocked pods", status.blocked_pods.len());
    let attached = status.attached_volumes.as_ref().map_or(0, Vec::len);
    assert!(attached <= 50, "{attached} attached volumes");
    let waiting = status.waiting_pods.as_ref().map_or(0, Vec::len);
    assert!(waiting <= 50, "{waiting} waiting pods");
    assert!((0..=100).contains(&status.drain_progress), "{} %", status.drain_progress);
    for pod in &status.blocked_pods {
        assert!(pod.message.len() <= MAX_MESSAGE, "a message of {} bytes", pod.message.len());
    }
}

fn changes_only_own_marks(patch: &Value, node: &Node) {
    for (field, own) in [("labels", EXCLUDE_LABEL), ("annotations", UNDO_ANNOTATION)] {
        let changed = patch["metadata"][field].as_object().into_iter().flatten();
        for (key, _) in changed {
            assert_eq!(key, own, "a patch changes {field} of others");
        }
    }
    let own = [DRAIN_TAINT, UNSCHEDULABLE_TAINT];
    let of_others =
        |taint: &&Taint| !own.contains(&taint.key.as_str()) && !taint.key.starts_with("kubevirt.io/drain");
    let before: Vec<&Taint> =
        node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).filter(of_others).collect();
    if let Some(taints) = patch["spec"].get("taints") {
        let after: Vec<Taint> = serde_json::from_value(taints.clone()).unwrap_or_default();
        assert_eq!(
            after.iter().filter(of_others).collect::<Vec<_>>(),
            before,
            "a patch changes taints of others"
        );
    }
}

/// A `Status` of any content has one outcome, which is accepted only if the code says so.
pub fn eviction_answer(data: &[u8]) -> bool {
    let Ok(status) = serde_json::from_slice::<Status>(data) else { return false };
    let outcome = EvictionOutcome::from(&status);
    assert!(!outcome.as_str().is_empty());
    let is_success = (200..=299).contains(&status.code);
    assert!(outcome != EvictionOutcome::Accepted || is_success, "{} is accepted", status.code);
    assert!(outcome != EvictionOutcome::Gone || [404, 409].contains(&status.code), "{} is gone", status.code);
    let mut attempt = Attempt::default();
    attempt.begin(SteadyTime::default());
    attempt.end(outcome, SteadyTime::default());
    let _ = (attempt.next_try(), attempt.unbroken_since(SteadyTime::default()));
    true
}

/// A body of any content is read or refused, an error names what is wrong, and the response can be sent.
pub fn admission_review(data: &[u8]) -> bool {
    let now = Timestamp::UNIX_EPOCH;
    let (uid, answer) = match review::read(data) {
        Ok(request) => {
            let live = LiveState::default();
            let decision = match &request.change {
                RequestedChange::Create(maintenance) => admission::create(maintenance, &live, now),
                RequestedChange::Update(both) => admission::update(&both.0, &both.1, &live, now),
                RequestedChange::Other => admission::AdmissionDecision::default(),
            };
            (request.uid, ReviewAnswer::Reviewed(decision))
        }
        Err(InvalidReview::NoMaintenance { uid, reason }) => (uid, ReviewAnswer::Invalid(reason.to_string())),
        Err(InvalidReview::NoReview(reason)) => {
            assert!(!reason.is_empty());
            return false;
        }
    };
    let response = serde_json::to_value(review::answer(&uid, &answer)).expect("a response can be written");
    let message = response.pointer("/response/status/message").and_then(Value::as_str).unwrap_or_default();
    assert!(!message.contains(char::is_control), "{message:?}");
    true
}

/// Texts of any content: quantities, selectors, names and undo records.
pub fn text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let _ = quantity::thousandths(text);
    if let Err(error) = selector::parse(text) {
        assert!(!error.is_empty());
    }
    if node::is_valid_name(text) {
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{text:?}");
    }
    true
}
