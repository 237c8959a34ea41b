use super::*;
use crate::api::status::PolicyFacts;
use crate::drain::evacuation::MigrationFailure;
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
        blocked_after: Duration::ZERO,
        before: None,
        overdue: false,
        budgets,
        evacuation: None,
        waiting_since: None,
        machine_moves: false,
        surges: false,
        surge_block: None,
        node: if node_ready { Readiness::Ready(None) } else { Readiness::NotReady },
        withheld: false,
    }
}

fn word(standing: &PodStanding) -> &'static str {
    standing.blocker.as_ref().map_or(standing.state.word(), |blocker| blocker.reason.as_str())
}

#[test]
fn a_blocker_stays_short_whatever_the_owners_of_pods_and_webhooks_write() {
    let finalizers: Vec<String> =
        (0..200).map(|at| format!("example.com/{at}-{}", "x".repeat(200))).collect();
    let pod = planned(&json!({
        "finalizers": finalizers, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
    }));
    let blocker = standing(&pod, &known(None, true, &Budgets::default()), now()).blocker.unwrap();
    assert_eq!(blocker.facts.finalizers, finalizers[..10]);
    assert!(blocker.message.len() <= 1024, "{}", blocker.message.len());
    let wordy = answered(EvictionOutcome::Unknown("no ".repeat(1000)));
    let pod = planned(&json!({}));
    let blocker = standing(&pod, &known(Some(&wordy), true, &Budgets::default()), now()).blocker.unwrap();
    assert!(blocker.message.len() <= 1024 && blocker.message.ends_with('…'), "{}", blocker.message);
}

