//! `spec.drain.surge`: a pod whose budget never allows its eviction is replaced before it leaves.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kube_sandbox::controllers::kubelet::annotations::START_DELAY;
use nm_shared::api::names::RESTARTED_AT_ANNOTATION;
use nm_shared::{NodeMaintenanceStatus, SurgingPod};
use nm_tests::cluster::Cluster;
use nm_tests::endpoints::{EndpointProbe, serve};
use nm_tests::maintenance::{
    start, start_with_drain, stop, until_drained, until_drained_without_errors, until_status,
};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::{wait_until, wait_until_all};
use nm_tests::workload::{Workload, is_running, merge, node_of, parse, pod_spec, schedule_beside};
use serde_json::{Value, json};

const NONE: Duration = Duration::ZERO;

/// Creates the deployment `web` whose pods take a moment to start, its Service, and a budget that allows no disruption.
async fn web(
    cluster: &Cluster,
    workload: &Workload,
    replicas: usize,
    spec: Value,
) -> (EndpointProbe, Vec<Pod>) {
    let labels = json!({"app": "web"});
    let mut deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {START_DELAY: "1s"}}, "spec": pod_spec(),
        }},
    });
    merge(&mut deployment["spec"], spec);
    workload.deployments().create(&PostParams::default(), &parse(deployment)).await.unwrap();
    serve(&cluster.client, workload.namespace(), "web").await;
    let probe = EndpointProbe::start(&cluster.client, workload.namespace(), "web", replicas).await;
    workload.budget("web", replicas).await;
    (probe, workload.until_running("web", replicas).await)
}

