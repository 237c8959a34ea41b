//! `kubectl nm pause`, `resume` and `start --suspend`: their output, exit codes and refusals.

use nm_shared::{NodeMaintenanceStatus, Phase, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_drained, until_phase, until_status, until_suspension};
use nm_tests::older_groups::{OLDER, install, start_in_group, stop_in_group};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_paused_and_resumed_and_every_command_shows_it() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (node, idle) = (nodes[0].as_str(), nodes[1].as_str());
    let run = async |args: &[&str]| plugin(&cluster, args).await;
    let workload = Workload::new(&cluster, "pausing").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, node, node).await;
    let blocked = |status: &NodeMaintenanceStatus| !status.blocked_pods.is_empty();
    until_status(&cluster, node, "blocked", blocked).await;

    run(&["pause", node]).await.expect(0, &format!("node/{node} maintenance paused\n"), "");
    run(&["pause", node]).await.expect(0, &format!("node/{node} maintenance is already suspended\n"), "");
    until_suspension(&cluster, node, Some(Suspension::Paused)).await;
    let status = run(&["status"]).await.ok();
    assert!(status.stdout.contains("Paused"), "{status:?}");
    let why = run(&["explain", node]).await.ok();
    assert!(
        why.stdout.contains("is paused") && why.stdout.contains(&format!("kubectl nm resume {node}")),
        "{why:?}"
    );
    let plan = run(&["plan", node]).await;
    assert!(plan.stdout.contains("already in maintenance: Paused"), "{plan:?}");
    let waited = run(&["watch", node, "--until", "drained", "--timeout", "1s"]).await;
    assert_eq!(waited.code, Some(124), "a paused maintenance does not reach the goal: {waited:?}");
    assert!(waited.stdout.contains("Paused 0%"), "{waited:?}");
    let lines = run(&["watch", node, "-o", "json", "--until", "drained", "--timeout", "1s"]).await;
    let first: Value = serde_json::from_str(lines.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first["maintenances"][0]["state"], "paused", "{first}");

    let refused = run(&["pause", idle]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.starts_with(&format!("error: node \"{idle}\" is not in maintenance\nhint: ")),
        "{refused:?}"
    );

    workload.delete_budget("guarded").await;
    run(&["resume", node]).await.expect(0, &format!("node/{node} maintenance resumed\n"), "");
    until_drained(&cluster, node).await;
    run(&["resume", node]).await.expect(0, &format!("node/{node} maintenance is not suspended\n"), "");
    let _ = run(&["stop", node, "--wait"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_is_planned_and_begins_when_it_is_resumed() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let run = async |args: &[&str]| plugin(&cluster, args).await;
    let _reconciler = Reconciler::start(&cluster);
    let dry = run(&["start", a, "--suspend", "--dry-run", "client"]).await;
    dry.expect(0, &format!("node/{a} maintenance planned (dry run)\n"), "");
    let planned = run(&["start", a, b, "--suspend", "--yes"]).await;
    planned.expect(0, &format!("node/{a} maintenance planned\nnode/{b} maintenance planned\n"), "");
    run(&["start", a, "--suspend"]).await.expect(0, &format!("node/{a} is already in maintenance\n"), "");
    for name in [a, b] {
        until_suspension(&cluster, name, Some(Suspension::Planned)).await;
    }
    let status = run(&["status", a]).await.ok();
    assert!(status.stdout.contains("Planned"), "{status:?}");
    let doctor = run(&["doctor", "-o", "json"]).await;
    assert!(!doctor.stdout.contains("tainted for a planned maintenance"), "{doctor:?}");
    let started = run(&["start", a]).await;
    started.expect(
        1,
        "",
        &format!(
            "error: node \"{a}\" is already in maintenance, but it is suspended\n\
             hint: `kubectl nm resume {a}` changes it\n"
        ),
    );
    let all = run(&["resume", "--all", "--yes"]).await;
    let starts = format!("node/{a} planned maintenance starts\nnode/{b} planned maintenance starts\n");
    all.expect(0, &starts, "no schedulable node is left in the cluster\n");
    for name in [a, b] {
        until_drained(&cluster, name).await;
    }
    let _ = run(&["stop", "--all", "--yes", "--wait"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_or_paused_where_the_definition_has_no_such_field() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "it changes the definition").await else { return };
    let nodes = cluster.nodes().await;
    cluster.remove_field(&["spec", "suspend"]).await;
    let _reconciler = Reconciler::start(&cluster);
    let said = "error: the CRD of NodeMaintenance in this cluster has no spec.suspend";
    let refused = plugin(&cluster, &["start", &nodes[0], "--suspend"]).await;
    assert!(refused.code == Some(1) && refused.stderr.starts_with(said), "{refused:?}");
    assert!(cluster.maintenances().get_opt(&nodes[0]).await.unwrap().is_none(), "no drain has begun");
    start(&cluster, &nodes[1], &nodes[1]).await;
    until_phase(&cluster, &nodes[1], Phase::Succeeded).await;
    let refused = plugin(&cluster, &["pause", &nodes[1]]).await;
    assert!(refused.code == Some(1) && refused.stderr.starts_with(said), "{refused:?}");
    assert!(refused.stderr.contains("`kubectl nm install`"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenances_of_older_groups_are_named_and_not_paused() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let group = OLDER[0];
    install(&cluster.client, group).await;
    start_in_group(&cluster.client, group, "older", node).await;
    let refused = plugin(&cluster, &["pause", node]).await;
    assert_eq!(refused.code, Some(1));
    let said = format!("node \"{node}\" is in maintenance by {}, an older API group", group.definition());
    assert!(refused.stderr.contains(&said), "{refused:?}");
    let _reconciler = Reconciler::start(&cluster);
    stop_in_group(&cluster.client, group, "older").await;
}
