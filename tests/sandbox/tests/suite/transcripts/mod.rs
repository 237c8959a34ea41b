//! Replays every request that a real API server was recorded to answer, and holds the sandbox to it: code, reason,
//! message, causes, warnings, which writes change the resourceVersion, what watches say and in which order, and bodies
//! but for what no two clusters share.

mod essence;
mod exclusions;
mod replay;

use std::fmt::Write;

use exclusions::LEFT_OUT;
use replay::Replay;
use serde_json::Value;

const RECORDINGS: [(&str, &str); 9] = [
    ("discovery", include_str!("../../../transcripts/discovery.json")),
    ("nodes", include_str!("../../../transcripts/nodes.json")),
    ("pods", include_str!("../../../transcripts/pods.json")),
    ("watch", include_str!("../../../transcripts/watch.json")),
    ("custom-resources", include_str!("../../../transcripts/custom-resources.json")),
    ("leases-and-events", include_str!("../../../transcripts/leases-and-events.json")),
    ("access", include_str!("../../../transcripts/access.json")),
    ("storage", include_str!("../../../transcripts/storage.json")),
    ("plain-kinds", include_str!("../../../transcripts/plain-kinds.json")),
];

fn cases(recording: &str) -> Vec<Value> {
    let text = RECORDINGS.iter().find(|(name, _)| *name == recording).unwrap().1;
    serde_json::from_str(text).unwrap()
}

async fn replay(recording: &str) {
    let wrong = differences(recording, exclusions::names()).await;
    assert!(wrong.is_empty(), "{wrong}");
}

/// Where the answers are not the recorded ones, with nothing left out but this.
async fn differences(recording: &str, left_out: Vec<&'static str>) -> String {
    let mut replay = Replay::begin(left_out).await;
    let mut wrong = String::new();
    for case in cases(recording) {
        for difference in replay.check(&case).await {
            write!(wrong, "\n{}: {difference}", case["name"]).unwrap();
        }
    }
    wrong
}

#[test]
fn every_recorded_request_is_there() {
    let recorded: usize = RECORDINGS.iter().map(|(recording, _)| cases(recording).len()).sum();
    assert_eq!(recorded, 151);
}

#[tokio::test(start_paused = true)]
async fn the_exclusions_are_few_and_each_is_needed() {
    assert!(LEFT_OUT.len() <= 10);
    assert!(LEFT_OUT.iter().all(|entry| !entry.reason.is_empty()));
    for needed in exclusions::names() {
        let others = exclusions::names().into_iter().filter(|name| *name != needed).collect();
        let wrong = differences("discovery", others).await;
        assert!(!wrong.is_empty(), "{needed} need not be left out");
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
async fn volumes_are_claimed_and_attached_as_recorded() {
    replay("storage").await;
}

#[tokio::test(start_paused = true)]
async fn access_and_malformed_requests_are_refused_as_recorded() {
    replay("access").await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_nothing_acts_on_are_kept_as_recorded() {
    replay("plain-kinds").await;
}
