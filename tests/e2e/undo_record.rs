//! A node is given back exactly as it was, whatever happens to its record and its marks while no reconciler looks.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::watch_object;
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use nm_shared::Group;
use nm_shared::api::condition::{ConditionReason, ConditionType, find};
use nm_shared::api::names::{EXCLUDE_LABEL, UNDO_ANNOTATION};
use nm_shared::drain::node_patch::is_cordoned;
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use serde_json::{Value, json};

use crate::{configuration, drained, once, only_sandbox, start, stop};

async fn change_node(cluster: &Cluster, node: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Deletes a maintenance that a reconciler has to let go of.
async fn delete(cluster: &Cluster, name: &str) {
    cluster.maintenances().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn until_gone(cluster: &Cluster, name: &str) {
    until(&cluster.maintenances(), name, "gone", |found| found.is_none()).await;
}

async fn until_cordoned(cluster: &Cluster, node: &str) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let cordoned = |node: Option<&Node>| node.is_some_and(|node| is_cordoned(node, Group::Medik8s));
    until(&nodes, node, "cordoned", cordoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_taint_that_is_removed_before_the_first_status_does_not_cost_the_record() {
    let Some(cluster) = only_sandbox(1, "only a sandbox stops a reconciler between two writes").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let sandbox = cluster.sandbox().unwrap();
    let status =
        Target::any().user_agent("nm-reconciler/*").resource("nodemaintenances").subresource("status");
    let rule = sandbox.faults().add(Rule::new(status, Action::Disconnect(Moment::BeforeEffect)));
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-untold", node).await;
    let stuck = sandbox.requests().until(|_| sandbox.faults().played(rule) > 0);
    tokio::time::timeout(PATIENCE, stuck).await.expect("the status is to be written");
    reconciler.crash().await;
    sandbox.faults().clear();
    assert!(cluster.maintenances().get("e2e-untold").await.unwrap().status.is_none());
    assert!(is_cordoned(&cluster.node(node).await, Group::Medik8s));

    change_node(&cluster, node, json!({"spec": {"taints": null}})).await;
    let _reconciler = Reconciler::start(&cluster);
    drained(&cluster, "e2e-untold").await;
    stop(&cluster, "e2e-untold").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_record_was_removed_is_given_back_in_full() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-stripped", node).await;
    drained(&cluster, "e2e-stripped").await;
    reconciler.crash().await;

    change_node(&cluster, node, json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}})).await;
    delete(&cluster, "e2e-stripped").await;
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-stripped").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_every_mark_at_once_is_given_back_without_its_label() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = configuration(&cluster.node(node).await);
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replaced", node).await;
    drained(&cluster, "e2e-replaced").await;

    // What `kubectl replace` does with a file from before the maintenance.
    let replaced = json!({
        "metadata": {"annotations": {UNDO_ANNOTATION: null}, "labels": {EXCLUDE_LABEL: null}},
        "spec": {"unschedulable": null, "taints": null},
    });
    change_node(&cluster, node, replaced).await;
    until_cordoned(&cluster, node).await;
    stop(&cluster, "e2e-replaced").await;
    assert_eq!(configuration(&cluster.node(node).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_cordoned_before_is_so_again_even_if_the_maintenance_ends_before_it_is_cordoned_anew()
{
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    change_node(&cluster, node, json!({"spec": {"unschedulable": true}})).await;
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-in-time", node).await;
    drained(&cluster, "e2e-in-time").await;
    reconciler.crash().await;

    change_node(&cluster, node, json!({"spec": {"unschedulable": null}})).await;
    delete(&cluster, "e2e-in-time").await;
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-in-time").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let tidy = |node: Option<&Node>| {
        node.is_some_and(|node| {
            !node.metadata.annotations.iter().flatten().any(|(key, _)| key == UNDO_ANNOTATION)
        })
    };
    let after = until(&nodes, node, "without a record", tidy).await.unwrap();
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(!is_cordoned(&after, Group::Medik8s), "nothing of the maintenance is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_keeps_uncordoning_a_node_is_answered_at_growing_intervals_and_reported() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await[0].clone();
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-contested", &node).await;
    let maintenance = drained(&cluster, "e2e-contested").await;

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
    once(&cluster, "e2e-contested", "contested", |status| {
        find(&status.conditions, ConditionType::Degraded)
            .is_some_and(|degraded| degraded.status == "True" && degraded.reason == contested)
    })
    .await;
    rival.await.unwrap();
    until_cordoned(&cluster, &node).await;
    let told = events_until(&cluster, &maintenance, "RecordonNode").await;
    assert!(told.iter().filter(|reason| *reason == "RecordonNode").count() <= 4, "{told:?}");
    if let Some(sandbox) = cluster.sandbox() {
        let ours = sandbox.requests().all().into_iter().filter(|entry| {
            let patch = entry.resource == "nodes" && entry.verb == "patch" && entry.code == 200;
            patch && entry.user_agent.starts_with("nm-reconciler/")
        });
        assert_eq!(ours.count(), 1 + 4, "one for the cordon, and one for each time that it was removed");
    }
    drop(reconciler);
}
