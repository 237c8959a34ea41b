//! The status is written for every change, for nothing else, and at most twice a second.

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
use nm_tests::maintenance::{start, until_drained_without_errors, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, is_eviction, until_requests};
use nm_tests::wait::TEST_TIMEOUT;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

/// The shortest interval between two writes of one status.
const WRITE_INTERVAL: SignedDuration = SignedDuration::from_millis(500);

fn is_status_write(entry: &Entry, name: &str) -> bool {
    is_by_reconciler(entry)
        && (entry.verb, entry.subresource.as_str(), entry.name.as_str()) == ("patch", "status", name)
}

/// All statuses of a maintenance, up to the `last`.
async fn statuses(
    cluster: &Cluster,
    name: &str,
    last: impl Fn(&NodeMaintenanceStatus) -> bool,
) -> Vec<NodeMaintenanceStatus> {
    let mut seen: Vec<NodeMaintenanceStatus> = Vec::new();
    let collect = async {
        let mut events = watcher::watch_object(cluster.maintenances(), name).boxed();
        while let Some(event) = events.next().await {
            let status = event.ok().flatten().and_then(|found: NodeMaintenance| found.status);
            let Some(status) = status.filter(|status| seen.last() != Some(status)) else { continue };
            let ends = last(&status);
            seen.push(status);
            if ends {
                return;
            }
        }
        panic!("the watch ended");
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, collect).await.is_ok(), "waited for the last of {seen:#?}");
    seen
}

/// The writes of a status, oldest first, once there are at least `count`.
async fn writes(sandbox: &Sandbox, name: &str, count: usize) -> Vec<Entry> {
    until_requests(sandbox, count, "every write is logged", |entry| is_status_write(entry, name)).await
}

fn is_drained(status: &NodeMaintenanceStatus) -> bool {
    is_true(&status.conditions, ConditionType::Drained)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_is_written_twice() {
    let cluster = Cluster::start(1).await;
    let workload = Workload::new(&cluster, "changes").await;
    let node = &cluster.nodes().await[0];
    for name in ["a", "b", "c"] {
        workload.pod_on(node, name, with_finalizer()).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-changes", node).await;
    let watched = statuses(&cluster, "e2e-changes", is_drained);
    let changes = async {
        until_status(&cluster, "e2e-changes", "all blocked", |status| status.blocked_pods.len() == 3).await;
        for round in 0..20 {
            // An event of a pod that changes nothing in the status.
            let touch =
                Patch::Merge(json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}}));
            workload.pods().patch("a", &PatchParams::default(), &touch).await.unwrap();
        }
        for name in ["a", "b", "c"] {
            workload.remove_finalizers(name).await;
        }
    };
    let (seen, ()) = futures::join!(watched, changes);
    for pair in seen.windows(2) {
        let without_time =
            NodeMaintenanceStatus { last_update: pair[0].last_update.clone(), ..pair[1].clone() };
        assert_ne!(without_time, pair[0], "{pair:#?}");
    }
    if let Some(sandbox) = cluster.sandbox() {
        let writes = writes(sandbox, "e2e-changes", seen.len()).await;
        assert_eq!(writes.len(), seen.len(), "every write was a change");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_refused_pod_do_not_change_the_status() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox logs requests").await else { return };
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
    until_status(&cluster, "e2e-retries", "refused", refused).await;
    // The write of this status may not be logged yet. Later writes are recognized by their time.
    let since = Timestamp::now();
    let sandbox = cluster.sandbox().unwrap();
    until_requests(sandbox, 4, "the eviction is retried", is_eviction).await;
    assert_eq!(log.count(|entry| is_status_write(entry, "e2e-retries") && entry.at > since), 0);
    faults.clear();
    until_drained_without_errors(&cluster, "e2e-retries").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_written_at_most_twice_a_second() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox logs requests").await else { return };
    let workload = Workload::new(&cluster, "many").await;
    let node = &cluster.nodes().await[0];
    for index in 0..40 {
        let stop = format!("{}ms", 100 * index);
        workload
            .create_pod(node, &format!("p-{index}"), json!({"metadata": {"annotations": {STOP_DELAY: stop}}}))
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
    // Intervals count from when a write is sent. On a busy machine one arrives later, and the next does not.
    let span = writes.last().unwrap().at.duration_since(writes[0].at);
    assert!(
        writes.windows(3).all(|three| three[2].at.duration_since(three[0].at) >= WRITE_INTERVAL),
        "{seen:#?}"
    );
    let intervals = i32::try_from(writes.len() - 1).unwrap();
    assert!(span >= WRITE_INTERVAL * (intervals - 1), "{} writes within {span}", writes.len());
    let last = seen.last().unwrap();
    assert_eq!((last.pod_counts.gone, last.drain_progress), (40, 100), "the last change is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_reported_as_gone_within_500_milliseconds() {
    let Some(cluster) = Cluster::sandbox_or_skip(6, "only a sandbox logs requests").await else { return };
    let workload = Workload::new(&cluster, "ends").await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start(&cluster);
    // The maintenances start one after another: no other change of the first is pending when the last begins.
    for node in &nodes {
        for name in ["goes", "stays"] {
            workload.pod_on(node, &format!("{name}-{node}"), with_finalizer()).await;
        }
        start(&cluster, node, node).await;
        until_status(&cluster, node, "both blocked", |status| status.blocked_pods.len() == 2).await;
    }
    let log = cluster.sandbox().unwrap().requests();
    let mut waits = Vec::new();
    for node in &nodes {
        let pod = format!("goes-{node}");
        let since = Timestamp::now();
        let is_later_write = |entry: &Entry| is_status_write(entry, node) && entry.at > since;
        workload.remove_finalizers(&pod).await;
        let shown = until_status(&cluster, node, "one is gone", |status| status.pod_counts.gone == 1).await;
        assert_eq!(shown.pending_pods, [format!("stays-{node}")]);
        let sandbox = cluster.sandbox().unwrap();
        let writes = until_requests(sandbox, 1, "every write is logged", is_later_write).await;
        let all = log.all();
        assert_eq!(writes.len(), 1, "the next write reports it");
        let end = all.iter().rfind(|entry| entry.resource == "pods" && entry.name == pod).unwrap();
        waits.push(writes[0].at.duration_since(end.at));
    }
    for node in &nodes {
        workload.remove_finalizers(&format!("stays-{node}")).await;
        until_drained_without_errors(&cluster, node).await;
    }
    // Other tests may keep the processors busy for some of them.
    waits.sort();
    assert!(waits[waits.len() / 2] <= WRITE_INTERVAL, "{waits:?}");
}
