//! What is known of evacuations, with and without access to migrations.

use super::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_229_200 + second).unwrap()
}

fn time(second: i64) -> String {
    at(second).to_string()
}

fn launcher(name: &str) -> DrainPod {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": format!("virt-launcher-{name}-x"), "uid": name,
            "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": name}},
        "status": {"phase": "Running"},
    });
    serde_json::from_value(pod).unwrap()
}

fn instance(name: &str, status: Value) -> VirtualMachineInstance {
    let mut status = status;
    if status["evacuationNodeName"].is_null() {
        status["evacuationNodeName"] = json!("a");
    }
    serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": name}, "status": status})).unwrap()
}

/// A migration that entered these phases at these seconds.
fn migration(machine: &str, phases: &[(&str, i64)]) -> Arc<VirtualMachineInstanceMigration> {
    let entries: Vec<Value> = phases
        .iter()
        .map(|(phase, second)| json!({"phase": phase, "phaseTransitionTimestamp": time(*second)}))
        .collect();
    let created = phases.first().map_or(0, |(_, second)| *second);
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("m-{machine}-{created}"), "creationTimestamp": time(created),
            "annotations": {"kubevirt.io/evacuationMigration": "a"}},
        "spec": {"vmiName": machine},
        "status": {"phase": phases.last().map_or("", |(phase, _)| phase), "phaseTransitionTimestamps": entries},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

type Migrations<'a> = Option<&'a [Arc<VirtualMachineInstanceMigration>]>;

/// A KubeVirt that cancels evacuations and has these migrations, seen at this second.
fn kubevirt(
    migrations: Migrations<'_>,
    second: i64,
) -> KubevirtView<'_, Arc<VirtualMachineInstanceMigration>> {
    KubevirtView { migrations, cancels: true, start_timeout: MIGRATION_START_TIMEOUT, seen_at: at(second) }
}

fn evacuation(status: Value, migrations: Migrations<'_>) -> Option<Evacuation> {
    let instance = instance("vm", status);
    Evacuations::leaving([&instance], &kubevirt(migrations, 60), "a", at(0))
        .evacuation(&launcher("vm"))
        .cloned()
}

/// The name of the state after so many seconds, and the message of a blocked pod.
fn state(evacuation: &Evacuation, second: i64) -> (&'static str, String) {
    let waiting_since = evacuation.waiting_since(&launcher("vm"), None, at(0));
    match evacuation.block(waiting_since, at(second)) {
        None => ("Migrating", String::new()),
        Some(block) => (block.reason.as_str(), block.message),
    }
}

#[test]
fn an_evacuation_shows_the_running_migration() {
    let check = |status: Value, expected: Option<(Option<&str>, Option<Timestamp>)>| {
        let shown = evacuation(status.clone(), None);
        let shown = shown.as_ref().map(|shown| (shown.target.as_deref(), shown.since));
        assert_eq!(shown, expected, "{status}");
    };
    check(json!({"evacuationNodeName": "b"}), None);
    check(json!({}), Some((None, None)));
    let moving = json!({"sourceNode": "a", "targetNode": "b", "startTimestamp": time(5)});
    check(json!({"migrationState": moving}), Some((Some("b"), Some(at(5)))));
    // How it came here.
    let arrival = json!({"sourceNode": "c", "targetNode": "a", "completed": true});
    check(json!({"migrationState": arrival}), Some((None, None)));
}

#[test]
fn a_failed_migration_has_its_reason_unless_it_failed_before_the_maintenance() {
    let failed = |second: i64| {
        let state = json!({
            "sourceNode": "a", "targetNode": "b", "completed": true, "failed": true,
            "failureReason": "Target pod is down", "endTimestamp": time(second),
        });
        evacuation(json!({"migrationState": state}), None).unwrap().failure.map(|failure| failure.message)
    };
    assert_eq!(
        failed(0).as_deref(),
        Some("its live migration to node b failed: Target pod is down; KubeVirt retries it")
    );
    assert_eq!(failed(-1), None);
}

