//! Maintenances that wait: for others, where only so many nodes may be unavailable, and for etcd's quorum.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use nm_shared::api::names::{LEASE_NAMESPACE, OVERRIDE_QUORUM_ANNOTATION};
use nm_shared::cluster::node::CONTROL_PLANE;
use nm_shared::cluster::node_lease;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::parse;
use serde_json::json;

use crate::{drained, start, stop};

/// The status of a maintenance once it is at this position in the queue.
async fn queued(cluster: &Cluster, name: &str, position: i32) -> NodeMaintenanceStatus {
    let wanted = |found: Option<&NodeMaintenance>| {
        let queue = found.and_then(|found| found.status.as_ref()?.queue);
        queue.is_some_and(|queue| queue.position == position)
    };
    until(&cluster.maintenances(), name, "is queued", wanted).await.unwrap().status.unwrap()
}

/// The status of a maintenance once it waits, and `holds`.
async fn waiting(cluster: &Cluster, name: &str, holds: impl Fn(&str) -> bool) -> NodeMaintenanceStatus {
    let wanted = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.phase == Some(Phase::Pending) && holds(&status.last_error))
    };
    until(&cluster.maintenances(), name, "waits", wanted).await.unwrap().status.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_nodes_are_unavailable_and_the_others_wait_in_line() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let all = nodes.len();
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, "e2e-line-1", &nodes[0]).await;
    drained(&cluster, "e2e-line-1").await;
    // Creation times are whole seconds; the name breaks the tie.
    start(&cluster, "e2e-line-2", &nodes[1]).await;
    start(&cluster, "e2e-line-3", &nodes[2]).await;
    let second = queued(&cluster, "e2e-line-2", 1).await;
    let queue = second.queue.unwrap();
    let expected = format!(
        "position 1 of {} in the queue: 1 of {all} nodes are unavailable and the limit is 1",
        queue.length
    );
    assert_eq!((second.last_error, second.phase, queue.limit), (expected, Some(Phase::Pending), 1));
    queued(&cluster, "e2e-line-3", 2).await;
    assert!(cluster.node(&nodes[1]).await.spec.unwrap().unschedulable.is_none(), "not touched yet");

    stop(&cluster, "e2e-line-1").await;
    drained(&cluster, "e2e-line-2").await;
    queued(&cluster, "e2e-line-3", 1).await;
    stop(&cluster, "e2e-line-2").await;
    drained(&cluster, "e2e-line-3").await;
    stop(&cluster, "e2e-line-3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_node_that_another_program_has_keeps_nobody_else_waiting() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    let lease = node_lease::name(&nodes[0]);
    let now = MicroTime(Timestamp::now());
    let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now});
    let foreign = parse(json!({"metadata": {"name": lease}, "spec": spec}));
    // The namespace of a cluster that the tests share may hold one from a test that failed.
    let _ = leases.delete(&lease, &DeleteParams::default()).await;
    leases.create(&PostParams::default(), &foreign).await.unwrap();
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, "e2e-held-1", &nodes[0]).await;
    let held = |error: &str| error.starts_with("failed to obtain a lease");
    waiting(&cluster, "e2e-held-1", held).await;
    start(&cluster, "e2e-held-2", &nodes[1]).await;
    drained(&cluster, "e2e-held-2").await;
    // The place is taken now, but what the first waits for is still the lease, and so it is not before the third.
    start(&cluster, "e2e-held-3", &nodes[2]).await;
    queued(&cluster, "e2e-held-3", 1).await;
    waiting(&cluster, "e2e-held-1", held).await;

    leases.delete(&lease, &DeleteParams::default()).await.unwrap();
    queued(&cluster, "e2e-held-1", 1).await;
    stop(&cluster, "e2e-held-2").await;
    drained(&cluster, "e2e-held-1").await;
    queued(&cluster, "e2e-held-3", 1).await;
    for name in ["e2e-held-1", "e2e-held-3"] {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_burst_that_comes_in_the_wrong_order_no_more_begin_than_may() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    // Those of one second are admitted by name, but the first to come has begun by then.
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
        let maintenance = until(&cluster.maintenances(), name, "is settled", settled).await.unwrap();
        let at_work = maintenance.status.unwrap().phase == Some(Phase::Succeeded);
        let unschedulable = cluster.node(node).await.spec.unwrap().unschedulable == Some(true);
        assert_eq!(at_work, unschedulable, "{name}");
        begun += usize::from(unschedulable);
    }
    assert_eq!(begun, 1);
    for name in names {
        stop(&cluster, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_of_the_control_plane_stays_unless_someone_insists() {
    let cluster = Cluster::start(3).await;
    let mut nodes = cluster.nodes().await;
    let own = Api::<Node>::all(cluster.client.clone())
        .list_metadata(&ListParams::default().labels(CONTROL_PLANE[0]))
        .await
        .unwrap();
    // A real cluster has a control plane of its own: it is among the three.
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
    drained(&cluster, "e2e-quorum-1").await;
    start(&cluster, "e2e-quorum-2", &nodes[1]).await;
    let error = waiting(&cluster, "e2e-quorum-2", |_| true).await.last_error;
    let expected = format!(
        "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd \
         quorum: 1 of 3 control-plane nodes would be left, and 2 are a majority; the annotation \
         {OVERRIDE_QUORUM_ANNOTATION}=true overrides this",
        nodes[1]
    );
    assert_eq!(error, expected);
    if let Some(sandbox) = cluster.sandbox() {
        // Somebody is faster with the node, and then with the status: the event is about what comes true in the end.
        for (resource, subresource) in [("nodes", ""), ("nodemaintenances", "status")] {
            let target = Target::any().verb("patch").resource(resource).subresource(subresource);
            let conflict = Action::Fail(Failure::Conflict, Moment::BeforeEffect);
            let rule = Rule::new(target.user_agent("nm-reconciler/*"), conflict).when(When::First(1));
            sandbox.faults().add(rule);
        }
    }
    let insist = Patch::Merge(json!({"metadata": {"annotations": {OVERRIDE_QUORUM_ANNOTATION: "true"}}}));
    cluster.maintenances().patch("e2e-quorum-2", &PatchParams::default(), &insist).await.unwrap();
    let second = drained(&cluster, "e2e-quorum-2").await;
    let events = events_until(&cluster, &second, "QuorumOverridden").await;
    assert_eq!(events.iter().filter(|reason| *reason == "QuorumOverridden").count(), 1, "{events:?}");
    for name in ["e2e-quorum-1", "e2e-quorum-2"] {
        stop(&cluster, name).await;
    }
    for (node, found) in nodes.iter().zip(found) {
        api.patch(node, &PatchParams::default(), &label(found.as_deref())).await.unwrap();
    }
}
