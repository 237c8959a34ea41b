//! The state of one pod during a drain, and why it is blocked.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use crate::api::group::Group;
use crate::api::status::{BlockFacts, BlockReason, truncated};
use crate::cluster::disruption_budget::BudgetRefusal;
use crate::cluster::pod::{self, PodView, Termination};
use crate::drain::attempt::Attempt;
use crate::drain::budget_forecast::Budgets;
use crate::drain::eviction_outcome::{EvictionOutcome, KUBEVIRT_WEBHOOK};
use crate::drain::plan::{PlannedPod, Verdict};
use crate::drain::respawns;
use crate::drain::steady_time::SteadyTime;
use crate::drain::virtual_machine::{Evacuation, MigrationFailure};

/// A pod that is still there this long after its grace period is blocked. Until then the kubelet may be removing it.
const KUBELET_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// The state of a pod during a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a state lives for one decision")]
pub enum PodState {
    /// It stays, and the drain does not wait for it.
    Skipped,
    /// No eviction was requested yet.
    Waiting,
    /// An eviction is in flight, or was accepted and the pod does not show it yet.
    Evicting,
    /// It is terminating.
    Terminating,
    /// KubeVirt is migrating its virtual machine.
    Migrating,
    /// It is blocked.
    Blocked(Blocker),
}

/// What blocks a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The reason, as a word for programs.
    pub reason: BlockReason,
    /// The reason, as a sentence for people.
    pub message: String,
    /// The facts in the message.
    pub facts: BlockFacts,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
    /// How many evictions have been refused.
    pub refusals: u32,
}

/// The owners of pods, budgets and webhooks choose how long a message becomes, and 50 of them must fit into one object.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The finalizers of a pod that are listed.
const MAX_FINALIZERS: usize = 10;

/// The budgets of a pod that are listed.
const MAX_BUDGETS: usize = 10;

impl Blocker {
    pub(crate) fn new(reason: BlockReason, message: impl Into<String>) -> Self {
        let message = truncated(message.into(), MAX_MESSAGE_BYTES);
        Self { reason, message, facts: BlockFacts::default(), since: None, refusals: 0 }
    }

    pub(crate) fn with(self, facts: BlockFacts) -> Self {
        Self { facts, ..self }
    }
}

/// What is known about a pod beside the object itself.
#[derive(Debug, Clone, Copy)]
pub struct PodContext<'a> {
    /// The group of the maintenance.
    pub group: Group,
    /// Its evictions.
    pub attempt: Option<&'a Attempt>,
    /// The current time of the clock that they are measured by.
    pub steady_now: SteadyTime,
    /// The budget because of which no eviction is requested.
    pub blocked_by_budget: Option<&'a BudgetRefusal>,
    /// Whether its eviction has been refused for so long that it is to be deleted.
    pub overdue: bool,
    /// The budgets in its namespace.
    pub budgets: &'a Budgets,
    /// The evacuation of its virtual machine, if KubeVirt is to migrate that.
    pub evacuation: Option<&'a Evacuation>,
    /// Whether its node is Ready.
    pub node_ready: bool,
}

