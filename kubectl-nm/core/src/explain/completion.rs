//! The pods that a drain leaves to terminate on their own, and when it evicts them all the same.

use jiff::Timestamp;
use kube::ResourceExt;
use nm_shared::{NodeMaintenance, WaitReason, WaitingPod};

use crate::explain::cause::{Cause, Outlook};
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::endless_pods::{self, EVICT_ALL};
use crate::explain::remedy::patch_drain;
use crate::explain::told_alone::ToldAlone;
use crate::maintenance::{State, is_held_by_hooks, time_limit_end, timeout_seconds, waiting_for};

/// Removes the time limit after which the drain evicts the pods.
const KEEP_WAITING: &str = "{\"waitForCompletion\":{\"timeoutSeconds\":0}}";

/// Removes the timeout of the drain.
pub(super) const CONTINUE: &str = "{\"timeoutSeconds\":0}";

/// What an eviction before its end means for a pod.
fn lost_work(maintenance: &NodeMaintenance) -> &'static str {
    let completion = maintenance.spec.drain.as_ref().and_then(|drain| drain.wait_for_completion.as_ref());
    if completion.is_some_and(|completion| completion.pod_selector.is_some()) {
        "An evicted pod does not finish: a Job counts it as failed, and may fail for good, and without a controller it is gone"
    } else {
        "A Job counts an evicted pod as failed, and may fail for good"
    }
}

/// When the time ends in which pods may terminate on their own; none if there is no such time.
fn limit_end(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let limit = maintenance.spec.drain.as_ref()?.wait_for_completion.as_ref()?.timeout_seconds;
    time_limit_end(maintenance, limit)
}

/// When a drain that has failed evicts the pods that it waited for, once it continues: the time limit also runs while it stands still.
/// None if it waited for none, or if it waits for as long as they need.
pub fn evicts_once_continued(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    let has_awaited = waiting_for(maintenance, WaitReason::Completing).next().is_some();
    limit_end(maintenance).filter(|_| has_awaited && State::of(maintenance) == State::Failed)
}

/// What comes before that a failed drain continues: that pods may go on which it would evict.
pub(super) fn keep_waiting_first(maintenance: &NodeMaintenance) -> String {
    match evicts_once_continued(maintenance) {
        Some(_) => String::from(
            "remove the time limit of the pods that are to terminate on their own, unless they may be evicted; then ",
        ),
        None => String::new(),
    }
}

/// Lets the command that continues a failed drain remove the time limit, too, of pods that it would evict.
pub(super) fn keep_waiting(cause: &mut Cause, maintenance: &NodeMaintenance, kubectl: &str) {
    if evicts_once_continued(maintenance).is_none() {
        return;
    }
    let name = maintenance.name_any();
    let (continues, keeps) =
        (patch_drain(kubectl, &name, CONTINUE), patch_drain(kubectl, &name, KEEP_WAITING));
    match cause.commands.iter_mut().find(|command| **command == continues) {
        Some(command) => {
            let both = "{\"timeoutSeconds\":0,\"waitForCompletion\":{\"timeoutSeconds\":0}}";
            *command = patch_drain(kubectl, &name, both);
        }
        None => cause.commands.insert(0, keeps),
    }
}

/// That a drain which hooks hold evicts pods once they are removed, because their time has ended.
pub(super) fn evicted_after_hooks(maintenance: &NodeMaintenance, now: Timestamp) -> Option<String> {
    let ended = limit_end(maintenance).filter(|end| *end <= now)?;
    Some(format!(
        "Once nothing holds the drain, it also evicts pods that were to terminate on their own: their time ended at {ended}. {}.",
        lost_work(maintenance)
    ))
}

/// The pods that the drain leaves to terminate on their own. Somebody wants it so; those that may never do that come first.
pub(super) fn awaited(
    maintenance: &NodeMaintenance,
    alone: ToldAlone<'_>,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Vec<Cause> {
    let mut pods: Vec<_> = waiting_for(maintenance, WaitReason::Completing).collect();
    let waits_on = State::of(maintenance) != State::Failed && !is_held_by_hooks(maintenance);
    let mut causes = Vec::new();
    let mut limits = Vec::new();
    if waits_on && pods.iter().all(|pod| pod.until.is_none()) {
        causes.extend(endless_pods::take(&mut pods, maintenance, alone, facts, kubectl, now));
        limits = endless_pods::limits(&pods, facts, now);
    }
    let completing = completing(&pods, maintenance, kubectl, now);
    causes.extend(completing.map(|mut cause| {
        cause.what.extend(limits);
        cause
    }));
    causes
}

/// The pods that terminate on their own, as far as they show.
fn completing(
    pods: &[&WaitingPod],
    maintenance: &NodeMaintenance,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    if pods.is_empty() {
        return None;
    }
    let name = maintenance.name_any();
    let has_failed = State::of(maintenance) == State::Failed;
    // Until its hooks are removed, it evicts nothing.
    let is_held = is_held_by_hooks(maintenance);
    let completing = WaitReason::Completing.as_str();
    let waits = format!("The drain waits for pods to terminate on their own ({completing})");
    let lost = lost_work(maintenance);
    let remove = || vec![patch_drain(kubectl, &name, EVICT_ALL)];
    let (what, advice, commands) = match pods.iter().filter_map(|pod| pod.until.as_ref()).min() {
        _ if has_failed => {
            let waited = format!(
                "When the drain failed, it waited for pods to terminate on their own ({completing})."
            );
            match evicts_once_continued(maintenance) {
                Some(end) => {
                    let when = if end <= now { "ended" } else { "ends" };
                    let evicts = if end <= now { "evicts them at once" } else { "evicts them then" };
                    let has_timeout = timeout_seconds(maintenance) > 0;
                    let only = if has_timeout {
                        ". To evict them all the same, remove only the timeout of the drain"
                    } else {
                        ""
                    };
                    (
                        format!("{waited} Their time {when} at {end}: a drain that continues {evicts}."),
                        format!("{lost}{only}"),
                        has_timeout.then(|| patch_drain(kubectl, &name, CONTINUE)).into_iter().collect(),
                    )
                }
                None => (
                    waited,
                    format!(
                        "{lost}. To evict them all the same once the drain continues, remove the setting"
                    ),
                    remove(),
                ),
            }
        }
        Some(until) => {
            let held = if is_held { ", or once the hooks are removed, if that is later" } else { "" };
            (
                format!("{waits}, and evicts them at {}{held}.", until.0),
                format!("{lost}: to wait for as long as the pods need, remove the time limit"),
                vec![patch_drain(kubectl, &name, KEEP_WAITING)],
            )
        }
        None if is_held => (format!("{waits}."), String::from("Wait until the pods terminate"), Vec::new()),
        None => {
            let advice = format!(
                "Wait until the pods terminate. {lost}. To evict them all the same, remove the setting"
            );
            (format!("{waits}."), advice, remove())
        }
    };
    Some(Cause {
        what: vec![what],
        pods: pods.iter().map(|pod| pod.reference().to_string()).collect(),
        advice,
        commands,
        outlook: Outlook::Passes,
        ..Cause::of_times(pods.iter().map(|pod| pod.since.0))
    })
}
