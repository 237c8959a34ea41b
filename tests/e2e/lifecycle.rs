//! A node goes into maintenance and comes back.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, FINALIZER, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_shared::{NodeMaintenance, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, node_of, pods_on};
use serde_json::json;

use crate::{configuration, drained, start, stop};

/// The pods of a node that a drain moves, for clusters that run pods of their own.
fn movable(pods: &[Pod]) -> i32 {
    let stays = |pod: &&Pod| {
        nm_shared::cluster::pod::daemon_set(pod).is_some() || nm_shared::cluster::pod::is_mirror(pod)
    };
    i32::try_from(pods.len() - pods.iter().filter(stays).count()).unwrap()
}

// Cases 1, 2 and 17.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_given_back_exactly_as_it_was() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "happy").await;
    workload.deployment("web", 6).await;
    let node = &nodes[1];
    workload.pod_on(node, "alone-1", json!({})).await;
    workload.pod_on(node, "alone-2", json!({})).await;
    let before = cluster.node(node).await;
    let there = pods_on(&cluster.client, node).await;

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-happy", node).await;
    let maintenance = drained(&cluster, "e2e-happy").await;

    let status = maintenance.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!(status.total_pods, i32::try_from(there.len()).unwrap());
    assert_eq!(status.eviction_pods, movable(&there));
    assert_eq!((status.drain_progress, status.pod_counts.gone), (100, status.eviction_pods));
    assert!(
        status.pending_pods.is_empty() && status.pending_pods_refs.is_empty() && status.last_error.is_empty()
    );
    assert!(status.last_update.is_some());
    let cordoned = cluster.node(node).await;
    let spec = cordoned.spec.clone().unwrap();
    let mut taints: Vec<String> =
        spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    taints.sort();
    assert_eq!(
        (spec.unschedulable, taints),
        (Some(true), vec![DRAIN_TAINT.to_owned(), UNSCHEDULABLE_TAINT.to_owned()])
    );
    assert_eq!(cordoned.labels().get(EXCLUDE_LABEL).map(String::as_str), Some("true"));
    let web = workload.until_running("web", 6).await;
    assert!(web.iter().all(|pod| node_of(pod) != node), "the workload runs elsewhere");
    let told = events_until(&cluster, &maintenance, "SucceedMaintenance").await;
    assert_eq!(told, ["BeginMaintenance", "SucceedMaintenance"]);

    stop(&cluster, "e2e-happy").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    events_until(&cluster, &maintenance, "RemovedMaintenance").await;
    events_until(&cluster, &before, "UncordonNode").await;
}

// Case 3.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_status_says_running_with_all_pods_pending() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "first").await;
    for name in ["one", "two"] {
        workload.pod_on(node, name, json!({"metadata": {"finalizers": ["kubectl-nm.dev/e2e-hold"]}})).await;
    }
    let movable = movable(&pods_on(&cluster.client, node).await);

    start(&cluster, "e2e-first", node).await;
    let _reconciler = Reconciler::start(&cluster);
    let first = |found: Option<&NodeMaintenance>| found.is_some_and(|found| found.status.is_some());
    let status =
        until(&cluster.maintenances(), "e2e-first", "a status", first).await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 0));
    assert_eq!(
        (status.eviction_pods, status.pending_pods.len()),
        (movable, usize::try_from(movable).unwrap())
    );
    let pending: Vec<String> = status.pending_pods_refs.iter().map(ToString::to_string).collect();
    for name in ["one", "two"] {
        assert!(pending.contains(&format!("{}/{name}", workload.namespace())), "{pending:?}");
    }

    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for name in ["one", "two"] {
        workload.pods().patch(name, &PatchParams::default(), &free).await.unwrap();
    }
    drained(&cluster, "e2e-first").await;
}

