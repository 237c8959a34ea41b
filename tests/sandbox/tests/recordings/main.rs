//! Replays every request that a real API server was recorded to answer, and holds the sandbox to it: code, reason,
//! message, causes, warnings, which writes change the resourceVersion, what watches say and in which order, and bodies
//! but for what no two clusters share.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read is a failure of its test")]

mod essence;
mod replay;

use std::fmt::Write;

use replay::Replay;
use serde_json::Value;

const RECORDINGS: [(&str, &str); 7] = [
    ("discovery", include_str!("../../golden/discovery.json")),
    ("nodes", include_str!("../../golden/nodes.json")),
    ("pods", include_str!("../../golden/pods.json")),
    ("watch", include_str!("../../golden/watch.json")),
    ("custom-resources", include_str!("../../golden/custom-resources.json")),
    ("leases-and-events", include_str!("../../golden/leases-and-events.json")),
    ("access", include_str!("../../golden/access.json")),
];

/// What is not replayed, and why.
const LEFT_OUT: [(&str, &str); 1] = [(
    "empty list",
    "caught the 429 of the moment in which a new definition's storage comes up; the sandbox has no such moment",
)];

fn cases(recording: &str) -> Vec<Value> {
    let text = RECORDINGS.iter().find(|(name, _)| *name == recording).unwrap().1;
    serde_json::from_str(text).unwrap()
}

async fn replay(recording: &str) {
    let mut replay = Replay::begin().await;
    let mut wrong = String::new();
    for case in cases(recording) {
        if LEFT_OUT.iter().any(|(name, _)| case["name"] == *name) {
            continue;
        }
        for difference in replay.check(&case).await {
            write!(wrong, "\n{}: {difference}", case["name"]).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_recorded_request_is_replayed_but_for_those_that_are_named() {
    let names: Vec<String> = RECORDINGS
        .iter()
        .flat_map(|(recording, _)| cases(recording))
        .map(|case| case["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 117);
    for (name, _) in LEFT_OUT {
        assert!(names.iter().any(|known| known == name), "{name} is not recorded at all");
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_answers_as_recorded() {
    replay("discovery").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_are_written_and_listed_as_recorded() {
    replay("nodes").await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_and_deleted_as_recorded() {
    replay("pods").await;
}

#[tokio::test(start_paused = true)]
async fn watches_say_what_was_recorded_in_that_order() {
    replay("watch").await;
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_held_to_their_schema_as_recorded() {
    replay("custom-resources").await;
}

#[tokio::test(start_paused = true)]
async fn leases_and_events_are_kept_as_recorded() {
    replay("leases-and-events").await;
}

#[tokio::test(start_paused = true)]
async fn access_and_malformed_requests_are_refused_as_recorded() {
    replay("access").await;
}
