//! Two replicas of the reconciler: a leader and a standby.

use std::collections::HashMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::cluster::leader_lease;

use crate::cluster::Cluster;
use crate::manifests;
use crate::reconciler::Reconciler;
use crate::requests::{evictions, is_by, until_requests};
use crate::wait::wait_until;

/// Flags for a lease that expires while a test waits for it.
pub const SHORT_LEASE: &[&str] = &["--leader-elect", "--lease-duration", "6"];

/// Flags for a lease that does not expire during a test.
pub const LONG_LEASE: &[&str] = &["--leader-elect", "--lease-duration", "3600"];

/// Starts a replica that leads, and one that stands by.
pub async fn leader_and_standby(cluster: &Cluster, flags: &[&str]) -> (Reconciler, Reconciler) {
    let leader = Reconciler::start_with(cluster, flags);
    until_leads(cluster, &leader).await;
    let standby = Reconciler::start_with(cluster, flags);
    let is_watch = |entry: &Entry| is_by(entry, standby.pid()) && entry.verb == "watch";
    until_requests(sandbox(cluster), 1, "the second replica stands by", is_watch).await;
    (leader, standby)
}

/// The sandbox of a test that needs one.
pub fn sandbox(cluster: &Cluster) -> &Sandbox {
    cluster.sandbox().unwrap()
}

/// Where the leader's lease is.
pub fn leader_leases(cluster: &Cluster) -> Api<Lease> {
    let namespace = manifests::service_account().metadata.namespace.unwrap();
    Api::namespaced(cluster.client.clone(), &namespace)
}

/// The leader's lease, once this replica holds it.
pub async fn until_leads(cluster: &Cluster, replica: &Reconciler) -> LeaseSpec {
    let leases = leader_leases(cluster);
    let suffix = format!("-{}_", replica.pid());
    wait_until(&leases, leader_lease::NAME, &format!("held by {suffix}"), |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.holder_identity.as_ref()).is_some_and(|holder| holder.contains(&suffix))
    })
    .await
    .and_then(|lease| lease.spec)
    .unwrap()
}

/// Whether the request is about the leader's lease, which a replica writes before it leads.
pub fn is_for_the_lease(entry: &Entry) -> bool {
    entry.resource == "leases" && entry.name == leader_lease::NAME
}

/// Checks that no pod was evicted twice. Pods of the test must not be recreated, so that a name identifies a pod.
pub fn assert_no_pod_evicted_twice(cluster: &Cluster) {
    let mut accepted: HashMap<(String, String), usize> = HashMap::new();
    for eviction in evictions(sandbox(cluster)).into_iter().filter(|eviction| eviction.code == 201) {
        *accepted.entry((eviction.namespace, eviction.name)).or_default() += 1;
    }
    assert!(accepted.values().all(|times| *times == 1), "{accepted:?}");
}
