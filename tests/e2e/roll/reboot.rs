//! Rolls whose nodes reboot: `nm-sandbox reboot` is the action.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use tempfile::TempDir;

use super::running_roll::RunningRoll;

const WHY: &str = "only the nodes of a sandbox reboot on demand";

/// The action: a reboot with these flags.
fn reboot(flags: &str) -> String {
    format!("{} reboot {{}} {flags}", program("nm-sandbox").display())
}

fn boot_id(node: &Node) -> String {
    node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id.clone()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().unwrap().conditions.as_deref().unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// How often the containers of the `DaemonSet` pod on a node were restarted.
async fn agent_restarts(cluster: &Cluster, node: &str) -> i32 {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    let pods = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await.unwrap();
    let agent = pods.iter().find(|pod| pod.name_any().starts_with("node-agent-")).unwrap();
    let containers = agent.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    containers.iter().map(|container| container.restart_count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_returns_to_service_when_it_has_rebooted_and_is_ready() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, WHY).await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "rebooting").await;
    workload.deployment("web", 4).await;
    workload.until_running("web", 4).await;
    let _reconciler = Reconciler::start(&cluster);
    // A short reboot ends before the node is not Ready for anybody else.
    for (node, downtime) in nodes.iter().zip(["3s", "500ms"]) {
        let before = boot_id(&cluster.node(node).await);
        let command = reboot(&format!("--downtime {downtime}"));
        let flags = ["--run", command.as_str(), "--expect-reboot"];
        let mut roll = RunningRoll::begin(&cluster, node, std::slice::from_ref(node), &flags);
        roll.until_step(node, "Checking").await;
        let rebooted = cluster.node(node).await;
        assert!(boot_id(&rebooted) != before && is_ready(&rebooted), "{rebooted:#?}");
        assert_eq!(rebooted.spec.unwrap().unschedulable, Some(true), "it is still in maintenance");
        assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
        assert_eq!(roll.output(node), [format!("node/{node} is rebooting")]);
        assert_eq!(agent_restarts(&cluster, node).await, 1);
    }
    assert_eq!(agent_restarts(&cluster, &nodes[2]).await, 0);
}

/// A command that reboots a node with the flags in a file, and that file, which says for now that the node never returns.
fn lasting_reboot(folder: &TempDir) -> (String, PathBuf) {
    let flags_file = folder.path().join("flags");
    std::fs::write(&flags_file, "--never").unwrap();
    (reboot(&format!("$(cat {})", flags_file.display())), flags_file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_returns_halts_the_roll_which_goes_on_when_the_node_is_back() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, WHY).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = TempDir::new().unwrap();
    let (command, flags_file) = lasting_reboot(&folder);
    let flags = ["--run", command.as_str(), "--expect-reboot", "--return-timeout", "4s"];
    let mut roll = RunningRoll::begin(&cluster, "lost", &nodes[..2], &flags);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap().to_owned();
    let lost = nodes[..2].iter().find(|node| message.contains(node.as_str())).unwrap();
    assert!(message.starts_with(&format!("node {lost} is not back after 4s: ")), "{message}");
    assert!(!is_ready(&cluster.node(lost).await));

    // Somebody turns the node on.
    cluster.sandbox().unwrap().faults().revive_node(lost).unwrap();
    std::fs::write(&flags_file, "--downtime 500ms").unwrap();
    let mut resumed = RunningRoll::resume(&cluster, "lost", &["--run", &command]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert!(resumed.output(lost).is_empty(), "it is not rebooted again");
    assert_eq!(resumed.summary()["done"], 2);
    for node in &nodes[..2] {
        let node = cluster.node(node).await;
        assert!(is_ready(&node) && node.spec.unwrap().unschedulable.is_none());
    }
}
