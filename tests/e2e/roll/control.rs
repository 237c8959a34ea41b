//! `kubectl nm roll status`, `pause` and `abort`, and what a roll does while the API server does not answer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use kube_sandbox::faults::{Action, Moment, Rule, Target, When};
use nm_shared::{BlockReason, NodeMaintenance, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_blocked, until_drained, until_gone, until_suspension};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::wait::wait_until;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, abort, blocked, guard, guarded_pods};

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_roll_evicts_nothing_and_begins_no_node_until_it_is_resumed() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, node) = blocked(&cluster, "pausable", &nodes[..2], &[]).await;
    plugin(&cluster, &["roll", "pause", "pausable"]).await.expect(0, "roll pausable paused\n", "");
    until_suspension(&cluster, &node, Some(Suspension::Paused)).await;
    let status = plugin(&cluster, &["roll", "status", "pausable"]).await.ok();
    assert!(status.stdout.starts_with("roll pausable: 0 done, 2 left, paused by "), "{status:?}");
    assert!(status.stderr.contains("`kubectl nm roll resume pausable` continues it"), "{status:?}");
    let explained = plugin(&cluster, &["explain", &node]).await;
    assert!(explained.stdout.contains(" paused roll pausable at "), "{explained:?}");
    let witness = &nodes[2];
    workload.pod_on(witness, &guard(witness), json!({})).await;
    workload.budget(&guard(witness), 1).await;
    start(&cluster, witness, witness).await;
    until_blocked(&cluster, witness, BlockReason::DisruptionBudget).await;
    for node in &nodes[..3] {
        workload.delete_budget(&guard(node)).await;
    }
    // When a node that is not part of the roll is drained, the others could be, too.
    until_drained(&cluster, witness).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), workload.namespace());
    for node in &nodes[..2] {
        let pod = pods.get(&guard(node)).await.unwrap();
        assert_eq!(pod.metadata.deletion_timestamp, None, "{node}: nothing was evicted");
    }
    let status = plugin(&cluster, &["roll", "status", "pausable", "-o", "json"]).await.ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let steps: Vec<&Value> = status["nodes"].as_array().unwrap().iter().map(|node| &node["step"]).collect();
    assert_eq!(steps, ["Draining", "Planned"], "{status:#}");
    nm_tests::maintenance::stop(&cluster, witness).await;
    // The program that runs it goes on.
    let resumed = plugin(&cluster, &["roll", "resume", "pausable"]).await.ok();
    assert!(resumed.stdout.ends_with(" continues roll pausable\n"), "{resumed:?}");
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["done"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_skipped_also_while_the_program_of_a_paused_roll_waits() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, node) = blocked(&cluster, "skippable", &nodes[..2], &[]).await;
    let _ = plugin(&cluster, &["roll", "pause", "skippable"]).await.ok();
    let other = nodes[..2].iter().find(|other| **other != node).unwrap();
    workload.delete_budget(&guard(other)).await;
    let resumed = plugin(&cluster, &["roll", "resume", "skippable", "--skip", &node]).await.ok();
    assert!(resumed.stderr.contains(&format!("node/{node} is skipped")), "{resumed:?}");
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    assert_eq!((roll.summary()["done"].as_u64(), roll.steps(&node).last()), (Some(1), Some(&"Removed")));
    until_gone(&cluster, &node).await;
    assert_eq!(cluster.node(&node).await.spec.unwrap().unschedulable, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_does_not_continue_a_paused_roll_is_told_that_it_stays_paused() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (_workload, roll, _) = blocked(&cluster, "held", &nodes[..2], &["--run", "true"]).await;
    roll.crash().await;
    let _ = plugin(&cluster, &["roll", "pause", "held"]).await.ok();
    let mut terminal =
        Terminal::run_plugin(cluster.kubeconfig(), &["roll", "resume", "held", "--take-over"], &[]);
    terminal.until_shown("Continue roll held? [y/N]").await;
    terminal.press("n\n");
    terminal.until_shown("not confirmed, roll \"held\" stays paused").await;
    assert_eq!(terminal.exit_code().await, 2);
    abort(&cluster, "held").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_begins_at_the_moment_of_a_pause_is_paused_too() {
    let why = "only a sandbox delays requests";
    let Some(cluster) = Cluster::sandbox_or_skip(4, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, first) = blocked(&cluster, "racing", &nodes[..3], &[]).await;
    let status = plugin(&cluster, &["roll", "status", "racing", "-o", "json"]).await.ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    // The record of the roll is in the object of the last of three nodes.
    let [second, last] = [1, 2].map(|position| status["nodes"][position]["node"].as_str().unwrap());
    // The runner has decided to begin the second node, and reads what the node is like before that.
    let faults = cluster.sandbox().unwrap().faults();
    let reads = Target::any().verb("list").resource("poddisruptionbudgets").user_agent("kubectl-nm/*");
    let rule = faults.add(Rule::new(reads, Action::Delay(Duration::from_secs(4))));
    workload.delete_budget(&guard(&first)).await;
    faults.until_played(rule).await;
    let _ = plugin(&cluster, &["roll", "pause", "racing"]).await.ok();
    assert!(cluster.maintenances().get(second).await.unwrap().spec.suspend, "it begins afterwards");
    // It is paused before or after nm-reconciler has noticed that it began.
    let is_paused = |object: Option<&NodeMaintenance>| {
        object.is_some_and(|object| {
            object.annotations()["kubectl-nm.dev/roll-node"].contains("\"Draining\"") && object.spec.suspend
        })
    };
    wait_until(&cluster.maintenances(), second, "begun and paused", is_paused).await;

    // Somebody who resumes the node alone is not overruled.
    faults.clear();
    let _ = plugin(&cluster, &["resume", second]).await.ok();
    workload.delete_budget(&guard(second)).await;
    // Its command is that of the roll, which is still paused.
    let waits = "the roll is paused, and its action has not started";
    roll.until("drained", |line| line["node"] == second && line["detail"] == waits).await;
    assert!(roll.output(second).is_empty(), "{:#?}", roll.lines);
    let _ = plugin(&cluster, &["roll", "resume", "racing"]).await.ok();
    workload.delete_budget(&guard(last)).await;
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["done"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_sees_what_has_changed_while_the_server_forgot_its_history() {
    let why = "only a sandbox forgets its history on demand";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (workload, mut roll, first) = blocked(&cluster, "expired", &nodes[..2], &[]).await;
    let faults = cluster.sandbox().unwrap().faults();
    let watches = || Target::any().verb("watch").user_agent("kubectl-nm/*");
    let late = faults.add(Rule::new(watches(), Action::Delay(Duration::from_secs(5))));
    assert!(faults.end_watches(&watches(), 0) >= 2, "of maintenances and of nodes");
    faults.until_played(late).await;
    let _ = plugin(&cluster, &["roll", "pause", "expired"]).await.ok();
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    faults.forget_history();
    // The watch cannot resume: everything is listed again.
    let lists = Target::any().verb("list").resource("nodemaintenances").user_agent("kubectl-nm/*");
    let listed = faults.add(Rule::new(lists, Action::Delay(Duration::ZERO)));
    faults.until_played(listed).await;
    roll.until("paused", |line| line["node"] == first && line["detail"] == "paused").await;
    faults.clear();
    let _ = plugin(&cluster, &["roll", "resume", "expired"]).await.ok();
    roll.is_done(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_command_is_shown_while_a_request_of_the_roll_hangs() {
    let why = "only a sandbox does not answer requests";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let nodes = cluster.nodes().await;
    let (acting, blocked) = (nodes[0].as_str(), nodes[1].as_str());
    for node in &nodes[..2] {
        // One zone, so that they are one wave.
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}});
        cluster.patch_node(node, zone).await;
    }
    let workload = guarded_pods(&cluster, "hanging", &nodes[1..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    // A pipe: the command of the first node waits until the test writes to it.
    let pipe = folder.path().join(acting);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let command = format!("echo waits; cat {}/{{}}", folder.path().display());
    let flags = ["--run", &command, "--max-unavailable", "2", "--request-timeout", "0"];
    let mut roll = RunningRoll::begin(&cluster, "hangs", &nodes[..2], &flags);
    roll.until("output", |line| line["text"] == "waits").await;

    let faults = cluster.sandbox().unwrap().faults();
    let writes = Target::any().verb("patch").resource("nodemaintenances").name(blocked);
    let never = Action::NeverAnswer(Moment::BeforeEffect);
    let rule = faults.add(Rule::new(writes.user_agent("kubectl-nm/*"), never).when(When::First(1)));
    workload.delete_budget(&guard(blocked)).await;
    faults.until_played(rule).await;
    std::fs::write(&pipe, "ends\n").unwrap();
    roll.until("output", |line| line["text"] == "ends").await;
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_roll_deletes_what_is_planned_and_returns_what_is_under_way() {
    let cluster = Cluster::start(4).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let (_workload, mut roll, node) = blocked(&cluster, "abortable", &nodes[..3], &[]).await;
    let unconfirmed = plugin(&cluster, &["roll", "abort", "abortable"]).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    let aborted = plugin(&cluster, &["roll", "abort", "abortable", "--yes"]).await.ok();
    assert!(aborted.stdout.contains(&format!("node/{node} maintenance is stopping\n")), "{aborted:?}");
    assert_eq!(aborted.stdout.matches("planned maintenance deleted").count(), 2, "{aborted:?}");
    assert_eq!(roll.end().await, Some(4), "it is not done: {:#?}", roll.lines);
    assert_eq!(roll.summary()["state"], "aborted");
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
    let _reconciler = Reconciler::start(&cluster);
    let object: NodeMaintenance = serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": nodes[0], "labels": {"kubectl-nm.dev/roll": "forged"},
            "annotations": {"kubectl-nm.dev/roll-node": "{"}},
        "spec": {"nodeName": nodes[0], "suspend": true},
    }))
    .unwrap();
    cluster.maintenances().create(&kube::api::PostParams::default(), &object).await.unwrap();
    let mut good = RunningRoll::begin(&cluster, "good", &nodes[1..2], &["--run", "sleep 600"]);
    good.until_step(&nodes[1], "Acting").await;
    let all = plugin(&cluster, &["roll", "status"]).await;
    assert!(all.code == Some(1) && all.stdout.contains("good"), "the other one is shown: {all:?}");
    assert!(all.stderr.contains("annotation kubectl-nm.dev/roll-node of the NodeMaintenance"), "{all:?}");
    good.signal("INT");
    assert_eq!(good.end().await, Some(130));
    let _ = plugin(&cluster, &["roll", "abort", "good", "--return", "--yes"]).await.ok();
    let before = cluster.maintenances().get(&nodes[0]).await.unwrap();
    for args in [vec!["status", "forged"], vec!["resume", "forged"], vec!["abort", "forged", "-y"]] {
        let failed = plugin(&cluster, &[&["roll"], args.as_slice()].concat()).await;
        assert_eq!(failed.code, Some(1), "{failed:?}");
        let object = format!("of the NodeMaintenance \"{}\" is not valid", nodes[0]);
        assert!(failed.stderr.contains(&object) && failed.stderr.contains("kubectl delete nm"), "{failed:?}");
        assert!(failed.stderr.contains("remove its finalizer kubectl-nm.dev/roll"), "{failed:?}");
        assert!(
            failed.stderr.contains("`kubectl nm roll abort forged --return --yes` ends the roll"),
            "{failed:?}"
        );
    }
    assert_eq!(cluster.maintenances().get(&nodes[0]).await.unwrap().metadata, before.metadata);
    let aborted = plugin(&cluster, &["roll", "abort", "forged", "--return", "-y"]).await.ok();
    assert_eq!(aborted.stdout, format!("node/{} maintenance is stopping\n", nodes[0]));
    assert!(
        aborted.stderr.contains("The nodes whose command or Job has started are unknown."),
        "{aborted:?}"
    );
    until_gone(&cluster, &nodes[0]).await;
}
