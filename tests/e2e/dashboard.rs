//! `kubectl nm watch` in a terminal: driven by keys alone, and gone without a trace however it ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use nm_tests::cluster::Cluster;
use nm_tests::programs::{program, skipped};
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

use crate::{configuration, start};

/// Keys as a terminal sends them.
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
pub(crate) const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const F12: &str = "\x1b[24~";

/// What makes a dashboard end.
type End = fn(&Terminal);

/// The plugin in a terminal of 24 rows and 100 columns.
pub(crate) fn plugin(kubeconfig: &Path, args: &[&str], env: &[(&str, &str)]) -> Terminal {
    let kubeconfig = kubeconfig.to_str().unwrap();
    let env = [&[("KUBECONFIG", kubeconfig)], env].concat();
    Terminal::run(&program("kubectl-nm"), args, &env, 24, 100)
}

/// Waits until the dashboard has the screen and says that what it shows is so now.
pub(crate) async fn live(terminal: &Terminal) {
    terminal
        .until("a live dashboard", |screen| screen.alternate_screen() && screen.contents().contains("live"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_given_back_by_keys_alone() {
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "keys").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let before = cluster.node(&node).await;
    let _reconciler = Reconciler::start(&cluster);
    let mut terminal = plugin(cluster.kubeconfig(), &["watch"], &[]);
    live(&terminal).await;

    terminal.press("n");
    terminal.press(&node);
    terminal.until_shown(&node).await;
    terminal.press(ENTER);
    terminal.until_shown("Blocked").await;
    terminal.press(ENTER);
    terminal.until(&format!("the pods of {node}"), |screen| screen.contents().contains("cart-")).await;
    for (rows, columns) in [(6, 30), (20, 45), (50, 200), (24, 100)] {
        terminal.resize(rows, columns);
        let what = format!("a screen of {columns} columns");
        terminal.until(&what, |screen| is_drawn_for(screen, &node, rows, columns)).await;
    }
    workload.free("cart").await;
    terminal.until_shown("Drained").await;

    terminal.press("x");
    terminal.press(ENTER);
    terminal
        .until(&format!("{node} to return to service"), |screen| !screen.contents().contains("Drained"))
        .await;
    until(&cluster.maintenances(), &node, "gone", |found| found.is_none()).await;
    assert_eq!(configuration(&cluster.node(&node).await), configuration(&before));
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    assert_eq!(terminal.left_behind().await, Vec::<String>::new());
}

/// Whether the view of a node is on the screen as it is drawn for this size and no other: an emulator keeps what was
/// drawn for the size before.
fn is_drawn_for(screen: &vt100::Screen, node: &str, rows: u16, columns: u16) -> bool {
    let lines: Vec<String> = screen.rows(0, columns).map(|line| line.trim_end().to_owned()).collect();
    let (header, rest) = lines.split_first().expect("a screen has lines");
    if rows < 8 {
        return header.starts_with(node) && rest.iter().all(String::is_empty);
    }
    header.ends_with("live ●")
        && header.chars().count() == usize::from(columns) - 1
        && lines.last().is_some_and(|keys| keys.contains("[q]quit"))
        && lines.iter().any(|line| line.contains("NAMESPACE/POD")) == (columns >= 50)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_as_it_was_however_the_dashboard_ends() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let end: [(&str, u32, End); 5] = [
        ("q", 0, |terminal| terminal.press("q")),
        ("Ctrl-C", 130, |terminal| terminal.press(CTRL_C)),
        ("SIGTERM", 130, |terminal| terminal.signal("TERM")),
        ("SIGHUP", 130, |terminal| terminal.signal("HUP")),
        ("a panic", 101, |terminal| terminal.press(F12)),
    ];
    let env = [("KUBECTL_NM_PANIC_ON_F12", "1"), ("RUST_BACKTRACE", "0")];
    for (how, code, end) in end {
        let mut terminal = plugin(cluster.kubeconfig(), &["watch"], &env);
        live(&terminal).await;
        end(&terminal);
        assert_eq!(terminal.exit_code().await, code, "{how}");
        let last = if how == "a panic" { "F12, as asked" } else { "kubectl nm watch" };
        terminal.until(last, |screen| !screen.alternate_screen() && screen.contents().contains(last)).await;
        assert_eq!(terminal.left_behind().await, Vec::<String>::new(), "{how}");
    }
    assert!(cluster.maintenances().get_opt(node).await.unwrap().is_some(), "leaving ends no maintenance");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_gives_it_back() {
    let shell = PathBuf::from("/bin/bash");
    if !shell.exists() {
        skipped("no bash to stop a job in");
        return;
    }
    let cluster = Cluster::start(1).await;
    let env = [
        ("KUBECONFIG", cluster.kubeconfig().to_str().unwrap()),
        ("PS1", "shell> "),
        // What a shell asks for itself is none of ours.
        ("BASH_SILENCE_DEPRECATION_WARNING", "1"),
    ];
    let args = ["--norc", "--noprofile", "--noediting", "-i"];
    let mut terminal = Terminal::run(&shell, &args, &env, 24, 100);
    terminal.until_shown("shell>").await;
    terminal.press(&format!("{} watch\n", program("kubectl-nm").display()));
    live(&terminal).await;
    for times in 1..3 {
        terminal.press(CTRL_Z);
        // The shell says so when it has the terminal again, each time anew.
        let stopped = |screen: &vt100::Screen| screen.contents().matches("Stopped").count() == times;
        terminal.until("the shell", |screen| !screen.alternate_screen() && stopped(screen)).await;
        assert_eq!(terminal.left_behind().await, Vec::<String>::new());
        terminal.press("fg\n");
        live(&terminal).await;
    }
    terminal.press("q");
    // What is typed before its prompt is still the dashboard's.
    let prompts = |screen: &vt100::Screen| screen.contents().trim_end().ends_with("shell>");
    terminal.until("the shell", |screen| !screen.alternate_screen() && prompts(screen)).await;
    terminal.press("exit 7\n");
    assert_eq!(terminal.exit_code().await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_two_watches_and_an_open_node_two_more() {
    let cluster = Cluster::of_sandbox(2, 8, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sandbox.add_user("onlooker", &["system:masters"])).unwrap();
    let asked = || {
        let requests = sandbox.requests().all();
        let ours = requests.into_iter().filter(|request| request.user == "onlooker");
        let mut asked: Vec<String> = ours
            .map(|request| {
                let form = if request.metadata_only { "metadata" } else { "whole" };
                let part = format!("{} {}", request.namespace, request.field_selector);
                format!("{} {form} {} {}", request.verb, request.resource, part.trim())
            })
            .collect();
        asked.sort();
        asked.dedup();
        asked.iter().map(|asked| asked.trim_end().to_owned()).collect::<Vec<_>>()
    };
    let until_asked = async |expected: &[String]| {
        let enough = sandbox.requests().until(|_| asked().len() >= expected.len());
        // Whether it was in time or not: this is what there is to be.
        let _ = tokio::time::timeout(PATIENCE, enough).await;
        assert_eq!(asked(), expected);
    };
    let watches = |resource: &str| sandbox.faults().open_watches(&Target::any().resource(resource));
    let before = ["pods", "events"].map(watches);

    let mut terminal = plugin(&kubeconfig, &["watch"], &[]);
    live(&terminal).await;
    terminal.until_shown(node).await;
    let both = |what: &str| ["list", "watch"].map(|verb| format!("{verb} {what}"));
    let mut fleet = ["whole nodemaintenances", "metadata nodes"].map(both).concat();
    fleet.sort();
    until_asked(&fleet).await;

    terminal.press(ENTER);
    let on_node = format!("whole pods spec.nodeName={node}");
    let about_node = format!("whole events default regarding.name={node}");
    let mut open = [fleet, both(&on_node).to_vec(), both(&about_node).to_vec()].concat();
    open.sort();
    until_asked(&open).await;
    assert_eq!(["pods", "events"].map(watches), before.map(|count| count + 1));

    terminal.press(ESCAPE);
    // Without the wait the two would be Alt-q.
    terminal.until_shown("WHY").await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
    assert_eq!(asked(), open, "and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_makes_the_picture_stale_until_it_is_back() {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    let sandbox = cluster.sandbox().unwrap();
    let mut terminal = plugin(cluster.kubeconfig(), &["watch"], &[]);
    live(&terminal).await;
    sandbox.server_down().await;
    terminal
        .until("a stale picture", |screen| {
            let shown = screen.contents();
            shown.contains("STALE") && !shown.contains("live")
        })
        .await;
    sandbox.server_up().await.unwrap();
    live(&terminal).await;
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_a_terminal_leaves_its_story_in_the_scrollback() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let _reconciler = Reconciler::start(&cluster);
    let mut terminal = plugin(cluster.kubeconfig(), &["start", node, "--wait"], &[]);
    terminal.until_shown(&format!("node/{node} drained")).await;
    assert_eq!(terminal.exit_code().await, 0);
    let screen = terminal.screen();
    assert!(screen.contains(&format!("node/{node} maintenance started")), "{screen}");
    assert!(screen.contains("Drained: "), "{screen}");
    assert!(!screen.contains("[####"), "the live lines are gone: {screen}");
    assert_eq!(terminal.left_behind().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_a_terminal_that_cannot_go_on_says_why_and_takes_its_lines_away() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let faults = cluster.sandbox().unwrap().faults();
    let watches = Target::any().verb("watch").resource("nodemaintenances");
    let mut terminal = plugin(cluster.kubeconfig(), &["start", node, "--wait"], &[]);
    terminal.until_shown("[-----").await;
    faults.add(Rule::new(watches.clone(), Action::Fail(Failure::Unauthorized, Moment::BeforeEffect)));
    faults.end_watches(&watches, 0);
    assert_eq!(terminal.exit_code().await, 1);
    let screen = terminal.until_shown("log in again").await;
    assert!(screen.contains("You must be logged in to the server"), "{screen}");
    assert!(!screen.contains("[-----"), "the live lines are gone: {screen}");
    assert_eq!(terminal.left_behind().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_refused_after_its_asker_has_left_is_told_all_the_same() {
    let cluster = Cluster::of_sandbox(1, 0, |sandbox| sandbox).await;
    let node = &cluster.nodes().await[0];
    let faults = cluster.sandbox().unwrap().faults();
    let creations = Target::any().verb("create").resource("nodemaintenances");
    faults.add(Rule::new(creations.clone(), Action::Delay(Duration::from_secs(2))));
    faults.add(Rule::new(creations, Action::Fail(Failure::Forbidden, Moment::BeforeEffect)));
    let mut terminal = plugin(cluster.kubeconfig(), &["watch"], &[]);
    live(&terminal).await;
    terminal.press("n");
    terminal.press(node);
    terminal.until_shown("start 1 node").await;
    terminal.press(ENTER);
    terminal.press("q");
    assert_eq!(terminal.exit_code().await, 1);
    let screen = terminal.until_shown("(Forbidden)").await;
    assert!(screen.contains(node) && screen.contains("waiting for"), "{screen}");
    assert_eq!(terminal.left_behind().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_with_an_end_in_view_ends_with_its_code_and_a_word() {
    let cluster = Cluster::start(2).await;
    let [drained, failed] = &cluster.nodes().await[..2] else { panic!("two nodes") };
    let play = async |node: &str, status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        cluster.maintenances().patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    };
    for node in [drained, failed] {
        start(&cluster, node, node).await;
    }
    let ends = async |args: &[&str], code: u32, word: &str, change: Option<(&str, Value)>| {
        let mut terminal = plugin(cluster.kubeconfig(), args, &[]);
        if let Some((node, status)) = change {
            live(&terminal).await;
            play(node, status).await;
        }
        assert_eq!(terminal.exit_code().await, code, "{args:?}");
        terminal.until(word, |screen| !screen.alternate_screen() && screen.contents().contains(word)).await;
        assert_eq!(terminal.left_behind().await, Vec::<String>::new(), "{args:?}");
    };
    for args in [
        &["watch", "--timeout", "1s"][..],
        &["watch", "--until", "stopped", "--timeout", "1s"],
        &["watch", "--exit-on-complete", "--timeout", "1s"],
        &["watch", "--output", "lines", "--timeout", "1s"],
    ] {
        ends(args, 124, "timed out after 1s", None).await;
    }
    let succeeded = json!({"phase": "Succeeded"});
    let said = format!("node/{drained} drained");
    ends(&["watch", drained, "--until", "drained"], 0, &said, Some((drained, succeeded))).await;
    let given_up = json!({"phase": "Failed", "lastError": "no time left"});
    ends(&["watch", "--exit-on-complete"], 3, "no time left", Some((failed, given_up))).await;
    ends(&["watch", failed, "--until", "drained"], 3, "the maintenance failed: no time left", None).await;
}
