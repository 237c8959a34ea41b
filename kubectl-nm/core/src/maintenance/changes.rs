//! The difference between two versions of a maintenance: which pods changed their state, and how a pod is shown in a line.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_shared::decide::status_events::deleted_after_refusal;
use nm_shared::drain::plan::StayReason;
use nm_shared::{
    AttachedVolume, BlockedPod, BudgetFacts, MigratingPod, NodeMaintenance, PodReference, Replacement,
    ReturnedPod, SurgingPod, Suspension, WaitReason, WaitingPod,
};

use crate::maintenance::{blocked_pods, is_refused, node, status, waiting_pods};
use crate::terminal::text::{Line, Style, counted};

/// Change of a maintenance.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceChange {
    /// It is new, or has another version than before.
    Updated {
        /// The version before; none if it was unknown.
        before: Option<Arc<NodeMaintenance>>,
        /// The current version.
        now: Arc<NodeMaintenance>,
    },
    /// It no longer exists; this is the last known version.
    Deleted(Arc<NodeMaintenance>),
}

impl MaintenanceChange {
    /// The maintenance as it is now, or as it was last.
    pub fn object(&self) -> &NodeMaintenance {
        match self {
            Self::Updated { now, .. } => now,
            Self::Deleted(last) => last,
        }
    }

