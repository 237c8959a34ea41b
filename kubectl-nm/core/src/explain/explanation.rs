//! Why a maintenance makes no progress: each cause once, with what it concerns, since when, and one remedy.
//!
//! The object, which the reconciler keeps current, shows what is blocked, so a user needs no access to nodes or pods. With
//! access to them, [`ClusterFacts`] show the first cause behind a budget. Whether a reconciler leads comes from the leader's
//! lease. Pods that are blocked alike are one cause.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::api::names;
use nm_shared::{
    AttachedVolume, BlockReason, BlockedPod, Grant, NodeMaintenance, PodReference, ReturnedPod, WaitReason,
    WaitingPod,
};

use crate::explain::budget_causes;
use crate::explain::cause::{Cause, CommonGround, Outlook, capitalized, continued, few, few_of, sentence};
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::completion;
use crate::explain::deletions;
use crate::explain::failed_jobs;
use crate::explain::granted;
use crate::explain::local_storage::{self, Deletion};
use crate::explain::node_causes::{
    abandoned, by_condition, by_degraded, by_last_error, continues_after_timeout, failed, held, not_begun,
    not_let_go, not_ready,
};
use crate::explain::outage_causes;
use crate::explain::recount;
use crate::explain::remedy::{self, Case, Remedy, patch_drain};
use crate::explain::returned_pods;
use crate::explain::roll_causes::{job_does_not_start, left_by_roll, offer_skip, suspended};
use crate::explain::surge_causes;
use crate::explain::told_alone::ToldAlone;
use crate::leader::{Leadership, Reconcilers};
use crate::maintenance::changes::others_of_node;
use crate::maintenance::{
    ROLLS_NAMESPACE, State, attached_volumes, blocked_count, blocked_pods, condition, has_timed_out, hold,
    is_held_by_hooks, kept_by_roll, node, reason, status, timeout_seconds, waiting_for,
};
use crate::terminal::command_context::{nm_command, shell_quoted};

/// The causes, those that concern the whole node first. `kubectl` is the command with the flags for this cluster.
pub fn causes(
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    causes_with(maintenance, ToldAlone::default(), reconcilers, facts, kubectl, now)
}

fn causes_with(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut causes = all_of_the_node(maintenance, reconcilers, facts, kubectl, now);
    if matches!(State::of(maintenance), State::Draining | State::Blocked | State::Drained) {
        causes.extend(left_by_roll(maintenance, facts, kubectl, now));
    }
    // A pause does not interrupt the Job.
    if matches!(State::of(maintenance), State::Draining | State::Blocked | State::Drained | State::Paused) {
        causes.extend(job_does_not_start(maintenance, facts, kubectl, now));
    }
    // Blocked pods no longer matter once the node returns to service.
    if State::of(maintenance) != State::Stopping {
        let mut blocked = budget_causes::blocked(maintenance, alone, facts, kubectl, now);
        blocked.extend(of_pods(maintenance, alone, facts, kubectl, now));
        let mut waiting = budget_causes::waiting(maintenance, alone, facts, kubectl, now);
        if !goes_on(maintenance, reconcilers) {
            blocked.iter_mut().chain(&mut waiting).for_each(await_drain);
        }
        waiting.iter_mut().for_each(budget_causes::count_as_waiting);
        let refused = blocked.iter_mut().filter(|cause| cause.refusals > 0);
        announce_deletion(refused.chain(&mut waiting), maintenance, facts, kubectl, now);
        for cause in &mut causes {
            after_timeout(cause, maintenance, &blocked, &waiting);
        }
        causes.extend(of_workloads(maintenance, facts, kubectl, now));
        causes.extend(not_ready(maintenance, facts, kubectl, now));
        causes.extend(blocked);
        causes.extend(waiting);
        // On a node whose kubelet does not report, they do not terminate.
        let reports = facts.unready.get(node(maintenance)).is_none_or(|unready| unready.message.is_some());
        if reports {
            causes.extend(budget_causes::terminating(maintenance, alone, facts, kubectl, now));
        }
        causes.extend(of_volumes(maintenance, kubectl));
        causes.extend(completion::awaited(maintenance, alone, facts, kubectl, now));
        causes.extend(ordered(maintenance, alone, kubectl));
        causes.extend(surge_causes::surging(maintenance, alone, facts, kubectl, now));
        causes.extend(returned(maintenance, kubectl));
    } else if kept_by_roll(maintenance).is_some() {
        causes.extend(of_workloads(maintenance, facts, kubectl, now));
    }
    causes
}

