//! The pods of the node view.

use jiff::SignedDuration;
use nm_core::testing::objects::{requested, with_status};
use nm_shared::cluster::pod::DrainPod;
use serde_json::{Value, json};

use super::*;
use crate::model::lists::listing::Rows;
use crate::model::open_node::pod_row::detail;

fn now() -> Timestamp {
    "2026-01-02T03:10:00Z".parse().unwrap()
}

fn pod(name: &str, more: &Value) -> Arc<NodePod> {
    let mut object = json!({"metadata": {"name": name, "namespace": "shop", "uid": name}});
    for (key, value) in more.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    let pod: DrainPod = serde_json::from_value(object).unwrap();
    Arc::new(NodePod::from(pod))
}

fn plain(name: &str) -> Arc<NodePod> {
    pod(name, &json!({}))
}

fn owned(name: &str, kind: &str) -> Arc<NodePod> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    pod(name, &json!({"ownerReferences": owner}))
}

fn terminating(name: &str, deadline: &str) -> Arc<NodePod> {
    pod(name, &json!({"deletionTimestamp": deadline, "deletionGracePeriodSeconds": 30}))
}

fn running(status: &Value) -> NodeMaintenance {
    let mut whole = json!({"phase": "Running"});
    for (key, value) in status.as_object().unwrap() {
        whole[key] = value.clone();
    }
    with_status("n1", whole)
}

fn blocked(name: &str, reason: &str) -> Value {
    json!({"namespace": "shop", "name": name, "reason": reason, "message": "m",
        "since": "2026-01-02T03:09:00Z", "attempts": 7})
}

/// The rows, with their messages up to the first comma: the wording of blockers is tested in `nm_shared`.
fn shown(pods: &PodList) -> Vec<String> {
    let rows = (0..pods.rows.len()).filter_map(|index| pods.rows.nth(index));
    let line = |row: &PodRow| {
        let message = row.progress.message.split(',').next().unwrap_or_default();
        format!("{} {} {message}", row.progress.word(), row.id.name).trim_end().to_owned()
    };
    rows.map(line).collect()
}

#[test]
fn a_pods_state_joins_the_pod_and_the_status() {
    let status = running(&json!({
        "blockedPods": [blocked("b", "DisruptionBudget"), blocked("e1", "DisruptionBudget"), blocked("e2", "NodeNotReady")],
        "migratingPods": [{"namespace": "shop", "name": "vm", "machine": "db", "source": "n1", "target": "n2"}],
        "podCounts": {"blocked": 3, "waiting": 1, "evicting": 1},
    }));
    let mut pods = PodList::default();
    let pods_on_node = [
        plain("w"),
        plain("b"),
        terminating("e0", "2026-01-02T03:10:20Z"),
        terminating("e1", "2026-01-02T03:10:20Z"),
        terminating("e2", "2026-01-02T03:10:20Z"),
        terminating("late", "2026-01-02T03:00:00Z"),
        plain("vm"),
        owned("ds", "DaemonSet"),
        pod("static", &json!({"annotations": {"kubernetes.io/config.mirror": "x"}})),
    ];
    pods.list(&pods_on_node, Some(&status), now());
    assert_eq!(
        shown(&pods),
        [
            "Blocked b m",
            "Blocked e2 m",
            "Blocked late terminating",
            "Terminating e0",
            "Terminating e1",
            "Migrating vm db to n2",
            "Waiting w",
            "Staying ds managed by a DaemonSet",
            "Staying static static pod",
        ]
    );
    let row = pods.rows.get("b").unwrap();
    assert_eq!((row.progress.attempts, row.progress.reason), (7, Some(BlockReason::DisruptionBudget)));
    let asked = pods.rows.get("e0").unwrap().progress.since.unwrap();
    assert_eq!(asked, "2026-01-02T03:09:50Z".parse().unwrap());
}

#[test]
fn a_pod_that_leaves_before_the_drain_begins_is_not_one_that_the_drain_moved() {
    for (phase, left) in [("Pending", vec![]), ("Running", vec!["Gone a"])] {
        let maintenance = with_status("n1", json!({"phase": phase}));
        let mut pods = PodList::default();
        pods.list(&[plain("a")], Some(&maintenance), now());
        pods.remove(&plain("a").id, Some(&maintenance), now());
        assert_eq!(shown(&pods), left, "{phase}");
    }
}

#[test]
fn the_reconcilers_own_pod_waits_to_be_evicted_last_and_the_others_are_evicting() {
    let own =
        json!({"namespace": "shop", "name": "nm", "reason": "EvictedLast", "since": "2026-01-02T03:09:00Z"});
    let status = running(&json!({"waitingPods": [own], "podCounts": {"waiting": 1, "evicting": 1}}));
    let mut pods = PodList::default();
    pods.list(&[plain("nm"), plain("web")], Some(&status), now());
    assert_eq!(shown(&pods), ["Evicting web", "Waiting nm evicted last: nm-reconciler"]);
}