/// The state of a pod.
pub fn state(planned: &PlannedPod, context: &PodContext<'_>, now: Timestamp) -> PodState {
    if planned.verdict == Verdict::Block(BlockReason::ComesBack) {
        let message = respawns::why(&planned.pod, context.group.drain_taint());
        return PodState::Blocked(Blocker::new(BlockReason::ComesBack, message));
    }
    let unready_node = (!context.node_ready).then_some(&*planned.pod.node);
    if let Some(state) = visible_state(&*planned.pod, planned.verdict, unready_node, now) {
        return state;
    }
    if planned.verdict == Verdict::Wait {
        return PodState::Waiting;
    }
    let unasked = Attempt::default();
    let attempt = context.attempt.unwrap_or(&unasked);
    let since = attempt.refused_since.map(|at| at.on_wall(context.steady_now, now));
    let blocked =
        |blocker: Blocker| PodState::Blocked(Blocker { since, refusals: attempt.refusals, ..blocker });
    if let Some(evacuation) = context.evacuation.filter(|_| is_left_to_kubevirt(attempt)) {
        return match &evacuation.failure {
            None => PodState::Migrating,
            Some(failure) => PodState::Blocked(migration_failed(failure, attempt)),
        };
    }
    if let (Some((_, refusal)), true) = (&attempt.deletion, context.overdue) {
        return blocked(refused(planned, refusal, "deletion", context.budgets));
    }
    let budget_decides = matches!(attempt.last, None | Some((_, EvictionOutcome::RefusedByBudget(_))));
    if let (Some(refusal), true) = (context.blocked_by_budget, budget_decides) {
        return blocked(blocked_by_budget(planned, refusal, context.budgets));
    }
    match &attempt.last {
        None if attempt.in_flight => PodState::Evicting,
        None => PodState::Waiting,
        Some((_, EvictionOutcome::Accepted | EvictionOutcome::Gone)) => PodState::Evicting,
        Some((_, EvictionOutcome::Migrating(_))) => PodState::Migrating,
        // A blocked pod stays blocked until a retry succeeds.
        Some((_, refusal)) => blocked(refused(planned, refusal, "eviction", context.budgets)),
    }
}

/// Whether the answer to the eviction leaves the pod to KubeVirt. KubeVirt before 1.3 marks the virtual machine and leaves
/// the refusal to a budget of its own (`pod-eviction-admitter.go` in kubevirt/kubevirt).
fn is_left_to_kubevirt(attempt: &Attempt) -> bool {
    use EvictionOutcome::{Migrating, RefusedByBudget};
    matches!(attempt.last, None | Some((_, Migrating(_) | RefusedByBudget(_))))
}

/// When the state of a pod changes without an event in the cluster.
pub fn next_change(planned: &PlannedPod, now: Timestamp) -> Option<Timestamp> {
    let deadline = pod::deadline(&planned.pod)?;
    let stuck = deadline.saturating_add(KUBELET_TIMEOUT).ok()?;
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
        Verdict::Block(reason) => Some(PodState::Blocked(blocked_by_spec(reason))),
        Verdict::Evict | Verdict::Wait => {
            pod.termination().map(|termination| terminating(&termination, unready_node, now))
        }
    }
}

fn terminating(termination: &Termination<'_>, unready_node: Option<&str>, now: Timestamp) -> PodState {
    let Termination { deadline, grace_seconds, finalizers } = *termination;
    let overdue = now.duration_since(deadline);
    let ended = grace_seconds == Some(0) || overdue.is_positive();
    let blocker = if !finalizers.is_empty() && ended {
        let listed = &finalizers[..finalizers.len().min(MAX_FINALIZERS)];
        let mut names = listed.join(", ");
        if listed.len() < finalizers.len() {
            let _ = write!(names, " and {} more", finalizers.len() - listed.len());
        }
        let message = format!("ended, but finalizers keep it until their owners remove them: {names}");
        let facts = BlockFacts { finalizers: listed.to_vec(), ..BlockFacts::default() };
        Blocker::new(BlockReason::Finalizers, message).with(facts)
    } else if let Some(node) = unready_node {
        let message = format!(
            "terminating, but its node {node} is not Ready, so no kubelet confirms that it has ended"
        );
        let facts = BlockFacts { node: Some(node.to_owned()), ..BlockFacts::default() };
        Blocker::new(BlockReason::NodeNotReady, message).with(facts)
    } else if overdue > KUBELET_TIMEOUT {
        let timeout = KUBELET_TIMEOUT.as_secs();
        let grace = grace_seconds.map(|seconds| format!(" of {seconds} s")).unwrap_or_default();
        let message = format!(
            "terminating, but still there more than {timeout} s after its grace period{grace}: the kubelet does not end it"
        );
        Blocker::new(BlockReason::NotEnding, message)
    } else {
        return PodState::Terminating;
    };
    PodState::Blocked(Blocker { since: Some(deadline), ..blocker })
}