    /// Node of the maintenance.
    pub fn node(&self) -> &str {
        node(self.object())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodChange<'a> {
    /// It is blocked, or blocked for another reason than before.
    Blocked(&'a BlockedPod),
    Unblocked(PodReference),
    Migrating(&'a MigratingPod),
    /// It waits, or for something else than before, or until another time.
    Waiting(&'a WaitingPod),
    Surging(&'a SurgingPod),
    /// It was put back on the node, and stays.
    Returned(&'a ReturnedPod),
    /// Its eviction was refused for so long that nm-reconciler has deleted it.
    Deleted(PodReference),
    /// It is no longer among the pods that have to go.
    Gone(PodReference),
}

/// The changes of the pods of a maintenance between two versions of it, ordered by pod.
pub(crate) fn pod_changes<'a>(
    before: Option<&'a NodeMaintenance>,
    now: &'a NodeMaintenance,
) -> Vec<PodChange<'a>> {
    let mut changes: BTreeMap<PodReference, PodChange<'a>> = BTreeMap::new();
    let (were_blocked, are_blocked) = (before.map(blocked).unwrap_or_default(), blocked(now));
    let is_same_block = |a: &BlockedPod, b: &BlockedPod| (a.reason, &a.message) == (b.reason, &b.message);
    changes.extend(changed(&were_blocked, &are_blocked, is_same_block, PodChange::Blocked));
    let were_migrating = before.map(migrating).unwrap_or_default();
    changes.extend(changed(&were_migrating, &migrating(now), PartialEq::eq, PodChange::Migrating));
    let were_waiting = before.map(waiting).unwrap_or_default();
    let budget = |pod: &WaitingPod| pod.budget.as_ref().map(|budget| budget.name.clone());
    let is_same_wait =
        |a: &WaitingPod, b: &WaitingPod| (a.reason, &a.until, budget(a)) == (b.reason, &b.until, budget(b));
    changes.extend(changed(&were_waiting, &waiting(now), is_same_wait, PodChange::Waiting));
    let were_surging = before.map(surging).unwrap_or_default();
    changes.extend(changed(&were_surging, &surging(now), PartialEq::eq, PodChange::Surging));
    let had_returned = before.map(returned).unwrap_or_default();
    changes.extend(changed(&had_returned, &returned(now), |_, _| true, PodChange::Returned));
    let (had_to_go, have_to_go) = (before.map(pending).unwrap_or_default(), pending(now));
    let stays = returned(now);
    for pod in had_to_go.difference(&have_to_go).filter(|pod| !stays.contains_key(**pod)) {
        changes.insert((*pod).clone(), PodChange::Gone((*pod).clone()));
    }
    // The list has at most fifty pods. A pod that was cut from it may still be blocked. During a pause nothing is known of a
    // pod that was refused before, as in `nm_shared::drain::transitions`.
    let all_listed =
        usize::try_from(status(now).pod_counts.blocked).is_ok_and(|count| count <= are_blocked.len());
    // What ended is the drain: the pods may be refused as before.
    let is_stopping = now.metadata.deletion_timestamp.is_some();
    let is_known =
        all_listed && !is_stopping && Suspension::in_status(status(now)) != Some(Suspension::Paused);
    for pod in were_blocked.into_keys().filter(|pod| is_known && !are_blocked.contains_key(pod)) {
        changes.entry(pod.clone()).or_insert(PodChange::Unblocked(pod));
    }
    for pod in before.map(|before| deleted(before, now)).unwrap_or_default() {
        let is_left = |change: &PodChange<'_>| matches!(change, PodChange::Unblocked(_) | PodChange::Gone(_));
        if changes.get(&pod).is_none_or(is_left) {
            changes.insert(pod.clone(), PodChange::Deleted(pod));
        }
    }
    changes.into_values().collect()
}

/// How many pods were deleted between two versions of a maintenance because their evictions were refused for too long.
pub(super) fn count_deleted(before: &NodeMaintenance, now: &NodeMaintenance) -> usize {
    let new = deleted_after_refusal(status(now)).saturating_sub(deleted_after_refusal(status(before)));
    usize::try_from(new).unwrap_or(0)
}

/// Those of them that the earlier version lists: refused for as long as that takes, and neither blocked nor waiting any more.
fn deleted(before: &NodeMaintenance, now: &NodeMaintenance) -> Vec<PodReference> {
    let count = count_deleted(before, now);
    if count == 0 {
        return Vec::new();
    }
    let after = now.spec.drain.as_ref().map_or(0, |drain| drain.delete_after_seconds);
    let until = status(now).last_update.as_ref().map_or(Timestamp::MAX, |update| update.0);
    let is_due = |since: &Time| until.duration_since(since.0) >= SignedDuration::from_secs(after);
    let (are_blocked, are_waiting) = (blocked(now), waiting(now));
    let refused = blocked(before).into_iter().filter(|(_, pod)| is_refused(pod) && is_due(&pod.since));
    let turns = waiting(before).into_iter();
    let turns = turns.filter(|(_, pod)| pod.reason == WaitReason::BudgetTurn && is_due(&pod.since));
    let listed = refused.map(|(pod, _)| pod).chain(turns.map(|(pod, _)| pod));
    let is_left = |pod: &PodReference| !are_blocked.contains_key(pod) && !are_waiting.contains_key(pod);
    listed.filter(is_left).take(count).collect()
}

/// The changes of the pods that are listed now and were not before, or not the same.
fn changed<'a, P>(
    before: &BTreeMap<PodReference, &'a P>,
    now: &BTreeMap<PodReference, &'a P>,
    is_same: impl Fn(&P, &P) -> bool,
    change: impl Fn(&'a P) -> PodChange<'a>,
) -> Vec<(PodReference, PodChange<'a>)> {
    let new =
        now.iter().filter(|(reference, pod)| before.get(*reference).is_none_or(|was| !is_same(was, pod)));
    new.map(|(reference, &pod)| (reference.clone(), change(pod))).collect()
}

pub(super) fn blocked(of: &NodeMaintenance) -> BTreeMap<PodReference, &BlockedPod> {
    blocked_pods(of).iter().map(|pod| (pod.reference(), pod)).collect()
}

fn migrating(of: &NodeMaintenance) -> BTreeMap<PodReference, &MigratingPod> {
    let reference =
        |pod: &MigratingPod| PodReference { namespace: pod.namespace.clone(), name: pod.name.clone() };
    status(of).migrating_pods.iter().flatten().map(|pod| (reference(pod), pod)).collect()
}

fn waiting(of: &NodeMaintenance) -> BTreeMap<PodReference, &WaitingPod> {
    waiting_pods(of).iter().map(|pod| (pod.reference(), pod)).collect()
}

fn surging(of: &NodeMaintenance) -> BTreeMap<PodReference, &SurgingPod> {
    status(of).surging_pods.iter().flatten().map(|pod| (pod.reference(), pod)).collect()
}

fn returned(of: &NodeMaintenance) -> BTreeMap<PodReference, &ReturnedPod> {
    status(of).returned_pods.iter().flatten().map(|pod| (pod.reference(), pod)).collect()
}

/// `staying shop/operator-0: came to the node after the cordon, which it tolerates`.
pub fn returned_pod(pod: &ReturnedPod) -> Line {
    let line = Line::default().with(Style::Busy, "staying");
    line.and(format!(" {}: {}", pod.reference(), StayReason::Returned.word()))
}

/// `Deployment web: not Ready yet: web-7c9f on node-2`.
pub(crate) fn surge_progress(pod: &SurgingPod) -> String {
    format!("Deployment {}: {}", pod.deployment, surge_state(pod))
}

/// `not Ready yet: web-7c9f on node-2`.
pub fn surge_state(pod: &SurgingPod) -> String {
    match &pod.replacement {
        None if pod.restarted => String::from("restarted"),
        None => String::from("another rollout is under way"),
        Some(Replacement { name, node: None, .. }) => format!("not scheduled yet: {name}"),
        Some(Replacement { name, node: Some(node), ready: false }) => {
            format!("not Ready yet: {name} on {node}")
        }
        Some(Replacement { name, node: Some(node), ready: true }) => format!("Ready: {name} on {node}"),
    }
}

/// `surging shop/cart-0: Deployment cart: …`.
pub fn surging_pod(pod: &SurgingPod) -> Line {
    let line = Line::default().with(Style::Busy, "surging");
    line.and(format!(" {}: {}", pod.reference(), surge_progress(pod)))
}

fn pending(of: &NodeMaintenance) -> BTreeSet<&PodReference> {
    status(of).pending_pods_refs.iter().collect()
}

/// `blocked shop/cart-0: DisruptionBudget: the budget's message`.
pub fn blocked_pod(pod: &BlockedPod) -> Line {
    let line = Line::default().with(Style::Bad, "blocked").and(format!(
        " {}/{}: {}",
        pod.namespace,
        pod.name,
        pod.reason.as_str()
    ));
    if pod.message.is_empty() { line } else { line.and(": ").and(&pod.message) }
}

/// `attached pv-1 (claim shop/data-0) by ebs.csi.aws.com since 2026-01-02T03:04:05Z: the driver's error`.
pub fn attached_volume(volume: &AttachedVolume) -> Line {
    let AttachedVolume { driver, since, .. } = volume;
    let what = format!(" {} by {driver} since {}", volume.label(), since.0);
    let line = Line::default().with(Style::Busy, "attached").and(what);
    match &volume.error {
        Some(error) => line.and(": ").with(Style::Bad, error),
        None => line,
    }
}

/// `Completing, evicted at 2026-01-02T04:04:05Z`, or `BudgetTurn: budget cart allows the next eviction when it has 1 more
/// Ready pod`.
pub fn wait_progress(pod: &WaitingPod) -> String {
    let reason = pod.reason.as_str();
    match (&pod.until, pod.reason) {
        (Some(until), _) => format!("{reason}, evicted at {}", until.0),
        (None, WaitReason::BudgetTurn) => format!("{reason}: {}", budget_turn(pod)),
        (None, WaitReason::EvictedLast) => format!("{reason}: the pod of nm-reconciler"),
        (None, WaitReason::Order) => format!("{reason}: after {}", others_of_node(pod.ahead)),
        (None, _) => reason.to_owned(),
    }
}

/// What a pod waits for, where there is little space: `budget cart: 1 more Ready pod needed`.
pub fn wait_in_short(pod: &WaitingPod) -> String {
    if pod.reason == WaitReason::EvictedLast {
        return "evicted last: nm-reconciler".to_owned();
    }
    if pod.reason == WaitReason::Order {
        return format!("order: {} before it", counted(pod.ahead, "pod"));
    }
    let (WaitReason::BudgetTurn, Some(budget)) = (pod.reason, &pod.budget) else { return wait_progress(pod) };
    let when = match missing(budget) {
        Some(missing) => format!("{missing} needed"),
        None => "evicted pods are being replaced".to_owned(),
    };
    let after = if pod.ahead > 0 { format!(", {} before it", pod.ahead) } else { String::new() };
    format!("budget {}: {when}{after}", budget.name)
}

/// `1 more Ready pod`: what a budget needs before it allows an eviction. Where it has fewer than it requires, a pod that is not
/// Ready needs one less than the others.
fn missing(budget: &BudgetFacts) -> Option<String> {
    match budget.desired_healthy? - budget.current_healthy? {
        0 => Some(String::from("1 more Ready pod")),
        lacking @ 1.. => Some(format!("at least {}", counted(lacking, "more Ready pod"))),
        _ => None,
    }
}

/// `budget cart allows the next eviction when it has 1 more Ready pod, after 2 other pods of the node`. Which pod is next is not
/// known: pods of other nodes may wait for the budget, too.
fn budget_turn(pod: &WaitingPod) -> String {
    let name =
        pod.budget.as_ref().map_or_else(|| "its budget".to_owned(), |it| format!("budget {}", it.name));
    let when = match pod.budget.as_ref().and_then(missing) {
        Some(missing) => format!("when it has {missing}"),
        None => "when evicted pods have been replaced".to_owned(),
    };
    let after = match pod.ahead {
        ..=0 => String::new(),
        ahead => format!(", after {}", others_of_node(ahead)),
    };
    format!("{name} allows the next eviction {when}{after}")
}

/// `1 other pod of the node`.
pub(crate) fn others_of_node(count: i32) -> String {
    format!("{} of the node", counted(count, "other pod"))
}

/// `waiting shop/import-x since 2026-01-02T03:04:05Z: Completing, evicted at 2026-01-02T04:04:05Z`.
pub fn waiting_pod(pod: &WaitingPod) -> Line {
    let line = Line::default().with(Style::Busy, "waiting");
    line.and(format!(" {} since {}: {}", pod.reference(), pod.since.0, wait_progress(pod)))
}
