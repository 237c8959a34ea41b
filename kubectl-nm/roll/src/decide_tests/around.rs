//! What a roll does before the first eviction of a node, and before the node returns.

use super::world::{World, settings};
use super::*;
use crate::by_now::ByNow;
use crate::settings::NodeAction;
use crate::unfinished::{run_again, unfinished};

/// A roll with a command before each drain and one before each return.
fn world(waves: &[usize]) -> World {
    World::with(around(waves))
}

fn around(waves: &[usize]) -> RollSettings {
    let command = |text: &str| Some(NodeAction::Run(text.into()));
    RollSettings { before: command("b"), after: command("a"), ..settings(waves, 1) }
}

fn actions(world: &World, node: &str) -> Vec<Step> {
    world.actions.iter().filter(|(name, _)| name == node).map(|(_, step)| *step).collect()
}

fn halt(world: &mut World) -> String {
    let RollState::Halted(halt) = world.run() else { panic!("{:?}", world.last) };
    halt.message
}

const ALL: [Step; 3] = [Step::Preparing, Step::Acting, Step::Finishing];

#[test]
fn each_node_is_prepared_before_its_first_eviction_and_finished_before_its_return() {
    let mut world = world(&[2]);
    world.run_to("n0", Step::Preparing);
    world.decide(usize::MAX);
    assert!(world.actions.is_empty(), "the node is not cordoned yet");
    world.pass_second();
    world.decide(usize::MAX);
    assert_eq!(actions(&world, "n0"), [Step::Preparing]);
    assert!(world.roll().node("n0").unwrap().is_hooked());
    world.run_to("n0", Step::Draining);
    assert!(!world.roll().node("n0").unwrap().is_hooked());
    world.run_to("n0", Step::Finishing);
    assert!(!world.roll().node("n0").unwrap().is_deleted());
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((actions(&world, "n0"), actions(&world, "n1")), (ALL.to_vec(), ALL.to_vec()));
}

#[test]
fn without_a_main_action_the_node_rejoins_and_is_finished() {
    let mut world = World::with(RollSettings { action: None, ..around(&[1]) });
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(actions(&world, "n0"), [Step::Preparing, Step::Finishing]);
}

#[test]
fn a_failed_action_halts_the_roll_and_runs_again_when_it_is_resumed() {
    for (step, message) in [
        (Step::Preparing, "the --before action for node n0 failed: exit code 3"),
        (Step::Finishing, "the --after action for node n0 failed: exit code 3"),
    ] {
        let mut world = world(&[2]);
        while actions(&world, "n0").last() != Some(&step) {
            world.decide(usize::MAX);
            world.pass_second();
        }
        world.set_action_of("n0", step, ActionState::Failed("exit code 3".into()));
        assert_eq!(halt(&mut world), message);
        assert_eq!(world.step_of("n0"), Some(step), "no pod is evicted, and the node stays in maintenance");
        let attempts = |world: &World| actions(world, "n0").iter().filter(|one| **one == step).count();
        assert_eq!(attempts(&world), 1);
        world.restart();
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(attempts(&world), 2);
        assert_eq!(world.acted, ["n0", "n1"], "what has succeeded is not repeated");
    }
}

#[test]
fn an_interrupted_action_runs_again() {
    for step in [Step::Preparing, Step::Finishing] {
        let mut world = world(&[1]);
        while actions(&world, "n0").last() != Some(&step) {
            world.decide(usize::MAX);
            world.pass_second();
        }
        world.restart();
        // The last action of the world is known as interrupted.
        world.decide(0);
        assert_eq!(world.detail("n0"), "was interrupted, and starts again");
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(actions(&world, "n0").iter().filter(|one| **one == step).count(), 2);
    }
}

