//! When the status is written: with each change, with nothing else, and not too often.

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube_sandbox::controllers::kubelet::annotations::STOP_DELAY;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::api::condition::{ConditionType, is_true};
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::PATIENCE;
use nm_tests::workload::{Workload, held};
use serde_json::json;

use crate::answers::nothing_is_left;
use crate::{once, only_sandbox, start};

/// Two writes of one status are sent this far apart,
const PACE: SignedDuration = SignedDuration::from_millis(500);
/// and what took longer on its way may be followed this much sooner.
const ON_THE_WAY: SignedDuration = SignedDuration::from_millis(50);

fn is_status_write(entry: &Entry, name: &str) -> bool {
    entry.user_agent.starts_with("nm-reconciler/")
        && (entry.verb, entry.subresource.as_str(), entry.name.as_str()) == ("patch", "status", name)
}

/// Every status that a maintenance ever has, up to the one that is `last`.
async fn statuses(
    cluster: &Cluster,
    name: &str,
    last: impl Fn(&NodeMaintenanceStatus) -> bool,
) -> Vec<NodeMaintenanceStatus> {
    let mut seen: Vec<NodeMaintenanceStatus> = Vec::new();
    let collect = async {
        let mut looks = watcher::watch_object(cluster.maintenances(), name).boxed();
        while let Some(look) = looks.next().await {
            let status = look.ok().flatten().and_then(|found: NodeMaintenance| found.status);
            let Some(status) = status.filter(|status| seen.last() != Some(status)) else { continue };
            let ends = last(&status);
            seen.push(status);
            if ends {
                return;
            }
        }
        panic!("the watch ended");
    };
    assert!(tokio::time::timeout(PATIENCE, collect).await.is_ok(), "the last of {seen:#?}");
    seen
}

/// The writes of a status, oldest first, once there are so many: a watch tells of a write before its answer is logged.
async fn writes(sandbox: &Sandbox, name: &str, count: usize) -> Vec<Entry> {
    let log = sandbox.requests();
    let written = log.until(|log| log.count(|entry| is_status_write(entry, name)) >= count);
    tokio::time::timeout(PATIENCE, written).await.expect("every write is logged");
    log.all().into_iter().filter(|entry| is_status_write(entry, name)).collect()
}

