//! Gates: maintenances wait while too many nodes are unavailable, or while etcd would lose its quorum.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_shared::api::names::OVERRIDE_QUORUM_ANNOTATION;
use nm_shared::cluster::node::CONTROL_PLANE;
use nm_shared::cluster::node_lease;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::parse;
use serde_json::json;

/// The status of a maintenance, once it is at this position in the queue.
async fn until_queued(cluster: &Cluster, name: &str, position: i32) -> NodeMaintenanceStatus {
    until_status(cluster, name, "queued", |status| {
        status.queue.is_some_and(|queue| queue.position == position)
    })
    .await
}

/// The status of a pending maintenance, once its error matches.
async fn until_pending(
    cluster: &Cluster,
    name: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> NodeMaintenanceStatus {
    until_status(cluster, name, "pending", |status| {
        status.phase == Some(Phase::Pending) && is_wanted(&status.last_error)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_nodes_than_max_unavailable_are_drained_and_the_others_are_queued() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let all = nodes.len();
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, "e2e-line-1", &nodes[0]).await;
    until_drained(&cluster, "e2e-line-1").await;
    // Creation times are in whole seconds. Maintenances of the same second are ordered by name.
    start(&cluster, "e2e-line-2", &nodes[1]).await;
    start(&cluster, "e2e-line-3", &nodes[2]).await;
    let second = until_queued(&cluster, "e2e-line-2", 1).await;
    let queue = second.queue.unwrap();
    let expected = format!(
        "position 1 of {} in the queue: 1 of {all} nodes are unavailable and the limit is 1",
        queue.length
    );
    assert_eq!((second.last_error, second.phase, queue.limit), (expected, Some(Phase::Pending), 1));
    until_queued(&cluster, "e2e-line-3", 2).await;
    assert!(cluster.node(&nodes[1]).await.spec.unwrap().unschedulable.is_none(), "not cordoned yet");

    stop(&cluster, "e2e-line-1").await;
    until_drained(&cluster, "e2e-line-2").await;
    until_queued(&cluster, "e2e-line-3", 1).await;
    stop(&cluster, "e2e-line-2").await;
    until_drained(&cluster, "e2e-line-3").await;
    stop(&cluster, "e2e-line-3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_waits_for_a_lease_does_not_block_the_queue() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let leases = cluster.node_leases();
    let lease = node_lease::name(&nodes[0]);
    let now = MicroTime(Timestamp::now());
    let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now});
    let others_lease = parse(json!({"metadata": {"name": lease}, "spec": spec}));
    // A test that failed may have left one on a shared cluster.
    let _ = leases.delete(&lease, &DeleteParams::default()).await;
    leases.create(&PostParams::default(), &others_lease).await.unwrap();
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, "e2e-lease-1", &nodes[0]).await;
    let waits_for_lease = |error: &str| error.starts_with("failed to obtain a lease");
    until_pending(&cluster, "e2e-lease-1", waits_for_lease).await;
    start(&cluster, "e2e-lease-2", &nodes[1]).await;
    until_drained(&cluster, "e2e-lease-2").await;
    // The first maintenance still waits for the lease, so it is not ahead of the third in the queue.
    start(&cluster, "e2e-lease-3", &nodes[2]).await;
    until_queued(&cluster, "e2e-lease-3", 1).await;
    until_pending(&cluster, "e2e-lease-1", waits_for_lease).await;

    leases.delete(&lease, &DeleteParams::default()).await.unwrap();
    until_queued(&cluster, "e2e-lease-1", 1).await;
    stop(&cluster, "e2e-lease-2").await;
    until_drained(&cluster, "e2e-lease-1").await;
    until_queued(&cluster, "e2e-lease-3", 1).await;
    for name in ["e2e-lease-1", "e2e-lease-3"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_in_the_wrong_order_does_not_exceed_max_unavailable() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    // Maintenances of the same second are queued by name, but the first one created begins before the others exist.
    let names = ["e2e-burst-4", "e2e-burst-3", "e2e-burst-2", "e2e-burst-1"];
    for (name, node) in names.iter().zip(&nodes) {
        start(&cluster, name, node).await;
    }
    let settled = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.phase == Some(Phase::Succeeded) || status.queue.is_some())
    };
    let mut begun = 0;
    for (name, node) in names.iter().zip(&nodes) {
        let maintenance = wait_until(&cluster.maintenances(), name, "is settled", settled).await.unwrap();
        let is_drained = maintenance.status.unwrap().phase == Some(Phase::Succeeded);
        let unschedulable = cluster.node(node).await.spec.unwrap().unschedulable == Some(true);
        assert_eq!(is_drained, unschedulable, "{name}");
        begun += usize::from(unschedulable);
    }
    assert_eq!(begun, 1);
    for name in names {
        stop(&cluster, name).await;
    }
}

// Defect kubereboot/kured#841: The last control-plane node that works is cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_of_the_control_plane_stays_unless_overridden() {
    let cluster = Cluster::start(3).await;
    let mut nodes = cluster.nodes().await;
    let own = Api::<Node>::all(cluster.client.clone())
        .list_metadata(&ListParams::default().labels(CONTROL_PLANE[0]))
        .await
        .unwrap();
    // A real cluster's own control-plane nodes must be among the three.
    nodes.sort_by_key(|name| !own.iter().any(|node| node.name_any() == *name));
    let api: Api<Node> = Api::all(cluster.client.clone());
    let label =
        |value: Option<&str>| Patch::Merge(json!({"metadata": {"labels": {CONTROL_PLANE[0]: value}}}));
    let mut found = Vec::new();
    for node in &nodes[..3] {
        found.push(cluster.node(node).await.metadata.labels.unwrap_or_default().remove(CONTROL_PLANE[0]));
        api.patch(node, &PatchParams::default(), &label(Some(""))).await.unwrap();
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-quorum-1", &nodes[0]).await;
    until_drained(&cluster, "e2e-quorum-1").await;
    start(&cluster, "e2e-quorum-2", &nodes[1]).await;
    let error = until_pending(&cluster, "e2e-quorum-2", |_| true).await.last_error;
    let expected = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd \
         quorum: only 1 of 3 etcd members would remain, and a majority is 2; the annotation \
         {OVERRIDE_QUORUM_ANNOTATION}=true overrides this",
        nodes[1]
    );
    assert_eq!(error, expected);
    if let Some(sandbox) = cluster.sandbox() {
        // The node's patch and then the status conflict: the event must be published once all the same.
        for (resource, subresource) in [("nodes", ""), ("nodemaintenances", "status")] {
            let target = Target::any().verb("patch").resource(resource).subresource(subresource);
            let conflict = Action::Fail(Failure::Conflict, Moment::BeforeEffect);
            let rule = Rule::new(target.user_agent("nm-reconciler/*"), conflict).when(When::First(1));
            sandbox.faults().add(rule);
        }
    }
    let with_override =
        Patch::Merge(json!({"metadata": {"annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}}}));
    cluster.maintenances().patch("e2e-quorum-2", &PatchParams::default(), &with_override).await.unwrap();
    let second = until_drained(&cluster, "e2e-quorum-2").await;
    let events = until_event(&cluster, &second, "QuorumOverridden").await;
    assert_eq!(events.iter().filter(|reason| *reason == "QuorumOverridden").count(), 1, "{events:?}");
    for name in ["e2e-quorum-1", "e2e-quorum-2"] {
        stop(&cluster, name).await;
    }
    for (node, found) in nodes.iter().zip(found) {
        api.patch(node, &PatchParams::default(), &label(found.as_deref())).await.unwrap();
    }
}
