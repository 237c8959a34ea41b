//! Decisions in single situations.

mod abort;
mod absence;
mod around;
mod checks;
mod clocks;
mod conflicts;
mod duration;
mod lives;
mod pause;
mod reboot;
mod resume;
mod shown;
mod stale;
mod world;

use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::roll_window::Windows;
use serde_json::json;

use self::world::{World, at, settings};
use super::*;
use crate::record::Health;
use crate::settings::RollSettings;

#[test]
fn a_roll_takes_all_nodes_through_all_steps_in_order() {
    let mut world = World::new(&[1, 3], 2);
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.begun, ["n0", "n1", "n2", "n3"]);
    assert_eq!((world.acted.len(), world.most_under_way), (4, 2));
    let done = &world.record.done;
    assert_eq!((done.nodes, done.pods), (4, 12));
    // Drained after a second, acted after another, Ready for 5 s, soaked for 3 s.
    assert!((9..=15).contains(&done.slowest_seconds), "{done:?}");
}

#[test]
fn a_wave_begins_after_the_whole_wave_before() {
    let mut world = World::new(&[1, 3], 4);
    world.run_to("n0", Step::Soaking);
    assert_eq!(world.begun, ["n0"]);
    world.run_to("n3", Step::Draining);
    assert_eq!(world.begun, ["n0", "n1", "n2", "n3"]);
}

#[test]
fn an_empty_roll_is_done() {
    assert_eq!(World::new(&[], 1).run(), RollState::Done);
}

#[test]
fn a_failed_drain_halts_the_roll_and_nothing_new_begins() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Draining);
    let status = json!({"phase": "Failed", "lastError": "timed out"});
    world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
    let RollState::Halted(halt) = world.run() else { panic!("{:?}", world.last) };
    assert_eq!((halt.node.as_str(), halt.message.as_str()), ("n0", "the drain of node n0 failed: timed out"));
    assert_eq!(halt.cause, Some(HaltCause::Drain));
    assert_eq!(world.begun, ["n0"]);
    // Whoever looks later sees it in the object.
    assert!(world.roll().record.unwrap().halt.is_some());
    // The drain goes on and succeeds while the roll stays halted.
    for (phase, expected) in
        [("Failed", None), ("Running", Some(ByNow::Drains)), ("Succeeded", Some(ByNow::Drained))]
    {
        world.objects.get_mut("n0").unwrap().status =
            serde_json::from_value(json!({"phase": phase})).unwrap();
        assert_eq!(by_now(&mut world), expected, "{phase}");
    }
    assert_eq!(world.step_of("n0"), Some(Step::Draining));
}

/// What has become of the node that halted the roll.
fn by_now(world: &mut World) -> Option<ByNow> {
    world.decide(usize::MAX);
    world.last.as_ref().unwrap().progress[0].by_now
}

#[test]
fn a_failed_action_halts_the_roll_and_other_actions_end_first() {
    let mut world = World::new(&[3], 2);
    world.run_to("n1", Step::Acting);
    world.decide(usize::MAX);
    world.set_action("n0", ActionState::Failed("exit code 3".into()));
    assert_eq!(world.decide(usize::MAX), RollState::Working);
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("the command of n1 still runs") };
    assert!(why.ends_with("the roll halts once the action of n1 has finished"), "{why}");
    world.set_action("n1", ActionState::Succeeded);
    let RollState::Halted(halt) = world.run() else { panic!() };
    assert_eq!(halt.message, "the action for node n0 failed: exit code 3");
    assert_eq!(world.step_of("n1"), Some(Step::Rejoining), "the result is kept");
    assert_eq!(world.begun, ["n0", "n1"]);
    // Whoever resumes it runs the command of n0 again, and that of n1 not.
    world.acted.clear();
    world.restart();
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.acted, ["n0", "n2"]);
}

