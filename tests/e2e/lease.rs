//! The lease by which those who change nodes keep out of each other's way.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::api::names::{LEASE_HOLDER, LEASE_NAMESPACE};
use nm_shared::cluster::node_lease;
use nm_shared::{NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, held, parse};
use serde_json::{Value, json};

use crate::{configuration, drained, evictions, once, only_sandbox, start, stop};

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE)
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// Makes another the holder of a lease, for an hour.
async fn take_away(cluster: &Cluster, lease: &str) {
    let foreign = Patch::Merge(json!({"spec": {"holderIdentity": "another", "renewTime": now()}}));
    leases(cluster).patch(lease, &PatchParams::default(), &foreign).await.unwrap();
}

fn blocked(status: &NodeMaintenanceStatus) -> bool {
    !status.blocked_pods.is_empty()
}

/// A node under maintenance whose drain a finalizer holds up, for as long as the workload lives.
async fn held_up(cluster: &Cluster, name: &str, node: &str) -> Workload {
    let workload = Workload::new(cluster, name).await;
    workload.pod_on(node, "held", held()).await;
    start(cluster, name, node).await;
    once(cluster, name, "blocked by the finalizer", blocked).await;
    workload
}

// Case 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_maintenance_has_a_lease_that_is_renewed_and_goes_with_it() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-lease", node).await;
    drained(&cluster, "e2e-lease").await;
    let name = node_lease::name(node);
    let lease = leases(&cluster).get(&name).await.unwrap();
    let spec = lease.spec.clone().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(LEASE_HOLDER));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(3600), Some(0)));
    assert!(spec.acquire_time.is_some() && spec.acquire_time == spec.renew_time);
    let owner = &lease.metadata.owner_references.unwrap()[0];
    let expected = cluster.node(node).await.metadata.uid.unwrap();
    assert_eq!((owner.kind.as_str(), &owner.name, &owner.uid), ("Node", node, &expected));

    let half_an_hour_ago = MicroTime(Timestamp::now() - SignedDuration::from_mins(31));
    let aged = Patch::Merge(json!({"spec": {"renewTime": half_an_hour_ago}}));
    leases(&cluster).patch(&name, &PatchParams::default(), &aged).await.unwrap();
    until(&leases(&cluster), &name, "renewed after the node is drained", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.renew_time.as_ref()).is_some_and(|at| at.0 > half_an_hour_ago.0)
    })
    .await;

    stop(&cluster, "e2e-lease").await;
    assert!(leases(&cluster).get_opt(&name).await.unwrap().is_none(), "the lease is gone");
}

// Cases 10 and 11.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_another_holds_is_waited_for_untouched() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let name = node_lease::name(node);
    let foreign: Lease = parse(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now()},
    }));
    // The namespace of a cluster that the tests share may hold one from a test that failed.
    let _ = leases(&cluster).delete(&name, &DeleteParams::default()).await;
    leases(&cluster).create(&PostParams::default(), &foreign).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-waits", node).await;
    let status = once(&cluster, "e2e-waits", "a status", |status| status.phase.is_some()).await;
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Pending), 0));
    let held = format!(
        "failed to obtain a lease that is not owned by us: lease {LEASE_NAMESPACE}/{name} is held by \"another\""
    );
    assert_eq!(status.last_error, held);
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));

    leases(&cluster).delete(&name, &DeleteParams::default()).await.unwrap();
    let status = drained(&cluster, "e2e-waits").await.status.unwrap();
    assert_eq!((status.last_error.as_str(), status.error_on_lease_count), ("", 0));
    stop(&cluster, "e2e-waits").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

