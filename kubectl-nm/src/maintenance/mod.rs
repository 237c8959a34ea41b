//! What a `NodeMaintenance` amounts to, for people.
//!
//! Objects may come from this project's reconciler or from the node-maintenance-operator, whose statuses know neither
//! conditions nor counts: everything here makes do with what there is.

pub(crate) mod cache;
pub(crate) mod changes;
pub(crate) mod request;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use nm_shared::api::names::FINALIZER;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase, PodCounts};

use crate::terminal::text::{Line, Style};

/// Seconds after which a maintenance that nobody has taken up is said to be so.
pub(crate) const TAKEN_UP_WITHIN: i64 = 15;

/// Where a maintenance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has taken it up yet.
    Requested,
    /// It waits for its turn.
    Pending,
    /// Pods are being moved.
    Running,
    /// Every pod that was to go is gone.
    Drained,
    /// It was given up.
    Failed,
    /// The object is being deleted: the node is being given back.
    Stopping,
}

impl Standing {
    /// Where a maintenance stands. The condition `Drained` decides over the phase, unless it is about an older spec.
    pub(crate) fn of(maintenance: &NodeMaintenance) -> Self {
        if maintenance.metadata.deletion_timestamp.is_some() {
            return Self::Stopping;
        }
        let drained = condition(maintenance, "Drained").map(|condition| {
            let seen = condition.observed_generation.or(maintenance.metadata.generation);
            condition.status == "True" && seen >= maintenance.metadata.generation
        });
        match (status(maintenance).phase, drained) {
            (Some(Phase::Failed), _) => Self::Failed,
            (_, Some(true)) | (Some(Phase::Succeeded), None) => Self::Drained,
            (Some(Phase::Pending), _) => Self::Pending,
            (Some(Phase::Running | Phase::Succeeded), _) => Self::Running,
            (None, _) => Self::Requested,
        }
    }

    /// The word for it; where there is a phase of that meaning, the phase.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Requested => "Requested",
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Drained => "Succeeded",
            Self::Failed => "Failed",
            Self::Stopping => "Stopping",
        }
    }

    /// How it looks.
    pub(crate) fn style(self) -> Style {
        match self {
            Self::Requested | Self::Pending | Self::Running | Self::Stopping => Style::Busy,
            Self::Drained => Style::Good,
            Self::Failed => Style::Bad,
        }
    }
}

/// The node that it is for.
pub(crate) fn node(maintenance: &NodeMaintenance) -> &str {
    &maintenance.spec.node_name
}

/// The object's uid; the server gives one to every object.
pub(crate) fn uid(maintenance: &NodeMaintenance) -> String {
    maintenance.uid().unwrap_or_default()
}

/// The condition of that type.
pub(crate) fn condition<'a>(maintenance: &'a NodeMaintenance, type_: &str) -> Option<&'a Condition> {
    maintenance.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

/// How many pods are still to go. Where nothing is counted, the pending ones are listed.
pub(crate) fn pods_to_go(status: &NodeMaintenanceStatus) -> i32 {
    let counts = &status.pod_counts;
    let counted = counts.evicting + counts.terminating + counts.blocked + counts.migrating + counts.waiting;
    if counted > 0 { counted } else { i32::try_from(status.pending_pods.len()).unwrap_or(i32::MAX) }
}

/// One line that says where the maintenance stands and how far it is.
pub(crate) fn headline(maintenance: &NodeMaintenance) -> Line {
    let standing = Standing::of(maintenance);
    let line = Line::default().with(standing.style(), standing.word());
    let status = status(maintenance);
    match standing {
        Standing::Requested => line.and(": nothing has taken it up yet"),
        Standing::Pending | Standing::Failed => line.and(because(maintenance, status)),
        Standing::Running => {
            line.and(format!(" {}%: {}{}", status.drain_progress, to_go(status), moved(status, ", ")))
        }
        Standing::Drained => line.and(match moved(status, ": drained, ") {
            moved if moved.is_empty() => String::from(": drained, there was no pod to move"),
            moved => moved,
        }),
        Standing::Stopping => line.and(format!(": {}", ending(maintenance))),
    }
}

/// What holds an object that is being deleted: nm-reconciler, until it has given the node back, or then somebody else.
pub(crate) fn ending(maintenance: &NodeMaintenance) -> String {
    let finalizers = maintenance.finalizers();
    if finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return String::from("the node is being given back");
    }
    format!("the node is given back; held by {}", finalizers.join(", "))
}

/// `6 pods to go (3 evicting, 1 blocked)`.
fn to_go(status: &NodeMaintenanceStatus) -> String {
    let counts = &status.pod_counts;
    let kinds = [
        (counts.evicting, "evicting"),
        (counts.terminating, "terminating"),
        (counts.migrating, "migrating"),
        (counts.waiting, "waiting"),
        (counts.blocked, "blocked"),
    ];
    let kinds: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let pods = pods(pods_to_go(status));
    if kinds.is_empty() { format!("{pods} to go") } else { format!("{pods} to go ({})", kinds.join(", ")) }
}

/// How many pods are gone, after a separator; nothing if none is.
fn moved(status: &NodeMaintenanceStatus, separator: &str) -> String {
    let counts = status.pod_counts;
    let gone =
        if counts == PodCounts::default() { status.eviction_pods - pods_to_go(status) } else { counts.gone };
    if gone > 0 { format!("{separator}{} moved", pods(gone)) } else { String::new() }
}

