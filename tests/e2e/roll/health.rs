//! The gates that a node passes after its command: its health, that of its DaemonSet pods, its return to service, and the
//! health of the budgets that its drain has disturbed. Each says what it waits for, and halts the roll in the end.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use nm_tests::cluster::Cluster;
use nm_tests::kubelet_reports::{can_be_set, set_pressure, set_ready};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of};
use serde_json::json;
use tempfile::TempDir;

use super::running_roll::{RunningRoll, make_pipe, other, pool};

/// A command that waits for the test at the first node of a roll.
struct WaitingCommand {
    pipe: PathBuf,
    _folder: TempDir,
}

impl WaitingCommand {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let pipe = folder.path().join("pipe");
        make_pipe(&pipe);
        Self { pipe, _folder: folder }
    }

    fn text(&self) -> String {
        format!("echo drained; cat {}", self.pipe.display())
    }

    /// Ends the command. At other nodes, it does not wait.
    fn end(&self) {
        std::fs::write(&self.pipe, "").unwrap();
        std::fs::remove_file(&self.pipe).unwrap();
        std::fs::write(&self.pipe, "").unwrap();
    }
}

/// Begins a roll, and returns it when its first node is drained and its command waits, with the name of that node.
async fn until_command_waits(
    cluster: &Cluster,
    name: &str,
    nodes: &[String],
    command: &WaitingCommand,
    flags: &[&str],
) -> (RunningRoll, String) {
    let command = command.text();
    let mut roll = RunningRoll::begin(cluster, name, nodes, &[&["--run", &command], flags].concat());
    let drained = roll.until("a drained node", |line| line["text"] == "drained").await;
    (roll, drained["node"].as_str().unwrap().to_owned())
}

/// Checks that a roll halts for this reason, and halts again when somebody continues it before the reason is gone. Both times
/// it says how to continue.
async fn halts(cluster: &Cluster, name: &str, mut roll: RunningRoll, command: &WaitingCommand, why: &str) {
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    assert_eq!(
        (roll.summary()["state"].as_str(), roll.summary()["message"].as_str()),
        (Some("halted"), Some(why))
    );
    let again = plugin(cluster, &["roll", "resume", name, "--yes"]).await;
    assert_eq!(again.code, Some(3), "{again:?}");
    let halted = format!("error: roll {name} halted: {why}\n");
    let continues = format!("hint: `kubectl nm roll resume {name} --run '{}'` continues", command.text());
    assert!(again.stderr.contains(&halted) && again.stderr.contains(&continues), "{again:?}");
}

/// Continues a roll that has halted, and checks that it is done without another command at this node.
async fn continues(cluster: &Cluster, name: &str, node: &str, command: &WaitingCommand, nodes: usize) {
    let mut resumed = RunningRoll::resume(cluster, name, &["--run", &command.text()]);
    resumed.is_done(nodes).await;
    assert!(resumed.output(node).is_empty(), "{:#?}", resumed.lines);
}

async fn is_cordoned(cluster: &Cluster, node: &str) -> bool {
    cluster.node(node).await.spec.unwrap().unschedulable == Some(true)
}

/// What is not healthy after the command of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Illness {
    DiskPressure,
    AgentNotReady,
}

/// A cluster whose nodes have a pod of a `DaemonSet` each.
struct Pool {
    cluster: Cluster,
    nodes: Vec<String>,
    workload: Workload,
    _reconciler: Reconciler,
}

impl Pool {
    /// Three nodes; none where the test is skipped.
    async fn start(name: &str) -> Option<Self> {
        let (cluster, nodes, reconciler) = pool(3).await;
        if !can_be_set(&cluster).await {
            return None;
        }
        let workload = Workload::new(&cluster, name).await;
        workload.create_daemon_set("agent").await;
        workload.until_running("agent", nodes.len()).await;
        // It was there before the drain, and does not count.
        for node in &nodes {
            set_pressure(&cluster, node, "MemoryPressure", true).await;
        }
        Some(Self { cluster, nodes, workload, _reconciler: reconciler })
    }

    /// Sets whether a node is ill, and returns what the roll says about it.
    async fn set(&self, illness: Illness, node: &str, is_ill: bool) -> String {
        match illness {
            Illness::DiskPressure => {
                set_pressure(&self.cluster, node, "DiskPressure", is_ill).await;
                String::from("it reports DiskPressure")
            }
            Illness::AgentNotReady => {
                let agents = self.workload.until_running("agent", self.nodes.len()).await;
                let agent = agents.iter().find(|pod| node_of(pod) == node).map(Pod::name_any).unwrap();
                set_ready(&self.cluster, &self.workload.pods(), &agent, !is_ill).await;
                format!("the pod of DaemonSet {}/agent is not Ready", self.workload.namespace())
            }
        }
    }

    /// Ends what a node of a shared cluster would keep.
    async fn end(self) {
        for node in &self.nodes {
            set_pressure(&self.cluster, node, "MemoryPressure", false).await;
        }
    }
}

/// The node stays in maintenance while it is ill, and the roll continues by itself when it is not.
async fn check_wait(name: &str, illness: Illness) {
    let Some(pool) = Pool::start(name).await else { return };
    let Pool { cluster, nodes, .. } = &pool;
    let command = WaitingCommand::new();
    let (mut roll, node) = until_command_waits(cluster, name, &nodes[..2], &command, &[]).await;
    let why = pool.set(illness, &node, true).await;
    command.end();
    let waits = roll.until("what it waits for", |line| line["detail"] == why).await;
    assert_eq!((waits["node"].as_str(), waits["step"].as_str()), (Some(&*node), Some("Checking")));
    pool.set(illness, &node, false).await;
    roll.is_done(2).await;
    pool.end().await;
}

