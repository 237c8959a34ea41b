//! Nodes whose `Node` objects are deleted, and maintenances that somebody deletes.

use super::world::{World, settings};
use super::*;
use crate::absence::Departure;
use crate::record::ActionRecord;

/// Lets this many seconds pass, in which nothing else happens.
fn wait(world: &mut World, seconds: i64) -> RollState {
    let mut state = RollState::Working;
    for _ in 0..seconds {
        state = world.decide(usize::MAX);
        if !matches!(state, RollState::Working | RollState::Waiting(_)) {
            return state;
        }
        world.pass_second();
    }
    state
}

fn left(world: &World) -> Vec<(&str, Departure)> {
    world.record.left.iter().map(|left| (left.node.as_str(), left.why)).collect()
}

#[test]
fn a_node_that_is_deleted_and_returns_goes_on_from_where_it_was() {
    for step in [Step::Draining, Step::Acting, Step::Rejoining, Step::Checking] {
        let mut world = World::new(&[2], 1);
        world.run_to("n0", step);
        world.delete_node("n0");
        wait(&mut world, 30);
        assert_eq!(
            (world.begun.as_slice(), world.recreated.len()),
            (["n0".to_owned()].as_slice(), 0),
            "{step:?}"
        );
        world.return_node("n0");
        world.run_to("n1", Step::Rejoining);
        assert_eq!(world.recreated, ["n0"], "{step:?}");
        assert_eq!(world.begun, ["n0", "n1"], "{step:?}: one after another");
        assert_eq!(world.acted, ["n0", "n1"], "{step:?}: no action runs twice");
        world.delete_node("n1");
        world.decide(usize::MAX);
        world.return_node("n1");
        assert_eq!(world.run(), RollState::Done);
        assert_eq!((world.record.done.nodes, left(&world)), (2, vec![]), "{step:?}");
    }
}

#[test]
fn a_node_that_is_deleted_and_does_not_return_halts_the_roll() {
    for (step, message) in [
        (Step::Draining, "node n0 does not exist, and has not returned after 1m"),
        (Step::Rejoining, "node n0 is not back after 1m: it does not exist"),
        (Step::Checking, "node n0 is not healthy after 1m: it does not exist"),
        (Step::Recovering, "node n0 is not healthy after 1m: it does not exist"),
    ] {
        let mut world = World::new(&[2], 1);
        world.run_to("n0", step);
        world.delete_node("n0");
        let RollState::Halted(halt) = wait(&mut world, 100) else { panic!("{step:?}: {:?}", world.last) };
        assert_eq!((halt.node.as_str(), halt.message.as_str()), ("n0", message));
        assert_eq!(world.begun, ["n0"], "{step:?}: the next does not begin");
        // Whoever resumes the roll waits again, and knows where the node was.
        world.restart();
        assert_eq!(wait(&mut world, 30), RollState::Working, "{step:?}");
        world.return_node("n0");
        assert_eq!(world.run(), RollState::Done, "{step:?}");
        assert_eq!(world.record.done.nodes, 2, "{step:?}");
    }
}

#[test]
fn a_maintenance_without_an_owner_stays_and_goes_on_when_its_node_returns() {
    let mut world = World::new(&[2], 1);
    for object in world.objects.values_mut() {
        object.metadata.owner_references = None;
    }
    world.run_to("n0", Step::Draining);
    world.delete_node("n0");
    wait(&mut world, 30);
    assert_eq!(
        world.detail("n0"),
        "the node does not exist: waits for its return, or for `kubectl nm roll pause r && kubectl nm roll resume r --skip n0`"
    );
    world.pause(true);
    world.decide(usize::MAX);
    let resumed =
        "the node does not exist: waits for its return, or for `kubectl nm roll resume r --skip n0`";
    assert_eq!(world.detail("n0"), resumed, "it is paused already");
    world.pause(false);
    world.decide(usize::MAX);
    world.return_node("n0");
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "the node has returned: waits for nm-reconciler");
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((world.recreated.len(), world.record.done.nodes), (0, 2));
}

