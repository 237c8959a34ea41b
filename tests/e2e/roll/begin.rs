//! Rolls that go well: their steps, order and actions, and what is refused before anything is changed.

use std::collections::BTreeMap;

use kube::api::ListParams;
use kube::runtime::watcher;
use kube_sandbox::faults::{Action, Moment, Rule, Target, When};
use nm_shared::NodeMaintenance;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained};
use nm_tests::nodes::configuration;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::wait::wait_until_all;
use nm_tests::webhook::serve_webhook;
use nm_tests::workload::{Workload, node_of, pod_spec};
use serde_json::json;

use super::running_roll::{RunningRoll, pool};

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
    assert_eq!((&roll.summary()["state"], &roll.summary()["done"]), (&json!("done"), &json!(3)));
    assert!(under_way(&roll).1.values().all(|most| *most == 1), "one after another: {:#?}", roll.lines);
    let left = cluster.maintenances().list(&ListParams::default()).await.unwrap();
    assert!(!left.items.iter().any(|object| nodes[..3].contains(&object.spec.node_name)));
    let moved = before.iter().filter(|pod| nodes[..3].iter().any(|node| node == node_of(pod))).count();
    let pods = roll.summary()["pods"].as_u64().unwrap();
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
    let (begun, most) = under_way(&roll);
    let waves: Vec<u64> = begun.iter().map(|(_, wave)| *wave).collect();
    assert_eq!(waves, [1, 2, 2, 3, 3]);
    assert!(most[&1] == 1 && most[&2] <= 2 && most[&3] <= 2, "{most:?}");

    // All five are one wave.
    let flags = ["--run", "sleep 0.3", "--max-unavailable", "2"];
    let mut roll = RunningRoll::begin(&cluster, "limited", &nodes[..5], &flags);
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    let (begun, most) = under_way(&roll);
    assert_eq!((begun.len(), most), (5, BTreeMap::from([(1, 2)])));
}

