//! `kubectl nm watch` with `--output json` and `--output lines`.

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, until_status};
use nm_tests::programs::{RunningCommand, plugin, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, node_of};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_report_a_drain_from_the_snapshot_to_its_end() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "report").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, &node, &node).await;
    until_status(&cluster, &node, "blocked", |status| status.pod_counts.blocked > 0).await;
    let watch = ["watch", &node, "--output", "json", "--until", "drained", "--timeout", "80s"];
    let mut watch = RunningCommand::start(program("kubectl-nm"), &cluster, &watch);
    let mut lines: Vec<Value> = Vec::new();
    while let Some(line) = watch.line().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["type"] == "pod" && line["state"] == "blocked" {
            workload.delete_budget("cart").await;
        }
        lines.push(line);
    }
    assert_eq!(watch.exit_code().await, Some(0), "{lines:#?}");
    assert!(lines.iter().all(|line| line["version"] == 1 && line["time"].is_string()), "{lines:#?}");
    let of_type = |wanted: &str| lines.iter().filter(|line| line["type"] == wanted).collect::<Vec<_>>();
    assert_eq!(lines[0]["type"], "snapshot");
    assert_eq!(lines[0]["maintenances"][0]["node"], node.as_str());
    let pods: Vec<&str> = of_type("pod").iter().filter_map(|pod| pod["state"].as_str()).collect();
    assert!(pods.starts_with(&["blocked"]) && pods.ends_with(&["gone"]), "{lines:#?}");
    assert!(of_type("condition").iter().any(|condition| condition["condition"] == "Drained"));
    assert!(
        of_type("node").iter().any(|node| node["state"] == "drained" && node["phase"] == "Succeeded"),
        "{lines:#?}"
    );
    let done = lines.last().unwrap();
    assert_eq!(
        (&done["type"], &done["exitCode"], &done["result"]),
        (&"done".into(), &0.into(), &"reached".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn start_with_watch_prints_the_whole_drain() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let watched = plugin(&cluster, &["start", node, "--watch", "--wait", "--timeout", "80s"]).await;
    assert_eq!(watched.code, Some(0), "{watched:?}");
    let lines: Vec<&str> = watched.stdout.lines().collect();
    assert_eq!(lines[0], format!("node/{node} maintenance started"), "{watched:?}");
    assert!(lines.last().unwrap().contains("Drained: "), "{watched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_on_complete_ends_at_once_without_maintenances() {
    let cluster = Cluster::start(1).await;
    let nothing = plugin(&cluster, &["watch", "--exit-on-complete"]).await;
    assert_eq!((nothing.code, nothing.stderr.as_str()), (Some(0), "No maintenances found.\n"), "{nothing:?}");
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, node, node).await;
    let worked = plugin(&cluster, &["watch", "--exit-on-complete", "--output", "lines"]).await;
    assert_eq!(worked.code, Some(0), "{worked:?}");
    assert!(worked.stdout.contains("Drained: "), "{worked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_drain_of_a_hundred_nodes_has_at_most_four_lines_for_each() {
    let Some(cluster) = Cluster::sandbox_or_skip(104, "it needs 104 nodes").await else { return };
    let workload = Workload::new(&cluster, "lines").await;
    // Its pods wait for their turns.
    workload.deployment("cart", 200).await;
    workload.budget("cart", 180).await;
    // On a busy machine, a replacement may take half a minute.
    let _reconciler = Reconciler::start_with(&cluster, &["--blocked-after=120"]);
    let nodes = cluster.nodes().await;
    let mut start = vec!["start", "--yes", "--wait", "--timeout", "80s"];
    start.extend(nodes[..100].iter().map(String::as_str));
    let waited = plugin(&cluster, &start).await;
    assert_eq!(waited.code, Some(0), "{waited:?}");
    let lines = || waited.stdout.lines().chain(waited.stderr.lines());
    for node in &nodes[..100] {
        let of_node = |line: &&str| {
            line.strip_prefix("node/")
                .and_then(|line| line.strip_prefix(node.as_str()))
                .is_some_and(|rest| rest.starts_with([' ', ':']))
        };
        // A busy machine may take its time to begin.
        let is_late = |line: &&str| line.contains("has not started the maintenance after");
        let of_node: Vec<&str> = lines().filter(of_node).filter(|line| !is_late(line)).collect();
        assert!(of_node.len() <= 4, "{of_node:#?}");
        assert!(of_node.iter().any(|line| line.contains(" drained")), "{of_node:#?}");
    }
    let others = lines().filter(|line| !line.starts_with("node/")).count();
    assert!(others <= 10, "{waited:?}");
}
