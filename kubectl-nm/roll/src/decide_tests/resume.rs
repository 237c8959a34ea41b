//! What a program finds that continues a roll, and what it tries again.

use super::world::{World, at, settings};
use super::*;
use crate::record::Health;
use crate::record::{ActionRecord, STATE};
use crate::settings::RollSettings;

fn action_of(world: &World, node: &str) -> Option<ActionRecord> {
    world.roll().node(node).unwrap().record.action.clone()
}

/// Lets the action of a node end, and returns how the roll ends.
fn ends(world: &mut World, node: &str, state: ActionState) -> RollState {
    world.decide(usize::MAX);
    world.set_action(node, state);
    world.run()
}

fn expecting_reboots(nodes: usize) -> World {
    World::with(RollSettings { expect_reboot: true, ..settings(&[nodes], nodes) })
}

#[test]
fn the_results_of_all_actions_are_stored_before_a_halted_roll_ends() {
    for (state, acts_again) in [(ActionState::Succeeded, false), (ActionState::Failed("no".into()), true)] {
        let mut world = World::new(&[2], 2);
        world.run_to("n1", Step::Acting);
        world.decide(usize::MAX);
        world.set_action("n0", ActionState::Failed("exit code 3".into()));
        world.decide(usize::MAX);
        let RollState::Halted(halt) = ends(&mut world, "n1", state.clone()) else {
            panic!("{:?}", world.last)
        };
        assert_eq!(halt.node, "n0");
        assert_eq!(action_of(&world, "n1"), Some(ActionRecord { attempt: 1, state }));
        world.acted.clear();
        world.restart();
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(world.acted.contains(&String::from("n1")), acts_again);
        assert!(world.acted.contains(&String::from("n0")), "it had failed");
    }
}

#[test]
fn an_action_that_failed_is_another_attempt_and_one_that_was_interrupted_is_the_same() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.restart();
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "was interrupted, and starts again");
    assert_eq!(action_of(&world, "n0"), Some(ActionRecord { attempt: 1, state: ActionState::Running }));
    assert!(matches!(ends(&mut world, "n0", ActionState::Failed("no".into())), RollState::Halted(_)));
    world.restart();
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "failed, and starts again: no");
    assert_eq!(action_of(&world, "n0"), Some(ActionRecord { attempt: 2, state: ActionState::Running }));
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn a_reboot_before_the_action_begins_is_not_its_effect() {
    let mut world = expecting_reboots(1);
    world.run_to("n0", Step::Draining);
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
    world.run_to("n0", Step::Acting);
    world.restart();
    world.decide(usize::MAX);
    assert_eq!(world.acted, ["n0"], "the command has not run yet");
    world.set_action("n0", ActionState::Succeeded);
    world.run_to("n0", Step::Rejoining);
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "it has not rebooted");
    world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-2".into();
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn a_command_that_ended_without_a_reboot_is_run_again_after_the_halt() {
    let ended = [ActionState::Disconnected, ActionState::Succeeded];
    for (ended, rebooted) in ended.into_iter().flat_map(|ended| [(ended.clone(), false), (ended, true)]) {
        let mut world = expecting_reboots(1);
        world.run_to("n0", Step::Acting);
        let RollState::Halted(halt) = ends(&mut world, "n0", ended) else { panic!() };
        assert_eq!(halt.message, "node n0 is not back after 1m: it has not rebooted");
        // Somebody may have turned the node off and on.
        if rebooted {
            world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
        }
        world.restart();
        world.decide(usize::MAX);
        world.decide(usize::MAX);
        world.observed.nodes.get_mut("n0").unwrap().boot_id = "boot-1".into();
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(world.acted.len(), if rebooted { 1 } else { 2 });
    }
}

#[test]
fn all_nodes_whose_time_was_over_at_the_halt_get_another_try() {
    let mut world = expecting_reboots(2);
    world.run_to("n0", Step::Acting);
    world.run_to("n1", Step::Acting);
    for node in ["n0", "n1"] {
        world.set_action(node, ActionState::Succeeded);
    }
    let RollState::Halted(halt) = world.run() else { panic!("{:?}", world.last) };
    assert_eq!(halt.message, "node n0 is not back after 1m: it has not rebooted");
    world.restart();
    world.decide(usize::MAX);
    world.decide(usize::MAX);
    assert_eq!(world.acted, ["n0", "n1", "n0", "n1"]);
}

#[test]
fn a_command_whose_reboot_is_under_way_is_not_run_again_by_a_program_that_continues() {
    let mut world = expecting_reboots(1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    world.set_action("n0", ActionState::Disconnected);
    world.run_to("n0", Step::Rejoining);
    world.restart();
    for _ in 0..5 {
        world.decide(usize::MAX);
        world.pass_second();
    }
    assert_eq!(world.acted.len(), 1);
}

#[test]
fn the_state_of_the_last_node_is_stored_until_the_roll_is_over() {
    for step in [Step::Returning, Step::Recovering, Step::Soaking] {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", step);
        world.restart();
        assert_eq!(world.step_of("n0"), Some(step));
        assert!(world.roll().record.is_some(), "{step:?}");
        if step == Step::Recovering {
            world.now += 60;
            world.observed.started = at(0);
            let waiting = Health::Waiting("Deployment shop/cart has 1 of 2 replicas available".into());
            world.check("n0", step, waiting);
            world.decide(usize::MAX);
            assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)));
            world.restart();
        }
        assert_eq!(world.run(), RollState::Done);
        assert_eq!((world.record.done.nodes, world.record.done.pods), (1, 3), "{step:?}");
        assert!(world.objects.is_empty());
    }
}

