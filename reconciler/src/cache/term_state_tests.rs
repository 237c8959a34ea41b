//! What a leader knows, when it forgets it, and whom an event concerns.

use std::collections::HashMap;

use kube::ResourceExt;
use nm_shared::cluster::disruption_budget::BudgetVersion;
use nm_shared::decide::decision::RemovalRequest;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use nm_shared::{NodeMaintenanceSpec, Phase};
use serde_json::{Value, json};

use super::*;
use crate::cache::shared_state::SharedState;

/// The state of a term that waits for no list.
fn state() -> TermState {
    TermState::new([], NonZeroUsize::MIN)
}

fn maintenance(name: &str, group: Group, status: &Value) -> GroupedMaintenance {
    let api_version = format!("{}/{}", group.name(), group.version());
    serde_json::from_value(json!({
        "apiVersion": api_version, "metadata": {"name": name, "uid": format!("{name} {group:?}")},
        "spec": {"nodeName": name}, "status": status,
    }))
    .unwrap()
}

fn of_medik8s(name: &str) -> GroupedMaintenance {
    maintenance(name, Group::Medik8s, &Value::Null)
}

fn node(name: &str, version: &str, ready: &str) -> Node {
    let conditions = json!([{"type": "Ready", "status": ready}]);
    let metadata = json!({"name": name, "resourceVersion": version});
    serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
}

