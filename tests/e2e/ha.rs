//! Two replicas: one leads, the other stands by and takes over, whatever becomes of the first. Who wrote is what the
//! request log of a sandbox tells, so all of this plays on one.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, held};
use serde_json::json;

use crate::{drained, evictions, once, start, stop};

/// A lease that runs out while a test waits for it.
pub(crate) const SHORT: &[&str] = &["--leader-elect", "--lease-duration", "6"];

/// A lease that does not run out during a test.
pub(crate) const LONG: &[&str] = &["--leader-elect", "--lease-duration", "3600"];

/// One that leads, and one that stands by.
pub(crate) async fn two(cluster: &Cluster, flags: &[&str]) -> (Reconciler, Reconciler) {
    let leader = Reconciler::start_with(cluster, flags);
    until_leads(cluster, &leader).await;
    let standby = Reconciler::start_with(cluster, flags);
    let watches = |entry: &Entry| is_by(entry, standby.pid()) && entry.verb == "watch";
    let stands_by = sandbox(cluster).requests().until(|log| log.count(watches) > 0);
    tokio::time::timeout(PATIENCE, stands_by).await.expect("the second stands by");
    (leader, standby)
}

/// The sandbox that all of this plays on.
pub(crate) fn sandbox(cluster: &Cluster) -> &Sandbox {
    cluster.sandbox().unwrap()
}

/// The lease by which one of them leads.
pub(crate) fn leases(cluster: &Cluster) -> Api<Lease> {
    let namespace = manifests::service_account().metadata.namespace.unwrap();
    Api::namespaced(cluster.client.clone(), &namespace)
}

/// Waits until a replica has the lease, and returns that.
pub(crate) async fn until_leads(cluster: &Cluster, replica: &Reconciler) -> LeaseSpec {
    let leases = leases(cluster);
    let of_it = format!("-{}_", replica.pid());
    until(&leases, leader_lease::NAME, &format!("held by {of_it}"), |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_ref()).is_some_and(|holder| holder.contains(&of_it))
    })
    .await
    .and_then(|lease| lease.spec)
    .unwrap()
}

/// The name by which the API server's log knows a replica.
pub(crate) fn user_agent(pid: u32) -> String {
    format!("nm-reconciler/*-{pid})")
}

/// Whether a replica asked for it.
pub(crate) fn is_by(entry: &Entry, pid: u32) -> bool {
    entry.user_agent.starts_with("nm-reconciler/") && entry.user_agent.ends_with(&format!("-{pid})"))
}

/// Whether it is more than reading.
pub(crate) fn is_write(entry: &Entry) -> bool {
    !matches!(entry.verb, "get" | "list" | "watch")
}

/// The leader's own lease, which a replica writes before it leads.
pub(crate) fn is_for_the_lease(entry: &Entry) -> bool {
    entry.resource == "leases" && entry.name == leader_lease::NAME
}

fn logged(cluster: &Cluster) -> usize {
    sandbox(cluster).requests().all().len()
}

/// What a replica has written, or tried to, since the log had so many entries, the leader's lease among it.
fn writes_of(cluster: &Cluster, pid: u32, since: usize) -> impl Iterator<Item = Entry> {
    let all = sandbox(cluster).requests().all();
    all.into_iter().skip(since).filter(move |entry| is_by(entry, pid) && is_write(entry))
}

/// Whether a replica has done nothing but try for the lease.
fn is_idle(cluster: &Cluster, pid: u32) -> bool {
    let all = sandbox(cluster).requests().all();
    !all.iter().any(|entry| is_by(entry, pid) && is_write(entry) && !is_for_the_lease(entry))
}

/// No pod was evicted twice. Pods here are not made anew, so that a name is one pod.
pub(crate) fn nobody_twice(cluster: &Cluster) {
    let mut accepted: HashMap<(String, String), usize> = HashMap::new();
    for eviction in evictions(sandbox(cluster)).into_iter().filter(|eviction| eviction.code == 201) {
        *accepted.entry((eviction.namespace, eviction.name)).or_default() += 1;
    }
    assert!(accepted.values().all(|times| *times == 1), "{accepted:?}");
}

