//! What a program shows of a roll that another program runs.

use super::*;
use crate::observed::NodeView;
use crate::record::ProbedHealth;
use crate::view::RollView;

/// What a viewer shows now; without permission to list nodes, or with it.
fn shown(world: &World, lists_nodes: bool) -> Vec<NodeProgress> {
    let roll = world.roll();
    let record = roll.complete_record().unwrap();
    let nodes = lists_nodes.then(|| world.observed.nodes.clone());
    decide(&roll, &record, &Observed::shown_at(at(world.now), &roll, nodes)).progress
}

/// The program of the roll writes a heartbeat.
fn beat(world: &mut World) {
    world.ask();
    world.decide(usize::MAX);
}

#[test]
fn the_node_of_the_pod_that_runs_the_roll_begins_last_in_its_wave_and_shows_that() {
    let mut world = World::new(&[3, 1], 1);
    world.record.runner.as_mut().unwrap().node = Some("n0".into());
    world.decide(usize::MAX);
    assert_eq!(world.detail("n0"), "last in its wave: the pod that runs the roll is on it");
    assert_eq!(world.detail("n3"), "");
    assert_eq!(world.run(), RollState::Done);
    assert_eq!(world.begun, ["n1", "n2", "n0", "n3"]);
}

#[test]
fn a_viewer_names_the_same_cause_as_the_program_that_runs_the_roll() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Checking);
    let why = "the pod of DaemonSet kube-system/cni is not Ready";
    world.check("n0", Step::Checking, Health::Waiting(why.into()));
    beat(&mut world);
    assert_eq!(shown(&world, true), world.last.as_ref().unwrap().progress);
    assert_eq!(shown(&world, false)[0].detail, why);
    world.healthy("n0", Step::Checking);
    world.now += 1;
    beat(&mut world);
    let progress = &world.last.as_ref().unwrap().progress;
    assert!(progress[0].ready_time.is_some(), "{progress:?}");
    assert_eq!(shown(&world, true), *progress);
    // In the next step, something else is probed.
    world.run_to("n0", Step::Recovering);
    world.decide(usize::MAX);
    assert_eq!(shown(&world, true), world.last.as_ref().unwrap().progress);
    assert_eq!(world.detail("n0"), "checking the workloads affected by its drain");
}

#[test]
fn what_no_program_checks_any_more_is_shown_with_the_time_of_the_last_check() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Recovering);
    world.check(
        "n0",
        Step::Recovering,
        Health::Waiting("Deployment h/rec has 0 of 1 replicas available".into()),
    );
    beat(&mut world);
    let detail = |world: &World| shown(world, true)[0].detail.clone();
    let why = "Deployment h/rec has 0 of 1 replicas available";
    assert_eq!(detail(&world), why);
    let checked = world.record.runner.as_ref().unwrap().at;
    let dated = |at: Timestamp| format!("at {}: {why}", at.strftime("%Y-%m-%d %H:%M:%S UTC"));
    world.now += 60;
    assert_eq!(detail(&world), dated(checked), "nobody runs it");
    world.now += 60;
    let (cause, at) = (Some(HaltCause::Unhealthy), at(world.now - 90));
    let halt = Halt { node: "n0".into(), message: "m".into(), at, cause };
    let halted = RollRecord { halt: Some(halt), ..world.record.next() };
    world.store("n0", &halted);
    assert_eq!(detail(&world), dated(at));
    // The Job in the cluster keeps nothing of the checks before.
    world.store("n0", &RollRecord { health: Vec::new(), ..halted.next() });
    assert_eq!(detail(&world), "the workloads affected by its drain have not been checked to the end");
}

#[test]
fn who_shows_a_halted_roll_sees_whether_what_halted_it_is_over() {
    for (step, over) in [(Step::Checking, ByNow::Healthy), (Step::Recovering, ByNow::Recovered)] {
        let mut world = World::new(&[1], 1);
        world.run_to("n0", step);
        world.check("n0", step, Health::Waiting("before".into()));
        let halt =
            Halt { node: "n0".into(), message: "m".into(), at: at(0), cause: Some(HaltCause::Unhealthy) };
        world.store("n0", &RollRecord { halt: Some(halt), ..world.record.next() });
        let roll = world.roll();
        let seen = |health: Health, lists_nodes: bool| {
            let nodes = lists_nodes.then(|| world.observed.nodes.clone());
            let probed = ProbedHealth { node: "n0".into(), step, health };
            let observed = Observed::shown_at(at(world.now), &roll, nodes).with_health([probed]);
            let progress = decide(&roll, &roll.complete_record().unwrap(), &observed).progress;
            (progress[0].by_now, progress[0].detail.clone())
        };
        let why = String::from("Deployment h/rec has 0 of 1 replicas available");
        assert_eq!(seen(Health::Waiting(why.clone()), true), (None, why));
        assert_eq!(seen(Health::Healthy, true).0, Some(over));
        assert_eq!(seen(Health::Healthy, false).0, None, "nothing is known of the node");
    }
}