/// Lets the reconciler do what it likes with leases, wherever they are.
async fn grant_leases_everywhere(cluster: &Cluster) {
    let account = manifests::service_account();
    let metadata = json!({"name": "e2e-leases"});
    let rights = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]);
    let group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rights}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "e2e-leases"},
            "subjects": [{"kind": "ServiceAccount", "name": account.name_any(), "namespace": account.namespace()}]}),
    ] {
        cluster.apply(&serde_json::from_value(object).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_namespace_the_status_says_what_to_do_and_the_drain_begins_once_it_is_done() {
    let Some(cluster) = only_sandbox(1, "other operators would miss the namespace too").await else { return };
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let _reconciler = Reconciler::start(&cluster);
    // The rights of the manifests go with the namespace; others do not, and then it is the namespace alone that lacks.
    for (name, refused) in [("e2e-removed", "leases"), ("e2e-removed-again", "namespaces")] {
        if refused == "namespaces" {
            grant_leases_everywhere(&cluster).await;
        }
        namespaces.delete(LEASE_NAMESPACE, &DeleteParams::default()).await.unwrap();
        until(&namespaces, LEASE_NAMESPACE, "gone", |found| found.is_none()).await;
        start(&cluster, name, node).await;
        let told = once(&cluster, name, "failed", |status| status.phase == Some(Phase::Failed)).await;
        assert!(told.last_error.starts_with(refused) && told.last_error.contains("is forbidden"), "{told:?}");
        let remedy = format!(
            "; if the namespace {LEASE_NAMESPACE} was removed, apply lease_namespace.yaml, lease_role.yaml and \
             lease_role_binding.yaml of the manifests again"
        );
        assert!(told.last_error.ends_with(&remedy), "{told:?}");
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "not touched");
        let files = ["lease_namespace.yaml", "lease_role.yaml", "lease_role_binding.yaml"];
        for file in &files[..if refused == "leases" { 3 } else { 1 }] {
            cluster.apply(&serde_json::from_value(manifests::read(file)).unwrap()).await;
        }
        let status = drained(&cluster, name).await.status.unwrap();
        assert_eq!(status.last_error, "");
        stop(&cluster, name).await;
    }
}

// Case 12.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_for_a_moment_stops_the_drain_for_that_moment() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let workload = held_up(&cluster, "e2e-moment", node).await;
    let name = node_lease::name(node);
    take_away(&cluster, &name).await;
    let lost = once(&cluster, "e2e-moment", "lost", |status| status.error_on_lease_count > 0).await;
    let error = lost.last_error;
    assert!(error.starts_with("failed to extend a lease that used to be owned by us"), "{error}");
    workload.place(node, "late", json!({})).await;
    // The next attempt is a look at the node with this pod on it.
    once(&cluster, "e2e-moment", "lost still", |status| status.error_on_lease_count > 1).await;
    let late = workload.pods().get_opt("late").await.unwrap();
    assert!(late.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()), "it is not asked to go");
    if let Some(sandbox) = cluster.sandbox() {
        assert!(evictions(sandbox).iter().all(|entry| entry.name != "late"));
    }
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true), "cordoned still");

    leases(&cluster).delete(&name, &DeleteParams::default()).await.unwrap();
    once(&cluster, "e2e-moment", "on again", |status| status.error_on_lease_count == 0).await;
    until(&workload.pods(), "late", "gone now", |pod| pod.is_none()).await;
    workload.let_go("held").await;
    let status = drained(&cluster, "e2e-moment").await.status.unwrap();
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Succeeded), ""));
    stop(&cluster, "e2e-moment").await;
}

// Case 13.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_for_good_fails_the_maintenance_and_frees_the_node() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    let workload = held_up(&cluster, "e2e-for-good", node).await;
    let name = node_lease::name(node);
    take_away(&cluster, &name).await;
    once(&cluster, "e2e-for-good", "lost", |status| status.error_on_lease_count > 0).await;
    // The attempts are seconds apart: the others are told as if they had been.
    let long_ago = Patch::Merge(json!({
        "status": {"errorOnLeaseCount": 3, "lastUpdate": "2026-01-01T00:00:00Z"},
    }));
    cluster.maintenances().patch_status("e2e-for-good", &PatchParams::default(), &long_ago).await.unwrap();
    let status = once(&cluster, "e2e-for-good", "failed", |status| status.phase == Some(Phase::Failed)).await;
    assert_eq!(status.error_on_lease_count, 4);
    assert_eq!(status.last_error, "maintenance failed: lease could not be extended after 4 attempts");
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));

    stop(&cluster, "e2e-for-good").await;
    let holder: Value = json!(leases(&cluster).get(&name).await.unwrap().spec.unwrap().holder_identity);
    assert_eq!(holder, "another", "what is another's stays");
    leases(&cluster).delete(&name, &DeleteParams::default()).await.unwrap();
    workload.let_go("held").await;
}