/// Why it waits or failed, after a colon.
fn because(maintenance: &NodeMaintenance, status: &NodeMaintenanceStatus) -> String {
    let drained = condition(maintenance, "Drained").map(|condition| condition.message.as_str());
    match [Some(status.last_error.as_str()), drained].into_iter().flatten().find(|text| !text.is_empty()) {
        Some(why) => format!(": {why}"),
        None => String::new(),
    }
}

fn pods(count: i32) -> String {
    if count == 1 { String::from("1 pod") } else { format!("{count} pods") }
}

/// The status, or an empty one for an object that has none yet.
pub(crate) fn status(maintenance: &NodeMaintenance) -> &NodeMaintenanceStatus {
    static NONE: std::sync::LazyLock<NodeMaintenanceStatus> =
        std::sync::LazyLock::new(NodeMaintenanceStatus::default);
    maintenance.status.as_ref().unwrap_or(&NONE)
}

/// Objects for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use serde_json::{Value, json};

    use super::NodeMaintenance;

    /// An object named like its node, with uid `uid-<node>` and that status.
    pub(crate) fn with_status(node: &str, status: Value) -> NodeMaintenance {
        let mut object = requested(node);
        object.status = serde_json::from_value(status).unwrap();
        object
    }

    /// An object that nobody has taken up.
    pub(crate) fn requested(node: &str) -> NodeMaintenance {
        named(node, node, &format!("uid-{node}"))
    }

    /// An object for that node with a name and uid of its own.
    pub(crate) fn named(name: &str, node: &str, uid: &str) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "kind": "NodeMaintenance",
            "metadata": {
                "name": name, "uid": uid, "generation": 1, "resourceVersion": "1",
                "creationTimestamp": "2026-01-02T03:04:05Z",
            },
            "spec": {"nodeName": node},
        }))
        .unwrap()
    }

    /// The object while it is being deleted.
    pub(crate) fn stopping(mut object: NodeMaintenance) -> NodeMaintenance {
        object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
        object.metadata.finalizers = Some(vec![nm_shared::api::names::FINALIZER.to_owned()]);
        object
    }

    /// A status in the middle of a drain with one blocked pod.
    pub(crate) fn running(progress: i32, blocked: &[(&str, &str)]) -> Value {
        let pods: Vec<Value> = blocked
            .iter()
            .map(|(name, message)| {
                json!({
                    "namespace": "shop", "name": name, "reason": "DisruptionBudget", "message": message,
                    "since": "2026-01-02T03:04:05Z", "attempts": 3,
                })
            })
            .collect();
        json!({
            "phase": "Running", "drainProgress": progress, "evictionPods": 10, "totalpods": 12,
            "blockedPods": pods,
            "podCounts": {"evicting": 2, "terminating": 1, "blocked": blocked.len(), "gone": 4, "skipped": 2},
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drained(status: &str, observed: i64) -> serde_json::Value {
        json!([{"type": "Drained", "status": status, "observedGeneration": observed, "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    }

    #[test]
    fn conditions_decide_unless_they_are_stale_or_missing() {
        for (status, standing) in [
            (json!({}), Standing::Requested),
            (json!({"phase": "Pending"}), Standing::Pending),
            (json!({"phase": "Running"}), Standing::Running),
            (json!({"phase": "Succeeded"}), Standing::Drained),
            (json!({"phase": "Succeeded", "conditions": drained("True", 1)}), Standing::Drained),
            (json!({"phase": "Succeeded", "conditions": drained("True", 0)}), Standing::Running),
            (json!({"phase": "Succeeded", "conditions": drained("False", 1)}), Standing::Running),
            (json!({"phase": "Failed", "conditions": drained("False", 1)}), Standing::Failed),
        ] {
            let object = fixture::with_status("n1", status.clone());
            assert_eq!(Standing::of(&object), standing, "{status}");
            assert_eq!(Standing::of(&fixture::stopping(object)), Standing::Stopping);
        }
        assert_eq!(Standing::of(&fixture::requested("n1")), Standing::Requested);
    }

    #[test]
    fn headlines_say_how_far_it_is() {
        for (status, expected) in [
            (json!({}), "Requested: nothing has taken it up yet"),
            (json!({"phase": "Pending"}), "Pending"),
            (json!({"phase": "Pending", "lastError": "the lease is held"}), "Pending: the lease is held"),
            (
                fixture::running(40, &[("a", "m")]),
                "Running 40%: 4 pods to go (2 evicting, 1 terminating, 1 blocked), 4 pods moved",
            ),
            (
                json!({"phase": "Running", "drainProgress": 50, "evictionPods": 2, "pendingPods": ["a"]}),
                "Running 50%: 1 pod to go, 1 pod moved",
            ),
            (json!({"phase": "Succeeded", "evictionPods": 3}), "Succeeded: drained, 3 pods moved"),
            (json!({"phase": "Succeeded"}), "Succeeded: drained, there was no pod to move"),
            (
                json!({"phase": "Failed", "lastError": "nodes \"x\" not found"}),
                "Failed: nodes \"x\" not found",
            ),
        ] {
            assert_eq!(headline(&fixture::with_status("n1", status)).to_string(), expected);
        }
        let stopping = fixture::stopping(fixture::requested("n1"));
        assert_eq!(headline(&stopping).to_string(), "Stopping: the node is being given back");
        let mut held = stopping;
        held.metadata.finalizers = Some(vec!["a.example.com/x".into(), "b.example.com/y".into()]);
        let said = "Stopping: the node is given back; held by a.example.com/x, b.example.com/y";
        assert_eq!(headline(&held).to_string(), said);
    }
}
