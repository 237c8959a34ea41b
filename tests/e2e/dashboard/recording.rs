//! Recordings of `kubectl nm watch`, and their replay without a cluster.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use nm_tests::cluster::Cluster;
use nm_tests::maintenance::start;
use nm_tests::programs::{Outcome, RunningCommand, plugin, plugin_of, program};
use nm_tests::reconciler::Reconciler;
use nm_tests::terminal::Terminal;
use nm_tests::terminal::keys::{END, ENTER, ESCAPE, HOME, LEFT, RIGHT};
use nm_tests::wait::in_time;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::dashboard::setup::{dashboard, quit};

/// A kubeconfig that does not exist: a replay needs none.
const NO_KUBECONFIG: &str = "/nonexistent/kubeconfig";

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("night.ndjson");
    (folder, file)
}

/// A replay in a terminal, without a cluster.
fn replay(file: &Path, more: &[&str], rows: u16) -> Terminal {
    let args = [&["watch", "--replay", file.to_str().unwrap()], more].concat();
    Terminal::run(&program("kubectl-nm"), &args, &[("KUBECONFIG", NO_KUBECONFIG)], rows, 120)
}

/// What a replay prints without a terminal.
async fn printed(file: &Path, more: &[&str]) -> Outcome {
    let args = [&["watch", "--replay", file.to_str().unwrap()], more].concat();
    plugin_of(Path::new(NO_KUBECONFIG), &args).await
}

/// A recording of one maintenance whose drain advances by one of a hundred pods in each second.
fn hundred_seconds() -> String {
    let mut text = String::from(
        "{\"recording\":1,\"program\":\"0.1.0\",\"started\":\"2026-01-02T03:00:00Z\",\"context\":\"prod\"}\n",
    );
    let mut line = |second: usize, message: Value| {
        let time = format!("2026-01-02T03:{:02}:{:02}Z", second / 60, second % 60);
        writeln!(text, "{{\"time\":\"{time}\",\"message\":{message}}}").unwrap();
    };
    line(0, json!({"watch": {"kind": "maintenances", "node": null, "state": "live"}}));
    for second in 0..=100 {
        let maintenance = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": second.to_string(), "creationTimestamp": "2026-01-02T03:00:00Z"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "drainProgress": second, "evictionPods": 100,
                "podCounts": {"gone": second, "waiting": 100 - second}}});
        let change =
            if second == 0 { json!({"listed": [maintenance]}) } else { json!({"applied": maintenance}) };
        line(second, json!({"maintenances": change}));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_drain_is_shown_again_as_it_was() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "recorded").await;
    workload.deployment("web", 1).await;
    let node = node_of(&workload.until_running("web", 1).await[0]).to_owned();
    start(&cluster, &node, &node).await;
    let (_folder, file) = folder();
    let terminal = dashboard(&cluster, &[&node, "--record", file.to_str().unwrap()], (30, 120));
    terminal.until_live().await;
    terminal.until_shown("recording").await;
    terminal.press("w");
    terminal.until_shown("1/1 ready").await;
    let _reconciler = Reconciler::start(&cluster);
    let has_ended = |screen: &vt100::Screen| {
        let shown = screen.contents();
        [" gone in", "1/1 ready", "lowest 0/1"].iter().all(|words| shown.contains(words))
    };
    let recorded = terminal.until("the end of the drain", has_ended).await;
    let left = quit(terminal).await.until_shown("kubectl nm watch --replay").await;
    assert!(left.contains("recorded "), "{left}");

    // The replay has a line more.
    let terminal = replay(&file, &["--speed", "50"], 31);
    terminal.until_shown("ended").await;
    terminal.press("w");
    let replayed = terminal.until("the end of the drain", has_ended).await;
    for (what, line) in [("summary", " gone in"), ("workload", "deploy/web"), ("slowest", "slowest")] {
        let of = |screen: &str| {
            let line = screen.lines().find(|shown| shown.contains(line)).map(str::trim_end);
            line.unwrap_or_else(|| panic!("no {what}: {screen}")).to_owned()
        };
        assert_eq!(without_ages(&of(&replayed)), without_ages(&of(&recorded)), "{what}");
    }
    terminal.press(HOME);
    terminal.until("the beginning", |screen| !screen.contents().contains(" gone in")).await;
    terminal.press(" ");
    terminal.press(END);
    terminal.until_shown(" gone in").await;
    quit(terminal).await;
    let lines = printed(&file, &[]).await.ok();
    assert!(lines.stdout.contains(&format!("{node} Drained")), "{}", lines.stdout);
}