#[test]
fn a_machine_without_a_migration_is_blocked_after_a_while_with_or_without_access() {
    let none: Migrations<'_> = Some(&[]);
    for (migrations, part) in [(None, "--grant virtual-machines"), (none, "virt-controller may be down")] {
        let evacuation = evacuation(json!({}), migrations).unwrap();
        assert_eq!(state(&evacuation, 119).0, "Migrating");
        let (reason, message) = state(&evacuation, 120);
        assert_eq!(reason, "MigrationNotStarted");
        assert!(message.contains(part), "{message}");
        assert_eq!(evacuation.stays_on_stop, migrations.is_some());
    }
}

#[test]
fn a_machine_that_is_left_to_others_is_blocked_with_that_reason() {
    let mut external = instance("vm", json!({}));
    external.spec.eviction_strategy = Some("External".to_owned());
    // Others that move do not delay it, with or without access to migrations.
    let moving = instance("other", json!({"migrationState": {"sourceNode": "a", "targetNode": "b"}}));
    let others = [migration("other", &[("Pending", 0), ("Scheduling", 1)])];
    let migrations: Migrations<'_> = Some(&others);
    for migrations in [migrations, None] {
        let evacuations = Evacuations::leaving([&external, &moving], &kubevirt(migrations, 60), "a", at(0));
        let (reason, message) = state(evacuations.evacuation(&launcher("vm")).unwrap(), 300);
        assert_eq!(reason, "MigrationNotStarted");
        assert!(message.contains("External"), "{message}");
    }
}

#[test]
fn a_migration_in_the_queue_waits_for_as_long_as_others_are_under_way() {
    let own = migration("vm", &[("Pending", 0)]);
    let other = migration("other", &[("Pending", 0), ("Scheduling", 1), ("Scheduled", 2), ("Running", 3)]);
    let queued = evacuation(json!({}), Some(&[own.clone(), other])).unwrap();
    assert_eq!((state(&queued, 3600).0, queued.stays_on_stop), ("Migrating", true));
    assert_eq!(queued.waiting_since(&launcher("vm"), None, at(0)), None);
    let alone =
        evacuation(json!({}), Some(&[own.clone(), migration("other", &[("Pending", 0), ("Failed", 9)])]))
            .unwrap();
    assert_eq!(state(&alone, 120).0, "MigrationNotStarted");
    assert_eq!(alone.migration.unwrap().phase, "Pending");
    // Without access to migrations, those of the node count.
    let moving = instance("other", json!({"migrationState": {"sourceNode": "a", "targetNode": "b"}}));
    let waiting = instance("vm", json!({}));
    let found = Evacuations::leaving([&moving, &waiting], &kubevirt(None, 60), "a", at(0));
    assert_eq!(state(found.evacuation(&launcher("vm")).unwrap(), 3600).0, "Migrating");
}

#[test]
fn a_target_pod_that_does_not_start_blocks_although_others_are_under_way() {
    let own = migration("vm", &[("Pending", 0), ("Scheduling", 10)]);
    let other = migration("other", &[("Pending", 0), ("Scheduling", 1), ("Running", 3)]);
    let evacuation = evacuation(json!({}), Some(&[own, other])).unwrap();
    // The clock of this test stands still at 0 where an evacuation begins to wait.
    assert_eq!(evacuation.waiting_since(&launcher("vm"), None, at(60)), Some(at(10)));
    let blocker = evacuation.block(Some(at(10)), at(130)).unwrap();
    assert_eq!((blocker.reason, blocker.since), (BlockReason::MigrationNotStarted, Some(at(10))));
    assert!(blocker.message.contains("no node takes its target pod"), "{}", blocker.message);
    assert!(evacuation.stays_on_stop);
}

#[test]
fn failures_before_the_handoff_are_counted_with_the_time_of_the_next_attempt() {
    let early = |second: i64| {
        migration("vm", &[("Pending", second), ("Scheduling", second + 1), ("Failed", second + 13)])
    };
    let next = migration("vm", &[("Pending", 50)]);
    let evacuation = evacuation(json!({}), Some(&[early(0), next, early(20)])).unwrap();
    let (reason, message) = state(&evacuation, 55);
    assert_eq!(reason, "MigrationFailed");
    assert_eq!(
        message,
        format!(
            "its live migration failed before it started: its target pod was never Ready (2 attempts); KubeVirt retries it \
             at {}",
            time(73)
        )
    );
    let facts = evacuation.migration.unwrap();
    assert_eq!((facts.name.as_str(), facts.failures), ("m-vm-50", 2));
    assert_eq!(facts.not_before.unwrap().0, at(73));
    assert!(evacuation.stays_on_stop);
}

