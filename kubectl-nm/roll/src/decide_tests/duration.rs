//! How long a node takes: the time in which the roll works on it.

use nm_core::maintenance::roll_window::Windows;

use super::world::{World, settings};
use super::*;
use crate::settings::RollSettings;

const NIGHT: i64 = 10 * 3600;

/// Takes the first node to its action, lets something happen, and returns how long the node took in the end.
fn slowest(world: &mut World, meanwhile: impl FnOnce(&mut World)) -> i64 {
    world.run_to("n0", Step::Acting);
    meanwhile(world);
    while world.record.done.nodes == 0 {
        let state = world.decide(usize::MAX);
        assert!(matches!(state, RollState::Working | RollState::Waiting(_)), "{state:?}");
        world.pass_second();
    }
    world.record.done.slowest_seconds
}

fn pass(world: &mut World, seconds: i64) {
    let end = world.now + seconds;
    while world.now < end {
        world.decide(usize::MAX);
        world.now += 5;
    }
}

#[test]
fn the_time_while_nobody_ran_the_roll_does_not_count() {
    let mut world = World::new(&[2], 1);
    let seconds = slowest(&mut world, |world| {
        world.now += NIGHT;
        world.restart();
    });
    assert!((5..=30).contains(&seconds), "{seconds}");
}

#[test]
fn the_time_of_a_halt_and_of_a_pause_does_not_count() {
    let mut world = World::new(&[2], 1);
    let seconds = slowest(&mut world, |world| {
        world.decide(usize::MAX);
        world.set_action("n0", ActionState::Failed("no".into()));
        assert!(matches!(world.run(), RollState::Halted(_)));
        world.now += NIGHT;
        world.restart();
        world.pause(true);
        pass(world, 3600);
        world.pause(false);
    });
    assert!((5..=60).contains(&seconds), "{seconds}");
}

#[test]
fn a_pause_in_which_a_node_under_way_is_finished_counts() {
    let mut world = World::new(&[2], 1);
    let seconds = slowest(&mut world, |world| {
        world.decide(usize::MAX);
        world.pause(true);
        // Its action goes on for five minutes.
        pass(world, 300);
    });
    assert!((300..=330).contains(&seconds), "{seconds}");
    pass(&mut world, 3600);
    let worked = world.record.worked_millis / 1000;
    assert!((seconds..seconds + 30).contains(&worked), "nothing is under way any more: {worked}");
}

/// How long a node takes whose drain is interrupted like this before the roll has had its next heartbeat.
fn interrupted(interrupt: impl FnOnce(&mut World)) -> i64 {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Draining);
    pass(&mut world, 10);
    interrupt(&mut world);
    slowest(&mut world, |_| {})
}

#[test]
fn the_time_of_a_drain_before_a_pause_counts_and_that_of_the_pause_does_not() {
    let seconds = interrupted(|world| {
        world.pause(true);
        pass(world, 3600);
        // The time counts again from the last heartbeat on.
        world.ask();
        world.decide(usize::MAX);
        world.pause(false);
    });
    let alone = interrupted(|_| {});
    assert!((alone - 1..=alone + 1).contains(&seconds), "{seconds}, and {alone} alone");
}

#[test]
fn the_time_of_a_drain_before_a_halt_counts_and_that_of_the_halt_does_not() {
    let seconds = interrupted(|world| {
        world.observed.broken = Some(("n0".into(), "no".into()));
        assert!(matches!(world.run(), RollState::Halted(_)));
        world.now += NIGHT;
        world.restart();
    });
    let alone = interrupted(|_| {});
    assert!((alone - 1..=alone + 1).contains(&seconds), "{seconds}, and {alone} alone");
}

#[test]
fn the_time_that_a_computer_slept_does_not_count() {
    let mut world = World::new(&[2], 1);
    let seconds = slowest(&mut world, |world| world.now += NIGHT);
    assert!(seconds <= 60 + 30, "{seconds}");
}

#[test]
fn the_time_in_which_the_roll_works_on_a_node_counts() {
    let mut world = World::new(&[2], 1);
    let seconds = slowest(&mut world, |world| pass(world, 300));
    assert!((300..=330).contains(&seconds), "{seconds}");
}

#[test]
fn a_node_begins_in_the_next_window_after_one_that_was_interrupted_in_the_last() {
    // The tests begin at 13:46:40 UTC on a Monday.
    let windows = Windows(vec!["Mon,Tue 13:00-14:00 UTC".parse().unwrap()]);
    let mut world = World::with(RollSettings { windows, ..settings(&[2], 1) });
    let seconds = slowest(&mut world, |world| {
        // The program runs until after the window, and is killed.
        pass(world, 15 * 60);
        world.now = 24 * 3600 - 45 * 60;
        world.restart();
    });
    assert!((14 * 60 + 30..=15 * 60 + 30).contains(&seconds), "{seconds}");
    // It is Tuesday, 13:01:40 or a little later.
    assert_eq!(world.run(), RollState::Done, "{seconds}");
    assert_eq!(world.begun, ["n0", "n1"]);
}

#[test]
fn the_time_after_a_window_has_closed_counts_so_that_the_next_node_does_not_overrun_it_too() {
    // The tests begin at 13:46:40 UTC on a Monday.
    let windows = Windows(vec!["13:00-14:00 UTC".parse().unwrap()]);
    let mut world = World::with(RollSettings { windows, ..settings(&[2], 1) });
    let seconds = slowest(&mut world, |world| pass(world, 30 * 60));
    assert!((30 * 60..=31 * 60).contains(&seconds), "{seconds}");
    // Tuesday, 13:45.
    world.now = 24 * 3600 - 100;
    world.decide(usize::MAX);
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
    assert!(why.contains("and the slowest node so far took 30m"), "{why}");
    assert_eq!(world.begun, ["n0"]);
    // Wednesday, 13:00.
    world.now = 48 * 3600 - 46 * 60 - 40;
    assert_eq!(world.run(), RollState::Done);
}
