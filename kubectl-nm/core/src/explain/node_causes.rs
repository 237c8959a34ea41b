//! The causes that concern a maintenance as a whole: no reconciler, a suspension, finalizers, and what its conditions report.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::api::names::{
    FINALIZER, LEASE_NAMESPACE, OVERRIDE_QUORUM_ANNOTATION, PRE_DRAIN_HOOK, PRE_RETURN_HOOK,
};
use nm_shared::cluster::node_lease;
use nm_shared::drain::completion::validate_completion;
use nm_shared::{BlockReason, Hook, NodeMaintenance};

use crate::client::reconciler_deployment::LABEL_SELECTOR;
use crate::explain::cause::{Cause, Outlook, capitalized, sentence};
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::completion;
use crate::explain::finalizers;
use crate::explain::remedy::{self, patch_drain};
use crate::explain::roll_causes::{kept, offer_skip, roll_command};
use crate::leader::{Leadership, Reconcilers};
use crate::maintenance::roll::RollStanding;
use crate::maintenance::{
    PICKUP_TIMEOUT, State, condition, degraded, error_without_details, has_timed_out, hold, kept_by_roll,
    node, pending_pods, reason, roll_hook_owner, roll_name, status, time_limit_end, timeout_seconds,
    timeout_words,
};
use crate::terminal::command_context::{nm_command, shell_quoted};

/// The cause that no reconciler leads, which the status cannot report. None if that does not matter to the maintenance, or if
/// [`causes`] has it already.
pub fn abandoned(
    maintenance: &NodeMaintenance,
    leadership: Leadership,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let Leadership::Lapsed(since) = leadership else { return None };
    let what = match State::of(maintenance) {
        State::Queued | State::Draining | State::Blocked | State::Failed | State::Stopping => {
            "No nm-reconciler leads, so the maintenance makes no progress."
        }
        State::Drained => {
            "No nm-reconciler leads, so the node does not return to service when its maintenance is stopped."
        }
        State::Requested | State::Planned | State::Paused => return None,
    };
    let cause = nobody_leads(what, since, kubectl, now);
    // A drained node waits for nothing.
    Some(Cause { outlook: Outlook::of(cause.passes() || State::of(maintenance) == State::Drained), ..cause })
}

/// The cause that a maintenance has not started.
pub(super) fn not_begun(
    since: Option<Timestamp>,
    reconcilers: &Reconcilers,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    match reconcilers.leadership {
        Leadership::Held => Cause {
            what: vec![String::from("nm-reconciler runs, but has not started the maintenance.")],
            advice: String::from(
                "This usually takes a moment; if it takes longer, check the log of nm-reconciler",
            ),
            commands: vec![reconcilers.command(kubectl)],
            ..no_reconciler("", since, kubectl, now)
        },
        Leadership::Lapsed(since) => {
            nobody_leads("No nm-reconciler leads, so the maintenance does not start.", since, kubectl, now)
        }
        Leadership::Unknown => {
            no_reconciler("nm-reconciler has not started the maintenance yet.", since, kubectl, now)
        }
    }
}

/// The cause that no reconciler leads since then. Another replica takes over within moments, if there is one.
fn nobody_leads(what: &str, since: Timestamp, kubectl: &str, now: Timestamp) -> Cause {
    let cause = no_reconciler(what, Some(since), kubectl, now);
    let advice = if cause.passes() {
        "If there is another replica, it takes over in a moment; otherwise, check why nm-reconciler is not running"
    } else {
        "Check why nm-reconciler is not running: without it, no maintenance starts, continues or ends"
    };
    let commands = cause.commands.iter().cloned().chain([nm_command(kubectl, "doctor")]).collect();
    Cause { advice: advice.to_owned(), commands, ..cause }
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
        outlook: Outlook::of(since.is_some_and(is_new)),
        ..Cause::default()
    }
}

