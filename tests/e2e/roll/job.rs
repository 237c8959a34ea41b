//! Rolls with `--job`: a Job runs on each drained node.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::{LOG, RUN_FOR};
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::kubelet_reports::is_hollow;
use nm_tests::programs::plugin;
use nm_tests::rbac::{bind_cluster_role, service_account};
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::{wait_until, wait_until_all};
use nm_tests::workload::{Workload, node_of, pod_spec, pods_on};
use serde_json::{Value, json};

use super::running_roll::RunningRoll;

/// A Job whose container prints something and ends.
pub(super) fn job(workload: &Workload) -> Value {
    let mut pod = pod_spec();
    // It prints its version. The simulated kubelets of a sandbox read the annotations instead.
    pod["containers"][0]["args"] = json!(["-v", "{}"]);
    let annotations = json!({RUN_FOR: "500ms", LOG: "upgraded\n"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": workload.namespace()},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"annotations": annotations}, "spec": pod}}})
}

/// A Job that waits for ever, so that only the test ends it.
pub(super) fn endless(workload: &Workload) -> Value {
    let mut job = job(workload);
    job["spec"]["template"]["metadata"] = json!({});
    job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([]);
    job
}

/// The pod of the Job on this node, once it is there.
pub(super) async fn until_created(workload: &Workload, roll: &str, node: &str) -> Pod {
    let selection = watcher::Config::default().labels(&format!("kubectl-nm.dev/roll={roll}"));
    let is_on = |pods: &[Pod]| pods.iter().any(|pod| node_of(pod) == node);
    let pods = wait_until_all(&workload.pods(), selection, "the Job has a pod on the node", is_on).await;
    pods.into_iter().find(|pod| node_of(pod) == node).unwrap()
}

/// A pod of the Job that is not this one, once it is there.
pub(super) async fn until_other(workload: &Workload, roll: &str, first: &Pod) -> Pod {
    let selection = watcher::Config::default().labels(&format!("kubectl-nm.dev/roll={roll}"));
    let is_other = |pod: &Pod| pod.metadata.uid != first.metadata.uid;
    let has_other = |pods: &[Pod]| pods.iter().any(is_other);
    let pods = wait_until_all(&workload.pods(), selection, "another pod of a Job", has_other).await;
    pods.into_iter().find(is_other).unwrap()
}

/// Ends the pod on a node of a test cluster that has no container runtime, in place of its kubelet.
pub(super) async fn end_without_runtime(cluster: &Cluster, workload: &Workload, pod: &Pod) {
    if is_hollow(cluster, node_of(pod)).await {
        // Afterwards, nothing else writes its status.
        let is_running = |pod: Option<&Pod>| {
            let status = pod.and_then(|pod| pod.status.as_ref());
            status.and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        wait_until(&workload.pods(), &pod.name_any(), "the pod is Running", is_running).await;
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        workload.pods().patch_status(&pod.name_any(), &PatchParams::default(), &ended).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_each_drained_node_to_its_end_and_is_not_evicted() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "jobs").await;
    let _reconciler = Reconciler::start(&cluster);
    let file = temp_file(job(&workload).to_string());
    let flags = ["--job", file.path().to_str().unwrap()];
    let mut roll = RunningRoll::begin(&cluster, "by-job", &nodes[..2], &flags);
    for _ in &nodes[..2] {
        let acting = roll.until("a node that acts", |line| line["step"] == "Acting").await;
        let node = acting["node"].as_str().unwrap();
        let pod = until_created(&workload, "by-job", node).await;
        end_without_runtime(&cluster, &workload, &pod).await;
        let container = &json!(pod)["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["-v", node]));
        assert_eq!(container["env"], json!([{"name": "NM_NODE", "value": node}]));
    }
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["done"], 2);
    for node in &nodes[..2] {
        let pods = pods_on(&cluster.client, node).await;
        let pod = pods.iter().find(|pod| pod.labels().get("kubectl-nm.dev/roll").is_some());
        let pod = pod.expect("its pod stays, also after its end");
        assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded"));
        assert_eq!(pod.metadata.deletion_timestamp, None);
        if cluster.sandbox().is_some() {
            assert_eq!(roll.output(node), ["upgraded"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_halts_the_roll() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "failing").await;
    let _reconciler = Reconciler::start(&cluster);
    let file = temp_file(endless(&workload).to_string());
    let flags = ["--job", file.path().to_str().unwrap()];
    let mut roll = RunningRoll::begin(&cluster, "bad-job", &nodes[..2], &flags);
    let acting = roll.until("a node that acts", |line| line["step"] == "Acting").await;
    let node = acting["node"].as_str().unwrap();
    let pod = until_created(&workload, "bad-job", node).await;
    // A pod that is deleted counts as failed, and the Job has no other attempt.
    workload.pods().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap();
    let expected = format!("the action for node {node} failed: Job {}/bad-job-", workload.namespace());
    assert!(message.starts_with(&expected), "{message}");

    // Somebody has solved the problem, and the Job is created again.
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=bad-job");
    assert_eq!(jobs.list(&of_roll).await.unwrap().items.len(), 1);
    let mut resumed = RunningRoll::resume(&cluster, "bad-job", &flags);
    let (node, again) = (node.to_owned(), until_other(&workload, "bad-job", &pod).await);
    assert_eq!(node_of(&again), node);
    assert_eq!(jobs.list(&of_roll).await.unwrap().items.len(), 2);
    resumed.signal("INT");
    assert_eq!(resumed.end().await, Some(130), "{:#?}", resumed.lines);
    let _ = plugin(&cluster, &["roll", "abort", "bad-job", "--return", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_takes_longer_than_it_may_is_deleted_and_halts_the_roll() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "endless").await;
    let _reconciler = Reconciler::start(&cluster);
    let file = temp_file(endless(&workload).to_string());
    let flags = ["--job", file.path().to_str().unwrap(), "--action-timeout", "2s"];
    let mut roll = RunningRoll::begin(&cluster, "slow-job", &nodes[..1], &flags);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap();
    assert!(message.ends_with(" did not finish within 2s"), "{message}");
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let is_gone = |jobs: &[Job]| jobs.iter().all(|job| job.metadata.deletion_timestamp.is_some());
    let of_roll = watcher::Config::default().labels("kubectl-nm.dev/roll=slow-job");
    wait_until_all(&jobs, of_roll, "the Job is deleted", is_gone).await;
    let _ = plugin(&cluster, &["roll", "abort", "slow-job", "--return", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_when_the_program_is_killed_is_followed_to_its_end() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "followed").await;
    let _reconciler = Reconciler::start(&cluster);
    let mut job = endless(&workload);
    job["spec"]["backoffLimit"] = json!(3);
    let file = temp_file(job.to_string());
    let flags = ["--job", file.path().to_str().unwrap()];
    let mut roll = RunningRoll::begin(&cluster, "orphaned", &nodes[..1], &flags);
    roll.until_step(&nodes[0], "Acting").await;
    let pod = until_created(&workload, "orphaned", &nodes[0]).await;
    roll.crash().await;

    let mut resumed = RunningRoll::resume(&cluster, "orphaned", &[&flags[..], &["--take-over"]].concat());
    let runs_on = "its Job runs on, and the roll waits for its end";
    resumed.until("the action", |line| line["detail"] == runs_on).await;
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=orphaned");
    let all = jobs.list(&of_roll).await.unwrap().items;
    assert_eq!(all.len(), 1, "it is not created again");
    // Its end, as the Job controller writes it.
    let now = jiff::Timestamp::now();
    let conditions = json!([
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now},
    ]);
    let started = all[0].status.as_ref().and_then(|status| status.start_time.clone());
    let ended = json!({"status": {"conditions": conditions, "active": 0, "ready": 0, "terminating": 0,
        "startTime": started, "completionTime": now}});
    jobs.patch_status(&all[0].name_any(), &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert_eq!(jobs.list(&of_roll).await.unwrap().items.len(), 1);
    assert_eq!(node_of(&pod), nodes[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_drained_for_a_job_that_the_user_may_not_create_or_that_is_refused() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "refusing").await;
    let account = service_account("default", workload.namespace());
    let rules = [
        json!({"apiGroups": ["", "apps", "policy"], "verbs": ["get", "list", "watch"], "resources": ["nodes", "pods",
            "daemonsets", "deployments", "replicasets", "statefulsets", "poddisruptionbudgets"]}),
        json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": ["*"]}),
    ];
    bind_cluster_role(&cluster, &format!("{}-rolls", workload.namespace()), workload.namespace(), &rules)
        .await;
    let kubeconfig = cluster.kubeconfig_of(&account).await;
    let file = temp_file(job(&workload).to_string());
    let args = ["roll", &nodes[0], "--job", file.path().to_str().unwrap(), "-y"];
    let refused = nm_tests::programs::plugin_of(&kubeconfig, &args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("you need permission to create jobs.batch"), "{refused:?}");

    let mut elsewhere = job(&workload);
    elsewhere["metadata"]["namespace"] = json!("no-such-namespace");
    let file = temp_file(elsewhere.to_string());
    let args = ["roll", &nodes[0], "--job", file.path().to_str().unwrap(), "-y"];
    let refused = plugin(&cluster, &args).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("no-such-namespace"), "{refused:?}");
    assert!(cluster.maintenances().get_opt(&nodes[0]).await.unwrap().is_none(), "nothing was created");
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), workload.namespace());
    assert!(jobs.list(&ListParams::default()).await.unwrap().items.is_empty());
}
