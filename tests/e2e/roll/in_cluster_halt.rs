//! Rolls in the cluster that have halted, whose nodes somebody stops: they stay halted until somebody resumes them.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::until_gone;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::runner_pods::RunnerPods;
use nm_tests::wait::wait_until;
use serde_json::{Value, json};

use super::in_cluster::{action, action_pod, begin, end_action, history, jobs, until_complete, until_record};

const STATE: &str = "kubectl-nm.dev/roll-state";

fn has_halt(record: &Value) -> bool {
    record["halt"].is_object()
}

/// A roll of two nodes in the cluster that has halted, and these nodes: the second one's maintenance has its state.
async fn halted(roll: &str) -> (Cluster, [String; 2], Reconciler, RunnerPods) {
    let cluster = Cluster::start(3).await;
    let nodes: [String; 2] = cluster.nodes().await[..2].to_vec().try_into().unwrap();
    let reconciler = Reconciler::start(&cluster);
    let pods = RunnerPods::start(&cluster).await;
    let _ = begin(&cluster, roll, &nodes, &action(false)).await.ok();
    let failed = action_pod(&cluster, &[]).await;
    end_action(&cluster, &failed, false).await;
    until_record(&cluster, &nodes[1], "halted", has_halt).await;
    (cluster, nodes, reconciler, pods)
}

/// A roll of two nodes that halts, whose state is deleted with the maintenance that has it: by `kubectl nm stop`, or by somebody
/// who deletes the object.
async fn stays_halted(is_stopped: bool) {
    let (cluster, [rest, anchor], _reconciler, _pods) = halted("held").await;
    let (rest, anchor) = (rest.as_str(), anchor.as_str());
    if is_stopped {
        let stopped = plugin(&cluster, &["stop", anchor]).await.ok();
        assert!(stopped.stderr.contains("leaves roll held before the node is done"), "{stopped:?}");
    } else {
        cluster.maintenances().delete(anchor, &DeleteParams::default()).await.unwrap();
    }
    until_gone(&cluster, anchor).await;
    until_record(&cluster, rest, "still halted", has_halt).await;
    let status = plugin(&cluster, &["roll", "status", "held"]).await.ok();
    assert!(status.stdout.contains("left, halted "), "{status:?}");

    let flags = ["--skip", rest, "--yes", "--runner-image", "nm:test"];
    let _ = plugin(&cluster, &[&["roll", "resume", "held"][..], &flags].concat()).await.ok();
    until_complete(&cluster, "held").await;
    until_gone(&cluster, rest).await;
    let of_roll = ListParams::default().labels("kubectl-nm.dev/roll=held");
    let begun = jobs(&cluster).list(&of_roll).await.unwrap().items;
    assert!(begun.len() <= 1, "nothing begins without a resume: {begun:#?}");
    let (shown, document) = history(&cluster, "held").await;
    assert_eq!(document["state"], "done", "{shown}");
    let outcome = |node: &str| {
        let nodes = document["nodes"].as_array().unwrap();
        nodes.iter().find(|entry| entry["node"] == *node).map(|entry| entry["outcome"].clone())
    };
    assert_eq!(outcome(anchor), Some(json!("maintenanceDeleted")), "{shown}");
    assert_eq!(outcome(rest), Some(json!("skipped")), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_roll_stays_halted_if_the_node_whose_maintenance_has_its_state_is_stopped() {
    stays_halted(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_roll_stays_halted_if_somebody_deletes_the_maintenance_with_its_state() {
    stays_halted(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_know_whether_its_roll_has_halted_waits_for_a_resume() {
    let (cluster, nodes, _reconciler, pods) = halted("unknown").await;
    // Neither its memory nor its record outlives this.
    pods.crash();
    drop(pods);
    let object = cluster.maintenances().get(&nodes[0]).await.unwrap();
    assert!(!object.annotations().contains_key(STATE) || object.annotations()[STATE].is_empty());
    cluster.maintenances().delete(&nodes[1], &DeleteParams::default()).await.unwrap();
    until_gone(&cluster, &nodes[1]).await;
    let _pods = RunnerPods::run(&cluster).await;
    wait_until(&cluster.maintenances(), &nodes[0], "halted", |object| {
        object.is_some_and(|object| {
            object.annotations().get(STATE).is_some_and(|state| state.contains("was deleted together with"))
        })
    })
    .await;
}
