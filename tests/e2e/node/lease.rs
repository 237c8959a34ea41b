//! The lease of a node in maintenance, which keeps other programs from changing the node at the same time.

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
use nm_tests::maintenance::{start, stop, until_drained, until_phase, until_status};
use nm_tests::manifests;
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, parse, with_finalizer};
use serde_json::{Value, json};

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// Makes another program the holder of a lease, for an hour.
async fn take_away(cluster: &Cluster, lease: &str) {
    let others_lease = Patch::Merge(json!({"spec": {"holderIdentity": "another", "renewTime": now()}}));
    cluster.node_leases().patch(lease, &PatchParams::default(), &others_lease).await.unwrap();
}

fn has_blocked_pods(status: &NodeMaintenanceStatus) -> bool {
    !status.blocked_pods.is_empty()
}

/// A maintenance whose drain is blocked by the finalizer of a pod.
async fn start_blocked(cluster: &Cluster, name: &str, node: &str) -> Workload {
    let workload = Workload::new(cluster, name).await;
    workload.pod_on(node, "held", with_finalizer()).await;
    start(cluster, name, node).await;
    until_status(cluster, name, "blocked by the finalizer", has_blocked_pods).await;
    workload
}

// Case 18.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_maintenance_has_a_lease_that_is_renewed_and_deleted_with_the_maintenance() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-lease", node).await;
    until_drained(&cluster, "e2e-lease").await;
    let name = node_lease::name(node);
    let lease = cluster.node_leases().get(&name).await.unwrap();
    let spec = lease.spec.clone().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(LEASE_HOLDER));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(3600), Some(0)));
    assert!(spec.acquire_time.is_some() && spec.acquire_time == spec.renew_time);
    let owner = &lease.metadata.owner_references.unwrap()[0];
    let expected = cluster.node(node).await.metadata.uid.unwrap();
    assert_eq!((owner.kind.as_str(), &owner.name, &owner.uid), ("Node", node, &expected));

    let half_an_hour_ago = MicroTime(Timestamp::now() - SignedDuration::from_mins(31));
    let aged = Patch::Merge(json!({"spec": {"renewTime": half_an_hour_ago}}));
    cluster.node_leases().patch(&name, &PatchParams::default(), &aged).await.unwrap();
    wait_until(&cluster.node_leases(), &name, "renewed after the node is drained", |lease| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.and_then(|spec| spec.renew_time.as_ref()).is_some_and(|at| at.0 > half_an_hour_ago.0)
    })
    .await;

    stop(&cluster, "e2e-lease").await;
    assert!(cluster.node_leases().get_opt(&name).await.unwrap().is_none(), "the lease is gone");
}

// Cases 10 and 11.
// Defect medik8s/node-healthcheck-operator#249: The lease of another program on the node is touched.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_leased_by_another_program_is_not_touched() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let name = node_lease::name(node);
    let others_lease: Lease = parse(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now()},
    }));
    // A test that failed may have left one on a shared cluster.
    let _ = cluster.node_leases().delete(&name, &DeleteParams::default()).await;
    cluster.node_leases().create(&PostParams::default(), &others_lease).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-waits", node).await;
    let status = until_status(&cluster, "e2e-waits", "a status", |status| status.phase.is_some()).await;
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Pending), 0));
    let held = format!(
        "failed to obtain a lease that is not owned by us: lease {LEASE_NAMESPACE}/{name} is held by \"another\""
    );
    assert_eq!(status.last_error, held);
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));

    cluster.node_leases().delete(&name, &DeleteParams::default()).await.unwrap();
    let status = until_drained(&cluster, "e2e-waits").await.status.unwrap();
    assert_eq!((status.last_error.as_str(), status.error_on_lease_count), ("", 0));
    stop(&cluster, "e2e-waits").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