#[test]
fn a_reboot_ends_neither_of_them() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..around(&[1]) });
    world.run_to("n0", Step::Rejoining);
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
    while actions(&world, "n0").last() != Some(&Step::Finishing) {
        world.decide(usize::MAX);
        world.pass_second();
    }
    world.restart();
    assert_eq!(world.run(), RollState::Done, "{:?}", world.last);
    assert_eq!(actions(&world, "n0"), [ALL.as_slice(), &[Step::Finishing]].concat());
    // ssh lost its connection without a reboot that is expected.
    let mut world = World::with(RollSettings { expect_reboot: true, ..around(&[1]) });
    while world.actions.is_empty() {
        world.decide(usize::MAX);
        world.pass_second();
    }
    world.set_action_of("n0", Step::Preparing, ActionState::Disconnected);
    assert_eq!(halt(&mut world), "the --before action for node n0 failed: exit code 255");
}

#[test]
fn a_roll_that_has_halted_keeps_the_result_and_evicts_nothing() {
    let mut world = World::with(RollSettings { max_unavailable: 2, ..around(&[2]) });
    while world.actions.len() < 2 {
        world.decide(usize::MAX);
        world.pass_second();
    }
    world.set_action_of("n0", Step::Preparing, ActionState::Failed("no".into()));
    world.decide(usize::MAX);
    world.set_action_of("n1", Step::Preparing, ActionState::Succeeded);
    halt(&mut world);
    assert!(world.roll().node("n1").unwrap().is_hooked());
    world.restart();
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(actions(&world, "n1"), ALL);
}

#[test]
fn whoever_removes_the_hook_has_done_the_work_and_nothing_is_said_to_run_again() {
    for removes_hook in [true, false] {
        let mut world = world(&[1]);
        while world.actions.is_empty() {
            world.decide(usize::MAX);
            world.pass_second();
        }
        world.set_action_of("n0", Step::Preparing, ActionState::Failed("no".into()));
        halt(&mut world);
        if removes_hook {
            world.remove_hook("n0");
        }
        let said = run_again(&unfinished(Some(&world.roll()), &world.record));
        world.decide(0);
        let by_now = world.last.as_ref().and_then(|last| last.progress[0].by_now);
        assert_eq!(by_now == Some(ByNow::Unhooked), removes_hook, "{by_now:?}");
        world.restart();
        assert_eq!(world.run(), RollState::Done);
        let ran_again = actions(&world, "n0").len() > ALL.len();
        assert_eq!((ran_again, !said.is_empty()), (!removes_hook, ran_again), "{said:?}");
    }
}

#[test]
fn a_drain_that_fails_before_the_action_halts_the_roll() {
    let mut world = world(&[1]);
    world.run_to("n0", Step::Preparing);
    world.objects.get_mut("n0").unwrap().status =
        serde_json::from_value(json!({"phase": "Failed", "lastError": "timed out"})).unwrap();
    assert_eq!(halt(&mut world), "the drain of node n0 failed: timed out");
    assert!(world.actions.is_empty());
}

#[test]
fn a_paused_roll_begins_neither_of_them_and_evicts_nothing() {
    let mut world = world(&[1]);
    world.run_to("n0", Step::Preparing);
    world.hold("n0");
    world.pause(true);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "the roll is paused, and its action has not started");
    assert!(world.actions.is_empty() && !world.drains());
    world.pause(false);
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(actions(&world, "n0"), ALL);
}

#[test]
fn a_node_whose_preparation_has_begun_is_finished_when_the_roll_is_aborted() {
    for step in [Step::Preparing, Step::Draining] {
        let mut world = world(&[2]);
        while world.actions.is_empty() {
            world.decide(usize::MAX);
            world.pass_second();
        }
        if step == Step::Draining {
            world.run_to("n0", step);
        }
        abort::abort(&mut world);
        world.decide(usize::MAX);
        world.objects.retain(|node, _| node == "n0");
        assert_eq!(world.run(), RollState::Aborted("somebody".into()), "{step:?}");
        assert_eq!((actions(&world, "n0"), world.record.done.nodes), (ALL.to_vec(), 1));
    }
}
