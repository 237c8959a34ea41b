//! Rolls that somebody aborts.

use super::world::World;
use super::*;
use crate::record::RollRecord;

/// Somebody aborts the roll: writes that to its record, and has not deleted anything yet.
pub(super) fn abort(world: &mut World) {
    let roll = world.roll();
    let aborted = Some(String::from("somebody"));
    let record = RollRecord { paused: true, aborted, ..world.record.next() };
    let anchor = roll.anchor(&record).unwrap().node().to_owned();
    world.store(&anchor, &record);
}

#[test]
fn no_action_begins_once_the_roll_is_aborted() {
    // The drain of n0 ends, or it is drained and its command has not begun.
    for step in [Step::Draining, Step::Acting] {
        let mut world = World::new(&[3], 1);
        world.run_to("n0", step);
        assert!(world.acted.is_empty());
        world.drained("n0");
        abort(&mut world);
        for _ in 0..3 {
            world.decide(usize::MAX);
        }
        assert!(world.acted.is_empty());
        assert_eq!(world.detail("n0"), "the roll was aborted");
        // Whoever aborted it could not delete anything, and somebody resumes it.
        let roll = world.roll();
        let record = RollRecord { paused: false, aborted: None, ..world.record.next() };
        let anchor = roll.anchor(&record).unwrap().node().to_owned();
        world.store(&anchor, &record);
        assert_eq!(world.run(), RollState::Done);
        assert_eq!(world.acted.len(), 3);
    }
}

#[test]
fn an_action_that_has_begun_is_finished_once_the_roll_is_aborted() {
    let mut world = World::new(&[3], 1);
    world.run_to("n0", Step::Acting);
    world.decide(usize::MAX);
    assert_eq!(world.acted, ["n0"]);
    abort(&mut world);
    world.decide(usize::MAX);
    world.objects.retain(|node, _| node == "n0");
    assert_eq!(world.run(), RollState::Aborted("somebody".into()));
    assert_eq!((world.acted.len(), world.record.done.nodes), (1, 1));
}