/// The workloads that the drain has left without a ready pod, or with too few, and the Jobs that have failed.
fn of_workloads(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut causes = outage_causes::down(maintenance, facts, kubectl, now);
    causes.extend(outage_causes::lacking(maintenance, facts, kubectl, now));
    causes.extend(failed_jobs::failed(maintenance, facts, kubectl));
    causes.extend(outage_causes::unknown(maintenance, facts, kubectl));
    causes
}

/// All causes: that no reconciler leads comes before those of [`causes`].
pub fn all_causes(
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let abandoned = abandoned(maintenance, reconcilers.leadership, kubectl, now);
    abandoned.into_iter().chain(causes(maintenance, reconcilers, facts, kubectl, now)).collect()
}

/// The cause of one pod, in words about this pod alone even if others are blocked alike; none if nothing is known of it.
pub fn of_pod(
    pod: &PodReference,
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let causes = causes_with(maintenance, ToldAlone(Some(pod)), reconcilers, facts, kubectl, now);
    causes.into_iter().find(|cause| cause.keeps(pod))
}

/// The first cause that concerns the maintenance as a whole, which comes before those of its pods.
pub fn of_the_node(
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    all_of_the_node(maintenance, reconcilers, facts, kubectl, now).into_iter().next()
}

fn all_of_the_node(
    maintenance: &NodeMaintenance,
    reconcilers: &Reconcilers,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let only = match State::of(maintenance) {
        State::Requested => {
            let since = maintenance.creation_timestamp().map(|at| at.0);
            Some(not_begun(since, reconcilers, kubectl, now))
        }
        State::Stopping => held(maintenance, facts, kubectl, now)
            .or_else(|| Some(not_let_go(maintenance, facts, kubectl, now))),
        State::Planned | State::Paused => Some(suspended(maintenance, facts, kubectl, now)),
        State::Queued => {
            let drained = condition(maintenance, ConditionType::Drained);
            Some(by_condition(maintenance, drained, reason(maintenance), kubectl))
        }
        State::Failed => Some(failed(maintenance, facts, kubectl, now)),
        State::Draining | State::Blocked | State::Drained => {
            let degraded = by_degraded(maintenance, kubectl).into_iter();
            let causes: Vec<Cause> = degraded.chain(held(maintenance, facts, kubectl, now)).collect();
            if !causes.is_empty() {
                return causes;
            }
            by_last_error(maintenance, kubectl)
        }
    };
    only.into_iter().collect()
}

/// Whether nm-reconciler tries again by itself.
fn goes_on(maintenance: &NodeMaintenance, reconcilers: &Reconcilers) -> bool {
    matches!(State::of(maintenance), State::Draining | State::Blocked)
        && !matches!(reconcilers.leadership, Leadership::Lapsed(_))
}

/// Nobody evicts these pods now: what passes needs nothing but that the drain continues.
fn await_drain(cause: &mut Cause) {
    if cause.outlook == Outlook::Passes {
        cause.outlook = Outlook::AwaitsDrain;
        cause.clear_remedy();
    }
}

/// How many pods are blocked beyond those that the status lists.
pub fn unlisted(maintenance: &NodeMaintenance) -> usize {
    let count = usize::try_from(blocked_count(maintenance)).unwrap_or(0);
    count.saturating_sub(blocked_pods(maintenance).len())
}

