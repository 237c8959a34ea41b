//! Waits on a terminal with job control: in the background they keep running, and they do not read the keys.

use std::path::Path;

use nm_tests::cluster::Cluster;
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::CTRL_Z;
use nm_tests::workload::Workload;
use serde_json::json;

/// bash with these arguments, the plugin on its `PATH`, and the cluster in `KUBECONFIG`.
fn shell(cluster: &Cluster, args: &[&str]) -> Terminal {
    let folder = program("kubectl-nm").parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let kubeconfig = cluster.kubeconfig().to_str().unwrap();
    let env = [("KUBECONFIG", kubeconfig), ("PATH", &path), ("PS1", "prompt> "), ("HISTFILE", "")];
    Terminal::run(Path::new("/bin/bash"), args, &env, 24, 100)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_the_background_is_not_stopped_by_the_terminal() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "background").await;
    workload.pod_on(node, "bare", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    // `set -m` gives each job a process group of its own, as in an interactive shell. A question would stop the job.
    let line = format!("set -m; kubectl-nm start {node} --wait & wait $!; echo code=$?.");
    let terminal = shell(&cluster, &["-c", &line]);
    let screen = terminal.until_shown("code=").await;
    assert!(screen.contains("code=0."), "{screen}");
    assert!(screen.contains("no controller replaces 1 pod"), "{screen}");
    assert!(screen.contains(&format!("node/{node} drained")), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_continues_in_the_background_after_ctrl_z() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let terminal = shell(&cluster, &["--norc", "--noprofile", "-i"]);
    terminal.until_shown("prompt>").await;
    terminal.press(&format!("kubectl-nm start {node} --wait -y\n"));
    terminal.until_shown("maintenance started").await;
    terminal.press(CTRL_Z);
    terminal.until_shown("Stopped").await;
    terminal.press("bg; clear\n");
    terminal.until("an empty screen", |screen| !screen.contents().contains("Stopped")).await;
    // This hint appears after five seconds.
    terminal.until_shown("nm-reconciler has not started the maintenance after").await;
    terminal.press("jobs\n");
    let screen = terminal.until_shown("[1]").await;
    assert!(screen.contains("Running"), "{screen}");
    terminal.press("fg\n");
    let _reconciler = Reconciler::start(&cluster);
    terminal.until_shown(&format!("node/{node} drained")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_typed_during_a_wait_are_left_to_the_shell() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let line = format!("kubectl-nm start {node} --wait -y; read line; echo read=$line.");
    let terminal = shell(&cluster, &["-c", &line]);
    terminal.until_shown("maintenance started").await;
    terminal.press("typed ahead\n");
    let _reconciler = Reconciler::start(&cluster);
    terminal.until_shown(&format!("node/{node} drained")).await;
    terminal.until_shown("read=typed ahead.").await;
}