#[test]
fn what_a_heartbeat_records_for_viewers_causes_no_write_of_its_own() {
    let mut world = World::new(&[1], 1);
    world.run_to("n0", Step::Checking);
    world.healthy("n0", Step::Checking);
    beat(&mut world);
    for why in ["a", "b", "c"] {
        world.check("n0", Step::Checking, Health::Waiting(why.into()));
        let writes = world.writes;
        world.decide(usize::MAX);
        assert_eq!(world.writes, writes);
    }
}

#[test]
fn without_permission_to_list_nodes_nothing_seems_to_be_missing_on_them() {
    for step in [Step::Rejoining, Step::Checking, Step::Recovering] {
        let mut world = World::with(RollSettings { expect_reboot: true, ..settings(&[1], 1) });
        world.run_to("n0", Step::Acting);
        world.write("n0", |record| record.step = step);
        let unready = NodeView { ready_since: None, ..world.observed.nodes["n0"].clone() };
        world.observed.nodes.insert("n0".into(), unready);
        let (known, unknown) = (&shown(&world, true)[0].detail, &shown(&world, false)[0].detail);
        assert!(known.starts_with("it ") && known.ends_with("is not Ready"), "{step:?}: {known}");
        assert!(!unknown.starts_with("it "), "{step:?}: {unknown}");
    }
}

#[test]
fn a_node_is_shown_to_wait_for_a_confirmation_only_while_a_program_asks_for_it() {
    let mut world = World::with(RollSettings { confirm: true, ..settings(&[1], 1) });
    world.run_to("n0", Step::Confirming);
    beat(&mut world);
    assert_eq!(shown(&world, true)[0].detail, "waits for a confirmation");
    let asks_again = "is not confirmed: the roll asks again when it is resumed";
    let halt = Halt { node: "n0".into(), message: "no".into(), at: at(0), cause: None };
    for (halt, runner) in
        [(Some(halt.clone()), None), (Some(halt), world.record.runner.clone()), (None, None)]
    {
        let is_run = runner.is_some();
        let record = RollRecord { runner, halt, ..world.record.next() };
        world.store("n0", &record);
        assert_eq!(shown(&world, true)[0].detail, asks_again, "run: {is_run}");
    }
}

/// How many pods are gone, as a viewer shows it after a decision.
fn pods_gone(world: &World) -> i64 {
    let roll = &world.roll();
    let (record, progress) = (&roll.complete_record().unwrap(), &shown(world, true));
    let (state, aborted, now) = (&RollState::Working, None, at(world.now));
    RollView { roll, record, progress, state, aborted, is_current: true, now }.moved_pods()
}

#[test]
fn the_number_of_pods_that_are_gone_does_not_fall_when_nodes_leave_the_roll_or_do_not_exist() {
    let mut world = World::new(&[3], 2);
    world.run_to("n0", Step::Checking);
    world.run_to("n1", Step::Checking);
    world.stop("n0");
    world.delete_node("n1");
    let (mut shown, mut most) = (Vec::new(), 6);
    for second in 0..200 {
        world.decide(usize::MAX);
        if world.objects.is_empty() {
            // What is recorded of the last node is final.
            let (record, state) = (world.record.clone(), world.decide(usize::MAX));
            assert_eq!((state, &world.record), (RollState::Done, &record));
            break;
        }
        shown.push(pods_gone(&world));
        world.pass_second();
        if second == 5 {
            world.return_node("n1");
        }
    }
    for pods in &shown {
        // Three nodes have three pods each.
        assert!((most..=9).contains(pods), "{shown:?}");
        most = *pods;
    }
    let left = world.record.gone.total(std::iter::empty());
    assert_eq!((world.record.done.pods, left), (6, 3), "n0 has left the roll, and the others are done");
}