fn is_drained(status: &NodeMaintenanceStatus) -> bool {
    is_true(&status.conditions, ConditionType::Drained)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_says_what_the_one_before_it_said() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "changes").await;
    let node = &cluster.nodes().await[0];
    for name in ["a", "b", "c"] {
        workload.pod_on(node, name, held()).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-changes", node).await;
    let watched = statuses(&cluster, "e2e-changes", is_drained);
    let drives = async {
        once(&cluster, "e2e-changes", "all blocked", |status| status.blocked_pods.len() == 3).await;
        for round in 0..20 {
            // News of a pod, and nothing that the status tells.
            let touch =
                Patch::Merge(json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}}));
            workload.pods().patch("a", &PatchParams::default(), &touch).await.unwrap();
        }
        for name in ["a", "b", "c"] {
            workload.let_go(name).await;
        }
    };
    let (seen, ()) = futures::join!(watched, drives);
    for pair in seen.windows(2) {
        let told = NodeMaintenanceStatus { last_update: pair[0].last_update.clone(), ..pair[1].clone() };
        assert_ne!(told, pair[0], "{pair:#?}");
    }
    if let Some(sandbox) = cluster.sandbox() {
        let writes = writes(sandbox, "e2e-changes", seen.len()).await;
        assert_eq!(writes.len(), seen.len(), "every write was a change");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_stays_refused_writes_no_status_with_each_retry() {
    let Some(cluster) = only_sandbox(1, "only a sandbox tells when it was asked").await else { return };
    let workload = Workload::new(&cluster, "retries").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    let (faults, log) = (cluster.sandbox().unwrap().faults(), cluster.sandbox().unwrap().requests());
    let evictions = Target::any().subresource("eviction");
    faults.add(Rule::new(evictions, Action::Fail(Failure::Unavailable, Moment::BeforeEffect)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-retries", node).await;
    let refused = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.len() == 1 && status.blocked_pods[0].attempts == 1
    };
    once(&cluster, "e2e-retries", "refused", refused).await;
    // The write that says so may not be in the log yet: it is told apart by when it was sent.
    let since = Timestamp::now();
    let asked = |count| log.until(move |log| log.count(|entry| entry.subresource == "eviction") >= count);
    assert!(tokio::time::timeout(PATIENCE, asked(4)).await.is_ok(), "it is asked again and again");
    assert_eq!(log.count(|entry| is_status_write(entry, "e2e-retries") && entry.at > since), 0);
    faults.clear();
    nothing_is_left(&cluster, "e2e-retries").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_with_many_ends_writes_its_status_at_most_twice_a_second() {
    let Some(cluster) = only_sandbox(1, "only a sandbox tells when it was asked").await else { return };
    let workload = Workload::new(&cluster, "many").await;
    let node = &cluster.nodes().await[0];
    for index in 0..40 {
        let stop = format!("{}ms", 100 * index);
        workload
            .place(node, &format!("p-{index}"), json!({"metadata": {"annotations": {STOP_DELAY: stop}}}))
            .await;
    }
    for index in 0..40 {
        workload.until_running(&format!("p-{index}"), 1).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-many", node).await;
    let seen = statuses(&cluster, "e2e-many", is_drained).await;
    let writes = writes(cluster.sandbox().unwrap(), "e2e-many", seen.len()).await;
    assert!(writes.len() == seen.len() && seen.len() > 4, "{} writes, {} statuses", writes.len(), seen.len());
    for (times, told) in writes.windows(2).zip(seen.windows(2)) {
        let pause = times[1].at.duration_since(times[0].at);
        assert!(pause >= PACE - ON_THE_WAY, "{pause} between {told:#?}");
    }
    let last = seen.last().unwrap();
    assert_eq!((last.pod_counts.gone, last.drain_progress), (40, 100), "the last word is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_pod_shows_within_500_milliseconds() {
    let Some(cluster) = only_sandbox(6, "only a sandbox tells when it was asked").await else { return };
    let workload = Workload::new(&cluster, "ends").await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    // One after another, so that the first have nothing left to say when the last begins.
    for node in &nodes {
        for name in ["goes", "stays"] {
            workload.pod_on(node, &format!("{name}-{node}"), held()).await;
        }
        start(&cluster, node, node).await;
        once(&cluster, node, "both blocked", |status| status.blocked_pods.len() == 2).await;
    }
    let log = cluster.sandbox().unwrap().requests();
    let mut waits = Vec::new();
    for node in &nodes {
        let pod = format!("goes-{node}");
        let since = Timestamp::now();
        let is_later_write = |entry: &Entry| is_status_write(entry, node) && entry.at > since;
        workload.let_go(&pod).await;
        let shown = once(&cluster, node, "one is gone", |status| status.pod_counts.gone == 1).await;
        assert_eq!(shown.pending_pods, [format!("stays-{node}")]);
        let written = log.until(|log| log.count(is_later_write) > 0);
        tokio::time::timeout(PATIENCE, written).await.expect("every write is logged");
        let all = log.all();
        let writes: Vec<&Entry> = all.iter().filter(|entry| is_later_write(entry)).collect();
        assert_eq!(writes.len(), 1, "it is the next thing that is told");
        let end = all.iter().rfind(|entry| entry.resource == "pods" && entry.name == pod).unwrap();
        waits.push(writes[0].at.duration_since(end.at));
    }
    for node in &nodes {
        workload.let_go(&format!("stays-{node}")).await;
        nothing_is_left(&cluster, node).await;
    }
    // The machine may be busy for some of them.
    waits.sort();
    assert!(waits[waits.len() / 2] <= PACE, "{waits:?}");
}