#[test]
fn a_pod_that_waits_because_of_the_order_says_after_how_many() {
    let ordered = json!({"namespace": "shop", "name": "db", "reason": "Order", "since": "2026-01-02T03:09:00Z", "ahead": 2});
    let status = running(&json!({"waitingPods": [ordered], "podCounts": {"waiting": 1, "evicting": 1}}));
    let mut pods = PodList::default();
    pods.list(&[plain("db"), plain("web")], Some(&status), now());
    assert_eq!(shown(&pods), ["Evicting web", "Waiting db order: 2 pods before it"]);
}

#[test]
fn nothing_blocks_or_waits_once_the_maintenance_is_being_deleted() {
    let ordered = json!({"namespace": "shop", "name": "db", "reason": "Order", "since": "2026-01-02T03:09:00Z", "ahead": 2});
    let blocked = json!({"namespace": "shop", "name": "web", "reason": "DisruptionBudget", "message": "m",
        "since": "2026-01-02T03:09:00Z", "attempts": 1});
    let mut status = running(&json!({"waitingPods": [ordered], "blockedPods": [blocked],
        "podCounts": {"waiting": 1, "blocked": 1}}));
    status.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-02T03:09:30Z")).unwrap());
    let mut pods = PodList::default();
    pods.list(&[plain("db"), plain("web")], Some(&status), now());
    assert_eq!(shown(&pods), ["Staying db the drain has ended", "Staying web the drain has ended"]);
}

#[test]
fn a_pod_that_is_left_to_end_by_itself_waits_and_the_others_are_evicting() {
    let completing = |until: Option<&str>| {
        let pod = json!({"namespace": "shop", "name": "job", "reason": "Completing", "since": "2026-01-02T03:09:00Z",
                "until": until});
        running(&json!({"waitingPods": [pod], "podCounts": {"waiting": 1, "evicting": 1}}))
    };
    let mut pods = PodList::default();
    pods.list(&[plain("job"), plain("web")], Some(&completing(None)), now());
    assert_eq!(shown(&pods), ["Evicting web", "Waiting job Completing"]);
    let row = pods.rows.get("job").unwrap();
    assert_eq!(row.progress.since, Some("2026-01-02T03:09:00Z".parse().unwrap()));
    pods.apply_status(Some(&completing(Some("2026-01-02T04:00:00Z"))), now());
    let row = pods.rows.get("job").unwrap();
    assert_eq!(row.progress.message, "Completing, evicted at 2026-01-02T04:00:00Z");
    let up = running(&json!({"podCounts": {"evicting": 2}}));
    pods.apply_status(Some(&up), now());
    assert_eq!(shown(&pods), ["Evicting job", "Evicting web"], "the time is up");
}

#[test]
fn a_pod_that_came_back_stays() {
    let returned = json!({"namespace": "shop", "name": "operator", "since": "2026-01-02T03:09:00Z"});
    let status = running(&json!({"returnedPods": [returned], "podCounts": {"staying": 1, "evicting": 1}}));
    let mut pods = PodList::default();
    pods.list(&[plain("operator"), plain("web")], Some(&running(&json!({}))), now());
    pods.apply_status(Some(&status), now());
    assert_eq!(shown(&pods), ["Evicting web", "Staying operator came to the node after the cordon"]);
}

#[test]
fn pods_of_a_node_without_a_maintenance_have_no_state_and_are_not_kept() {
    let mut pods = PodList::default();
    pods.list(&[plain("a"), plain("b")], None, now());
    pods.remove(&plain("a").id, None, now());
    assert_eq!(shown(&pods), ["- b"]);
    pods.apply_status(Some(&requested("n1")), now());
    assert_eq!(shown(&pods), ["Waiting b"]);
}

#[test]
fn pods_that_disappear_are_kept_as_gone_also_after_a_relist() {
    let status = running(&json!({}));
    let mut pods = PodList::default();
    pods.list(&[plain("a"), plain("b"), owned("ds", "DaemonSet")], Some(&status), now());
    pods.remove(&plain("a").id, Some(&status), now());
    pods.remove(&owned("ds", "DaemonSet").id, Some(&status), now());
    assert_eq!(shown(&pods), ["Waiting b", "Gone a"]);
    let later = now() + SignedDuration::from_secs(9);
    pods.list(&[plain("c")], Some(&status), later);
    assert_eq!(shown(&pods), ["Waiting c", "Gone b", "Gone a"], "the latest first");
    assert_eq!(pods.rows.get("a").unwrap().progress.since, Some(now()));
    pods.apply(&plain("a"), Some(&status), later);
    assert_eq!(shown(&pods), ["Waiting a", "Waiting c", "Gone b"]);
}

