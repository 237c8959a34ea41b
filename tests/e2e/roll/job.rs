//! Rolls with `--job`: a Job runs on each drained node.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::{LOG, RUN_FOR};
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::{wait_until, wait_until_all};
use nm_tests::workload::{Workload, node_of, pod_spec, pods_on};
use serde_json::{Value, json};

use super::running_roll::RunningRoll;

/// A Job whose container prints something and ends.
fn job(workload: &Workload) -> Value {
    let mut pod = pod_spec();
    // It prints its version. The simulated kubelets of a sandbox read the annotations instead.
    pod["containers"][0]["args"] = json!(["-v", "{}"]);
    let annotations = json!({RUN_FOR: "500ms", LOG: "upgraded\n"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": workload.namespace()},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"annotations": annotations}, "spec": pod}}})
}

/// The pod of the Job on this node, once it is there.
async fn until_created(workload: &Workload, roll: &str, node: &str) -> Pod {
    let selection = watcher::Config::default().labels(&format!("kubectl-nm.dev/roll={roll}"));
    let is_on = |pods: &[Pod]| pods.iter().any(|pod| node_of(pod) == node);
    let pods = wait_until_all(&workload.pods(), selection, "the Job has a pod on the node", is_on).await;
    pods.into_iter().find(|pod| node_of(pod) == node).unwrap()
}

/// A pod of the Job that is not this one, once it is there.
async fn until_other(workload: &Workload, roll: &str, first: &Pod) -> Pod {
    let selection = watcher::Config::default().labels(&format!("kubectl-nm.dev/roll={roll}"));
    let is_other = |pod: &Pod| pod.metadata.uid != first.metadata.uid;
    let has_other = |pods: &[Pod]| pods.iter().any(is_other);
    let pods = wait_until_all(&workload.pods(), selection, "another pod of a Job", has_other).await;
    pods.into_iter().find(is_other).unwrap()
}

/// Ends the pod on a node of a test cluster that has no container runtime, in place of its kubelet.
async fn end_without_runtime(cluster: &Cluster, workload: &Workload, pod: &Pod) {
    let status = cluster.node(node_of(pod)).await.status.unwrap();
    if status.node_info.unwrap().container_runtime_version == "hollow" {
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
    assert_eq!(roll.outlook()["done"], 2);
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
    let mut job = job(&workload);
    // It waits for ever, so that only the test ends it.
    job["spec"]["template"]["metadata"] = json!({});
    job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([]);
    let file = temp_file(job.to_string());
    let flags = ["--job", file.path().to_str().unwrap()];
    let mut roll = RunningRoll::begin(&cluster, "bad-job", &nodes[..2], &flags);
    let acting = roll.until("a node that acts", |line| line["step"] == "Acting").await;
    let node = acting["node"].as_str().unwrap();
    let pod = until_created(&workload, "bad-job", node).await;
    // A pod that is deleted counts as failed, and the Job has no other attempt.
    workload.pods().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.outlook()["message"].as_str().unwrap();
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
