//! Rolls that halt: nothing new begins, the reason is in one sentence, and the roll continues from there.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::until_gone;
use nm_tests::probes::{sample, until_served};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, pod_spec};
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, guard, guarded_pods, make_pipe};

/// Runs a roll of two nodes, of which the first halts it, and returns the reason.
async fn halted(cluster: &Cluster, name: &str, nodes: &[String], flags: &[&str]) -> String {
    let mut roll = RunningRoll::begin(cluster, name, nodes, flags);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    assert_eq!(roll.summary()["state"], "halted");
    let message = roll.summary()["message"].as_str().unwrap().to_owned();
    let status = plugin(cluster, &["roll", "status", name, "-o", "json"]).await.ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["halt"]["message"], message, "{status:#}");
    let begun = status["nodes"].as_array().unwrap().iter().filter(|node| node["step"] != "Planned").count();
    assert_eq!((begun, status["nodes"].as_array().unwrap().len()), (1, 2), "{status:#}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_halts_and_is_run_again_when_the_roll_is_resumed() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let reconciler = Reconciler::start_with(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let metrics = reconciler.metrics_address().await;
    let until_halted_rolls = async |count: f64| {
        let is_shown = |text: &str| sample(text, "nm_halted_rolls{}") == Some(count);
        let _ = until_served(metrics, "/metrics", is_shown).await;
    };
    let marker = tempfile::TempDir::new().unwrap();
    let command = format!("echo now; test -e {}/{{}}", marker.path().display());
    let message = halted(&cluster, "fails", &nodes[..2], &["--run", &command]).await;
    let node = nodes[..2].iter().find(|node| message.contains(node.as_str())).unwrap();
    assert_eq!(message, format!("the action for node {node} failed: the command ended with exit code 1"));
    until_halted_rolls(1.0).await;

    // Without a terminal, the command that runs here has to be confirmed by its text.
    let refused = plugin(&cluster, &["roll", "resume", "fails"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains(&command), "{refused:?}");
    let other = plugin(&cluster, &["roll", "resume", "fails", "--run", "true", "--yes"]).await;
    assert!(other.code == Some(2) && other.stderr.contains("runs a different action"), "{other:?}");

    // Whoever is asked to look into it sees why, and after each halt how to continue, or to return the node to service.
    let explained = plugin(&cluster, &["explain", node]).await;
    assert_eq!(explained.code, Some(3), "{explained:?}");
    let said = |words: &str| explained.stdout.contains(words);
    assert!(said("Roll fails halted at ") && said(&format!(" UTC: {message}.")), "{explained:?}");
    let again = plugin(&cluster, &["roll", "resume", "fails", "--yes"]).await;
    assert_eq!(again.code, Some(3), "{again:?}");
    let confirmed = format!("`kubectl nm roll resume fails --run '{command}'` continues (add --skip {node} ");
    let returned = format!(
        "`kubectl nm roll abort fails --yes` aborts the roll (add --return to also return {node} to service)"
    );
    assert!(again.stderr.contains(&confirmed) && again.stderr.contains(&returned), "{again:?}");

    for node in &nodes[..2] {
        std::fs::write(marker.path().join(node), "").unwrap();
    }
    let mut resumed = RunningRoll::resume(&cluster, "fails", &["--run", &command]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert_eq!((resumed.output(&nodes[0]), resumed.output(&nodes[1])), (vec!["now"], vec!["now"]));
    assert_eq!(resumed.summary()["done"], 2);
    until_halted_rolls(0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_action_failed_stays_in_maintenance_when_its_roll_is_aborted_until_it_is_stopped() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let message = halted(&cluster, "ended", &nodes[..2], &["--run", "false"]).await;
    let node = nodes[..2].iter().find(|node| message.contains(node.as_str())).unwrap();
    let shown = format!("roll ended halted: the action for node {node} failed: ");
    let listed = plugin(&cluster, &["status"]).await.ok();
    assert!(listed.stderr.contains(&shown), "{listed:?}");
    let aborted = plugin(&cluster, &["roll", "abort", "ended", "--yes"]).await.ok();
    let done = "planned maintenance deleted\nroll ended aborted: 1 node stays in maintenance\n";
    assert!(aborted.stdout.ends_with(done), "{aborted:?}");
    assert!(aborted.stderr.contains(&format!("node/{node} (Acting): its command failed\n")), "{aborted:?}");
    assert!(
        aborted.stderr.contains(&format!(" or `kubectl nm stop {node}` returns the node")),
        "{aborted:?}"
    );
    let status = plugin(&cluster, &["roll", "status", "ended"]).await.ok();
    assert!(
        status.stdout.contains(", aborted by ")
            && status.stderr.contains(&format!("`kubectl nm stop {node}`"))
    );
    let listed = plugin(&cluster, &["status"]).await.ok();
    assert!(!listed.stderr.contains("halted"), "{listed:?}");
    let _ = plugin(&cluster, &["stop", node, "--wait"]).await.ok();
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None);
    let gone = plugin(&cluster, &["roll", "status"]).await.ok();
    assert!(gone.stderr.contains("No rolls found."), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_drain_halts_if_asked_for_and_the_node_can_be_skipped() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "halting", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let message =
        halted(&cluster, "blocked", &nodes[..2], &["--run", "true", "--halt-on-blocked", "1s"]).await;
    let (node, other) = match nodes[..2].iter().position(|node| message.contains(&format!("node {node} "))) {
        Some(0) => (&nodes[0], &nodes[1]),
        _ => (&nodes[1], &nodes[0]),
    };
    assert!(
        message.starts_with(&format!("the drain of node {node} has been blocked for more than 1s by pod "))
    );
    let unknown =
        plugin(&cluster, &["roll", "resume", "blocked", "--skip", &nodes[2], "--run", "true"]).await;
    assert!(unknown.stderr.contains("is not part of roll \"blocked\""), "{unknown:?}");
    assert!(unknown.stderr.contains("kubectl nm roll status blocked"), "{unknown:?}");
    workload.delete_budget(&guard(other)).await;
    let mut resumed = RunningRoll::resume(&cluster, "blocked", &["--run", "true", "--skip", node]);
    assert_eq!(resumed.end().await, Some(3), "{:#?}", resumed.lines);
    assert_eq!((resumed.summary()["done"].as_u64(), resumed.steps(other).last()), (Some(1), Some(&"Done")));
    assert_eq!(resumed.summary()["skipped"], json!([node]));
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "the node is back in service");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_times_out_halts() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "expiring", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let message = halted(&cluster, "expires", &nodes[..2], &["--run", "true", "--timeout", "1s"]).await;
    assert!(message.starts_with("the drain of node ") && message.contains(" failed: "), "{message}");

    // Without more time, nothing has changed, and the roll says what has to.
    let same = plugin(&cluster, &["roll", "resume", "expires", "--run", "true"]).await;
    assert_eq!(same.code, Some(3), "{same:?}");
    let node = message.split_whitespace().nth(4).unwrap();
    let continues = format!(
        "hint: `kubectl nm roll resume expires --timeout 1h --run true` continues the drain for up to another hour (add --skip \
         {node} to continue without this node, which returns it to service as it is); `kubectl nm roll abort expires --yes` aborts the roll"
    );
    assert!(same.stderr.contains(&continues), "{same:?}");
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    let mut resumed = RunningRoll::resume(&cluster, "expires", &["--run", "true", "--timeout", "5m"]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert_eq!(resumed.summary()["done"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_takes_longer_than_it_may_is_ended_and_halts() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    // The command and what it starts hold the pipe open: reading it ends when they have ended.
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let command = format!("exec 3>{}; sleep 600", pipe.display());
    let read = tokio::task::spawn_blocking(move || std::fs::read(pipe));
    let message = halted(&cluster, "late", &nodes[..2], &["--run", &command, "--action-timeout", "1s"]).await;
    assert!(message.ends_with(" failed: the command still runs after 1s"), "{message}");
    assert!(read.await.unwrap().unwrap().is_empty());
    let _ = plugin(&cluster, &["roll", "abort", "late", "--return", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_reboot_halts() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    // As ssh ends when its connection is lost.
    let flags = ["--run", "exit 255", "--expect-reboot", "--return-timeout", "2s"];
    let message = halted(&cluster, "stuck", &nodes[..2], &flags).await;
    assert!(message.ends_with(" is not back after 2s: it has not rebooted"), "{message}");
    let _ = plugin(&cluster, &["roll", "abort", "stuck", "--return", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_does_not_recover_halts() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "broken").await;
    for node in &nodes[..2] {
        let only_here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]);
        let mut spec = pod_spec();
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": only_here}]}}});
        workload.deployment_of(&format!("only-{node}"), 1, &spec).await;
        workload.until_running(&format!("only-{node}"), 1).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    let flags = ["--run", "true", "--max-unavailable", "2"];
    let mut roll = RunningRoll::begin(&cluster, "sick", &nodes[..2], &flags);
    // The pods are recreated when their nodes return: both recover.
    assert_eq!(roll.end().await, Some(0), "{:#?}", roll.lines);
    assert!(roll.steps(&nodes[0]).contains(&"Recovering"), "{:#?}", roll.lines);

    // With a taint that others have set, the nodes do not take them back.
    for node in &nodes[..2] {
        workload.until_running(&format!("only-{node}"), 1).await;
        let taint = json!({"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}});
        cluster.patch_node(node, taint).await;
    }
    let message =
        halted(&cluster, "sicker", &nodes[..2], &["--run", "true", "--recovery-timeout", "3s"]).await;
    assert!(message.contains("are not healthy after 3s: Deployment "), "{message}");
    let _ = plugin(&cluster, &["roll", "abort", "sicker", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_has_drained_before_its_turn_stays_in_maintenance_when_its_roll_is_aborted() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let message = halted(&cluster, "early", &nodes[..2], &["--run", "false"]).await;
    let node = nodes[..2].iter().find(|node| !message.contains(node.as_str())).unwrap();
    let resumed = plugin(&cluster, &["resume", node]).await.ok();
    assert!(
        resumed.stderr.contains("whose windows, gates and limit do not apply to it now: it stays drained"),
        "{resumed:?}"
    );
    let _ = plugin(&cluster, &["watch", node, "--until", "drained"]).await.ok();
    let status = plugin(&cluster, &["roll", "status", "early"]).await.ok();
    assert!(status.stdout.contains("somebody has started its drain before its turn"), "{status:?}");
    let aborted = plugin(&cluster, &["roll", "abort", "early", "--yes"]).await.ok();
    assert!(!aborted.stdout.contains("deleted"), "{aborted:?}");
    let stays = format!(
        "node/{node} stays in maintenance, and is no longer part of the roll: somebody has started its drain before its turn; "
    );
    assert!(aborted.stderr.contains(&stays), "{aborted:?}");
    assert!(aborted.stdout.contains("roll early aborted: 2 nodes stay in maintenance\n"), "{aborted:?}");
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true));
    let explained = plugin(&cluster, &["explain", node]).await.ok();
    assert!(!explained.stdout.contains("roll"), "{explained:?}");
    let _ = plugin(&cluster, &["roll", "abort", "early", "--return", "--yes"]).await.ok();
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true));
    let stopped = plugin(&cluster, &["stop", node, "--wait"]).await.ok();
    assert!(!stopped.stderr.contains("roll"), "{stopped:?}");
    until_gone(&cluster, node).await;
}
