//! Actions that reboot their nodes.

use super::world::{World, at, settings};
use super::*;

#[test]
fn a_node_has_to_reboot_if_that_is_expected() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.set_action("n0", ActionState::Disconnected);
    world.decide(usize::MAX);
    world.decide(usize::MAX);
    assert_eq!((world.step_of("n0"), world.detail("n0")), (Some(Step::Rejoining), "it has not rebooted"));
    let view = world.observed.nodes.get_mut("n0").unwrap();
    (view.boot_id, view.ready_since) = ("boot-1".into(), None);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "it is not Ready");
    world.observed.nodes.get_mut("n0").unwrap().ready_since = Some(at(world.now));
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn without_an_expected_reboot_a_lost_connection_is_a_failure() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.set_action("n0", ActionState::Disconnected);
    assert!(matches!(world.run(), RollState::Halted(_)));
}

#[test]
fn a_command_whose_reboot_was_seen_is_not_run_again() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.acted.clear();
    world.restart();
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
    world.run();
    assert!(world.acted.is_empty(), "{:?}", world.acted);
}

/// A roll that expects a reboot, and whose Job runs on the only node.
fn job_runs() -> World {
    let action = serde_json::from_value(json!({"job": {"apiVersion": "batch/v1", "kind": "Job"}})).unwrap();
    let mut world = World::with(RollSettings { expect_reboot: true, action, ..settings(&[1], 1) });
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    assert_eq!(world.acted, ["n0"]);
    world
}

/// The reboot ends the pod of the Job, and the Job has no other attempt.
const KILLED: &str = "Job ops/r-0-1: Job has reached the specified backoff limit";

fn reboot(world: &mut World) {
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
}

#[test]
fn a_job_whose_pod_the_expected_reboot_has_killed_is_done() {
    let mut world = job_runs();
    reboot(&mut world);
    world.set_action("n0", ActionState::JobFailed(KILLED.into()));
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.acted, ["n0"]);
}

#[test]
fn a_job_that_failed_before_the_reboot_was_seen_is_not_run_again_after_the_halt() {
    let mut world = job_runs();
    world.set_action("n0", ActionState::JobFailed(KILLED.into()));
    assert!(matches!(world.run(), RollState::Halted(_)), "{:?}", world.last);
    world.restart();
    reboot(&mut world);
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.acted, ["n0"]);
}

#[test]
fn a_job_that_fails_without_the_expected_reboot_halts_the_roll() {
    let mut world = job_runs();
    world.set_action("n0", ActionState::JobFailed(KILLED.into()));
    let RollState::Halted(halt) = world.run() else { panic!("{:?}", world.last) };
    assert_eq!(halt.message, format!("the action for node n0 failed: {KILLED}"));
}

#[test]
fn a_command_that_fails_after_the_reboot_halts_the_roll() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    reboot(&mut world);
    world.set_action("n0", ActionState::Failed("exit code 3".into()));
    assert!(matches!(world.run(), RollState::Halted(_)), "{:?}", world.last);
}

#[test]
fn a_job_that_failed_on_a_node_that_shuts_down_waits_for_the_reboot_and_runs_again_without_one() {
    for rebooted in [true, false] {
        let mut world = job_runs();
        world.observed.nodes.get_mut("n0").unwrap().ready_since = None;
        world.set_action("n0", ActionState::JobFailed(KILLED.into()));
        world.decide(usize::MAX);
        world.decide(usize::MAX);
        assert_eq!(
            (world.step_of("n0"), world.detail("n0")),
            (Some(Step::Rejoining), "it has not rebooted, and is not Ready")
        );
        world.observed.nodes.get_mut("n0").unwrap().ready_since = Some(at(world.now));
        if rebooted {
            reboot(&mut world);
        } else {
            assert!(matches!(world.run(), RollState::Halted(_)), "{:?}", world.last);
            world.restart();
            world.run_to("n0", Step::Acting);
            reboot(&mut world);
        }
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(world.acted.len(), if rebooted { 1 } else { 2 });
    }
}