/// A drain midway: pods that were evicted and do not end, and one that a budget holds.
async fn midway(cluster: &Cluster, name: &str, node: &str) -> Workload {
    let workload = Workload::new(cluster, name).await;
    for pod in ["one", "two", "three"] {
        workload.pod_on(node, pod, held()).await;
    }
    workload.pod_on(node, "cart", json!({})).await;
    workload.budget("cart", 1).await;
    start(cluster, name, node).await;
    once(cluster, name, "midway", |status| {
        status.blocked_pods.iter().any(|pod| pod.name == "cart") && evictions(sandbox(cluster)).len() > 3
    })
    .await;
    workload
}

/// Lets a drain that is midway come to its end.
async fn finish(cluster: &Cluster, name: &str, workload: &Workload) {
    workload.free("cart").await;
    for pod in ["one", "two", "three"] {
        workload.let_go(pod).await;
    }
    drained(cluster, name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_midway_is_replaced_within_twenty_seconds_and_no_pod_is_evicted_twice() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (leader, standby) = two(&cluster, &["--leader-elect"]).await;
    let workload = midway(&cluster, "e2e-killed", node).await;
    assert!(is_idle(&cluster, standby.pid()), "only one writes");

    leader.crash().await;
    let last = leases(&cluster).get(leader_lease::NAME).await.unwrap().spec.unwrap().renew_time.unwrap();
    let next = until_leads(&cluster, &standby).await;
    // From the last sign of life on, which came before the end: by the times in the lease, which a machine that is busy
    // with other tests hardly moves.
    let took = next.acquire_time.unwrap().0.duration_since(last.0);
    assert!(took <= SignedDuration::from_secs(20), "{took:?}");
    finish(&cluster, "e2e-killed", &workload).await;
    nobody_twice(&cluster);
    stop(&cluster, "e2e-killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_stop_is_replaced_at_once() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (mut leader, standby) = two(&cluster, LONG).await;
    let workload = midway(&cluster, "e2e-stopped", node).await;
    let told = Timestamp::now();
    leader.signal("TERM");
    assert_eq!(leader.exit_code().await, Some(0));
    // The lease would run for an hour more: it was given back.
    let next = until_leads(&cluster, &standby).await;
    let took = next.acquire_time.unwrap().0.duration_since(told);
    assert!(took <= SignedDuration::from_secs(10), "{took:?}");
    finish(&cluster, "e2e-stopped", &workload).await;
    nobody_twice(&cluster);
    stop(&cluster, "e2e-stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_writes_nothing_once_its_lease_has_run_out_and_stands_by() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let (paused, other) = two(&cluster, SHORT).await;
    let workload = midway(&cluster, "e2e-paused", &nodes[0]).await;
    paused.signal("STOP");
    until_leads(&cluster, &other).await;
    finish(&cluster, "e2e-paused", &workload).await;
    stop(&cluster, "e2e-paused").await;

    // Work that nobody does, since the leader is paused as well: the first has every reason to do it at once, and may
    // not before it leads again.
    other.signal("STOP");
    start(&cluster, "e2e-meanwhile", &nodes[1]).await;
    let since = logged(&cluster);
    paused.signal("CONT");
    until_leads(&cluster, &paused).await;
    // Once it has taken the lease anew it does what it should.
    let before = writes_of(&cluster, paused.pid(), since).take_while(|entry| !is_for_the_lease(entry));
    assert_eq!(before.collect::<Vec<_>>(), []);
    drained(&cluster, "e2e-meanwhile").await;
    nobody_twice(&cluster);
    stop(&cluster, "e2e-meanwhile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_stops_and_the_other_takes_over() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (cut_off, other) = two(&cluster, SHORT).await;
    let workload = midway(&cluster, "e2e-cut-off", node).await;
    let faults = sandbox(&cluster).faults();
    let its = || Target::any().user_agent(&user_agent(cut_off.pid()));
    // Its watches go on: what they tell tempts it to write.
    let partition = faults.add(Rule::new(its(), Action::Disconnect(Moment::BeforeEffect)));
    until_leads(&cluster, &other).await;
    let since = logged(&cluster);
    finish(&cluster, "e2e-cut-off", &workload).await;
    assert!(faults.played(partition) > 0, "it tried to renew");
    // It may try for the lease as often as it likes.
    let work = writes_of(&cluster, cut_off.pid(), since).filter(|entry| !is_for_the_lease(entry));
    assert_eq!(work.collect::<Vec<_>>(), []);

    faults.remove(partition);
    other.crash().await;
    until_leads(&cluster, &cut_off).await;
    stop(&cluster, "e2e-cut-off").await;
    nobody_twice(&cluster);
}