/// Pods that are deleted if their evictions are refused for long need nobody, if nm-reconciler may delete them. Those that wait for
/// their turn are deleted, too.
fn announce_deletion<'a>(
    causes: impl Iterator<Item = &'a mut Cause>,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    let Some(announced) = deletions::announced(maintenance) else { return };
    if facts.is_deletion_denied {
        let grant = nm_command(kubectl, &format!("install --grant {}", Grant::PodDeletion));
        let denied = format!(
            "--delete-after has no effect: nm-reconciler has no permission to delete pods; `{grant}` grants it."
        );
        causes.for_each(|cause| cause.what.push(denied.clone()));
        return;
    }
    for cause in causes {
        let at = cause.since.and_then(|since| deletions::time(maintenance, since)).filter(|at| *at > now);
        // Of pods that wait, the status does not show the first refusal.
        let at = at.map(|at| format!(", the first by {at}")).unwrap_or_default();
        cause.what.push(format!("{announced}{at}."));
        let prevents = "To let none be deleted, remove deleteAfterSeconds";
        let advice = Some(cause.advice.trim_end_matches('.')).filter(|advice| !advice.is_empty());
        cause.advice = advice.map_or_else(|| prevents.to_owned(), |advice| format!("{advice}. {prevents}"));
        cause.commands.push(patch_drain(kubectl, &maintenance.name_any(), "{\"deleteAfterSeconds\":0}"));
    }
}

/// `the hook is removed`, if hooks still keep the drain from its first eviction.
fn hooks(maintenance: &NodeMaintenance) -> Option<&'static str> {
    match hold(maintenance)?.hooks.len() {
        0 => None,
        1 => Some("the hook is removed"),
        _ => Some("the hooks are removed"),
    }
}

/// The remedy of a blocked pod. While a hook holds the drain, no pod is to be deleted: the owner of the hook needs it where it is.
pub fn remedy_of(case: &Case<'_>, maintenance: &NodeMaintenance) -> Remedy {
    let remedy = remedy::remedy(case);
    let deletes = matches!(case.reason, BlockReason::Unmanaged | BlockReason::LocalStorage);
    match hooks(maintenance).filter(|_| deletes) {
        Some(removed) => {
            Remedy { advice: format!("Once {removed}, {}", continued(&remedy.advice)), ..remedy }
        }
        None => remedy,
    }
}

/// `remove the timeout, and the drain continues`: what has to be done beside the pods' own causes; none unless the drain has timed
/// out, and none if it continues by itself.
pub fn continues(maintenance: &NodeMaintenance) -> Option<String> {
    let continues_itself = timeout_seconds(maintenance) == 0 && !maintenance.spec.suspend;
    (State::of(maintenance) == State::Failed && has_timed_out(maintenance) && !continues_itself)
        .then(|| continues_after_timeout(maintenance))
}

/// Without a timeout, a drain that failed would still be blocked by the causes that are left.
fn after_timeout(cause: &mut Cause, maintenance: &NodeMaintenance, blocked: &[Cause], waiting: &[Cause]) {
    // What the first cause says of hooks comes before the pods.
    let Some(continues) = continues(maintenance).filter(|_| !is_held_by_hooks(maintenance)) else { return };
    let is_stuck = |cause: &Cause| matches!(cause.outlook, Outlook::Blocks | Outlook::WillBlock);
    let is_over =
        |cause: &Cause| matches!(&cause.common, Some(CommonGround::FirstCause(first)) if first.is_over());
    if blocked.iter().chain(waiting).any(is_stuck) {
        cause.advice = format!("First fix what blocks the pods; then {continues}");
    } else if !blocked.is_empty() && blocked.iter().all(is_over) {
        cause.advice = format!("What blocked the drain is over: {continues}");
    } else if completion::evicts_once_continued(maintenance).is_some() {
        cause.advice = capitalized(&continues);
    }
}