#[test]
fn an_eviction_in_flight_or_accepted_is_evicting_and_a_refused_one_is_blocked() {
    use EvictionOutcome as Outcome;
    let pod = planned(&json!({}));
    let check = |attempt: Option<Attempt>, expected: &str| {
        assert_eq!(
            word(&standing(&pod, &known(attempt.as_ref(), true, &Budgets::default()), now())),
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
    let at = SteadyTime::MIN.after(Duration::from_secs(1));
    attempt.end(EvictionOutcome::RefusedByBudget(BudgetRefusal::default()), at);
    let budgets = Budgets::default();
    let report = |overdue| {
        let known = PodContext { overdue, ..known(Some(&attempt), true, &budgets) };
        word(&standing(&planned(&json!({})), &known, now()))
    };
    assert_eq!((report(true), report(false)), ("Forbidden", "DisruptionBudget"));
}

#[test]
fn a_pod_that_may_not_be_deleted_shows_the_budget_that_refuses_its_eviction() {
    let budget = BudgetFacts { name: "web".into(), desired_healthy: Some(2), ..BudgetFacts::default() };
    let refusal = BudgetRefusal { budget: Some(budget.clone()), ..BudgetRefusal::default() };
    let mut attempt = answered(EvictionOutcome::RefusedByBudget(refusal));
    attempt.end_deletion(EvictionOutcome::Forbidden("cannot delete".into()), SteadyTime::MIN);
    let budgets = Budgets::default();
    let known = PodContext { overdue: true, ..known(Some(&attempt), true, &budgets) };
    let blocker = standing(&planned(&json!({})), &known, now()).blocker.unwrap();
    assert_eq!((blocker.reason, blocker.facts.budget), (BlockReason::Forbidden, Some(budget)));
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
        serde_json::to_value(
            standing(&pod, &known(Some(&attempt), true, &budgets), now()).blocker.unwrap().facts,
        )
        .unwrap()
    };
    let numbers = "The disruption budget c needs 1 healthy pods and has 1 currently";
    let from_answer = json!({"name": "c", "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0});
    assert_eq!(facts(Outcome::RefusedByBudget(numbers.into())), json!({"budget": from_answer}));
    let watched = json!({"name": "b", "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 0});
    assert_eq!(facts(Outcome::RefusedByBudget("no".into())), json!({"budget": watched}));
    let webhook = Outcome::RefusedByWebhook { webhook: "w".to_owned(), message: String::new() };
    assert_eq!(facts(webhook), json!({"webhook": "w"}));
    let policy = PolicyFacts { name: "p".to_owned(), binding: Some("b".to_owned()) };
    let by_policy = |policy| Outcome::RefusedByPolicy { policy, message: String::new() };
    assert_eq!(facts(by_policy(Some(policy))), json!({"policy": {"name": "p", "binding": "b"}}));
    assert_eq!(facts(by_policy(None)), json!({}));
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
        serde_json::to_value(
            standing(&pod, &known(Some(&attempt), true, &budgets), now()).blocker.unwrap().facts,
        )
        .unwrap()
    };
    let listed = |at: usize| json!({"name": format!("b{at:02}"), "desiredHealthy": 2, "currentHealthy": 3, "disruptionsAllowed": 0});
    assert_eq!(facts(&[budget(2), budget(1)]), json!({"budgets": [listed(1), listed(2)]}));
    let many: Vec<PodDisruptionBudget> = (0..12).rev().map(budget).collect();
    assert_eq!(facts(&many), json!({"budgets": (0..10).map(listed).collect::<Vec<_>>()}));
    assert_eq!(facts(&[]), json!({}), "they are not known");
}

#[test]
fn a_budget_that_was_never_counted_is_not_said_to_be_processed() {
    let pod = planned(&json!({"namespace": "ns", "name": "p", "labels": {"app": "a"}}));
    let budget = |conditions: Value| -> PodDisruptionBudget {
        let status = json!({"disruptionsAllowed": 0, "desiredHealthy": 0, "currentHealthy": 0, "conditions": conditions});
        let metadata = json!({"namespace": "ns", "name": "a", "generation": 1});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": {}}, "status": status}))
            .unwrap()
    };
    let said = "The disruption budget a is still being processed by the server.";
    let message = |conditions: Value| {
        let budgets = Budgets::from_objects(&[budget(conditions)]);
        let refusal = BudgetRefusal { message: said.into(), budget: None };
        let attempt = answered(EvictionOutcome::RefusedByBudget(refusal));
        standing(&pod, &known(Some(&attempt), true, &budgets), now()).blocker.unwrap().message
    };
    assert_eq!(message(json!([])), said);
    let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
        "message": "jobs.batch does not implement the scale subresource", "lastTransitionTime": "2026-01-02T03:00:00Z"}]);
    assert_eq!(
        message(failed),
        "The disruption budget a does not allow evicting pods currently because it failed sync: jobs.batch does not implement the \
         scale subresource"
    );
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
        let state = standing(&pod, &known(Some(&attempt), true, &budgets), now());
        let obstacle = state.blocker.unwrap();
        assert_eq!(obstacle.message, expected);
    };
    let said = || "the answer".to_owned();
    check(&[], Outcome::MultipleBudgets(said()), "the answer");
    check(
        &["b", "a"],
        Outcome::MultipleBudgets(said()),
        "2 disruption budgets select this pod, and the API server evicts no pod with more than one: change or \
         delete all but one. The disruption budget a does not allow evicting pods currently; The disruption \
         budget b does not allow evicting pods currently",
    );
    let wait = Some(Duration::from_secs(7));
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
        let known = PodContext { evacuation: Some(&evacuation), ..known(attempt.as_ref(), true, &budgets) };
        assert_eq!(word(&standing(&pod, &known, now())), expected);
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
    // The API server, or KubeVirt's webhook, says nothing about the virtual machine.
    check(Some(answered(Outcome::Unknown(String::new()))), None, "Migrating");
    let throttled = Outcome::Throttled { retry_after: None, message: String::new() };
    check(Some(answered(throttled)), None, "Migrating");
    check(Some(answered(Outcome::Forbidden("".into()))), None, "Forbidden");
    check(Some(answered(Outcome::Accepted)), None, "Evicting");
}

#[test]
fn a_machine_that_migrates_by_its_last_answer_stays_migrating_after_one_that_says_nothing() {
    use EvictionOutcome as Outcome;
    let (pod, budgets) = (planned(&json!({})), Budgets::default());
    let mut attempt = answered(Outcome::Migrating(String::new()));
    attempt.end(Outcome::Unknown(String::new()), SteadyTime::MIN);
    assert_eq!(word(&standing(&pod, &known(Some(&attempt), true, &budgets), now())), "Migrating");
    attempt.end(Outcome::NotMigratable(String::new()), SteadyTime::MIN);
    assert_eq!(word(&standing(&pod, &known(Some(&attempt), true, &budgets), now())), "NotMigratable");
}

#[test]
fn the_pod_of_a_disk_migrates_with_its_machine_and_is_blocked_otherwise() {
    let (pod, budgets) = (planned(&json!({})), Budgets::default());
    let attempt = answered(EvictionOutcome::HotplugPod(String::new()));
    for (machine_moves, expected) in [(true, "Migrating"), (false, "NotMigratable")] {
        for paused in [false, true] {
            let known =
                PodContext { machine_moves, withheld: paused, ..known(Some(&attempt), true, &budgets) };
            let expected = if paused && !machine_moves { "Waiting" } else { expected };
            assert_eq!(word(&standing(&pod, &known, now())), expected);
        }
    }
}

