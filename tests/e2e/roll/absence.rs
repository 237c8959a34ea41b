//! Rolls whose nodes disappear: their `Node` objects are deleted, or their maintenances are.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use serde_json::json;
use tempfile::TempDir;

use super::running_roll::{RunningRoll, make_pipe, other, pool};

const WHY: &str = "it deletes nodes";

/// Whether a node has the cordon of a maintenance.
fn is_cordoned(node: &Node) -> bool {
    let spec = node.spec.as_ref().unwrap();
    let taints = spec.taints.iter().flatten();
    spec.unschedulable == Some(true) && taints.into_iter().any(|taint| taint.key == "medik8s.io/drain")
}

fn nodes(cluster: &Cluster) -> Api<Node> {
    Api::all(cluster.client.clone())
}

/// Deletes the object of a node, as a cloud controller does it, and returns what its kubelet registers again.
async fn delete(cluster: &Cluster, name: &str) -> Node {
    let node = cluster.node(name).await;
    nodes(cluster).delete(name, &DeleteParams::default()).await.unwrap();
    let mut again = Node { status: node.status, ..Node::default() };
    again.metadata.name = node.metadata.name;
    again.metadata.labels = node.metadata.labels;
    again.metadata.labels.get_or_insert_default().remove("remediation.medik8s.io/exclude-from-remediation");
    again
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_object_is_deleted_during_its_action_returns_to_the_roll_with_its_cordon() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, WHY).await else { return };
    let names = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("reboot");
    make_pipe(&pipe);
    let command = format!("echo begun; [ {{}} != {} ] || read end < {}", names[0], pipe.display());
    let mut roll = RunningRoll::begin(&cluster, "cloud", &names[..2], &["--run", &command]);
    roll.until("the command", |line| line["text"] == "begun").await;
    let registered = delete(&cluster, &names[0]).await;
    wait_until(&cluster.maintenances(), &names[0], "gone with its node", |object| object.is_none()).await;
    assert_eq!(roll.steps(&names[1]), Vec::<&str>::new(), "the next node does not begin");
    nodes(&cluster).create(&PostParams::default(), &registered).await.unwrap();
    let is_back = |node: Option<&Node>| node.is_some_and(is_cordoned);
    wait_until(&nodes(&cluster), &names[0], "cordoned again", is_back).await;
    // The command was not interrupted.
    std::fs::write(&pipe, "rebooted\n").unwrap();
    roll.is_done(2).await;
    assert_eq!(roll.output(&names[0]), ["begun"], "it ran once");
    assert!(!is_cordoned(&cluster.node(&names[0]).await));
    assert_eq!(roll.steps(&names[0]).last(), Some(&"Done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_return_halts_the_roll_and_can_be_skipped() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, WHY).await else { return };
    let names = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let command = "echo begun; sleep 1";
    let mut roll =
        RunningRoll::begin(&cluster, "lost", &names[..2], &["--run", command, "--return-timeout", "2s"]);
    roll.until("the command", |line| line["text"] == "begun").await;
    delete(&cluster, &names[0]).await;
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap().to_owned();
    assert_eq!(message, format!("node {} is not back after 2s: it does not exist", names[0]));
    let status = plugin(&cluster, &["roll", "status", "lost"]).await.ok();
    assert!(status.stdout.contains(&names[0]) && status.stdout.contains("Rejoining"), "{status:?}");
    let mut resumed = RunningRoll::resume(&cluster, "lost", &["--run", command, "--skip", &names[0]]);
    assert_eq!(resumed.end().await, Some(3), "{:#?}", resumed.lines);
    assert_eq!((&resumed.summary()["done"], &resumed.summary()["skipped"]), (&json!(1), &json!([names[0]])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_leaves_the_roll_which_names_it_and_exits_with_3() {
    let (cluster, mut names, _reconciler) = pool(2).await;
    names.truncate(2);
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("work");
    make_pipe(&pipe);
    let command = format!("read end < {}", pipe.display());
    let mut roll = RunningRoll::begin(&cluster, "partial", &names, &["--run", &command]);
    let is_acting = |line: &serde_json::Value| line["step"] == "Acting";
    let first = roll.until("an action", is_acting).await["node"].as_str().unwrap().to_owned();
    let stopped = plugin(&cluster, &["stop", other(&names, &first)]).await.ok();
    let warning = format!("node/{} leaves roll partial before the node is done", other(&names, &first));
    assert!(stopped.stderr.contains(&warning), "{stopped:?}");
    std::fs::write(&pipe, "done\n").unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let left = json!([{"node": other(&names, &first), "why": "maintenanceDeleted"}]);
    assert_eq!((&roll.summary()["done"], &roll.summary()["left"]), (&json!(1), &left));
}
