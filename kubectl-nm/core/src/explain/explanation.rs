//! Why a maintenance makes no progress: each cause once, with what it concerns, since when, and one remedy.
//!
//! Everything comes from the object, which the reconciler keeps current, so a user needs no access to nodes or pods.
//! Whether a reconciler leads comes from the leader's lease. Pods that are blocked alike are one cause.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::api::names::{FINALIZER, LEASE_NAMESPACE, OVERRIDE_QUORUM_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_shared::drain::completion::CompletionFilter;
use nm_shared::{
    AttachedVolume, BlockedPod, NodeMaintenance, ReturnedPod, SurgingPod, WaitReason, WaitingPod,
};

use crate::client::reconciler_deployment::LABEL_SELECTOR;
use crate::explain::remedy::{self, Case, Remedy};
use crate::explain::returned_pods;
use crate::maintenance::changes::surge_progress;
use crate::maintenance::{
    Leadership, PICKUP_TIMEOUT, Reconcilers, State, attached_volumes, condition, degraded,
    error_without_details, kept_by_roll, node, pending_pods, reason, roll_name, status,
};
use crate::terminal::command_context::{nm_command, shell_quoted};

const MAX_EXAMPLES: usize = 3;

/// One cause why a maintenance makes no progress.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// What it is, with names and numbers: usually one sentence, several if pods are blocked by similar things.
    pub what: Vec<String>,
    /// The pods that it blocks or, if it passes, that the drain waits for.
    pub pods: Vec<String>,
    /// When it started, for pods when the first became blocked; `None` if unknown.
    pub since: Option<Timestamp>,
    /// Total number of refused evictions of its pods.
    pub refusals: i32,
    /// What to do, as a sentence without its full stop.
    pub advice: String,
    /// Commands to paste into a shell, with connection flags.
    pub commands: Vec<String>,
    /// Whether it is temporary or intended, so that the maintenance does not count as blocked by it.
    pub passes: bool,
    /// Whether its pods stay, so that the drain does not wait for them.
    pub stays: bool,
}

/// The causes, those that concern the whole node first. `kubectl` is the command with the flags for this cluster.
pub fn causes(
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let of_the_node = match State::of(maintenance) {
        State::Requested => {
            let since = maintenance.creation_timestamp().map(|at| at.0);
            Some(not_begun(since, reconcilers, kubectl, now))
        }
        State::Stopping => Some(not_let_go(maintenance, kubectl, now)),
        State::Planned | State::Paused => Some(suspended(maintenance, kubectl)),
        State::Queued | State::Failed => {
            let drained = condition(maintenance, ConditionType::Drained);
            Some(by_condition(maintenance, drained, reason(maintenance), kubectl))
        }
        State::Draining | State::Blocked | State::Drained => {
            by_degraded(maintenance, kubectl).or_else(|| by_last_error(maintenance, kubectl))
        }
    };
    let mut causes: Vec<Cause> = of_the_node.into_iter().collect();
    // Blocked pods no longer matter once the node returns to service.
    if State::of(maintenance) != State::Stopping {
        causes.extend(of_pods(maintenance, kubectl));
        causes.extend(of_volumes(maintenance, kubectl));
        causes.extend(completing(maintenance, kubectl));
        causes.extend(of_surges(maintenance, kubectl));
        causes.extend(returned(maintenance, kubectl));
    }
    causes
}

/// The cause that no reconciler leads, which the status cannot report. None if that does not matter to the maintenance, or if
/// [`causes`] has it already.
pub fn abandoned(
    maintenance: &NodeMaintenance,
    leadership: Leadership,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let Leadership::Lapsed(since) = leadership else { return None };
    let matters =
        matches!(State::of(maintenance), State::Queued | State::Draining | State::Blocked | State::Failed);
    matters.then(|| {
        no_reconciler("No reconciler leads, so the maintenance makes no progress.", Some(since), kubectl, now)
    })
}

