//! `kubectl nm roll` in a terminal: its dashboard shows the nodes and the output of commands, and is controlled by keys.

use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::CTRL_C;
use nm_tests::wait::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_is_watched_paused_continued_and_left() {
    let cluster = Cluster::of_sandbox(2, 4, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let logs = tempfile::tempdir().unwrap();
    let env = [("XDG_STATE_HOME", logs.path().to_str().unwrap())];
    let command = ["--run", "echo hello from {}", "--name", "kernel", "--reason", "kernel 6.12", "--yes"];
    // The first node takes half a minute to be healthy: nothing ends before the keys are pressed.
    let args = [&["roll", &nodes[0], &nodes[1]], &command[..]].concat();
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &args, &env);
    let screen = terminal.until_shown(&format!("hello from {}", nodes[0])).await;
    let log = format!("kubectl-nm/roll/kernel/{}.log", nodes[0]);
    for shown in [
        "nm roll kernel",
        "kernel 6.12",
        "0/2 nodes done",
        "run by",
        "started ",
        "1 node at a time",
        "runs echo hello from {}",
        &log,
        "WAVE",
        "Planned",
    ] {
        assert!(screen.contains(shown), "no {shown:?} in:\n{screen}");
    }
    terminal.until_shown("Checking").await;

    terminal.press("p");
    terminal.until_shown("[p] continue").await;
    wait_until(&cluster.maintenances(), &nodes[1], "in a paused roll", |found| {
        found
            .is_some_and(|object| format!("{:?}", object.metadata.annotations).contains(r#"\"paused\":true"#))
    })
    .await;
    terminal.press("p");
    terminal.until_shown("working").await;

    terminal.press("q");
    terminal.until_shown("Leaving stops the roll").await;
    terminal.press("y");
    assert_eq!(terminal.exit_code().await, 130);
    let last = "kubectl nm roll resume kernel";
    terminal.until(last, |screen| !screen.alternate_screen() && screen.contents().contains(last)).await;
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
    assert_eq!(cluster.maintenances().list(&kube::api::ListParams::default()).await.unwrap().items.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_drained_node_is_confirmed_by_a_key() {
    let cluster = Cluster::of_sandbox(2, 4, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let args = ["roll", &nodes[0], &nodes[1], "--confirm", "--yes", "--min-ready", "0s", "--name", "kernel"];
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &args, &[]);
    terminal.until_shown(&format!("{} is drained. Continue with it?", nodes[0])).await;
    terminal.press("y");
    terminal.until_shown(&format!("{} is drained. Continue with it?", nodes[1])).await;
    terminal.press("n");
    assert_eq!(terminal.exit_code().await, 3);
    let screen = terminal.until_shown(&format!("node/{} Done", nodes[0])).await;
    assert!(screen.contains("was not confirmed"), "{screen}");
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());

    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["roll", "resume", "kernel"], &[]);
    let screen = terminal.until_shown(&format!("{} is drained. Continue with it?", nodes[1])).await;
    assert!(screen.contains("1 done before"), "{screen}");
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit_code().await, 130);
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}
