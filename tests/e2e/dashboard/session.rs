//! `kubectl nm watch` in a terminal: controlled by keys, and the terminal is restored however it exits.

use std::path::PathBuf;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_shared::api::names::EXCLUDE_LABEL;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::nodes::configuration;
use nm_tests::programs::program;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::until_requests;
use nm_tests::skip::skipped;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{CTRL_C, CTRL_Z, ENTER, ESCAPE, F12};
use nm_tests::wait::{TEST_TIMEOUT, wait_until};
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

use crate::dashboard::setup::confirm_plan;

/// What makes the dashboard exit.
type Exit = fn(&Terminal);

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_returned_to_service_by_keys() {
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "keys").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let before = cluster.node(&node).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;

    terminal.press("n");
    terminal.press(&node);
    // Before the plan is made.
    terminal.press(ENTER);
    let screen = terminal.until_shown("[Enter] start anyway").await;
    assert!(screen.contains("never leaves: "), "{screen}");
    assert!(cluster.maintenances().get_opt(&node).await.unwrap().is_none(), "it is harmed, and not started");
    terminal.press(ENTER);
    terminal.until_shown("Blocked").await;
    terminal.press(ENTER);
    terminal.until(&format!("the pods of {node}"), |screen| screen.contents().contains("cart-")).await;
    for (rows, columns) in [(6, 30), (20, 45), (50, 200), (24, 100)] {
        terminal.resize(rows, columns);
        let what = format!("a screen of {columns} columns");
        terminal.until(&what, |screen| is_drawn_for(screen, &node, columns)).await;
    }
    workload.delete_budget("cart").await;
    terminal.until_shown("Drained").await;

    terminal.press("x");
    terminal.press(ENTER);
    terminal
        .until(&format!("{node} is back in service"), |screen| !screen.contents().contains("Drained"))
        .await;
    wait_until(&cluster.maintenances(), &node, "gone", |found| found.is_none()).await;
    assert_eq!(configuration(&cluster.node(&node).await), configuration(&before));
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