/// How many pods are blocked beyond those that the status lists.
pub fn unlisted(maintenance: &NodeMaintenance) -> usize {
    if State::of(maintenance) == State::Stopping {
        return 0;
    }
    let status = status(maintenance);
    usize::try_from(status.pod_counts.blocked).unwrap_or(0).saturating_sub(status.blocked_pods.len())
}

/// The cause that a maintenance has not begun.
fn not_begun(since: Option<Timestamp>, reconcilers: &Reconcilers, kubectl: &str, now: Timestamp) -> Cause {
    match reconcilers.leadership {
        Leadership::Held => Cause {
            what: vec![String::from("nm-reconciler runs, but has not begun the maintenance.")],
            advice: String::from(
                "This usually takes a moment; if it takes longer, check the log of nm-reconciler",
            ),
            commands: vec![reconcilers.command(kubectl)],
            ..no_reconciler("", since, kubectl, now)
        },
        Leadership::Lapsed(since) => no_reconciler(
            "No reconciler leads, so the maintenance does not begin.",
            Some(since),
            kubectl,
            now,
        ),
        Leadership::Unknown => no_reconciler("nm-reconciler has not begun yet.", since, kubectl, now),
    }
}

/// The cause that a reconciler has not done something that it does within moments.
fn no_reconciler(what: &str, since: Option<Timestamp>, kubectl: &str, now: Timestamp) -> Cause {
    let is_new = |since: Timestamp| now.duration_since(since).as_secs() < PICKUP_TIMEOUT;
    Cause {
        what: vec![what.to_owned()],
        since,
        advice: String::from(
            "This usually takes a moment; if it takes longer, check whether nm-reconciler is running",
        ),
        commands: vec![format!("{kubectl} get pods -A -l {LABEL_SELECTOR} -o wide")],
        passes: since.is_some_and(is_new),
        ..Cause::default()
    }
}

/// Somebody wants it so: nothing is blocked.
fn suspended(maintenance: &NodeMaintenance, kubectl: &str) -> Cause {
    let what = match State::of(maintenance) {
        State::Planned => "The maintenance is planned: it was created suspended, and has not begun.",
        _ => "The maintenance is paused: no pod is evicted, and the node stays cordoned.",
    };
    let resume = match roll_name(maintenance) {
        // Resumed alone, the node would not wait for the gates and the limit of its roll.
        Some(roll) => format!("roll resume {}", shell_quoted(roll)),
        None => format!("resume {}", shell_quoted(node(maintenance))),
    };
    Cause {
        what: vec![what.to_owned()],
        since: condition(maintenance, ConditionType::Suspended)
            .map(|suspended| suspended.last_transition_time.0),
        advice: String::from("To continue, resume the maintenance"),
        commands: vec![nm_command(kubectl, &resume)],
        passes: true,
        ..Cause::default()
    }
}

fn not_let_go(maintenance: &NodeMaintenance, kubectl: &str, now: Timestamp) -> Cause {
    let since = maintenance.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let finalizers = maintenance.finalizers();
    if finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return no_reconciler(
            "The reconciler has not returned the node to service yet.",
            since,
            kubectl,
            now,
        );
    }
    if let Some(roll) = kept_by_roll(maintenance) {
        let roll = shell_quoted(roll);
        return Cause {
            what: vec![format!(
                "The node is back in service, and roll {roll} checks that it and its workloads stay healthy."
            )],
            since,
            advice: String::from("If nobody runs the roll, continue it, or abort it"),
            commands: ["resume", "abort"]
                .map(|verb| nm_command(kubectl, &format!("roll {verb} {roll}")))
                .into(),
            passes: true,
            ..Cause::default()
        };
    }
    let name = maintenance.name_any();
    let name = shell_quoted(&name);
    Cause {
        what: vec![format!(
            "The node is back in service, but finalizers keep the object: {}.",
            finalizers.join(", ")
        )],
        since,
        advice: String::from(
            "The owners of its finalizers must remove them; if they no longer exist, remove the finalizers",
        ),
        commands: vec![format!(
            "{kubectl} patch nm {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
        )],
        ..Cause::default()
    }
}

