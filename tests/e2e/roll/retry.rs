//! What `roll resume` tries again after a halt, and what it does not.

use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{plugin, program};
use nm_tests::reconciler::Reconciler;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, guard, guarded_pods};

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_an_action_that_ends_after_the_roll_has_halted_is_kept() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    for node in &nodes[..2] {
        // One zone, so that they are one wave.
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}});
        cluster.patch_node(node, zone).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    let (fails, lasts) = (nodes[0].as_str(), nodes[1].as_str());
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().display();
    // Two pipes: each command waits until the test says how it ends.
    for node in &nodes[..2] {
        assert!(
            std::process::Command::new("mkfifo").arg(folder.path().join(node)).status().unwrap().success()
        );
    }
    let command = format!("echo run; exit $(cat {path}/{{}})");
    let flags = ["--run", &command, "--max-unavailable", "2"];
    let mut roll = RunningRoll::begin(&cluster, "both", &nodes[..2], &flags);
    for _ in &nodes[..2] {
        roll.until("output", |line| line["text"] == "run").await;
    }
    std::fs::write(folder.path().join(fails), "1").unwrap();
    let halts = roll.until("a state", |line| line["state"] == "waiting").await;
    let expected = format!("the roll halts once the action of {lasts} has finished");
    assert!(halts["message"].as_str().unwrap().ends_with(&expected), "{halts:#}");
    std::fs::write(folder.path().join(lasts), "0").unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);

    // A file is not waited for.
    std::fs::remove_file(folder.path().join(fails)).unwrap();
    std::fs::write(folder.path().join(fails), "0").unwrap();
    let mut resumed = RunningRoll::resume(&cluster, "both", &["--run", &command]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert_eq!((resumed.output(fails).len(), resumed.output(lasts).len()), (1, 0), "{:#?}", resumed.lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_that_did_not_happen_is_tried_again() {
    let why = "only the nodes of a sandbox reboot on demand";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let folder = tempfile::TempDir::new().unwrap();
    let script = folder.path().join("reboot.sh");
    // As ssh ends when it cannot connect.
    std::fs::write(&script, "exit 255").unwrap();
    let command = format!("sh {} {{}}", script.display());
    let flags = ["--run", &command, "--expect-reboot", "--return-timeout", "2s"];
    let mut roll = RunningRoll::begin(&cluster, "unreachable", &nodes[..1], &flags);
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap();
    assert!(message.ends_with(" is not back after 2s: it has not rebooted"), "{message}");
    let reboots = format!("{} reboot $1 --downtime 500ms; exit 255", program("nm-sandbox").display());
    std::fs::write(&script, reboots).unwrap();
    let mut resumed = RunningRoll::resume(&cluster, "unreachable", &["--run", &command]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    assert_eq!(resumed.output(&nodes[0]).len(), 1, "{:#?}", resumed.lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_maintenance_cannot_be_changed_halts_the_roll() {
    let why = "only a sandbox refuses requests on demand";
    let Some(cluster) = Cluster::sandbox_or_skip(3, why).await else { return };
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "refusing", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut roll = RunningRoll::begin(&cluster, "refused", &nodes[..2], &["--run", "true"]);
    let is_blocked = |line: &Value| line["detail"].as_str().is_some_and(|why| why.starts_with("blocked"));
    let node = roll.until("blocked", is_blocked).await["node"].as_str().unwrap().to_owned();
    let faults = cluster.sandbox().unwrap().faults();
    let writes = Target::any().verb("patch").resource("nodemaintenances").name(&node);
    let denied = Action::Fail(Failure::DeniedByPolicy, Moment::BeforeEffect);
    faults.add(Rule::new(writes.user_agent("kubectl-nm/*"), denied));
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("the maintenance of node {node} cannot be changed: ")), "{message}");
    faults.clear();
    let mut resumed = RunningRoll::resume(&cluster, "refused", &["--run", "true"]);
    assert_eq!(resumed.end().await, Some(0), "{:#?}", resumed.lines);
    let _ = plugin(&cluster, &["roll", "status"]).await.ok();
}