/// The nodes in the order in which they began, each with its wave, and how many nodes were under way at most in each wave.
fn under_way(roll: &RunningRoll) -> (Vec<(&str, u64)>, BTreeMap<u64, usize>) {
    let (mut under_way, mut begun, mut most) = (Vec::new(), Vec::new(), BTreeMap::new());
    for line in roll.lines.iter().filter(|line| line["type"] == "node") {
        let (node, wave) = (line["node"].as_str().unwrap(), line["wave"].as_u64().unwrap());
        match line["step"].as_str().unwrap() {
            "Draining" if !under_way.contains(&node) => {
                under_way.push(node);
                begun.push((node, wave));
            }
            "Done" => under_way.retain(|one| *one != node),
            _ => {}
        }
        let most_of_wave = most.entry(wave).or_insert(0);
        *most_of_wave = under_way.len().max(*most_of_wave);
    }
    (begun, most)
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_nodes_are_last_and_one_at_a_time() {
    let why = "a real cluster has a control plane of its own";
    let Some(cluster) = Cluster::sandbox_or_skip(5, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    for node in &nodes[..3] {
        let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
        cluster.patch_node(node, label).await;
    }
    let flags = ["--run", "true", "--max-unavailable", "5"];
    let mut roll = RunningRoll::begin(&cluster, "masters", &nodes[..5], &flags);
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["done"], 5);
    let (begun, most) = under_way(&roll);
    let control_plane: Vec<&str> = begun[2..].iter().map(|(node, _)| *node).collect();
    assert!(nodes[..3].iter().all(|node| control_plane.contains(&node.as_str())), "{begun:?}");
    assert!(begun[2..].iter().all(|(_, wave)| most[wave] == 1), "{begun:?} {most:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_is_aborted_and_begun_again() {
    let why = "only a sandbox does not answer requests";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let faults = cluster.sandbox().unwrap().faults();
    let requests = Target::any().verb("create").resource("nodemaintenances");
    // The first one is a dry run.
    let never = Action::NeverAnswer(Moment::BeforeEffect);
    let rule = faults.add(Rule::new(requests, never).when(When::Nth(2)));
    let flags = ["--run", "echo {}", "--max-unavailable", "1", "--request-timeout", "0"];
    let roll = RunningRoll::begin(&cluster, "half", &nodes, &flags);
    faults.until_played(rule).await;
    let two = |all: &[NodeMaintenance]| all.len() == 2;
    wait_until_all(&cluster.maintenances(), watcher::Config::default(), "two of three", two).await;
    roll.crash().await;
    faults.clear();
    let again = [&["roll", "--name", "half", "--run", "true", "-y"][..], &[nodes[0].as_str()]].concat();
    for line in [&["roll", "resume", "half", "--run", "echo {}"][..], &again] {
        let incomplete = plugin(&cluster, line).await;
        assert_eq!(incomplete.code, Some(1), "{incomplete:?}");
        assert!(incomplete.stderr.contains("has only 2 of its 3 maintenances"), "{incomplete:?}");
        assert!(incomplete.stderr.contains("`kubectl nm roll abort half"), "{incomplete:?}");
    }
    let status = plugin(&cluster, &["roll", "status", "half"]).await.ok();
    assert!(status.stdout.contains("not all maintenances exist"), "{status:?}");
    assert!(status.stderr.contains("`kubectl nm roll abort half"), "{status:?}");
    let explained = plugin(&cluster, &["explain", &nodes[0]]).await;
    assert!(explained.stdout.ends_with("  See why:\n    kubectl nm roll status half\n"), "{explained:?}");
    let _ = plugin(&cluster, &["roll", "abort", "half", "-y"]).await.ok();
    wait_until_all(&cluster.maintenances(), watcher::Config::default(), "all gone", <[_]>::is_empty).await;
    let mut again = RunningRoll::begin(&cluster, "half", &nodes, &flags);
    assert_eq!(again.end().await, Some(0), "{:#?}", again.lines);
    assert_eq!(again.summary()["done"], 3);
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
async fn a_dry_run_shows_which_data_would_be_lost_and_which_pods_fit_nowhere_else() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "risky").await;
    let mut spec = pod_spec();
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": nodes[0]});
    spec["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    workload.deployment_of("bound", 1, &spec).await;
    let pod = workload.until_running("bound", 1).await.remove(0);
    let name = format!("{}/{}", workload.namespace(), pod.metadata.name.unwrap());
    let shown = plugin(&cluster, &["roll", &nodes[0], "--run", "true", "--dry-run"]).await.ok();
    for expected in [
        format!("node/{}: 1 pod loses its emptyDir data: {name}\n", nodes[0]),
        format!("node/{}: no capacity for {name} (", nodes[0]),
    ] {
        assert!(shown.stdout.contains(&expected), "{shown:?}");
    }
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
        (vec![free, "--confirm", "-y"], 2, "needs a terminal".into()),
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
async fn a_roll_that_is_killed_while_it_asks_asks_again_when_it_is_resumed() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let args =
        ["roll", &nodes[0], "--name", "unanswered", "--confirm", "--min-ready", "1s", "-y", "-o", "lines"];
    let question = format!("node/{} is drained. Continue with it? [y/N]", nodes[0]);
    let killed = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
    killed.until_shown(&question).await;
    // The program is killed.
    drop(killed);
    let args = ["roll", "resume", "unanswered", "--take-over", "-o", "lines"];
    let mut resumed = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
    resumed.until_shown(&question).await;
    resumed.press("y\n");
    resumed.until_shown("Roll unanswered is done: 1 node").await;
    assert_eq!(resumed.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_a_roll_acts_on_the_cluster_of_the_flag_for_a_kubeconfig() {
    let (cluster, nodes, _reconciler) = pool(1).await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("elsewhere");
    std::fs::copy(cluster.kubeconfig(), &file).unwrap();
    for (flags, kubeconfig) in [(vec![], cluster.kubeconfig()), (vec!["--kubeconfig"], &*file)] {
        let flags = flags.into_iter().flat_map(|flag| [flag, file.to_str().unwrap()]);
        let flags: Vec<&str> = ["--run", "echo $KUBECONFIG"].into_iter().chain(flags).collect();
        let mut roll = RunningRoll::begin(&cluster, "passed-on", &nodes[..1], &flags);
        roll.is_done(1).await;
        assert_eq!(roll.output(&nodes[0]), [kubeconfig.to_str().unwrap()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_quorum_needs_waits_and_begins_when_the_webhook_allows_it() {
    let cluster = Cluster::start(4).await;
    if cluster.sandbox().is_none() {
        return;
    }
    let nodes = cluster.nodes().await;
    for node in &nodes[..3] {
        let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
        cluster.patch_node(node, label).await;
    }
    let _reconciler = serve_webhook(&cluster, &[]).await;
    start(&cluster, "e2e-other", &nodes[0]).await;
    let mut roll = RunningRoll::begin(&cluster, "quorum", &nodes[1..2], &["--run", "true"]);
    let is_refused = |line: &serde_json::Value| {
        line["detail"].as_str().is_some_and(|detail| detail.contains("will violate etcd quorum"))
    };
    let refused = roll.until("a node that the webhook refuses", is_refused).await;
    assert_eq!((&refused["node"], &refused["step"]), (&json!(nodes[1]), &json!("Planned")));
    stop(&cluster, "e2e-other").await;
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["done"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_slow_does_not_keep_the_question_of_a_roll_waiting() {
    let why = "only a sandbox does not answer requests";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let node = cluster.nodes().await.remove(0);
    let workload = Workload::new(&cluster, "slow-plan").await;
    workload.pod_on(&node, "bare", json!({})).await;
    let evictions = Target::any().subresource("eviction");
    cluster.sandbox().unwrap().faults().add(Rule::new(evictions, Action::NeverAnswer(Moment::BeforeEffect)));
    let bare = format!("no controller replaces 1 pod: {}/bare", workload.namespace());
    let late = "unknown: the answers of the API server to 1 eviction: the plan took longer than 2s";
    for (flags, is_planned) in [(&[][..], true), (&["--no-plan"], false)] {
        let args = [&["roll", &node, "--run", "true"], flags].concat();
        let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
        let screen = terminal.until_shown("Roll 1 node, at most 1 at once? [y/N]").await;
        for line in [&*bare, late] {
            assert_eq!(screen.contains(line), is_planned, "{line} in {screen}");
        }
        terminal.press("n\r");
        assert_eq!(terminal.exit_code().await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_in_which_no_node_could_be_healthy_in_time_is_refused() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let args = ["roll", &node, "--run", "true", "--recovery-timeout", "30s", "-y"];
    let refused = plugin(&cluster, &args).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let said = "--recovery-timeout 30s is not longer than --min-ready 30s";
    assert!(
        refused.stderr.contains(said) && refused.stderr.contains("hint: raise --recovery-timeout"),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_lacks_the_protection_from_autoscalers_prevents_only_a_roll_that_asks_for_it() {
    let why = "a real cluster keeps its definition";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    let nodes = cluster.nodes().await;
    cluster.remove_field(&["spec", "drain", "autoscalers"]).await;
    let _reconciler = Reconciler::start(&cluster);
    let asked =
        plugin(&cluster, &["roll", &nodes[0], "--run", "true", "--yes", "--autoscalers", "Protect"]).await;
    assert!(asked.stderr.contains("has no spec.drain.autoscalers"), "{asked:?}");
    let mut roll = RunningRoll::begin(&cluster, "old", &nodes[..1], &["--run", "true"]);
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_selected_nodes_that_need_a_roll_are_part_of_it() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let mark = json!({"metadata": {"annotations": {"example.com/reboot": "now"}}});
    cluster.patch_node(&nodes[1], mark).await;
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let roll = async |flags: &[&str]| {
        let fixed = ["--run", "true", "--dry-run"];
        plugin(&cluster, &[&["roll"], &names[..], &fixed, flags].concat()).await.ok()
    };
    let needed = roll(&["--only-if", "example.com/reboot=now", "--kernel-not", "none"]).await;
    assert!(names.iter().all(|name| needed.stdout.contains(name)), "any of the causes: {needed:?}");
    let needed = roll(&["--only-if", "example.com/reboot"]).await;
    assert!(needed.stdout.contains(names[1]) && !needed.stdout.contains(names[0]), "{needed:?}");
    let all = nodes.len();
    assert!(needed.stderr.contains(&format!("1 of {all} nodes needs the roll.\n")), "{needed:?}");
    let nothing = roll(&["--only-if", "example.com/reboot=later", "--older-than-control-plane"]).await;
    nothing.expect(0, "", &format!("No node needs the roll: nothing to do for {all} nodes.\n"));
}
