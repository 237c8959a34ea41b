//! Rolls that go well: their steps, order and actions, and what is refused before anything is changed.

use kube::api::{Api, ListParams};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_drained};
use nm_tests::nodes::configuration;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;

use super::running_roll::RunningRoll;

const STEPS: [&str; 8] =
    ["Draining", "Acting", "Rejoining", "Checking", "Returning", "Recovering", "Soaking", "Done"];

#[tokio::test(flavor = "multi_thread")]
async fn every_node_is_drained_acted_on_checked_and_returned() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "rolling").await;
    workload.deployment("web", 6).await;
    let before = workload.until_running("web", 6).await;
    let mut marks = Vec::new();
    for node in &nodes[..3] {
        marks.push(configuration(&cluster.node(node).await));
    }
    let _reconciler = Reconciler::start(&cluster);
    let flags = ["--run", "echo acting on {} as $NM_NODE of $NM_ROLL", "--soak", "1s", "--reason", "kernel"];
    let mut roll = RunningRoll::begin(&cluster, "kernel", &nodes[..3], &flags);
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    for (node, marks) in nodes[..3].iter().zip(&marks) {
        let steps: Vec<&str> = roll.steps(node).into_iter().filter(|step| *step != "Planned").collect();
        assert_eq!(steps, STEPS, "{node}");
        let expected = format!("acting on {node} as {node} of kernel");
        assert_eq!(roll.output(node), [expected.as_str()]);
        let log = roll.state.path().join(format!("kubectl-nm/roll/kernel/{node}.log"));
        assert_eq!(std::fs::read_to_string(log).unwrap(), expected + "\n");
        assert_eq!(configuration(&cluster.node(node).await), *marks, "{node} is as before");
    }
    assert_eq!((&roll.outlook()["outlook"], &roll.outlook()["done"]), (&json!("done"), &json!(3)));
    let left = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    assert!(!left.items.iter().any(|object| nodes[..3].contains(&object.spec.node_name)));
    let moved = before.iter().filter(|pod| nodes[..3].iter().any(|node| node == node_of(pod))).count();
    let pods = roll.outlook()["pods"].as_u64().unwrap();
    assert!(pods >= u64::try_from(moved).unwrap(), "{pods} of {moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_nodes_are_under_way_than_allowed_and_waves_follow_each_other() {
    let cluster = Cluster::start(5).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    for node in &nodes {
        // One zone, so that only the sizes make waves.
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}});
        cluster.patch_node(node, zone).await;
    }
    let flags = ["--run", "true", "--waves", "1,2"];
    let mut roll = RunningRoll::begin(&cluster, "waves", &nodes[..5], &flags);
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    let (mut under_way, mut waves, mut most) = (Vec::new(), Vec::new(), [0; 3]);
    for line in roll.lines.iter().filter(|line| line["type"] == "node") {
        let (node, wave) = (line["node"].as_str().unwrap(), line["wave"].as_u64().unwrap());
        match line["step"].as_str().unwrap() {
            "Draining" if !under_way.contains(&node) => {
                under_way.push(node);
                waves.push(wave);
            }
            "Done" => under_way.retain(|one| *one != node),
            _ => {}
        }
        let at = usize::try_from(wave).unwrap() - 1;
        most[at] = most[at].max(under_way.len());
    }
    assert_eq!(waves, [1, 2, 2, 3, 3]);
    assert!(most[0] == 1 && most[1] <= 2 && most[2] <= 2, "{most:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_waves_and_changes_nothing() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let shown = plugin(&cluster, &["roll", &nodes[0], &nodes[1], "--run", "true", "--dry-run"]).await.ok();
    let rows: Vec<Vec<&str>> = shown.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["WAVE", "NODE", "ZONE", "PODS", "BLOCKED"], "{shown:?}");
    for node in &nodes[..2] {
        assert!(rows.iter().any(|row| row.get(1) == Some(&node.as_str())), "{shown:?}");
    }
    let created = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    assert!(!created.items.iter().any(|object| nodes[..2].contains(&object.spec.node_name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_cannot_begin_changes_nothing() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (busy, free) = (nodes[0].as_str(), nodes[1].as_str());
    start(&cluster, busy, busy).await;
    until_drained(&cluster, busy).await;
    let run = async |args: &[&str]| plugin(&cluster, &[&["roll"], args].concat()).await;
    for (args, code, error) in [
        (vec![busy, free, "--run", "true", "-y"], 1, format!("error: 1 node is in maintenance: {busy}")),
        (vec![free, "no-such-node", "--run", "true", "-y"], 1, "nodes \"no-such-node\" not found".into()),
        (vec![free], 2, "--run <COMMAND>".into()),
        (vec![free, "--run", "true"], 2, "needs confirmation".into()),
        (vec![free, "--confirm", "-y"], 2, "need a terminal".into()),
        (vec![free, "--run", "true", "--window", "Sat 22:00-04:00"], 2, "time zone".into()),
        (vec![free, "--run", "true", "--waves", "0"], 2, "--waves".into()),
        (vec![free, "--run", "true", "--job", "f"], 2, "cannot be used with".into()),
        (vec![free, "--job", "/no/such/file", "-y"], 1, "cannot use the Job in /no/such/file".into()),
        (vec![free, "--run", "true", "--name", "Not A Name"], 2, "lower-case letters".into()),
    ] {
        let refused = run(&args).await;
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(&error), "{args:?}: {refused:?}");
    }
    let all = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    assert!(!all.items.iter().any(|object| object.spec.node_name == free));

    // A node of another roll: the error names that one.
    let mut other = RunningRoll::begin(&cluster, "other", &nodes[1..2], &["--run", "sleep 600"]);
    other.until_step(free, "Acting").await;
    let refused = run(&[free, "--run", "true", "-y"]).await;
    assert!(refused.stderr.contains("is part of roll \"other\""), "{refused:?}");
    other.signal("INT");
    assert_eq!(other.end().await, Some(130));
    let _ = run(&["abort", "other", "--return", "-y"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_waits_until_somebody_confirms_on_the_terminal() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let args = ["roll", &nodes[0], "--name", "asks", "--confirm", "--min-ready", "1s", "-y", "-o", "lines"];
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
    terminal.until_shown(&format!("node/{} is drained. Continue with it? [y/N]", nodes[0])).await;
    terminal.press("y\n");
    terminal.until_shown("Roll asks is done: 1 node").await;
    assert_eq!(terminal.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_disappears_leaves_the_roll() {
    let Some(cluster) = Cluster::sandbox_or_skip(3, "it deletes a node").await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "vanishing").await;
    workload.pod_on(&nodes[0], "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut roll =
        RunningRoll::begin(&cluster, "vanish", &nodes[..2], &["--run", "true", "--max-unavailable", "2"]);
    roll.until("blocked", |line| {
        line["node"] == nodes[0].as_str()
            && line["detail"].as_str().is_some_and(|why| why.starts_with("blocked"))
    })
    .await;
    let all: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    all.delete(&nodes[0], &kube::api::DeleteParams::default()).await.unwrap();
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(
        (roll.steps(&nodes[0]).last(), roll.steps(&nodes[1]).last()),
        (Some(&"Removed"), Some(&"Done"))
    );
    wait_until(&cluster.maintenances(), &nodes[0], "gone", |object| object.is_none()).await;
}