/// Blocked pods, except for those that a chain of causes explains.
fn of_pods(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut groups: Vec<(CommonGround, Vec<&BlockedPod>)> = Vec::new();
    for pod in status(maintenance).blocked_pods.iter().filter(|pod| !budget_causes::has_chain(pod)) {
        let blocker = CommonGround::Blocker(pod.reason, blocker(pod, facts));
        match groups.iter_mut().find(|(known, _)| *known == blocker) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((blocker, vec![pod])),
        }
    }
    let cause = |(blocker, pods): (CommonGround, Vec<&BlockedPod>)| {
        let mut cause = Cause { common: Some(blocker), ..blocking(&pods, maintenance, facts, kubectl, now) };
        surge_causes::stalled(&mut cause, &pods, maintenance, facts, kubectl, now);
        granted::report(&mut cause, &pods, maintenance, facts, kubectl);
        local_storage::advise(&mut cause, &pods, hooks(maintenance), maintenance, facts, kubectl, now);
        local_storage::warn_of_finalizers(&mut cause, &pods, facts);
        cause
    };
    let parts = groups.into_iter().flat_map(|(blocker, pods)| {
        alone.split(pods, |pod| pod.reference()).into_iter().map(move |part| (blocker.clone(), part))
    });
    parts.map(cause).collect()
}

/// What blocks a pod, equal for pods that are blocked alike, in whatever namespaces.
fn blocker(pod: &BlockedPod, read: &ClusterFacts) -> String {
    let facts = &pod.facts;
    let by = match pod.reason {
        BlockReason::AdmissionWebhook | BlockReason::NotMigratable => facts.webhook.clone(),
        BlockReason::ServerError if facts.webhook.is_some() => facts.webhook.clone(),
        BlockReason::AdmissionPolicy => facts.policy.as_ref().map(|policy| policy.name.clone()),
        BlockReason::Finalizers => Some(facts.finalizers.join(",")).filter(|names| !names.is_empty()),
        BlockReason::NodeNotReady => facts.node.clone(),
        BlockReason::Forbidden => facts.forbidden.as_ref().and_then(Grant::of).map(|grant| grant.to_string()),
        BlockReason::DisruptionBudget => surge_causes::denied(facts).map(|grant| grant.to_string()),
        // Those that return for another cause have another remedy.
        BlockReason::KeepsReturning => Some(pod.message.clone()),
        // Those that are not replaced elsewhere have another remedy.
        BlockReason::LocalStorage => Some(format!("{:?}", Deletion::of(pod, read))),
        BlockReason::Unmanaged | BlockReason::NotEnding | BlockReason::ServerError => Some(String::new()),
        _ => None,
    };
    match by {
        Some(by) => by,
        None => remedy::common_blocker(&pod.namespace, pod.reason, facts),
    }
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
    let (commands, left_out) = few_of(volumes.iter().map(describe));
    Cause {
        what: vec![what],
        advice: advice.to_owned(),
        commands,
        left_out,
        outlook: Outlook::of(error.is_none()),
        ..Cause::of_times(volumes.iter().map(|volume| volume.since.0))
    }
}

fn blocking(
    pods: &[&BlockedPod],
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let node = node(maintenance);
    let begin = if State::of(maintenance) == State::Failed { "When the drain failed: " } else { "" };
    let remedy = |pod: &&BlockedPod| {
        let (namespace, name, is_bare) = (pod.namespace.as_str(), pod.name.as_str(), facts.is_bare(pod));
        let (reason, facts) = (pod.reason, &pod.facts);
        let case = Case { kubectl, node, namespace, name, owner: None, is_bare, reason, facts };
        remedy_of(&case, maintenance)
    };
    let remedies: Vec<Remedy> = pods.iter().map(remedy).collect();
    let names: Vec<String> = pods.iter().map(|pod| pod.reference().to_string()).collect();
    let what = |pod: &&BlockedPod| {
        remedy::subject_and_reason(&names, pod.reason, &pod.facts, &pod.message)
            .unwrap_or_else(|| remedy::in_short(&pod.namespace, pod.reason, &pod.facts, &pod.message))
    };
    let after = |text: String| if begin.is_empty() { sentence(&text) } else { format!("{begin}{text}.") };
    let advice = remedies.first().map(|remedy| remedy.advice.clone()).unwrap_or_default();
    let (mut commands, left_out) = few_of(remedies.into_iter().map(|remedy| remedy.command));
    let (recounts, uncounted) = few_of(pods.iter().filter_map(|pod| recount::of_several(pod, kubectl)));
    commands.extend(recounts);
    let mut cause = Cause {
        what: few(pods.iter().map(what).map(|text| after(text.trim_end_matches('.').to_owned()))),
        refusals: pods.iter().fold(0, |refusals: i32, pod| refusals.saturating_add(pod.attempts)),
        advice,
        commands,
        left_out: left_out.into_iter().chain(uncounted).collect(),
        pods: names,
        ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
    };
    returned_pods::name_remedy(&mut cause, pods, maintenance, facts, kubectl, now);
    if pods.iter().any(|pod| pod.reason == BlockReason::NodeNotReady) {
        offer_skip(&mut cause, maintenance, facts, kubectl, now);
    }
    cause
}

