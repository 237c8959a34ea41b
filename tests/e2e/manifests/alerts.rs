//! The alerts: when each fires, its runbook, and the metrics as Prometheus sees them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use nm_tests::cluster::Cluster;
use nm_tests::files::repository;
use nm_tests::maintenance::{start, until_drained};
use nm_tests::manifests::{files_of, folder, read};
use nm_tests::probes::{sample, until_served};
use nm_tests::reconciler::Reconciler;
use nm_tests::skip::has_program;
use serde_json::Value;

/// The specification of the `PrometheusRule`, which is also the format of a file of rules.
pub(crate) fn rules() -> Value {
    let files = files_of("components/alerts/kustomization.yaml");
    assert_eq!(files.len(), 1);
    read(&files[0])["spec"].take()
}

fn alerts() -> Vec<Value> {
    let groups = rules()["groups"].take();
    let groups = groups.as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

pub(crate) fn promtool(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{arguments:?}: {printed}");
    printed
}

#[test]
fn each_alert_fires_when_its_runbook_says_so() {
    if !has_program("promtool", &["--version"]) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("rules.yaml"), rules().to_string()).unwrap();
    let tests = include_str!("alerts_tests.yaml");
    std::fs::write(scratch.path().join("tests.yaml"), tests).unwrap();
    let _ = promtool(scratch.path(), &["check", "rules", "rules.yaml"]);
    let _ = promtool(scratch.path(), &["test", "rules", "tests.yaml"]);
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(
            tests.contains(&format!("alertname=\"{name}\", alertstate=\"firing\"")),
            "{name} is not tested"
        );
    }
}

#[test]
fn each_alert_has_a_runbook_that_names_its_metric() {
    let text = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let (metrics, guide) = (text("docs/reference/metrics.md"), text("docs/how-to/monitor.md"));
    let mut pages = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let (_, page) = alert["annotations"]["runbook_url"].as_str().unwrap().split_once("/docs/").unwrap();
        let runbook = text(&format!("docs/{page}"));
        assert!(runbook.starts_with(&format!("# {name}\n")), "{page}");
        assert!(guide.contains(&format!("[`{name}`](../{page})")), "docs/how-to/monitor.md lacks {name}");
        let expression = alert["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("nm_")) {
            assert!(metrics.contains(&format!("| `{metric}` |")), "{metric} is not documented");
            assert!(runbook.contains(&format!("`{metric}")), "{page} lacks {metric}");
        }
        for heading in ["What it means", "What to check", "What to do", "When to silence it"] {
            assert!(runbook.contains(&format!("\n## {heading}\n")), "{page} lacks {heading}");
        }
        pages.insert(page.to_owned());
    }
    let there = std::fs::read_dir(folder().join("../docs/runbooks")).unwrap();
    assert_eq!(there.count(), pages.len(), "every runbook has an alert");
}

/// The metrics in the format that `promtool check metrics` reads, which has the suffixes of samples in the names of families and
/// no information metrics.
fn in_classic_format(open_metrics: &str) -> String {
    let mut classic = String::new();
    let suffix = |kind: &str| match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let mut kinds = open_metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for line in open_metrics.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            let (typed, kind) = kinds.next().unwrap();
            assert_eq!(typed, name);
            let shown = if kind == "info" { "gauge" } else { kind };
            let full = format!("{name}{}", suffix(kind));
            writeln!(classic, "# HELP {full} {text}\n# TYPE {full} {shown}").unwrap();
        } else if !line.starts_with('#') {
            writeln!(classic, "{line}").unwrap();
        }
    }
    classic
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_follow_the_practice_of_prometheus() {
    if !has_program("promtool", &["--version"]) {
        return;
    }
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let reconciler = Reconciler::start_with(&cluster, &["--metrics-addr", "127.0.0.1:0"]);
    let server = reconciler.metrics_address().await;
    start(&cluster, "e2e-metrics", node).await;
    until_drained(&cluster, "e2e-metrics").await;
    let metrics = until_served(server, "/metrics", |metrics| {
        sample(metrics, "nm_drain_duration_seconds_count") == Some(1.0)
            && sample(metrics, "nm_oldest_maintenance_timestamp_seconds{}").is_some()
    })
    .await;
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, in_classic_format(&metrics).as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.is_empty(), "{printed}\n{metrics}");
}