/// The roll halts when the time is up, the node stays in maintenance, and no other node begins.
async fn check_halt(name: &str, illness: Illness) {
    let Some(pool) = Pool::start(name).await else { return };
    let Pool { cluster, nodes, .. } = &pool;
    let command = WaitingCommand::new();
    let flags = ["--recovery-timeout", "2s"];
    let (roll, node) = until_command_waits(cluster, name, &nodes[..2], &command, &flags).await;
    let why = pool.set(illness, &node, true).await;
    command.end();
    halts(cluster, name, roll, &command, &format!("node {node} is not healthy after 2s: {why}")).await;
    assert!(is_cordoned(cluster, &node).await, "it is not back in service");
    assert!(!is_cordoned(cluster, other(&nodes[..2], &node)).await, "no other node begins");
    pool.set(illness, &node, false).await;
    continues(cluster, name, &node, &command, 2).await;
    pool.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_new_pressure_stays_in_maintenance_until_the_pressure_ends() {
    check_wait("pressed", Illness::DiskPressure).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_pressure_that_does_not_end_halts() {
    check_halt("full", Illness::DiskPressure).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stays_in_maintenance_until_its_daemon_set_pods_are_ready() {
    check_wait("waiting", Illness::AgentNotReady).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_pod_that_does_not_become_ready_halts() {
    check_halt("unready", Illness::AgentNotReady).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_does_not_recover_halts() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    if !can_be_set(&cluster).await {
        return;
    }
    let workload = Workload::new(&cluster, "guarded").await;
    // Pods without a workload: only their budget is checked.
    for (node, pod) in nodes.iter().zip(["moves", "stays"]) {
        workload.create_pod(node, pod, json!({"metadata": {"labels": {"app": "db"}}})).await;
    }
    workload.until_running("db", 2).await;
    workload.budget("db", 1).await;
    let until_healthy = async |count: i32| {
        let is_counted = |budget: Option<&PodDisruptionBudget>| {
            let status = budget.and_then(|budget| budget.status.as_ref());
            status.is_some_and(|status| status.current_healthy == count)
        };
        wait_until(&workload.budgets(), "db", "its healthy pods are counted", is_counted).await;
    };
    until_healthy(2).await;
    let command = WaitingCommand::new();
    let flags = ["--recovery-timeout", "2s"];
    let (roll, node) = until_command_waits(&cluster, "guarded", &nodes[..1], &command, &flags).await;
    set_ready(&cluster, &workload.pods(), "stays", false).await;
    until_healthy(0).await;
    command.end();
    let budget = format!("PodDisruptionBudget {}/db has 0 of 1 pods healthy", workload.namespace());
    let why = format!("workloads affected by the drain of node {node} are not healthy after 2s: {budget}");
    halts(&cluster, "guarded", roll, &command, &why).await;
    assert!(!is_cordoned(&cluster, &node).await, "it is back in service");
    let explain = plugin(&cluster, &["explain", &node]).await;
    assert!(explain.stdout.contains(&format!("Still not healthy: {budget}.")), "{explain:?}");
    set_ready(&cluster, &workload.pods(), "stays", true).await;
    until_healthy(1).await;
    let status = plugin(&cluster, &["roll", "status", "guarded"]).await;
    let explain = plugin(&cluster, &["explain", &node]).await;
    let over = format!("by now, node {node} and the workloads affected by its drain are healthy\n");
    assert!(status.stdout.contains(&over), "{status:?}");
    let rows = status.stdout.split_once(&over).unwrap().1;
    assert!(!rows.contains(&budget), "what halted it is not shown as if it were so now: {status:?}");
    assert!(explain.stdout.contains("By now, node ") && !explain.stdout.contains("Still not"), "{explain:?}");
    continues(&cluster, "guarded", &node, &command, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_return_to_service_halts() {
    let (cluster, nodes, mut reconciler) = pool(2).await;
    let command = WaitingCommand::new();
    let flags = ["--return-timeout", "4s"];
    let (roll, node) = until_command_waits(&cluster, "kept", &nodes[..1], &command, &flags).await;
    // It releases its lease, so that the next one works at once.
    reconciler.signal("TERM");
    assert_eq!(reconciler.exit_code().await, Some(0));
    command.end();
    let why = format!(
        "node {node} has not returned to service after 4s: waits for nm-reconciler to uncordon the node"
    );
    halts(&cluster, "kept", roll, &command, &why).await;
    assert!(is_cordoned(&cluster, &node).await);
    let deleted = cluster.maintenances().get(&node).await.unwrap();
    assert!(deleted.metadata.deletion_timestamp.is_some(), "it is being deleted");

    let _reconciler = Reconciler::start(&cluster);
    let is_only_kept = |found: Option<&NodeMaintenance>| {
        found.is_some_and(|found| found.finalizers() == ["kubectl-nm.dev/roll"])
    };
    wait_until(&cluster.maintenances(), &node, "in service", is_only_kept).await;
    continues(&cluster, "kept", &node, &command, 1).await;
}
