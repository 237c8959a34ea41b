//! Times in which this program does not see the cluster: the computer sleeps, or the API server does not respond.

use super::world::{World, at, settings};
use super::*;
use crate::observed::NodeView;
use crate::record::Health;

/// The computer sleeps for an hour, and its watches are not live yet when it wakes up.
fn sleep(world: &mut World) {
    world.decide(usize::MAX);
    world.now += 3600;
    world.is_live = false;
    world.decide(usize::MAX);
}

/// The API server does not respond for an hour.
fn lose_cluster(world: &mut World) {
    world.is_live = false;
    for _ in 0..3600 {
        world.decide(usize::MAX);
        world.now += 1;
    }
}

const INTERRUPTIONS: [fn(&mut World); 2] = [sleep, lose_cluster];

fn reboots(world: &mut World) {
    let view = NodeView { ready_since: Some(at(world.now)), boot_id: "boot-1".into(), ..NodeView::default() };
    world.observed.nodes.insert("n0".into(), view);
}

#[test]
fn a_step_does_not_time_out_because_of_the_time_in_which_the_cluster_was_not_seen() {
    for interrupt in INTERRUPTIONS {
        let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
        world.run_to("n0", Step::Rejoining);
        interrupt(&mut world);
        assert_eq!(
            world.last.as_ref().unwrap().state,
            RollState::Waiting("the cluster does not respond".into())
        );
        // The node has been back for a long time.
        world.is_live = true;
        world.decide(usize::MAX);
        world.now += 59;
        world.decide(usize::MAX);
        assert_eq!(world.record.halt, None);
        reboots(&mut world);
        assert_eq!(world.run(), RollState::Done);
    }
}

#[test]
fn a_node_that_does_not_return_afterwards_still_halts_the_roll() {
    for interrupt in INTERRUPTIONS {
        let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
        world.run_to("n0", Step::Rejoining);
        interrupt(&mut world);
        world.is_live = true;
        world.decide(usize::MAX);
        world.now += 60;
        world.decide(usize::MAX);
        assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{:?}", world.last);
    }
}

#[test]
fn a_node_is_checked_anew_after_a_time_in_which_the_cluster_was_not_seen() {
    for interrupt in INTERRUPTIONS {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", Step::Checking);
        world.healthy("n0", Step::Checking);
        interrupt(&mut world);
        world.is_live = true;
        world.decide(usize::MAX);
        assert_eq!(
            (world.step_of("n0"), world.detail("n0")),
            (Some(Step::Checking), "must stay Ready for 5s, with its DaemonSet pods Ready")
        );
        world.healthy("n0", Step::Checking);
        world.now += 4;
        world.decide(usize::MAX);
        assert_eq!(
            (world.step_of("n0"), world.detail("n0")),
            (Some(Step::Checking), "must stay Ready for 5s, with its DaemonSet pods Ready")
        );
        world.now += 1;
        world.healthy("n0", Step::Checking);
        world.decide(usize::MAX);
        assert_eq!(world.step_of("n0"), Some(Step::Returning));
    }
}

#[test]
fn nothing_changes_after_a_sleep_until_the_watches_are_live_again() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Checking);
    world.healthy("n0", Step::Checking);
    world.decide(usize::MAX);
    // The watches do not know yet that their connections are lost.
    world.now += 3600;
    world.decide(usize::MAX);
    assert_eq!(world.step_of("n0"), Some(Step::Checking));
    assert_eq!(world.last.as_ref().unwrap().state, RollState::Waiting("the cluster does not respond".into()));
}

#[test]
fn a_node_soaks_for_the_whole_time_after_a_time_in_which_the_cluster_was_not_seen() {
    for interrupt in INTERRUPTIONS {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", Step::Soaking);
        interrupt(&mut world);
        world.is_live = true;
        world.decide(usize::MAX);
        world.now += 2;
        world.decide(usize::MAX);
        assert!(world.record.released.is_empty());
        world.now += 1;
        world.decide(usize::MAX);
        assert_eq!(world.record.released, ["n0"]);
    }
}

#[test]
fn a_blocked_pod_does_not_halt_the_roll_because_of_the_time_in_which_the_cluster_was_not_seen() {
    for interrupt in INTERRUPTIONS {
        let mut world = World::with(RollSettings { halt_on_blocked_seconds: Some(30), ..settings(&[1], 1) });
        world.run_to("n0", Step::Draining);
        let status = json!({"phase": "Running", "podCounts": {"blocked": 1}, "blockedPods": [{"namespace": "shop",
            "name": "cart-0", "reason": "DisruptionBudget", "message": "no", "since": at(world.now), "attempts": 1}]});
        world.objects.get_mut("n0").unwrap().status = serde_json::from_value(status).unwrap();
        interrupt(&mut world);
        world.is_live = true;
        world.decide(usize::MAX);
        world.now += 29;
        world.decide(usize::MAX);
        assert_eq!(world.record.halt, None);
        world.now += 1;
        world.decide(usize::MAX);
        assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{:?}", world.last);
    }
}

#[test]
fn a_watch_that_is_lost_for_a_moment_does_not_begin_the_time_of_a_node_again() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Checking);
    world.healthy("n0", Step::Checking);
    let waiting = Health::Waiting("the pod of DaemonSet kube-system/cni is not Ready".into());
    for second in 0..61 {
        world.is_live = second % 2 == 0;
        world.check("n0", Step::Checking, waiting.clone());
        world.decide(usize::MAX);
        world.now += 1;
    }
    assert!(matches!(world.decide(usize::MAX), RollState::Halted(_)), "{:?}", world.last);
}

#[test]
fn a_node_that_was_not_ready_in_between_has_to_be_ready_for_the_whole_time() {
    let node = |transition: i64| {
        let node = json!({"metadata": {"name": "n0"}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": at(transition)}]}});
        serde_json::from_value(node).unwrap()
    };
    let first = NodeView::of(&node(0), None, at(10));
    let same = NodeView::of(&node(0), Some(&first), at(20));
    assert_eq!(same.ready_since, Some(at(10)));
    let again = NodeView::of(&node(15), Some(&same), at(20));
    assert_eq!(again.ready_since, Some(at(20)));
}