fn lease(version: &str) -> Lease {
    let metadata = json!({"name": "node-n", "namespace": "medik8s-leases", "resourceVersion": version});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// The names of the maintenances to reconcile.
fn triggered(state: &mut TermState) -> Vec<String> {
    state.take_triggered().into_iter().map(|found| found.name).collect()
}

#[test]
fn maintenances_of_one_name_in_two_groups_are_two() {
    let mut state = state();
    for group in &Group::ALL[..2] {
        state.maintenance_applied(Arc::new(maintenance("a", *group, &json!({"phase": "Running"}))));
    }
    assert_eq!(state.maintenances.on_node("a").count(), 2);
    let ours = state.maintenances.filter(|maintenance| maintenance.group == Group::Medik8s);
    assert_eq!(ours.len(), 1);
}

#[test]
fn nothing_is_decided_before_all_groups_are_listed() {
    let mut state = TermState::new(Group::ALL, NonZeroUsize::MIN);
    for group in Group::ALL {
        assert!(state.maintenances.initial_list_wait().is_some());
        assert_eq!(state.maintenances.is_in_maintenance("a"), None);
        state.maintenances_listed(group, []);
    }
    assert_eq!(state.maintenances.initial_list_wait(), None);
    assert_eq!(state.maintenances.is_in_maintenance("a"), Some(false));
}

#[test]
fn a_list_replaces_what_a_restore_of_etcd_has_undone() {
    let mut state = state();
    let at = |version: &str| {
        let mut found = of_medik8s("n");
        found.maintenance.metadata.resource_version = Some(version.to_owned());
        found
    };
    let versions = |state: &mut TermState| {
        let latest = state.maintenances.latest(Arc::new(at("5"))).resource_version();
        let node = state.nodes.latest("n").and_then(|node| node.resource_version());
        (latest.unwrap_or_default(), node.unwrap_or_default())
    };
    let uid = ownership::uid(&at("9")).to_owned();
    state.maintenance_applied(Arc::new(at("5")));
    state.apply_node(WatchUpdate::Applied(node("n", "5", "True").into()));
    state.maintenances.note_seen(&uid);
    state.maintenances.memory(&uid, |known| {
        known.released = true;
        _ = known.last_write.remember(at("9"));
    });
    state.remember_node("n", node("n", "9", "True"));
    assert_eq!(versions(&mut state), ("9".to_owned(), "9".to_owned()));
    state.maintenances_listed(Group::Medik8s, [Arc::new(at("5"))]);
    state.apply_node(WatchUpdate::Listed(vec![node("n", "5", "True").into()]));
    assert_eq!(versions(&mut state), ("5".to_owned(), "5".to_owned()));
    assert!(!state.maintenances.memory(&uid, |known| known.released), "it is there again");
}

#[test]
fn a_pruned_status_is_complete_until_someone_else_writes() {
    let mut state = state();
    let of = |status: &Value| maintenance("a", Group::Kubevirt, status);
    let stored = of(&json!({"phase": "Running"}));
    let written = of(&json!({"phase": "Running", "drainProgress": 50})).maintenance.status.unwrap();
    let progress = |state: &mut TermState, received: &GroupedMaintenance| {
        let latest = state.maintenances.latest(Arc::new(received.clone()));
        latest.status.as_ref().map(|status| status.drain_progress)
    };
    state.maintenance_applied(Arc::new(stored.clone()));
    assert_eq!(progress(&mut state, &stored), Some(0));
    state.maintenances.note_seen("a Kubevirt");
    state.remember_status(&written, stored.clone());
    assert_eq!(progress(&mut state, &stored), Some(50));
    assert_eq!(progress(&mut state, &of(&json!({"phase": "Succeeded"}))), Some(0), "by another");
    assert_eq!(progress(&mut state, &of(&Value::Null)), None, "by another");
    state.maintenances_listed(Group::Kubevirt, []);
    assert_eq!(progress(&mut state, &stored), Some(0), "the maintenance is gone");
}

#[test]
fn a_definition_prunes_details_if_it_does_not_store_conditions() {
    let mut state = state();
    let of = |status: &Value| maintenance("a", Group::Medik8s, status);
    let prunes =
        |state: &mut TermState| state.maintenances.memory("a Medik8s", |known| known.prunes_details());
    let condition = json!({"type": "Drained", "status": "False", "reason": "Evicting", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let written = json!({"phase": "Running", "conditions": [condition], "podCounts": {"gone": 1}});
    let written = of(&written).maintenance.status.unwrap();
    assert!(!prunes(&mut state), "nothing is written");
    state.maintenances.note_seen("a Medik8s");
    state.remember_status(&written, of(&json!({"phase": "Running", "conditions": [condition]})));
    assert!(!prunes(&mut state));
    state.remember_status(&written, of(&json!({"phase": "Running"})));
    assert!(prunes(&mut state));
}

#[test]
fn a_status_that_was_written_is_read_until_the_watch_has_caught_up() {
    let mut state = state();
    let mut received = of_medik8s("a");
    received.maintenance.metadata.resource_version = Some("5".to_owned());
    state.maintenance_applied(Arc::new(received.clone()));
    state.maintenances.note_seen("a Medik8s");
    let written = NodeMaintenanceStatus { last_error: "no".to_owned(), ..NodeMaintenanceStatus::default() };
    let mut answer = received.clone();
    answer.maintenance.metadata.resource_version = Some("6".to_owned());
    answer.maintenance.status = Some(written.clone());
    state.remember_status(&written, answer);
    assert_eq!(state.maintenances.latest(Arc::new(received)).status.as_ref(), Some(&written));
}

/// The version of the lease on `n`.
fn lease_version(state: &mut TermState) -> Option<String> {
    state.nodes.latest_lease("n").unwrap().and_then(|latest| latest.resource_version())
}

#[test]
fn a_lease_that_was_just_created_is_known_until_the_watch_delivers_it_or_its_deletion() {
    let mut state = state();
    state.maintenance_applied(Arc::new(of_medik8s("n")));
    assert_eq!(lease_version(&mut state), None);
    state.remember_lease("n", Some(lease("10")));
    assert_eq!(lease_version(&mut state).as_deref(), Some("10"));
    state.apply_lease(WatchUpdate::Applied(lease("9")));
    assert_eq!(lease_version(&mut state).as_deref(), Some("10"));
    state.apply_lease(WatchUpdate::Deleted(lease("11")));
    assert_eq!(lease_version(&mut state), None);
    state.remember_lease("n", Some(lease("10")));
    assert_eq!(lease_version(&mut state), None, "a late answer does not restore it");
}

#[test]
fn a_lease_that_was_just_deleted_is_not_known_any_more() {
    let mut state = state();
    state.maintenance_applied(Arc::new(of_medik8s("n")));
    state.apply_lease(WatchUpdate::Applied(lease("10")));
    let mut older = lease("9");
    older.metadata.uid = Some("older".to_owned());
    state.nodes.lease_deleted(&Arc::new(older));
    assert_eq!(lease_version(&mut state).as_deref(), Some("10"));
    state.nodes.lease_deleted(&Arc::new(lease("10")));
    assert_eq!(lease_version(&mut state), None);
    state.apply_lease(WatchUpdate::Deleted(lease("11")));
    state.apply_lease(WatchUpdate::Applied(lease("12")));
    assert_eq!(lease_version(&mut state).as_deref(), Some("12"));
}

/// Two nodes, each with a maintenance, the first of which has begun.
fn one_of_two_has_begun() -> (TermState, GroupedMaintenance) {
    let mut state = state();
    state.apply_node(WatchUpdate::Listed(["a", "b"].map(|name| node(name, "1", "True").into()).into()));
    let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let begun = json!({"phase": Phase::Running, "conditions": [cordoned]});
    let begun = maintenance("a", Group::Medik8s, &begun);
    state.maintenance_applied(Arc::new(begun.clone()));
    state.maintenance_applied(Arc::new(of_medik8s("b")));
    (state, begun)
}

/// Whether the maintenance `b` is in the queue while at most one node may be unavailable.
fn waits_for_its_turn(state: &mut TermState) -> bool {
    state.gate.queue(MaxUnavailable::Nodes(1)).get("b Medik8s").is_some()
}

#[test]
fn an_answer_that_arrives_after_the_deletion_of_its_object_takes_no_place_in_the_queue() {
    let (mut state, begun) = one_of_two_has_begun();
    assert!(waits_for_its_turn(&mut state));
    state.maintenance_deleted(&begun);
    assert!(!waits_for_its_turn(&mut state));
    state.remember_status(&begun.status.clone().unwrap(), begun.clone());
    assert!(!waits_for_its_turn(&mut state), "a late answer to a status");
    state.set_at_work(&begun, true);
    assert!(!waits_for_its_turn(&mut state), "a late decision");
}

#[test]
fn two_decisions_on_different_threads_never_take_the_same_last_place() {
    for _ in 0..200 {
        let (state, _triggered) = SharedState::new([], NonZeroUsize::MIN);
        state
            .lock()
            .apply_node(WatchUpdate::Listed(["a", "b"].map(|name| node(name, "1", "True").into()).into()));
        let both = [("b", Group::Medik8s), ("a", Group::Kubevirt)];
        let both = both.map(|(name, group)| maintenance(name, group, &Value::Null));
        for maintenance in &both {
            state.lock().maintenance_applied(Arc::new(maintenance.clone()));
        }
        let start = std::sync::Barrier::new(both.len());
        let begins = |maintenance: &GroupedMaintenance| {
            start.wait();
            let mut state = state.lock();
            let may_begin = both.iter().all(|other| !state.gate.has_begun(other));
            state.set_at_work(maintenance, may_begin);
            may_begin
        };
        let begins = &begins;
        let begun = std::thread::scope(|threads| {
            let tasks = both.each_ref().map(|maintenance| threads.spawn(move || begins(maintenance)));
            tasks.map(|task| task.join().unwrap())
        });
        assert_eq!(begun.iter().filter(|begun| **begun).count(), 1, "{begun:?}");
    }
}

#[test]
fn a_late_answer_to_a_patch_of_a_node_does_not_replace_what_the_watch_has_delivered() {
    let mut state = state();
    for name in ["b", "n"] {
        state.maintenance_applied(Arc::new(of_medik8s(name)));
        state.apply_node(WatchUpdate::Applied(node(name, "1", "True").into()));
    }
    state.remember_node("n", node("n", "7", "True"));
    // A node that is not Ready takes a place of the queue.
    state.apply_node(WatchUpdate::Applied(node("n", "9", "False").into()));
    assert!(waits_for_its_turn(&mut state));
    state.remember_node("n", node("n", "8", "True"));
    assert!(waits_for_its_turn(&mut state), "the watch is ahead of the answer");
    state.remember_node("n", node("n", "10", "True"));
    assert!(!waits_for_its_turn(&mut state));
    for (version, ready) in [("10", "True"), ("11", "False")] {
        state.apply_node(WatchUpdate::Applied(node("n", version, ready).into()));
    }
    assert!(waits_for_its_turn(&mut state));
    state.apply_node(WatchUpdate::Deleted(node("n", "12", "False").into()));
    state.remember_node("n", node("n", "13", "False"));
    assert!(!waits_for_its_turn(&mut state), "the node is gone");
}

#[test]
fn an_event_concerns_the_maintenances_of_its_node_and_a_list_all() {
    let mut state = state();
    state.maintenance_applied(Arc::new(of_medik8s("n")));
    state.maintenance_applied(Arc::new(of_medik8s("other")));
    assert_eq!(triggered(&mut state), [""; 0], "the controller reconciles what was applied");
    state.apply_node(WatchUpdate::Applied(node("n", "1", "True").into()));
    assert_eq!(triggered(&mut state), ["n"]);
    state.apply_node(WatchUpdate::Applied(node("n", "2", "True").into()));
    assert_eq!(triggered(&mut state), [""; 0], "nothing that matters has changed");
    for lease in [WatchUpdate::Applied(lease("1")), WatchUpdate::Deleted(lease("2"))] {
        state.apply_lease(lease);
        assert_eq!(triggered(&mut state), ["n"]);
    }
    state.apply_lease(WatchUpdate::Listed(Vec::new()));
    assert_eq!(triggered(&mut state).len(), 2);
    state.apply_node(WatchUpdate::Interrupted);
    assert_eq!(triggered(&mut state), [""; 0]);
}

#[test]
fn the_last_maintenance_of_a_node_ends_all_work_for_it() {
    let mut state = state();
    let of_node = |name: &str| {
        let mut found = of_medik8s(name);
        found.maintenance.spec.node_name = "n".to_owned();
        found
    };
    for name in ["a", "b"] {
        state.maintenance_applied(Arc::new(of_node(name)));
        state.maintenances.note_seen(ownership::uid(&of_node(name)));
    }
    state.remember_node("n", node("n", "1", "True"));
    let metrics = Metrics::new();
    state.submit(&of_node("a"), vec![eviction("pod")], &metrics);
    let is_queued = |state: &TermState| state.evictions.attempts("n").contains_key("pod");
    triggered(&mut state);
    state.maintenance_deleted(&of_node("a"));
    assert_eq!((triggered(&mut state), is_queued(&state)), (vec!["b".to_owned()], true));
    assert!(state.nodes.remembers("n"), "the other one needs it");
    state.maintenance_deleted(&of_node("b"));
    assert_eq!((triggered(&mut state), is_queued(&state)), (vec![], false));
    assert!(!state.nodes.remembers("n") && state.maintenances.remembers_none());
    assert!(!state.evictions.has_waiting());
}

#[test]
fn an_answer_about_a_node_whose_maintenance_is_gone_is_not_remembered() {
    let mut state = state();
    state.maintenance_applied(Arc::new(of_medik8s("n")));
    let answers = |state: &mut TermState| {
        state.remember_node("n", node("n", "9", "True"));
        state.remember_lease("n", Some(lease("9")));
        state.nodes.remembers("n")
    };
    assert!(answers(&mut state));
    state.maintenance_deleted(&of_medik8s("n"));
    assert!(!answers(&mut state));
}

#[test]
fn conditions_are_outdated_on_nodes_without_a_maintenance_once_all_are_known() {
    let mut state = TermState::new([Group::Medik8s], NonZeroUsize::MIN);
    let shows = |name: &str| -> Node {
        let conditions =
            json!([{"type": "MaintenanceInProgress", "status": "True", "message": "NodeMaintenance m"}]);
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": conditions}}))
            .unwrap()
    };
    state.apply_node(WatchUpdate::Listed(
        [shows("n"), shows("other"), node("new", "1", "True")].map(Into::into).into(),
    ));
    assert_eq!(state.nodes_with_outdated_conditions(None), [""; 0]);
    state.maintenances_listed(Group::Medik8s, [Arc::new(of_medik8s("n"))]);
    assert_eq!(state.nodes_with_outdated_conditions(None), ["other"]);
    let of = |name: &str| state.nodes_with_outdated_conditions(Some(name)).len();
    assert_eq!(["n", "other", "new", "gone"].map(of), [0, 1, 0, 0]);
}

fn eviction(uid: &str) -> Eviction {
    let pod = json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid}});
    Eviction {
        pod: Arc::new(serde_json::from_value(pod).unwrap()),
        request: RemovalRequest::Evict,
        grace_period_seconds: None,
        guards: Vec::new(),
        uses_disruption: None,
    }
}