#[test]
fn a_success_ends_the_count_of_failures_and_one_that_was_deleted_is_none() {
    let failed = |second: i64| migration("vm", &[("Pending", second), ("Failed", second + 1)]);
    let mut deleted = VirtualMachineInstanceMigration::clone(&failed(30));
    deleted.metadata.deletion_timestamp = Some(Time(at(31)));
    let all =
        [failed(0), migration("vm", &[("Pending", 10), ("Succeeded", 11)]), failed(20), Arc::new(deleted)];
    let evacuation = evacuation(json!({}), Some(&all)).unwrap();
    assert!(evacuation.failure.unwrap().message.starts_with("its live migration failed"));
    assert_eq!(evacuation.migration, None);
    let history = MigrationHistory::new(all.iter().map(|migration| &**migration).collect(), at(0));
    assert_eq!(history.failures(), 1);
}

#[test]
fn a_migration_that_has_begun_does_not_stay_and_one_that_virt_handler_ignores_is_blocked() {
    let own =
        || migration("vm", &[("Pending", 0), ("Scheduling", 1), ("Scheduled", 2), ("PreparingTarget", 2)]);
    let handed_over = json!({"sourceNode": "a", "targetNode": "b"});
    let waiting = evacuation(json!({"migrationState": handed_over}), Some(&[own()])).unwrap();
    assert!(!waiting.stays_on_stop);
    assert_eq!(state(&waiting, 120).0, "MigrationNotStarted");
    let begun = json!({"sourceNode": "a", "targetNode": "b", "startTimestamp": time(3)});
    let begun = evacuation(json!({"migrationState": begun}), Some(&[own()])).unwrap();
    assert_eq!((state(&begun, 3600).0, begun.stays_on_stop), ("Migrating", false));
}

#[test]
fn since_when_it_waits_is_kept_in_the_status() {
    let evacuation = evacuation(json!({}), None).unwrap();
    let since = |status: Value| {
        let status: NodeMaintenanceStatus = serde_json::from_value(status).unwrap();
        evacuation.waiting_since(&launcher("vm"), Some(&status), at(60))
    };
    let pod =
        json!({"namespace": "ns", "name": "virt-launcher-vm-x", "machine": "vm", "waitingSince": time(7)});
    assert_eq!(since(json!({"migratingPods": [pod]})), Some(at(7)));
    let blocked = |reason: &str| {
        json!({"namespace": "ns", "name": "virt-launcher-vm-x", "reason": reason, "message": "", "since": time(8),
            "attempts": 0})
    };
    assert_eq!(since(json!({"blockedPods": [blocked("MigrationNotStarted")]})), Some(at(8)));
    assert_eq!(since(json!({"blockedPods": [blocked("ServerError")]})), Some(at(60)));
    assert_eq!(since(json!({})), Some(at(60)));
    // A status lists a limited number of pods: the others wait with them.
    let many = |count: usize| -> Vec<Value> {
        let pod = |name: usize| json!({"namespace": "ns", "name": name.to_string(), "machine": "m", "waitingSince": time(9)});
        (0..count).map(pod).collect()
    };
    assert_eq!(since(json!({"migratingPods": many(50)})), Some(at(9)));
    assert_eq!(since(json!({"migratingPods": many(49)})), Some(at(60)));
}

#[test]
fn the_pods_of_a_machine_that_moves_must_not_be_deleted() {
    let instance = instance("vm", json!({}));
    let known = Evacuations::leaving([&instance], &kubevirt(None, 60), "a", at(0));
    let (pod, unknown) = (launcher("vm"), Evacuations::default());
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-vm-x", "uid": "vm", "controller": true});
    let disk = json!({"metadata": {"namespace": "ns", "name": "hp-volume-x", "uid": "d",
        "labels": {"kubevirt.io": "hotplug-disk"}, "ownerReferences": [owner]}});
    let disk: DrainPod = serde_json::from_value(disk).unwrap();
    let none = HashMap::new();
    let attempt = Attempt { migrates: true, ..Attempt::default() };
    let migrates = HashMap::from([("vm".to_owned(), attempt)]);
    for moved in [&pod, &disk] {
        let moves = |known: &Evacuations, attempts| known.moves(moved, [&pod, &disk], attempts);
        assert!(moves(&known, &none) && moves(&unknown, &migrates) && !moves(&unknown, &none));
    }
    let mut ended = pod.clone();
    ended.phase = pod::PodPhase::Finished;
    assert!(!known.moves(&ended, [&ended, &disk], &migrates), "it has left");
}

