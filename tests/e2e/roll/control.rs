//! `kubectl nm roll status`, `pause` and `abort`.

use nm_shared::Suspension;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{until_gone, until_suspension};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, guard, guarded_pods};

/// A roll whose first node is blocked by a budget for each node.
async fn blocked(cluster: &Cluster, name: &str, nodes: &[String]) -> (Workload, RunningRoll, String) {
    let workload = guarded_pods(cluster, name, nodes).await;
    let mut roll = RunningRoll::begin(cluster, name, nodes, &["--run", "true"]);
    let is_blocked = |line: &Value| line["detail"].as_str().is_some_and(|why| why.starts_with("blocked"));
    let node = roll.until("blocked", is_blocked).await["node"].as_str().unwrap().to_owned();
    (workload, roll, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_roll_evicts_nothing_and_begins_no_node_until_it_is_resumed() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, node) = blocked(&cluster, "pausable", &nodes[..2]).await;
    plugin(&cluster, &["roll", "pause", "pausable"]).await.expect(0, "roll pausable paused\n", "");
    until_suspension(&cluster, &node, Some(Suspension::Paused)).await;
    let status = plugin(&cluster, &["roll", "status", "pausable"]).await.ok();
    assert!(status.stdout.starts_with("roll pausable: 0 done, 2 left, paused\n"), "{status:?}");
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    // The program that runs it goes on.
    let resumed = plugin(&cluster, &["roll", "resume", "pausable"]).await.ok();
    assert!(resumed.stdout.ends_with(" continues roll pausable\n"), "{resumed:?}");
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.outlook()["done"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_roll_deletes_what_is_planned_and_returns_what_is_under_way() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (_workload, mut roll, node) = blocked(&cluster, "abortable", &nodes[..3]).await;
    let unconfirmed = plugin(&cluster, &["roll", "abort", "abortable"]).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    let aborted = plugin(&cluster, &["roll", "abort", "abortable", "--yes"]).await.ok();
    assert!(aborted.stdout.contains(&format!("node/{node} maintenance stopped\n")), "{aborted:?}");
    assert_eq!(aborted.stdout.matches("planned maintenance deleted").count(), 2, "{aborted:?}");
    assert_eq!(roll.end().await, Some(0), "nothing is left to do: {:#?}", roll.lines);
    for node in &nodes[..3] {
        until_gone(&cluster, node).await;
        assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "{node}");
    }
    let gone = plugin(&cluster, &["roll", "status", "abortable"]).await;
    assert!(gone.code == Some(1) && gone.stderr.contains("there is no roll \"abortable\""), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_somebody_has_broken_is_reported_with_its_object() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let object: nm_shared::NodeMaintenance = serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": nodes[0], "labels": {"kubectl-nm.dev/roll": "forged"},
            "annotations": {"kubectl-nm.dev/roll-node": "{"}},
        "spec": {"nodeName": nodes[0], "suspend": true},
    }))
    .unwrap();
    cluster.maintenances().create(&kube::api::PostParams::default(), &object).await.unwrap();
    for args in [vec!["status", "forged"], vec!["resume", "forged"], vec!["abort", "forged", "-y"]] {
        let failed = plugin(&cluster, &[&["roll"], args.as_slice()].concat()).await;
        assert_eq!(failed.code, Some(1), "{failed:?}");
        let object = format!("of the NodeMaintenance \"{}\" is not valid", nodes[0]);
        assert!(failed.stderr.contains(&object) && failed.stderr.contains("kubectl delete nm"), "{failed:?}");
    }
}