#[test]
fn a_pod_that_comes_after_the_drain_began_is_named_as_one_that_its_status_does_not_count() {
    let (before, begun) = (with_status("n1", json!({"phase": "Pending"})), running(&json!({})));
    let mut pods = PodList::default();
    pods.apply_status(Some(&before), now());
    pods.list(&[plain("a")], Some(&before), now());
    pods.apply(&plain("b"), Some(&before), now());
    pods.apply(&plain("a"), Some(&begun), now());
    pods.apply(&owned("ds", "DaemonSet"), Some(&begun), now());
    assert_eq!(pods.later(), 0, "it stays, or was there");
    pods.apply(&plain("c"), Some(&begun), now());
    assert_eq!(pods.later(), 1);
    for pod in [plain("b"), plain("c")] {
        pods.remove(&pod.id, Some(&begun), now());
    }
    let gone =
        ["Waiting a", "Gone b", "Gone c came after the drain started: not counted", "Staying ds DaemonSet"];
    assert_eq!(shown(&pods)[..3], gone[..3]);
    assert_eq!(pods.later(), 1);
    pods.list(&[plain("a"), plain("d")], Some(&begun), now());
    assert_eq!(pods.later(), 2, "also while the watch was lost");
    let mut other = running(&json!({}));
    other.metadata.uid = Some(String::from("another"));
    pods.apply_status(Some(&other), now());
    assert_eq!(pods.later(), 0, "of another maintenance");
}

#[test]
fn a_change_of_the_status_updates_the_pods_that_it_names() {
    let mut pods = PodList::default();
    pods.list(&[plain("a"), plain("b")], Some(&running(&json!({}))), now());
    let status = running(
        &json!({"blockedPods": [blocked("b", "Forbidden")], "podCounts": {"blocked": 1, "evicting": 1}}),
    );
    pods.apply_status(Some(&status), now());
    assert_eq!(shown(&pods), ["Blocked b m", "Evicting a"]);
    let status = running(&json!({"podCounts": {"blocked": 2, "waiting": 0}}));
    pods.apply_status(Some(&status), now());
    let hint = "possibly blocked: the status does not list all blocked pods";
    assert_eq!(shown(&pods), [format!("Waiting a {hint}"), format!("Waiting b {hint}")]);
}

#[test]
fn a_change_of_many_pods_keeps_them_in_order() {
    let many: Vec<Arc<NodePod>> = (0..1000).map(|i| plain(&format!("p{i:03}"))).collect();
    let mut pods = PodList::default();
    pods.list(&many, Some(&running(&json!({}))), now());
    pods.apply_status(Some(&running(&json!({"podCounts": {"evicting": 1000}}))), now());
    assert_eq!(pods.rows.len(), 1000);
    assert_eq!(shown(&pods)[999], "Evicting p999");
}

#[test]
fn a_changed_drain_spec_judges_the_pods_again() {
    let mut other = running(&json!({}));
    let mut pods = PodList::default();
    pods.list(&[plain("a"), owned("b", "ReplicaSet")], Some(&other), now());
    assert_eq!(shown(&pods), ["Waiting a", "Waiting b"]);
    other.spec.drain = Some(DrainSpec { force: false, ..DrainSpec::default() });
    pods.apply_status(Some(&other), now());
    let blocked = shown(&pods);
    assert!(blocked[0].starts_with("Blocked a ") && blocked[1] == "Waiting b", "{blocked:?}");
    pods.apply_status(None, now());
    assert_eq!(shown(&pods), ["- a", "- b"]);
    pods.apply_status(Some(&other), now());
    assert_eq!(shown(&pods), blocked);
    other.spec.drain = None;
    pods.apply_status(Some(&other), now());
    assert_eq!(shown(&pods), ["Waiting a", "Waiting b"]);
}

#[test]
fn a_terminating_pod_becomes_blocked_after_its_grace_period() {
    let status = running(&json!({}));
    let mut pods = PodList::default();
    pods.list(&[terminating("e", "2026-01-02T03:10:20Z")], Some(&status), now());
    pods.tick(Some(&status), now() + SignedDuration::from_secs(60));
    assert_eq!(shown(&pods), ["Terminating e"]);
    pods.tick(Some(&status), now() + SignedDuration::from_secs(90));
    assert_eq!(shown(&pods)[0], "Blocked e terminating");
}

