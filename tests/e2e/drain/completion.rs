//! `spec.drain.waitForCompletion`: pods that are left to end by themselves.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::controllers::kubelet::annotations::IMAGE_MISSING;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::{NodeMaintenanceStatus, Phase, Suspension, WaitingPod};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    patch_drain, start_with_drain, stop, suspend, until_drained, until_drained_without_errors, until_phase,
    until_status, until_suspension,
};
use nm_tests::programs::{RunningCommand, plugin, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, parse, pod_spec};
use serde_json::{Value, json};

/// The pod of a new Job, which runs on that node until it is ended.
async fn job_pod_on(workload: &Workload, node: &str, name: &str) -> Pod {
    let mut spec = pod_spec();
    (spec["nodeName"], spec["restartPolicy"]) = (json!(node), json!("Never"));
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": spec});
    let job = parse(json!({"metadata": {"name": name}, "spec": {"template": template}}));
    let client = workload.pods().into_client();
    let jobs: Api<Job> = Api::namespaced(client, workload.namespace());
    jobs.create(&PostParams::default(), &job).await.unwrap();
    workload.until_running(name, 1).await.remove(0)
}

/// Ends a pod as its kubelet does when its containers have exited.
async fn end(workload: &Workload, pod: &str) {
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    workload.pods().patch_status(pod, &PatchParams::default(), &ended).await.unwrap();
}

fn completing(status: &NodeMaintenanceStatus) -> &[WaitingPod] {
    status.waiting_pods.as_deref().unwrap_or_default()
}

/// The status, once exactly this pod is waited for, and is all that is left.
async fn until_only_completing(cluster: &Cluster, name: &str, pod: &str) -> NodeMaintenanceStatus {
    until_status(cluster, name, "only a completing pod is left", |status| {
        completing(status).iter().map(|pod| &pod.name).eq([pod]) && status.pending_pods == [pod]
    })
    .await
}

async fn is_terminating(workload: &Workload, pod: &str) -> bool {
    workload.pods().get(pod).await.unwrap().metadata.deletion_timestamp.is_some()
}

/// On a sandbox, the pods whose evictions were requested.
fn evicted(cluster: &Cluster) -> Option<Vec<String>> {
    Some(evictions(cluster.sandbox()?).into_iter().map(|entry| entry.name).collect())
}

fn of_app(app: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"app": app}}})
}

fn later(at: Timestamp, seconds: i64) -> Timestamp {
    at + SignedDuration::from_secs(seconds)
}