#[test]
fn a_node_that_is_done_counts_once_if_the_program_is_killed_before_its_maintenance_is_released() {
    for nodes in [1, 2] {
        let mut world = World::new(&[nodes], 1);
        world.run_to("n0", Step::Soaking);
        while world.record.released.is_empty() {
            world.decide(1);
            world.pass_second();
        }
        world.restart();
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(world.record.done.nodes, nodes);
    }
}

#[test]
fn what_an_anchor_knew_that_somebody_deleted_is_rebuilt_from_the_other_nodes() {
    let mut world = World::new(&[3], 2);
    world.run_to("n0", Step::Rejoining);
    world.acted.clear();
    let (worked, anchor) = (world.record.worked_millis, "n2");
    assert!(world.objects.remove(anchor).unwrap().metadata.annotations.unwrap().contains_key(STATE));
    let roll = world.roll();
    assert!(roll.is_record_lost());
    let rebuilt = roll.complete_record().unwrap();
    assert_eq!((rebuilt.unknown, rebuilt.done.nodes), (Some(1), 0));
    assert!(rebuilt.worked_millis <= worked);
    world.restart();
    assert_eq!(world.run(), RollState::Done);
    assert_eq!((world.record.done.nodes, world.record.unknown), (2, Some(1)));
    assert!(!world.acted.contains(&String::from("n0")), "its command had succeeded");
}

#[test]
fn a_running_program_stores_its_record_again_if_somebody_deletes_the_anchor() {
    let mut world = World::new(&[3], 1);
    world.run_to("n1", Step::Draining);
    world.objects.remove("n2");
    world.decide(usize::MAX);
    assert_eq!(world.roll().record.unwrap().done.nodes, 1);
}

#[test]
fn a_drain_that_had_failed_before_waits_for_another_try_unless_its_deadline_has_passed() {
    for (timeout, waits) in [(0, true), (3600, true), (1, false)] {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", Step::Draining);
        let object = world.objects.get_mut("n0").unwrap();
        let status = json!({"phase": "Failed", "lastError": "no", "conditions": [{"type": "Cordoned", "status": "True",
            "reason": "Cordoned", "message": "", "lastTransitionTime": at(world.now)}]});
        object.status = serde_json::from_value(status).unwrap();
        object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": timeout})).unwrap();
        world.now += 5;
        world.decide(usize::MAX);
        assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "a program that sees it fail");
        world.restart();
        world.decide(usize::MAX);
        assert_eq!(matches!(world.decide(usize::MAX), RollState::Working), waits, "{timeout}");
        if waits {
            assert_eq!(world.detail("n0"), "waits for nm-reconciler to try again: no");
            world.now += 45;
            world.decide(usize::MAX);
            assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{timeout}");
        }
    }
}

#[test]
fn a_node_that_is_refused_halts_the_roll_with_its_reason() {
    let mut world = World::new(&[2], 1);
    world.observed.failed.insert("n1".into(), "the maintenance of node n1 cannot be changed: no".into());
    world.decide(usize::MAX);
    let RollState::Halted(halt) = world.run() else { panic!() };
    assert_eq!(
        (halt.node.as_str(), halt.message.as_str()),
        ("n1", "the maintenance of node n1 cannot be changed: no")
    );
    world.restart();
    assert_eq!(world.run(), RollState::Done);
}

#[test]
fn an_aborted_roll_is_not_done() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Acting);
    world.observed.aborted = Some("ada@laptop".into());
    world.objects.clear();
    world.observed.actions.clear();
    assert_eq!(world.decide(usize::MAX), RollState::Aborted("ada@laptop".into()));
}

#[test]
fn a_question_whether_the_program_is_alive_is_answered_at_once() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    let asked = RollRecord { asked: true, ..world.record.next() };
    world.store("n0", &asked);
    world.now += 1;
    world.decide(usize::MAX);
    let answered = world.roll().record.unwrap();
    assert!(!answered.asked && answered.runner.unwrap().at == at(world.now));
}

#[test]
fn a_node_that_is_not_ready_while_it_soaks_has_to_recover_again() {
    let mut world = World::new(&[2], 1);
    world.run_to("n0", Step::Soaking);
    world.observed.nodes.get_mut("n0").unwrap().ready_since = None;
    world.decide(usize::MAX);
    assert_eq!(world.step_of("n0"), Some(Step::Recovering));
    world.now += 60;
    world.decide(usize::MAX);
    let RollState::Halted(halt) = world.run() else { panic!() };
    assert_eq!(halt.message, "node n0 is not healthy after 1m: it is not Ready");
    assert_eq!(world.begun, ["n0"]);
}

#[test]
fn a_node_that_does_not_return_to_service_halts_the_roll() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Returning);
    world.decide(usize::MAX);
    world.objects.get_mut("n0").unwrap().status =
        serde_json::from_value(json!({"lastError": "no permission"})).unwrap();
    world.decide(usize::MAX);
    let why = "waits for nm-reconciler to uncordon the node: no permission";
    assert_eq!(world.detail("n0"), why);
    world.now += 60;
    world.decide(usize::MAX);
    let RollState::Halted(halt) = world.decide(usize::MAX) else { panic!() };
    assert_eq!(halt.message, format!("node n0 has not returned to service after 1m: {why}"));
}

#[test]
fn no_action_begins_in_a_roll_that_was_aborted() {
    let mut world = World::new(&[2], 2);
    world.run_to("n1", Step::Draining);
    world.drained("n0");
    world.record.aborted = Some("ada@laptop".into());
    world.decide(usize::MAX);
    assert_eq!(world.step_of("n0"), Some(Step::Acting));
    world.decide(usize::MAX);
    assert!(world.acted.is_empty(), "{:?}", world.acted);
    assert_eq!(world.detail("n0"), "the roll was aborted");
}
