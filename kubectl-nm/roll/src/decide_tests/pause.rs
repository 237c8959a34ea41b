//! Rolls that somebody pauses.

use super::world::{World, at, settings};
use super::*;
use crate::settings::NodeAction;

const PAUSED: &str = "the roll is paused, and its action has not started";

/// Nothing begins while the roll is paused, and everything once it is not.
fn begins_after_the_pause(mut world: World, detail: &str) {
    for _ in 0..3 {
        world.decide(usize::MAX);
    }
    assert_eq!((world.acted.as_slice(), world.step_of("n0")), (&[][..], Some(Step::Acting)));
    assert_eq!(world.detail("n0"), detail);
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
    begins_after_the_pause(world, PAUSED);
}

#[test]
fn a_drain_that_others_have_paused_before_the_program_does_is_not_paused_again() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Draining);
    world.pause(true);
    let suspend = |world: &mut World, suspend: bool| {
        world.objects.get_mut("n0").unwrap().spec.suspend = suspend;
        world.decide(0);
    };
    // The record is written before the drain is paused.
    suspend(&mut world, false);
    suspend(&mut world, true);
    // Somebody resumes that node alone.
    suspend(&mut world, false);
    world.decide(usize::MAX);
    assert!(world.drains());
}

#[test]
fn no_action_begins_for_a_confirmation_that_is_given_during_a_pause() {
    let mut world = World::with(RollSettings { confirm: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Confirming);
    world.pause(true);
    world.observed.confirmed.insert("n0".into(), true);
    begins_after_the_pause(world, PAUSED);
}

#[test]
fn an_action_that_was_interrupted_does_not_begin_again_during_a_pause() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.acted.clear();
    world.restart();
    world.pause(true);
    let detail = "the roll is paused; its action was interrupted, and runs again when the roll is resumed";
    begins_after_the_pause(world, detail);
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
    assert_eq!(
        world.decide(usize::MAX),
        RollState::Waiting("paused by bob@desk at 1970-01-12 13:46:41 UTC".into())
    );
    assert_eq!((world.begun.as_slice(), world.record.done.nodes), (&["n0".to_owned()][..], 1));
    world.pause(false);
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn a_roll_that_somebody_pauses_names_them_even_while_an_action_goes_on() {
    let mut world = World::new(&[3], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.pause(true);
    world.decide(usize::MAX);
    let RollState::Waiting(why) = world.decide(usize::MAX) else { panic!("{:?}", world.last) };
    assert_eq!(
        (why.as_str(), world.step_of("n0")),
        ("paused by bob@desk at 1970-01-12 13:46:41 UTC", Some(Step::Acting))
    );
}

/// What a program shows of a node whose action, this command or Job, ended like this, in a roll that nobody runs any more.
fn shown(action: &NodeAction, ended: &ActionState, change: impl FnOnce(&mut RollRecord)) -> String {
    let mut world = World::with(RollSettings { action: Some(action.clone()), ..settings(&[2], 1) });
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.write("n0", |record| record.action.as_mut().unwrap().state = ended.clone());
    let mut roll = world.roll();
    let mut record = RollRecord { runner: None, ..world.record.clone() };
    change(&mut record);
    roll.record = Some(record.clone());
    let observed = Observed::shown_at(at(world.now), &roll, Some(world.observed.nodes.clone()));
    let progress = decide(&roll, &record, &observed).progress;
    progress.iter().find(|node| node.node == "n0").unwrap().detail.clone()
}

#[test]
fn an_action_that_had_begun_before_the_program_ended_is_never_shown_as_not_begun() {
    let again = "runs again when the roll is resumed";
    let paused = |record: &mut RollRecord| record.paused = true;
    let halted = |record: &mut RollRecord| {
        record.halt = Some(Halt { node: "n0".into(), message: "no".into(), at: at(0), cause: None });
    };
    let failed = || ActionState::Failed("exit code 1".into());
    let (command, job) = (NodeAction::Run("x".into()), NodeAction::Job(json!({})));
    // Unlike a command, it does not end with the program that has started it.
    let runs_on = "its Job is not interrupted, and its result is read when the roll continues";
    for (detail, expected) in [
        (
            shown(&command, &ActionState::Running, paused),
            format!("the roll is paused; its action was interrupted, and {again}"),
        ),
        (
            shown(&command, &failed(), paused),
            format!("the roll is paused; its action failed, and {again}: exit code 1"),
        ),
        (shown(&command, &failed(), halted), format!("failed, and {again}: exit code 1")),
        (shown(&command, &ActionState::Running, |_| {}), format!("was interrupted, and {again}")),
        (shown(&job, &ActionState::Running, paused), format!("the roll is paused; {runs_on}")),
        (shown(&job, &ActionState::Running, halted), runs_on.to_owned()),
        (shown(&job, &ActionState::Running, |_| {}), runs_on.to_owned()),
        (shown(&job, &failed(), halted), format!("failed, and {again}: exit code 1")),
    ] {
        assert_eq!(detail, expected);
    }
}
