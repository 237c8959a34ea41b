//! Maintenances with `spec.suspend`: planned before they begin, paused afterwards.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::api::names::{PLANNED_TAINT, PREFER_NO_SCHEDULE, UNDO_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::{Group, NodeMaintenanceStatus, Phase, Suspension};
use nm_tests::cluster::Cluster;
use nm_tests::events::{until_event, until_events};
use nm_tests::maintenance::{
    patch_drain, plan, start, stop, suspend, until_drained, until_phase, until_status, until_suspension,
};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{evictions, is_by_reconciler, is_eviction, is_write, until_requests};
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::json;

fn has_planned_taint(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == PLANNED_TAINT && taint.effect == PREFER_NO_SCHEDULE)
}

async fn until_planned(cluster: &Cluster, name: &str, node: &str) {
    let status = until_suspension(cluster, name, Some(Suspension::Planned)).await;
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Pending), ""));
    assert!(has_planned_taint(&cluster.node(node).await), "the node is tainted before the status shows it");
}

/// A maintenance that has begun and is blocked by the budget of the pod `guarded`.
async fn start_blocked(cluster: &Cluster, name: &str, node: &str) -> Workload {
    let workload = Workload::new(cluster, name).await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    start(cluster, name, node).await;
    let refused = |status: &NodeMaintenanceStatus| !status.blocked_pods.is_empty();
    until_status(cluster, name, "blocked", refused).await;
    workload
}

