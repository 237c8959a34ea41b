//! Writes that are refused because somebody has changed their objects.

use super::world::World;
use crate::decide::{RollChange, RollState};
use crate::settings::RollSettings;

/// A roll of four nodes in two waves, two at once.
fn roll_of_four() -> World {
    World::new(&[1, 3], 2)
}

/// The roll takes each node through its steps once, whatever happened to its writes.
fn is_done(mut world: World, what: &str) -> World {
    assert_eq!(world.run(), RollState::Done, "{what}");
    let nodes = ["n0", "n1", "n2", "n3"];
    for (done, how) in [(&world.begun, "begins"), (&world.acted, "acts")] {
        let mut done = done.clone();
        done.sort();
        assert_eq!(done, nodes, "{what}: each node {how} once");
    }
    assert_eq!((world.record.done.nodes, world.record.done.pods), (4, 12), "{what}");
    assert!(world.objects.is_empty() && world.most_under_way <= 2, "{what}");
    world
}

#[test]
fn each_write_may_find_that_somebody_has_changed_its_object() {
    let writes = is_done(roll_of_four(), "nobody interferes").writes;
    assert!(writes > 30, "{writes}");
    for refused in 1..=writes {
        let mut world = roll_of_four();
        world.conflicts = Box::new(move |write| write == refused);
        is_done(world, &format!("write {refused} is refused"));
    }
    for remainder in [0, 1] {
        let mut world = roll_of_four();
        world.conflicts = Box::new(move |write| write % 2 == remainder);
        is_done(world, "every other write is refused");
    }
}

#[test]
fn another_program_may_write_the_record_at_any_time() {
    for at in 0..40 {
        let mut world = roll_of_four();
        for _ in 0..at {
            world.decide(usize::MAX);
            world.pass_second();
        }
        world.meanwhile = Some(World::ask);
        is_done(world, &format!("somebody asks for a heartbeat at second {at}"));

        let mut world = roll_of_four();
        for _ in 0..at {
            world.decide(usize::MAX);
            world.pass_second();
        }
        if world.objects.is_empty() {
            continue;
        }
        world.pause_meanwhile();
        world.decide(usize::MAX);
        assert!(!world.drains(), "at second {at}");
        world.pause(false);
        is_done(world, &format!("somebody pauses and resumes the roll at second {at}"));
    }
}

#[test]
fn nothing_is_begun_for_a_record_that_could_not_be_written() {
    let mut world = World::with(RollSettings { soak_seconds: 0, ..super::settings(&[1, 1], 1) });
    world.conflicts = Box::new(|write| write > 1);
    // The heartbeat is due in the same decision in which the first node begins.
    world.now += 15;
    world.meanwhile = Some(World::ask);
    world.decide(usize::MAX);
    let changes = &world.last.as_ref().unwrap().changes;
    assert!(matches!(changes.as_slice(), [RollChange::Record(_), RollChange::Begin(..)]), "{changes:?}");
    assert!(world.begun.is_empty(), "{:?}", world.begun);
}

#[test]
fn a_program_that_is_replaced_while_it_writes_begins_nothing_more_and_no_node_begins_twice() {
    for at in 0..40 {
        let mut world = roll_of_four();
        for _ in 0..at {
            world.decide(usize::MAX);
            world.pass_second();
        }
        world.meanwhile = Some(World::take_over);
        world.decide(usize::MAX);
        if world.objects.is_empty() {
            continue;
        }
        let (begun, acted) = (world.begun.clone(), world.acted.clone());
        assert!(
            matches!(world.decide(usize::MAX), RollState::TakenOver(_)),
            "at second {at}: {:?}",
            world.last
        );
        assert_eq!((&world.begun, &world.acted), (&begun, &acted), "at second {at}");
        // The other program continues.
        world.restart();
        assert_eq!(world.run(), RollState::Done, "at second {at}");
        let mut begun = world.begun.clone();
        begun.sort();
        assert_eq!(begun, ["n0", "n1", "n2", "n3"], "at second {at}");
        assert_eq!((world.record.done.nodes, world.most_under_way <= 2), (4, true), "at second {at}");
    }
}