#[test]
fn a_node_that_never_returns_halts_the_roll_after_the_timeout_of_this_program() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Rejoining);
    world.now += 59;
    assert_eq!(world.decide(usize::MAX), RollState::Working);
    // A program that continues much later gives the node the whole time.
    world.now += 3600;
    world.restart();
    assert_eq!(world.decide(usize::MAX), RollState::Working);
    world.now += 60;
    world.decide(usize::MAX);
    let RollState::Halted(halt) = world.decide(usize::MAX) else { panic!() };
    assert_eq!(halt.message, "node n0 is not back after 1m: it has not rebooted");
    assert_eq!((halt.cause, by_now(&mut world)), (Some(HaltCause::NotBack), None));
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
    assert_eq!(by_now(&mut world), Some(ByNow::Rebooted { is_ready: true }));
    let shown = |nodes| {
        decide(&world.roll(), &world.record, &Observed::shown_at(at(world.now), &world.roll(), nodes))
    };
    assert_eq!(shown(None).progress[0].by_now, None, "without permission to list nodes, nothing is known");
}

#[test]
fn unhealthy_nodes_and_workloads_hold_the_roll_and_then_halt_it() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Checking);
    world.observed.nodes.get_mut("n0").unwrap().pressure.insert("DiskPressure".into());
    world.now += 30;
    world.healthy("n0", Step::Checking);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "it reports DiskPressure");
    assert_eq!(world.last.as_ref().unwrap().progress[0].ready_time, None);
    world.observed.nodes.get_mut("n0").unwrap().pressure.clear();
    world.run_to("n0", Step::Recovering);
    let waiting = Health::Waiting("Deployment shop/cart has 1 of 2 replicas available".into());
    world.check("n0", Step::Recovering, waiting);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "Deployment shop/cart has 1 of 2 replicas available");
    assert_eq!(world.begun, ["n0"]);
    world.now += 60;
    world.decide(usize::MAX);
    let RollState::Halted(halt) = world.decide(usize::MAX) else { panic!() };
    assert!(halt.message.contains("after 1m: Deployment shop/cart"), "{}", halt.message);
    assert_eq!((halt.cause, by_now(&mut world)), (Some(HaltCause::Unhealthy), None));
    world.healthy("n0", Step::Recovering);
    assert_eq!(by_now(&mut world), Some(ByNow::Recovered));
    world.observed.nodes.get_mut("n0").unwrap().ready_since = None;
    assert_eq!(by_now(&mut world), None);
}

