//! Failover while evictions are unanswered and others are queued.

use std::collections::HashSet;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{
    LONG_LEASE, SHORT_LEASE, assert_no_pod_evicted_twice, is_for_the_lease, leader_and_standby,
    leader_leases, sandbox, until_leads,
};
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::requests::{evictions, is_by, is_eviction, is_write, until_requests, user_agent};
use nm_tests::wait::{wait_until, wait_until_all};
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::{Value, json};

const LIMIT: &[&str] = &["--max-concurrent-evictions", "32"];

/// Pods of a node: more than can be in flight at once, which are half of the limit, or all of it while responses are slow.
const PODS: usize = 40;

fn evictions_of(pods: &str) -> Target {
    Target::any().subresource("eviction").name(pods)
}

async fn create_pods(workload: &Workload, node: &str, names: &[String], extra: Value) {
    for name in names {
        workload.create_pod(node, name, extra.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_receives_sigterm_awaits_its_evictions_and_leaves_the_queued_ones_to_the_next() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (mut leader, standby) = leader_and_standby(&cluster, &[LONG_LEASE, LIMIT].concat()).await;
    let workload = Workload::new(&cluster, "stopped-midway").await;
    // More than can be in flight at once.
    let count = 2 * PODS;
    let names = (0..count).map(|at| format!("{}-{at}", ["early", "late"][at % 2])).collect::<Vec<_>>();
    create_pods(&workload, node, &names, json!({})).await;
    let slow = Duration::from_millis(1_500);
    // For half of the pods the eviction takes effect late; for the others only the response is late.
    let faults = sandbox(&cluster).faults();
    let rules = [("early-*", Action::Delay(slow)), ("late-*", Action::DelayAnswer(slow))]
        .map(|(pods, action)| faults.add(Rule::new(evictions_of(pods), action)));
    let pid = leader.pid();
    start(&cluster, "e2e-stopped-midway", node).await;
    until_requests(sandbox(&cluster), 1, "an eviction is answered", is_eviction).await;
    leader.signal("TERM");
    assert_eq!(leader.exit_code().await, Some(0));
    until_leads(&cluster, &standby).await;
    until_drained(&cluster, "e2e-stopped-midway").await;

    // Requests are logged in the order of their responses.
    let mut writes =
        sandbox(&cluster).requests().all().into_iter().filter(|entry| is_by(entry, pid) && is_write(entry));
    assert!(
        writes.next_back().is_some_and(|last| is_for_the_lease(&last)),
        "the lease is released after all other writes"
    );
    // A fault counts requests when they come, even those that are never answered.
    let sent: u64 = rules.iter().map(|rule| faults.played(*rule)).sum();
    assert_eq!(usize::try_from(sent).unwrap(), count, "each pod is evicted once");
    let rest = evictions(sandbox(&cluster)).into_iter().filter(|entry| is_by(entry, standby.pid()));
    assert!(rest.count() > 0, "queued evictions are left to the next leader");
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-stopped-midway").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_killed_leader_evicted_without_a_response_are_not_evicted_again() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (leader, standby) = leader_and_standby(&cluster, &[SHORT_LEASE, LIMIT].concat()).await;
    let workload = Workload::new(&cluster, "killed-midway").await;
    let kinds = [("a-unheard", 8), ("b-lost", 8), ("c-unsent", PODS - 16)];
    let names = kinds.iter().flat_map(|(kind, count)| (0..*count).map(move |at| format!("{kind}-{at}")));
    let names = names.collect::<Vec<_>>();
    create_pods(&workload, node, &names, with_finalizer()).await;
    let never = Duration::from_secs(3600);
    let faults = sandbox(&cluster).faults();
    faults.add(Rule::new(evictions_of("a-unheard-*"), Action::DelayAnswer(never)));
    faults.add(Rule::new(evictions_of("b-lost-*"), Action::Disconnect(Moment::AfterEffect)));
    faults.add(Rule::new(evictions_of("c-unsent-*"), Action::Delay(never)));
    start(&cluster, "e2e-killed-midway", node).await;
    let is_terminating = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    let enough = |pods: &[Pod]| pods.iter().filter(is_terminating).count() == 16;
    let all = wait_until_all(&workload.pods(), watcher::Config::default(), "16 pods terminate", enough).await;
    leader.crash().await;
    faults.clear();
    let evicted: HashSet<String> = all.iter().filter(is_terminating).map(ResourceExt::name_any).collect();
    until_leads(&cluster, &standby).await;
    let is_accepted = |entry: &Entry| is_eviction(entry) && is_by(entry, standby.pid()) && entry.code == 201;
    until_requests(sandbox(&cluster), PODS - 16, "the other pods are evicted", is_accepted).await;
    for name in &names {
        workload.remove_finalizers(name).await;
    }
    until_drained(&cluster, "e2e-killed-midway").await;
    let by_the_next = evictions(sandbox(&cluster)).into_iter().filter(|entry| is_by(entry, standby.pid()));
    let again: Vec<String> =
        by_the_next.map(|entry| entry.name).filter(|name| evicted.contains(name)).collect();
    assert_eq!(again, [] as [String; 0]);
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-killed-midway").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_watches_are_silent_stops_evicting_once_another_leads() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (silent, other) = leader_and_standby(&cluster, SHORT_LEASE).await;
    let workload = Workload::new(&cluster, "silent").await;
    workload.pod_on(node, "refused", json!({})).await;
    let faults = sandbox(&cluster).faults();
    let its = || Target::any().user_agent(&user_agent(silent.pid()));
    // Retries need no watch events.
    let refusal = Action::Fail(Failure::Internal, Moment::BeforeEffect);
    faults.add(Rule::new(its().subresource("eviction"), refusal));
    start(&cluster, "e2e-silent", node).await;
    until_status(&cluster, "e2e-silent", "refused", |status| !status.blocked_pods.is_empty()).await;
    // The watches fall silent, requests for the lease get no timely response, and other writes fail at once, so that they
    // have to be retried.
    assert!(faults.mute_watches(&its()) > 0);
    faults.add(Rule::new(its().resource("leases"), Action::Delay(Duration::from_secs(20))));
    for resource in ["nodes", "nodemaintenances", "events"] {
        faults.add(Rule::new(its().resource(resource), Action::Disconnect(Moment::BeforeEffect)));
    }
    // These rules change nothing. They count requests when they come, not when they are answered.
    let count = |target| faults.add(Rule::new(target, Action::Delay(Duration::ZERO)));
    let its_writes = || its().verb("create").verb("update").verb("patch").verb("delete");
    let renewals = count(its_writes().resource("leases").name(leader_lease::NAME));
    let mut work = vec![count(its_writes().resource("leases").namespace(LEASE_NAMESPACE))];
    work.extend(
        ["pods", "nodes", "nodemaintenances", "events"].map(|plural| count(its_writes().resource(plural))),
    );
    let sent = || work.iter().map(|rule| faults.played(*rule)).sum::<u64>();
    until_leads(&cluster, &other).await;
    let before = sent();
    assert!(faults.played(renewals) > 0 && before > 0, "it worked for as long as it led");
    until_drained(&cluster, "e2e-silent").await;
    // Long enough for another retry.
    let long = SignedDuration::from_secs(12);
    wait_until(&leader_leases(&cluster), leader_lease::NAME, "renewed for a while", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let times = spec.and_then(|spec| Some((spec.acquire_time.as_ref()?, spec.renew_time.as_ref()?)));
        times.is_some_and(|(acquired, renewed)| renewed.0.duration_since(acquired.0) >= long)
    })
    .await;
    assert_eq!(sent(), before);
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-silent").await;
}
