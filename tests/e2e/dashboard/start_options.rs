//! The start dialog in a terminal: its options and its plan.

use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{CTRL_U, ENTER};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of, pinned_to};
use serde_json::{Value, json};

use crate::dashboard::setup::{confirm_plan, dashboard, quit};

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_is_shown_as_options_are_typed_and_the_maintenance_has_them() {
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "options").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let cache = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    workload.pod_on(&node, "cache", cache).await;
    // No other node may have it.
    let mut here = pinned_to(&node);
    here["tolerations"] = Value::Null;
    workload.deployment_of("here", 1, &here).await;
    workload.until_running("here", 1).await;
    let terminal = dashboard(&cluster, &[], (40, 120));
    terminal.until_live().await;
    terminal.press("n");
    terminal.press(&node);
    let screen = terminal.until_shown("never leaves: ").await;
    assert!(screen.contains("Plan: no nm-reconciler was found") && screen.contains("/cart"), "{screen}");
    assert!(screen.contains("1 pod loses its emptyDir data: "), "{screen}");
    assert!(screen.contains("no capacity for ") && screen.contains("/here"), "{screen}");
    terminal.press("\t\t");
    terminal.until_shown("--delete-after DURATION").await;
    terminal.press("--pod-selector app=nobody");
    let is_planned = |screen: &vt100::Screen| {
        let screen = screen.contents();
        screen.contains("Plan: no nm-reconciler")
            && !screen.contains("never leaves")
            && !screen.contains("emptyDir data: ")
    };
    terminal.until("a plan in which every pod stays", is_planned).await;
    terminal.press(CTRL_U);
    terminal.press("--tim\t10m --sus\t");
    let command = format!("kubectl nm start {node} --timeout 10m --suspend");
    terminal.until_shown(&command).await;
    assert!(cluster.maintenances().get_opt(&node).await.unwrap().is_none(), "a plan changes nothing");
    terminal.press(ENTER);
    terminal.until_shown(&format!("planned: {node}")).await;
    let spec = cluster.maintenances().get(&node).await.unwrap().spec;
    assert!(spec.suspend);
    assert_eq!(json!(spec.drain)["timeoutSeconds"], 600);
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_nodes_wait_to_be_resumed() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let [first, second] = &nodes[..2] else { panic!("two nodes") };
    let _reconciler = Reconciler::start(&cluster);
    let terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;
    terminal.press("n");
    terminal.press(&format!("{first} {second}"));
    terminal.until_shown("start 2 nodes").await;
    // From the nodes past the reason.
    terminal.press("\t\t--suspend");
    terminal.until_shown("only planned").await;
    terminal.press("\x1b[B2");
    terminal.until_shown("[Enter] start").await;
    terminal.press(ENTER);
    let (begins, waits) = (format!("{second} "), format!("{first} "));
    let row = |screen: &vt100::Screen, node: &str, state: &str| {
        screen.contents().lines().any(|line| line.contains(node) && line.contains(state))
    };
    terminal
        .until("both planned", |screen| row(screen, &begins, "Planned") && row(screen, &waits, "Planned"))
        .await;
    terminal.press(&format!("/{second}"));
    terminal.press(ENTER);
    terminal.until_shown("1 of 2 nodes").await;
    terminal.press("p");
    terminal.until_shown("resume 1 maintenance").await;
    confirm_plan(&terminal).await;
    wait_until(&cluster.maintenances(), second, "resumed", |found| found.is_some_and(|it| !it.spec.suspend))
        .await;
    terminal.until("it is drained", |screen| row(screen, &begins, "Drained")).await;
    quit(terminal).await;
}
