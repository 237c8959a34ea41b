//! The complete output of `status`, `watch`, `start --wait` and `gather`.

use jiff::Timestamp;
use nm_shared::Phase;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{until_drained, until_status};
use nm_tests::programs::{Outcome, plugin};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::Workload;

const WHY: &str = "a real cluster's nodes have other pods";

/// The text with placeholders for times and ages, and with columns separated by single blanks.
fn timeless(text: &str) -> String {
    let is_age = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    let word = |word: &str| match word {
        word if word.parse::<Timestamp>().is_ok() => "TIME".to_owned(),
        word if is_age(word) => "AGE".to_owned(),
        word => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n";
    // Without progress lines, which depend on the time.
    text.lines().filter(|line| !line.ends_with(" ...")).map(line).collect()
}

#[track_caller]
fn expect(outcome: &Outcome, code: i32, stdout: &str, stderr: &str) {
    let (out, err) = (timeless(&outcome.stdout), timeless(&outcome.stderr));
    assert_eq!((outcome.code, out.as_str(), err.as_str()), (Some(code), stdout, stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_reports_a_failed_and_a_drained_node() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, WHY).await else { return };
    let nodes = cluster.nodes().await;
    let (a, b) = (nodes[0].as_str(), nodes[1].as_str());
    let workload = Workload::new(&cluster, "texts").await;
    workload.pod_on(a, "cart", serde_json::json!({})).await;
    workload.budget("cart", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    let _ = plugin(&cluster, &["start", a, "--timeout", "3s"]).await.ok();
    let _ = plugin(&cluster, &["start", b, "--reason", "kernel"]).await.ok();
    until_drained(&cluster, b).await;
    let refused = |status: &nm_shared::NodeMaintenanceStatus| {
        status.phase == Some(Phase::Failed) && status.blocked_pods.iter().any(|pod| pod.attempts > 0)
    };
    until_status(&cluster, a, "failed", refused).await;

    let pod = format!("{}/cart", workload.namespace());
    let budget = "The disruption budget cart needs 1 healthy pods and has 1 currently";
    let blocked = format!("blocked {pod}: DisruptionBudget: {budget}");
    let failed =
        format!("the drain timed out after 3 s, 1 pod is left; 1 pod is blocked: {pod} (DisruptionBudget)");
    let stderr = format!(
        "node/{a}: the drain timed out after 3 s; 0 of 1 pod gone\nnode/{b}: no pods had to move when the drain started\nnode/{a}: {blocked}\n\
         hint: `kubectl nm explain {a}` shows why, and which workloads its drain has left without a ready pod\n"
    );
    expect(
        &plugin(&cluster, &["status"]).await,
        0,
        &format!("NODE STATE PROGRESS BLOCKED AGE\n{a} Failed 0% 1 AGE\n{b} Drained 100% 0 AGE\n"),
        &stderr,
    );
    expect(
        &plugin(&cluster, &["status", "-o", "wide"]).await,
        0,
        &format!(
            "NODE STATE PROGRESS BLOCKED AGE NAME ROLL PENDING REASON\n{a} Failed 0% 1 AGE {a} <none> {pod} <none>\n\
             {b} Drained 100% 0 AGE {b} <none> <none> kernel\n"
        ),
        &stderr,
    );
    let lines = format!(
        "TIME {a} Failed: {failed}\nTIME {a} {blocked}\nTIME {b} Drained: no pods had to move when the drain started \
         (reason: kernel)\n"
    );
    expect(
        &plugin(&cluster, &["watch", "--until", "drained"]).await,
        3,
        &lines,
        &format!("node/{a}: the maintenance failed: {failed}\n"),
    );
    expect(&plugin(&cluster, &["watch", "--timeout", "3s"]).await, 124, &lines, "timed out after AGE\n");
    expect(
        &plugin(&cluster, &["start", a, "--wait"]).await,
        3,
        &format!("node/{a} is already in maintenance\n"),
        &format!(
            "node/{a}: Failed: {failed}\nnode/{a}: {blocked}\nnode/{a}: the maintenance failed: {failed}\n"
        ),
    );
    expect(
        &plugin(&cluster, &["start", b, "--wait"]).await,
        0,
        &format!(
            "node/{b} is already in maintenance\nnode/{b} drained: no pods had to move when the drain started\n"
        ),
        "",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_wait_reports_the_state_and_what_to_do() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    let node = &cluster.nodes().await[0];
    expect(
        &plugin(&cluster, &["start", node, "--wait", "--timeout", "3s", "--no-plan"]).await,
        124,
        &format!("node/{node} maintenance started\n"),
        &format!(
            "timed out after AGE\n\
             node/{node}: Requested: nm-reconciler has not started the maintenance yet\nmaintenance continues: {node}\n\
             hint: `kubectl nm watch {node} --until drained` resumes waiting, \
             `kubectl nm stop {node}` stops the maintenance\n"
        ),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gather_prints_the_reports_name_on_stdout_and_advice_on_stderr() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.tar.gz");
    let path = path.to_str().unwrap();
    expect(
        &plugin(&cluster, &["gather", "-o", path]).await,
        0,
        &format!("{path}\n"),
        "Review the file before you share it: it contains names of nodes, pods and namespaces, and labels.\n",
    );
}