/// The reconcilers' reads of pods on this node.
fn pod_reads(sandbox: &Sandbox, node: &str) -> usize {
    let selector = format!("spec.nodeName={node}");
    sandbox.requests().count(|entry: &Entry| {
        is_by_reconciler(entry) && entry.resource == "pods" && entry.field_selector == selector
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_maintenance_only_taints_its_node_and_begins_when_it_is_resumed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "planned").await;
    workload.pod_on(node, "one", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    let planned = plan(&cluster, "e2e-planned", node).await;
    until_planned(&cluster, "e2e-planned", node).await;
    assert_eq!(until_event(&cluster, &planned, "PlannedMaintenance").await, ["PlannedMaintenance"]);
    let tainted = cluster.node(node).await;
    assert_eq!(tainted.spec.as_ref().and_then(|spec| spec.unschedulable), None);
    assert!(cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap().is_none());
    assert!(workload.pods().get("one").await.unwrap().metadata.deletion_timestamp.is_none());
    if let Some(sandbox) = cluster.sandbox() {
        assert_eq!(pod_reads(sandbox, node), 0, "a planned maintenance needs no pods");
    }

    suspend(&cluster, "e2e-planned", false).await;
    let drained = until_drained(&cluster, "e2e-planned").await;
    let status = drained.status.as_ref().unwrap();
    assert_eq!((status.eviction_pods, status.paused_seconds), (1, None));
    assert_eq!(find(&status.conditions, ConditionType::Suspended).unwrap().reason, "Resumed");
    let cordoned = cluster.node(node).await;
    assert!(is_cordoned(&cordoned, Group::Medik8s) && !has_planned_taint(&cordoned));
    let expected = ["PlannedMaintenance", "BeginMaintenance", "SucceedMaintenance"];
    assert_eq!(until_events(&cluster, &drained, &expected).await, expected);
    stop(&cluster, "e2e-planned").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn within_a_second_of_a_pause_no_eviction_is_sent_and_a_resumed_drain_evicts_the_rest_once() {
    let why = "only a sandbox delays evictions and logs when they came";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "paused").await;
    for number in 0..8 {
        workload.pod_on(&nodes[0], &format!("pod-{number}"), json!({})).await;
    }
    workload.pod_on(&nodes[1], "elsewhere", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_millis(500)));
    sandbox.faults().add(slow);
    // One at a time: the others are queued.
    let _reconciler = Reconciler::start_with(&cluster, &["--max-concurrent-evictions", "1"]);
    let maintenance = start(&cluster, "e2e-paused", &nodes[0]).await;
    until_requests(sandbox, 1, "the first pod is evicted", is_eviction).await;

    let paused_at = Timestamp::now();
    suspend(&cluster, "e2e-paused", true).await;
    let status = until_suspension(&cluster, "e2e-paused", Some(Suspension::Paused)).await;
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(find(&status.conditions, ConditionType::Drained).unwrap().reason, "Paused");
    // Evictions continue on the other node, one after the other.
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    until_drained(&cluster, "e2e-elsewhere").await;
    let sent = |name: &str| evictions(sandbox).into_iter().filter(|entry| entry.name == name).count();
    let deadline = paused_at + SignedDuration::from_secs(1);
    let late: Vec<Entry> = evictions(sandbox)
        .into_iter()
        .filter(|entry| entry.name != "elsewhere" && entry.at > deadline)
        .collect();
    assert_eq!(late, [], "no eviction is sent a second after the pause");
    assert!(is_cordoned(&cluster.node(&nodes[0]).await, Group::Medik8s));
    assert!(cluster.node_leases().get_opt(&node_lease::name(&nodes[0])).await.unwrap().is_some());
    assert!((0..8).any(|number| sent(&format!("pod-{number}")) == 0), "some pods were queued");

    suspend(&cluster, "e2e-paused", false).await;
    let status = until_drained(&cluster, "e2e-paused").await.status.unwrap();
    assert_eq!((status.eviction_pods, status.pod_counts.gone), (8, 8));
    for number in 0..8 {
        // A request that was on its way at the pause is aborted, and may be repeated.
        assert!((1..=2).contains(&sent(&format!("pod-{number}"))), "{number}");
    }
    let expected = ["BeginMaintenance", "PausedMaintenance", "ResumedMaintenance", "SucceedMaintenance"];
    assert_eq!(until_events(&cluster, &maintenance, &expected).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_of_a_drain_excludes_its_pause_also_across_a_restart_of_the_reconciler() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let reconciler = Reconciler::start(&cluster);
    let workload = start_blocked(&cluster, "e2e-pausetime", &nodes[0]).await;
    suspend(&cluster, "e2e-pausetime", true).await;
    let paused = until_suspension(&cluster, "e2e-pausetime", Some(Suspension::Paused)).await;
    assert_eq!((paused.blocked_pods.len(), paused.last_error.as_str()), (0, ""), "nothing is tried");
    assert_eq!(paused.pod_counts.waiting, 1);

    let begin = |status: &NodeMaintenanceStatus, type_| {
        find(&status.conditions, type_).unwrap().last_transition_time.0
    };
    let since = begin(&paused, ConditionType::Suspended);
    let timeout = since.duration_since(begin(&paused, ConditionType::Cordoned)).as_secs() + 2;
    patch_drain(&cluster, "e2e-pausetime", json!({"timeoutSeconds": timeout})).await;
    reconciler.crash().await;
    let _reconciler = Reconciler::start(&cluster);
    // The pause takes longer than the timeout: another drain takes three seconds meanwhile.
    if let Some(sandbox) = cluster.sandbox() {
        let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_secs(3)));
        sandbox.faults().add(slow);
    }
    workload.pod_on(&nodes[1], "elsewhere", json!({})).await;
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    until_drained(&cluster, "e2e-elsewhere").await;
    let status = cluster.maintenances().get_status("e2e-pausetime").await.unwrap().status.unwrap();
    assert_eq!(
        (status.phase, Suspension::in_status(&status)),
        (Some(Phase::Running), Some(Suspension::Paused))
    );

    suspend(&cluster, "e2e-pausetime", false).await;
    let failed = until_phase(&cluster, "e2e-pausetime", Phase::Failed).await;
    let seconds = failed.paused_seconds.unwrap();
    assert_eq!(seconds, begin(&failed, ConditionType::Suspended).duration_since(since).as_secs());
    let due = begin(&failed, ConditionType::Cordoned) + SignedDuration::from_secs(timeout + seconds);
    let failed_at = failed.last_update.unwrap().0;
    assert!(failed_at >= due && failed_at < due + SignedDuration::from_secs(3), "{failed_at}, due at {due}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_reconciler_leaves_planned_and_paused_maintenances_as_they_are() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let reconciler = Reconciler::start(&cluster);
    let _workload = start_blocked(&cluster, "e2e-left-paused", &nodes[0]).await;
    let planned = plan(&cluster, "e2e-left-planned", &nodes[1]).await;
    suspend(&cluster, "e2e-left-paused", true).await;
    until_suspension(&cluster, "e2e-left-paused", Some(Suspension::Paused)).await;
    until_planned(&cluster, "e2e-left-planned", &nodes[1]).await;
    until_event(&cluster, &planned, "PlannedMaintenance").await;
    let before = [cluster.node(&nodes[0]).await, cluster.node(&nodes[1]).await];
    reconciler.crash().await;
    let reconciler = Reconciler::start(&cluster);
    // A third maintenance shows that the new reconciler works: it is a duplicate.
    start(&cluster, "e2e-left-third", &nodes[1]).await;
    until_phase(&cluster, "e2e-left-third", Phase::Failed).await;
    stop(&cluster, "e2e-left-third").await;
    for (node, before) in nodes.iter().zip(&before) {
        assert_eq!(configuration(&cluster.node(node).await), configuration(before));
    }
    if let Some(sandbox) = cluster.sandbox() {
        let pid = reconciler.pid();
        let is_change = |entry: &Entry| {
            nm_tests::requests::is_by(entry, pid)
                && is_write(entry)
                && (entry.subresource == "eviction" || entry.name == "e2e-left-planned")
        };
        assert_eq!(sandbox.requests().count(is_change), 0);
    }
    assert_eq!(until_event(&cluster, &planned, "PlannedMaintenance").await, ["PlannedMaintenance"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_taint_that_someone_else_set_stays_after_a_plan_and_after_a_drain() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let taint = json!({"key": PLANNED_TAINT, "effect": PREFER_NO_SCHEDULE, "value": "by-others"});
    cluster.patch_node(node, json!({"spec": {"taints": [taint]}})).await;
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    for resumed in [false, true] {
        plan(&cluster, "e2e-foreign", node).await;
        until_planned(&cluster, "e2e-foreign", node).await;
        if resumed {
            suspend(&cluster, "e2e-foreign", false).await;
            until_drained(&cluster, "e2e-foreign").await;
            assert!(has_planned_taint(&cluster.node(node).await));
        }
        stop(&cluster, "e2e-foreign").await;
        assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_and_paused_maintenances_are_deleted_at_once_and_leave_the_nodes_as_they_were() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let before = [cluster.node(&nodes[0]).await, cluster.node(&nodes[1]).await];
    let _reconciler = Reconciler::start(&cluster);
    let workload = start_blocked(&cluster, "e2e-gone-paused", &nodes[0]).await;
    suspend(&cluster, "e2e-gone-paused", true).await;
    until_suspension(&cluster, "e2e-gone-paused", Some(Suspension::Paused)).await;
    plan(&cluster, "e2e-gone-planned", &nodes[1]).await;
    until_planned(&cluster, "e2e-gone-planned", &nodes[1]).await;
    for name in ["e2e-gone-paused", "e2e-gone-planned"] {
        stop(&cluster, name).await;
    }
    for (node, before) in nodes.iter().zip(&before) {
        let after = cluster.node(node).await;
        assert_eq!(configuration(&after), configuration(before));
        assert!(!after.annotations().contains_key(UNDO_ANNOTATION));
        assert!(cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap().is_none());
    }
    assert!(workload.pods().get("guarded").await.unwrap().metadata.deletion_timestamp.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_maintenance_is_not_in_the_queue_and_a_paused_one_counts_as_unavailable() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let _reconciler = Reconciler::start_with(&cluster, &["--max-unavailable", "1"]);
    plan(&cluster, "e2e-limit-planned", &nodes[0]).await;
    until_planned(&cluster, "e2e-limit-planned", &nodes[0]).await;
    let _workload = start_blocked(&cluster, "e2e-limit-paused", &nodes[1]).await;
    suspend(&cluster, "e2e-limit-paused", true).await;
    until_suspension(&cluster, "e2e-limit-paused", Some(Suspension::Paused)).await;
    start(&cluster, "e2e-limit-queued", &nodes[2]).await;
    let queued = until_status(&cluster, "e2e-limit-queued", "queued", |status| status.queue.is_some()).await;
    assert_eq!(queued.queue.map(|queue| (queue.position, queue.length)), Some((1, 1)));

    // The older maintenance takes its place in the order of creation, once it is resumed.
    suspend(&cluster, "e2e-limit-planned", false).await;
    let first = |status: &NodeMaintenanceStatus| status.queue.is_some_and(|queue| queue.position == 1);
    until_status(&cluster, "e2e-limit-planned", "queued", first).await;
    stop(&cluster, "e2e-limit-paused").await;
    until_drained(&cluster, "e2e-limit-planned").await;
    stop(&cluster, "e2e-limit-planned").await;
    until_drained(&cluster, "e2e-limit-queued").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_planned_maintenances_of_one_node_are_duplicates_and_the_second_takes_over() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    plan(&cluster, "e2e-plan-a", node).await;
    until_planned(&cluster, "e2e-plan-a", node).await;
    plan(&cluster, "e2e-plan-b", node).await;
    until_phase(&cluster, "e2e-plan-b", Phase::Failed).await;
    stop(&cluster, "e2e-plan-a").await;
    until_phase(&cluster, "e2e-plan-b", Phase::Pending).await;
    until_planned(&cluster, "e2e-plan-b", node).await;
    suspend(&cluster, "e2e-plan-b", false).await;
    until_drained(&cluster, "e2e-plan-b").await;
    stop(&cluster, "e2e-plan-b").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_maintenance_does_not_inherit_the_cordon_of_the_one_before_it() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-heir-a", node).await;
    until_drained(&cluster, "e2e-heir-a").await;
    plan(&cluster, "e2e-heir-b", node).await;
    until_phase(&cluster, "e2e-heir-b", Phase::Failed).await;
    stop(&cluster, "e2e-heir-a").await;
    until_phase(&cluster, "e2e-heir-b", Phase::Pending).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    wait_until(&nodes, node, "tainted", |node| node.is_some_and(has_planned_taint)).await;
    let planned = cluster.node(node).await;
    assert_eq!(planned.spec.as_ref().and_then(|spec| spec.unschedulable), None);
    stop(&cluster, "e2e-heir-b").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}
