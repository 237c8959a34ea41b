//! Which health checks count: those that began late enough.

use jiff::Timestamp;

use super::world::{World, at};
use crate::observed::HealthCheck;
use crate::record::{Health, Step};

impl World {
    pub(super) fn healthy(&mut self, node: &str, step: Step) {
        self.check(node, step, Health::Healthy);
    }

    /// A check that begins now has this result.
    pub(super) fn check(&mut self, node: &str, step: Step, health: Health) {
        let began = at(self.now);
        self.observed.health.insert((node.to_owned(), step), HealthCheck { health, began });
    }

    /// A check that began at this time has found a node healthy in this step.
    fn found_healthy(&mut self, step: Step, began: Timestamp) {
        self.observed.note_health("n0".into(), step, Health::Healthy, began);
        self.decide(usize::MAX);
    }
}

#[test]
fn the_last_check_before_a_node_returns_began_when_its_time_was_almost_over() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Checking);
    world.decide(usize::MAX);
    // Another read of its round is slow, so no round has begun since.
    world.found_healthy(Step::Checking, at(world.now));
    world.now += 6;
    world.decide(usize::MAX);
    assert_eq!(
        (world.step_of("n0"), world.detail("n0")),
        (Some(Step::Checking), "must stay Ready for 5s, with its DaemonSet pods Ready")
    );
    world.found_healthy(Step::Checking, at(world.now - 4));
    assert_eq!(world.step_of("n0"), Some(Step::Checking));
    // It began two seconds before the node was Ready for 5 s. How long it took does not matter.
    let began = at(world.now - 3);
    world.now += 30;
    world.found_healthy(Step::Checking, began);
    assert_eq!(world.step_of("n0"), Some(Step::Returning));
}

#[test]
fn a_check_that_began_before_the_node_was_in_its_step_or_ready_does_not_count() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Recovering);
    world.decide(usize::MAX);
    world.found_healthy(Step::Recovering, at(world.now - 1));
    assert_eq!(
        (world.step_of("n0"), world.detail("n0")),
        (Some(Step::Recovering), "checking the workloads affected by its drain")
    );
    world.now += 1;
    world.observed.nodes.get_mut("n0").unwrap().ready_since = Some(at(world.now));
    world.found_healthy(Step::Recovering, at(world.now - 1));
    assert_eq!(world.step_of("n0"), Some(Step::Recovering));
    world.found_healthy(Step::Recovering, at(world.now));
    assert_eq!(world.step_of("n0"), Some(Step::Soaking));
}