/// The blocker of a pod that the drain spec does not move.
fn blocked_by_spec(reason: BlockReason) -> Blocker {
    let message = match reason {
        BlockReason::LocalStorage => {
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false".to_owned()
        }
        _ => "has no controller that would replace it and spec.drain.force is false".to_owned(),
    };
    Blocker::new(reason, message)
}

fn blocked_by_budget(planned: &PlannedPod, refusal: &BudgetRefusal, budgets: &Budgets) -> Blocker {
    // An answer without a name is about the only budget that there is.
    let only = || match <[BudgetRefusal; 1]>::try_from(budgets.refusals(&planned.pod)) {
        Ok([only]) => only.budget,
        Err(_) => None,
    };
    let complete = refusal.budget.clone().filter(|budget| budget.desired_healthy.is_some());
    let budget = complete.or_else(only).or_else(|| refusal.budget.clone());
    Blocker::new(BlockReason::DisruptionBudget, &*refusal.message)
        .with(BlockFacts { budget, ..BlockFacts::default() })
}

/// The blocker of a pod whose eviction or deletion was refused.
fn refused(planned: &PlannedPod, refusal: &EvictionOutcome, request: &str, budgets: &Budgets) -> Blocker {
    let by_webhook = |reason, message: &str, webhook: &str| {
        let facts = BlockFacts { webhook: Some(webhook.to_owned()), ..BlockFacts::default() };
        Blocker::new(reason, message).with(facts)
    };
    match refusal {
        EvictionOutcome::RefusedByBudget(refusal) => blocked_by_budget(planned, refusal, budgets),
        EvictionOutcome::MultipleBudgets(message) => several_budgets(budgets.refusals(&planned.pod), message),
        EvictionOutcome::NotMigratable(message) => {
            by_webhook(BlockReason::NotMigratable, message, KUBEVIRT_WEBHOOK)
        }
        EvictionOutcome::RefusedByWebhook { message, webhook } => {
            by_webhook(BlockReason::AdmissionWebhook, message, webhook)
        }
        EvictionOutcome::Forbidden(denied) => Blocker::new(BlockReason::Forbidden, denied.to_string())
            .with(BlockFacts { forbidden: denied.access.clone(), ..BlockFacts::default() }),
        EvictionOutcome::NamespaceTerminating => {
            Blocker::new(BlockReason::NamespaceTerminating, "its namespace is terminating and will end it")
        }
        EvictionOutcome::Throttled { message, retry_after } => {
            let wait = retry_after.map(|wait| format!(" for {} s", wait.as_secs())).unwrap_or_default();
            Blocker::new(BlockReason::ServerError, format!("the API server throttles{wait}: {message}"))
        }
        EvictionOutcome::Unknown(message) => {
            Blocker::new(BlockReason::ServerError, format!("the {request} failed and is retried: {message}"))
        }
        EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {
            Blocker::new(BlockReason::Unknown, "")
        }
    }
}

/// The blocker of a pod that several budgets guard; `answer` is its message if they are not known.
fn several_budgets(budgets: Vec<BudgetRefusal>, answer: &str) -> Blocker {
    if budgets.len() < 2 {
        return Blocker::new(BlockReason::MultipleDisruptionBudgets, answer);
    }
    let messages: Vec<&str> = budgets.iter().map(|budget| budget.message.as_str()).collect();
    let message = format!(
        "{} disruption budgets select this pod, and the API server evicts no pod with more than one: change or delete \
         all but one. {}",
        budgets.len(),
        messages.join("; ")
    );
    let budgets = budgets.into_iter().filter_map(|refusal| refusal.budget).take(MAX_BUDGETS).collect();
    Blocker::new(BlockReason::MultipleDisruptionBudgets, message)
        .with(BlockFacts { budgets, ..BlockFacts::default() })
}

