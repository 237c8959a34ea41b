//! What a leader remembers, and when it forgets it.

use super::*;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use nm_shared::gate::max_unavailable_queue::GateNode;
use serde_json::{Value, json};

fn maintenance(name: &str, group: Group, status: &Value) -> GroupedMaintenance {
    let api_version = format!("{}/{}", group.name(), group.version());
    serde_json::from_value(json!({
        "apiVersion": api_version, "metadata": {"name": name, "uid": format!("{name} {group:?}")},
        "spec": {"nodeName": name}, "status": status,
    }))
    .unwrap()
}

#[test]
fn maintenances_of_one_name_in_two_groups_are_two() {
    let mut writers = Group::ALL.map(|group| (group, Writer::new(group)));
    let state = LeaderState::new(writers.iter().map(|(group, writer)| (*group, writer.as_reader())));
    for (group, writer) in &mut writers[..2] {
        let there = maintenance("a", *group, &json!({"phase": "Running"}));
        writer.apply_watcher_event(&watcher::Event::Apply(there));
    }
    let groups: Vec<Group> = state.maintenances().iter().map(|maintenance| maintenance.group).collect();
    assert_eq!(groups, Group::ALL[..2]);
    assert_eq!(state.filter(|maintenance| maintenance.group == Group::Medik8s).len(), 1);
}

#[test]
fn nothing_is_decided_before_all_groups_are_listed() {
    let writers = Group::ALL.map(|group| (group, Writer::new(group)));
    let state = LeaderState::new(writers.iter().map(|(group, writer)| (*group, writer.as_reader())));
    for group in Group::ALL {
        assert!(state.initial_list_wait().is_some_and(|left| left <= INITIAL_LIST_TIMEOUT));
        state.mark_listed(group);
    }
    assert_eq!(state.initial_list_wait(), None);
}

#[test]
fn a_list_replaces_what_a_restore_of_etcd_has_undone() {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let at = |version: &str| {
        let mut found = maintenance("a", Group::Medik8s, &Value::Null);
        found.maintenance.metadata.resource_version = Some(version.to_owned());
        found
    };
    let latest = |state: &LeaderState| state.latest(Arc::new(at("5"))).metadata.resource_version.clone();
    let node = |version: &str| {
        let node = json!({"metadata": {"name": "n", "resourceVersion": version}});
        serde_json::from_value::<Node>(node).unwrap()
    };
    let latest_node =
        |state: &LeaderState| state.latest_node(Arc::new(node("5"))).metadata.resource_version.clone();
    let uid = ownership::uid(&at("9")).to_owned();
    state.note_seen(&uid);
    state.maintenance(&uid, |state| {
        state.released = true;
        _ = state.last_write.remember(at("9"));
    });
    state.node("n", |state| state.last_write.remember(node("9")));
    assert_eq!((latest(&state).as_deref(), latest_node(&state).as_deref()), (Some("9"), Some("9")));
    writer.apply_watcher_event(&watcher::Event::Apply(at("5")));
    state.mark_listed(Group::Medik8s);
    state.nodes_listed();
    assert_eq!((latest(&state).as_deref(), latest_node(&state).as_deref()), (Some("5"), Some("5")));
    assert!(!state.maintenance(&uid, |state| state.released), "it is there again");
}

#[test]
fn a_pruned_status_is_complete_until_someone_else_writes() {
    let state = LeaderState::new([]);
    let of = |status: &Value| maintenance("a", Group::Kubevirt, status);
    let stored = of(&json!({"phase": "Running"}));
    let written = of(&json!({"phase": "Running", "drainProgress": 50})).maintenance.status.unwrap();
    let progress = |state: &LeaderState, received: &GroupedMaintenance| {
        state.latest(Arc::new(received.clone())).status.as_ref().map(|status| status.drain_progress)
    };
    assert_eq!(progress(&state, &stored), Some(0));
    state.note_seen("a Kubevirt");
    state.remember_status(&written, stored.clone());
    assert_eq!(progress(&state, &stored), Some(50));
    assert_eq!(progress(&state, &of(&json!({"phase": "Succeeded"}))), Some(0), "by another");
    assert_eq!(progress(&state, &of(&Value::Null)), None, "by another");
    state.forget_removed();
    assert_eq!(progress(&state, &stored), Some(0), "the maintenance is gone");
}

