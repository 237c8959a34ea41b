//! Which pods are evicted when.

use super::*;
use crate::api::pod_reference::PodReference;
use crate::cluster::disruption_budget::Budget;
use crate::drain::budget_allowance::{Budgets, RemainingBudget};
use crate::drain::plan::DaemonSets;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> SteadyTime {
    SteadyTime::after_start(Duration::from_secs(3_600))
}

fn ago(milliseconds: u64) -> SteadyTime {
    SteadyTime::after_start(Duration::from_millis(3_600_000 - milliseconds))
}

fn pod(name: &str, priority: i32) -> Arc<DrainPod> {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true});
    let pod = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": [owner], "labels": {"app": "a"}},
        "spec": {"containers": [], "priority": priority},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn budgets(allowed: i32) -> Budgets {
    Budgets::from_objects([&guard(allowed)])
}

/// The same, asked so long ago.
fn asked_budgets(allowed: i32, milliseconds_ago: u64) -> Budgets {
    Budgets::from_iter([RemainingBudget::of(
        Arc::new(Budget::from(&guard(allowed))),
        Some(ago(milliseconds_ago)),
        0,
        [],
    )])
}

fn guard(allowed: i32) -> PodDisruptionBudget {
    let budget = json!({
        "metadata": {"namespace": "ns", "name": "guard", "resourceVersion": "1"}, "spec": {"selector": {}},
        "status": {"currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": allowed, "expectedPods": 3},
    });
    serde_json::from_value(budget).unwrap()
}

fn refused(milliseconds_ago: u64) -> Attempt {
    let mut attempt = Attempt::default();
    attempt.end(EvictionOutcome::RefusedByBudget("numbers".into()), ago(milliseconds_ago));
    attempt
}

fn queue(pods: &[Arc<DrainPod>], spec: &Value, observed: &ClusterState) -> EvictionQueue {
    let spec: DrainSpec = serde_json::from_value(spec.clone()).unwrap();
    let plan =
        DrainPlan::new(pods.iter().cloned(), &spec, &DaemonSets::default(), Timestamp::UNIX_EPOCH).unwrap();
    let order = EvictionOrder::new(&plan, &spec, observed);
    EvictionQueue::new(&plan, &spec, observed, &order, &Surges::default(), now())
}

fn asked(queue: &EvictionQueue) -> Vec<&str> {
    queue.evictions.iter().map(|eviction| pod::uid(&eviction.pod)).collect()
}

#[test]
fn a_pod_whose_virtual_machine_has_migrated_is_retried_at_once() {
    let mut finished = DrainPod::clone(&pod("a", 0));
    finished.phase = pod::PodPhase::Finished;
    let mut migrating = Attempt::default();
    migrating.end(EvictionOutcome::Migrating(String::new()), ago(300));
    let attempts = || HashMap::from([("a".to_owned(), migrating.clone())]);
    let observed = || ClusterState { attempts: attempts(), ..ClusterState::default() };
    assert!(asked(&queue(&[pod("a", 0)], &json!({}), &observed())).is_empty());
    assert_eq!(asked(&queue(&[Arc::new(finished)], &json!({}), &observed())), ["a"]);
}

#[test]
fn a_pod_with_two_budgets_is_retried_as_soon_as_one_is_left() {
    let budget = |name: &&str| -> PodDisruptionBudget {
        let budget = json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 1}});
        serde_json::from_value(budget).unwrap()
    };
    let mut attempt = Attempt::default();
    attempt.end(EvictionOutcome::MultipleBudgets(String::new()), ago(300));
    let asked = |names: &[&str]| {
        let budgets = Budgets::from_objects(&names.iter().map(budget).collect::<Vec<_>>());
        let attempts = HashMap::from([("a".to_owned(), attempt.clone())]);
        let observed = ClusterState { budgets, attempts, ..ClusterState::default() };
        asked(&queue(&[pod("a", 0)], &json!({}), &observed)).len()
    };
    assert_eq!([asked(&["x", "y"]), asked(&["x"]), asked(&[])], [0, 1, 1]);
}

