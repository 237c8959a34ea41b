//! Defects of other drain controllers about cordons: a cordon that is lifted, left behind, or set again.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, When};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::FINALIZER;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    start, start_with_drain, stop, until_drained, until_gone, until_phase, until_status,
};
use nm_tests::nodes::{configuration, until_cordoned};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, is_by_reconciler, until_requests};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

/// How the API server answered the reconciler's patches of a node, in order. Empty where nothing is logged.
fn node_patches(cluster: &Cluster, node: &str) -> Vec<u16> {
    let all = cluster.sandbox().map(|sandbox| sandbox.requests().all()).unwrap_or_default();
    all.into_iter().filter(|entry| is_node_patch(entry, node)).map(|entry| entry.code).collect()
}

fn is_node_patch(entry: &Entry, node: &str) -> bool {
    is_by_reconciler(entry) && entry.verb == "patch" && entry.resource == "nodes" && entry.name == node
}

// Defect kubereboot/kured#18, derailed/k9s#2273: A node that is already cordoned is not drained, or its drain is
// refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_cordoned_before_its_maintenance_is_drained_too() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "locked").await;
    workload.pod_on(node, "cart", json!({})).await;
    Api::<Node>::all(cluster.client.clone()).cordon(node).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-locked", node).await;
    until_drained(&cluster, "e2e-locked").await;
    assert!(workload.pods().get_opt("cart").await.unwrap().is_none());
    stop(&cluster, "e2e-locked").await;
}

// Defect awesomenix/drainsafe#1, rancher/rancher#25946: Cordons by hand are lifted within seconds, or delay the work
// on other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_by_hand_is_left_alone_and_delays_no_maintenance() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let [by_hand, other] = [&nodes[0], &nodes[1]];
    let workload = Workload::new(&cluster, "by-hand").await;
    workload.pod_on(by_hand, "stays", json!({})).await;
    Api::<Node>::all(cluster.client.clone()).cordon(by_hand).await.unwrap();
    let unschedulable = |node: Option<&Node>| {
        node.is_some_and(|node| node.spec.as_ref().unwrap().unschedulable == Some(true))
    };
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    wait_until(&nodes, by_hand, "cordoned", unschedulable).await;

    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    start(&cluster, "e2e-by-hand", other).await;
    until_drained(&cluster, "e2e-by-hand").await;
    stop(&cluster, "e2e-by-hand").await;
    assert!(unschedulable(Some(&cluster.node(by_hand).await)));
    assert!(node_patches(&cluster, by_hand).is_empty());
    let pod = workload.pods().get("stays").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None);
}

// Defect medik8s/node-maintenance-operator#163: The node is cordoned again while the object is being deleted,
// because removing the finalizer starts another reconcile.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_maintenance_kept_by_another_finalizer_never_cordons_its_node_again() {
    const KEPT: &str = "e2e-kept";
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let before = configuration(&cluster.node(&nodes[0]).await);
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, KEPT, &nodes[0]).await;
    until_drained(&cluster, KEPT).await;
    let maintenances = cluster.maintenances();
    let patch = async |patch| {
        maintenances.patch(KEPT, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    patch(json!({"metadata": {"finalizers": [FINALIZER, "example.com/keep"]}})).await;
    maintenances.delete(KEPT, &DeleteParams::default()).await.unwrap();
    let released = |found: Option<&NodeMaintenance>| {
        found.is_some_and(|found| found.finalizers() == ["example.com/keep".to_owned()])
    };
    wait_until(&maintenances, KEPT, "without our finalizer", released).await;
    let patches = node_patches(&cluster, &nodes[0]);

    // Everything that starts a reconcile of it: a change of the object, a change of its node, and a restart. Once the
    // other node is drained, all of them are over.
    for (number, other) in ["e2e-then", "e2e-restarted"].into_iter().enumerate() {
        patch(json!({"metadata": {"annotations": {"example.com/touched": number.to_string()}}})).await;
        let touched = json!({"metadata": {"annotations": {"example.com/touched": number.to_string()}}});
        cluster.patch_node(&nodes[0], touched).await;
        let restarted = (number > 0).then(|| Reconciler::start(&cluster));
        start(&cluster, other, &nodes[1]).await;
        until_drained(&cluster, other).await;
        stop(&cluster, other).await;
        drop(restarted);
        if number == 0 {
            reconciler.signal("KILL");
        }
    }
    cluster.patch_node(&nodes[0], json!({"metadata": {"annotations": {"example.com/touched": null}}})).await;
    assert_eq!(configuration(&cluster.node(&nodes[0]).await), before);
    assert_eq!(node_patches(&cluster, &nodes[0]), patches, "no patch since the finalizer was removed");
    patch(json!({"metadata": {"finalizers": null}})).await;
    until_gone(&cluster, KEPT).await;
}

// Defect siderolabs/talos#13802, openshift/machine-config-operator#1572: After a failed drain or update the node
// stays cordoned, and nothing knows any more who cordoned it.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_whose_drain_failed_still_returns_its_node_to_service() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let workload = Workload::new(&cluster, "failed").await;
    workload.pod_on(node, "held", with_finalizer()).await;
    let reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-failed", node, json!({"timeoutSeconds": 1})).await;
    until_phase(&cluster, "e2e-failed", Phase::Failed).await;
    until_cordoned(&cluster, node).await;
    // Nothing in memory is needed for it.
    reconciler.crash().await;
    let _reconciler = Reconciler::start(&cluster);
    stop(&cluster, "e2e-failed").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
    workload.remove_finalizers("held").await;
}

