//! The metrics as a scrape sees them.

use std::sync::Arc;

use nm_shared::GroupedMaintenance;
use nm_shared::api::names::ROLL_STATE_ANNOTATION;
use nm_shared::api::status::BlockReason;
use nm_shared::drain::transitions::transitions;
use serde_json::{Value, json};

use super::*;

fn samples(metrics: &Metrics) -> Vec<String> {
    metrics.expose().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn maintenance(name: &str, status: &Value) -> GroupedMaintenance {
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": name}, "status": status,
    }))
    .unwrap()
}

/// A term whose watch has delivered these maintenances.
fn watched(objects: impl IntoIterator<Item = GroupedMaintenance>) -> Arc<Vec<Arc<GroupedMaintenance>>> {
    Arc::new(objects.into_iter().map(Arc::new).collect())
}

fn observe(metrics: &Metrics, term: &Arc<Vec<Arc<GroupedMaintenance>>>) {
    let term = Arc::downgrade(term);
    metrics.observe(move |count| {
        let Some(term) = term.upgrade() else { return false };
        term.iter().for_each(|known| count(known, known.status.as_ref()));
        true
    });
}

fn running() -> Value {
    let blocked = json!({
        "namespace": "a", "name": "b", "reason": "DisruptionBudget", "message": "",
        "since": "2026-01-01T00:00:00Z", "attempts": 1,
    });
    json!({"phase": "Running", "lastUpdate": "2026-01-01T00:00:00Z", "blockedPods": [blocked], "podCounts": {"blocked": 4},
        "conditions": [condition("Cordoned", "True", "Cordoned", 100), condition("Degraded", "True", "CordonContested", 0)]})
}

/// A condition that has had its status since this second.
fn condition(type_: &str, status: &str, reason: &str, since: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": Timestamp::from_second(since).unwrap().to_string()})
}