#[test]
fn a_budget_blocks_the_pod_of_a_virtual_machine_only_if_kubevirt_leaves_the_answer_to_it() {
    let mut launcher = DrainPod::clone(&pod("vm", 0));
    let labels = [("kubevirt.io".to_owned(), "virt-launcher".to_owned()), ("app".to_owned(), "a".to_owned())];
    (launcher.labels, launcher.domain) = (Arc::new(labels.into()), Some("vm".into()));
    let pods = [Arc::new(launcher)];
    let observed = ClusterState { budgets: asked_budgets(0, 1_000), ..ClusterState::default() };
    let first = queue(&pods, &json!({}), &observed);
    assert_eq!((asked(&first), first.blocked_by_budget.len()), (vec!["vm"], 0));
    let attempts = HashMap::from([("vm".to_owned(), refused(1_000))]);
    let again = queue(&pods, &json!({}), &ClusterState { attempts, ..observed });
    assert_eq!((asked(&again), again.blocked_by_budget.len()), (vec![], 1));
}

fn answered(outcome: EvictionOutcome, milliseconds_ago: u64) -> Attempt {
    let mut attempt = Attempt::default();
    attempt.end(outcome, ago(milliseconds_ago));
    attempt
}

#[test]
fn a_pod_that_does_not_wait_for_its_budget_leaves_its_disruptions_to_the_next() {
    let webhook = |milliseconds_ago| {
        let refusal = EvictionOutcome::RefusedByWebhook { webhook: String::new(), message: String::new() };
        answered(refusal, milliseconds_ago)
    };
    let asked = |attempt: Attempt| {
        let attempts = HashMap::from([("a".to_owned(), attempt)]);
        let observed = ClusterState { budgets: budgets(1), attempts, ..ClusterState::default() };
        let queue = queue(&[pod("a", 0), pod("b", 0), pod("c", 0)], &json!({}), &observed);
        assert!(queue.next.is_some());
        (asked(&queue).join(","), queue.blocked_by_budget.len())
    };
    assert_eq!(asked(webhook(500)), ("b,c".to_owned(), 1), "one that the budget allows, one as a probe");
    assert_eq!(asked(webhook(1_500)), ("a,b".to_owned(), 2));
    assert_eq!(asked(refused(100)), ("b".to_owned(), 2), "the disruption is for the pod that waits for it");
}

#[test]
fn an_api_server_that_fails_does_not_count_as_refusing() {
    let spec = json!({"deleteAfterSeconds": 60});
    let requests = |attempt: Attempt| {
        let attempts = HashMap::from([("a".to_owned(), attempt)]);
        let queue = queue(&[pod("a", 0)], &spec, &ClusterState { attempts, ..ClusterState::default() });
        queue.evictions.iter().map(|eviction| eviction.request).collect::<Vec<_>>()
    };
    let minutes = 120_000;
    let throttled = EvictionOutcome::Throttled { retry_after: None, message: String::new() };
    for outcome in [EvictionOutcome::Unknown(String::new()), throttled, EvictionOutcome::Forbidden("".into())]
    {
        assert_eq!(requests(answered(outcome, minutes)), [RemovalRequest::Evict]);
    }
    let mut still_refused = refused(minutes);
    for seconds_ago in [80, 40, 0] {
        still_refused.end(EvictionOutcome::NotMigratable(String::new()), ago(1_000 * seconds_ago));
    }
    assert_eq!(requests(still_refused), [RemovalRequest::Delete]);
    let mut anew = answered(EvictionOutcome::Unknown(String::new()), minutes);
    anew.end(EvictionOutcome::RefusedByBudget("".into()), ago(1_000));
    assert_eq!(requests(anew), [RemovalRequest::Evict], "it has been refused for a second");
    assert_eq!(
        requests(refused(minutes)),
        [RemovalRequest::Evict],
        "no eviction was requested for two minutes"
    );
}

// Defect gardener/machine-controller-manager#703: Budgets that can never allow an eviction are tried without a
// pause, and the API server is overloaded.
#[test]
fn an_exhausted_budget_is_probed_with_one_pod_and_blocks_the_others() {
    let pods = [pod("a", 0), pod("b", 0), pod("c", 0)];
    let first = queue(&pods, &json!({}), &ClusterState { budgets: budgets(0), ..ClusterState::default() });
    assert_eq!(asked(&first), ["a"]);
    assert_eq!(
        first.blocked_by_budget["c"].refusal.message,
        "The disruption budget guard needs 3 healthy pods and has 3 currently"
    );
    let observed = ClusterState {
        budgets: asked_budgets(0, 4_000),
        attempts: [("a".to_owned(), refused(4_000))].into(),
        ..ClusterState::default()
    };
    let then = queue(&pods, &json!({}), &observed);
    assert!(asked(&then).is_empty());
    assert_eq!(then.next.map(|at| at.since(now())), Some(Duration::from_secs(6)));
    let late = ClusterState { budgets: asked_budgets(0, 10_000), ..observed };
    assert_eq!(asked(&queue(&pods, &json!({}), &late)), ["a"]);
}

