//! Maintenances in the queue cost hardly anything: no watch on the pods of their nodes, and few status writes.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use kube_sandbox::request_log::Entry;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by_reconciler;

const NODES: usize = 62;
const BEGUN: usize = 2;
/// How many nodes return to service while the others wait.
const STEPS: usize = 3;
/// How often a position is written at most, less a tolerance for requests on their way.
const POSITION_INTERVAL: SignedDuration = SignedDuration::from_millis(29_500);

fn name(number: usize) -> String {
    format!("e2e-queue-{number:02}")
}

/// The reconciler's status writes of each maintenance since then that are closer to the one before than allowed.
fn hasty_writes(log: &[Entry], names: &[String], since: Timestamp) -> Vec<(String, SignedDuration)> {
    let is_write =
        |entry: &&Entry| is_by_reconciler(entry) && entry.verb == "patch" && entry.subresource == "status";
    names
        .iter()
        .flat_map(|name| {
            let writes: Vec<Timestamp> = log
                .iter()
                .filter(is_write)
                .filter(|entry| entry.name == *name)
                .map(|entry| entry.at)
                .collect();
            let intervals = writes.windows(2).filter(|pair| pair[1] > since);
            let intervals = intervals.map(|pair| (name.clone(), pair[1].duration_since(pair[0])));
            intervals.filter(|(_, interval)| *interval < POSITION_INTERVAL).collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_maintenances_have_no_pod_watch_and_their_positions_are_written_every_30_seconds_at_most() {
    let Some(cluster) = Cluster::sandbox_or_skip(NODES, "only a sandbox logs requests").await else { return };
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", &BEGUN.to_string()]);
    let names: Vec<String> = (0..NODES).map(name).collect();
    for (name, node) in names.iter().zip(&nodes) {
        start(&cluster, name, node).await;
    }
    for name in &names[..BEGUN] {
        until_drained(&cluster, name).await;
    }
    for name in &names[BEGUN..] {
        until_status(&cluster, name, "queued", |status| status.queue.is_some()).await;
    }
    let since = Timestamp::now();
    for step in 0..STEPS {
        stop(&cluster, &names[step]).await;
        until_drained(&cluster, &names[BEGUN + step]).await;
    }
    // The positions are corrected in the end.
    let (begun, waiting) = names.split_at(BEGUN + STEPS);
    for (at, name) in waiting.iter().enumerate() {
        let position = i32::try_from(at + 1).unwrap();
        until_status(&cluster, name, "at its position", |status| {
            status.queue.is_some_and(|queue| queue.position == position)
        })
        .await;
    }
    let log = cluster.sandbox().unwrap().requests().all();
    assert_eq!(hasty_writes(&log, waiting, since), []);
    let pod_reads = log.iter().filter(|entry| is_by_reconciler(entry) && entry.resource == "pods");
    let pod_reads = pod_reads.filter(|entry| matches!(entry.verb, "list" | "watch"));
    let read: HashSet<String> = pod_reads.map(|entry| entry.field_selector.clone()).collect();
    let expected = nodes[..begun.len()].iter().map(|node| format!("spec.nodeName={node}"));
    assert_eq!(read, expected.collect(), "only pods of nodes that have begun are read");
}