/// The cause that the node is not Ready while pods have to leave it, unless the status reports these pods as blocked by that.
pub(super) fn not_ready(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let node = node(maintenance);
    let unready = facts.unready.get(node)?;
    let is_reported =
        status(maintenance).blocked_pods.iter().any(|pod| pod.reason == BlockReason::NodeNotReady);
    let pods = pending_pods(status(maintenance));
    if is_reported || pods.is_empty() {
        return None;
    }
    let since = unready.since.map(|since| format!(" since {since}")).unwrap_or_default();
    let its = if pods.len() == 1 { "its pod" } else { "its pods" };
    let what = match &unready.message {
        None => format!(
            "Node {node} has not been Ready{since}: its kubelet does not report, so {its} cannot terminate."
        ),
        Some(message) => sentence(&format!("Node {node} has not been Ready{since}: {message}")),
    };
    let advice = match &unready.message {
        None => format!("Power the node on. {}", remedy::node_is_off()),
        Some(_) => String::from("Fix what its kubelet reports, so that the node becomes Ready"),
    };
    let mut cause = Cause {
        what: vec![what],
        since: unready.since,
        pods,
        advice,
        commands: vec![format!("{kubectl} describe node {}", shell_quoted(node))],
        // A kubelet that reports terminates pods.
        outlook: Outlook::of(unready.message.is_some()),
        ..Cause::default()
    };
    offer_skip(&mut cause, maintenance, facts, kubectl, now);
    Some(cause)
}

/// What the maintenance waits for before its first eviction, or before it returns its node.
pub(super) fn held(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let hold = hold(maintenance)?;
    let ends = State::of(maintenance) == State::Stopping;
    let (what, domain) = if ends {
        ("The node stays cordoned", PRE_RETURN_HOOK)
    } else {
        ("No pod is evicted yet", PRE_DRAIN_HOOK)
    };
    // Nobody removes the hook of a roll that was aborted.
    let is_left = roll_name(maintenance).is_some_and(|roll| facts.rolls.is_left(roll, now));
    let removable = removable_hooks(maintenance, &hold.hooks, facts, now);
    let (advice, commands) = match (roll_name(maintenance), removable.as_slice()) {
        _ if hold.hooks.is_empty() => (
            String::from("Evictions start then; this shows them"),
            vec![nm_command(kubectl, &format!("watch {}", shell_quoted(node(maintenance))))],
        ),
        (Some(roll), []) => {
            let is_going_on = matches!(
                facts.rolls.standing(roll, now),
                Some(RollStanding::Running(_) | RollStanding::Ending(_))
            );
            let status = roll_command("status", roll, kubectl);
            if is_left {
                let stop = nm_command(kubectl, &format!("stop {}", shell_quoted(node(maintenance))));
                (
                    format!(
                        "Return the node to service, or continue roll {roll} after all, with its --before action"
                    ),
                    vec![stop, roll_command("resume", roll, kubectl)],
                )
            } else if is_going_on {
                let wait = format!("Wait until roll {roll} has run its --before action; see how far it is");
                (wait, vec![status])
            } else {
                (
                    format!(
                        "Roll {roll} removes its hook once its --before action is done: see how far it is, then continue the roll, \
                         or abort it"
                    ),
                    vec![status, roll_command("resume", roll, kubectl), roll_command("abort", roll, kubectl)],
                )
            }
        }
        (_, hooks) => {
            let whose = match hooks {
                [only] => format!("The owner of hook {} removes it", only.name),
                _ => String::from("The owners of the hooks remove them"),
            };
            (
                format!("{whose} when the work is done; to continue without the work, remove the annotation"),
                vec![remove_hooks(maintenance, hooks, domain, kubectl)],
            )
        }
    };
    let evicts =
        completion::evicted_after_hooks(maintenance, now).filter(|_| !ends && !hold.hooks.is_empty());
    Some(Cause {
        what: [format!("{what}: the maintenance waits for {hold}.")].into_iter().chain(evicts).collect(),
        since: Some(hold.since.0),
        advice,
        commands,
        outlook: Outlook::of(!is_left || hold.hooks.is_empty() || !removable.is_empty()),
        ..Cause::default()
    })
}

