//! Priority and fairness throttles the reconciler: it answers one of its requests with 429 in plain text.

use std::time::Duration;

use jiff::SignedDuration;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{SHORT_LEASE, is_for_the_lease, sandbox, until_leads};
use nm_tests::maintenance::{start, until_drained_without_errors};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by;
use nm_tests::workload::Workload;
use serde_json::json;

const RETRY_AFTER: u32 = 5;

/// Drains two nodes of 20 pods. The first `count` of `requests` are throttled. Returns the requests of nm-reconciler.
async fn drain_throttled(name: &str, requests: Target, count: u64, concurrent: &str) -> Vec<Entry> {
    let cluster = Cluster::of_sandbox(3, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, name).await;
    for index in 0..40 {
        workload.create_pod(&nodes[index % 2], &format!("p{index}"), json!({})).await;
    }
    let throttles = Action::Fail(Failure::Throttled { retry_after: RETRY_AFTER }, Moment::BeforeEffect);
    sandbox(&cluster).faults().add(Rule::new(requests, throttles).when(When::First(count)));
    let flags = [SHORT_LEASE, &["--max-concurrent-evictions", concurrent]].concat();
    let reconciler = Reconciler::start_with(&cluster, &flags);
    until_leads(&cluster, &reconciler).await;
    let maintenances = [0, 1].map(|index| format!("e2e-{name}-{index}"));
    for (maintenance, node) in maintenances.iter().zip(&nodes) {
        start(&cluster, maintenance, node).await;
    }
    for maintenance in &maintenances {
        until_drained_without_errors(&cluster, maintenance).await;
    }
    tokio::time::timeout(Duration::from_secs(1), until_leads(&cluster, &reconciler)).await.unwrap();
    let all = sandbox(&cluster).requests().all();
    all.into_iter().filter(|entry| is_by(entry, reconciler.pid())).collect()
}

/// The requests that were sent while the answer to a throttled one asked to wait, in whole seconds of the wait.
fn while_throttled(entries: &[Entry]) -> impl Fn(&Entry) -> bool + use<> {
    let throttled = entries.iter().rfind(|entry| entry.code == 429).expect("a throttled request");
    let begun = throttled.at + SignedDuration::try_from(throttled.took).unwrap();
    // Requests that were on their way, or were sent before the answer was read, are not paused.
    move |entry| {
        let since = entry.at.duration_since(begun);
        since > SignedDuration::from_secs(1) && since < SignedDuration::from_secs(RETRY_AFTER.into())
    }
}

fn is_eviction(entry: &Entry) -> bool {
    entry.subresource == "eviction"
}

fn is_status(entry: &Entry) -> bool {
    entry.resource == "nodemaintenances" && entry.subresource == "status"
}

fn renews_the_lease(entries: &[Entry], is_meanwhile: impl Fn(&Entry) -> bool) -> bool {
    entries.iter().any(|entry| is_meanwhile(entry) && is_for_the_lease(entry) && entry.code == 200)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_throttled_eviction_is_sent_again_and_the_others_go_on() {
    let evictions = Target::any().subresource("eviction");
    let entries = drain_throttled("one-throttled", evictions, 1, "4").await;
    let throttled = entries.iter().find(|entry| entry.code == 429).unwrap();
    let again = entries.iter().rfind(|entry| is_eviction(entry) && entry.name == throttled.name).unwrap();
    assert!(again.at.duration_since(throttled.at) >= SignedDuration::from_secs(RETRY_AFTER.into()));
    let others = entries.iter().filter(|entry| is_eviction(entry) && entry.name != throttled.name);
    let before = others.filter(|entry| entry.at < again.at).count();
    assert_eq!((before, entries.iter().filter(|entry| entry.code == 429).count()), (39, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_three_throttled_evictions_in_a_row_all_evictions_wait_and_the_lease_is_renewed() {
    let evictions = Target::any().subresource("eviction");
    let entries = drain_throttled("throttled-evictions", evictions, 3, "1").await;
    let is_meanwhile = while_throttled(&entries);
    let sent: Vec<&Entry> =
        entries.iter().filter(|entry| is_meanwhile(entry) && is_eviction(entry)).collect();
    assert!(sent.is_empty(), "{sent:#?}");
    let begun = entries.iter().rfind(|entry| entry.code == 429).unwrap().at;
    let wait = SignedDuration::from_secs(RETRY_AFTER.into());
    let later = entries.iter().filter(|entry| is_eviction(entry) && entry.at >= begun + wait).count();
    assert_eq!(later, 40, "one after another, and the first three were throttled");
    assert!(renews_the_lease(&entries, is_meanwhile));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_status_write_delays_statuses_and_not_the_lease() {
    let statuses = Target::any().resource("nodemaintenances").subresource("status");
    let entries = drain_throttled("throttled-status", statuses, 1, "1").await;
    let is_meanwhile = while_throttled(&entries);
    let sent: Vec<&Entry> = entries.iter().filter(|entry| is_meanwhile(entry) && is_status(entry)).collect();
    assert!(sent.is_empty(), "{sent:#?}");
    assert!(renews_the_lease(&entries, is_meanwhile));
}