// Case 4.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_has_a_phase_keeps_its_counts() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, "e2e-counts", node).await;
    let begun = json!({"status": {"phase": "Running", "totalpods": 7, "evictionPods": 5}});
    let maintenances = cluster.maintenances();
    maintenances.patch_status("e2e-counts", &PatchParams::default(), &Patch::Merge(begun)).await.unwrap();

    let _reconciler = Reconciler::start(&cluster);
    let status = drained(&cluster, "e2e-counts").await.status.unwrap();
    assert_eq!((status.total_pods, status.eviction_pods, status.drain_progress), (7, 5, 100));
}

// Case 5.
#[tokio::test(flavor = "multi_thread")]
async fn labels_and_taints_of_others_survive_both_ways() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let marks = json!({
        "metadata": {"labels": {"example.com/team": "blue"}, "annotations": {"example.com/note": "keep"}},
        "spec": {"taints": [{"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    });
    let before = nodes.patch(node, &PatchParams::default(), &Patch::Merge(marks)).await.unwrap();

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-foreign", node).await;
    drained(&cluster, "e2e-foreign").await;
    let there = configuration(&cluster.node(node).await);
    assert_eq!(there["labels"]["example.com/team"], "blue");
    assert_eq!(there["annotations"]["example.com/note"], "keep");
    let taints = there["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint["key"] == "example.com/dedicated" && taint["value"] == "gpu"));
    let late = Patch::Merge(json!({"metadata": {"labels": {"example.com/late": "yes"}}}));
    nodes.patch(node, &PatchParams::default(), &late).await.unwrap();

    stop(&cluster, "e2e-foreign").await;
    let mut expected = configuration(&before);
    expected["labels"]["example.com/late"] = json!("yes");
    assert_eq!(configuration(&cluster.node(node).await), expected);
}

// Case 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_of_a_missing_node_fails_and_says_so() {
    let cluster = Cluster::start(1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-missing", "no-such-node").await;
    let failed = |found: Option<&NodeMaintenance>| {
        found
            .and_then(|found| found.status.as_ref())
            .is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    let found = until(&cluster.maintenances(), "e2e-missing", "failed", failed).await.unwrap();
    assert_eq!(found.status.as_ref().unwrap().last_error, "nodes \"no-such-node\" not found");
    let told = events_until(&cluster, &found, "FailedMaintenance").await;
    assert_eq!(told, ["BeginMaintenance", "FailedMaintenance"]);
    stop(&cluster, "e2e-missing").await;
    let told = events_until(&cluster, &found, "RemovedMaintenance").await;
    assert!(!told.iter().any(|reason| reason == "SucceedMaintenance"));
}

// Case 14.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_finalizer_of_another_ours_goes_and_the_node_is_given_back() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-held", node).await;
    drained(&cluster, "e2e-held").await;
    let maintenances = cluster.maintenances();
    let both = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER, "example.com/hold"]}}));
    maintenances.patch("e2e-held", &PatchParams::default(), &both).await.unwrap();

    maintenances.delete("e2e-held", &DeleteParams::default()).await.unwrap();
    let released = |found: Option<&NodeMaintenance>| {
        found.is_some_and(|found| found.finalizers() == ["example.com/hold".to_owned()])
    };
    until(&maintenances, "e2e-held", "without our finalizer", released).await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maintenances.patch("e2e-held", &PatchParams::default(), &free).await.unwrap();
    until(&maintenances, "e2e-held", "gone", |found| found.is_none()).await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "and it stays given back");
}