#[test]
fn a_pod_that_its_job_has_to_count_has_no_grace_period_any_more() {
    let status = running(&json!({}));
    let mut pods = PodList::default();
    let ended = |grace: i64| {
        pod(
            "import",
            &json!({"deletionTimestamp": "2026-01-02T03:09:30Z", "deletionGracePeriodSeconds": grace,
                "finalizers": ["batch.kubernetes.io/job-tracking"]}),
        )
    };
    let detail = |pods: &PodList| detail(pods.rows.nth(0).unwrap(), now());
    pods.list(&[ended(30)], Some(&status), now());
    assert_eq!((pods.waiting_for_jobs(), detail(&pods).as_str()), (0, "30s after the grace period"));
    pods.list(&[ended(0)], Some(&status), now());
    let counts = "has ended, and its Job has not counted it yet";
    assert_eq!((pods.waiting_for_jobs(), detail(&pods).as_str()), (1, counts));
}

#[test]
fn a_node_that_is_back_gives_its_terminating_pods_their_grace_period_again() {
    let status = running(&json!({}));
    let mut pods = PodList { ready_since: Some(now()), ..PodList::default() };
    pods.list(&[terminating("e", "2026-01-02T03:08:00Z")], Some(&status), now());
    let row = pods.rows.nth(0).unwrap();
    assert_eq!(
        (row.progress.word(), detail(row, now()).as_str()),
        ("Terminating", "30s of the grace period left")
    );
    pods.ready_since = None;
    pods.tick(Some(&status), now());
    assert_eq!(shown(&pods)[0], "Blocked e terminating", "its node has been Ready all the time");
}

#[test]
fn without_permission_to_list_pods_the_pods_of_the_status_are_shown() {
    let pending = |names: &[&str]| {
        let pods: Vec<Value> = names.iter().map(|name| json!({"namespace": "shop", "name": name})).collect();
        running(&json!({"pendingPodsRefs": pods, "blockedPods": [blocked("b", "Forbidden")]}))
    };
    let mut pods = PodList::default();
    pods.hide(Some(&pending(&["a", "b"])), now());
    assert_eq!(shown(&pods), ["Blocked b m", "Remaining a still on the node"]);
    pods.apply_status(Some(&pending(&["b"])), now());
    assert_eq!(shown(&pods), ["Blocked b m", "Gone a"]);
    // With the permission, no pod is there twice.
    pods.list(&[plain("b")], Some(&pending(&["b"])), now());
    assert_eq!(shown(&pods), ["Blocked b m", "Gone a"]);
}

#[test]
fn a_pod_that_only_the_status_names_has_a_state_if_the_numbers_leave_one() {
    for (counts, expected) in [
        (json!({"terminating": 1, "blocked": 1}), "Terminating a still on the node"),
        (json!({"evicting": 1}), "Evicting a still on the node"),
        (json!({"waiting": 1, "gone": 3, "staying": 2}), "Waiting a still on the node"),
        (json!({"terminating": 1, "waiting": 1}), "Remaining a still on the node"),
        (json!({"terminating": 1, "blocked": 2}), "Remaining a still on the node"),
        (json!({}), "Remaining a still on the node"),
    ] {
        let pending = ["a", "b"].map(|name| json!({"namespace": "shop", "name": name}));
        let status = json!({"blockedPods": [blocked("b", "DisruptionBudget")], "podCounts": counts,
            "pendingPodsRefs": pending});
        let mut pods = PodList::default();
        pods.hide(Some(&running(&status)), now());
        assert_eq!(shown(&pods), ["Blocked b m", expected], "{counts}");
        assert!(pods.rows.all().all(had_to_go), "{counts}");
    }
}

#[test]
fn a_pod_that_waits_for_lower_priorities_says_so() {
    for (order, expected) in
        [("PriorityAscending", "Waiting w waits for pods of lower priority"), ("None", "Waiting w")]
    {
        let mut maintenance = running(&json!({"podCounts": {"waiting": 1}}));
        maintenance.spec.drain = serde_json::from_value(json!({"order": order})).unwrap();
        let mut pods = PodList::default();
        pods.list(&[plain("w")], Some(&maintenance), now());
        assert_eq!(shown(&pods), [expected]);
    }
}

#[test]
fn pods_that_left_in_an_earlier_maintenance_are_not_shown_as_gone_from_this_one() {
    let of = |uid: &str| {
        let mut object = running(&json!({"podCounts": {"waiting": 1}}));
        object.metadata.uid = Some(uid.to_owned());
        object
    };
    let (first, second) = (of("first"), of("second"));
    let mut pods = PodList::default();
    pods.list(&[plain("a"), plain("b")], Some(&first), now());
    pods.apply_status(Some(&first), now());
    pods.remove(&plain("a").id, Some(&first), now());
    pods.apply_status(Some(&first), now());
    assert_eq!(shown(&pods), ["Waiting b", "Gone a"]);
    pods.apply_status(None, now());
    pods.apply_status(Some(&second), now());
    assert_eq!(shown(&pods), ["Waiting b"]);
}
