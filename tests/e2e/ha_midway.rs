//! Two replicas, of which the first ends or is cut off while its evictions are unanswered and others are not sent yet.

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
use nm_tests::until::{PATIENCE, until, until_all};
use nm_tests::workload::{Workload, held};
use serde_json::{Value, json};

use crate::ha::{
    LONG, SHORT, is_by, is_for_the_lease, is_write, leases, nobody_twice, sandbox, two, until_leads,
    user_agent,
};
use crate::{drained, evictions, once, start, stop};

/// The pods of a node. One node's evictions are 16 at once, and 32 where the answers take long.
const PODS: usize = 40;

fn evictions_of(pods: &str) -> Target {
    Target::any().subresource("eviction").name(pods)
}

/// Puts pods of these names on a node.
async fn place(workload: &Workload, node: &str, names: &[String], extra: Value) {
    for name in names {
        workload.place(node, name, extra.clone()).await;
    }
}

/// Waits until so many evictions of which `is_one` says yes are in the log.
async fn until_logged(cluster: &Cluster, count: usize, is_one: impl Fn(&Entry) -> bool) {
    let wanted = |entry: &Entry| entry.subresource == "eviction" && is_one(entry);
    let logged = sandbox(cluster).requests().until(|log| log.count(wanted) >= count);
    tokio::time::timeout(PATIENCE, logged).await.expect("the evictions are logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_stop_hears_the_answers_to_its_evictions_and_leaves_the_others_to_the_next()
{
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (mut leader, standby) = two(&cluster, LONG).await;
    let workload = Workload::new(&cluster, "stopped-midway").await;
    // More than can have been asked by the first answer.
    let count = 2 * PODS;
    let names = (0..count).map(|at| format!("{}-{at}", ["early", "late"][at % 2])).collect::<Vec<_>>();
    place(&workload, node, &names, json!({})).await;
    let slow = Duration::from_millis(1_500);
    // Of some the effect comes late, of the others only the answer.
    let faults = sandbox(&cluster).faults();
    let rules = [("early-*", Action::Delay(slow)), ("late-*", Action::DelayAnswer(slow))]
        .map(|(pods, action)| faults.add(Rule::new(evictions_of(pods), action)));
    let pid = leader.pid();
    start(&cluster, "e2e-stopped-midway", node).await;
    until_logged(&cluster, 1, |_| true).await;
    leader.signal("TERM");
    assert_eq!(leader.exit_code().await, Some(0));
    until_leads(&cluster, &standby).await;
    drained(&cluster, "e2e-stopped-midway").await;

    // The log has them in the order of their answers.
    let mut writes =
        sandbox(&cluster).requests().all().into_iter().filter(|entry| is_by(entry, pid) && is_write(entry));
    assert!(
        writes.next_back().is_some_and(|last| is_for_the_lease(&last)),
        "the lease is given back after all else"
    );
    // Requests are counted when they come, also those that are never answered.
    let asked: u64 = rules.iter().map(|rule| faults.played(*rule)).sum();
    assert_eq!(usize::try_from(asked).unwrap(), count, "each pod is asked to go once");
    let rest = evictions(sandbox(&cluster)).into_iter().filter(|entry| is_by(entry, standby.pid()));
    assert!(rest.count() > 0, "what was not sent yet is left to the next");
    nobody_twice(&cluster);
    stop(&cluster, "e2e-stopped-midway").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_evicted_again_whom_a_killed_leader_had_evicted_without_hearing_of_it() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (leader, standby) = two(&cluster, SHORT).await;
    let workload = Workload::new(&cluster, "killed-midway").await;
    let kinds = [("a-unheard", 8), ("b-lost", 8), ("c-unsent", PODS - 16)];
    let names = kinds.iter().flat_map(|(kind, count)| (0..*count).map(move |at| format!("{kind}-{at}")));
    let names = names.collect::<Vec<_>>();
    place(&workload, node, &names, held()).await;
    let never = Duration::from_secs(3600);
    let faults = sandbox(&cluster).faults();
    faults.add(Rule::new(evictions_of("a-unheard-*"), Action::DelayAnswer(never)));
    faults.add(Rule::new(evictions_of("b-lost-*"), Action::Disconnect(Moment::AfterEffect)));
    faults.add(Rule::new(evictions_of("c-unsent-*"), Action::Delay(never)));
    start(&cluster, "e2e-killed-midway", node).await;
    let is_ending = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    let midway = |pods: &[Pod]| pods.iter().filter(is_ending).count() == 16;
    let all = until_all(&workload.pods(), watcher::Config::default(), "evicted in silence", midway).await;
    leader.crash().await;
    faults.clear();
    let ending: HashSet<String> = all.iter().filter(is_ending).map(ResourceExt::name_any).collect();
    until_leads(&cluster, &standby).await;
    until_logged(&cluster, PODS - 16, |entry| is_by(entry, standby.pid()) && entry.code == 201).await;
    for name in &names {
        workload.let_go(name).await;
    }
    drained(&cluster, "e2e-killed-midway").await;
    let by_the_next = evictions(sandbox(&cluster)).into_iter().filter(|entry| is_by(entry, standby.pid()));
    let again: Vec<String> =
        by_the_next.map(|entry| entry.name).filter(|name| ending.contains(name)).collect();
    assert_eq!(again, [] as [String; 0]);
    nobody_twice(&cluster);
    stop(&cluster, "e2e-killed-midway").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hears_nothing_any_more_asks_for_nothing_once_another_leads() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (deaf, other) = two(&cluster, SHORT).await;
    let workload = Workload::new(&cluster, "deaf").await;
    workload.pod_on(node, "refused", json!({})).await;
    let faults = sandbox(&cluster).faults();
    let its = || Target::any().user_agent(&user_agent(deaf.pid()));
    // It has a reason to ask again and again, for which it needs no news.
    let refusal = Action::Fail(Failure::Internal, Moment::BeforeEffect);
    faults.add(Rule::new(its().subresource("eviction"), refusal));
    start(&cluster, "e2e-deaf", node).await;
    once(&cluster, "e2e-deaf", "refused", |status| !status.blocked_pods.is_empty()).await;
    // Its watches fall silent, about the lease it hears nothing in time, and what it writes fails at once, so that it
    // has to be done again.
    assert!(faults.mute_watches(&its()) > 0);
    faults.add(Rule::new(its().resource("leases"), Action::Delay(Duration::from_secs(20))));
    for resource in ["nodes", "nodemaintenances", "events"] {
        faults.add(Rule::new(its().resource(resource), Action::Disconnect(Moment::BeforeEffect)));
    }
    // Rules that only count, when a request comes and not when it is answered.
    let count = |target| faults.add(Rule::new(target, Action::Delay(Duration::ZERO)));
    let its_writes = || its().verb("create").verb("update").verb("patch").verb("delete");
    let renewals = count(its_writes().resource("leases").name(leader_lease::NAME));
    let mut work = vec![count(its_writes().resource("leases").namespace(LEASE_NAMESPACE))];
    work.extend(
        ["pods", "nodes", "nodemaintenances", "events"].map(|plural| count(its_writes().resource(plural))),
    );
    let asked = || work.iter().map(|rule| faults.played(*rule)).sum::<u64>();
    until_leads(&cluster, &other).await;
    let before = asked();
    assert!(faults.played(renewals) > 0 && before > 0, "it went on for as long as it might");
    drained(&cluster, "e2e-deaf").await;
    // A while in which one that goes on would have asked again.
    let long = SignedDuration::from_secs(12);
    until(&leases(&cluster), leader_lease::NAME, "renewed for a while", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let times = spec.and_then(|spec| Some((spec.acquire_time.as_ref()?, spec.renew_time.as_ref()?)));
        times.is_some_and(|(acquired, renewed)| renewed.0.duration_since(acquired.0) >= long)
    })
    .await;
    assert_eq!(asked(), before);
    nobody_twice(&cluster);
    stop(&cluster, "e2e-deaf").await;
}