/// Whether the view of a node is drawn for exactly this size. An emulator keeps what was drawn for the previous size.
fn is_drawn_for(screen: &vt100::Screen, node: &str, columns: u16) -> bool {
    let lines: Vec<String> = screen.rows(0, columns).map(|line| line.trim_end().to_owned()).collect();
    let header = lines.first().expect("a screen has lines");
    header.ends_with("live ●")
        && header.contains(node)
        && header.chars().count() == usize::from(columns) - 1
        && lines.last().is_some_and(|keys| keys.replace(' ', "").contains("[q]quit"))
        && lines.iter().any(|line| line.contains("NAMESPACE/POD"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_restored_however_the_dashboard_exits() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let end: [(&str, u32, Exit); 5] = [
        ("q", 0, |terminal| terminal.press("q")),
        ("Ctrl-C", 130, |terminal| terminal.press(CTRL_C)),
        ("SIGTERM", 130, |terminal| terminal.signal("TERM")),
        ("SIGHUP", 130, |terminal| terminal.signal("HUP")),
        ("a panic", 101, |terminal| terminal.press(F12)),
    ];
    let env = [("KUBECTL_NM_PANIC_ON_F12", "1"), ("RUST_BACKTRACE", "0")];
    for (how, code, end) in end {
        let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &env);
        terminal.until_live().await;
        end(&terminal);
        assert_eq!(terminal.exit_code().await, code, "{how}");
        let last = if how == "a panic" { "F12, as asked" } else { "kubectl nm watch" };
        terminal.until(last, |screen| !screen.alternate_screen() && screen.contents().contains(last)).await;
        assert_eq!(terminal.unrestored_modes(), Vec::<String>::new(), "{how}");
    }
    assert!(cluster.maintenances().get_opt(node).await.unwrap().is_some(), "the maintenance continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_restores_the_terminal_and_fg_resumes_the_dashboard() {
    let shell = PathBuf::from("/bin/bash");
    if !shell.exists() {
        skipped("no bash to stop a job in");
        return;
    }
    let cluster = Cluster::start(1).await;
    let env = [
        ("KUBECONFIG", cluster.kubeconfig().to_str().unwrap()),
        ("PS1", "shell> "),
        // Otherwise bash on macOS prints a notice.
        ("BASH_SILENCE_DEPRECATION_WARNING", "1"),
    ];
    let args = ["--norc", "--noprofile", "--noediting", "-i"];
    let mut terminal = Terminal::run(&shell, &args, &env, 24, 100);
    terminal.until_shown("shell>").await;
    terminal.press(&format!("{} watch\n", program("kubectl-nm").display()));
    terminal.until_live().await;
    for times in 1..3 {
        terminal.press(CTRL_Z);
        // The shell prints this whenever it has the terminal again.
        let stopped = |screen: &vt100::Screen| screen.contents().matches("Stopped").count() == times;
        terminal.until("the shell", |screen| !screen.alternate_screen() && stopped(screen)).await;
        assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
        terminal.press("fg\n");
        terminal.until_live().await;
    }
    terminal.press("q");
    // Keys pressed before the shell's prompt would go to the dashboard.
    let prompts = |screen: &vt100::Screen| screen.contents().trim_end().ends_with("shell>");
    terminal.until("the shell", |screen| !screen.alternate_screen() && prompts(screen)).await;
    terminal.press("exit 7\n");
    assert_eq!(terminal.exit_code().await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_view_watches_the_selected_node_too_and_opening_it_requests_nothing_else() {
    let cluster = Cluster::of_sandbox(2, 8, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.add_user("viewer", &["system:masters"])).unwrap();
    let requested = || {
        let requests = sandbox.requests().all();
        let ours = requests.into_iter().filter(|request| request.user == "viewer");
        let mut requested: Vec<String> = ours
            .map(|request| {
                let form = if request.metadata_only { "metadata" } else { "whole" };
                let selected = [request.namespace, request.field_selector, request.label_selector];
                let part: Vec<String> = selected.into_iter().filter(|part| !part.is_empty()).collect();
                format!("{} {form} {} {}", request.verb, request.resource, part.join(" "))
            })
            .collect();
        requested.sort();
        requested.dedup();
        requested.iter().map(|requested| requested.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let until_requested = async |expected: &[String]| {
        let enough = sandbox.requests().until(|_| requested().len() >= expected.len());
        // After a timeout the comparison shows what is missing.
        let _ = tokio::time::timeout(TEST_TIMEOUT, enough).await;
        assert_eq!(requested(), expected);
    };
    let watches = |resource: &str| sandbox.faults().open_watches(&Target::any().resource(resource));
    let before = ["pods", "events"].map(watches);

    let mut terminal = Terminal::run_plugin(&kubeconfig, &["watch"], &[]);
    terminal.until_live().await;
    terminal.until_shown(node).await;
    let both = |what: &str| ["list", "watch"].map(|verb| format!("{verb} {what}"));
    let in_maintenance = format!("whole nodes {EXCLUDE_LABEL}=true");
    let fleet = ["whole nodemaintenances", "metadata nodes", &in_maintenance].map(both).concat();
    let on_node = format!("whole pods spec.nodeName={node}");
    let about_node = format!("whole events default regarding.name={node}");
    let mut all = [fleet, both(&on_node).to_vec(), both(&about_node).to_vec()].concat();
    // Which of the older groups are served.
    all.push("get whole /apis".to_owned());
    // Whether a reconciler leads.
    let ours =
        "list whole deployments app.kubernetes.io/name=kubectl-nm,app.kubernetes.io/component=reconciler";
    all.extend(
        ["list whole leases metadata.name=nm-reconciler", "list whole deployments", ours].map(str::to_owned),
    );
    all.sort();
    until_requested(&all).await;
    assert_eq!(["pods", "events"].map(watches), before.map(|count| count + 1));

    terminal.press(ENTER);
    terminal.until_shown("NAMESPACE/POD").await;
    terminal.until_live().await;
    terminal.press(ESCAPE);
    // Without this wait the two keys would be Alt-q.
    terminal.until_shown("WHY").await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    assert_eq!(requested(), all, "no further requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_is_stale_while_the_connection_is_lost() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;
    sandbox.server_down().await;
    terminal
        .until("a stale dashboard", |screen| {
            let shown = screen.contents();
            shown.contains(" old") && !shown.contains("live")
        })
        .await;
    sandbox.server_up().await.unwrap();
    terminal.until_live().await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_a_terminal_leaves_its_lines_in_the_scrollback() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["start", node, "--wait", "-y"], &[]);
    terminal.until_shown(&format!("node/{node} drained")).await;
    assert_eq!(terminal.exit_code().await, 0);
    let screen = terminal.screen();
    assert!(screen.contains(&format!("node/{node} maintenance started")), "{screen}");
    assert!(
        screen.contains(&format!("node/{node} drained: no pods had to move when the drain started")),
        "{screen}"
    );
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_a_terminal_that_fails_reports_why() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let faults = cluster.sandbox().unwrap().faults();
    let watches = Target::any().verb("watch").resource("nodemaintenances");
    let mut terminal =
        Terminal::run_plugin(cluster.kubeconfig(), &["start", node, "--wait", "--no-plan"], &[]);
    until_requests(cluster.sandbox().unwrap(), 1, "a wait", |entry| {
        entry.verb == "watch" && entry.resource == "nodemaintenances"
    })
    .await;
    faults.add(Rule::new(watches.clone(), Action::Fail(Failure::Unauthorized, Moment::BeforeEffect)));
    faults.end_watches(&watches, 0);
    assert_eq!(terminal.exit_code().await, 1);
    let screen = terminal.until_shown("log in again").await;
    assert!(screen.contains("You must be logged in to the server"), "{screen}");
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_refused_after_the_dashboard_was_left_is_still_reported() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let faults = cluster.sandbox().unwrap().faults();
    let creations = Target::any().verb("create").resource("nodemaintenances");
    faults.add(Rule::new(creations.clone(), Action::Delay(Duration::from_secs(2))));
    faults.add(Rule::new(creations, Action::Fail(Failure::Forbidden, Moment::BeforeEffect)));
    let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), &["watch"], &[]);
    terminal.until_live().await;
    terminal.press("n");
    terminal.press(node);
    terminal.until_shown("start 1 node").await;
    confirm_plan(&terminal).await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 1);
    let screen = terminal.until_shown("may not create nodemaintenances").await;
    assert!(screen.contains(node) && screen.contains("waiting for"), "{screen}");
    assert_eq!(terminal.unrestored_modes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_with_a_goal_exits_with_its_code_and_reports_the_result() {
    let cluster = Cluster::start(2).await;
    let [drained, failed] = &cluster.nodes().await[..2] else { panic!("two nodes") };
    let patch_status = async |node: &str, status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        cluster.maintenances().patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    };
    for node in [drained, failed] {
        start(&cluster, node, node).await;
    }
    let exits = async |args: &[&str], code: u32, text: &str, change: Option<(&str, Value)>| {
        let mut terminal = Terminal::run_plugin(cluster.kubeconfig(), args, &[]);
        if let Some((node, status)) = change {
            terminal.until_live().await;
            patch_status(node, status).await;
        }
        assert_eq!(terminal.exit_code().await, code, "{args:?}");
        terminal.until(text, |screen| !screen.alternate_screen() && screen.contents().contains(text)).await;
        assert_eq!(terminal.unrestored_modes(), Vec::<String>::new(), "{args:?}");
    };
    for args in [
        &["watch", "--timeout", "1s"][..],
        &["watch", "--until", "stopped", "--timeout", "1s"],
        &["watch", "--exit-on-complete", "--timeout", "1s"],
        &["watch", "--output", "lines", "--timeout", "1s"],
    ] {
        exits(args, 124, "timed out after 1s", None).await;
    }
    let succeeded = json!({"phase": "Succeeded"});
    let said = format!("node/{drained} drained");
    exits(&["watch", drained, "--until", "drained"], 0, &said, Some((drained, succeeded))).await;
    let timed_out = json!({"phase": "Failed", "lastError": "no time left"});
    exits(&["watch", "--exit-on-complete"], 3, "no time left", Some((failed, timed_out))).await;
    exits(&["watch", failed, "--until", "drained"], 3, "the maintenance failed: no time left", None).await;
}
