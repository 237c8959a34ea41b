//! What happened in a life, and the invariants that it has to satisfy.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::{LEASES, NODES};
use kube_sandbox::store::Change;
use nm_shared::api::names::{LEASE_HOLDER, LEASE_NAMESPACE};
use nm_tests::invariants::{
    NodeMarks, Removal, TimedRequest, Violation, cordoned_first, node_is_as_before, one_removal_at_a_time,
    one_writer, others_are_untouched, removal_is_wanted, undo_record_is_truthful,
};
use serde_json::Value;

use crate::replica::Sent;
use crate::world::{MAINTENANCES, World};

/// Records every change of a node.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Change>>>);

impl Recorder {
    /// Records from now on.
    pub(crate) fn start(cluster: &Arc<Cluster>) -> Self {
        let recorder = Self(Arc::default());
        let (changes, cluster) = (recorder.0.clone(), cluster.clone());
        let mut revisions = cluster.store.subscribe();
        let mut seen = *revisions.borrow_and_update();
        tokio::spawn(async move {
            while revisions.changed().await.is_ok() {
                let revision = *revisions.borrow_and_update();
                // After a restore the same revisions follow again.
                seen = seen.min(revision);
                let since = seen;
                let new: Vec<Change> = cluster.store.read(|state| {
                    seen = state.revision();
                    state.changes_since(&NODES, since).into_iter().flatten().collect()
                });
                changes.lock().unwrap().extend(new);
            }
        });
        recorder
    }

    fn changes(&self) -> Vec<Change> {
        self.0.lock().unwrap().clone()
    }
}

/// For how long a replica may act on what it saw before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness(pub(crate) SignedDuration);

impl World {
    /// Checks what happened so far.
    pub(crate) fn check_history(&self, lateness: Lateness) -> Vec<String> {
        let mut violations = self.failures();
        let mut note =
            |result: Result<(), Violation>| violations.extend(result.err().map(|it| it.to_string()));
        let (before, by_person) = (self.before(), self.by_person());
        for change in self.recorder.changes() {
            let Some(after) = change.after.as_ref().map(|node| node_of(node)) else { continue };
            let name = after.metadata.name.clone().unwrap_or_default();
            let unmarked = NodeMarks::none();
            note(undo_record_is_truthful(&after, before.get(&name).unwrap_or(&unmarked)));
            if let Some(earlier) = change.before.as_ref().filter(|_| !by_person.contains(&change.revision)) {
                note(others_are_untouched(&after, &node_of(earlier)));
            }
        }
        let writes = self.writes.all();
        let now = self.now();
        let removals: Vec<&Sent> = writes.iter().filter(|sent| is_removal(sent)).collect();
        for sent in &removals {
            if matches!(sent.code, 200 | 201) && sent.context.is_object() {
                note(removal_is_wanted(&removal(sent, lateness)));
                // Somebody may have removed the marks a moment ago.
                let last_touched = last_touched(&self.recorder.changes(), &by_person, sent);
                if !last_touched {
                    note(cordoned_first(&node_of(&sent.context["node"])));
                }
            }
        }
        let timed = |key: String, sent: &Sent| TimedRequest {
            key,
            began: sent.began,
            ended: sent.ended.unwrap_or(now),
        };
        let in_flight: Vec<TimedRequest> =
            removals.iter().map(|sent| timed(precondition(sent).unwrap_or_default(), sent)).collect();
        note(one_removal_at_a_time(&in_flight));
        let terms: Vec<TimedRequest> =
            writes.iter().map(|sent| timed(format!("replica {}", sent.replica), sent)).collect();
        note(one_writer(&terms));
        violations
    }

    /// Checks that nothing is left of any maintenance.
    pub(crate) fn check_end(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let before = self.before();
        self.read(|state| {
            for found in state.list(&MAINTENANCES, None) {
                violations.push(format!("a maintenance is left: {}", found["metadata"]));
            }
            for node in state.list(&NODES, None) {
                let node = node_of(&node);
                let name = node.metadata.name.clone().unwrap_or_default();
                let unmarked = NodeMarks::none();
                let result = node_is_as_before(&node, before.get(&name).unwrap_or(&unmarked));
                violations.extend(result.err().map(|it| it.to_string()));
            }
            for lease in state.list(&LEASES, Some(LEASE_NAMESPACE)) {
                if lease["spec"]["holderIdentity"] == LEASE_HOLDER {
                    violations.push(format!("a lease is left: {}", lease["metadata"]["name"]));
                }
            }
        });
        violations
    }
}

fn node_of(node: &Value) -> Node {
    serde_json::from_value(node.clone()).unwrap()
}

fn is_removal(sent: &Sent) -> bool {
    sent.path.ends_with("/eviction") || (sent.method == "DELETE" && sent.path.contains("/pods/"))
}

/// The uid in the precondition.
fn precondition(sent: &Sent) -> Option<String> {
    let options = if sent.method == "DELETE" { &sent.body } else { &sent.body["deleteOptions"] };
    options["preconditions"]["uid"].as_str().map(str::to_owned)
}

fn removal(sent: &Sent, lateness: Lateness) -> Removal {
    let ended =
        |metadata: &Value| -> Option<Timestamp> { metadata["deletionTimestamp"].as_str()?.parse().ok() };
    let maintenances = sent.context["maintenances"].as_array().into_iter().flatten();
    let mut in_maintenance = maintenances
        .map(|metadata| ended(metadata).is_none_or(|at| sent.began.duration_since(at) <= lateness.0));
    Removal {
        precondition: precondition(sent),
        pod: sent.context["pod"].as_str().unwrap_or_default().to_owned(),
        in_maintenance: in_maintenance.any(|is_it| is_it),
    }
}

/// Whether the last change of the node before a request was made by a person.
fn last_touched(changes: &[Change], by_person: &[u64], sent: &Sent) -> bool {
    let version = sent.context["node"]["metadata"]["resourceVersion"].as_str();
    let version: u64 = version.and_then(|text| text.parse().ok()).unwrap_or_default();
    let name = &sent.context["node"]["metadata"]["name"];
    let of_node = changes
        .iter()
        .filter(|change| change.after.as_ref().is_some_and(|after| after["metadata"]["name"] == *name));
    // The sandbox writes the taint of a cordon after the person.
    of_node
        .filter(|change| change.revision <= version)
        .rev()
        .take(2)
        .any(|change| by_person.contains(&change.revision))
}