#[test]
fn a_budget_that_allows_disruptions_again_is_used_at_once() {
    let pods = [pod("a", 0), pod("b", 0), pod("c", 0)];
    let observed = ClusterState {
        budgets: asked_budgets(2, 300),
        attempts: [("a".to_owned(), refused(300))].into(),
        ..ClusterState::default()
    };
    assert_eq!(asked(&queue(&pods, &json!({}), &observed)), ["a", "b"]);
    let fresh = ClusterState { attempts: [("a".to_owned(), refused(50))].into(), ..observed };
    let fresh = queue(&pods, &json!({}), &fresh);
    assert_eq!(asked(&fresh), ["b"]);
    assert_eq!(fresh.next.map(|at| at.since(now())), Some(Duration::from_millis(150)));
}

#[test]
fn pods_of_a_lower_priority_are_gone_before_the_next_begin() {
    let order = json!({"order": "PriorityAscending"});
    let pods = [pod("a", 100), pod("b", 0), pod("c", 0)];
    assert_eq!(asked(&queue(&pods, &order, &ClusterState::default())), ["b", "c"]);
    assert_eq!(asked(&queue(&pods, &json!({}), &ClusterState::default())), ["a", "b", "c"]);
    let attempts = [("b".to_owned(), refused(100)), ("c".to_owned(), refused(100))].into();
    let stuck = ClusterState { attempts, ..ClusterState::default() };
    assert!(asked(&queue(&pods, &order, &stuck)).is_empty(), "while a pod of a lower priority remains");
    assert_eq!(asked(&queue(&pods[..1], &order, &ClusterState::default())), ["a"]);
}

/// A pod with a volume.
fn with_volume(name: &str, priority: i32, volume: &Value) -> Arc<DrainPod> {
    let mut with_volume = DrainPod::clone(&pod(name, priority));
    let volume: DrainPod = serde_json::from_value(json!({"spec": {"volumes": [volume]}})).unwrap();
    (with_volume.mounts_served_volume, with_volume.registers_plugin) =
        (volume.mounts_served_volume, volume.registers_plugin);
    Arc::new(with_volume)
}