fn migration_failed(failure: &MigrationFailure, attempt: &Attempt) -> Blocker {
    let facts = BlockFacts { node: failure.target.clone(), ..BlockFacts::default() };
    let blocker = Blocker::new(BlockReason::MigrationFailed, &*failure.message).with(facts);
    Blocker { since: failure.at, refusals: attempt.refusals, ..blocker }
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

    fn planned(metadata: &Value) -> PlannedPod {
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
            blocked_by_budget: None,
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
    fn a_blocker_stays_short_whatever_the_owners_of_pods_and_webhooks_write() {
        let finalizers: Vec<String> =
            (0..200).map(|at| format!("example.com/{at}-{}", "x".repeat(200))).collect();
        let pod = planned(&json!({
            "finalizers": finalizers, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        }));
        let PodState::Blocked(blocker) = state(&pod, &known(None, true, &Budgets::default()), now()) else {
            panic!()
        };
        assert_eq!(blocker.facts.finalizers, finalizers[..10]);
        assert!(blocker.message.len() <= 1024, "{}", blocker.message.len());
        let wordy = answered(EvictionOutcome::Unknown("no ".repeat(1000)));
        let pod = planned(&json!({}));
        let PodState::Blocked(blocker) = state(&pod, &known(Some(&wordy), true, &Budgets::default()), now())
        else {
            panic!()
        };
        assert!(blocker.message.len() <= 1024 && blocker.message.ends_with('…'), "{}", blocker.message);
    }

    #[test]
    fn an_eviction_in_flight_or_accepted_is_evicting_and_a_refused_one_is_blocked() {
        use EvictionOutcome as Outcome;
        let pod = planned(&json!({}));
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
        check(Some(answered(Outcome::RefusedByBudget(BudgetRefusal::default()))), "DisruptionBudget");
        check(Some(answered(Outcome::Forbidden("".into()))), "Forbidden");
        check(Some(Attempt { in_flight: true, ..answered(Outcome::Unknown(String::new())) }), "ServerError");
    }

    #[test]
    fn a_refused_deletion_is_reported_while_it_is_due() {
        let mut attempt = answered(EvictionOutcome::RefusedByBudget(BudgetRefusal::default()));
        attempt.end_deletion(EvictionOutcome::Forbidden("cannot delete".into()), SteadyTime::MIN);
        let at = SteadyTime::MIN.after(std::time::Duration::from_secs(1));
        attempt.end(EvictionOutcome::RefusedByBudget(BudgetRefusal::default()), at);
        let budgets = Budgets::default();
        let report = |overdue| {
            let known = PodContext { overdue, ..known(Some(&attempt), true, &budgets) };
            word(&state(&planned(&json!({})), &known, now()))
        };
        assert_eq!((report(true), report(false)), ("Forbidden".to_owned(), "DisruptionBudget".to_owned()));
    }

    #[test]
    fn a_blocked_pod_has_the_facts_in_its_message() {
        use EvictionOutcome as Outcome;
        let pod = planned(&json!({"namespace": "ns", "name": "p"}));
        let budget = json!({"metadata": {"namespace": "ns", "name": "b"}, "spec": {"selector": {}},
            "status": {"desiredHealthy": 2, "currentHealthy": 3}});
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let facts = |outcome: Outcome| {
            let (attempt, budgets) = (answered(outcome), Budgets::from_objects([&budget]));
            match state(&pod, &known(Some(&attempt), true, &budgets), now()) {
                PodState::Blocked(blocker) => serde_json::to_value(blocker.facts).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let numbers = "The disruption budget c needs 1 healthy pods and has 1 currently";
        let from_answer =
            json!({"name": "c", "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0});
        assert_eq!(facts(Outcome::RefusedByBudget(numbers.into())), json!({"budget": from_answer}));
        let watched = json!({"name": "b", "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 0});
        assert_eq!(facts(Outcome::RefusedByBudget("no".into())), json!({"budget": watched}));
        let webhook = Outcome::RefusedByWebhook { webhook: "w".to_owned(), message: String::new() };
        assert_eq!(facts(webhook), json!({"webhook": "w"}));
        let denied = "User \"u\" cannot create resource \"pods/eviction\" in API group \"\"";
        let access = json!({"user": "u", "verb": "create", "resource": "pods/eviction"});
        assert_eq!(facts(Outcome::Forbidden(denied.into())), json!({"forbidden": access}));
        assert_eq!(facts(Outcome::Unknown("?".to_owned())), json!({}));
    }

    #[test]
    fn the_facts_of_several_budgets_are_listed_by_name_up_to_ten() {
        let pod = planned(&json!({"namespace": "ns", "name": "p"}));
        let budget = |at: usize| -> PodDisruptionBudget {
            let budget = json!({"metadata": {"namespace": "ns", "name": format!("b{at:02}")},
                "spec": {"selector": {}}, "status": {"desiredHealthy": 2, "currentHealthy": 3}});
            serde_json::from_value(budget).unwrap()
        };
        let attempt = answered(EvictionOutcome::MultipleBudgets(String::new()));
        let facts = |budgets: &[PodDisruptionBudget]| {
            let budgets = Budgets::from_objects(budgets);
            match state(&pod, &known(Some(&attempt), true, &budgets), now()) {
                PodState::Blocked(blocker) => serde_json::to_value(blocker.facts).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let listed = |at: usize| json!({"name": format!("b{at:02}"), "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 0});
        assert_eq!(facts(&[budget(2), budget(1)]), json!({"budgets": [listed(1), listed(2)]}));
        let many: Vec<PodDisruptionBudget> = (0..12).rev().map(budget).collect();
        assert_eq!(facts(&many), json!({"budgets": (0..10).map(listed).collect::<Vec<_>>()}));
        assert_eq!(facts(&[]), json!({}), "they are not known");
    }

    #[test]
    fn a_refusal_says_who_refuses_and_what_to_change() {
        use EvictionOutcome as Outcome;
        let pod = planned(&json!({"namespace": "ns", "name": "p", "labels": {"app": "a"}}));
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
        let said = || "the answer".to_owned();
        check(&[], Outcome::MultipleBudgets(said()), "the answer");
        check(
            &["b", "a"],
            Outcome::MultipleBudgets(said()),
            "2 disruption budgets select this pod, and the API server evicts no pod with more than one: change or \
             delete all but one. The disruption budget a needs 2 healthy pods and has 3 currently; The disruption \
             budget b needs 2 healthy pods and has 3 currently",
        );
        let wait = Some(std::time::Duration::from_secs(7));
        check(
            &[],
            Outcome::Throttled { retry_after: wait, message: said() },
            "the API server throttles for 7 s: the answer",
        );
        check(&[], Outcome::Unknown(said()), "the eviction failed and is retried: the answer");
    }

    #[test]
    fn a_virtual_machine_is_migrating_until_its_migration_fails() {
        use EvictionOutcome as Outcome;
        let pod = planned(&json!({}));
        let check = |attempt: Option<Attempt>, failure: Option<MigrationFailure>, expected: &str| {
            let (budgets, evacuation) = (Budgets::default(), Evacuation { failure, ..Evacuation::default() });
            let known =
                PodContext { evacuation: Some(&evacuation), ..known(attempt.as_ref(), true, &budgets) };
            assert_eq!(word(&state(&pod, &known, now())), expected);
        };
        let failed = || {
            Some(MigrationFailure {
                message: "its live migration failed".to_owned(),
                ..MigrationFailure::default()
            })
        };
        let migrating = || Some(answered(Outcome::Migrating(String::new())));
        check(None, None, "Migrating");
        check(migrating(), None, "Migrating");
        check(Some(answered(Outcome::RefusedByBudget(BudgetRefusal::default()))), None, "Migrating");
        check(migrating(), failed(), "MigrationFailed");
        check(Some(answered(Outcome::Forbidden("".into()))), None, "Forbidden");
        check(Some(answered(Outcome::Accepted)), None, "Evicting");
    }

    #[test]
    fn a_terminating_pod_is_blocked_only_if_something_keeps_it() {
        let check = |metadata: &Value, ready: bool, expected: &str| {
            assert_eq!(
                word(&state(&planned(metadata), &known(None, ready, &Budgets::default()), now())),
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
