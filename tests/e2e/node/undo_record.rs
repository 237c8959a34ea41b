//! The undo record: a node is fully restored, whatever happens to the record and the node while no reconciler runs.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::watcher::watch_object;
use kube_sandbox::faults::{Action, Moment, Rule};
use kube_sandbox::request_log::Entry;
use nm_shared::Group;
use nm_shared::api::condition::{ConditionReason, ConditionType, find};
use nm_shared::api::names::{EXCLUDE_LABEL, UNDO_ANNOTATION};
use nm_shared::drain::node_patch::is_cordoned;
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::maintenance::{start, stop, until_drained, until_gone, until_status};
use nm_tests::nodes::{configuration, until_cordoned};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{by_reconciler, is_by_reconciler, until_fault_played, until_requests};
use nm_tests::wait::wait_until;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_undo_record_survives_a_drain_taint_removed_before_the_first_status() {
    let Some(cluster) =
        Cluster::sandbox_or_skip(1, "only a sandbox stops a reconciler between two writes").await
    else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let sandbox = cluster.sandbox().unwrap();
    let status = by_reconciler().resource("nodemaintenances").subresource("status");
    let rule = sandbox.faults().add(Rule::new(status, Action::Disconnect(Moment::BeforeEffect)));
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-no-status", node).await;
    until_fault_played(sandbox, rule).await;
    reconciler.crash().await;
    sandbox.faults().clear();
    assert!(cluster.maintenances().get("e2e-no-status").await.unwrap().status.is_none());
    assert!(is_cordoned(&cluster.node(node).await, Group::Medik8s));

    cluster.patch_node(node, json!({"spec": {"taints": null}})).await;
    let _reconciler = Reconciler::start(&cluster);
    until_drained(&cluster, "e2e-no-status").await;
    stop(&cluster, "e2e-no-status").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_undo_record_was_removed_is_fully_restored() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-stripped", node).await;
    until_drained(&cluster, "e2e-stripped").await;
    reconciler.crash().await;

    cluster.patch_node(node, json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}})).await;
    cluster.maintenances().delete("e2e-stripped", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-stripped").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_all_its_marks_is_fully_restored() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replaced", node).await;
    until_drained(&cluster, "e2e-replaced").await;

    // `kubectl replace` with a file from before the maintenance does this.
    let replaced = json!({
        "metadata": {"annotations": {UNDO_ANNOTATION: null}, "labels": {EXCLUDE_LABEL: null}},
        "spec": {"unschedulable": null, "taints": null},
    });
    cluster.patch_node(node, replaced).await;
    until_cordoned(&cluster, node).await;
    stop(&cluster, "e2e-replaced").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_uncordoned_just_before_its_maintenance_ends_is_cordoned_again_if_it_was_so_before() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    cluster.patch_node(node, json!({"spec": {"unschedulable": true}})).await;
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-in-time", node).await;
    until_drained(&cluster, "e2e-in-time").await;
    reconciler.crash().await;

    cluster.patch_node(node, json!({"spec": {"unschedulable": null}})).await;
    cluster.maintenances().delete("e2e-in-time", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-in-time").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let has_no_record = |node: Option<&Node>| {
        node.is_some_and(|node| {
            !node.metadata.annotations.iter().flatten().any(|(key, _)| key == UNDO_ANNOTATION)
        })
    };
    let after = wait_until(&nodes, node, "without an undo record", has_no_record).await.unwrap();
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(!is_cordoned(&after, Group::Medik8s), "the marks of the maintenance are removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_keeps_uncordoning_a_node_is_countered_with_backoff_and_reported() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await[0].clone();
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-contested", &node).await;
    let maintenance = until_drained(&cluster, "e2e-contested").await;

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let (rival, name) = (nodes.clone(), node.clone());
    let rival = tokio::spawn(async move {
        let mut uncordoned = 0;
        let mut states = watch_object(rival.clone(), &name).boxed();
        while let Some(state) = states.next().await {
            if matches!(state, Ok(Some(node)) if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)))
            {
                rival.uncordon(&name).await.unwrap();
                uncordoned += 1;
                if uncordoned == 4 {
                    return;
                }
            }
        }
    });
    let contested = ConditionReason::CordonContested.as_str();
    until_status(&cluster, "e2e-contested", "contested", |status| {
        find(&status.conditions, ConditionType::Degraded)
            .is_some_and(|degraded| degraded.status == "True" && degraded.reason == contested)
    })
    .await;
    rival.await.unwrap();
    until_cordoned(&cluster, &node).await;
    let events = until_event(&cluster, &maintenance, "RecordonNode").await;
    assert!(events.iter().filter(|reason| *reason == "RecordonNode").count() <= 4, "{events:?}");
    if let Some(sandbox) = cluster.sandbox() {
        let is_patch = |entry: &Entry| {
            is_by_reconciler(entry) && entry.resource == "nodes" && entry.verb == "patch" && entry.code == 200
        };
        let patches = until_requests(sandbox, 5, "every patch is logged", is_patch).await;
        assert_eq!(patches.len(), 1 + 4, "one to cordon the node, and one each time that it was uncordoned");
    }
    drop(reconciler);
}