#[test]
fn a_terminating_pod_is_blocked_only_if_something_keeps_it() {
    let check = |metadata: &Value, ready: bool, expected: &str| {
        assert_eq!(
            word(&standing(&planned(metadata), &known(None, ready, &Budgets::default()), now())),
            expected,
            "{metadata}"
        );
    };
    let ending = json!({"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30});
    check(&ending, true, "Terminating");
    check(&ending, false, "NodeNotReady");
    let held = json!({"deletionTimestamp": "2026-01-01T01:00:20Z", "deletionGracePeriodSeconds": 30, "finalizers": ["a/b"]});
    check(&held, true, "Terminating");
    let overdue = json!({"deletionTimestamp": "2026-01-01T00:59:55Z", "deletionGracePeriodSeconds": 30, "finalizers": ["a/b"]});
    // No kubelet has confirmed that it ended, so its containers may still run.
    check(&overdue, true, "Terminating");
    check(&overdue, false, "NodeNotReady");
    let long_overdue = json!({"deletionTimestamp": "2026-01-01T00:40:00Z", "deletionGracePeriodSeconds": 30,
        "finalizers": ["batch.kubernetes.io/job-tracking"]});
    check(&long_overdue, true, "NotEnding");
    let ended = json!({"deletionTimestamp": "2026-01-01T00:59:55Z", "deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]});
    check(&ended, true, "Finalizers");
    check(&ended, false, "Finalizers");
    check(&json!({"deletionTimestamp": "2026-01-01T00:59:30Z"}), true, "Terminating");
    check(&json!({"deletionTimestamp": "2026-01-01T00:58:59Z"}), true, "NotEnding");
}

#[test]
fn a_kubelet_that_is_back_gives_terminating_pods_their_grace_period_again() {
    let check = |since: &str, grace: i64, expected: &str, next: Option<&str>| {
        let pod = planned(
            &json!({"deletionTimestamp": "2026-01-01T00:40:00Z", "deletionGracePeriodSeconds": grace}),
        );
        let node = Readiness::Ready(Some(since.parse().unwrap()));
        let found = standing(&pod, &PodContext { node, ..known(None, true, &Budgets::default()) }, now());
        let next = next.map(|next| next.parse::<Timestamp>().unwrap());
        assert_eq!((word(&found), next_change(&pod, node, now())), (expected, next), "{since} {grace}");
    };
    check("2026-01-01T00:00:00Z", 60, "NotEnding", None);
    check("2026-01-01T00:59:50Z", 60, "Terminating", Some("2026-01-01T01:00:50Z"));
    check("2026-01-01T00:58:50Z", 60, "Terminating", Some("2026-01-01T01:00:50Z"));
    check("2026-01-01T00:57:50Z", 60, "NotEnding", None);
    // It only has to confirm that they have terminated.
    check("2026-01-01T00:59:50Z", 0, "NotEnding", None);
}

#[test]
fn a_pod_that_has_just_ended_is_not_blocked_by_its_finalizers() {
    let check = |deleted: &str, finished: Option<&str>, expected: &str, next: Option<&str>| {
        let terminated =
            json!([{"state": {"terminated": {"finishedAt": finished}}}, {"state": {"running": {}}}]);
        let pod = json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 0,
            "finalizers": ["a/b"]}, "status": {"containerStatuses": terminated}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let planned = PlannedPod { pod, verdict: Verdict::Evict, warnings: Vec::new() };
        let found = standing(&planned, &known(None, true, &Budgets::default()), now());
        let next = next.map(|next| next.parse::<Timestamp>().unwrap());
        assert_eq!(
            (word(&found), next_change(&planned, Readiness::Ready(None), now())),
            (expected, next),
            "{finished:?}"
        );
    };
    // Its kubelet confirms the end with a grace period of 0 s, counted from the first deletion.
    let long_ago = "2026-01-01T00:40:00Z";
    check(long_ago, Some("2026-01-01T00:59:57Z"), "Terminating", Some("2026-01-01T01:00:02Z"));
    check(long_ago, Some("2026-01-01T00:59:55Z"), "Finalizers", None);
    check(long_ago, None, "Finalizers", None);
    // A clock of the node that is ahead or behind.
    check(long_ago, Some("2026-01-01T01:00:01Z"), "Terminating", Some("2026-01-01T01:00:06Z"));
    check(long_ago, Some("2026-01-01T02:00:00Z"), "Finalizers", None);
    check("2026-01-01T00:59:58Z", None, "Terminating", Some("2026-01-01T01:00:03Z"));
    check("2026-01-01T00:59:58Z", Some(long_ago), "Terminating", Some("2026-01-01T01:00:03Z"));
}

#[test]
fn a_pod_that_its_job_counts_after_a_back_off_is_not_blocked_meanwhile() {
    let check = |deleted: &str, finalizers: Value, expected: &str, next: Option<&str>| {
        let pod = json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 0, "finalizers": finalizers}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let planned = PlannedPod { pod, verdict: Verdict::Evict, warnings: Vec::new() };
        let found = standing(&planned, &known(None, true, &Budgets::default()), now());
        let next = next.map(|next| next.parse::<Timestamp>().unwrap());
        assert_eq!(
            (word(&found), next_change(&planned, Readiness::Ready(None), now())),
            (expected, next),
            "{deleted}"
        );
    };
    let of_job = || json!(["batch.kubernetes.io/job-tracking"]);
    check("2026-01-01T00:50:00Z", of_job(), "Terminating", Some("2026-01-01T01:01:00Z"));
    check("2026-01-01T00:49:00Z", of_job(), "Finalizers", None);
    check("2026-01-01T00:50:00Z", json!(["batch.kubernetes.io/job-tracking", "a/b"]), "Finalizers", None);
}

#[test]
fn while_a_maintenance_is_paused_nothing_is_refused_and_what_was_accepted_takes_its_course() {
    use EvictionOutcome::*;
    let check = |attempt: Option<Attempt>, expected: &str| {
        let budgets = Budgets::default();
        let known = PodContext { withheld: true, ..known(attempt.as_ref(), true, &budgets) };
        let pod = planned(&json!({"namespace": "ns", "name": "p"}));
        assert_eq!(word(&standing(&pod, &known, now())), expected, "{attempt:?}");
    };
    check(None, "Waiting");
    check(Some(answered(RefusedByBudget("".into()))), "Waiting");
    check(Some(answered(Unknown(String::new()))), "Waiting");
    check(Some(answered(Accepted)), "Evicting");
    check(Some(answered(Migrating(String::new()))), "Migrating");
    check(Some(Attempt { in_flight: true, ..Attempt::default() }), "Evicting");
}

#[test]
fn a_pod_that_the_drain_leaves_alone_terminates_once_somebody_has_deleted_it() {
    let state = |metadata: Value, reason: BlockReason| {
        let pod = PlannedPod { verdict: Verdict::Block(reason), ..planned(&metadata) };
        let standing = standing(&pod, &known(None, true, &Budgets::default()), now());
        (word(&standing), standing.blocker.map(|blocker| blocker.message).unwrap_or_default())
    };
    let force = "has no controller that would replace it and spec.drain.force is false";
    let data = "has emptyDir volumes and spec.drain.deleteEmptyDirData is false";
    let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u",
        "controller": true}]});
    assert_eq!(state(json!({}), BlockReason::Unmanaged), ("Unmanaged", force.to_owned()));
    assert_eq!(state(owned, BlockReason::LocalStorage), ("LocalStorage", data.to_owned()));
    let both = format!("{data}, and no controller would replace it");
    assert_eq!(state(json!({}), BlockReason::LocalStorage), ("LocalStorage", both));
    let deleted = json!({"deletionTimestamp": "2026-01-01T01:00:30Z", "deletionGracePeriodSeconds": 90});
    for reason in [BlockReason::Unmanaged, BlockReason::LocalStorage] {
        assert_eq!(state(deleted.clone(), reason), (PodState::Terminating.word(), String::new()));
    }
}

