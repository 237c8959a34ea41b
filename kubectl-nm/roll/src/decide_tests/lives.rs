//! Random lives of rolls.

use proptest::prelude::*;

use super::world::{World, at, settings};
use crate::decide::RollState;
use crate::record::{ActionState, Step};
use crate::settings::{NodeAction, RollSettings};

/// What happens to a roll besides what it does.
#[derive(Clone, Debug)]
enum Harm {
    /// The program is killed after the first few changes of a decision, and another one continues.
    Killed(usize),
    /// Somebody deletes the maintenance of a node.
    Deleted(usize),
    /// The object of a node is deleted.
    NodeDeleted(usize),
    NodeReturns(usize),
    Paused(bool),
    /// Somebody pauses the roll while a decision is being carried out.
    PausedMeanwhile,
    /// Somebody asks for a heartbeat while a decision is being carried out.
    AskedMeanwhile,
    /// Of the next writes, this one is refused, because somebody has changed its object.
    Conflict(usize),
    NotReady(usize),
    ActionFails(usize),
    Seconds(i64),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        3 => (0..4_usize).prop_map(Harm::Killed),
        1 => (0..9_usize).prop_map(Harm::Deleted),
        1 => (0..9_usize).prop_map(Harm::NodeDeleted),
        1 => (0..9_usize).prop_map(Harm::NodeReturns),
        1 => any::<bool>().prop_map(Harm::Paused),
        1 => Just(Harm::PausedMeanwhile),
        1 => Just(Harm::AskedMeanwhile),
        2 => (1..9_usize).prop_map(Harm::Conflict),
        1 => (0..9_usize).prop_map(Harm::NotReady),
        1 => (0..9_usize).prop_map(Harm::ActionFails),
        4 => (1..20_i64).prop_map(Harm::Seconds),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_limit_is_kept_and_the_roll_ends_once_it_stops(
        waves in proptest::collection::vec(1..4_usize, 1..4),
        max_unavailable in 1..4_usize,
        is_prepared in any::<bool>(),
        is_finished in any::<bool>(),
        harms in proptest::collection::vec(harm(), 0..30),
    ) {
        let mut world = World::with(RollSettings {
            before: is_prepared.then(|| NodeAction::Run("b".into())),
            after: is_finished.then(|| NodeAction::Run("a".into())),
            ..settings(&waves, max_unavailable)
        });
        let all: usize = waves.iter().sum();
        let mut deleted = 0;
        for harm in harms {
            match harm {
                Harm::Killed(changes) => {
                    world.decide(changes);
                    world.restart();
                }
                Harm::Deleted(node) => deleted += usize::from(world.objects.remove(&format!("n{node}")).is_some()),
                Harm::NodeDeleted(node) => {
                    let before = world.objects.len();
                    world.delete_node(&format!("n{node}"));
                    deleted += before - world.objects.len();
                }
                Harm::NodeReturns(node) if node < all && !world.observed.nodes.contains_key(&format!("n{node}")) => {
                    world.return_node(&format!("n{node}"));
                }
                Harm::NodeReturns(_) => {}
                Harm::Paused(paused) => world.pause(paused),
                Harm::PausedMeanwhile => {
                    // Without a maintenance that stores it, a roll cannot be paused.
                    let is_stored = world.roll().anchor(&world.record).is_some();
                    world.pause_meanwhile();
                    // The second time, if the first write was refused.
                    for _ in 0..2 {
                        world.decide(usize::MAX);
                    }
                    prop_assert!(!is_stored || !world.drains(), "a paused roll drains no node");
                }
                Harm::AskedMeanwhile => world.meanwhile = Some(World::ask),
                Harm::Conflict(after) => {
                    let refused = world.writes + after;
                    world.conflicts = Box::new(move |write| write == refused);
                }
                Harm::NotReady(node) => {
                    if let Some(view) = world.observed.nodes.get_mut(&format!("n{node}")) {
                        view.ready_since = None;
                    }
                }
                Harm::ActionFails(node) => {
                    let node = format!("n{node}");
                    for (_, state) in world.observed.actions.iter_mut().filter(|((name, _), _)| *name == node) {
                        *state = ActionState::Failed("x".into());
                    }
                }
                Harm::Seconds(seconds) => {
                    for _ in 0..seconds {
                        world.decide(usize::MAX);
                        world.pass_second();
                    }
                }
            }
            prop_assert!(world.most_under_way <= max_unavailable);
        }
        // Harm stops: all nodes return, and somebody resumes the roll as often as it halts.
        for node in (0..all).map(|node| format!("n{node}")) {
            if !world.observed.nodes.contains_key(&node) {
                world.return_node(&node);
            }
        }
        let now = at(world.now);
        for view in world.observed.nodes.values_mut() {
            view.ready_since.get_or_insert(now);
        }
        world.pause(false);
        // Without an object that stores it, the program alone knows of the pause.
        world.record.paused = false;
        world.restart();
        while world.run() != RollState::Done {
            world.restart();
        }
        prop_assert!(world.most_under_way <= max_unavailable);
        prop_assert!(world.objects.is_empty());
        let mut begun = world.begun.clone();
        begun.sort();
        begun.dedup();
        prop_assert_eq!(begun.len(), world.begun.len(), "no node begins twice");
        prop_assert!(begun.len() + deleted >= all);
        prop_assert!(world.record.done.nodes <= begun.len(), "what is not done does not count as done");
    }
}

#[test]
fn a_node_that_was_back_in_service_when_it_was_deleted_is_not_drained_again() {
    let mut world = World::new(&[1], 1);
    while world.step_of("n0") != Some(Step::Recovering) {
        world.decide(usize::MAX);
        world.pass_second();
    }
    world.delete_node("n0");
    world.objects.remove("n0");
    world.decide(usize::MAX);
    world.return_node("n0");
    let now = at(world.now);
    for view in world.observed.nodes.values_mut() {
        view.ready_since.get_or_insert(now);
    }
    world.decide(usize::MAX);
    assert!(world.objects["n0"].spec.suspend);
    assert_eq!(world.run(), RollState::Done);
    assert!(world.objects.is_empty());
    assert_eq!(world.begun, ["n0"]);
}
