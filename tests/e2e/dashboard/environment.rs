//! The dashboard's environment: terminals of all kinds, credential plugins that prompt, servers that stop responding.

use kube::api::{Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::{RunningCommand, program};
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{CTRL_C, CTRL_U};
use serde_json::json;

use crate::dashboard::setup::with_credential_plugin;

#[tokio::test(flavor = "multi_thread")]
async fn credential_plugins_prompt_before_the_dashboard_opens_and_never_on_it() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "the kubeconfig has to carry a token").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = with_credential_plugin(&cluster, files.path());
    let mut terminal = Terminal::run_plugin(&kubeconfig, &["watch"], &[]);
    terminal.until_shown("Password:").await;
    assert!(!terminal.read_screen(vt100::Screen::alternate_screen));
    terminal.press("open sesame\n");
    terminal.until_live().await;
    terminal.until_shown(node).await;
    assert_eq!(std::fs::read_to_string(files.path().join("known")).unwrap(), "open sesame\n");

    std::fs::write(files.path().join("expired"), "").unwrap();
    terminal.press("r");
    let stale = |screen: &vt100::Screen| {
        let shown = screen.contents();
        shown.contains(" old") && shown.contains("credential program login failed (exit status: 9)")
    };
    terminal.until("a stale dashboard with the reason", stale).await;
    terminal
        .until("the plugin's prompt above the keys", |screen| {
            let shown = screen.contents();
            let said: Vec<&str> = shown.lines().filter(|line| line.contains("Code:")).collect();
            matches!(said[..], [only] if shown.lines().rev().nth(1) == Some(only) && only.contains("login.example"))
        })
        .await;
    terminal.press("?");
    terminal.until_shown("[Esc] close").await;
    assert!(!files.path().join("answers").exists(), "the plugin gets no keys");
    terminal.press("q");

    std::fs::remove_file(files.path().join("expired")).unwrap();
    terminal.press("r");
    terminal.until_live().await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    // The exit summary on standard error.
    terminal.until_shown("kubectl nm watch").await;
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_is_stale_while_the_server_does_not_respond() {
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    let flags = ["--nodes", "1", "--pods", "0", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut server = RunningCommand::sandbox(&flags);
    server.line().await.expect("the sandbox starts");
    let mut terminal = Terminal::run_plugin(&kubeconfig, &["watch"], &[]);
    terminal.until_live().await;
    // The connections stay open: only the missing responses show that the server does not run.
    server.signal("STOP");
    let stale = |screen: &vt100::Screen| {
        let shown = screen.contents();
        shown.contains(" old") && shown.contains("Disconnected") && !shown.contains("live")
    };
    terminal.until("a stale dashboard", stale).await;
    server.signal("CONT");
    terminal.until_live().await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_colors_the_selected_row_is_reversed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    for (args, env) in [(&["watch"][..], &[("NO_COLOR", "1")][..]), (&["watch", "--color", "never"], &[])] {
        let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), args, env);
        terminal.until_live().await;
        let row = |screen: &vt100::Screen| screen.contents().lines().position(|line| line.contains(node));
        terminal.until("the node's row", |screen| row(screen).is_some()).await;
        terminal.read_screen(|screen| {
            let selected = u16::try_from(row(screen).unwrap()).unwrap();
            let (rows, columns) = screen.size();
            for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                let cell = screen.cell(y, x).unwrap();
                // The title and the heads of tables are reversed too.
                let is_row = y == selected;
                assert!(cell.inverse() || !is_row, "{args:?} {y} {x} {}", screen.contents());
                let colors = (cell.fgcolor(), cell.bgcolor());
                assert_eq!(colors, (vt100::Color::Default, vt100::Color::Default), "{args:?} {y} {x}");
            }
        });
        terminal.press("q");
        assert_eq!(terminal.exit_code().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_copied_to_the_clipboard() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    // A drained node has no command to copy, so its row is copied.
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    cluster.maintenances().patch_status(node, &PatchParams::default(), &done).await.unwrap();
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;
    terminal.until_shown("Drained").await;
    terminal.press("c");
    terminal.until_shown("copied: ").await;
    let copied = terminal.copied();
    assert!(copied.starts_with(&format!("{node} Drained")), "{copied}");
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_lost_while_the_terminal_is_resized() {
    const ROWS: u16 = 60;
    const COLUMNS: u16 = 220;
    let cluster = Cluster::start(1).await;
    let env = [("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())];
    let mut terminal = Terminal::run(&program("kubectl-nm"), &["watch"], &env, ROWS, COLUMNS);
    terminal.until_live().await;
    terminal.press("/");
    let until_typed = async |text: &str| {
        let typed = format!("filter: {text}\u{258f}");
        let is_last =
            |screen: &vt100::Screen| screen.rows(0, COLUMNS).last().is_some_and(|line| line.contains(&typed));
        terminal.until("all typed characters", is_last).await;
    };
    // Lost keys are rare: one round may pass by chance.
    for _ in 0..12 {
        for key in 1..=150 {
            terminal.report_size(1 + key * 7 % ROWS, 1 + key * 31 % COLUMNS);
            terminal.press("x");
        }
        terminal.report_size(ROWS, COLUMNS);
        until_typed(&"x".repeat(150)).await;
        terminal.press(CTRL_U);
        until_typed("").await;
    }
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit_code().await, 130);
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dumb_terminal_gets_lines_instead_of_a_dashboard() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[("TERM", "dumb")]);
    let shown = terminal.until_shown("Requested").await;
    assert!(shown.contains(node) && !terminal.read_screen(vt100::Screen::alternate_screen), "{shown}");
    terminal.press(CTRL_C);
    assert_eq!(terminal.exit_code().await, 130);
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_uses_only_ascii_where_the_locale_has_nothing_else() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[("LC_ALL", "C")]);
    terminal.until_live().await;
    let screen = terminal.until_shown(node).await;
    assert!(screen.is_ascii(), "{screen}");
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
}
