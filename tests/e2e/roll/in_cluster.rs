//! Rolls that a Job in the cluster runs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube_sandbox::controllers::kubelet::annotations::RUN_FOR;
use nm_shared::NodeMaintenance;
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::maintenance::{maintenance, plan, until_gone};
use nm_tests::programs::{Outcome, plugin};
use nm_tests::reconciler::Reconciler;
use nm_tests::runner_pods::{NAMESPACE, RunnerPods, service_account};
use nm_tests::wait::{in_time, wait_until, wait_until_all};
use nm_tests::workload::{is_running, node_of, pod_spec};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::running_roll::{abort, change_annotation};

/// A Job for each node that ends after a moment, or never.
pub(super) fn action(ends: bool) -> NamedTempFile {
    let annotations = if ends { json!({RUN_FOR: "300ms"}) } else { json!({}) };
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0,
        "template": {"metadata": {"annotations": annotations}, "spec": pod_spec()}}});
    temp_file(job.to_string())
}

pub(super) async fn begin(
    cluster: &Cluster,
    name: &str,
    nodes: &[String],
    action: &NamedTempFile,
) -> Outcome {
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let action = action.path().to_str().unwrap();
    let flags = ["--name", name, "--job", action, "--min-ready", "1s", "--yes", "--in-cluster"];
    plugin(cluster, &[&["roll"], nodes.as_slice(), &flags, &["--runner-image", "nm:test"]].concat()).await
}