/// Grants the reconciler all permissions on leases in all namespaces.
async fn grant_leases_everywhere(cluster: &Cluster) {
    let account = manifests::service_account();
    let metadata = json!({"name": "e2e-leases"});
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]);
    let group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "e2e-leases"},
            "subjects": [{"kind": "ServiceAccount", "name": account.name_any(), "namespace": account.namespace()}]}),
    ] {
        cluster.apply(&serde_json::from_value(object).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_lease_namespace_the_status_has_the_remedy_and_the_drain_begins_after_it() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "other operators need the namespace").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let _reconciler = Reconciler::start(&cluster);
    // The role of the manifests is deleted with the namespace. With a cluster role, only the namespace is missing.
    for (name, refused) in [("e2e-removed", "leases"), ("e2e-removed-again", "namespaces")] {
        if refused == "namespaces" {
            grant_leases_everywhere(&cluster).await;
        }
        namespaces.delete(LEASE_NAMESPACE, &DeleteParams::default()).await.unwrap();
        wait_until(&namespaces, LEASE_NAMESPACE, "gone", |found| found.is_none()).await;
        start(&cluster, name, node).await;
        let status = until_phase(&cluster, name, Phase::Failed).await;
        assert!(
            status.last_error.starts_with(refused) && status.last_error.contains("is forbidden"),
            "{status:?}"
        );
        let remedy = format!(
            "; if the namespace {LEASE_NAMESPACE} was removed, apply lease_namespace.yaml, lease_role.yaml and \
             lease_role_binding.yaml of the manifests again"
        );
        assert!(status.last_error.ends_with(&remedy), "{status:?}");
        assert_eq!(
            configuration(&cluster.node(node).await),
            configuration(&before),
            "the node is not touched"
        );
        let files = ["lease_namespace.yaml", "lease_role.yaml", "lease_role_binding.yaml"];
        for file in &files[..if refused == "leases" { 3 } else { 1 }] {
            cluster.apply(&serde_json::from_value(manifests::read(file)).unwrap()).await;
        }
        let status = until_drained(&cluster, name).await.status.unwrap();
        assert_eq!(status.last_error, "");
        stop(&cluster, name).await;
    }
}

// Case 12.
#[tokio::test(flavor = "multi_thread")]
async fn a_temporarily_lost_lease_pauses_the_drain() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let workload = start_blocked(&cluster, "e2e-moment", node).await;
    let name = node_lease::name(node);
    take_away(&cluster, &name).await;
    let lost = until_status(&cluster, "e2e-moment", "lost", |status| status.error_on_lease_count > 0).await;
    let error = lost.last_error;
    assert!(error.starts_with("failed to extend a lease that used to be owned by us"), "{error}");
    workload.create_pod(node, "late", json!({})).await;
    // Before the next attempt the reconciler has seen the new pod.
    until_status(&cluster, "e2e-moment", "still lost", |status| status.error_on_lease_count > 1).await;
    let late = workload.pods().get_opt("late").await.unwrap();
    assert!(late.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()), "the new pod is not evicted");
    if let Some(sandbox) = cluster.sandbox() {
        assert!(evictions(sandbox).iter().all(|entry| entry.name != "late"));
    }
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true), "still cordoned");

    cluster.node_leases().delete(&name, &DeleteParams::default()).await.unwrap();
    until_status(&cluster, "e2e-moment", "the drain continues", |status| status.error_on_lease_count == 0)
        .await;
    wait_until(&workload.pods(), "late", "evicted", |pod| pod.is_none()).await;
    workload.remove_finalizers("held").await;
    let status = until_drained(&cluster, "e2e-moment").await.status.unwrap();
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Succeeded), ""));
    stop(&cluster, "e2e-moment").await;
}

// Case 13.
#[tokio::test(flavor = "multi_thread")]
async fn a_permanently_lost_lease_fails_the_maintenance_and_returns_the_node_to_service() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    let workload = start_blocked(&cluster, "e2e-for-good", node).await;
    let name = node_lease::name(node);
    take_away(&cluster, &name).await;
    until_status(&cluster, "e2e-for-good", "lost", |status| status.error_on_lease_count > 0).await;
    // Attempts are seconds apart. The status pretends that three of them have passed.
    let long_ago = Patch::Merge(json!({
        "status": {"errorOnLeaseCount": 3, "lastUpdate": "2026-01-01T00:00:00Z"},
    }));
    cluster.maintenances().patch_status("e2e-for-good", &PatchParams::default(), &long_ago).await.unwrap();
    let status = until_phase(&cluster, "e2e-for-good", Phase::Failed).await;
    assert_eq!(status.error_on_lease_count, 4);
    assert_eq!(status.last_error, "maintenance failed: lease could not be extended after 4 attempts");
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));

    stop(&cluster, "e2e-for-good").await;
    let holder: Value = json!(cluster.node_leases().get(&name).await.unwrap().spec.unwrap().holder_identity);
    assert_eq!(holder, "another", "another program's lease stays");
    cluster.node_leases().delete(&name, &DeleteParams::default()).await.unwrap();
    workload.remove_finalizers("held").await;
}
