//! Failover between two replicas: the standby takes over, whatever happens to the leader.
//!
//! All tests need a sandbox: its request log shows which replica wrote.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use nm_shared::cluster::leader_lease;
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::{
    LONG_LEASE, SHORT_LEASE, assert_no_pod_evicted_twice, is_for_the_lease, leader_and_standby,
    leader_leases, sandbox, until_leads,
};
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by, is_eviction, is_write, until_requests, user_agent};
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

/// How many requests are in the log.
fn logged(cluster: &Cluster) -> usize {
    sandbox(cluster).requests().all().len()
}

/// The writes of a replica after the first `since` requests of the log, the leader's lease included.
fn writes_of(cluster: &Cluster, pid: u32, since: usize) -> impl Iterator<Item = Entry> {
    let all = sandbox(cluster).requests().all();
    all.into_iter().skip(since).filter(move |entry| is_by(entry, pid) && is_write(entry))
}

/// Whether a replica has written nothing but the leader's lease.
fn is_idle(cluster: &Cluster, pid: u32) -> bool {
    let all = sandbox(cluster).requests().all();
    !all.iter().any(|entry| is_by(entry, pid) && is_write(entry) && !is_for_the_lease(entry))
}

/// A drain in progress: three evicted pods do not terminate, and a budget blocks the fourth.
async fn start_drain(cluster: &Cluster, name: &str, node: &str) -> Workload {
    let workload = Workload::new(cluster, name).await;
    for pod in ["one", "two", "three"] {
        workload.pod_on(node, pod, with_finalizer()).await;
    }
    workload.pod_on(node, "cart", json!({})).await;
    workload.budget("cart", 1).await;
    start(cluster, name, node).await;
    let cart_is_blocked =
        |status: &NodeMaintenanceStatus| status.blocked_pods.iter().any(|pod| pod.name == "cart");
    until_status(cluster, name, "the budget blocks a pod", cart_is_blocked).await;
    until_requests(sandbox(cluster), 4, "all pods are evicted or refused", is_eviction).await;
    workload
}

/// Lets the drain finish.
async fn finish_drain(cluster: &Cluster, name: &str, workload: &Workload) {
    workload.delete_budget("cart").await;
    for pod in ["one", "two", "three"] {
        workload.remove_finalizers(pod).await;
    }
    until_drained(cluster, name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_replaced_within_twenty_seconds_and_no_pod_is_evicted_twice() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (leader, standby) = leader_and_standby(&cluster, &["--leader-elect"]).await;
    let workload = start_drain(&cluster, "e2e-killed", node).await;
    assert!(is_idle(&cluster, standby.pid()), "only the leader writes");

    leader.crash().await;
    let last =
        leader_leases(&cluster).get(leader_lease::NAME).await.unwrap().spec.unwrap().renew_time.unwrap();
    let next = until_leads(&cluster, &standby).await;
    // Measured from the last renewal, which precedes the kill, by the times in the lease: busy processors hardly affect
    // them.
    let took = next.acquire_time.unwrap().0.duration_since(last.0);
    assert!(took <= SignedDuration::from_secs(20), "{took:?}");
    finish_drain(&cluster, "e2e-killed", &workload).await;
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-killed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_receives_sigterm_is_replaced_at_once() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (mut leader, standby) = leader_and_standby(&cluster, LONG_LEASE).await;
    let workload = start_drain(&cluster, "e2e-stopped", node).await;
    let signaled = Timestamp::now();
    leader.signal("TERM");
    assert_eq!(leader.exit_code().await, Some(0));
    // The lease would be valid for another hour: the leader has released it.
    let next = until_leads(&cluster, &standby).await;
    let took = next.acquire_time.unwrap().0.duration_since(signaled);
    assert!(took <= SignedDuration::from_secs(10), "{took:?}");
    finish_drain(&cluster, "e2e-stopped", &workload).await;
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_writes_nothing_after_its_lease_has_expired() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let (paused, other) = leader_and_standby(&cluster, SHORT_LEASE).await;
    let workload = start_drain(&cluster, "e2e-paused", &nodes[0]).await;
    paused.signal("STOP");
    until_leads(&cluster, &other).await;
    finish_drain(&cluster, "e2e-paused", &workload).await;
    stop(&cluster, "e2e-paused").await;

    // A maintenance that no replica works on, because the leader is paused as well. The first replica must not work on it
    // before it leads again.
    other.signal("STOP");
    start(&cluster, "e2e-meanwhile", &nodes[1]).await;
    let since = logged(&cluster);
    paused.signal("CONT");
    until_leads(&cluster, &paused).await;
    // After it has acquired the lease again, it works.
    let before = writes_of(&cluster, paused.pid(), since).take_while(|entry| !is_for_the_lease(entry));
    assert_eq!(before.collect::<Vec<_>>(), []);
    until_drained(&cluster, "e2e-meanwhile").await;
    assert_no_pod_evicted_twice(&cluster);
    stop(&cluster, "e2e-meanwhile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_leader_stops_and_the_standby_takes_over() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let (partitioned, other) = leader_and_standby(&cluster, SHORT_LEASE).await;
    let workload = start_drain(&cluster, "e2e-cut-off", node).await;
    let faults = sandbox(&cluster).faults();
    let its = || Target::any().user_agent(&user_agent(partitioned.pid()));
    // Its watches continue: their events are reasons to write.
    let partition = faults.add(Rule::new(its(), Action::Disconnect(Moment::BeforeEffect)));
    until_leads(&cluster, &other).await;
    let since = logged(&cluster);
    finish_drain(&cluster, "e2e-cut-off", &workload).await;
    assert!(faults.played(partition) > 0, "it tried to renew the lease");
    // It may try to acquire the lease.
    let other_writes = writes_of(&cluster, partitioned.pid(), since).filter(|entry| !is_for_the_lease(entry));
    assert_eq!(other_writes.collect::<Vec<_>>(), []);

    faults.remove(partition);
    other.crash().await;
    until_leads(&cluster, &partitioned).await;
    stop(&cluster, "e2e-cut-off").await;
    assert_no_pod_evicted_twice(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_clock_is_an_hour_off_keeps_the_lease_for_as_long_as_it_renews_it() {
    const LEADER: &str = "a-replica-with-another-clock";
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let leases = leader_leases(&cluster);
    let renewed = |hours: i64| json!(MicroTime(Timestamp::now() + SignedDuration::from_hours(hours)));
    let mut lease = leader_lease::new(LEADER, 6, Timestamp::now() - SignedDuration::from_hours(1));
    lease = leases.create(&PostParams::default(), &lease).await.unwrap();

    let replica = Reconciler::start_with(&cluster, SHORT_LEASE);
    let is_watch = |entry: &Entry| is_by(entry, replica.pid()) && entry.verb == "watch";
    until_requests(sandbox(&cluster), 1, "the replica stands by", is_watch).await;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    // For longer than the lease lasts. The last one is of the future.
    for hours in [-1, -1, -1, -1, -1, -1, -1, -1, 1] {
        seconds.tick().await;
        let version = lease.metadata.resource_version.clone();
        let renewal =
            json!({"metadata": {"resourceVersion": version}, "spec": {"renewTime": renewed(hours)}});
        let answer = leases.patch(leader_lease::NAME, &PatchParams::default(), &Patch::Merge(renewal)).await;
        lease = answer.expect("the replica leaves the lease alone");
        assert!(is_idle(&cluster, replica.pid()));
    }
    let next = until_leads(&cluster, &replica).await;
    assert_eq!(next.lease_transitions, Some(2));
}