#[test]
fn a_roll_whose_last_node_does_not_exist_names_what_ends_it_and_no_command_that_would_not_find_it() {
    let mut world = World::new(&[2], 1);
    world.run_to("n1", Step::Draining);
    assert_eq!(world.record.done.nodes, 1);
    world.delete_node("n1");
    wait(&mut world, 10);
    assert_eq!(
        world.detail("n1"),
        "the node does not exist: waits for its return, or for Ctrl-C, because the roll has no other node"
    );
    world.return_node("n1");
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn the_result_of_an_action_is_kept_while_its_node_does_not_exist() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.delete_node("n0");
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "", "the command runs");
    world.set_action("n0", ActionState::Failed("exit code 3".into()));
    let RollState::Halted(halt) = wait(&mut world, 10) else { panic!("{:?}", world.last) };
    assert_eq!(halt.message, "the action for node n0 failed: exit code 3");
    world.restart();
    world.return_node("n0");
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.acted, ["n0", "n0", "n1"], "it begins again on the node that has returned");
}

#[test]
fn an_action_does_not_begin_on_a_node_that_is_not_drained_any_more() {
    let mut world = World::with(RollSettings { confirm: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Confirming);
    world.delete_node("n0");
    world.decide(usize::MAX);
    world.return_node("n0");
    world.decide(usize::MAX);
    assert_eq!(world.step_of("n0"), Some(Step::Draining));
    world.run_to("n0", Step::Confirming);
    // After an interruption, too.
    let running = ActionRecord { attempt: 1, state: ActionState::Running };
    world.write("n0", |record| {
        (record.step, record.action) = (Step::Acting, Some(running.clone()));
    });
    let status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
    world.objects.get_mut("n0").unwrap().status = status;
    world.decide(usize::MAX);
    assert_eq!(
        (world.detail("n0"), world.acted.len()),
        ("the node has returned, and is being drained again", 0)
    );
}

#[test]
fn a_planned_node_that_is_deleted_holds_no_other_and_is_not_done() {
    let mut world = World::new(&[1, 2], 1);
    world.run_to("n0", Step::Draining);
    world.delete_node("n1");
    world.run_to("n2", Step::Draining);
    assert_eq!(world.begun, ["n0", "n2"]);
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((world.record.done.nodes, left(&world)), (2, vec![("n1", Departure::NodeDeleted)]));
}

#[test]
fn a_planned_node_that_returns_in_time_is_rolled() {
    let mut world = World::new(&[1, 2], 1);
    world.run_to("n0", Step::Draining);
    world.delete_node("n2");
    wait(&mut world, 5);
    world.return_node("n2");
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((world.begun.len(), world.record.done.nodes, left(&world)), (3, 3, vec![]));
}

#[test]
fn a_node_whose_maintenance_somebody_deletes_leaves_the_roll_and_is_named() {
    for last in [false, true] {
        let mut world = World::new(&[2], 1);
        world.run_to(if last { "n1" } else { "n0" }, Step::Draining);
        world.stop(if last { "n1" } else { "n0" });
        assert_eq!(world.run(), RollState::Done);
        let expected = if last { "n1" } else { "n0" };
        assert_eq!(
            (world.record.done.nodes, left(&world)),
            (1, vec![(expected, Departure::MaintenanceDeleted)])
        );
        assert_eq!(world.recreated.len(), 0);
    }
}

#[test]
fn a_node_that_left_while_no_program_ran_the_roll_is_named() {
    let mut world = World::new(&[3], 1);
    world.run_to("n0", Step::Draining);
    world.stop("n1");
    world.restart();
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((world.record.done.nodes, left(&world)), (2, vec![("n1", Departure::MaintenanceDeleted)]));
    assert!(world.record.nodes.iter().all(|left| left == "n1"), "{:?}", world.record.nodes);
}

#[test]
fn a_watch_of_nodes_that_is_behind_does_not_make_a_deletion_look_like_a_stop() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Rejoining);
    let seen = world.observed.nodes["n0"].clone();
    world.delete_node("n0");
    world.observed.nodes.insert("n0".into(), seen);
    world.decide(usize::MAX);
    assert_eq!(left(&world), vec![]);
    assert!(!world.observed.has_lost_maintenance("n0"), "its command is not ended");
    world.now += 1;
    world.observed.nodes.remove("n0");
    world.decide(usize::MAX);
    assert_eq!(world.record.absent.len(), 1);
    world.return_node("n0");
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.record.done.nodes, 1);
}