pub(super) fn jobs(cluster: &Cluster) -> Api<Job> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// Waits until the Job that runs a roll is complete.
pub(super) async fn until_complete(cluster: &Cluster, roll: &str) {
    let is_complete = |job: Option<&Job>| {
        let status = job.and_then(|job| job.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    };
    wait_until(&jobs(cluster), &format!("nm-roll-{roll}"), "the Job is complete", is_complete).await;
}

/// Waits until the record of a roll is like this.
pub(super) async fn until_record(cluster: &Cluster, node: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    wait_until(&cluster.maintenances(), node, what, |object| {
        let text = object.and_then(|object| object.annotations().get("kubectl-nm.dev/roll-state"));
        text.and_then(|text| serde_json::from_str(text).ok()).is_some_and(|record| is_so(&record))
    })
    .await;
}

/// A running pod of the Job of a node that is none of these. Before it runs, its end could be overwritten by its kubelet.
pub(super) async fn action_pod(cluster: &Cluster, earlier: &[&Pod]) -> Pod {
    let is_new = |pod: &Pod| {
        pod.labels().contains_key("kubectl-nm.dev/roll")
            && is_running(pod)
            && earlier.iter().all(|earlier| earlier.uid() != pod.uid())
    };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let what = "the Job of a node has a pod";
    let all = wait_until_all(&api, Config::default(), what, |pods| pods.iter().any(is_new)).await;
    all.into_iter().find(is_new).unwrap()
}

/// Lets the Job of a node succeed or fail. A pod that is deleted counts as failed, and the Job has no other attempt.
pub(super) async fn end_action(cluster: &Cluster, pod: &Pod, succeeds: bool) {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    if succeeds {
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        api.patch_status(&pod.name_any(), &PatchParams::default(), &ended).await.unwrap();
    } else {
        api.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
}

/// What `roll status` prints of a roll that is over. The Job that ran it last owns its history.
pub(super) async fn history(cluster: &Cluster, roll: &str) -> (String, Value) {
    let shown = plugin(cluster, &["roll", "status", roll]).await.ok().stdout;
    let document = plugin(cluster, &["roll", "status", roll, "-o", "json"]).await.ok().stdout;
    let name = format!("nm-roll-{roll}");
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let owners = config_maps.get(&name).await.unwrap().owner_references().to_vec();
    let job = jobs(cluster).get(&name).await.unwrap();
    assert_eq!(owners.iter().map(|owner| &owner.uid).collect::<Vec<_>>(), [&job.uid().unwrap()]);
    (shown, serde_json::from_str(&document).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_in_the_cluster_also_drains_the_node_of_its_own_pod() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let pods = RunnerPods::start(&cluster).await;
    let begun = begin(&cluster, "own", &nodes, &action(true)).await.ok();
    let expected = format!("Roll own starts in the cluster: Job {NAMESPACE}/nm-roll-own.\n");
    assert_eq!(begun.stdout, expected, "{begun:?}");
    let watched = plugin(&cluster, &["roll", "watch", "own", "-o", "json"]).await;
    until_complete(&cluster, "own").await;
    let lines: Vec<Value> = watched.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(watched.code, Some(0), "{watched:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["state"], &last["done"]), (&json!("done"), &json!(nodes.len())), "{lines:#?}");
    assert!(lines.iter().any(|line| line["step"] == "Draining"), "{lines:#?}");
    let done = lines.iter().filter(|line| line["step"] == "Done").count();
    assert_eq!(done, nodes.len(), "none seems to have left the roll: {lines:#?}");
    for node in &nodes {
        until_gone(&cluster, node).await;
    }
    let ran = pods.nodes();
    assert!(ran.len() > 1, "its pod was evicted, and another one has continued: {ran:?}");
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=own");
    let acted = jobs(&cluster).list(&of_roll).await.unwrap().items;
    let mut on: Vec<String> =
        acted.iter().map(|job| job.spec.clone().unwrap().template.spec.unwrap().node_name.unwrap()).collect();
    on.sort_unstable();
    assert_eq!(on, nodes, "each node was acted on once");

    let (shown, document) = history(&cluster, "own").await;
    let first = shown.lines().next().unwrap();
    let all = nodes.len();
    assert!(
        first.starts_with(&format!("roll own: {all} of {all} nodes done, started by "))
            && first.contains(", ended at ")
    );
    assert_eq!((&document["kind"], &document["state"]), (&json!("RollHistory"), &json!("done")));
    for node in &nodes {
        let is_done = |entry: &&Value| entry["node"] == *node && entry["outcome"] == "done";
        let entry = document["nodes"].as_array().unwrap().iter().find(is_done);
        assert!(entry.is_some_and(|entry| entry["began"].is_string()), "{document:#}");
    }
    if cluster.is_sandbox() {
        for flags in [&[][..], &["-f"]] {
            let log = plugin(&cluster, &[&["roll", "logs", "own"], flags].concat()).await.ok();
            assert_eq!(log.stdout.matches(&format!("Done ({all} of {all} nodes)")).count(), 1, "{log:?}");
            assert_eq!(log.stderr, "The log of an earlier pod was deleted with the pod.\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_roll_tells_who_aborted_it_and_outlives_the_job_that_its_resumption_replaces() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await[..2].to_vec();
    let _reconciler = Reconciler::start(&cluster);
    let _pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "again", &nodes, &action(false)).await.ok();
    let done = action_pod(&cluster, &[]).await;
    end_action(&cluster, &done, true).await;
    let failed = action_pod(&cluster, &[&done]).await;
    end_action(&cluster, &failed, false).await;
    let (done_node, failed_node) = (node_of(&done), node_of(&failed));
    until_record(&cluster, failed_node, "halted", |record| record["halt"].is_object()).await;
    let left = plugin(&cluster, &["roll", "abort", "again", "--yes"]).await.ok();
    assert!(left.stdout.contains("1 node stays in maintenance"), "{left:?}");
    // Nobody has to continue the roll.
    until_complete(&cluster, "again").await;
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let stored = config_maps.get("nm-roll-again").await.unwrap().data.unwrap();
    let roll: Value = serde_json::from_str(&stored["_roll"]).unwrap();
    assert_eq!(roll["state"], "aborted", "{stored:#?}");
    assert_eq!(stored.keys().collect::<Vec<_>>(), ["_roll", done_node]);

    let ended = jobs(&cluster).get("nm-roll-again").await.unwrap();
    let flags = ["--yes", "--runner-image", "nm:test"];
    let _ = plugin(&cluster, &[&["roll", "resume", "again"][..], &flags].concat()).await.ok();
    let again = action_pod(&cluster, &[&done, &failed]).await;
    end_action(&cluster, &again, true).await;
    until_complete(&cluster, "again").await;
    assert_ne!(jobs(&cluster).get("nm-roll-again").await.unwrap().uid(), ended.uid());
    until_gone(&cluster, failed_node).await;
    let (_, document) = history(&cluster, "again").await;
    assert_eq!(document["state"], "done", "{document:#}");
    let entries = document["nodes"].as_array().unwrap().iter();
    let ended: Vec<(&str, &str)> =
        entries.map(|entry| (entry["node"].as_str().unwrap(), entry["outcome"].as_str().unwrap())).collect();
    assert_eq!(ended, [(done_node, "done"), (failed_node, "done")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_roll_that_is_aborted_in_the_cluster_has_a_history() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await[..2].to_vec();
    let _reconciler = Reconciler::start(&cluster);
    let _pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "aborted", &nodes, &action(false)).await.ok();
    let _ = action_pod(&cluster, &[]).await;
    let _ = plugin(&cluster, &["roll", "abort", "aborted", "--return", "--yes"]).await.ok();
    until_complete(&cluster, "aborted").await;
    for node in &nodes {
        until_gone(&cluster, node).await;
    }
    let (shown, document) = history(&cluster, "aborted").await;
    assert!(shown.starts_with("roll aborted: 0 of 2 nodes done, started by "), "{shown}");
    assert_eq!((&document["state"], &document["by"]), (&json!("aborted"), &document["startedBy"]));
    let entries = document["nodes"].as_array().unwrap();
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry["outcome"] == "aborted"), "{document:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_aborted_in_the_cluster_finishes_the_node_whose_job_runs_and_says_so() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let _pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "finishes", &nodes, &action(false)).await.ok();
    let pod = action_pod(&cluster, &[]).await;
    let aborted = plugin(&cluster, &["roll", "abort", "finishes", "--yes"]).await.ok();
    let finishes = "roll finishes aborted: Job node-maintenance-rolls/nm-roll-finishes finishes 1 node, and returns it to service\n";
    assert!(aborted.stdout.ends_with(finishes) && !aborted.stderr.contains("kubectl nm stop"), "{aborted:?}");
    end_action(&cluster, &pod, true).await;
    until_complete(&cluster, "finishes").await;
    for node in &nodes {
        until_gone(&cluster, node).await;
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "{node}");
    }
    let (_, document) = history(&cluster, "finishes").await;
    assert_eq!(document["state"], "aborted", "{document:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_halts_in_the_cluster_waits_there_until_it_is_resumed() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, "halts", &nodes[..1], &action(false)).await.ok();
    let failed = action_pod(&cluster, &[]).await;
    end_action(&cluster, &failed, false).await;
    until_record(&cluster, &nodes[0], "halted", |record| record["halt"].is_object()).await;
    let before = pods.nodes();
    let status = plugin(&cluster, &["roll", "status", "halts"]).await.ok();
    assert!(status.stdout.contains("left, halted "), "{status:?}");
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let is_halt = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_ref());
        event.reason.as_deref() == Some("RollHalted") && regarding == Some(&nodes[0])
    };
    let what = "its account may create the event";
    wait_until_all(&events, Config::default(), what, |events| events.iter().any(is_halt)).await;

    let resumed =
        plugin(&cluster, &["roll", "resume", "halts", "--yes", "--runner-image", "nm:test"]).await.ok();
    let expected = format!("roll halts continues in the cluster: Job {NAMESPACE}/nm-roll-halts\n");
    assert_eq!(resumed.stdout, expected, "{resumed:?}");
    let again = action_pod(&cluster, &[&failed]).await;
    end_action(&cluster, &again, true).await;
    until_complete(&cluster, "halts").await;
    assert_eq!(pods.nodes(), before, "the program has waited");

    // The Job of the last roll of this name is replaced.
    let _ = begin(&cluster, "halts", &nodes[1..2], &action(true)).await.ok();
    until_gone(&cluster, &nodes[1]).await;
    until_complete(&cluster, "halts").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_somebody_has_changed_are_not_run_in_the_cluster() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    RunnerPods::prepare(&cluster).await;
    let _ = begin(&cluster, "changed", &nodes[..1], &action(true)).await.ok();
    change_annotation(&cluster, &nodes[0], "kubectl-nm.dev/roll-settings", |settings| {
        settings["action"]["job"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil");
    })
    .await;
    let status = plugin(&cluster, &["roll", "status", "changed"]).await.ok();
    let starting = "roll changed: 0 done, 1 left, Job node-maintenance-rolls/nm-roll-changed is starting";
    assert!(status.stdout.starts_with(starting) && status.stderr.is_empty(), "{status:?}");
    let mut pods = RunnerPods::run(&cluster).await;
    let _ = pods.until(2).await;
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=changed");
    assert_eq!(jobs(&cluster).list(&of_roll).await.unwrap().items.len(), 0);
    assert!(cluster.maintenances().get(&nodes[0]).await.unwrap().spec.suspend, "nothing has begun");
    abort(&cluster, "changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_cannot_run_is_refused_before_anything_begins() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    // Other tests may have set a real cluster up.
    if cluster.is_sandbox() {
        let refused = begin(&cluster, "early", &nodes, &action(true)).await;
        refused.expect(
            1,
            "",
            "error: this cluster is not set up to run rolls: namespace node-maintenance-rolls does not exist\n\
             hint: `kubectl nm install --grant roll` sets it up\n",
        );
    }
    cluster.grant("roll").await;
    let node = nodes[0].as_str();
    let run = plugin(&cluster, &["roll", node, "--run", "true", "--in-cluster", "--yes"]).await;
    run.expect(
        2,
        "",
        "error: --run runs a command on your computer, and --in-cluster runs the roll without it\n\
         hint: in the cluster, use --job FILE; `kubectl nm roll job-template` prints a Job to start from\n",
    );
    let logs = plugin(&cluster, &["roll", "logs", "early"]).await;
    assert_eq!((logs.code, logs.stdout.as_str()), (Some(1), ""));
    assert!(logs.stderr.starts_with("error: there is no Job node-maintenance-rolls/nm-roll-early, "));
    let elsewhere = temp_file(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ops"},
            "spec": {"template": {"spec": pod_spec()}}})
        .to_string(),
    );
    let refused = begin(&cluster, "elsewhere", &nodes, &elsewhere).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("in namespace node-maintenance-rolls, and the Job in the file is for namespace ops")
    );
    assert_eq!(cluster.maintenances().list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_of_rolls_can_write_only_maintenances_and_jobs_of_rolls() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    cluster.grant("roll").await;
    let rolls = nm_tests::cluster::client(&cluster.kubeconfig_of(&service_account()).await).await;
    let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
    let is_forbidden = |answer: kube::Result<()>| {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("may write only the maintenances and the Jobs of rolls"), "{error}");
    };
    let maintenances: Api<NodeMaintenance> = Api::all(rolls.clone());
    plan(&cluster, "theirs", &nodes[0]).await;
    // A policy takes effect some time after it was created.
    let enforced = async {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        while maintenances.patch("theirs", &dry, &patch).await.is_ok() {}
    };
    in_time("the policy takes effect", enforced).await;
    is_forbidden(maintenances.patch("theirs", &PatchParams::default(), &patch).await.map(drop));
    is_forbidden(maintenances.delete("theirs", &DeleteParams::default()).await.map(drop));
    let mut own = maintenance("own", &nodes[1]);
    is_forbidden(maintenances.create(&PostParams::default(), &own).await.map(drop));
    own.labels_mut().insert("kubectl-nm.dev/roll".into(), "r".into());
    maintenances.create(&PostParams::default(), &own).await.unwrap();
    maintenances.delete("own", &DeleteParams::default()).await.unwrap();

    let jobs: Api<Job> = Api::namespaced(rolls, NAMESPACE);
    let mut pod = pod_spec();
    pod["restartPolicy"] = json!("Never");
    let job = |labels: Value| {
        let job = json!({"metadata": {"name": "j", "labels": labels}, "spec": {"suspend": true,
            "template": {"spec": pod}}});
        serde_json::from_value::<Job>(job).unwrap()
    };
    is_forbidden(jobs.create(&PostParams::default(), &job(json!({}))).await.map(drop));
    jobs.create(&PostParams::default(), &job(json!({"kubectl-nm.dev/roll": "r"}))).await.unwrap();
    jobs.delete("j", &DeleteParams::background()).await.unwrap();
}
