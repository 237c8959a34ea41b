//! The last node of a roll: its state is kept until it has recovered and soaked, although it is back in service.

use kube::ResourceExt;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::until_gone;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, pod_spec};
use serde_json::json;

use super::running_roll::RunningRoll;

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_at_its_last_node_is_continued_and_the_node_is_in_service() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let node = nodes[0].as_str();
    for step in ["Returning", "Recovering", "Soaking"] {
        let name = format!("last-{}", step.to_lowercase());
        let mut roll =
            RunningRoll::begin(&cluster, &name, &nodes[..1], &["--run", "echo acts", "--soak", "3s"]);
        roll.until_step(node, step).await;
        roll.crash().await;
        let status = plugin(&cluster, &["roll", "status", &name]).await.ok();
        assert!(status.stdout.contains(&format!("roll {name}: 0 done, 1 left")), "{step}: {status:?}");
        if step == "Soaking" {
            assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, None, "it is in service");
            let explained = plugin(&cluster, &["explain", node]).await.ok();
            let expected = format!("back in service; the checks of roll {name} are not done");
            assert!(explained.stdout.contains(&expected), "{explained:?}");
        }
        let mut resumed = RunningRoll::resume(&cluster, &name, &["--run", "echo acts", "--take-over"]);
        assert_eq!(resumed.end().await, Some(0), "{step}: {:#?}", resumed.lines);
        assert_eq!((resumed.summary()["done"].as_u64(), resumed.output(node).len()), (Some(1), 0), "{step}");
        until_gone(&cluster, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_halts_at_its_last_node_is_continued_or_aborted() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let node = nodes[0].as_str();
    let workload = Workload::new(&cluster, "ailing").await;
    let only_here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]);
    let mut spec = pod_spec();
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": only_here}]}}});
    workload.deployment_of("web", 1, &spec).await;
    let _reconciler = Reconciler::start(&cluster);
    for ends in ["resume", "abort"] {
        workload.until_running("web", 1).await;
        // With a taint that others have set, the node does not take its pod back.
        let taint = json!({"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}});
        cluster.patch_node(node, taint).await;
        let name = format!("last-{ends}");
        let flags = ["--run", "true", "--recovery-timeout", "2s"];
        let mut roll = RunningRoll::begin(&cluster, &name, &nodes[..1], &flags);
        assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
        let message = roll.summary()["message"].as_str().unwrap();
        assert!(message.contains("are not healthy after 2s: Deployment "), "{message}");
        cluster.patch_node(node, json!({"spec": {"taints": null}})).await;
        if ends == "resume" {
            let mut resumed = RunningRoll::resume(&cluster, &name, &["--run", "true"]);
            assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
            assert_eq!(resumed.summary()["done"], 1);
        } else {
            let aborted = plugin(&cluster, &["roll", "abort", &name, "--yes"]).await.ok();
            let expected = format!("node/{node} in service, and no longer checked\nroll {name} aborted\n");
            assert_eq!(aborted.stdout, expected, "{aborted:?}");
        }
        until_gone(&cluster, node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_somebody_stops_does_not_wait_for_its_roll() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let mut roll = RunningRoll::begin(&cluster, "left", &nodes[..2], &["--run", "sleep 600"]);
    roll.until("an action", |line| line["step"] == "Acting").await;
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
    for node in &nodes[..2] {
        let object = cluster.maintenances().get(node).await.unwrap();
        let is_kept = object.finalizers().iter().any(|finalizer| finalizer == "kubectl-nm.dev/roll");
        assert!(!is_kept, "only the roll itself keeps a maintenance that it ends");
        let _ = plugin(&cluster, &["stop", node, "--wait"]).await.ok();
    }
}