#[test]
fn a_maintenance_without_the_node_withdraws_nothing_of_the_one_that_has_it() {
    let (mut state, metrics) = (state(), Metrics::new());
    let maintenance = |uid: &str, generation| {
        let mut maintenance = NodeMaintenance::new(uid, NodeMaintenanceSpec::default());
        maintenance.metadata.uid = Some(uid.to_owned());
        maintenance.metadata.generation = Some(generation);
        maintenance
    };
    let is_queued = |state: &TermState| {
        let is_in_flight = state.evictions.attempts("")["pod"].in_flight;
        assert_eq!(is_in_flight, state.evictions.has_waiting());
        is_in_flight
    };
    state.submit(&maintenance("holder", 1), vec![eviction("pod")], &metrics);
    state.withdraw_outdated(&maintenance("duplicate", 2), false);
    assert!(is_queued(&state));
    state.withdraw_outdated(&maintenance("holder", 1), true);
    assert!(is_queued(&state));
    state.withdraw_outdated(&maintenance("holder", 2), false);
    assert!(!is_queued(&state), "its spec has changed, or it is being deleted");
    state.submit(&maintenance("holder", 2), vec![eviction("pod")], &metrics);
    state.withdraw_outdated(&maintenance("heir", 2), true);
    assert!(!is_queued(&state), "another has the node now");
}

