//! Why a maintenance does not get on: each cause with what it concerns, since when, and the command that would free it.
//!
//! All of it is read from the object, which the reconciler keeps current, so nobody needs a right on nodes or pods to
//! understand what holds them up; whether somebody keeps it current is what the leader's lease tells those who may see it.
//! Pods that the same thing holds are one cause.

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::api::condition::ConditionReason;
use nm_shared::api::names::{FINALIZER, LEASE_NAMESPACE, OVERRIDE_QUORUM_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_shared::{BlockedPod, NodeMaintenance};

use crate::explain::remedy::{self, Case, Remedy, quoted, refused_user};
use crate::install::leadership::Leadership;
use crate::maintenance::{PICKUP_TIMEOUT, State, condition, node, status};

/// How many objects, sentences and commands of one cause are listed.
const LISTED: usize = 3;

/// One thing that stands in the way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    /// What it is, with names and numbers: a sentence as a rule, several where pods are held by the like of it.
    pub(crate) what: Vec<String>,
    /// The pods that it holds.
    pub(crate) pods: Vec<String>,
    /// Since when.
    pub(crate) since: Option<Timestamp>,
    /// How many evictions it has refused.
    pub(crate) refusals: i32,
    /// What to do, in a sentence without its full stop.
    pub(crate) advice: String,
    /// The commands for a shell that do it, or show what comes before.
    pub(crate) commands: Vec<String>,
    /// Whether it goes away by itself.
    pub(crate) passes: bool,
}

/// What stands in the way of a maintenance, what concerns all of the node first. `kubectl` is how that is called for
/// this cluster.
pub(crate) fn causes(maintenance: &NodeMaintenance, kubectl: &str, now: Timestamp) -> Vec<Cause> {
    let of_the_node = match State::of(maintenance) {
        State::Requested => Some(not_taken_up(maintenance, kubectl, now)),
        State::Stopping => Some(not_let_go(maintenance, kubectl, now)),
        State::Queued | State::Failed => Some(by_condition(maintenance, "Drained", kubectl)),
        State::Draining | State::Blocked | State::Drained => condition(maintenance, "Degraded")
            .filter(|degraded| degraded.status == "True")
            .map(|_| by_condition(maintenance, "Degraded", kubectl)),
    };
    let mut causes: Vec<Cause> = of_the_node.into_iter().collect();
    // What was refused before no longer matters to a node that is given back.
    if State::of(maintenance) != State::Stopping {
        causes.extend(of_pods(maintenance, kubectl));
    }
    causes
}

/// What it comes to that nobody works on a maintenance any more, which its status cannot tell; nothing where that would not
/// be felt, or is told already.
pub(crate) fn abandoned(
    maintenance: &NodeMaintenance,
    leadership: Leadership,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let Leadership::Lapsed(since) = leadership else { return None };
    let is_felt =
        matches!(State::of(maintenance), State::Queued | State::Draining | State::Blocked | State::Failed);
    is_felt.then(|| no_reconciler("No reconciler leads, so nobody works on it.", Some(since), kubectl, now))
}

/// How many pods are held beyond those that the status lists.
pub(crate) fn unlisted(maintenance: &NodeMaintenance) -> usize {
    if State::of(maintenance) == State::Stopping {
        return 0;
    }
    let status = status(maintenance);
    usize::try_from(status.pod_counts.blocked).unwrap_or(0).saturating_sub(status.blocked_pods.len())
}

fn not_taken_up(maintenance: &NodeMaintenance, kubectl: &str, now: Timestamp) -> Cause {
    let since = maintenance.creation_timestamp().map(|at| at.0);
    no_reconciler("No reconciler has taken it up yet.", since, kubectl, now)
}

/// What a reconciler does within moments, if there is one.
fn no_reconciler(what: &str, since: Option<Timestamp>, kubectl: &str, now: Timestamp) -> Cause {
    let is_new = |since: Timestamp| now.duration_since(since).as_secs() < PICKUP_TIMEOUT;
    Cause {
        what: vec![what.to_owned()],
        since,
        advice: String::from("That takes a moment; if it does not pass, see whether nm-reconciler runs"),
        commands: vec![format!("{kubectl} get pods -A -l app.kubernetes.io/component=reconciler -o wide")],
        passes: since.is_some_and(is_new),
        ..Cause::default()
    }
}

fn not_let_go(maintenance: &NodeMaintenance, kubectl: &str, now: Timestamp) -> Cause {
    let since = maintenance.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let finalizers = maintenance.finalizers();
    if finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return no_reconciler("Its reconciler has not given the node back yet.", since, kubectl, now);
    }
    let name = quoted(&maintenance.name_any());
    Cause {
        what: vec![format!(
            "The node is given back, but finalizers keep the object: {}.",
            finalizers.join(", ")
        )],
        since,
        advice: String::from(
            "Whoever set its finalizers must finish; if they are gone for good, remove them",
        ),
        commands: vec![format!(
            "{kubectl} patch nm {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
        )],
        ..Cause::default()
    }
}