// Case 25.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_cordoned_before_stays_cordoned_after() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon(node).await.unwrap();
    let settled = |node: Option<&Node>| {
        // A cluster with a node lifecycle controller adds its taint by itself; one without never does.
        node.and_then(|node| node.spec.as_ref()).is_some_and(|spec| spec.unschedulable == Some(true))
    };
    until(&nodes, node, "cordoned", settled).await;

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-before", node).await;
    drained(&cluster, "e2e-before").await;
    assert!(cluster.node(node).await.annotations().contains_key(UNDO_ANNOTATION));
    stop(&cluster, "e2e-before").await;
    let after = cluster.node(node).await;
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(
        !after.labels().contains_key(EXCLUDE_LABEL) && !after.annotations().contains_key(UNDO_ANNOTATION)
    );
    let taints = after.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().all(|taint| taint.key != DRAIN_TAINT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_behind_a_budget_is_shown_as_blocked_and_goes_when_the_budget_frees_up() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "budget").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-budget", &node).await;
    let refused = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| status.blocked_pods.first().is_some_and(|pod| pod.attempts == 1))
    };
    let found = until(&cluster.maintenances(), "e2e-budget", "refused once", refused).await.unwrap();
    let status = found.status.unwrap();
    let pod = &status.blocked_pods[0];
    assert_eq!(pod.reason, nm_shared::BlockReason::DisruptionBudget);
    assert_eq!(pod.message, "The disruption budget cart needs 1 healthy pods and has 1 currently");
    assert_eq!(status.last_error, format!("1 pod is blocked: {} (DisruptionBudget)", pod.reference()));

    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(cluster.client.clone(), workload.namespace());
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments.patch("cart", &PatchParams::default(), &two).await.unwrap();
    let status = drained(&cluster, "e2e-budget").await.status.unwrap();
    assert!(status.blocked_pods.is_empty() && status.last_error.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_killed_midway_is_followed_by_one_that_finishes() {
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "crash").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let before = cluster.node(&node).await;

    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-crash", &node).await;
    let blocked = |found: Option<&NodeMaintenance>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.pod_counts.blocked == 1)
    };
    let halfway = until(&cluster.maintenances(), "e2e-crash", "blocked", blocked).await.unwrap();
    events_until(&cluster, &halfway, "BeginMaintenance").await;
    let counted = halfway.status.unwrap();
    first.crash().await;

    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(cluster.client.clone(), workload.namespace());
    budgets.delete("cart", &DeleteParams::default()).await.unwrap();
    let _second = Reconciler::start(&cluster);
    let done = drained(&cluster, "e2e-crash").await;
    let status = done.status.as_ref().unwrap();
    assert_eq!((status.total_pods, status.eviction_pods), (counted.total_pods, counted.eviction_pods));
    let told = events_until(&cluster, &done, "SucceedMaintenance").await;
    assert_eq!(told, ["BeginMaintenance", "SucceedMaintenance"], "it began once");
    stop(&cluster, "e2e-crash").await;
    assert_eq!(configuration(&cluster.node(&node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_by_its_conditions_where_its_maintenance_stands_if_that_is_wanted() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let told = |node: Option<&Node>, expected: &[(&str, &str)]| {
        let conditions =
            node.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        let found = |type_: &str| conditions.iter().find(|c| c.type_ == type_).map(|c| c.status.as_str());
        expected.iter().all(|(type_, status)| found(type_).unwrap_or("-") == *status)
    };
    cluster.grant("node_conditions").await;
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    let workload = Workload::new(&cluster, "told").await;
    workload.pod_on(node, "held", json!({"metadata": {"finalizers": ["kubectl-nm.dev/e2e-hold"]}})).await;
    start(&cluster, "e2e-told", node).await;
    let draining = [("DrainInProgress", "True"), ("Drained", "False"), ("MaintenanceInProgress", "True")];
    until(&nodes, node, "draining", |node| told(node, &draining)).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    workload.pods().patch("held", &PatchParams::default(), &free).await.unwrap();
    let drained = [("DrainInProgress", "False"), ("Drained", "True"), ("MaintenanceInProgress", "True")];
    until(&nodes, node, "drained", |node| told(node, &drained)).await;
    stop(&cluster, "e2e-told").await;
    let nothing =
        [("DrainInProgress", "-"), ("Drained", "-"), ("MaintenanceInProgress", "-"), ("Ready", "True")];
    until(&nodes, node, "as before", |node| told(node, &nothing)).await;
}