/// Why the reconciler is degraded, if `blockedPods` does not report it.
fn by_degraded(maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let degraded = degraded(maintenance)?;
    let said = match degraded.message.as_str() {
        "" => status(maintenance).last_error.as_str(),
        message => message,
    };
    Some(by_condition(maintenance, Some(degraded), said, kubectl))
}

/// What the status reports where it has no details, as it is.
fn by_last_error(maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let error = error_without_details(maintenance)?;
    let status = status(maintenance);
    if status.error_on_lease_count > 0 {
        let (advice, command) = remedy_of(Some(ConditionReason::LeaseHeld), maintenance, kubectl);
        return Some(Cause {
            what: vec![error.to_owned()],
            advice,
            commands: vec![command],
            ..Cause::default()
        });
    }
    Some(Cause {
        what: vec![error.to_owned()],
        pods: pending_pods(status),
        advice: String::from(
            "The status has no details of blocked pods. Check the budgets; `kubectl nm doctor` reports whether the CRD in the \
             cluster drops the details",
        ),
        commands: vec![format!("{kubectl} get pdb -A"), nm_command(kubectl, "doctor")],
        ..Cause::default()
    })
}

fn by_condition(
    maintenance: &NodeMaintenance,
    condition: Option<&Condition>,
    said: &str,
    kubectl: &str,
) -> Cause {
    let reason = condition.and_then(ConditionReason::of);
    let said = if said.is_empty() { "The status contains no reason" } else { said };
    let (advice, command) = remedy_of(reason, maintenance, kubectl);
    Cause {
        what: vec![format!("{}.", said.trim_end_matches('.'))],
        since: condition.map(|condition| condition.last_transition_time.0),
        advice,
        commands: vec![command],
        passes: reason == Some(ConditionReason::MaxUnavailable),
        ..Cause::default()
    }
}

fn remedy_of(
    reason: Option<ConditionReason>,
    maintenance: &NodeMaintenance,
    kubectl: &str,
) -> (String, String) {
    use ConditionReason as Reason;
    let (name, node) = (maintenance.name_any(), node(maintenance));
    let patch = |drain: &str| patch_drain(kubectl, &name, drain);
    let name = shell_quoted(&name);
    let (advice, command) = match reason {
        Some(Reason::MaxUnavailable) => (
            "The maintenance starts when other nodes return to service or become Ready; this lists all maintenances",
            format!("{kubectl} get nm -o wide"),
        ),
        Some(Reason::QuorumAtRisk) => (
            "First return the other control-plane nodes to service. To start despite the risk, override this check",
            format!("{kubectl} annotate nm {name} {OVERRIDE_QUORUM_ANNOTATION}=true"),
        ),
        Some(Reason::LeaseHeld | Reason::LeaseLost) => (
            "The maintenance waits for the holder of the node's lease; this shows the holder and when it expires",
            format!(
                "{kubectl} -n {LEASE_NAMESPACE} get lease {} -o yaml",
                shell_quoted(&node_lease::name(node))
            ),
        ),
        Some(Reason::CordonContested) => (
            "Find and stop the controller or the user that uncordons the node: managedFields show who changes the node",
            format!("{kubectl} get node {} -o yaml --show-managed-fields", shell_quoted(node)),
        ),
        Some(Reason::DuplicateMaintenance) => (
            "Another maintenance of this node is older: delete this one, or the older one so that this one starts",
            format!("{kubectl} delete nm {name}"),
        ),
        Some(Reason::NodeNotFound) => (
            "The maintenance starts once a node of this name exists; if there will be none, delete the maintenance",
            format!("{kubectl} delete nm {name}"),
        ),
        Some(Reason::TimedOut) => {
            ("Remove the timeout, and the drain continues", patch("{\"timeoutSeconds\":0}"))
        }
        Some(Reason::DetachTimedOut) => (
            "Find out why the CSI driver does not detach them before you switch the node off",
            format!("{kubectl} get volumeattachments"),
        ),
        Some(Reason::InvalidDrain) => {
            let drain = maintenance.spec.drain.clone().unwrap_or_default();
            let is_of_completion = CompletionFilter::new(&drain).is_err();
            let field = if is_of_completion { "waitForCompletion" } else { "podSelector" };
            (
                "Correct the selector in spec.drain, or remove it to move all pods",
                patch(&format!("{{\"{field}\":null}}")),
            )
        }
        Some(Reason::MissingAccess) => {
            return remedy::missing_access(kubectl, status(maintenance).forbidden.as_ref(), "--list");
        }
        Some(
            Reason::Cordoned
            | Reason::Drained
            | Reason::Evicting
            | Reason::Blocked
            | Reason::DetachingVolumes
            | Reason::WriteFailed
            | Reason::Planned
            | Reason::Paused
            | Reason::Resumed
            | Reason::AsExpected,
        )
        | None => ("Check its events", format!("{kubectl} describe nm {name}")),
    };
    (advice.to_owned(), command)
}

