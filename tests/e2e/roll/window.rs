//! Rolls with a window: outside of it, and too late in it, no node begins. A window has whole minutes, so no test waits until
//! one closes: what the roll reads about the time that nodes take, or about the window, is changed in its objects.

use jiff::{Timestamp, ToSpan};
use nm_tests::cluster::Cluster;
use serde_json::{Value, json};

use super::running_roll::{RunningRoll, abort, blocked, change_annotation, guard, other, pool};

/// A window from the hour that is so many hours from now to another one.
fn window(hours: [i64; 2]) -> String {
    let [start, end] =
        hours.map(|hours| Timestamp::now().checked_add(hours.hours()).unwrap().strftime("%H:00").to_string());
    format!("{start}-{end} UTC")
}

/// Waits until the roll waits for its window, and returns the message. The first node is done, and the second one has not
/// begun. Then the roll ends.
async fn until_waiting(cluster: &Cluster, mut roll: RunningRoll, [first, second]: [&str; 2]) -> String {
    let waiting = roll.until("waiting", |line| line["state"] == "waiting").await;
    assert_eq!(waiting["done"], 1);
    assert_eq!(roll.steps(first).last(), Some(&"Done"), "{:#?}", roll.lines);
    roll.interrupt().await;
    assert_eq!(roll.steps(second), [""; 0], "it never began");
    assert!(cluster.maintenances().get(second).await.unwrap().spec.suspend);
    waiting["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_its_window_a_roll_waits_and_says_until_when() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let window = window([10, 11]);
    let mut roll =
        RunningRoll::begin(&cluster, "later", &nodes[..1], &["--run", "true", "--window", &window]);
    let waiting = roll.until("waiting", |line| line["state"] == "waiting").await;
    let message = waiting["message"].as_str().unwrap();
    assert!(message.starts_with("the window opens at ") && message.contains(&window[..5]), "{message}");
    roll.interrupt().await;
    assert!(roll.steps(&nodes[0]).iter().all(|step| *step == "Planned"));
    abort(&cluster, "later").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_begin_if_the_window_closes_before_the_slowest_node_so_far_would_be_done() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    // Open for one hour to two hours.
    let window = window([-1, 2]);
    let (workload, roll, first) = blocked(&cluster, "closing", &nodes[..2], &["--window", &window]).await;
    change_annotation(&cluster, &first, "kubectl-nm.dev/roll-node", |record| {
        // The roll has worked on it for two and a half hours, and the whole window has three.
        record["beganMillis"] = json!(-150 * 60_000);
    })
    .await;
    workload.delete_budget(&guard(&first)).await;
    let message = until_waiting(&cluster, roll, [&first, other(&nodes[..2], &first)]).await;
    let (closes, slowest) = message.split_once(", and the slowest node so far took ").unwrap();
    assert!(closes.starts_with("the window closes at ") && closes.contains(&window[6..11]), "{message}");
    assert!(slowest.starts_with("2h3"), "{message}");
    abort(&cluster, "closing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_interrupted_overnight_does_not_prevent_that_the_next_one_begins() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let window = window([-1, 2]);
    let (workload, mut roll, first) = blocked(&cluster, "nightly", &nodes[..2], &["--window", &window]).await;
    roll.interrupt().await;
    let yesterday = Timestamp::now().checked_sub(20.hours()).unwrap();
    change_annotation(&cluster, &first, "kubectl-nm.dev/roll-node", |record| {
        (record["began"], record["since"]) = (json!(yesterday), json!(yesterday));
    })
    .await;
    for node in &nodes[..2] {
        workload.delete_budget(&guard(node)).await;
    }
    let mut resumed = RunningRoll::resume(&cluster, "nightly", &["--run", "true"]);
    let ends = |line: &Value| ["waiting", "done"].contains(&line["state"].as_str().unwrap_or_default());
    let state = resumed.until("a state", ends).await;
    assert_eq!((&state["state"], &state["done"]), (&json!("done"), &json!(2)), "{state:#}");
    assert_eq!(resumed.end().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_window_has_closed_a_node_under_way_is_finished_and_no_other_one_begins() {
    let (cluster, nodes, _reconciler) = pool(3).await;
    let open = window([-1, 2]);
    let (workload, mut roll, first) = blocked(&cluster, "closed", &nodes[..2], &["--window", &open]).await;
    roll.interrupt().await;
    // The roll is resumed after its window.
    let next = window([10, 11]);
    for node in &nodes[..2] {
        change_annotation(&cluster, node, "kubectl-nm.dev/roll-settings", |settings| {
            settings["windows"] = json!([next]);
        })
        .await;
    }
    let resumed = RunningRoll::resume(&cluster, "closed", &["--run", "true"]);
    workload.delete_budget(&guard(&first)).await;
    let message = until_waiting(&cluster, resumed, [&first, other(&nodes[..2], &first)]).await;
    assert!(message.starts_with("the window opens at ") && message.contains(&next[..5]), "{message}");
    abort(&cluster, "closed").await;
}
