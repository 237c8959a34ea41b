//! A roll that runs as a program of its own, followed by its lines of JSON.

use std::ffi::OsStr;
use std::path::Path;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{RunningCommand, plugin, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs a pod on each node that a budget does not let go.
pub(super) async fn guarded_pods(cluster: &Cluster, name: &str, nodes: &[String]) -> Workload {
    let workload = Workload::new(cluster, name).await;
    for node in nodes {
        workload.pod_on(node, &guard(node), json!({})).await;
        workload.budget(&guard(node), 1).await;
    }
    workload
}

/// The name of the pod and of the budget on a node.
pub(super) fn guard(node: &str) -> String {
    format!("guarded-{node}")
}

/// A roll whose first node is blocked by a budget for each node. Returns the pods, the roll and that node.
pub(super) async fn blocked(
    cluster: &Cluster,
    name: &str,
    nodes: &[String],
    flags: &[&str],
) -> (Workload, RunningRoll, String) {
    let workload = guarded_pods(cluster, name, nodes).await;
    let mut roll = RunningRoll::begin(cluster, name, nodes, &[&["--run", "true"], flags].concat());
    let node = roll.until_blocked().await;
    (workload, roll, node)
}

/// A cluster of so many nodes, their names, and nm-reconciler, which serves it.
pub(super) async fn pool(nodes: usize) -> (Cluster, Vec<String>, Reconciler) {
    let cluster = Cluster::start(nodes).await;
    let names = cluster.nodes().await;
    let reconciler = Reconciler::start(&cluster);
    (cluster, names, reconciler)
}

/// The node of two that is not this one.
pub(super) fn other<'a>(nodes: &'a [String], node: &str) -> &'a str {
    nodes.iter().find(|other| *other != node).unwrap()
}

/// Changes the JSON in an annotation of the maintenance of a node.
pub(super) async fn change_annotation(
    cluster: &Cluster,
    node: &str,
    annotation: &str,
    change: impl Fn(&mut Value),
) {
    let object = cluster.maintenances().get(node).await.unwrap();
    let mut value = serde_json::from_str(&object.annotations()[annotation]).unwrap();
    change(&mut value);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value.to_string()}}}));
    cluster.maintenances().patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// Ends a roll whatever it does, and returns its nodes to service.
pub(super) async fn abort(cluster: &Cluster, name: &str) {
    let _ = plugin(cluster, &["roll", "abort", name, "--return", "--yes"]).await.ok();
}

/// Makes a pipe: what reads or writes it waits for the other side.
pub(super) fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A `kubectl nm roll` that runs.
pub(super) struct RunningRoll {
    command: RunningCommand,
    /// The lines so far.
    pub(super) lines: Vec<Value>,
    /// The folder with the output of commands.
    pub(super) state: TempDir,
}

impl RunningRoll {
    /// Begins a roll of this name. No node must stay Ready for more than a second.
    pub(super) fn begin(cluster: &Cluster, name: &str, nodes: &[String], flags: &[&str]) -> Self {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let common = ["--name", name, "--min-ready", "1s", "--yes", "-o", "json"];
        Self::start(cluster, &[&["roll"], nodes.as_slice(), &common, flags].concat())
    }

    /// The same with nohup: its terminal may be closed.
    pub(super) fn begin_with_nohup(cluster: &Cluster, name: &str, node: &str, command: &str) -> Self {
        let program = program("kubectl-nm");
        let args = [program.to_str().unwrap(), "roll", node, "--name", name, "--run", command, "-o", "json"];
        let args = [&args[..], &["--min-ready", "1s", "--yes"]].concat();
        Self::start_program("nohup", cluster, &args)
    }

    /// Reads all lines of a roll, all of whose nodes are done in the end.
    pub(super) async fn is_done(&mut self, nodes: usize) {
        assert_eq!(self.end().await, Some(0), "{:#?}", self.lines);
        assert_eq!(self.summary()["done"], nodes, "{:#?}", self.lines);
    }

    /// Interrupts the program as Ctrl-C does, and waits for its end.
    pub(super) async fn interrupt(&mut self) {
        self.signal("INT");
        assert_eq!(self.end().await, Some(130), "{:#?}", self.lines);
    }

    /// Runs `kubectl nm roll resume` for a roll.
    pub(super) fn resume(cluster: &Cluster, name: &str, flags: &[&str]) -> Self {
        Self::start(cluster, &[&["roll", "resume", name, "-o", "json"], flags].concat())
    }

    fn start(cluster: &Cluster, args: &[&str]) -> Self {
        Self::start_program(program("kubectl-nm"), cluster, args)
    }

    fn start_program(program: impl AsRef<OsStr>, cluster: &Cluster, args: &[&str]) -> Self {
        let state = TempDir::new().unwrap();
        let env: [(&str, &Path); 1] = [("XDG_STATE_HOME", state.path())];
        let command = RunningCommand::start_with_env(program, cluster, args, &env);
        Self { command, lines: Vec::new(), state }
    }

    /// Reads lines until one matches, and returns it.
    pub(super) async fn until(&mut self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let Some(line) = self.command.line().await else { panic!("no {what} in {:#?}", self.lines) };
            let line: Value = serde_json::from_str(&line).unwrap();
            self.lines.push(line.clone());
            if matches(&line) {
                return line;
            }
        }
    }

    /// Waits until the drain of a node is blocked, and returns the node.
    pub(super) async fn until_blocked(&mut self) -> String {
        let is_blocked = |line: &Value| line["detail"].as_str().is_some_and(|why| why.starts_with("blocked"));
        self.until("blocked", is_blocked).await["node"].as_str().unwrap().to_owned()
    }

    /// Waits until a node takes this step.
    pub(super) async fn until_step(&mut self, node: &str, step: &str) {
        self.until(&format!("{node} {step}"), |line| line["node"] == node && line["step"] == step).await;
    }

    /// Reads all lines, and returns the exit code.
    pub(super) async fn end(&mut self) -> Option<i32> {
        while let Some(line) = self.command.line().await {
            self.lines.push(serde_json::from_str(&line).unwrap());
        }
        self.command.exit_code().await
    }

    /// The steps of a node so far, each once.
    pub(super) fn steps(&self, node: &str) -> Vec<&str> {
        let of_node = self.lines.iter().filter(|line| line["type"] == "node" && line["node"] == node);
        let mut steps: Vec<&str> = of_node.filter_map(|line| line["step"].as_str()).collect();
        steps.dedup();
        steps
    }

    /// What the command of a node printed.
    pub(super) fn output(&self, node: &str) -> Vec<&str> {
        let output = self.lines.iter().filter(|line| line["type"] == "output" && line["node"] == node);
        output.filter_map(|line| line["text"].as_str()).collect()
    }

    /// The last line about the whole roll.
    pub(super) fn summary(&self) -> &Value {
        self.lines.iter().rfind(|line| line["type"] == "roll").unwrap()
    }

    pub(super) fn signal(&self, name: &str) {
        self.command.signal(name);
    }

    /// Kills the program.
    pub(super) async fn crash(self) {
        self.command.crash().await;
    }
}