#[test]
fn a_migration_that_does_not_change_for_an_hour_is_not_waited_for() {
    let own = migration("vm", &[("Pending", 0)]);
    let other = migration("other", &[("Pending", 0), ("Scheduling", 1), ("Scheduled", 2), ("Running", 3)]);
    let all = [own, other];
    let vm = instance("vm", json!({}));
    let message = |second: i64| {
        let seen = Evacuations::leaving([&vm], &kubevirt(Some(&all), second), "a", at(0));
        state(seen.evacuation(&launcher("vm")).unwrap(), second)
    };
    assert_eq!(message(3602).0, "Migrating");
    let (reason, message) = message(3603);
    assert_eq!(reason, "MigrationNotStarted");
    assert!(message.contains("has changed for an hour"), "{message}");
}

#[test]
fn the_back_off_of_kubevirt_also_counts_failures_before_the_maintenance() {
    let failed = |second: i64| migration("vm", &[("Pending", second), ("Failed", second + 1)]);
    let all = [failed(-50), failed(-30), migration("vm", &[("Pending", 5)])];
    let seen = evacuation(json!({}), Some(&all)).unwrap();
    let facts = seen.migration.clone().unwrap();
    assert_eq!((seen.failure.is_none(), facts.failures, facts.not_before.unwrap().0), (true, 2, at(11)));
    assert_eq!(seen.waiting_since(&launcher("vm"), None, at(10)), None);
    assert_eq!(
        seen.waiting_since(&launcher("vm"), None, at(60)),
        Some(at(60)),
        "it is late only from now on"
    );
}

#[test]
fn a_machine_stays_only_where_kubevirt_can_cancel_and_while_its_pod_runs() {
    let vm = instance("vm", json!({}));
    let stays = |cancels: bool, pod: &DrainPod| {
        let view = KubevirtView { cancels, ..kubevirt(Some(&[]), 60) };
        Evacuations::leaving([&vm], &view, "a", at(0)).stays_on_stop(pod)
    };
    let mut ended = launcher("vm");
    ended.phase = pod::PodPhase::Finished;
    assert!(stays(true, &launcher("vm")));
    assert!(!stays(false, &launcher("vm")) && !stays(true, &ended));
}

#[test]
fn a_machine_that_has_waited_for_others_is_late_only_from_when_they_have_ended() {
    let old = migration("vm", &[("Pending", -90_000), ("Failed", -80_000)]);
    let own = migration("vm", &[("Pending", 0)]);
    let running = migration("other", &[("Pending", 0), ("Scheduling", 1), ("Running", 550)]);
    let vm = instance("vm", json!({}));
    let seen = |migrations: &[Arc<VirtualMachineInstanceMigration>]| {
        let known = Evacuations::leaving([&vm], &kubevirt(Some(migrations), 600), "a", at(0));
        known.evacuation(&launcher("vm")).cloned().unwrap()
    };
    let waits = seen(&[old.clone(), own.clone(), running]);
    assert_eq!(waits.waiting_since(&launcher("vm"), None, at(600)), None);
    let free = seen(&[old, own]);
    // As the status has it that was written while it waited.
    let pod = json!({"namespace": "ns", "name": "virt-launcher-vm-x", "machine": "vm"});
    let before: NodeMaintenanceStatus = serde_json::from_value(json!({"migratingPods": [pod]})).unwrap();
    let since = free.waiting_since(&launcher("vm"), Some(&before), at(600));
    assert_eq!(
        (since, free.block(since, at(719)).is_none(), free.block(since, at(720)).is_some()),
        (Some(at(600)), true, true)
    );
}

#[test]
fn a_migration_that_a_person_has_created_is_not_deleted_on_stop() {
    let mut manual = VirtualMachineInstanceMigration::clone(&migration("vm", &[("Pending", 0)]));
    manual.metadata.annotations = None;
    assert!(!evacuation(json!({}), Some(&[Arc::new(manual)])).unwrap().stays_on_stop);
}