fn of_pods(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut groups: Vec<(String, Vec<&BlockedPod>)> = Vec::new();
    for pod in &status(maintenance).blocked_pods {
        let blocker = remedy::common_blocker(&pod.namespace, pod.reason, &pod.facts);
        match groups.iter_mut().find(|(known, _)| *known == blocker) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((blocker, vec![pod])),
        }
    }
    groups.into_iter().map(|(_, pods)| blocking(&pods, node(maintenance), kubectl)).collect()
}

/// What keeps volumes attached: each error of a driver once, and the volumes without an error together.
fn of_volumes(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut groups: Vec<(Option<&str>, Vec<&AttachedVolume>)> = Vec::new();
    for volume in attached_volumes(maintenance) {
        let error = volume.error.as_deref();
        match groups.iter_mut().find(|(known, _)| *known == error) {
            Some((_, volumes)) => volumes.push(volume),
            None => groups.push((error, vec![volume])),
        }
    }
    let is_over = condition(maintenance, ConditionType::VolumesDetached)
        .is_some_and(|detached| ConditionReason::of(detached) == Some(ConditionReason::DetachTimedOut));
    // Then the cause of the maintenance as a whole is that they are still attached.
    groups.retain(|(error, _)| error.is_some() || !is_over);
    groups.into_iter().map(|(error, volumes)| attached(error, &volumes, kubectl)).collect()
}

fn attached(error: Option<&str>, volumes: &[&AttachedVolume], kubectl: &str) -> Cause {
    let labels: Vec<String> =
        volumes.iter().map(|volume| format!("{} of {}", volume.label(), volume.driver)).collect();
    let named = labels.join(", ");
    let (noun, verb) = if labels.len() == 1 { ("Volume", "is") } else { ("Volumes", "are") };
    let (what, advice) = match error {
        Some(error) => (
            format!("{noun} {named} cannot be detached: {}.", error.trim_end_matches('.')),
            "The CSI driver reports this error: check the driver's controller, and the state of the attachment",
        ),
        None => (
            format!("{noun} {named} {verb} being detached."),
            "Wait until the CSI driver confirms this; if it takes long, check the state of the attachment",
        ),
    };
    let describe = |volume: &&AttachedVolume| {
        format!("{kubectl} describe volumeattachment {}", shell_quoted(&volume.attachment))
    };
    Cause {
        what: vec![what],
        since: volumes.iter().map(|volume| volume.since.0).min(),
        advice: advice.to_owned(),
        commands: few(volumes.iter().map(describe)),
        passes: error.is_none(),
        ..Cause::default()
    }
}

/// The Deployments that replace pods first. That ends by itself, unless a replacement does not become Ready.
fn of_surges(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut deployments: BTreeMap<(&str, &str), Vec<&SurgingPod>> = BTreeMap::new();
    for pod in status(maintenance).surging_pods.iter().flatten() {
        deployments.entry((&pod.namespace, &pod.deployment)).or_default().push(pod);
    }
    let cause = |((namespace, deployment), pods): ((&str, &str), Vec<&SurgingPod>)| Cause {
        what: few(pods
            .iter()
            .map(|pod| format!("{} is replaced first. {}.", pod.reference(), surge_progress(pod)))),
        since: pods.iter().map(|pod| pod.since.0).min(),
        advice: String::from("The Deployment terminates each pod once its replacement is Ready"),
        commands: vec![format!(
            "{kubectl} -n {} rollout status deployment/{}",
            shell_quoted(namespace),
            shell_quoted(deployment)
        )],
        passes: true,
        ..Cause::default()
    };
    deployments.into_iter().map(cause).collect()
}

