//! The difference between two versions of a maintenance: which pods changed their state, and the lines that report it.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::drain::plan::StayReason;
use nm_shared::{
    AttachedVolume, BlockedPod, MigratingPod, NodeMaintenance, PodReference, Replacement, ReturnedPod,
    SurgingPod, Suspension, WaitReason, WaitingPod,
};

use crate::maintenance::{State, attached_volumes, condition, degraded, headline, node, status};
use crate::terminal::text::{Line, Style};

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
    /// Node of the maintenance.
    pub fn node(&self) -> &str {
        match self {
            Self::Updated { now, .. } => node(now),
            Self::Deleted(last) => node(last),
        }
    }

    /// Whether it is a maintenance that no reconciler has begun.
    pub(crate) fn is_requested(&self) -> bool {
        matches!(self, Self::Updated { before: None, now } if State::of(now) == State::Requested)
    }

    /// The lines that report it, without the node's name; none if nothing changed that matters to people.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let stopped = Line::default().with(Style::Good, "Stopped");
        match self {
            Self::Updated { before, now } => update_lines(before.as_deref(), now),
            Self::Deleted(last) if last.metadata.deletion_timestamp.is_some() => {
                vec![stopped.and(": the node is back in service")]
            }
            Self::Deleted(_) => vec![stopped.and(": the maintenance was deleted")],
        }
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
    let is_known = all_listed && Suspension::in_status(status(now)) != Some(Suspension::Paused);
    for pod in were_blocked.into_keys().filter(|pod| is_known && !are_blocked.contains_key(pod)) {
        changes.entry(pod.clone()).or_insert(PodChange::Unblocked(pod));
    }
    changes.into_values().collect()
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

fn blocked(of: &NodeMaintenance) -> BTreeMap<PodReference, &BlockedPod> {
    status(of).blocked_pods.iter().map(|pod| (pod.reference(), pod)).collect()
}

fn migrating(of: &NodeMaintenance) -> BTreeMap<PodReference, &MigratingPod> {
    let reference =
        |pod: &MigratingPod| PodReference { namespace: pod.namespace.clone(), name: pod.name.clone() };
    status(of).migrating_pods.iter().flatten().map(|pod| (reference(pod), pod)).collect()
}

fn waiting(of: &NodeMaintenance) -> BTreeMap<PodReference, &WaitingPod> {
    status(of).waiting_pods.iter().flatten().map(|pod| (pod.reference(), pod)).collect()
}

fn surging(of: &NodeMaintenance) -> BTreeMap<PodReference, &SurgingPod> {
    status(of).surging_pods.iter().flatten().map(|pod| (pod.reference(), pod)).collect()
}

fn returned(of: &NodeMaintenance) -> BTreeMap<PodReference, &ReturnedPod> {
    status(of).returned_pods.iter().flatten().map(|pod| (pod.reference(), pod)).collect()
}

/// `staying shop/operator-0: returned, because it tolerates the cordon`.
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

