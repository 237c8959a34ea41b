//! Times in the objects are by the clocks of other computers.

use super::world::{World, at, settings};
use super::*;

/// How many seconds a node soaks after another program continues the roll, if the record is off by so many seconds.
fn soaked(wrong: i64) -> i64 {
    let mut world = World::with(RollSettings { soak_seconds: 100, ..settings(&[1], 1) });
    world.run_to("n0", Step::Soaking);
    // Nobody runs it for an hour.
    world.now += 3600;
    let since = at(world.now + wrong);
    world.write("n0", |record| record.since = since);
    world.restart();
    let continued = world.now;
    assert_eq!(world.run(), RollState::Done);
    world.now - continued
}

#[test]
fn a_node_soaks_for_the_whole_time_whatever_the_clock_of_an_earlier_program_says() {
    for wrong in [-3600, -50, 0, 3600] {
        // It is released in the second after that.
        assert_eq!(soaked(wrong), 101, "{wrong}");
    }
}

#[test]
fn a_gate_times_out_whatever_the_clock_of_an_earlier_program_says() {
    let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Rejoining);
    let since = at(world.now + 3600);
    world.write("n0", |record| record.since = since);
    world.restart();
    world.decide(usize::MAX);
    world.now += 60;
    world.decide(usize::MAX);
    assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{:?}", world.last);
}

#[test]
fn a_pod_blocks_for_as_long_as_this_program_sees_it_blocked() {
    for wrong in [-3600, 3600] {
        let limit = Some(30);
        let mut world = World::with(RollSettings { halt_on_blocked_seconds: limit, ..settings(&[1], 1) });
        world.run_to("n0", Step::Draining);
        world.now += 60;
        let status = json!({"phase": "Running", "podCounts": {"blocked": 1}, "blockedPods": [{"namespace": "shop",
            "name": "cart-0", "reason": "DisruptionBudget", "message": "no", "since": at(world.now + wrong), "attempts": 1}]});
        world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
        world.decide(usize::MAX);
        world.now += 29;
        assert_eq!(world.decide(usize::MAX), RollState::Working, "{wrong}");
        world.now += 1;
        world.decide(usize::MAX);
        assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{wrong}: {:?}", world.last);
    }
}