/// A line with `#` for every number: ages differ by a second.
fn without_ages(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_age = word.ends_with(['s', 'm', 'h']) && word.starts_with(|c: char| c.is_ascii_digit());
        words.push(if is_age { String::from("#") } else { word.to_owned() });
    }
    words.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_pauses_and_seeks_and_changes_its_speed_by_keys() {
    let (_folder, file) = folder();
    std::fs::write(&file, hundred_seconds()).unwrap();
    let terminal = replay(&file, &[], 24);
    terminal.until_shown("playing 1x").await;
    terminal.press(" ");
    terminal.until_shown("paused 1x").await;
    terminal.press(HOME);
    terminal.until_shown("0:00 / 1:40").await;
    for (key, position) in
        [(RIGHT, "0:10"), (RIGHT, "0:20"), ("5", "0:50"), (LEFT, "0:40"), (END, "1:40"), (LEFT, "1:30")]
    {
        terminal.press(key);
        let screen = terminal.until_shown(&format!("{position} / 1:40")).await;
        let (minutes, seconds) = position.split_once(':').unwrap();
        let gone: u32 = minutes.parse::<u32>().unwrap() * 60 + seconds.parse::<u32>().unwrap();
        assert!(screen.contains(&format!("{gone}%")), "{screen}");
        assert!(screen.contains(&format!("03:{minutes:0>2}:{seconds}Z")), "{screen}");
    }
    terminal.press("++");
    terminal.until_shown("paused 5x").await;
    terminal.press("-");
    terminal.until_shown("paused 2x").await;
    // Elapsed times are those of the recording.
    terminal.press(ENTER);
    terminal.until_shown("1m30s").await;
    for key in ["n", "x", "p"] {
        terminal.press(key);
        terminal.until_shown("a replay has no cluster").await;
        terminal.press("j");
        terminal.until("the keys", |screen| !screen.contents().contains("no cluster")).await;
    }
    // With the next key at once, it would be Alt.
    terminal.press(ESCAPE);
    terminal.until_shown("[Enter]open").await;
    terminal.press(" ");
    terminal.until_shown("ended").await;
    terminal.press(" ");
    terminal.until_shown("playing 2x").await;
    for (rows, columns) in [(24, 45), (6, 80), (50, 200)] {
        terminal.resize(rows, columns);
        let what = format!("a screen of {columns} columns");
        let is_drawn = |screen: &vt100::Screen| {
            let shown = screen.contents();
            let header = shown.lines().next().unwrap_or_default();
            header.trim_end().chars().count() == usize::from(columns) - 1 && shown.contains("playing 2x")
        };
        terminal.until(&what, is_drawn).await;
    }
    quit(terminal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_a_replay_prints_the_lines_of_watch() {
    let (_folder, file) = folder();
    std::fs::write(&file, hundred_seconds()).unwrap();
    let json = printed(&file, &["-o", "json"]).await.ok();
    let lines: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[0]["type"], &lines[0]["time"]),
        (102, &json!("snapshot"), &json!("2026-01-02T03:00:00Z"))
    );
    assert_eq!((&lines[100]["progress"], &lines[100]["time"]), (&json!(100), &json!("2026-01-02T03:01:40Z")));
    assert_eq!(
        (&lines[101]["type"], &lines[101]["result"], &lines[101]["exitCode"]),
        (&json!("done"), &json!("ended"), &json!(0))
    );
    let text = printed(&file, &["--speed", "500"]).await.ok();
    assert!(text.stdout.starts_with("2026-01-02T03:00:00Z n1 "), "{}", text.stdout);
    let colours = printed(&file, &["other-node"]).await.ok();
    assert_eq!(colours.stdout, "", "only that node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_valid_after_its_program_was_killed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, node, node).await;
    let (_folder, file) = folder();
    let args = ["watch", "--record", file.to_str().unwrap()];
    let mut recording = RunningCommand::start(program("kubectl-nm"), &cluster, &args);
    recording.line().await.unwrap();
    let whole = in_time("the pods are recorded", async {
        loop {
            let text = tokio::fs::read_to_string(&file).await.unwrap();
            if text.lines().any(|line| line.contains("\"message\":{\"pods\":")) {
                break text;
            }
            tokio::task::yield_now().await;
        }
    });
    whole.await;
    recording.crash().await;
    let text = std::fs::read_to_string(&file).unwrap();
    let again = printed(&file, &["-o", "json"]).await.ok();
    assert!(again.stdout.contains(&format!("\"node\":\"{node}\"")), "{}", again.stdout);
    // As if it had died while it wrote a line.
    std::fs::write(&file, text.trim_end().strip_suffix('}').unwrap()).unwrap();
    let cut = printed(&file, &["-o", "json"]).await.ok();
    assert_eq!(cut.stderr, "warning: the last line of the recording is incomplete and was left out\n");
    assert!(cut.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_the_cluster_are_not_recorded() {
    let cluster = Cluster::start(1).await;
    let node = cluster.nodes().await.remove(0);
    let workload = Workload::new(&cluster, "secrets").await;
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"env\":\"s3cr3t\"}", "vault": "s3cr3t"});
    let secret = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{
        "name": "main", "image": "x", "args": ["s3cr3t"], "env": [{"name": "TOKEN", "value": "s3cr3t"}]}]}});
    workload.create_pod(&node, "holder", secret).await;
    cluster.patch_node(&node, json!({"metadata": {"annotations": {"vault": "s3cr3t"}}})).await;
    start(&cluster, &node, &node).await;
    let patch = json!({"metadata": {"annotations": annotations}});
    let (params, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
    cluster.maintenances().patch(&node, &params, &patch).await.unwrap();
    let (_folder, file) = folder();
    let terminal = dashboard(&cluster, &[&node, "--record", file.to_str().unwrap()], (30, 120));
    terminal.until_live().await;
    terminal.until_shown("holder").await;
    terminal.press("wey");
    terminal.until_shown("YAML").await;
    quit(terminal).await;
    let recorded = std::fs::read_to_string(&file).unwrap();
    for kind in ["maintenances", "nodes", "pods", "watch"] {
        assert!(recorded.contains(&format!("\"message\":{{\"{kind}\":")), "{kind}: {recorded}");
    }
    assert!(recorded.contains("holder") && !recorded.contains("s3cr3t"), "{recorded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_or_replayed_is_an_error_with_a_remedy() {
    let cluster = Cluster::start(1).await;
    let (_folder, file) = folder();
    std::fs::write(&file, "mine").unwrap();
    let name = file.to_str().unwrap();
    let refused = plugin(&cluster, &["watch", "--record", name]).await;
    assert_eq!(refused.code, Some(1));
    let expected = format!(
        "error: the file {name} exists already\nhint: existing files are not overwritten: choose another one, or delete it with \
         `rm {name}`\n"
    );
    assert_eq!(refused.stderr, expected);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let other = printed(&file, &[]).await;
    assert!(other.code == Some(1) && other.stderr.contains("is not a recording"), "{other:?}");
    std::fs::write(&file, "{\"recording\":7,\"program\":\"3.0.0\"}\n").unwrap();
    let future = printed(&file, &[]).await;
    assert!(future.code == Some(1) && future.stderr.contains("format 7, by kubectl nm 3.0.0"), "{future:?}");
    let broken = hundred_seconds().replacen("\"applied\"", "\"painted\"", 1);
    std::fs::write(&file, broken).unwrap();
    let broken = printed(&file, &["-o", "json"]).await;
    assert!(broken.code == Some(1) && broken.stderr.contains("line 4 of the recording"), "{broken:?}");
    assert!(
        broken.stdout.trim_end().ends_with('}') && broken.stdout.contains("\"result\":\"error\""),
        "{broken:?}"
    );
    let missing = printed(Path::new("/nonexistent/night.ndjson"), &[]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("cannot read the recording"), "{missing:?}");
}