#[test]
fn pressure_from_before_the_drain_does_not_count() {
    let mut world = World::new(&[1], 1);
    world.write("n0", |record| record.baseline.pressure = vec!["DiskPressure".into()]);
    world.observed.nodes.get_mut("n0").unwrap().pressure.insert("DiskPressure".into());
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn a_node_has_to_be_ready_for_the_whole_time_without_new_pressure() {
    let mut world = World::new(&[1], 1);
    world.write("n0", |record| record.baseline.pressure = vec!["MemoryPressure".into()]);
    let reports = |world: &mut World, pressure: &[&str]| {
        let pressure = pressure.iter().map(|one| json!({"type": one, "status": "True"}));
        let conditions: Vec<_> = pressure.chain([json!({"type": "Ready", "status": "True"})]).collect();
        let node: k8s_openapi::api::core::v1::Node =
            serde_json::from_value(json!({"metadata": {"name": "n0"},
            "status": {"conditions": conditions, "nodeInfo": {"bootID": "boot-0", "architecture": "",
            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
            "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}}))
            .unwrap();
        world.observed.apply_nodes(WatchChange::Applied(std::sync::Arc::new(node)), at(world.now));
    };
    world.run_to("n0", Step::Checking);
    world.now += 20;
    reports(&mut world, &["DiskPressure", "MemoryPressure"]);
    world.healthy("n0", Step::Checking);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "it reports DiskPressure");
    world.now += 1;
    reports(&mut world, &["MemoryPressure"]);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "must stay Ready for 5s, with its DaemonSet pods Ready");
    let since_relief = Some(ReadyTime { since: at(world.now), wanted: 5 });
    assert_eq!(world.last.as_ref().unwrap().progress[0].ready_time, since_relief);
    world.now += 3;
    // It reported this before the drain.
    reports(&mut world, &[]);
    world.now += 1;
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "must stay Ready for 5s, with its DaemonSet pods Ready");
    world.now += 1;
    world.healthy("n0", Step::Checking);
    world.decide(usize::MAX);
    assert_eq!(world.step_of("n0"), Some(Step::Returning));
}

#[test]
fn each_gate_says_what_it_waits_for_and_halts_the_roll_in_the_end() {
    for (step, what) in [
        (Step::Checking, "must stay Ready for 5s, with its DaemonSet pods Ready"),
        (Step::Recovering, "checking the workloads affected by its drain"),
    ] {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", step);
        world.observed.health.clear();
        world.now += 2;
        world.decide(usize::MAX);
        assert_eq!(world.detail("n0"), what);
        // No check has a result.
        world.now += 60;
        world.decide(usize::MAX);
        assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{step:?}");
    }
}

#[test]
fn a_drain_that_nm_reconciler_does_not_begin_halts_the_roll() {
    for paused in [false, true] {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", Step::Draining);
        let status = json!({"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True",
            "reason": "Planned", "message": "", "lastTransitionTime": at(0)}]});
        world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
        world.decide(usize::MAX);
        assert_eq!(world.detail("n0"), "waits for nm-reconciler");
        if paused {
            world.pause(true);
            for _ in 0..60 {
                world.now += 60;
                world.decide(usize::MAX);
            }
            assert_eq!(world.detail("n0"), "paused");
            world.pause(false);
            world.now += 1;
            assert_eq!(world.decide(usize::MAX), RollState::Working, "the pause does not count");
        }
        world.now += 60;
        world.decide(usize::MAX);
        let RollState::Halted(halt) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
        assert_eq!(halt.message, "nm-reconciler did not start the drain of node n0 within 1m");
    }
}

#[test]
fn a_surge_that_takes_long_is_the_detail_of_its_node() {
    let mut world = World::with(settings(&[1], 1));
    world.run_to("n0", Step::Draining);
    let replacement = json!({"name": "web-y", "node": "n2", "ready": false});
    let status = json!({"phase": "Running", "podCounts": {"surging": 1}, "surgingPods": [{"namespace": "shop", "name": "web-x",
        "deployment": "web", "restarted": true, "replacement": replacement, "since": at(world.now)}]});
    world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "");
    world.now += 30;
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "surge of Deployment shop/web: 1 of its new pods is not Ready");
}

#[test]
fn a_pod_that_blocks_for_too_long_halts_the_roll_only_if_asked_for() {
    for (limit, halts) in [(Some(30), true), (None, false)] {
        let mut world = World::with(RollSettings { halt_on_blocked_seconds: limit, ..settings(&[1], 1) });
        world.run_to("n0", Step::Draining);
        let status = json!({"phase": "Running", "podCounts": {"blocked": 3}, "blockedPods": [{"namespace": "shop",
            "name": "cart-0", "reason": "DisruptionBudget", "message": "no", "since": at(world.now), "attempts": 1}]});
        world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
        world.decide(usize::MAX);
        assert_eq!(world.detail("n0"), "blocked by pod shop/cart-0: no (and 2 more)");
        world.now += 30;
        world.decide(usize::MAX);
        assert_eq!(matches!(world.decide(usize::MAX), RollState::Halted(_)), halts, "{limit:?}");
    }
}

#[test]
fn a_node_that_begins_while_somebody_pauses_the_roll_is_paused_once() {
    let mut world = World::new(&[2], 1);
    world.pause_meanwhile();
    assert_eq!(world.begun, ["n0"]);
    assert!(world.drains(), "whoever has paused the roll does not know of it");
    world.decide(usize::MAX);
    assert!(!world.drains());
    // Somebody resumes that node alone.
    world.objects.get_mut("n0").unwrap().spec.suspend = false;
    world.decide(usize::MAX);
    assert!(world.drains());
    world.pass_second();
    world.run_to("n0", Step::Acting);
    assert_eq!(world.begun, ["n0"]);
}

