//! The configuration of the dashboard and its filters, in a terminal.

use std::path::Path;

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::plugin;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{ENTER, ESCAPE};

use crate::dashboard::setup::quit;

fn dashboard(cluster: &Cluster, home: &Path) -> Terminal {
    let env = [("HOME", home.to_str().unwrap()), ("XDG_CONFIG_HOME", "")];
    let terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &env);
    terminal.resize(30, 140);
    terminal
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_reported_with_its_file_and_line_and_stops_nothing() {
    let cluster = Cluster::start(1).await;
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config").join("kubectl-nm");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.toml");
    std::fs::write(&file, "theme = \"dark\"\n[columns]\nnodes = [\"node\", \"size\"]\n").unwrap();
    let terminal = dashboard(&cluster, home.path());
    let place = format!("{}:3: unknown column \"size\"", file.display());
    terminal.until_live().await;
    let shown = |screen: &vt100::Screen| screen.contents().replace('\n', " ");
    terminal
        .until("the mistake in the dashboard", |screen| shown(screen).contains(":3: unknown column"))
        .await;
    terminal.press("?");
    terminal.until_shown("[Esc] close").await;
    terminal.press(ESCAPE);
    terminal.until("no help", |screen| !screen.contents().contains("[Esc] close")).await;
    let mut terminal = terminal;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    let said = terminal.until_shown("hint:").await.replace('\n', "");
    assert!(said.contains(&format!("warning: {place}")) && said.contains("cordoned-by"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_home_the_dashboard_works() {
    let cluster = Cluster::start(1).await;
    // A path that is not absolute is no home.
    let terminal = dashboard(&cluster, Path::new("."));
    terminal.until_live().await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_take_expressions() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    for node in &nodes {
        start(&cluster, node, node).await;
    }
    let (first, last) = (&nodes[0], &nodes[2]);
    let home = tempfile::tempdir().unwrap();
    let terminal = dashboard(&cluster, home.path());
    terminal.until_live().await;
    terminal.until_shown(last).await;
    terminal.press(&format!("/!/{last}$/"));
    terminal.press(ENTER);
    terminal
        .until("all but the last node", |screen| {
            screen.contents().contains(&format!(" of {} nodes: !/", nodes.len()))
                && screen.contents().contains(first.as_str())
        })
        .await;
    terminal.press(ESCAPE);
    let filtered = format!(" of {} nodes:", nodes.len());
    terminal.until("all nodes", |screen| !screen.contents().contains(&filtered)).await;
    terminal.press("/node:/(");
    terminal.until_shown("unclosed group").await;
    terminal.press(ESCAPE);
    terminal.until("no filter", |screen| !screen.contents().contains("filter: ")).await;
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_show_the_reason_and_the_creator() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let started = plugin(&cluster, &["start", node, "--reason", "INC-4711"]).await;
    assert_eq!(started.code, Some(0), "{}", started.stderr);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config").join("kubectl-nm");
    std::fs::create_dir_all(&folder).unwrap();
    let columns = "[columns]\nmaintenances = [\"node\", \"reason\", \"creator\"]\n";
    std::fs::write(folder.join("config.toml"), columns).unwrap();
    let terminal = dashboard(&cluster, home.path());
    terminal.until_live().await;
    terminal
        .until("the reason and the creator", |screen| {
            let row = screen.contents().lines().find(|line| line.contains("INC-4711")).map(str::to_owned);
            row.is_some_and(|row| row.contains(node.as_str()) && row.contains("kubectl-nm"))
        })
        .await;
    quit(terminal).await;
}