// Defect openshift/machine-config-operator#3399, Netcracker/KubeMarine#654: Uncordoning fails once, success is
// reported, and the node stays cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_ends_only_once_its_node_is_uncordoned() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox injects failures").await else { return };
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let sandbox = cluster.sandbox().unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-retried", node).await;
    until_drained(&cluster, "e2e-retried").await;
    let patches = by_reconciler().verb("patch").resource("nodes");
    let fails = Action::Fail(Failure::Internal, Moment::BeforeEffect);
    sandbox.faults().add(Rule::new(patches, fails).when(When::First(3)));
    stop(&cluster, "e2e-retried").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
    assert_eq!(node_patches(&cluster, node), [200, 500, 500, 500, 200]);
    let is_last = |entry: &Entry| {
        is_node_patch(entry, node)
            || is_by_reconciler(entry)
                && (entry.verb, entry.resource.as_str(), entry.subresource.as_str())
                    == ("patch", "nodemaintenances", "")
    };
    let writes = until_requests(sandbox, 7, "the finalizer is removed", is_last).await;
    let order: Vec<&str> = writes.iter().map(|entry| entry.resource.as_str()).collect();
    let expected = ["nodemaintenances", "nodes", "nodes", "nodes", "nodes", "nodes", "nodemaintenances"];
    assert_eq!(order, expected, "adopted first, and released after the node is uncordoned");
}

// Defect keikoproj/upgrade-manager#37, rancher/rancher#39167: After a restart the controller picks other nodes, and
// drains more at once than it may.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_reconciler_continues_its_node_and_begins_no_other() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "restart").await;
    workload.pod_on(&nodes[2], "held", with_finalizer()).await;
    let limit = ["--max-unavailable", "1"];
    let reconciler = Reconciler::start_with(&cluster, &limit);
    // The maintenance that has begun is neither the first by name nor on the first node.
    start(&cluster, "e2e-restart-3", &nodes[2]).await;
    let held = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    wait_until(&workload.pods(), "held", "terminating", held).await;
    let queued = |status: &NodeMaintenanceStatus| status.queue.is_some();
    for (name, node) in [("e2e-restart-1", &nodes[0]), ("e2e-restart-2", &nodes[1])] {
        start(&cluster, name, node).await;
        until_status(&cluster, name, "queued", queued).await;
    }
    reconciler.crash().await;
    let reconciler = Reconciler::start_with(&cluster, &limit);
    workload.remove_finalizers("held").await;
    until_drained(&cluster, "e2e-restart-3").await;
    for (name, node) in [("e2e-restart-1", &nodes[0]), ("e2e-restart-2", &nodes[1])] {
        until_status(&cluster, name, "still queued", queued).await;
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None);
        assert!(node_patches(&cluster, node).is_empty());
    }
    for name in ["e2e-restart-3", "e2e-restart-1", "e2e-restart-2"] {
        stop(&cluster, name).await;
    }
    drop(reconciler);
}