#[test]
fn in_order_a_plugin_leaves_after_the_pods_that_mount_volumes_whatever_its_priority() {
    let order = json!({"order": "PriorityAscending"});
    let plugin = |name: &str, priority: i32| {
        with_volume(name, priority, &json!({"hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}))
    };
    let db = || with_volume("db", 100, &json!({"persistentVolumeClaim": {"claimName": "db"}}));
    let check = |pods: &[Arc<DrainPod>], spec: &Value, expected: &[&str]| {
        assert_eq!(asked(&queue(pods, spec, &ClusterState::default())), expected, "{spec}");
    };
    let pods = [pod("api", 50), db(), plugin("driver", 0)];
    check(&pods, &order, &["api"]);
    check(&pods[1..], &order, &["db"]);
    check(&pods[2..], &order, &["driver"]);
    check(&pods, &json!({}), &["api", "db", "driver"]);
    // Of the same priority, and without a volume.
    check(&[db(), plugin("driver", 100)], &order, &["db"]);
    check(&[pod("api", 50), plugin("driver", 0)], &order, &["driver"]);
    // A plugin that mounts a volume of another waits for no plugin.
    let volumes = with_volume("other", 0, &json!({"persistentVolumeClaim": {"claimName": "state"}}));
    let mut other = DrainPod::clone(&volumes);
    other.registers_plugin = true;
    check(&[plugin("driver", 0), Arc::new(other)], &order, &["driver", "other"]);
}

#[test]
fn a_plugin_does_not_wait_for_a_pod_that_stays() {
    let spec = json!({"order": "PriorityAscending", "podSelector": {"matchLabels": {"app": "a"}}});
    let mut stays = DrainPod::clone(&with_volume("db", 0, &json!({"csi": {"driver": "d"}})));
    stays.labels = Arc::default();
    let plugin = with_volume("driver", 0, &json!({"hostPath": {"path": "/k/plugins_registry"}}));
    assert_eq!(asked(&queue(&[Arc::new(stays), plugin], &spec, &ClusterState::default())), ["driver"]);
}

#[test]
fn in_order_pods_wait_for_completing_pods_of_a_lower_priority() {
    let spec = |order: &str| {
        let selector = json!({"matchLabels": {"job": "yes"}});
        json!({"order": order, "waitForCompletion": {"podSelector": selector}})
    };
    let mut job = DrainPod::clone(&pod("job", 0));
    job.labels = Arc::new([("job".to_owned(), "yes".to_owned())].into());
    let job = Arc::new(job);
    let asked = |pods: &[Arc<DrainPod>], order: &str| {
        let spec: DrainSpec = serde_json::from_value(spec(order)).unwrap();
        let (no_sets, epoch) = (DaemonSets::default(), Timestamp::UNIX_EPOCH);
        let mut plan = DrainPlan::new(pods.iter().cloned(), &spec, &no_sets, epoch).unwrap();
        plan.await_completion(&spec, None, epoch).unwrap();
        let observed = ClusterState::default();
        let order = EvictionOrder::new(&plan, &spec, &observed);
        let queue = EvictionQueue::new(&plan, &spec, &observed, &order, &Surges::default(), now());
        queue.evictions.iter().map(|eviction| pod::uid(&eviction.pod).to_owned()).collect::<Vec<_>>()
    };
    let pods = [job, pod("same", 0), pod("higher", 10)];
    assert_eq!(asked(&pods, "PriorityAscending"), ["same"]);
    assert_eq!(asked(&pods, "None"), ["higher", "same"]);
    assert_eq!(asked(&pods[2..], "PriorityAscending"), ["higher"]);
}

#[test]
fn the_reconcilers_own_pod_is_evicted_last() {
    let own_pod = Some(PodReference { namespace: "ns".to_owned(), name: "a".to_owned() });
    let observed = ClusterState { own_pod, ..ClusterState::default() };
    let pods = [pod("a", 0), pod("b", 0)];
    for order in [json!({}), json!({"order": "PriorityAscending"})] {
        assert_eq!(asked(&queue(&pods, &order, &observed)), ["b"], "{order}");
        assert_eq!(asked(&queue(&pods[..1], &order, &observed)), ["a"], "{order}");
    }
}

#[test]
fn a_pod_refused_for_too_long_is_deleted_with_its_grace_period() {
    let spec = json!({"deleteAfterSeconds": 60, "gracePeriodSeconds": 7});
    let attempts = |milliseconds| [("a".to_owned(), refused(milliseconds))].into();
    let early = ClusterState { budgets: budgets(0), attempts: attempts(59_000), ..ClusterState::default() };
    let early = queue(&[pod("a", 0)], &spec, &early);
    assert_eq!(early.evictions[0].request, RemovalRequest::Evict);
    assert_eq!(early.next.map(|at| at.since(now())), Some(Duration::from_secs(1)));
    let late = ClusterState { budgets: budgets(0), attempts: attempts(60_000), ..ClusterState::default() };
    let late = queue(&[pod("a", 0)], &spec, &late);
    assert_eq!(
        (late.evictions[0].request, late.evictions[0].grace_period_seconds),
        (RemovalRequest::Delete, Some(7))
    );
}

#[test]
fn a_pod_blocked_by_its_budget_without_a_request_is_deleted_in_time_too() {
    let mut held = Attempt::default();
    held.block_by_budget(ago(60_000));
    let observed = ClusterState {
        budgets: budgets(0),
        attempts: [("a".to_owned(), held)].into(),
        ..ClusterState::default()
    };
    let queue = queue(&[pod("a", 0)], &json!({"deleteAfterSeconds": 60}), &observed);
    assert_eq!(queue.evictions[0].request, RemovalRequest::Delete);
}

#[test]
fn a_refused_deletion_backs_off_and_follows_the_next_refused_eviction() {
    let spec = json!({"deleteAfterSeconds": 60});
    let denied = || EvictionOutcome::RefusedByWebhook { webhook: String::new(), message: String::new() };
    let mut attempt = refused(90_000);
    attempt.end(EvictionOutcome::RefusedByBudget("".into()), ago(45_000));
    attempt.end_deletion(denied(), ago(3_000));
    let queue = |attempt: &Attempt| {
        let attempts = [("a".to_owned(), attempt.clone())].into();
        let observed = ClusterState { budgets: asked_budgets(0, 1_000), attempts, ..ClusterState::default() };
        let queue = queue(&[pod("a", 0)], &spec, &observed);
        let requests: Vec<RemovalRequest> = queue.evictions.iter().map(|eviction| eviction.request).collect();
        assert!(queue.overdue.contains("a"));
        (requests, queue.next.map(|at| at.since(now())))
    };
    assert_eq!(queue(&attempt), (vec![], Some(Duration::from_secs(1))));
    attempt.deletion = Some(Box::new((ago(4_000), denied())));
    assert_eq!(queue(&attempt).0, [RemovalRequest::Evict], "its budget may allow it by now");
    attempt.end(EvictionOutcome::RefusedByBudget("".into()), now());
    assert_eq!(queue(&attempt).0, [RemovalRequest::Delete]);
}

#[test]
fn a_migrating_virtual_machine_is_never_deleted_and_retried_slowly() {
    let mut migrating = Attempt::default();
    migrating.end(EvictionOutcome::RefusedByBudget("".into()), ago(90_000));
    migrating.end(EvictionOutcome::Migrating(String::new()), ago(4_000));
    let observed = ClusterState { attempts: [("a".to_owned(), migrating)].into(), ..ClusterState::default() };
    let queue = queue(&[pod("a", 0)], &json!({"deleteAfterSeconds": 60}), &observed);
    assert!(queue.evictions.is_empty());
    assert_eq!(queue.next.map(|at| at.since(now())), Some(Duration::from_secs(6)));
}

#[test]
fn nothing_of_a_machine_that_moves_is_deleted_however_long_it_is_refused() {
    let launcher = json!({
        "metadata": {"namespace": "ns", "name": "virt-launcher-vm-x", "uid": "l",
            "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": "vm"}},
        "spec": {"priority": 1000}, "status": {"phase": "Running"},
    });
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-vm-x", "uid": "l", "controller": true});
    let disk = json!({
        "metadata": {"namespace": "ns", "name": "hp-volume-x", "uid": "d", "labels": {"kubevirt.io": "hotplug-disk"},
            "ownerReferences": [owner]},
        "status": {"phase": "Running"},
    });
    let pods: Vec<Arc<DrainPod>> =
        [launcher, disk].map(|pod| Arc::new(serde_json::from_value(pod).unwrap())).into();
    let deleted = |of_launcher: EvictionOutcome| {
        let mut launcher = Attempt::default();
        launcher.end(of_launcher, ago(20_000));
        let mut disk = Attempt::default();
        disk.end(EvictionOutcome::HotplugPod(String::new()), ago(20_000));
        let attempts = HashMap::from([("l".to_owned(), launcher), ("d".to_owned(), disk)]);
        let observed = ClusterState { attempts, ..ClusterState::default() };
        let queue = queue(&pods, &json!({"deleteAfterSeconds": 10}), &observed);
        let deletions = queue.evictions.iter().filter(|eviction| eviction.request == RemovalRequest::Delete);
        deletions.map(|eviction| pod::uid(&eviction.pod).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(deleted(EvictionOutcome::Migrating(String::new())), [""; 0]);
    assert_eq!(deleted(EvictionOutcome::NotMigratable(String::new())), ["l"], "the disk goes with it");
    let ordered = queue(&pods, &json!({"order": "PriorityAscending"}), &ClusterState::default());
    assert!(asked(&ordered).contains(&"l"), "its disk, which has no priority, waits for it");
}

#[test]
fn an_eviction_that_a_budget_ignores_is_not_charged_to_it() {
    let mut pending = DrainPod::clone(&pod("a", 0));
    pending.phase = pod::PodPhase::Pending;
    let mut unready = DrainPod::clone(&pod("b", 0));
    unready.ready = None;
    let pods = [Arc::new(pending), Arc::new(unready), pod("c", 0)];
    let queue = queue(&pods, &json!({}), &ClusterState { budgets: budgets(1), ..ClusterState::default() });
    assert_eq!(asked(&queue), ["a", "b", "c"]);
    let charged: Vec<usize> = queue.evictions.iter().map(|eviction| eviction.guards.len()).collect();
    assert_eq!(charged, [0, 0, 1]);
}

#[test]
fn a_pod_that_something_else_refused_is_retried_whatever_its_budget_allows_and_does_not_probe_it() {
    let webhook = EvictionOutcome::RefusedByWebhook { webhook: String::new(), message: String::new() };
    for other in [EvictionOutcome::Unknown(String::new()), EvictionOutcome::Forbidden("".into()), webhook] {
        let attempts = || HashMap::from([("a".to_owned(), answered(other.clone(), 10_000))]);
        let queue = |pods: &[Arc<DrainPod>], asked_ago| {
            let budgets = asked_budgets(0, asked_ago);
            let observed = ClusterState { budgets, attempts: attempts(), ..ClusterState::default() };
            asked(&queue(pods, &json!({}), &observed)).join(",")
        };
        assert_eq!(queue(&[pod("a", 0), pod("b", 0)], 10_000), "a,b", "{other:?}");
        assert_eq!(queue(&[pod("a", 0), pod("b", 0)], 4_000), "a", "{other:?}");
    }
}