/// What the condition of that type tells; the medik8s operator, which writes none, tells by its last error.
fn by_condition(maintenance: &NodeMaintenance, type_: &str, kubectl: &str) -> Cause {
    let condition = condition(maintenance, type_);
    let reason = condition.map_or("", |condition| condition.reason.as_str());
    let texts =
        [condition.map(|condition| condition.message.as_str()), Some(&*status(maintenance).last_error)];
    let said = texts.into_iter().flatten().find(|text| !text.is_empty()).unwrap_or("It does not say why");
    let (advice, command) = remedy_of(reason, said, maintenance, kubectl);
    Cause {
        what: vec![format!("{}.", said.trim_end_matches('.'))],
        since: condition.map(|condition| condition.last_transition_time.0),
        advice,
        commands: vec![command],
        passes: reason == ConditionReason::MaxUnavailable.as_str(),
        ..Cause::default()
    }
}

/// What to do where a condition has that reason; `said` is its message.
fn remedy_of(reason: &str, said: &str, maintenance: &NodeMaintenance, kubectl: &str) -> (String, String) {
    use ConditionReason as Reason;
    let (name, node) = (quoted(&maintenance.name_any()), node(maintenance));
    let is = |wanted: Reason| reason == wanted.as_str();
    let patch = |drain: &str| {
        format!("{kubectl} patch nm {name} --type=merge -p '{{\"spec\":{{\"drain\":{drain}}}}}'")
    };
    let (advice, command) = if is(Reason::MaxUnavailable) {
        (
            "It only waits in line, and begins when others are given back or Ready again; these have the places",
            format!("{kubectl} get nm -o wide"),
        )
    } else if is(Reason::QuorumAtRisk) {
        (
            "Bring the other control-plane nodes back first; if this one must go all the same, say so",
            format!("{kubectl} annotate nm {name} {OVERRIDE_QUORUM_ANNOTATION}=true"),
        )
    } else if is(Reason::LeaseHeld) || is(Reason::LeaseLost) {
        (
            "Its holder must be done with the node; see who that is, and until when",
            format!("{kubectl} -n {LEASE_NAMESPACE} get lease {} -o yaml", quoted(&node_lease::name(node))),
        )
    } else if is(Reason::CordonContested) {
        (
            "Find the controller or the person that uncordons the node, and stop it; the managed fields show who writes to it",
            format!("{kubectl} get node {} -o yaml --show-managed-fields", quoted(node)),
        )
    } else if is(Reason::DuplicateMaintenance) {
        (
            "The other one serves the node; delete this one, or the other to have this one take over",
            format!("{kubectl} delete nm {name}"),
        )
    } else if is(Reason::NodeNotFound) {
        (
            "It goes on if a node of that name appears; delete it if none will",
            format!("{kubectl} delete nm {name}"),
        )
    } else if is(Reason::TimedOut) {
        ("Give it all the time that it needs, and it goes on", patch("{\"timeoutSeconds\":0}"))
    } else if is(Reason::InvalidDrain) {
        ("Correct the selector of spec.drain, or move all pods", patch("{\"podSelector\":null}"))
    } else if is(Reason::MissingRights)
        && let Some(granted) = remedy::granting(kubectl, said)
    {
        return granted;
    } else if is(Reason::MissingRights) {
        (
            "Give nm-reconciler the rights of the manifests; these it has",
            format!("{kubectl} auth can-i --list --as={}", quoted(refused_user(said))),
        )
    } else {
        ("See what its events say", format!("{kubectl} describe nm {name}"))
    };
    (advice.to_owned(), command)
}

/// The causes that hold single pods, in the order in which the status lists them.
fn of_pods(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut groups: Vec<(String, Vec<&BlockedPod>)> = Vec::new();
    for pod in &status(maintenance).blocked_pods {
        let obstacle = remedy::obstacle(&pod.namespace, pod.reason, &pod.message);
        match groups.iter_mut().find(|(known, _)| *known == obstacle) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((obstacle, vec![pod])),
        }
    }
    groups.into_iter().map(|(_, pods)| holding(&pods, node(maintenance), kubectl)).collect()
}

fn holding(pods: &[&BlockedPod], node: &str, kubectl: &str) -> Cause {
    let remedies: Vec<Remedy> = pods.iter().map(|pod| remedy_of_pod(pod, node, kubectl)).collect();
    let short = |pod: &&BlockedPod| remedy::in_short(&pod.namespace, pod.reason, &pod.message);
    Cause {
        what: few(pods.iter().map(short).map(|text| format!("{}.", text.trim_end_matches('.')))),
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        since: pods.iter().map(|pod| pod.since.0).min(),
        refusals: pods.iter().map(|pod| pod.attempts).sum(),
        advice: remedies.first().map(|remedy| remedy.advice.clone()).unwrap_or_default(),
        commands: few(remedies.into_iter().map(|remedy| remedy.command)),
        passes: false,
    }
}

fn remedy_of_pod(pod: &BlockedPod, node: &str, kubectl: &str) -> Remedy {
    let (namespace, name, message) = (pod.namespace.as_str(), pod.name.as_str(), pod.message.as_str());
    remedy::remedy(&Case { kubectl, node, namespace, name, owner: None, reason: pod.reason, message })
}

/// The first few that differ.
fn few(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut few: Vec<String> = Vec::new();
    for text in texts {
        if few.len() < LISTED && !few.contains(&text) {
            few.push(text);
        }
    }
    few
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
