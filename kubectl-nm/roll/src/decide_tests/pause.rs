//! Rolls that somebody pauses.

use super::world::{World, settings};
use super::*;

const PAUSED: &str = "the roll is paused, and its action has not begun";

/// Nothing begins while the roll is paused, and everything once it is not.
fn begins_after_the_pause(mut world: World) {
    for _ in 0..3 {
        world.decide(usize::MAX);
    }
    assert_eq!((world.acted.as_slice(), world.step_of("n0")), (&[][..], Some(Step::Acting)));
    assert_eq!(world.detail("n0"), PAUSED);
    world.pause(false);
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.acted, ["n0"]);
}

#[test]
fn no_action_begins_when_the_last_pods_end_after_the_pause() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Draining);
    world.pause(true);
    world.drained("n0");
    begins_after_the_pause(world);
}

#[test]
fn no_action_begins_for_a_confirmation_that_is_given_during_a_pause() {
    let mut world = World::with(RollSettings { confirm: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Confirming);
    world.pause(true);
    world.observed.confirmed.insert("n0".into(), true);
    begins_after_the_pause(world);
}

#[test]
fn an_action_that_was_interrupted_does_not_begin_again_during_a_pause() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.acted.clear();
    world.restart();
    world.pause(true);
    begins_after_the_pause(world);
}

#[test]
fn a_paused_roll_begins_no_node_and_finishes_an_action_that_runs() {
    let mut world = World::new(&[3], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    assert_eq!(world.acted, ["n0"]);
    world.pause(true);
    for _ in 0..40 {
        world.decide(usize::MAX);
        world.pass_second();
    }
    assert_eq!(world.decide(usize::MAX), RollState::Waiting("paused".into()));
    assert_eq!((world.begun.as_slice(), world.record.done.nodes), (&["n0".to_owned()][..], 1));
    world.pause(false);
    assert_eq!(world.run(), RollState::Done);
}
