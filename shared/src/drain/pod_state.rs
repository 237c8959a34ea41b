//! Where one pod stands on its way off the node.

use jiff::{SignedDuration, Timestamp};

use crate::api::group::Group;
use crate::api::status::BlockReason;
use crate::cluster::pod::{self, PodView, Termination};
use crate::drain::attempt::Attempt;
use crate::drain::budget_forecast::Budgets;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::plan::{PlannedPod, Verdict};
use crate::drain::respawns;
use crate::drain::steady_time::SteadyTime;
use crate::drain::virtual_machine::{Evacuation, MigrationFailure};

/// How long after its grace a pod must be gone before it is called stuck: kubelets need a moment.
const KUBELET_SLACK: SignedDuration = SignedDuration::from_secs(60);

/// Where a pod stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodState {
    /// It stays, and nobody waits for it.
    Skipped,
    /// It has not been asked to go yet.
    Waiting,
    /// An eviction is under way, or accepted but not yet to be seen on the pod.
    Evicting,
    /// It is ending.
    Terminating,
    /// KubeVirt is moving it.
    Migrating,
    /// Something refuses to let it go.
    Blocked(Blocker),
}

/// What refuses to let a pod go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The kind.
    pub reason: BlockReason,
    /// By name, with numbers.
    pub message: String,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// Evictions refused so far.
    pub refusals: u32,
}

/// What is known about a pod beside itself.
#[derive(Debug, Clone, Copy)]
pub struct PodContext<'a> {
    /// The group of the maintenance.
    pub group: Group,
    /// Its evictions so far.
    pub attempt: Option<&'a Attempt>,
    /// What the clock says now by which they are counted.
    pub steady_now: SteadyTime,
    /// The numbers of the budget for which it is not asked.
    pub held: Option<&'a str>,
    /// Whether it has been refused for so long that it is to be deleted.
    pub overdue: bool,
    /// The budgets around it.
    pub budgets: &'a Budgets,
    /// How far the virtual machine in it has come, if KubeVirt is to take it away.
    pub evacuation: Option<&'a Evacuation>,
    /// Whether its node is Ready.
    pub node_ready: bool,
}

/// Where `judged` stands.
pub fn state(judged: &PlannedPod, known: &PodContext<'_>, now: Timestamp) -> PodState {
    if judged.verdict == Verdict::Block(BlockReason::ComesBack) {
        let message = respawns::why(&judged.pod, known.group.drain_taint());
        return PodState::Blocked(Blocker { message, ..retained(BlockReason::ComesBack) });
    }
    let node = judged.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let unready_node = (!known.node_ready).then_some(node);
    if let Some(state) = visible_state(&*judged.pod, judged.verdict, unready_node, now) {
        return state;
    }
    if judged.verdict == Verdict::Wait {
        return PodState::Waiting;
    }
    let unasked = Attempt::default();
    let attempt = known.attempt.unwrap_or(&unasked);
    let since = attempt.refused_since.map(|at| at.on_wall(known.steady_now, now));
    let blocked =
        |(reason, message)| PodState::Blocked(Blocker { reason, message, since, refusals: attempt.refusals });
    if let Some(evacuation) = known.evacuation.filter(|_| is_kubevirts(attempt)) {
        return match &evacuation.failure {
            None => PodState::Migrating,
            Some(failure) => PodState::Blocked(migration_failed(failure, attempt)),
        };
    }
    if let (Some((_, refusal)), true) = (&attempt.deletion, known.overdue) {
        return blocked(refused(judged, refusal, "deletion", known.budgets));
    }
    let budget_decides = matches!(attempt.last, None | Some((_, EvictionOutcome::RefusedByBudget(_))));
    if let (Some(numbers), true) = (known.held, budget_decides) {
        return blocked((BlockReason::DisruptionBudget, numbers.to_owned()));
    }
    match &attempt.last {
        None if attempt.in_flight => PodState::Evicting,
        None => PodState::Waiting,
        Some((_, EvictionOutcome::Accepted | EvictionOutcome::Gone)) => PodState::Evicting,
        Some((_, EvictionOutcome::Migrating(_))) => PodState::Migrating,
        // A retry does not make a blocked pod any less blocked until it succeeds.
        Some((_, refusal)) => blocked(refused(judged, refusal, "eviction", known.budgets)),
    }
}