#[test]
fn the_disruption_of_a_withdrawn_request_is_for_pods_of_other_nodes() {
    let mut state = state();
    state.maintenance_applied(Arc::new(of_medik8s("n")));
    let key = BudgetKey { namespace: "ns".to_owned(), name: "budget".to_owned() };
    let guard = Arc::new(BudgetVersion { key: key.clone(), version: "1".to_owned() });
    let elsewhere = NodeMaintenance::new("other", NodeMaintenanceSpec::default());
    let queued = Eviction { guards: vec![guard], ..eviction("queued") };
    state.submit(&elsewhere, vec![queued], &Metrics::new());
    state.defer("n", &[(eviction("deferred").pod, key)], SteadyTime::MIN);
    assert_eq!(triggered(&mut state), [""; 0]);
    state.leave_node("");
    assert_eq!(triggered(&mut state), ["n"]);
}

#[test]
#[ignore = "it measures"]
fn the_processor_time_of_deletions_is_measured() {
    for count in [625, 1_250, 2_500, 5_000] {
        let of = |group: Group| {
            let mut state = state();
            let all: HashMap<String, GroupedMaintenance> = (0..count)
                .map(|at| (format!("n{at:05}"), maintenance(&format!("n{at:05}"), group, &Value::Null)))
                .collect();
            for found in all.values() {
                state.maintenance_applied(Arc::new(found.clone()));
                state.maintenances.note_seen(ownership::uid(found));
            }
            let delete = || all.values().for_each(|found| state.maintenance_deleted(found));
            crate::runtime::thread_time::measured(delete).1
        };
        let (each, all) = (of(Group::Medik8s), of(Group::Kubevirt));
        println!("{count} deletions: {each:.3?}; {all:.3?} if each compares all that are left");
    }
}
