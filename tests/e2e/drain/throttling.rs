//! Priority and fairness throttles the reconciler: it answers one of its requests with 429 in plain text.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
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

/// Drains two nodes of 20 pods. The first of `requests` is throttled, and only the lease is renewed in the pause.
async fn pauses_after(name: &str, requests: Target) {
    let cluster = Cluster::of_sandbox(3, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, name).await;
    for index in 0..40 {
        workload.create_pod(&nodes[index % 2], &format!("p{index}"), json!({})).await;
    }
    let throttles = Action::Fail(Failure::Throttled { retry_after: RETRY_AFTER }, Moment::BeforeEffect);
    sandbox(&cluster).faults().add(Rule::new(requests, throttles).when(When::First(1)));
    let reconciler = Reconciler::start_with(&cluster, SHORT_LEASE);
    until_leads(&cluster, &reconciler).await;
    let maintenances = [0, 1].map(|index| format!("e2e-{name}-{index}"));
    for (maintenance, node) in maintenances.iter().zip(&nodes) {
        start(&cluster, maintenance, node).await;
    }
    for maintenance in &maintenances {
        until_drained_without_errors(&cluster, maintenance).await;
    }
    let all = sandbox(&cluster).requests().all();
    let ours: Vec<&Entry> = all.iter().filter(|entry| is_by(entry, reconciler.pid())).collect();
    let answered = |entry: &Entry| entry.at + SignedDuration::try_from(entry.took).unwrap();
    let begun = answered(ours.iter().find(|entry| entry.code == 429).expect("a throttled request"));
    // Requests that were on their way, or were sent before the answer was read, are not paused.
    let in_pause = |at: Timestamp| {
        let since = at.duration_since(begun);
        since > SignedDuration::from_secs(2) && since < SignedDuration::from_secs(RETRY_AFTER.into())
    };
    let (lease, others): (Vec<&Entry>, Vec<&Entry>) =
        ours.into_iter().filter(|entry| in_pause(entry.at)).partition(|entry| is_for_the_lease(entry));
    assert!(others.is_empty(), "{others:#?}");
    assert!(lease.iter().any(|entry| entry.code == 200), "the lease is renewed: {lease:?}");
    tokio::time::timeout(Duration::from_secs(1), until_leads(&cluster, &reconciler)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_eviction_pauses_every_request_except_the_renewal_of_the_lease() {
    pauses_after("throttled-eviction", Target::any().subresource("eviction")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_status_write_pauses_evictions_too() {
    pauses_after("throttled-status", Target::any().resource("nodemaintenances").subresource("status")).await;
}