#[test]
fn a_definition_prunes_details_if_it_does_not_store_conditions() {
    let state = LeaderState::new([]);
    let of = |status: &Value| maintenance("a", Group::Medik8s, status);
    let prunes = || state.maintenance("a Medik8s", |state| state.prunes_details());
    let condition = json!({"type": "Drained", "status": "False", "reason": "Evicting", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let stored = |fields: &Value| {
        let written = json!({"phase": "Running", "conditions": [condition], "podCounts": {"gone": 1}});
        state.remember_status(&of(&written).maintenance.status.unwrap(), of(fields));
    };
    assert!(!prunes(), "nothing is written");
    state.note_seen("a Medik8s");
    stored(&json!({"phase": "Running", "conditions": [condition]}));
    assert!(!prunes());
    stored(&json!({"phase": "Running"}));
    assert!(prunes());
}

#[test]
fn a_lease_that_was_just_created_is_known_until_the_watch_delivers_it_or_its_deletion() {
    let state = LeaderState::new([]);
    let lease = |version: &str| {
        let lease = json!({"metadata": {"name": "node-n", "resourceVersion": version}});
        serde_json::from_value::<Lease>(lease).unwrap()
    };
    let version = |received: Option<&str>| {
        let latest = state.latest_lease("n", received.map(|received| Arc::new(lease(received))));
        latest.and_then(|latest| latest.metadata.resource_version.clone())
    };
    assert_eq!(version(None), None);
    state.node("n", |node| node.lease_write.remember(lease("10")));
    assert_eq!(version(None).as_deref(), Some("10"));
    state.lease_delivered("n", &lease("9"));
    assert_eq!(version(Some("9")).as_deref(), Some("10"));
    state.lease_delivered("n", &lease("11"));
    assert_eq!(version(None), None);
}

#[test]
fn a_listed_maintenance_has_its_node() {
    let mut writers = [Group::Medik8s, Group::ALL[1]].map(|group| (group, Writer::new(group)));
    let state = LeaderState::new(writers.iter().map(|(group, writer)| (*group, writer.as_reader())));
    assert_eq!(state.is_in_maintenance("a"), None);
    let names_node = |state: &LeaderState| ["a", "b"].map(|node| state.is_in_maintenance(node));
    for (group, writer) in &mut writers {
        writer.apply_watcher_event(&watcher::Event::Init);
        writer.apply_watcher_event(&watcher::Event::InitApply(maintenance("a", *group, &Value::Null)));
        writer.apply_watcher_event(&watcher::Event::InitDone);
        state.mark_listed(*group);
    }
    assert_eq!(names_node(&state), [Some(true), Some(false)]);
    assert_eq!(state.received_on("a").count(), 2);
    for (group, writer) in &mut writers {
        writer.apply_watcher_event(&watcher::Event::Init);
        writer.apply_watcher_event(&watcher::Event::InitDone);
        state.mark_listed(*group);
    }
    assert_eq!(names_node(&state), [Some(false), Some(false)]);
}

/// The queue for the maintenance `b` while at most one node may be unavailable.
fn waits_for_its_turn(state: &LeaderState) -> bool {
    let limit = nm_shared::gate::max_unavailable_queue::MaxUnavailable::Nodes(1);
    state.gate.queue(limit).get("b Medik8s").is_some()
}

#[test]
fn an_answer_that_arrives_after_the_deletion_of_its_object_takes_no_place_in_the_queue() {
    let state = LeaderState::new([]);
    let of = |name: &str, status: &Value| maintenance(name, Group::Medik8s, status);
    let node = |name: &str| (name.to_owned(), GateNode::from(&Node::default()));
    state.gate.replace_nodes(&state.gate.begin_decision(), [node("a"), node("b")].into());
    let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let begun = of("a", &json!({"phase": "Running", "conditions": [cordoned]}));
    for maintenance in [begun.clone(), of("b", &Value::Null)] {
        state.index(Arc::new(maintenance));
    }
    assert!(waits_for_its_turn(&state));
    state.remove_from_index(&begun);
    assert!(!waits_for_its_turn(&state));
    state.remember_status(&begun.status.clone().unwrap(), begun.clone());
    assert!(!waits_for_its_turn(&state), "a late answer to a status");
    state.set_at_work(&state.gate.begin_decision(), &begun, true);
    assert!(!waits_for_its_turn(&state), "a late decision");
}

#[test]
fn a_late_answer_to_a_write_of_a_lease_that_was_deleted_does_not_restore_it() {
    let state = LeaderState::new([]);
    let lease = |version: &str| {
        let lease = json!({"metadata": {"name": "node-n", "resourceVersion": version}});
        serde_json::from_value::<Lease>(lease).unwrap()
    };
    state.node("n", |_| {});
    state.lease_delivered("n", &lease("11"));
    state.node("n", |node| node.lease_write.remember(lease("10")));
    assert_eq!(state.latest_lease("n", None), None);
}

#[test]
fn two_decisions_on_different_threads_never_take_the_same_last_place() {
    for _ in 0..200 {
        let state = LeaderState::new([]);
        let node = |name: &str| (name.to_owned(), GateNode::from(&Node::default()));
        state.gate.replace_nodes(&state.gate.begin_decision(), [node("a"), node("b")].into());
        let both = [("b", Group::Medik8s), ("a", Group::Kubevirt)];
        let both = both.map(|(name, group)| maintenance(name, group, &Value::Null));
        for maintenance in &both {
            state.index(Arc::new(maintenance.clone()));
        }
        let start = std::sync::Barrier::new(both.len());
        let begins = |maintenance: &GroupedMaintenance| {
            start.wait();
            let alone = state.gate.begin_decision();
            let may_begin = both.iter().all(|other| !state.gate.has_begun(other));
            state.set_at_work(&alone, maintenance, may_begin);
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
fn a_maintenance_that_is_gone_is_forgotten_without_a_look_at_the_others() {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let of_node = |name: &str| {
        let mut found = maintenance(name, Group::Medik8s, &Value::Null);
        found.maintenance.spec.node_name = "n".to_owned();
        found
    };
    for name in ["a", "b"] {
        writer.apply_watcher_event(&watcher::Event::Apply(of_node(name)));
        state.index(Arc::new(of_node(name)));
        state.note_seen(ownership::uid(&of_node(name)));
    }
    state.node("n", |_| {});
    for (name, is_needed) in [("a", true), ("b", false)] {
        writer.apply_watcher_event(&watcher::Event::Delete(of_node(name)));
        state.remove_from_index(&of_node(name));
        assert_eq!(state.forget(&of_node(name)), is_needed);
        assert_eq!(state.lock().nodes.contains_key("n"), is_needed);
    }
    assert!(state.lock().maintenances.is_empty());
}

#[test]
fn an_answer_about_a_node_whose_maintenance_is_gone_is_not_remembered() {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let of_node = maintenance("n", Group::Medik8s, &Value::Null);
    let answers = |state: &LeaderState| {
        let metadata = json!({"metadata": {"name": "n", "resourceVersion": "9"}});
        state.remember_node("n", serde_json::from_value(metadata.clone()).unwrap());
        state.remember_lease("n", serde_json::from_value(metadata).unwrap());
        state.remembers_node("n")
    };
    writer.apply_watcher_event(&watcher::Event::Apply(of_node.clone()));
    state.index(Arc::new(of_node.clone()));
    assert!(answers(&state));
    writer.apply_watcher_event(&watcher::Event::Delete(of_node.clone()));
    state.remove_from_index(&of_node);
    state.forget(&of_node);
    assert!(!answers(&state));
}

#[test]
fn a_status_that_was_written_is_read_until_the_watch_has_caught_up() {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let mut received = maintenance("a", Group::Medik8s, &Value::Null);
    received.maintenance.metadata.resource_version = Some("5".to_owned());
    writer.apply_watcher_event(&watcher::Event::Apply(received.clone()));
    state.index(Arc::new(received.clone()));
    state.note_seen("a Medik8s");
    let written = NodeMaintenanceStatus { last_error: "no".to_owned(), ..NodeMaintenanceStatus::default() };
    let mut answer = received.clone();
    answer.maintenance.metadata.resource_version = Some("6".to_owned());
    answer.maintenance.status = Some(written.clone());
    state.remember_status(&written, answer);
    assert_eq!(state.latest(Arc::new(received)).status.as_ref(), Some(&written));
}

#[test]
fn a_late_answer_to_a_patch_of_a_node_does_not_replace_what_the_watch_has_delivered() {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let of_node = maintenance("n", Group::Medik8s, &Value::Null);
    writer.apply_watcher_event(&watcher::Event::Apply(of_node.clone()));
    state.index(Arc::new(of_node));
    // A node that is not Ready takes a place of the queue.
    let node = |version: &str, ready: &str| {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let metadata = json!({"name": "n", "resourceVersion": version});
        serde_json::from_value::<Node>(json!({"metadata": metadata, "status": {"conditions": conditions}}))
            .unwrap()
    };
    state.index(Arc::new(maintenance("b", Group::Medik8s, &Value::Null)));
    state.remember_node("n", node("7", "True"));
    let delivered = state.latest_node(Arc::new(node("9", "False")));
    let nodes = [("n", GateNode::from(&*delivered)), ("b", GateNode::from(&node("1", "True")))];
    let nodes = nodes.map(|(name, node)| (name.to_owned(), node));
    state.gate.replace_nodes(&state.gate.begin_decision(), nodes.into());
    assert!(waits_for_its_turn(&state));
    state.remember_node("n", node("8", "True"));
    assert!(waits_for_its_turn(&state), "the watch is ahead of the answer");
    state.remember_node("n", node("10", "True"));
    assert!(!waits_for_its_turn(&state));
}

/// A state in which so many maintenances are known, each of a node of its own, and the store of the watch.
fn many(count: usize) -> (LeaderState, Writer<GroupedMaintenance>, Vec<GroupedMaintenance>) {
    let mut writer = Writer::new(Group::Medik8s);
    let state = LeaderState::new([(Group::Medik8s, writer.as_reader())]);
    let all: Vec<_> =
        (0..count).map(|at| maintenance(&format!("n{at:05}"), Group::Medik8s, &Value::Null)).collect();
    for found in &all {
        writer.apply_watcher_event(&watcher::Event::Apply(found.clone()));
        state.index(Arc::new(found.clone()));
        state.note_seen(ownership::uid(found));
    }
    (state, writer, all)
}

#[test]
#[ignore = "it measures"]
fn the_processor_time_of_deletions_is_measured() {
    for count in [625, 1_250, 2_500, 5_000] {
        let delete = |forget: &dyn Fn(&LeaderState, &GroupedMaintenance)| {
            let (state, mut writer, all) = many(count);
            let delete = || {
                for found in &all {
                    writer.apply_watcher_event(&watcher::Event::Delete(found.clone()));
                    state.remove_from_index(found);
                    forget(&state, found);
                }
            };
            crate::runtime::thread_time::measured(delete).1
        };
        let each = delete(&|state, found| {
            state.forget(found);
        });
        let all = delete(&|state, _| {
            state.forget_removed();
        });
        println!("{count} deletions: {each:.3?}; {all:.3?} if each compares all that are left");
    }
}