/// The hooks that a person may remove to continue without the work. Without the hook of a roll, the drain would begin beside its
/// action, which may go on even while the roll is paused or nobody runs it. If the roll was aborted, the action may have failed.
fn removable_hooks<'a>(
    maintenance: &NodeMaintenance,
    hooks: &'a [Hook],
    facts: &ClusterFacts,
    now: Timestamp,
) -> Vec<&'a Hook> {
    let is_kept = |hook: &&Hook| {
        roll_name(maintenance).is_some_and(|roll| {
            let is_done = matches!(facts.rolls.standing(roll, now), Some(RollStanding::Over))
                && !facts.rolls.is_left(roll, now);
            hook.owner == roll_hook_owner(roll) && !is_done
        })
    };
    hooks.iter().filter(|hook| !is_kept(hook)).collect()
}

/// The command that removes these hooks.
fn remove_hooks(maintenance: &NodeMaintenance, hooks: &[&Hook], domain: &str, kubectl: &str) -> String {
    let key = |hook: &&Hook| shell_quoted(&format!("{domain}/{}-", hook.name)).into_owned();
    let keys: Vec<String> = hooks.iter().map(key).collect();
    format!("{kubectl} annotate nm {} {}", shell_quoted(&maintenance.name_any()), keys.join(" "))
}

/// Why a maintenance that is being deleted still exists.
pub(super) fn not_let_go(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let since = maintenance.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let finalizers = maintenance.finalizers();
    if finalizers.is_empty() || finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        let what = if facts.deleted.contains(node(maintenance)) {
            "The node was deleted, but nm-reconciler has not removed its maintenance yet."
        } else {
            "nm-reconciler has not returned the node to service yet."
        };
        return no_reconciler(what, since, kubectl, now);
    }
    if let Some(roll) = kept_by_roll(maintenance) {
        return Cause { since, ..kept(roll, maintenance, facts, kubectl, now) };
    }
    let name = maintenance.name_any();
    let name = shell_quoted(&name);
    Cause {
        what: vec![format!(
            "The node is back in service, but {}.",
            finalizers::keep("the object", finalizers)
        )],
        since,
        advice: finalizers::advice(finalizers.len()).to_owned(),
        commands: vec![format!("{kubectl} edit nm {name}")],
        ..Cause::default()
    }
}

/// Why the reconciler is degraded, if `blockedPods` does not report it.
pub(super) fn by_degraded(maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let degraded = degraded(maintenance)?;
    let said = match degraded.message.as_str() {
        "" => status(maintenance).last_error.as_str(),
        message => message,
    };
    Some(by_condition(maintenance, Some(degraded), said, kubectl))
}

/// What the status reports where it has no details, as it is.
pub(super) fn by_last_error(maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let error = error_without_details(maintenance)?;
    let status = status(maintenance);
    if status.error_on_lease_count > 0 {
        let (advice, command) = remedy_of(Some(ConditionReason::LeaseHeld), maintenance, kubectl);
        return Some(Cause {
            what: vec![capitalized(error)],
            advice,
            commands: vec![command],
            ..Cause::default()
        });
    }
    Some(Cause {
        what: vec![capitalized(error)],
        pods: pending_pods(status),
        advice: String::from(
            "The status has no details of blocked pods. Check the budgets; `kubectl nm doctor` reports whether the CRD in the \
             cluster drops the details",
        ),
        commands: vec![format!("{kubectl} get pdb -A"), nm_command(kubectl, "doctor")],
        ..Cause::default()
    })
}

