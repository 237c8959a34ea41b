//! What happened in a life, and the invariants that it has to satisfy.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::{LEASES, NODES};
use kube_sandbox::store::{Change, Object};
use nm_shared::Group;
use nm_shared::api::names::{LEASE_HOLDER, LEASE_NAMESPACE};
use nm_shared::drain::node_patch::is_cordoned;
use nm_tests::invariants::{
    NodeMarks, Removal, TimedRequest, Violation, cordoned_first, counted_first, node_is_as_before,
    one_removal_at_a_time, one_writer, others_are_untouched, removal_is_wanted, undo_record_is_truthful,
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

    pub(crate) fn changes(&self) -> Vec<Change> {
        self.0.lock().unwrap().clone()
    }

    fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// For how long a replica may act on what it saw before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness(pub(crate) SignedDuration);

impl World {
    /// Forgets what happened so far, while no request is in flight.
    pub(crate) fn forget(&self) {
        self.recorder.forget();
        self.writes.forget();
    }

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
        violations.extend(self.check_requests(lateness));
        violations
    }

    /// Checks what the replicas sent so far.
    pub(crate) fn check_requests(&self, lateness: Lateness) -> Vec<String> {
        let mut violations = Vec::new();
        let mut note =
            |result: Result<(), Violation>| violations.extend(result.err().map(|it| it.to_string()));
        let (writes, now) = (self.writes.all(), self.now());
        let (changes, by_person) = (self.recorder.changes(), self.by_person());
        let removals: Vec<&Sent> = writes.iter().filter(|sent| is_removal(sent)).collect();
        for sent in &removals {
            if is_done(sent) && sent.context.is_object() {
                note(removal_is_wanted(&removal(sent, lateness)));
                note(counted_first(sent.context["hasStatus"] == true, &sent.path));
                if !are_marks_removed_by_person(&changes, &by_person, sent) {
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

    /// Checks that nothing is left of any maintenance. What a node was before is none if nothing knows it any more.
    pub(crate) fn check_end(&self, before: impl Fn(&str) -> Option<NodeMarks>) -> Vec<String> {
        let mut violations = Vec::new();
        self.read(|state| {
            for found in state.list(&MAINTENANCES, None) {
                violations.push(format!("a maintenance is left: {}", found["metadata"]));
            }
            for node in state.list(&NODES, None) {
                let node = node_of(&node);
                let name = node.metadata.name.clone().unwrap_or_default();
                let result = before(&name).map(|before| node_is_as_before(&node, &before));
                violations.extend(result.and_then(Result::err).map(|it| it.to_string()));
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

pub(crate) fn node_of(node: &Value) -> Node {
    serde_json::from_value(node.clone()).unwrap()
}

/// Whether a request took effect, and was answered.
pub(crate) fn is_done(sent: &Sent) -> bool {
    matches!(sent.code, 200 | 201)
}

pub(crate) fn is_removal(sent: &Sent) -> bool {
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

/// Whether a person removed marks from the node, which nobody has put back before the request.
fn are_marks_removed_by_person(changes: &[Change], by_person: &[u64], sent: &Sent) -> bool {
    let version = sent.context["node"]["metadata"]["resourceVersion"].as_str();
    let version: u64 = version.and_then(|text| text.parse().ok()).unwrap_or_default();
    let name = &sent.context["node"]["metadata"]["name"];
    let was_cordoned = |object: &Option<Object>| {
        object.as_ref().is_some_and(|node| is_cordoned(&node_of(node), Group::Medik8s))
    };
    let mut of_node = changes
        .iter()
        .filter(|change| change.after.as_ref().is_some_and(|after| after["metadata"]["name"] == *name))
        .filter(|change| change.revision <= version);
    of_node
        .rfind(|change| was_cordoned(&change.before) && !was_cordoned(&change.after))
        .is_some_and(|change| by_person.contains(&change.revision))
}
