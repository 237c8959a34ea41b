//! Rolls with a window: outside of it, and too late in it, no node begins. A window has whole minutes, so no test waits until
//! one closes: what the roll reads about the time that nodes take, or about the window, is changed in its objects.

use jiff::{Timestamp, ToSpan};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use nm_tests::cluster::Cluster;
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, guard, guarded_pods};

/// A window from the hour that is so many hours from now to another one.
fn window(hours: [i64; 2]) -> String {
    let [start, end] =
        hours.map(|hours| Timestamp::now().checked_add(hours.hours()).unwrap().strftime("%H:00").to_string());
    format!("{start}-{end} UTC")
}

/// Changes the JSON in an annotation of the maintenance of a node.
async fn change_annotation(cluster: &Cluster, node: &str, annotation: &str, change: impl Fn(&mut Value)) {
    let object = cluster.maintenances().get(node).await.unwrap();
    let mut value = serde_json::from_str(&object.annotations()[annotation]).unwrap();
    change(&mut value);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value.to_string()}}}));
    cluster.maintenances().patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// The node that a roll has begun, once it is blocked, and the other one of the two.
async fn until_blocked<'a>(roll: &mut RunningRoll, nodes: &'a [String]) -> (&'a str, &'a str) {
    let is_blocked = |line: &Value| line["detail"].as_str().is_some_and(|why| why.starts_with("blocked"));
    let blocked = roll.until("blocked", is_blocked).await;
    let (first, second) = if blocked["node"] == nodes[0] { (0, 1) } else { (1, 0) };
    (&nodes[first], &nodes[second])
}

/// Waits until the roll waits for its window, and returns the message. The first node is done, and the second one has not
/// begun. Then the roll ends.
async fn until_waiting(cluster: &Cluster, mut roll: RunningRoll, [first, second]: [&str; 2]) -> String {
    let waiting = roll.until("waiting", |line| line["outlook"] == "waiting").await;
    assert_eq!(waiting["done"], 1);
    assert_eq!(roll.steps(first).last(), Some(&"Done"), "{:#?}", roll.lines);
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
    assert_eq!(roll.steps(second), [""; 0], "it never began");
    assert!(cluster.maintenances().get(second).await.unwrap().spec.suspend);
    waiting["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_its_window_a_roll_waits_and_says_until_when() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    let window = window([10, 11]);
    let mut roll =
        RunningRoll::begin(&cluster, "later", &nodes[..1], &["--run", "true", "--window", &window]);
    let waiting = roll.until("waiting", |line| line["outlook"] == "waiting").await;
    let message = waiting["message"].as_str().unwrap();
    assert!(message.starts_with("the window opens at ") && message.contains(&window[..5]), "{message}");
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
    assert!(roll.steps(&nodes[0]).iter().all(|step| *step == "Planned"));
    let _ = plugin(&cluster, &["roll", "abort", "later", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_begin_if_the_window_closes_before_the_slowest_node_so_far_would_be_done() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "slow", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    // Open for one hour to two hours.
    let window = window([-1, 2]);
    let flags = ["--run", "true", "--window", &window];
    let mut roll = RunningRoll::begin(&cluster, "closing", &nodes[..2], &flags);
    let (first, second) = until_blocked(&mut roll, &nodes[..2]).await;
    change_annotation(&cluster, first, "kubectl-nm.dev/roll-node", |record| {
        // The roll has worked on it for three hours.
        record["beganMillis"] = json!(-3 * 3_600_000);
    })
    .await;
    workload.delete_budget(&guard(first)).await;
    let message = until_waiting(&cluster, roll, [first, second]).await;
    let (closes, slowest) = message.split_once(", and the slowest node so far took ").unwrap();
    assert!(closes.starts_with("the window closes at ") && closes.contains(&window[6..11]), "{message}");
    assert!(slowest.starts_with("3h"), "{message}");
    let _ = plugin(&cluster, &["roll", "abort", "closing", "--yes"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_interrupted_overnight_does_not_prevent_that_the_next_one_begins() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "overnight", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let flags = ["--run", "true", "--window", &window([-1, 2])];
    let mut roll = RunningRoll::begin(&cluster, "nightly", &nodes[..2], &flags);
    let (first, _) = until_blocked(&mut roll, &nodes[..2]).await;
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
    let yesterday = Timestamp::now().checked_sub(20.hours()).unwrap();
    change_annotation(&cluster, first, "kubectl-nm.dev/roll-node", |record| {
        (record["began"], record["since"]) = (json!(yesterday), json!(yesterday));
    })
    .await;
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    let mut resumed = RunningRoll::resume(&cluster, "nightly", &["--run", "true"]);
    let ends = |line: &Value| ["waiting", "done"].contains(&line["outlook"].as_str().unwrap_or_default());
    let outlook = resumed.until("an outlook", ends).await;
    assert_eq!((&outlook["outlook"], &outlook["done"]), (&json!("done"), &json!(2)), "{outlook:#}");
    assert_eq!(resumed.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_window_has_closed_a_node_under_way_is_finished_and_no_other_one_begins() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = guarded_pods(&cluster, "late", &nodes[..2]).await;
    let _reconciler = Reconciler::start(&cluster);
    let flags = ["--run", "true", "--window", &window([-1, 2])];
    let mut roll = RunningRoll::begin(&cluster, "closed", &nodes[..2], &flags);
    let (first, second) = until_blocked(&mut roll, &nodes[..2]).await;
    roll.signal("INT");
    assert_eq!(roll.end().await, Some(130));
    // The roll is resumed after its window.
    let next = window([10, 11]);
    for node in &nodes[..2] {
        change_annotation(&cluster, node, "kubectl-nm.dev/roll-settings", |settings| {
            settings["windows"] = json!([next]);
        })
        .await;
    }
    let resumed = RunningRoll::resume(&cluster, "closed", &["--run", "true"]);
    workload.delete_budget(&guard(first)).await;
    let message = until_waiting(&cluster, resumed, [first, second]).await;
    assert!(message.starts_with("the window opens at ") && message.contains(&next[..5]), "{message}");
    let _ = plugin(&cluster, &["roll", "abort", "closed", "--yes"]).await.ok();
}