/// Why the drain failed, and when: the condition only shows since when the node is not drained.
pub(super) fn failed(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let drained = condition(maintenance, ConditionType::Drained);
    let limit = timeout_seconds(maintenance);
    let has_timed_out = has_timed_out(maintenance);
    // The pods that are left are causes of their own. What it waited for before its first eviction is none.
    let timed_out = timeout_words(maintenance);
    let said = timed_out.as_deref().unwrap_or_else(|| reason(maintenance));
    let mut cause = by_condition(maintenance, drained, said, kubectl);
    let written = status(maintenance).last_update.as_ref().map(|at| at.0);
    let timed_out_at = time_limit_end(maintenance, limit).filter(|_| has_timed_out);
    // Later statuses count the pods that leave afterwards.
    cause.since = timed_out_at.into_iter().chain(written).min().or(cause.since);
    if has_timed_out && limit == 0 {
        cause.advice =
            String::from("The timeout has been removed: the drain continues once nm-reconciler sees that");
        cause.commands.clear();
    }
    if has_timed_out && maintenance.spec.suspend {
        cause.advice = capitalized(&continues_after_timeout(maintenance));
        cause.commands.push(nm_command(kubectl, &format!("resume {}", shell_quoted(node(maintenance)))));
    }
    if has_timed_out && (limit > 0 || maintenance.spec.suspend) {
        completion::keep_waiting(&mut cause, maintenance, kubectl);
    }
    let held = hold(maintenance).filter(|hold| has_timed_out && !hold.hooks.is_empty());
    if let Some(hold) = held {
        let removable = removable_hooks(maintenance, &hold.hooks, facts, now);
        let hooks = if hold.hooks.len() == 1 { "the hook is" } else { "the hooks are" };
        let by_whom = if removable.is_empty() { "by its roll" } else { "by the owner or by you" };
        cause.what.extend(completion::evicted_after_hooks(maintenance, now));
        cause.advice = format!("Once {hooks} removed, {by_whom}, {}", continues_after_timeout(maintenance));
        if !removable.is_empty() {
            cause.commands.insert(0, remove_hooks(maintenance, &removable, PRE_DRAIN_HOOK, kubectl));
        }
    }
    cause
}

/// What continues a drain that has timed out.
pub(super) fn continues_after_timeout(maintenance: &NodeMaintenance) -> String {
    let continues = match (timeout_seconds(maintenance), maintenance.spec.suspend) {
        (0, false) => "the drain continues",
        (0, true) => "resume the maintenance, and the drain continues",
        (_, false) => "remove the timeout, and the drain continues",
        (_, true) => "remove the timeout and resume the maintenance, and the drain continues",
    };
    completion::keep_waiting_first(maintenance) + continues
}

pub(super) fn by_condition(
    maintenance: &NodeMaintenance,
    condition: Option<&Condition>,
    said: &str,
    kubectl: &str,
) -> Cause {
    let reason = condition.and_then(ConditionReason::of);
    let said = if said.is_empty() { "The status contains no reason" } else { said };
    let (advice, command) = remedy_of(reason, maintenance, kubectl);
    let stop = nm_command(kubectl, &format!("stop {}", shell_quoted(node(maintenance))));
    let stop = (reason == Some(ConditionReason::CordonContested)).then_some(stop);
    Cause {
        what: vec![sentence(said)],
        since: condition.map(|condition| condition.last_transition_time.0),
        advice,
        commands: std::iter::once(command).chain(stop).collect(),
        outlook: Outlook::of(reason == Some(ConditionReason::MaxUnavailable)),
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
        Some(Reason::QuorumAtRisk) => {
            return (
                format!(
                    "First return the other control-plane nodes to service; this lists all maintenances. To start despite the risk, \
                     set the annotation {OVERRIDE_QUORUM_ANNOTATION}=true of the maintenance"
                ),
                format!("{kubectl} get nm -o wide"),
            );
        }
        Some(Reason::LeaseHeld | Reason::LeaseLost) => (
            "The maintenance waits for the holder of the node's lease; this shows the holder and when it expires",
            format!(
                "{kubectl} -n {LEASE_NAMESPACE} get lease {} -o yaml",
                shell_quoted(&node_lease::name(node))
            ),
        ),
        Some(Reason::CordonContested) => (
            "Find the program or the user that uncordons the node, by its managedFields. Pause the program for this node, or stop \
             the maintenance",
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
            ("Remove the timeout, and the drain continues", patch(completion::CONTINUE))
        }
        Some(Reason::DetachTimedOut) => (
            "Find out why the CSI driver does not detach them before you switch the node off",
            format!("{kubectl} get volumeattachments"),
        ),
        Some(Reason::InvalidDrain) => {
            let drain = maintenance.spec.drain.clone().unwrap_or_default();
            let is_of_completion = validate_completion(&drain).is_err();
            let advice = if is_of_completion {
                "Correct waitForCompletion in spec.drain; without it, the drain evicts pods that could terminate on their own"
            } else {
                "Correct podSelector in spec.drain; without it, the drain moves all pods"
            };
            (advice, format!("{kubectl} edit nm {name}"))
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
            | Reason::WaitingForHooks
            | Reason::WaitingForLoadBalancers
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