#[test]
fn the_metrics_page_lists_each_metric_by_name_type_and_help_text() {
    let metrics = Metrics::new();
    let watched = watched([maintenance("one", &running())]);
    observe(&metrics, &watched);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    metrics.leads(Some(runtime.handle().clone()));
    metrics.eviction_answered(&EvictionOutcome::Gone);
    metrics.requested(Verb::Get, Some(200));
    metrics.certificate_is_valid(&Validity { from: Timestamp::UNIX_EPOCH, until: Timestamp::UNIX_EPOCH });
    let exposed = metrics.expose();
    let described = exposed.lines().filter_map(|line| line.strip_prefix("# "));
    let mut words = described.filter(|line| !line.starts_with("UNIT") && *line != "EOF");
    let mut rows = Vec::new();
    while let (Some(help), Some(kind)) = (words.next(), words.next()) {
        let (name, help) = help.strip_prefix("HELP ").unwrap().split_once(' ').unwrap();
        let kind = kind.strip_prefix("TYPE ").unwrap().rsplit(' ').next().unwrap();
        // Samples have a suffix that the family does not have.
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        rows.push(format!("| `{name}{suffix}` | {kind} | {help} |"));
    }
    let page = include_str!("../../../docs/reference/metrics.md");
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `nm_")).collect();
    assert_eq!(listed, rows, "\n{}", rows.join("\n"));
}

/// The values of a label on the metrics page.
fn listed(label: &str) -> Vec<String> {
    let page = include_str!("../../../docs/reference/metrics.md").replace('\n', " ");
    let (_, item) = page.split_once(&format!(" - `{label}`: ")).unwrap();
    let (values, _) = item.split_once(". ").unwrap();
    values.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_metrics_page_lists_each_value_of_a_label() {
    use EvictionOutcome as Outcome;
    let no = String::new;
    let outcomes = [
        Outcome::Accepted,
        Outcome::Gone,
        Outcome::RefusedByBudget("".into()),
        Outcome::MultipleBudgets(no()),
        Outcome::Migrating(no()),
        Outcome::NotMigratable(no()),
        Outcome::HotplugPod(no()),
        Outcome::RefusedByWebhook { webhook: no(), message: no() },
        Outcome::RefusedByPolicy { policy: None, message: no() },
        Outcome::NamespaceTerminating,
        Outcome::Forbidden("".into()),
        Outcome::Throttled { retry_after: None, message: no() },
        Outcome::Unknown(no()),
    ];
    // A new outcome does not compile until it is added here, and then the test fails until it is in the list above.
    let place = |outcome: &Outcome| match outcome {
        Outcome::Accepted => 0,
        Outcome::Gone => 1,
        Outcome::RefusedByBudget(_) => 2,
        Outcome::MultipleBudgets(_) => 3,
        Outcome::Migrating(_) => 4,
        Outcome::NotMigratable(_) => 5,
        Outcome::HotplugPod(_) => 6,
        Outcome::RefusedByWebhook { .. } => 7,
        Outcome::RefusedByPolicy { .. } => 8,
        Outcome::NamespaceTerminating => 9,
        Outcome::Forbidden(_) => 10,
        Outcome::Throttled { .. } => 11,
        Outcome::Unknown(_) => 12,
    };
    assert_eq!(outcomes.iter().map(place).collect::<Vec<_>>(), (0..outcomes.len()).collect::<Vec<_>>());
    assert_eq!(listed("outcome"), outcomes.iter().map(Outcome::as_str).collect::<Vec<_>>());

    let definition = serde_json::to_value(nm_shared::api::crd::crd()).unwrap();
    let of_status = |field: &str| -> Vec<Value> {
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        definition.pointer(&format!("{status}/{field}/enum")).unwrap().as_array().unwrap().clone()
    };
    let reasons = of_status("blockedPods/items/properties/reason").into_iter();
    let reasons = reasons.map(|reason| serde_json::from_value::<BlockReason>(reason).unwrap().as_str());
    assert_eq!(listed("reason"), reasons.chain([UNLISTED]).collect::<Vec<_>>());
    let phases = of_status("phase").into_iter().filter(|phase| !phase.is_null());
    let phases = phases.map(|phase| serde_json::from_value::<Phase>(phase).unwrap().as_str());
    assert_eq!(listed("phase"), phases.collect::<Vec<_>>());
    assert_eq!(listed("state"), [Suspension::Planned, Suspension::Paused].map(Suspension::as_str));
    assert_eq!(listed("verb"), Verb::ALL.map(Verb::as_str));
}

#[test]
fn maintenances_are_counted_during_the_term_only() {
    let metrics = Metrics::new();
    let of = |word: &str| -> Vec<String> {
        samples(&metrics).into_iter().filter(|line| line.starts_with(word)).collect()
    };
    assert!(of("nm_maintenances").is_empty(), "a standby replica reports none");
    let running = running();
    let watched = watched([
        maintenance("one", &running),
        maintenance("two", &running),
        maintenance("three", &json!({"conditions": [condition("Suspended", "True", "Planned", 0)]})),
    ]);
    observe(&metrics, &watched);
    let mut counted = of("nm_maintenances");
    counted.sort();
    let expected = [("Failed", 0), ("Pending", 1), ("Running", 2), ("Succeeded", 0)];
    assert_eq!(
        counted,
        expected.map(|(phase, count)| format!("nm_maintenances{{phase=\"{phase}\"}} {count}"))
    );
    let mut suspended = of("nm_suspended_maintenances");
    suspended.sort();
    let expected = [("Paused", 0), ("Planned", 1)];
    assert_eq!(
        suspended,
        expected.map(|(state, count)| format!("nm_suspended_maintenances{{state=\"{state}\"}} {count}"))
    );
    let mut blocked = of("nm_blocked_pods");
    blocked.sort();
    let expected = [("DisruptionBudget", 2), ("Unlisted", 6)];
    assert_eq!(
        blocked,
        expected.map(|(reason, count)| format!("nm_blocked_pods{{reason=\"{reason}\"}} {count}"))
    );
    drop(watched);
    assert!(of("nm_maintenances").is_empty());
}

#[test]
fn the_oldest_maintenance_drain_and_blocked_pod_are_shown_with_their_times() {
    let metrics = Metrics::new();
    let shown = || -> Vec<String> {
        let lines = samples(&metrics).into_iter();
        lines.filter(|line| line.contains("timestamp_seconds") && !line.contains("certificate")).collect()
    };
    assert_eq!(shown(), [""; 0]);
    let at = |second| Timestamp::from_second(second).unwrap().to_string();
    let status = |phase: &str, cordoned: i64, updated: i64, blocked: &[i64], more: &[Value]| {
        let conditions = [&[condition("Cordoned", "True", "Cordoned", cordoned)], more].concat();
        let pod = |since: &i64| json!({"namespace": "a", "name": "b", "reason": "Finalizers", "message": "", "since": at(*since), "attempts": 1});
        json!({"phase": phase, "lastUpdate": at(updated), "conditions": conditions,
            "blockedPods": blocked.iter().map(pod).collect::<Vec<_>>()})
    };
    let paused = [condition("Suspended", "True", "Paused", 0)];
    let term = watched([
        maintenance("newer", &status("Running", 300, 500, &[420, 410], &[])),
        maintenance("stale", &status("Running", 200, 400, &[], &[])),
        maintenance("paused", &status("Running", 250, 260, &[], &paused)),
        maintenance("drained", &status("Succeeded", 100, 150, &[], &[])),
        maintenance("pending", &json!({"phase": "Pending", "lastUpdate": at(10)})),
    ]);
    observe(&metrics, &term);
    let expected = [
        "nm_oldest_maintenance_timestamp_seconds{} 100",
        "nm_stalest_drain_timestamp_seconds{} 400",
        "nm_longest_blocked_pod_timestamp_seconds{} 410",
    ];
    assert_eq!(shown(), expected);
    assert_eq!(shown(), expected, "each scrape counts anew");
    drop(term);
    assert_eq!(shown(), [""; 0]);
}

#[test]
fn halted_rolls_and_degraded_maintenances_are_counted() {
    let metrics = Metrics::new();
    let of = |word: &str| -> Vec<String> {
        samples(&metrics).into_iter().filter(|line| line.starts_with(word)).collect()
    };
    let of_roll = |name: &str, state: &str| {
        let mut object = maintenance(name, &running());
        let annotations = [(ROLL_STATE_ANNOTATION.to_owned(), state.to_owned())];
        object.maintenance.metadata.annotations = Some(annotations.into());
        object
    };
    let halted = r#"{"revision": 3, "halt": {"node": "a", "message": "m", "at": "2026-01-01T00:00:00Z"}}"#;
    let term = watched([
        of_roll("halted", halted),
        of_roll("running", r#"{"revision": 3, "paused": true}"#),
        of_roll("unreadable", "x"),
        of_roll("aborted", &halted.replace("\"halt\"", "\"aborted\": \"ada@laptop\", \"halt\"")),
        maintenance("alone", &json!({"conditions": [condition("Degraded", "False", "AsExpected", 0)]})),
    ]);
    assert_eq!(of("nm_halted_rolls"), [""; 0], "a standby replica reports none");
    observe(&metrics, &term);
    assert_eq!(of("nm_halted_rolls"), ["nm_halted_rolls{} 1"]);
    assert_eq!(of("nm_degraded"), [r#"nm_degraded_maintenances{reason="CordonContested"} 4"#]);
}

#[test]
fn events_are_counted_in_their_metrics() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let metrics = Metrics::new();
    metrics.eviction_answered(&EvictionOutcome::Accepted);
    metrics.requested(Verb::Create, Some(429));
    metrics.requested(Verb::Get, None);
    metrics.leads(Some(runtime.handle().clone()));
    let second = |second| Timestamp::from_second(second).unwrap();
    metrics.certificate_is_valid(&Validity { from: second(1_700_000_000), until: second(1_800_000_000) });
    metrics.eviction_queued().sent();
    metrics.reconciled(Duration::from_millis(20), true);
    let waits = metrics.eviction_queued();
    let seen = samples(&metrics);
    drop(waits);
    for line in [
        "nm_evictions_total{outcome=\"Accepted\"} 1",
        "nm_api_requests_total{verb=\"create\",code=\"429\"} 1",
        "nm_api_requests_total{verb=\"get\",code=\"none\"} 1",
        "nm_leader 1",
        "nm_tasks{runtime=\"leader\"} 0",
        "nm_webhook_certificate_start_timestamp_seconds{} 1700000000",
        "nm_webhook_certificate_expiry_timestamp_seconds{} 1800000000",
        "nm_evictions_queued 1",
        "nm_eviction_queue_duration_seconds_count 1",
        "nm_reconcile_duration_seconds_bucket{le=\"0.05\"} 1",
        "nm_reconcile_failures_total 1",
    ] {
        assert!(seen.iter().any(|seen| seen == line), "{line} in {seen:#?}");
    }
    assert!(samples(&metrics).contains(&"nm_evictions_queued 0".to_owned()));
    metrics.leads(None);
    assert!(!samples(&metrics).iter().any(|line| line.starts_with("nm_tasks")), "no runtime is left");
}

#[test]
fn drains_and_blocked_pods_are_measured_when_they_end() {
    let metrics = Metrics::new();
    let at = |second| Timestamp::from_second(second).unwrap();
    let condition = condition("Cordoned", "True", "Cordoned", 100);
    let blocked = json!({"namespace": "a", "name": "b", "reason": "DisruptionBudget", "message": "",
                         "since": at(110).to_string(), "attempts": 1});
    let before = maintenance("one", &json!({"phase": "Running", "blockedPods": [blocked]}))
        .maintenance
        .status
        .unwrap();
    let after = maintenance("one", &json!({"phase": "Succeeded", "conditions": [condition]}))
        .maintenance
        .status
        .unwrap();
    metrics.reached(&transitions(&before, &after, at(150)), at(150));
    let seen = samples(&metrics);
    for line in ["nm_drain_duration_seconds_sum 50.0", "nm_pod_blocked_duration_seconds_sum 40.0"] {
        assert!(seen.iter().any(|seen| seen == line), "{line} in {seen:#?}");
    }
}