#[test]
fn a_leader_goes_by_what_was_reported_until_it_has_an_answer() {
    let reported = |reason: &str| -> BlockedPod {
        serde_json::from_value(json!({"namespace": "shop", "name": "web", "reason": reason, "message": "why",
            "since": "2026-01-01T00:00:00Z", "attempts": 3}))
        .unwrap()
    };
    let pod = planned(&json!({"namespace": "shop", "name": "web"}));
    let budgets = Budgets::default();
    let state = |attempt: Option<&Attempt>, reason: &str| {
        let before = NodeMaintenanceStatus {
            blocked_pods: vec![reported(reason)],
            ..NodeMaintenanceStatus::default()
        };
        let context = PodContext { before: Some(&before), ..known(attempt, true, &budgets) };
        word(&standing(&pod, &context, now())).to_owned()
    };
    let asked = Attempt { in_flight: true, ..Attempt::default() };
    assert_eq!(state(None, "AdmissionWebhook"), "AdmissionWebhook");
    assert_eq!(state(Some(&asked), "AdmissionWebhook"), "AdmissionWebhook");
    assert_eq!(state(Some(&answered(EvictionOutcome::Accepted)), "AdmissionWebhook"), "Evicting");
    // Whether these still hold does not depend on an answer.
    for reason in ["DisruptionBudget", "Unmanaged", "Finalizers"] {
        assert_eq!(state(Some(&asked), reason), "Evicting", "{reason}");
    }
}