pub(super) async fn patch_web(workload: &Workload, patch: Value) {
    workload.deployments().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until all pods of the deployment `web` are of its current template.
async fn until_rolled_out(workload: &Workload) -> Deployment {
    let rolled_out = |deployment: Option<&Deployment>| {
        let Some(deployment) = deployment else { return false };
        let (spec, status) =
            (deployment.spec.clone().unwrap(), deployment.status.clone().unwrap_or_default());
        status.observed_generation == deployment.metadata.generation
            && [status.updated_replicas, status.replicas, status.available_replicas] == [spec.replicas; 3]
    };
    wait_until(&workload.deployments(), "web", "rolled out", rolled_out).await.unwrap()
}

/// When the deployment was last restarted; none if it never was.
fn restarted_at(deployment: &Deployment) -> Option<String> {
    let template = &deployment.spec.as_ref()?.template;
    template.metadata.as_ref()?.annotations.as_ref()?.get(RESTARTED_AT_ANNOTATION).cloned()
}

/// The number of templates that the deployments of the namespace have had.
pub(super) async fn templates(cluster: &Cluster, workload: &Workload) -> usize {
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    sets.list(&ListParams::default()).await.unwrap().items.len()
}

async fn until_surging(
    cluster: &Cluster,
    name: &str,
    what: &str,
    is_wanted: impl Fn(&SurgingPod) -> bool,
) -> (NodeMaintenanceStatus, SurgingPod) {
    let of = |status: &NodeMaintenanceStatus| {
        status.surging_pods.iter().flatten().find(|pod| is_wanted(pod)).cloned()
    };
    let status = until_status(cluster, name, what, |status| of(status).is_some()).await;
    let pod = of(&status).unwrap();
    (status, pod)
}

pub(super) fn surge() -> Value {
    json!({"surge": "WhenBlocked"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_one_pod_is_never_without_a_ready_endpoint() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "one").await;
    let (probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let node = node_of(&pods[0]);
    let before = workload.deployments().get("web").await.unwrap();
    schedule_beside(&cluster, node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-one", node, surge()).await;

    let (status, pod) =
        until_surging(&cluster, "e2e-one", "it is replaced", |pod| pod.replacement.is_some()).await;
    assert_eq!((pod.name.as_str(), pod.deployment.as_str()), (pods[0].name_any().as_str(), "web"));
    assert_eq!(
        (status.pod_counts.surging, status.pod_counts.blocked, status.last_error.as_str()),
        (1, 0, "")
    );
    let replacement = pod.replacement.unwrap();
    assert_eq!((replacement.node, replacement.ready), (None, false));
    schedule_beside(&cluster, node, true).await;

    until_drained_without_errors(&cluster, "e2e-one").await;
    let deployment = until_rolled_out(&workload).await;
    let pods = workload.until_running("web", 1).await;
    assert_eq!(pods[0].name_any(), replacement.name);
    assert_ne!(node_of(&pods[0]), node);
    assert_eq!(probe.without(), (NONE, 1));
    assert_eq!(templates(&cluster, &workload).await, 2, "it was restarted once");

    // Nothing else has changed.
    let mut expected = serde_json::to_value(before.spec.unwrap()).unwrap();
    let annotations = &mut expected["template"]["metadata"]["annotations"];
    annotations[RESTARTED_AT_ANNOTATION] = json!(restarted_at(&deployment).unwrap());
    assert_eq!(serde_json::to_value(deployment.spec.unwrap()).unwrap(), expected);
    stop(&cluster, "e2e-one").await;
    assert_eq!(probe.without(), (NONE, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_no_deployment_is_read_or_restarted() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "default").await;
    let (_probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-default", node_of(&pods[0])).await;
    until_status(&cluster, "e2e-default", "blocked", |status| status.pod_counts.blocked == 1).await;
    if let Some(sandbox) = cluster.sandbox() {
        let reads = sandbox.requests().count(|request| {
            request.group == "apps"
                && request.resource != "daemonsets"
                && request.user_agent.starts_with("nm-reconciler/")
        });
        assert_eq!(reads, 0);
    }
    assert_eq!(restarted_at(&workload.deployments().get("web").await.unwrap()), None);
    workload.delete_budget("web").await;
    until_drained(&cluster, "e2e-default").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_one_deployment_on_several_nodes_share_one_restart() {
    let cluster = Cluster::start(4).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "several").await;
    let (probe, pods) = web(&cluster, &workload, 3, json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut nodes: Vec<&str> = pods.iter().map(node_of).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in &nodes {
        start_with_drain(&cluster, node, node, surge()).await;
    }
    for node in &nodes {
        until_drained_without_errors(&cluster, node).await;
    }
    until_rolled_out(&workload).await;
    assert_eq!(probe.without(), (NONE, 3));
    assert_eq!(templates(&cluster, &workload).await, 2, "one restart replaces all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_is_killed_while_a_pod_surges_restarts_nothing_twice() {
    let cluster = Cluster::start(2).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "killed").await;
    let (probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let node = node_of(&pods[0]);
    schedule_beside(&cluster, node, false).await;
    let reconciler = Reconciler::start_with(&cluster, &["--leader-elect=false"]);
    start_with_drain(&cluster, "e2e-killed", node, surge()).await;
    until_surging(&cluster, "e2e-killed", "it surges", |_| true).await;
    drop(reconciler);
    schedule_beside(&cluster, node, true).await;
    let _reconciler = Reconciler::start_with(&cluster, &["--leader-elect=false"]);
    until_drained_without_errors(&cluster, "e2e-killed").await;
    until_rolled_out(&workload).await;
    assert_eq!(probe.without(), (NONE, 1));
    assert_eq!(templates(&cluster, &workload).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_under_way_is_waited_for() {
    let cluster = Cluster::start(3).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "rollout").await;
    let (probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let node = node_of(&pods[0]);
    // The new pod cannot be scheduled, so the rollout is under way until that changes.
    for node in cluster.nodes().await {
        cluster.patch_node(&node, json!({"spec": {"unschedulable": true}})).await;
    }
    patch_web(&workload, json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-rollout", node, surge()).await;
    let (_, pod) = until_surging(&cluster, "e2e-rollout", "it waits for the rollout", |_| true).await;
    assert!(!pod.restarted, "{pod:?}");
    schedule_beside(&cluster, node, true).await;
    until_drained_without_errors(&cluster, "e2e-rollout").await;
    let deployment = until_rolled_out(&workload).await;
    assert_eq!((probe.without(), restarted_at(&deployment)), ((NONE, 1), None));
    assert_eq!(templates(&cluster, &workload).await, 2);
    assert!(pods_of(&workload).await.iter().all(|pod| node_of(pod) != node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_put_its_new_pod_on_the_node_is_waited_for_before_that_pod_is_replaced() {
    let cluster = Cluster::start(3).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "rollout-here").await;
    // For some seconds, both the old pod and the new one are Ready: the budget counts both, and allows an eviction.
    let (probe, pods) = web(&cluster, &workload, 1, json!({"minReadySeconds": 5})).await;
    let others = cluster.nodes().await;
    let node = others.iter().find(|other| *other != node_of(&pods[0])).unwrap();
    schedule_beside(&cluster, node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    patch_web(&workload, json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})).await;
    let ready =
        |pods: &[Pod]| pods.len() == 1 && pods.iter().all(|pod| node_of(pod) == node && is_running(pod));
    let new = watcher::Config::default().labels("version=2");
    wait_until_all(&workload.pods(), new, "the new pod is Ready on the node", ready).await;
    start_with_drain(&cluster, "e2e-rollout-here", node, surge()).await;
    until_surging(&cluster, "e2e-rollout-here", "it surges", |_| true).await;
    schedule_beside(&cluster, node, true).await;
    until_drained_without_errors(&cluster, "e2e-rollout-here").await;
    until_rolled_out(&workload).await;
    assert_eq!(probe.without(), (NONE, 1));
    assert_eq!(templates(&cluster, &workload).await, 3, "the rollout, and one restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_failed_before_does_not_keep_another_from_being_replaced_first() {
    let why = "a kubelet would write the status of the failed pod again";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "failed-before").await;
    let (probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let node = node_of(&pods[0]);
    let other = cluster.nodes().await.into_iter().find(|other| other != node).unwrap();
    // The budget expects this pod too, though it never becomes healthy.
    workload.pod_on(&other, "failed", json!({})).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
    workload.pods().patch("failed", &PatchParams::default(), &labels).await.unwrap();
    let failed = Patch::Merge(json!({"status": {"phase": "Failed", "conditions": []}}));
    workload.pods().patch_status("failed", &PatchParams::default(), &failed).await.unwrap();
    let both = |budget: Option<&PodDisruptionBudget>| {
        budget.and_then(|budget| Some(budget.status.as_ref()?.expected_pods)) == Some(2)
    };
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), workload.namespace());
    wait_until(&budgets, "web", "the budget expects both", both).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-failed-before", node, surge()).await;
    until_drained_without_errors(&cluster, "e2e-failed-before").await;
    assert!(restarted_at(&until_rolled_out(&workload).await).is_some());
    assert_eq!(probe.without(), (NONE, 1));
}

async fn pods_of(workload: &Workload) -> Vec<Pod> {
    workload.pods().list(&ListParams::default().labels("app=web")).await.unwrap().items
}

/// Lets an autoscaler set the replicas of the deployment `web`. A sandbox has none, so its scale is set by hand there.
async fn scale_automatically(cluster: &Cluster, workload: &Workload, replicas: i32) {
    if cluster.is_sandbox() {
        return patch_web(workload, json!({"spec": {"replicas": replicas}})).await;
    }
    let scaler: HorizontalPodAutoscaler = parse(json!({
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": replicas, "maxReplicas": replicas},
    }));
    let scalers = Api::namespaced(cluster.client.clone(), workload.namespace());
    scalers.create(&PostParams::default(), &scaler).await.unwrap();
    let is_scaled = |web: Option<&Deployment>| {
        web.is_some_and(|web| web.spec.as_ref().unwrap().replicas == Some(replicas))
    };
    wait_until(&workload.deployments(), "web", "the autoscaler scales it", is_scaled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_may_scale_the_deployment_meanwhile() {
    let cluster = Cluster::start(3).await;
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "scaled").await;
    let (probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let node = node_of(&pods[0]);
    schedule_beside(&cluster, node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-scaled", node, surge()).await;
    until_surging(&cluster, "e2e-scaled", "it surges", |_| true).await;
    scale_automatically(&cluster, &workload, 3).await;
    schedule_beside(&cluster, node, true).await;
    until_drained(&cluster, "e2e-scaled").await;
    let deployment = until_rolled_out(&workload).await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(3), "it stays as the autoscaler wants it");
    assert_eq!(probe.without(), (NONE, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_surface_shows_a_surging_pod() {
    let Some(cluster) =
        Cluster::sandbox_or_skip(2, "only a sandbox's pods start as slowly as they are told").await
    else {
        return;
    };
    cluster.grant("surge").await;
    let workload = Workload::new(&cluster, "shown").await;
    let (_probe, pods) = web(&cluster, &workload, 1, json!({})).await;
    let (node, namespace) = (node_of(&pods[0]).to_owned(), workload.namespace());
    let planned = plugin(&cluster, &["plan", &node, "--surge"]).await;
    let line = planned.stdout.lines().find(|line| line.contains("/web-")).unwrap_or_default();
    assert!(line.contains("surging") && line.contains("its Deployment is restarted"), "{planned:?}");
    assert!(!planned.stdout.contains("budget"), "it blocks nothing: {planned:?}");

    schedule_beside(&cluster, &node, false).await;
    let _reconciler = Reconciler::start(&cluster);
    let started = plugin(&cluster, &["start", &node, "--surge", "--yes"]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    let (_, pod) = until_surging(&cluster, &node, "it is replaced", |pod| pod.replacement.is_some()).await;
    let name = pod.replacement.unwrap().name;
    let status = plugin(&cluster, &["status", &node]).await;
    assert!(status.stderr.contains(&format!("surging {namespace}/{}", pod.name)), "{status:?}");
    assert!(status.stderr.contains(&name), "{status:?}");
    let explained = plugin(&cluster, &["explain", &node]).await;
    for part in [&*name, "rollout status deployment/web", "is replaced first"] {
        assert!(explained.stdout.contains(part), "{part} in {explained:?}");
    }
    let unwell = plugin(&cluster, &["explain"]).await;
    assert!(unwell.stdout.contains(&*name), "its replacement fits on no node: {unwell:?}");
    schedule_beside(&cluster, &node, true).await;
    let is_scheduled = |pod: &SurgingPod| pod.replacement.as_ref().is_some_and(|pod| pod.node.is_some());
    let (_, pod) = until_surging(&cluster, &node, "a replacement is scheduled", is_scheduled).await;
    assert_ne!(pod.replacement.unwrap().node, Some(node));
}
