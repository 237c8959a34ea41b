//! All nodes of the cluster in the dashboard, in a terminal.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::nodes::until_cordoned;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::until_requests;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{ENTER, ESCAPE};
use nm_tests::wait::wait_until;
use nm_tests::workload::pods_on;
use serde_json::{Value, json};

use crate::dashboard::setup::{confirm_plan, quit};

/// The row of a node on the screen.
fn row(screen: &vt100::Screen, node: &str) -> String {
    let shown = screen.contents();
    let is_row = |line: &&str| line.trim_start_matches(['▶', '*', ' ']).starts_with(node);
    shown.lines().find(is_row).unwrap_or_default().to_owned()
}

async fn until_row(terminal: &Terminal, node: &str, words: &[&str]) {
    let what = format!("{node}: {words:?}");
    terminal.until(&what, |screen| words.iter().all(|word| row(screen, node).contains(word))).await;
}

async fn patch_as(cluster: &Cluster, manager: &str, node: &str, spec: Value) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    nodes.patch(node, &params, &Patch::Merge(json!({"spec": spec}))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_are_shown_with_who_cordoned_them_and_maintenances_start_from_there() {
    let cluster = Cluster::start(6).await;
    let nodes = cluster.nodes().await;
    let [ours, person, program, controller] = &nodes[..4] else { panic!("four of six nodes") };
    let _reconciler = Reconciler::start(&cluster);
    let terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch", "--all"], &[]);
    terminal.until_live().await;
    for node in &nodes[..4] {
        until_row(&terminal, node, &[" Ready"]).await;
    }
    patch_as(&cluster, "kubectl", person, json!({"unschedulable": true})).await;
    until_row(&terminal, person, &["a person"]).await;
    patch_as(&cluster, "kured", program, json!({"unschedulable": true})).await;
    until_row(&terminal, program, &["kured"]).await;
    let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    patch_as(&cluster, "cluster-autoscaler", controller, json!({"taints": taint})).await;
    until_row(&terminal, controller, &["ToBeDeletedByC"]).await;

    terminal.press("g  ");
    terminal.until_shown("2 marked").await;
    terminal.press("n");
    terminal.until_shown("start 2 nodes").await;
    terminal.press(ESCAPE);
    terminal.until("no dialog", |screen| !screen.contents().contains("start 2 nodes")).await;
    terminal.press(ESCAPE);
    terminal.until("no marked node", |screen| !screen.contents().contains(" marked")).await;

    terminal.press("/");
    terminal.press(ours);
    terminal.until_shown("filter: ").await;
    terminal.press(ENTER);
    terminal.until_shown("1 of ").await;
    terminal.press("n");
    terminal.until_shown("start 1 node").await;
    confirm_plan(&terminal).await;
    until_cordoned(&cluster, ours).await;
    until_row(&terminal, ours, &["maintenance"]).await;

    terminal.press("\t");
    terminal.until("the maintenances", |screen| screen.contents().contains("PROGRESS")).await;
    terminal.press("\t");
    until_row(&terminal, ours, &["maintenance"]).await;
    terminal.press(ENTER);
    terminal.until_shown("Cordoned: yes").await;
    terminal.press(ESCAPE);
    terminal.until_shown("CORDONED BY").await;
    terminal.press("x");
    terminal.until_shown("stop 1 maintenance").await;
    terminal.press(ENTER);
    wait_until(&cluster.maintenances(), ours, "gone", |found| found.is_none()).await;
    quit(terminal).await;
    for (manager, node) in [("kubectl", person), ("kured", program)] {
        patch_as(&cluster, manager, node, json!({"unschedulable": null})).await;
    }
    patch_as(&cluster, "cluster-autoscaler", controller, json!({"taints": null})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_nodes_are_watched_once_they_are_shown_and_only_pods_on_the_screen_are_counted() {
    let cluster = Cluster::of_sandbox(40, 400, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.add_user("viewer", &["system:masters"])).unwrap();
    let requested = |verb: &str, resource: &str| {
        let requests = sandbox.requests().all().into_iter();
        let ours = requests.filter(|entry| entry.user == "viewer" && entry.verb == verb);
        ours.filter(|entry| entry.resource == resource).collect::<Vec<_>>()
    };
    let terminal = Terminal::run_plugin(&kubeconfig, &["watch"], &[]);
    terminal.until_live().await;
    let of_nodes =
        |entry: &Entry| entry.user == "viewer" && entry.verb == "watch" && entry.resource == "nodes";
    until_requests(sandbox, 1, "a watch on nodes", of_nodes).await;
    // Only those in maintenance, by their label.
    let is_whole = |entry: &Entry| !entry.metadata_only && entry.label_selector.is_empty();
    assert!(!requested("list", "nodes").iter().any(is_whole));
    assert!(requested("list", "pods").is_empty());

    terminal.press("\t");
    let first = &cluster.nodes().await[0];
    let count = pods_on(&cluster.client, first).await.len();
    until_row(&terminal, first, &[" Ready ", &format!(" {count} ")]).await;
    let shown = terminal.screen();
    assert!(requested("list", "nodes").iter().any(is_whole));
    let on_screen = shown.lines().filter(|line| line.contains(" Ready ")).count();
    let lists = requested("list", "pods");
    assert!(lists.len() <= on_screen, "{} lists for {on_screen} rows", lists.len());
    assert!(lists.iter().all(|entry| entry.field_selector.starts_with("spec.nodeName=node-")), "{lists:?}");
    assert!(requested("watch", "pods").is_empty());
    quit(terminal).await;
}
