//! The lines that report a change of a maintenance: a pure function of its previous and its current object.

use std::collections::BTreeMap;

use kube::ResourceExt;
use nm_shared::api::condition::ConditionReason;
use nm_shared::{BlockedPod, NodeMaintenance};

use crate::maintenance::{State, condition, degraded, headline, node, status};
use crate::terminal::text::{Line, Style};

/// A maintenance that is new, has changed or is gone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// It exists.
    Seen {
        /// The previous object, if it was known.
        before: Option<Box<NodeMaintenance>>,
        /// The current object.
        now: Box<NodeMaintenance>,
    },
    /// It is gone; this is the last known object.
    Gone(Box<NodeMaintenance>),
}

impl Change {
    /// The node of the maintenance.
    pub(crate) fn node(&self) -> &str {
        match self {
            Self::Seen { now, .. } => node(now),
            Self::Gone(last) => node(last),
        }
    }

    /// The lines that report it, without the node's name; none if nothing relevant changed.
    pub(crate) fn lines(&self) -> Vec<Line> {
        match self {
            Self::Seen { before, now } => seen(before.as_deref(), now),
            Self::Gone(last) if last.metadata.deletion_timestamp.is_some() => {
                vec![Line::default().with(Style::Good, "Stopped").and(": the node is back in service")]
            }
            Self::Gone(_) => {
                vec![Line::default().with(Style::Good, "Stopped").and(": the maintenance was deleted")]
            }
        }
    }
}

fn seen(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Vec<Line> {
    let mut lines = Vec::new();
    let is_headline = headline(now);
    if before.map(headline).as_ref() != Some(&is_headline) {
        lines.push(is_headline.clone());
    }
    if before.is_none() && now.name_any() != node(now) {
        lines.push(Line::new(format!("the object is named {}", now.name_any())));
    }
    if let (None, Some(reason)) = (before, &now.spec.reason) {
        lines.push(Line::new("reason: ").and(reason));
    }
    lines.extend(blocked(before, now));
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

/// The pods that became blocked or unblocked.
fn blocked(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Vec<Line> {
    fn pods(of: &NodeMaintenance) -> BTreeMap<(&str, &str), &BlockedPod> {
        status(of).blocked_pods.iter().map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod)).collect()
    }
    let (were, are) = (before.map(pods).unwrap_or_default(), pods(now));
    let begun = are.iter().filter(|(name, pod)| {
        were.get(*name).is_none_or(|was| (was.reason, &was.message) != (pod.reason, &pod.message))
    });
    let mut lines: Vec<Line> = begun.map(|(_, pod)| blocked_pod(pod)).collect();
    // The list has at most fifty pods; one that it no longer has may still be blocked.
    let all_listed = usize::try_from(status(now).pod_counts.blocked).is_ok_and(|count| count <= are.len());
    if all_listed {
        let ended = were.keys().filter(|name| !are.contains_key(*name));
        lines.extend(ended.map(|(namespace, name)| {
            Line::default().with(Style::Good, "unblocked").and(format!(" {namespace}/{name}"))
        }));
    }
    lines
}

/// A blocked pod with the reason and the message.
pub(crate) fn blocked_pod(pod: &BlockedPod) -> Line {
    let line = Line::default().with(Style::Bad, "blocked").and(format!(
        " {}/{}: {}",
        pod.namespace,
        pod.name,
        pod.reason.as_str()
    ));
    if pod.message.is_empty() { line } else { line.and(": ").and(&pod.message) }
}

/// Whether the headline has `lastError`.
fn is_in_headline(maintenance: &NodeMaintenance) -> bool {
    matches!(State::of(maintenance), State::Queued | State::Failed)
}

/// Whether `lastError` only names the blocked pods, each of which has a line.
fn only_names_blocked_pods(maintenance: &NodeMaintenance) -> bool {
    condition(maintenance, "Drained").is_some_and(|drained| drained.reason == ConditionReason::Blocked.as_str())
}

fn became_degraded(before: Option<&NodeMaintenance>, now: &NodeMaintenance) -> Option<Line> {
    // Without a message, `lastError` has it.
    let degraded = degraded(now).filter(|degraded| !degraded.message.is_empty())?;
    let was = before.and_then(crate::maintenance::degraded);
    let is_reported = was.is_some_and(|was| was.message == degraded.message);
    (!is_reported).then(|| Line::default().with(Style::Bad, "degraded").and(": ").and(&degraded.message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::maintenance::fixture::{named, requested, running, stopping, with_status};

    #[track_caller]
    fn check(before: Option<Value>, now: Value, lines: &[&str]) {
        let object = |status| Box::new(with_status("n1", status));
        let change = Change::Seen { before: before.map(object), now: object(now) };
        assert_eq!(change.lines().iter().map(ToString::to_string).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn progress_is_reported_once() {
        let (first, second) = (running(40, &[]), running(50, &[]));
        check(None, first.clone(), &["Draining 40%: 3 pods remaining (2 evicting, 1 terminating), 4 gone"]);
        check(Some(first.clone()), first.clone(), &[]);
        check(Some(first), second, &["Draining 50%: 3 pods remaining (2 evicting, 1 terminating), 4 gone"]);
    }

    #[test]
    fn blocked_pods_are_told_as_they_begin_change_and_end() {
        let headline = "Blocked 40%: 4 pods remaining (2 evicting, 1 terminating, 1 blocked), 4 gone";
        let free = "Draining 40%: 3 pods remaining (2 evicting, 1 terminating), 4 gone";
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
    fn a_pod_cut_from_the_list_is_not_called_unblocked() {
        let mut cut = running(40, &[]);
        cut["podCounts"]["blocked"] = json!(60);
        let mut full = running(40, &[("cart-0", "m")]);
        full["podCounts"]["blocked"] = json!(60);
        check(Some(full), cut, &[]);
    }

    #[test]
    fn an_error_is_reported_once_and_not_beside_a_headline_that_has_it() {
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
    fn an_error_that_only_names_blocked_pods_is_not_reported_beside_them() {
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
    fn a_degraded_maintenance_is_reported() {
        let degraded = json!({"phase": "Running", "conditions": [{"type": "Degraded", "status": "True",
            "reason": "Forbidden", "message": "may not evict", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
        check(Some(json!({"phase": "Running"})), degraded.clone(), &["degraded: may not evict"]);
        check(Some(degraded.clone()), degraded, &[]);
    }

    #[test]
    fn beginning_and_end_are_told() {
        let mut object = named("other", "n1", "u");
        object.spec.reason = Some("new \x1b[31mkernel".into());
        let begun = Change::Seen { before: None, now: Box::new(object) };
        let lines: Vec<String> = begun.lines().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "Requested: no reconciler has picked it up yet",
                "the object is named other",
                "reason: new ^[[31mkernel"
            ]
        );
        for (last, line) in [
            (requested("n1"), "Stopped: the maintenance was deleted"),
            (stopping(requested("n1")), "Stopped: the node is back in service"),
        ] {
            assert_eq!(Change::Gone(Box::new(last)).lines()[0].to_string(), line);
        }
    }
}