#[test]
fn a_node_begins_only_in_a_window_that_the_slowest_node_so_far_fits_into() {
    let mut world = World::with(RollSettings {
        windows: Windows(vec!["00:00-24:00 UTC".parse().unwrap()]),
        ..settings(&[2], 1)
    });
    assert_eq!(world.run(), RollState::Done);
    // 1970-01-12 is a Monday; 13:46:40 UTC.
    let windows = Windows(vec!["Mon 13:00-13:47 UTC".parse().unwrap()]);
    let mut world = World::with(RollSettings { windows, ..settings(&[3], 1) });
    world.run_to("n0", Step::Recovering);
    world.record.done.slowest_seconds = 15;
    for _ in 0..8 {
        world.decide(usize::MAX);
        world.pass_second();
    }
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
    assert!(why.contains("the window closes at Mon 12 Jan 13:47 UTC"), "{why}");
    world.now += 60;
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
    assert_eq!(why, "the window opens at Mon 19 Jan 13:00 UTC");
    assert_eq!(world.begun, ["n0"]);
}

#[test]
fn a_drained_node_waits_for_a_confirmation_if_that_is_asked_for() {
    let mut world = World::with(RollSettings { confirm: true, action: None, ..settings(&[2], 1) });
    world.run_to("n0", Step::Confirming);
    assert_eq!(world.decide(usize::MAX), RollState::Working);
    assert_eq!(world.detail("n0"), "waits for a confirmation");
    world.observed.confirmed.insert("n0".into(), true);
    world.run_to("n1", Step::Confirming);
    world.observed.confirmed.insert("n1".into(), false);
    assert!(matches!(world.run(), RollState::Halted(_)));
}

#[test]
fn a_program_that_was_replaced_changes_nothing() {
    let mut world = World::new(&[1], 1);
    world.record.runner.as_mut().unwrap().id = "somebody".into();
    let RollState::TakenOver(other) = world.decide(usize::MAX) else { panic!() };
    assert_eq!(other.id, "somebody");
    assert!(world.last.unwrap().changes.is_empty() && world.begun.is_empty());
}

#[test]
fn old_data_changes_nothing_but_the_heartbeat_goes_on() {
    let mut world = World::new(&[1], 1);
    world.is_live = false;
    assert_eq!(world.decide(usize::MAX), RollState::Waiting("the cluster does not respond".into()));
    assert!(world.last.as_ref().unwrap().changes.is_empty());
    world.now += 15;
    world.decide(usize::MAX);
    assert!(matches!(world.last.unwrap().changes.as_slice(), [RollChange::Record(record)]
        if record.runner.as_ref().unwrap().at == at(15)));
}

#[test]
fn a_record_that_somebody_moves_to_another_maintenance_is_not_written_back() {
    let mut world = World::new(&[1, 1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    // As an abort does, before it deletes the planned n1.
    let moved = world.roll().record.unwrap().next();
    world.store("n0", &moved);
    world.decide(usize::MAX);
    let changes = &world.last.as_ref().unwrap().changes;
    assert!(!changes.iter().any(|change| matches!(change, RollChange::Record(_))), "{changes:?}");
    // Where nobody has the record, it is stored again.
    world.store("n0", &RollRecord::default());
    world.store("n1", &RollRecord::default());
    world.decide(usize::MAX);
    assert!(matches!(world.last.unwrap().changes.as_slice(), [RollChange::Record(_), ..]));
}

#[test]
fn a_roll_that_cannot_store_why_it_halts_says_so_and_waits_for_the_cluster() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.is_live = false;
    world.set_action("n0", ActionState::Failed("exit code 3".into()));
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
    let failed = "the action for node n0 failed: exit code 3";
    assert_eq!(why, format!("{failed}; the roll halts when the cluster responds again"));
    world.is_live = true;
    let RollState::Halted(halt) = world.run() else { panic!("{:?}", world.last) };
    assert_eq!((halt.message.as_str(), &world.roll().record.unwrap().halt), (failed, &Some(halt.clone())));
}