/// Whether a machine that is to leave is on its way for all that the eviction of its pod was answered. KubeVirt before
/// 1.3 marks the machine and leaves the refusal to a budget of its own (`pod-eviction-admitter.go` in kubevirt/kubevirt).
fn is_kubevirts(attempt: &Attempt) -> bool {
    use EvictionOutcome::{Migrating, RefusedByBudget};
    matches!(attempt.last, None | Some((_, Migrating(_) | RefusedByBudget(_))))
}

/// When the state of a pod changes without anything happening in the cluster.
pub fn next_change(judged: &PlannedPod, now: Timestamp) -> Option<Timestamp> {
    let deadline = pod::deadline(&judged.pod)?;
    let stuck = deadline.saturating_add(KUBELET_SLACK).ok()?;
    [deadline, stuck].into_iter().find(|at| *at > now)
}

/// The state of a pod as far as the pod itself shows it; none if it depends on its evictions. `unready_node` is its node,
/// if that is not Ready.
pub fn visible_state(
    pod: &dyn PodView,
    verdict: Verdict,
    unready_node: Option<&str>,
    now: Timestamp,
) -> Option<PodState> {
    match verdict {
        Verdict::Skip(_) => Some(PodState::Skipped),
        Verdict::Block(reason) => Some(PodState::Blocked(retained(reason))),
        Verdict::Evict | Verdict::Wait => {
            pod.termination().map(|termination| terminating(&termination, unready_node, now))
        }
    }
}

fn terminating(termination: &Termination<'_>, unready_node: Option<&str>, now: Timestamp) -> PodState {
    let Termination { deadline, grace_seconds, finalizers } = *termination;
    let overdue = now.duration_since(deadline);
    let ended = grace_seconds == Some(0) || overdue.is_positive();
    let (reason, message) = if !finalizers.is_empty() && ended {
        let them = finalizers.join(", ");
        let message = format!("ended, but held by finalizers, which their owners must remove: {them}");
        (BlockReason::Finalizers, message)
    } else if let Some(node) = unready_node {
        let message = format!("terminating, but its node {node} is not Ready: nobody confirms that it ended");
        (BlockReason::NodeNotReady, message)
    } else if overdue > KUBELET_SLACK {
        let slack = KUBELET_SLACK.as_secs();
        let grace = grace_seconds.map(|seconds| format!(" of {seconds} s")).unwrap_or_default();
        let message = format!(
            "terminating, but still there more than {slack} s after its grace period{grace}: the kubelet does not end it"
        );
        (BlockReason::NotEnding, message)
    } else {
        return PodState::Terminating;
    };
    PodState::Blocked(Blocker { reason, message, since: Some(deadline), refusals: 0 })
}

/// What blocks a pod that the drain spec retains.
fn retained(reason: BlockReason) -> Blocker {
    let message = match reason {
        BlockReason::LocalStorage => {
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false".to_owned()
        }
        _ => "no controller would replace it and spec.drain.force is false".to_owned(),
    };
    Blocker { reason, message, since: None, refusals: 0 }
}