fn update_lines(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Vec<Line> {
    let mut lines = Vec::new();
    let headline_now = headline(now);
    if before.map(headline).as_ref() != Some(&headline_now) {
        lines.push(headline_now);
    }
    if before.is_none() && now.name_any() != node(now) {
        lines.push(Line::new(format!("name of the NodeMaintenance: {}", now.name_any())));
    }
    if let (None, Some(reason)) = (before, &now.spec.reason) {
        lines.push(Line::new("reason: ").and(reason));
    }
    let was_blocked = before.map(blocked).unwrap_or_default();
    lines.extend(pod_changes(before, now).into_iter().filter_map(|change| match change {
        PodChange::Blocked(pod) => Some(blocked_pod(pod)),
        PodChange::Unblocked(pod) => Some(unblocked_pod(&pod)),
        PodChange::Gone(pod) => was_blocked.contains_key(&pod).then(|| unblocked_pod(&pod)),
        PodChange::Waiting(pod) if was_blocked.contains_key(&pod.reference()) => {
            Some(unblocked_pod(&pod.reference()))
        }
        PodChange::Waiting(pod) => (pod.reason == WaitReason::Completing).then(|| waiting_pod(pod)),
        PodChange::Migrating(_) => None,
        PodChange::Surging(pod) => Some(surging_pod(pod)),
        PodChange::Returned(pod) => Some(returned_pod(pod)),
    }));
    lines.extend(failed_detachments(before, now));
    let error = &status(now).last_error;
    let is_reported = before.is_some_and(|before| &status(before).last_error == error)
        || is_in_headline(now)
        || only_names_blocked_pods(now);
    if !error.is_empty() && !is_reported {
        lines.push(Line::default().with(Style::Bad, "error").and(": ").and(error));
    }
    lines.extend(became_degraded(before, now));
    lines
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

/// `Completing, evicted at 2026-01-02T04:04:05Z`, or `BudgetTurn: budget cart allows it when 1 more of its pods is Ready`.
pub fn wait_progress(pod: &WaitingPod) -> String {
    let reason = pod.reason.as_str();
    match (&pod.until, pod.reason) {
        (Some(until), _) => format!("{reason}, evicted at {}", until.0),
        (None, WaitReason::BudgetTurn) => format!("{reason}: {}", budget_turn(pod)),
        (None, _) => reason.to_owned(),
    }
}

/// `budget cart allows it when 1 more of its pods is Ready, after 2 other pods of the node`.
fn budget_turn(pod: &WaitingPod) -> String {
    let name =
        pod.budget.as_ref().map_or_else(|| "its budget".to_owned(), |it| format!("budget {}", it.name));
    let missing = pod.budget.as_ref().and_then(|it| Some(it.desired_healthy? + 1 - it.current_healthy?));
    let when = match missing {
        Some(1) => "when 1 more of its pods is Ready".to_owned(),
        Some(missing @ 2..) => format!("when {missing} more of its pods are Ready"),
        _ => "when evicted pods have been replaced".to_owned(),
    };
    let after = match pod.ahead {
        ..=0 => String::new(),
        1 => ", after 1 other pod of the node".to_owned(),
        ahead => format!(", after {ahead} other pods of the node"),
    };
    format!("{name} allows it {when}{after}")
}

/// `waiting shop/import-x since 2026-01-02T03:04:05Z: Completing, evicted at 2026-01-02T04:04:05Z`.
pub fn waiting_pod(pod: &WaitingPod) -> Line {
    let line = Line::default().with(Style::Busy, "waiting");
    line.and(format!(" {} since {}: {}", pod.reference(), pod.since.0, wait_progress(pod)))
}

/// The volumes whose driver reports an error that it has not reported before.
fn failed_detachments(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Vec<Line> {
    let known = |volume: &AttachedVolume| {
        let mut all = before.map(attached_volumes).unwrap_or_default().iter();
        all.any(|was| was.attachment == volume.attachment && was.error == volume.error)
    };
    let failed = attached_volumes(now).iter().filter(|volume| volume.error.is_some() && !known(volume));
    failed.map(attached_volume).collect()
}

fn unblocked_pod(pod: &PodReference) -> Line {
    Line::default().with(Style::Good, "unblocked").and(format!(" {pod}"))
}

/// Whether the headline has `lastError`.
fn is_in_headline(maintenance: &NodeMaintenance) -> bool {
    matches!(State::of(maintenance), State::Queued | State::Failed)
}

/// Whether `lastError` only names the blocked pods, each of which has a line.
fn only_names_blocked_pods(maintenance: &NodeMaintenance) -> bool {
    condition(maintenance, ConditionType::Drained)
        .is_some_and(|drained| ConditionReason::of(drained) == Some(ConditionReason::Blocked))
}

fn became_degraded(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Option<Line> {
    // Without a message, `lastError` has it.
    let condition = degraded(now).filter(|condition| !condition.message.is_empty())?;
    let is_reported = before.and_then(degraded).is_some_and(|was| was.message == condition.message);
    (!is_reported).then(|| Line::default().with(Style::Bad, "degraded").and(": ").and(&condition.message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::objects::{named, requested, running, stopping, with_status};

    #[track_caller]
    fn check(before: Option<Value>, now: Value, lines: &[&str]) {
        let object = |status| Arc::new(with_status("n1", status));
        let change = MaintenanceChange::Updated { before: before.map(object), now: object(now) };
        assert_eq!(change.lines().iter().map(ToString::to_string).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn progress_is_reported_once() {
        let (first, second) = (running(40, &[]), running(50, &[]));
        check(None, first.clone(), &["Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone"]);
        check(Some(first.clone()), first.clone(), &[]);
        check(Some(first), second, &["Draining 50%: 3 pods remaining (1 terminating, 2 evicting), 4 gone"]);
    }

    #[test]
    fn blocked_pods_are_reported_when_they_begin_change_and_end() {
        let headline = "Blocked 40%: 4 pods remaining (1 blocked, 1 terminating, 2 evicting), 4 gone";
        let free = "Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone";
        let (none, one) = (running(40, &[]), running(40, &[("cart-0", "budget cart has 1")]));
        check(
            Some(none.clone()),
            one.clone(),
            &[headline, "blocked shop/cart-0: DisruptionBudget: budget cart has 1"],
        );
        check(
            Some(one.clone()),
            running(40, &[("cart-0", "budget cart has 2")]),
            &["blocked shop/cart-0: DisruptionBudget: budget cart has 2"],
        );
        check(Some(one), none, &[free, "unblocked shop/cart-0"]);
    }

    #[test]
    fn pods_that_the_drain_waits_for_are_reported_when_the_wait_begins_or_its_end_changes() {
        let completing = |until: Option<&str>| {
            let pod = json!({"namespace": "shop", "name": "import-x", "reason": "Completing",
                "since": "2026-01-02T03:04:05Z", "until": until});
            let mut status = running(40, &[]);
            status["waitingPods"] = json!([pod]);
            status
        };
        let none = running(40, &[]);
        let begins = "waiting shop/import-x since 2026-01-02T03:04:05Z: Completing";
        check(Some(none.clone()), completing(None), &[begins]);
        check(Some(completing(None)), completing(None), &[]);
        let limited = || completing(Some("2026-01-02T04:04:05Z"));
        check(Some(completing(None)), limited(), &[&format!("{begins}, evicted at 2026-01-02T04:04:05Z")]);
        check(Some(limited()), none, &[]);
    }

    #[test]
    fn a_pod_that_waits_for_its_budget_is_no_news_but_for_the_end_of_its_block() {
        let waits = |healthy: i32, ahead: i32| {
            let budget = json!({"name": "cart", "desiredHealthy": 4, "currentHealthy": healthy});
            let mut status = running(40, &[]);
            status["waitingPods"] = json!([{"namespace": "shop", "name": "cart-0", "reason": "BudgetTurn",
                "since": "2026-01-02T03:04:05Z", "budget": budget, "ahead": ahead}]);
            status
        };
        check(Some(running(40, &[])), waits(4, 0), &[]);
        let blocked = running(40, &[("cart-0", "budget cart has 1")]);
        let free = "Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone";
        check(Some(blocked), waits(4, 0), &[free, "unblocked shop/cart-0"]);
        let progress = |healthy, ahead| {
            let object = with_status("n1", waits(healthy, ahead));
            wait_progress(&status(&object).waiting_pods.as_ref().unwrap()[0])
        };
        assert_eq!(progress(4, 0), "BudgetTurn: budget cart allows it when 1 more of its pods is Ready");
        let many = "BudgetTurn: budget cart allows it when 3 more of its pods are Ready, after 2 other pods of the node";
        assert_eq!(progress(2, 2), many);
        let replaced = "BudgetTurn: budget cart allows it when evicted pods have been replaced, after 1 other pod of the node";
        assert_eq!(progress(5, 1), replaced);
    }

    #[test]
    fn a_pod_that_came_back_is_reported_once() {
        let returned = || {
            let pod = json!({"namespace": "shop", "name": "operator-0", "since": "2026-01-02T03:04:05Z"});
            let mut status = running(40, &[]);
            status["returnedPods"] = json!([pod]);
            status
        };
        let stays = "staying shop/operator-0: returned, because it tolerates the cordon";
        check(Some(running(40, &[])), returned(), &[stays]);
        check(Some(returned()), returned(), &[]);
        check(Some(returned()), running(40, &[]), &[]);
    }

    #[test]
    fn a_pod_cut_from_the_list_is_not_reported_as_unblocked() {
        let mut cut = running(40, &[]);
        cut["podCounts"]["blocked"] = json!(60);
        let mut full = running(40, &[("cart-0", "m")]);
        full["podCounts"]["blocked"] = json!(60);
        check(Some(full), cut, &[]);
    }

    #[test]
    fn a_pod_that_was_blocked_before_a_pause_is_not_reported_as_unblocked() {
        let blocked = running(40, &[("cart-0", "budget cart has 1")]);
        let mut paused = running(40, &[]);
        paused["conditions"] = json!([{"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let lines = |before: &Value, now: &Value| {
            let object = |status: &Value| Arc::new(with_status("n1", status.clone()));
            let change = MaintenanceChange::Updated { before: Some(object(before)), now: object(now) };
            change.lines().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let is_reported = |line: &String| line.contains("blocked shop/cart-0");
        assert!(!lines(&blocked, &paused).iter().any(is_reported));
        assert!(
            lines(&paused, &blocked).iter().any(is_reported),
            "it is still blocked when the drain continues"
        );
    }

    #[test]
    fn errors_are_reported_once_and_not_beside_a_headline_that_has_them() {
        check(
            Some(json!({"phase": "Running"})),
            json!({"phase": "Running", "lastError": "webhook down"}),
            &["error: webhook down"],
        );
        let failed = json!({"phase": "Failed", "lastError": "gave up"});
        check(
            Some(json!({"phase": "Running", "lastError": "gave up"})),
            failed.clone(),
            &["Failed: gave up"],
        );
        check(None, failed, &["Failed: gave up"]);
    }

    #[test]
    fn errors_that_summarize_blocked_pods_are_not_reported_beside_them() {
        let mut blocked = running(40, &[("cart-0", "budget cart has 1")]);
        let before = blocked.clone();
        let drained = |reason: &str| {
            json!([{"type": "Drained", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}])
        };
        blocked["lastError"] = json!("1 pod is blocked: shop/cart-0 (DisruptionBudget)");
        blocked["conditions"] = drained("Blocked");
        check(Some(before.clone()), blocked.clone(), &[]);
        blocked["lastError"] = json!("the lease is held");
        blocked["conditions"] = drained("LeaseLost");
        check(Some(before), blocked, &["error: the lease is held"]);
    }

    #[test]
    fn an_error_of_a_driver_is_reported_once() {
        let waits = |error: Option<&str>| {
            let volume = json!({"attachment": "csi-1", "persistentVolume": "pv-1", "driver": "d",
                "claim": {"namespace": "shop", "name": "data-0"}, "since": "2026-01-02T03:04:05Z", "error": error});
            json!({"phase": "Running", "attachedVolumes": [volume]})
        };
        let failed = "attached pv-1 (claim shop/data-0) by d since 2026-01-02T03:04:05Z: busy";
        check(Some(waits(None)), waits(Some("busy")), &[failed]);
        check(Some(waits(Some("busy"))), waits(Some("busy")), &[]);
    }

    #[test]
    fn a_degraded_maintenance_is_reported() {
        let degraded = json!({"phase": "Running", "conditions": [{"type": "Degraded", "status": "True",
            "reason": "Forbidden", "message": "may not evict", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
        check(Some(json!({"phase": "Running"})), degraded.clone(), &["degraded: may not evict"]);
        check(Some(degraded.clone()), degraded, &[]);
    }

    #[test]
    fn creation_and_deletion_are_reported() {
        let mut object = named("other", "n1", "u");
        object.spec.reason = Some("new \x1b[31mkernel".into());
        let created = MaintenanceChange::Updated { before: None, now: Arc::new(object) };
        let lines: Vec<String> = created.lines().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "Requested: nm-reconciler has not begun yet",
                "name of the NodeMaintenance: other",
                "reason: new ^[[31mkernel"
            ]
        );
        for (last, line) in [
            (requested("n1"), "Stopped: the maintenance was deleted"),
            (stopping(requested("n1")), "Stopped: the node is back in service"),
        ] {
            assert_eq!(MaintenanceChange::Deleted(Arc::new(last)).lines()[0].to_string(), line);
        }
    }
}