/// The pods that wait because of the order of the drain.
fn ordered(maintenance: &NodeMaintenance, alone: ToldAlone<'_>, kubectl: &str) -> Vec<Cause> {
    let pods: Vec<&WaitingPod> = waiting_for(maintenance, WaitReason::Order).collect();
    let parts = alone.split(pods, |pod| pod.reference());
    parts.iter().filter_map(|part| ordered_together(part, maintenance, kubectl)).collect()
}

fn ordered_together(pods: &[&WaitingPod], maintenance: &NodeMaintenance, kubectl: &str) -> Option<Cause> {
    let next = pods.iter().min_by_key(|pod| pod.ahead)?;
    let order = WaitReason::Order.as_str();
    let has_failed = State::of(maintenance) == State::Failed;
    let what = if has_failed {
        format!("When the drain failed, pods waited in order ({order}) for those before them.")
    } else {
        let ahead = others_of_node(next.ahead);
        format!("The drain evicts pods in order ({order}): the next of these pods is evicted after {ahead}.")
    };
    // The status does not say which pods are ahead.
    let advice = if has_failed {
        "Their turn comes once the drain continues; this shows what their budgets allow"
    } else if status(maintenance).blocked_pods.is_empty() {
        "Wait until the pods before them have left; this shows how far they are"
    } else {
        "If one of the blocked pods is before them, they stay until it has left; this shows how far they are"
    };
    let shows = if has_failed { "plan" } else { "watch" };
    Some(Cause {
        what: vec![what],
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        advice: advice.to_owned(),
        commands: vec![nm_command(kubectl, &format!("{shows} {}", shell_quoted(node(maintenance))))],
        outlook: Outlook::Passes,
        ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
    })
}

/// The workloads whose pods were put back on the node, and stay there.
fn returned(maintenance: &NodeMaintenance, kubectl: &str) -> Vec<Cause> {
    let mut workloads: BTreeMap<(&str, String), Vec<&ReturnedPod>> = BTreeMap::new();
    // nm-reconciler tolerates the cordon, so that it can return the last node to service, and so does what runs a roll.
    let is_ours = |pod: &&ReturnedPod| {
        pod.namespace == ROLLS_NAMESPACE
            || pod.workload.as_ref().is_some_and(|workload| workload.name == names::FIELD_MANAGER)
    };
    for pod in status(maintenance).returned_pods.iter().flatten().filter(|pod| !is_ours(pod)) {
        workloads.entry((&pod.namespace, returned_pods::workload(pod))).or_default().push(pod);
    }
    let cause = |((namespace, workload), pods): ((&str, String), Vec<&ReturnedPod>)| {
        let (commands, left_out) = few_of(pods.iter().map(|pod| returned_pods::edit(kubectl, pod)));
        Cause {
            what: vec![format!(
                "The pods of {workload} in {namespace} tolerate the cordon: they returned to the node and stay."
            )],
            pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
            advice: returned_pods::ADVICE.to_owned(),
            commands,
            left_out,
            outlook: Outlook::Stays,
            ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
        }
    };
    workloads.into_iter().map(cause).collect()
}

#[cfg(test)]
#[path = "explanation_tests.rs"]
mod tests;