/// What an answer to its eviction or deletion comes to.
fn refused(
    judged: &PlannedPod,
    refusal: &EvictionOutcome,
    request: &str,
    budgets: &Budgets,
) -> (BlockReason, String) {
    match refusal {
        EvictionOutcome::RefusedByBudget(message) => (BlockReason::DisruptionBudget, message.clone()),
        EvictionOutcome::MultipleBudgets(message) => (
            BlockReason::MultipleDisruptionBudgets,
            several_budgets(&budgets.sentences(&judged.pod), message),
        ),
        EvictionOutcome::NotMigratable(message) => (BlockReason::NotMigratable, message.clone()),
        EvictionOutcome::RefusedByWebhook { message, .. } => (BlockReason::AdmissionWebhook, message.clone()),
        EvictionOutcome::Forbidden(message) => (BlockReason::Forbidden, message.clone()),
        EvictionOutcome::NamespaceTerminating => {
            (BlockReason::NamespaceTerminating, "its namespace is terminating and will end it".to_owned())
        }
        EvictionOutcome::Throttled { message, retry_after } => {
            let wait = retry_after.map(|wait| format!(" for {} s", wait.as_secs())).unwrap_or_default();
            (BlockReason::ServerError, format!("the API server asks for patience{wait}: {message}"))
        }
        EvictionOutcome::Unknown(message) => {
            (BlockReason::ServerError, format!("the {request} failed and is tried again: {message}"))
        }
        EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {
            (BlockReason::Unknown, String::new())
        }
    }
}

/// What several budgets say; `answer` where they are not seen.
fn several_budgets(budgets: &[String], answer: &str) -> String {
    if budgets.len() < 2 {
        return answer.to_owned();
    }
    let count = budgets.len();
    format!(
        "{count} disruption budgets select this pod, and the API server evicts none with more than one: change or delete all but one. {}",
        budgets.join("; ")
    )
}