fn blocking(pods: &[&BlockedPod], node: &str, kubectl: &str) -> Cause {
    let remedy = |pod: &&BlockedPod| {
        let (namespace, name, facts) = (pod.namespace.as_str(), pod.name.as_str(), &pod.facts);
        remedy::remedy(&Case { kubectl, node, namespace, name, owner: None, reason: pod.reason, facts })
    };
    let remedies: Vec<Remedy> = pods.iter().map(remedy).collect();
    let short = |pod: &&BlockedPod| remedy::in_short(&pod.namespace, pod.reason, &pod.facts, &pod.message);
    Cause {
        what: few(pods.iter().map(short).map(|text| format!("{}.", text.trim_end_matches('.')))),
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        since: pods.iter().map(|pod| pod.since.0).min(),
        refusals: pods.iter().fold(0, |refusals: i32, pod| refusals.saturating_add(pod.attempts)),
        advice: remedies.first().map(|remedy| remedy.advice.clone()).unwrap_or_default(),
        commands: few(remedies.into_iter().map(|remedy| remedy.command)),
        passes: false,
        stays: false,
    }
}

fn waiting(maintenance: &NodeMaintenance, reason: WaitReason) -> Vec<&WaitingPod> {
    status(maintenance).waiting_pods.iter().flatten().filter(|pod| pod.reason == reason).collect()
}

/// The pods that the drain leaves to terminate on their own. Somebody wants it so.
fn completing(maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let pods = waiting(maintenance, WaitReason::Completing);
    if pods.is_empty() {
        return None;
    }
    let name = maintenance.name_any();
    let what = match pods.iter().filter_map(|pod| pod.until.as_ref()).min() {
        Some(until) => format!(
            "The drain waits for pods to terminate on their own ({}), and evicts them at {}.",
            WaitReason::Completing.as_str(),
            until.0
        ),
        None => format!(
            "The drain waits for pods to terminate on their own ({}).",
            WaitReason::Completing.as_str()
        ),
    };
    Some(Cause {
        what: vec![what],
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        since: pods.iter().map(|pod| pod.since.0).min(),
        advice: String::from("Wait until the pods terminate. To evict them now, remove the setting"),
        commands: vec![patch_drain(kubectl, &name, "{\"waitForCompletion\":null}")],
        passes: true,
        ..Cause::default()
    })
}

/// The workloads whose pods were put back on the node, and stay there.
fn returned(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut workloads: BTreeMap<(&str, String), Vec<&ReturnedPod>> = BTreeMap::new();
    for pod in status(maintenance).returned_pods.iter().flatten() {
        workloads.entry((&pod.namespace, returned_pods::workload(pod))).or_default().push(pod);
    }
    let cause = |((namespace, workload), pods): ((&str, String), Vec<&ReturnedPod>)| Cause {
        what: vec![format!(
            "The pods of {workload} in {namespace} tolerate the cordon: they returned to the node and stay."
        )],
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        since: pods.iter().map(|pod| pod.since.0).min(),
        advice: returned_pods::ADVICE.to_owned(),
        commands: few(pods.iter().map(|pod| returned_pods::edit(kubectl, pod))),
        passes: true,
        stays: true,
        ..Cause::default()
    };
    workloads.into_iter().map(cause).collect()
}

/// A command that changes the drain settings.
fn patch_drain(kubectl: &str, name: &str, drain: &str) -> String {
    let name = shell_quoted(name);
    format!("{kubectl} patch nm {name} --type=merge -p '{{\"spec\":{{\"drain\":{drain}}}}}'")
}

fn few(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut few: Vec<String> = Vec::new();
    for text in texts {
        if few.len() < MAX_EXAMPLES && !few.contains(&text) {
            few.push(text);
        }
    }
    few
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