fn cordoned_at(status: &NodeMaintenanceStatus) -> Timestamp {
    find(&status.conditions, ConditionType::Cordoned).unwrap().last_transition_time.0
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_a_job_ends_by_itself_while_other_pods_leave() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "jobs").await;
    let pod = job_pod_on(&workload, node, "import").await.name_any();
    workload.pod_on(node, "web", json!({})).await;
    let reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-jobs", node, json!({"waitForCompletion": {}})).await;
    let status = until_only_completing(&cluster, "e2e-jobs", &pod).await;
    assert_eq!((status.pod_counts.waiting, status.pod_counts.gone), (1, 1));
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Running), ""));
    let shown = completing(&status)[0].clone();
    assert_eq!((shown.namespace.as_str(), shown.until.clone()), (workload.namespace(), None));
    assert!(!is_terminating(&workload, &pod).await);

    // Another reconciler goes on waiting, and knows since when.
    reconciler.crash().await;
    let _reconciler = Reconciler::start(&cluster);
    workload.create_pod(node, "late", json!({})).await;
    wait_until(&workload.pods(), "late", "gone", |found| found.is_none()).await;
    let status = until_only_completing(&cluster, "e2e-jobs", &pod).await;
    assert_eq!(completing(&status), [shown]);
    if let Some(evicted) = evicted(&cluster) {
        assert_eq!(evicted, ["web", "late"]);
    }

    end(&workload, &pod).await;
    until_drained_without_errors(&cluster, "e2e-jobs").await;
    let status = until_drained(&cluster, "e2e-jobs").await.status.unwrap();
    assert_eq!(status.waiting_pods, None);
    if let Some(evicted) = evicted(&cluster) {
        assert_eq!(evicted.last(), Some(&pod), "the finished pod is evicted like any other");
    }
    stop(&cluster, "e2e-jobs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selected_pod_is_evicted_when_the_time_is_up() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "limited").await;
    workload.pod_on(node, "endless", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut completion = of_app("endless");
    completion["timeoutSeconds"] = json!(2);
    start_with_drain(&cluster, "e2e-limited", node, json!({"waitForCompletion": completion})).await;
    let status = until_only_completing(&cluster, "e2e-limited", "endless").await;
    let until = completing(&status)[0].until.clone().unwrap().0;
    assert_eq!(until, later(cordoned_at(&status), 2));
    let status = until_drained(&cluster, "e2e-limited").await.status.unwrap();
    assert!(status.last_update.unwrap().0 >= until, "not before");
    assert_eq!(status.waiting_pods, None);
    stop(&cluster, "e2e-limited").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_option_a_waiting_pod_is_evicted_at_once() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "removed").await;
    workload.pod_on(node, "endless", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let drain = json!({"waitForCompletion": of_app("endless")});
    start_with_drain(&cluster, "e2e-removed", node, drain).await;
    until_only_completing(&cluster, "e2e-removed", "endless").await;
    patch_drain(&cluster, "e2e-removed", json!({"waitForCompletion": null})).await;
    until_drained_without_errors(&cluster, "e2e-removed").await;
    stop(&cluster, "e2e-removed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_of_the_drain_fails_it_while_a_pod_is_waited_for() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "expired").await;
    workload.pod_on(node, "endless", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let drain = json!({"waitForCompletion": of_app("endless"), "timeoutSeconds": 1});
    start_with_drain(&cluster, "e2e-expired", node, drain).await;
    let failed = until_phase(&cluster, "e2e-expired", Phase::Failed).await;
    assert_eq!(failed.last_error, "the drain timed out after 1 s, 1 pod is left");
    assert!(!is_terminating(&workload, "endless").await);
    workload.pods().delete("endless", &DeleteParams::default()).await.unwrap();
    until_drained(&cluster, "e2e-expired").await;
    stop(&cluster, "e2e-expired").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_does_not_run_during_a_pause() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "paused").await;
    workload.pod_on(node, "endless", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut completion = of_app("endless");
    completion["timeoutSeconds"] = json!(3600);
    start_with_drain(&cluster, "e2e-paused-job", node, json!({"waitForCompletion": completion})).await;
    let status = until_only_completing(&cluster, "e2e-paused-job", "endless").await;
    assert_eq!(completing(&status)[0].until.clone().unwrap().0, later(cordoned_at(&status), 3600));
    suspend(&cluster, "e2e-paused-job", true).await;
    let paused = until_suspension(&cluster, "e2e-paused-job", Some(Suspension::Paused)).await;
    assert_eq!(completing(&paused)[0].until, None);
    suspend(&cluster, "e2e-paused-job", false).await;
    let resumed = until_suspension(&cluster, "e2e-paused-job", None).await;
    // A pause may have ended in the second in which it began.
    let paused_seconds = resumed.paused_seconds.unwrap_or(0);
    let until = completing(&resumed)[0].until.clone().unwrap().0;
    assert_eq!(until, later(cordoned_at(&resumed), 3600 + paused_seconds));
    patch_drain(&cluster, "e2e-paused-job", json!({"waitForCompletion": null})).await;
    until_drained(&cluster, "e2e-paused-job").await;
    stop(&cluster, "e2e-paused-job").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_selector_evicts_no_pod_until_it_is_fixed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "mistyped").await;
    workload.pod_on(node, "web", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let invalid = json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}});
    start_with_drain(&cluster, "e2e-mistyped", node, json!({"waitForCompletion": invalid})).await;
    let failed = until_phase(&cluster, "e2e-mistyped", Phase::Failed).await;
    let error = "spec.drain.waitForCompletion.podSelector: failed to parse value as expression: Invalid expression \
                 operator";
    assert_eq!(failed.last_error, error);
    assert_eq!(find(&failed.conditions, ConditionType::Drained).unwrap().reason, "InvalidDrain");
    assert!(!is_terminating(&workload, "web").await);
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("edit nm e2e-mistyped"), "{explained:?}");
    patch_drain(&cluster, "e2e-mistyped", json!({"waitForCompletion": null})).await;
    until_drained_without_errors(&cluster, "e2e-mistyped").await;
    stop(&cluster, "e2e-mistyped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_shows_the_pods_that_the_drain_waits_for() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "shown").await;
    workload.pod_on(node, "endless", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let flags = ["--wait-for-completion=app=endless", "--completion-timeout", "2h"];
    let planned = plugin(&cluster, &[&["plan", node][..], &flags].concat()).await.ok().stdout;
    assert!(
        planned.contains("evicted 2h after the cordon, unless it terminates on its own before"),
        "{planned}"
    );
    assert!(planned.contains("1 completing"), "{planned}");
    let _ = plugin(&cluster, &[&["start", node][..], &flags].concat()).await.ok();
    let stored = cluster.maintenances().get(node).await.unwrap().spec.drain.unwrap().wait_for_completion;
    let mut expected = of_app("endless");
    expected["timeoutSeconds"] = json!(7200);
    assert_eq!(json!(stored), expected);

    let status = until_only_completing(&cluster, node, "endless").await;
    let pod = completing(&status)[0].clone();
    let (since, until) = (pod.since.0, pod.until.unwrap().0);
    let waiting =
        format!("waiting {}/endless since {since}: Completing, evicted at {until}", workload.namespace());
    let shown = plugin(&cluster, &["status", node]).await.ok();
    assert_eq!(shown.stderr, format!("node/{node}: {waiting}\n"));
    let explained = plugin(&cluster, &["explain", node]).await.ok().stdout;
    assert!(explained.contains(&format!("(Completing), and evicts them at {until}.")), "{explained}");
    assert!(explained.contains(&format!("Waits for {}/endless", workload.namespace())), "{explained}");
    let args = ["watch", node, "--until", "drained", "-o", "json"];
    let mut watch = RunningCommand::start(program("kubectl-nm"), &cluster, &args);
    let mut pods: Vec<Value> = Vec::new();
    while let Some(line) = watch.line().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["type"] != "pod" {
            continue;
        }
        if pods.is_empty() {
            patch_drain(&cluster, node, json!({"waitForCompletion": null})).await;
        }
        pods.push(line);
    }
    assert_eq!(watch.exit_code().await, Some(0), "{pods:#?}");
    assert_eq!((&pods[0]["state"], &pods[0]["reason"]), (&json!("waiting"), &json!("Completing")));
    assert_eq!(pods[0]["until"], json!(until));
    assert_eq!(pods.last().unwrap()["state"], "gone", "{pods:#?}");
    assert!(workload.pods().list(&ListParams::default()).await.unwrap().items.is_empty());
    stop(&cluster, node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_never_terminate_on_their_own_are_named_before_the_drain_and_block_it() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "endless").await;
    workload.pod_on(node, "web", json!({"spec": {"restartPolicy": "Always"}})).await;
    // A sandbox pulls no images.
    let bad = json!({"metadata": {"annotations": {IMAGE_MISSING: "true"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.invalid/none:1"}]}});
    workload.create_pod(node, "bad", bad).await;
    let does_not_start = |pod: Option<&Pod>| {
        let containers = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.clone());
        containers.iter().flatten().any(|container| {
            let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting
                .and_then(|waiting| waiting.reason.as_deref())
                .is_some_and(|reason| reason.contains("Pull"))
        })
    };
    wait_until(&workload.pods(), "bad", "it does not start", does_not_start).await;
    let _reconciler = Reconciler::start(&cluster);
    let waits = "--wait-for-completion=app in (web, bad)";
    let plan = plugin(&cluster, &["plan", node, waits]).await;
    for said in ["never terminates on its own (restartPolicy Always)", "because it does not run ("] {
        assert!(plan.stdout.contains(said), "{plan:?}");
    }
    let _ = plugin(&cluster, &["start", node, waits, "-y"]).await.ok();
    let both = |status: &NodeMaintenanceStatus| completing(status).len() == 2;
    until_status(&cluster, node, "both are waited for", both).await;
    let explained = plugin(&cluster, &["explain", node]).await;
    let delete = format!("kubectl -n {} delete pod bad", workload.namespace());
    for said in ["restartPolicy Always", "cannot be pulled", &delete] {
        assert!(explained.stdout.contains(said), "{explained:?}");
    }
    assert!(!explained.stdout.contains("continues on its own"), "{explained:?}");
    stop(&cluster, node).await;
}