fn migration_failed(failure: &MigrationFailure, attempt: &Attempt) -> Blocker {
    let MigrationFailure { message, at } = failure.clone();
    let reason = BlockReason::MigrationFailed;
    Blocker { reason, message, since: at, refusals: attempt.refusals }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn judged(metadata: &Value) -> PlannedPod {
        let pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        PlannedPod { pod: Arc::new(pod), verdict: Verdict::Evict, warnings: Vec::new() }
    }

    fn answered(outcome: EvictionOutcome) -> Attempt {
        let mut attempt = Attempt::default();
        attempt.end(outcome, SteadyTime::MIN);
        attempt
    }

    fn known<'a>(attempt: Option<&'a Attempt>, node_ready: bool, budgets: &'a Budgets) -> PodContext<'a> {
        PodContext {
            group: Group::Medik8s,
            attempt,
            steady_now: SteadyTime::MIN,
            held: None,
            overdue: false,
            budgets,
            evacuation: None,
            node_ready,
        }
    }

    fn word(state: &PodState) -> String {
        match state {
            PodState::Blocked(obstacle) => obstacle.reason.as_str().to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn an_eviction_under_way_or_accepted_is_evicting_and_a_refusal_blocks() {
        use EvictionOutcome as Outcome;
        let pod = judged(&json!({}));
        let check = |attempt: Option<Attempt>, expected: &str| {
            assert_eq!(
                word(&state(&pod, &known(attempt.as_ref(), true, &Budgets::default()), now())),
                expected
            );
        };
        check(None, "Waiting");
        check(Some(Attempt { in_flight: true, ..Attempt::default() }), "Evicting");
        check(Some(answered(Outcome::Accepted)), "Evicting");
        check(Some(answered(Outcome::Migrating(String::new()))), "Migrating");
        check(Some(answered(Outcome::RefusedByBudget(String::new()))), "DisruptionBudget");
        check(Some(answered(Outcome::Forbidden(String::new()))), "Forbidden");
        check(Some(Attempt { in_flight: true, ..answered(Outcome::Unknown(String::new())) }), "ServerError");
    }

    #[test]
    fn a_deletion_that_is_refused_is_reported_until_it_is_not_due_any_more() {
        let mut attempt = answered(EvictionOutcome::RefusedByBudget(String::new()));
        attempt.end_deletion(EvictionOutcome::Forbidden("cannot delete".to_owned()), SteadyTime::MIN);
        let at = SteadyTime::MIN.after(std::time::Duration::from_secs(1));
        attempt.end(EvictionOutcome::RefusedByBudget(String::new()), at);
        let budgets = Budgets::default();
        let report = |overdue| {
            let known = PodContext { overdue, ..known(Some(&attempt), true, &budgets) };
            word(&state(&judged(&json!({})), &known, now()))
        };
        assert_eq!((report(true), report(false)), ("Forbidden".to_owned(), "DisruptionBudget".to_owned()));
    }

    #[test]
    fn a_refusal_says_who_refuses_and_what_to_do() {
        use EvictionOutcome as Outcome;
        let pod = judged(&json!({"namespace": "ns", "name": "p", "labels": {"app": "a"}}));
        let budget = |name: &&str| -> PodDisruptionBudget {
            let budget = json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"selector": {}},
                "status": {"desiredHealthy": 2, "currentHealthy": 3}});
            serde_json::from_value(budget).unwrap()
        };
        let check = |budgets: &[&str], outcome: Outcome, expected: &str| {
            let budgets = Budgets::from_objects(&budgets.iter().map(budget).collect::<Vec<_>>());
            let attempt = answered(outcome);
            let state = state(&pod, &known(Some(&attempt), true, &budgets), now());
            let PodState::Blocked(obstacle) = state else { panic!("{state:?}") };
            assert_eq!(obstacle.message, expected);
        };
        let said = || "what the server said".to_owned();
        check(&[], Outcome::MultipleBudgets(said()), "what the server said");
        check(
            &["b", "a"],
            Outcome::MultipleBudgets(said()),
            "2 disruption budgets select this pod, and the API server evicts none with more than one: change or \
             delete all but one. The disruption budget a needs 2 healthy pods and has 3 currently; The disruption \
             budget b needs 2 healthy pods and has 3 currently",
        );
        let wait = Some(std::time::Duration::from_secs(7));
        check(
            &[],
            Outcome::Throttled { retry_after: wait, message: said() },
            "the API server asks for patience for 7 s: what the server said",
        );
        check(&[], Outcome::Unknown(said()), "the eviction failed and is tried again: what the server said");
    }

    #[test]
    fn a_machine_that_kubevirt_moves_is_migrating_until_that_fails() {
        use EvictionOutcome as Outcome;
        let pod = judged(&json!({}));
        let check = |attempt: Option<Attempt>, failure: Option<MigrationFailure>, expected: &str| {
            let (budgets, evacuation) = (Budgets::default(), Evacuation { failure, ..Evacuation::default() });
            let known =
                PodContext { evacuation: Some(&evacuation), ..known(attempt.as_ref(), true, &budgets) };
            assert_eq!(word(&state(&pod, &known, now())), expected);
        };
        let failed = || Some(MigrationFailure { message: "its live migration failed".to_owned(), at: None });
        let migrating = || Some(answered(Outcome::Migrating(String::new())));
        check(None, None, "Migrating");
        check(migrating(), None, "Migrating");
        check(Some(answered(Outcome::RefusedByBudget(String::new()))), None, "Migrating");
        check(migrating(), failed(), "MigrationFailed");
        check(Some(answered(Outcome::Forbidden(String::new()))), None, "Forbidden");
        check(Some(answered(Outcome::Accepted)), None, "Evicting");
    }

    #[test]
    fn a_terminating_pod_is_stuck_only_when_something_holds_it() {
        let check = |metadata: &Value, ready: bool, expected: &str| {
            assert_eq!(
                word(&state(&judged(metadata), &known(None, ready, &Budgets::default()), now())),
                expected,
                "{metadata}"
            );
        };
        let ending = json!({"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30});
        check(&ending, true, "Terminating");
        check(&ending, false, "NodeNotReady");
        let held = json!({"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30, "finalizers": ["a/b"]});
        check(&held, true, "Terminating");
        let ended = json!({"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]});
        check(&ended, true, "Finalizers");
        check(&json!({"deletionTimestamp": "2026-01-01T00:59:30Z"}), true, "Terminating");
        check(&json!({"deletionTimestamp": "2026-01-01T00:58:59Z"}), true, "NotEnding");
    }
}
