//! Stories of waits, told moment by moment.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::maintenance::fixture::{named, requested, running, stopping, with_status};
use crate::terminal::output::captured::{Captured, output};
use crate::watch::goal_tracker::End;

fn noon() -> Timestamp {
    "2026-01-02T12:00:00.4Z".parse().unwrap()
}

fn versioned(version: u32, mut object: NodeMaintenance) -> NodeMaintenance {
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn event(event: Event<NodeMaintenance>) -> Moment {
    Moment::News(News::Event(Box::new(event)))
}

/// A list of these objects, as a watch begins with.
fn list(objects: Vec<NodeMaintenance>) -> Vec<Moment> {
    let mut moments = vec![event(Event::Init)];
    moments.extend(objects.into_iter().map(|object| event(Event::InitApply(object))));
    moments.push(event(Event::InitDone));
    moments
}

fn applied(version: u32, object: NodeMaintenance) -> Moment {
    event(Event::Apply(versioned(version, object)))
}

/// Lives through the moments; the exit code if they led to one.
fn live(mut vigil: Vigil<'_>, moments: Vec<Moment>) -> Result<Option<Exit>, Error> {
    for moment in moments {
        if let ControlFlow::Break(exit) = vigil.react(moment)? {
            return Ok(Some(exit));
        }
    }
    Ok(None)
}

fn wait(goal: Goal, nodes: &[&str], moments: Vec<Moment>) -> (Option<Exit>, Captured) {
    let (mut out, captured) = output();
    let targets = nodes.iter().map(|node| Target::from(&requested(node))).collect();
    let exit = live(Vigil::for_targets(&mut out, goal, targets, ""), moments).unwrap();
    (exit, captured)
}

fn watch(
    goal: Option<Goal>,
    nodes: &[&str],
    moments: Vec<Moment>,
) -> (Result<Option<Exit>, Error>, Captured) {
    let (mut out, captured) = output();
    let nodes = nodes.iter().map(ToString::to_string).collect();
    let exit = live(
        Vigil::of(
            &mut out,
            Voice::Journal(noon),
            Outlook::over(nodes, goal.map_or(End::Never, End::Goal)),
            "",
        ),
        moments,
    );
    (exit, captured)
}

#[test]
fn a_drain_is_over_when_every_node_is_drained() {
    let done = |node| with_status(node, json!({"phase": "Succeeded", "evictionPods": 2}));
    let mut moments = list(vec![requested("n1"), requested("n2"), requested("other")]);
    moments.push(applied(2, done("n1")));
    let (exit, captured) = wait(Goal::Drained, &["n1", "n2"], moments);
    assert_eq!(exit, None);
    assert_eq!(captured.data(), "node/n1 drained\n");

    let mut moments = list(vec![requested("n1"), requested("n2")]);
    moments.extend([applied(2, done("n1")), applied(3, running_n2()), applied(4, done("n2"))]);
    let (exit, captured) = wait(Goal::Drained, &["n1", "n2"], moments);
    assert_eq!(exit, Some(Exit::Done));
    assert_eq!(captured.data(), "node/n1 drained\nnode/n2 drained\n");
    assert_eq!(
        captured.talk(),
        "node/n1: Requested: no reconciler has picked it up yet\n\
         node/n2: Requested: no reconciler has picked it up yet\n\
         node/n1: Drained: 2 pods gone\n\
         node/n2: Blocked 40%: 4 pods remaining (2 evicting, 1 terminating, 1 blocked), 4 gone\n\
         node/n2: blocked shop/cart-0: DisruptionBudget: budget cart has 1\n\
         node/n2: Drained: 2 pods gone\n\
         node/n2: unblocked shop/cart-0\n"
    );
}

fn running_n2() -> NodeMaintenance {
    with_status("n2", running(40, &[("cart-0", "budget cart has 1")]))
}

#[test]
fn a_drained_node_stays_drained_while_others_are_waited_for() {
    let mut moments = list(vec![with_status("n1", json!({"phase": "Succeeded"})), requested("n2")]);
    moments.push(event(Event::Delete(requested("n1"))));
    moments.push(applied(2, with_status("n2", json!({"phase": "Succeeded"}))));
    assert_eq!(wait(Goal::Drained, &["n1", "n2"], moments).0, Some(Exit::Done));
}

#[test]
fn failure_and_loss_end_a_wait_and_the_rest_is_said_to_go_on() {
    for (moment, exit, said) in [
        (
            applied(2, with_status("n1", json!({"phase": "Failed", "lastError": "no such node"}))),
            Exit::Failed,
            "node/n1: the maintenance failed: no such node\n",
        ),
        (
            applied(2, stopping(requested("n1"))),
            Exit::Lost,
            "node/n1: the maintenance was stopped before the node was drained\n",
        ),
        (
            event(Event::Delete(requested("n1"))),
            Exit::Lost,
            "node/n1: the maintenance was stopped before the node was drained\n",
        ),
    ] {
        let mut moments = list(vec![requested("n1"), requested("n2")]);
        moments.push(moment);
        let (ended, captured) = wait(Goal::Drained, &["n1", "n2"], moments);
        assert_eq!(ended, Some(exit));
        let talk = captured.talk();
        assert!(talk.contains(said), "{talk}");
        assert!(
            talk.contains("maintenance goes on: n2\nhint: `kubectl nm watch n2 --until drained`"),
            "{talk}"
        );
    }
    let (ended, captured) = wait(Goal::Drained, &["n1"], list(vec![named("n1", "n1", "later")]));
    assert_eq!(ended, Some(Exit::Lost));
    assert!(captured.talk().contains("another one has begun"), "{}", captured.talk());
}

#[test]
fn stopping_is_over_when_the_objects_are_gone() {
    let mut moments = list(vec![stopping(requested("n1"))]);
    moments.push(event(Event::Delete(stopping(requested("n1")))));
    let (exit, captured) = wait(Goal::Stopped, &["n1"], moments);
    assert_eq!((exit, captured.data().as_str()), (Some(Exit::Done), "node/n1 maintenance stopped\n"));
    let (exit, _) = wait(Goal::Stopped, &["n1"], list(vec![named("n1", "n1", "later")]));
    assert_eq!(exit, Some(Exit::Done));
}

#[test]
fn a_wait_that_hangs_says_on_what() {
    let mut moments = list(vec![stopping(requested("n1"))]);
    moments.push(Moment::Reminder);
    let (exit, captured) = wait(Goal::Stopped, &["n1"], moments);
    assert_eq!(exit, None);
    assert!(captured.talk().contains("held by the finalizer foregroundDeleteNodeMaintenance"));

    let mut foreign = stopping(requested("n1"));
    foreign.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    let mut moments = list(vec![foreign]);
    moments.push(Moment::Reminder);
    let talk = wait(Goal::Stopped, &["n1"], moments).1.talk();
    assert!(talk.contains("node/n1: back in service; finalizers: example.com/audit\n"), "{talk}");
    assert!(!talk.contains("nm-reconciler"), "{talk}");

    let mut moments = list(vec![requested("n1")]);
    moments.push(Moment::Reminder);
    assert!(wait(Goal::Drained, &["n1"], moments).1.talk().contains("is nm-reconciler running"));

    let mut moments = list(vec![with_status("n1", running(40, &[]))]);
    moments.push(Moment::Reminder);
    assert_eq!(wait(Goal::Drained, &["n1"], moments).1.talk().lines().count(), 1);
}

#[test]
fn giving_up_says_how_things_stand_and_how_to_go_on() {
    for (moment, exit, first) in [
        (Moment::TimedOut(Duration::from_secs(90)), Exit::TimedOut, "timed out after 1m30s"),
        (Moment::Interrupted, Exit::Interrupted, "interrupted"),
    ] {
        let mut moments = list(vec![requested("n1")]);
        moments.push(moment);
        let (ended, captured) = wait(Goal::Drained, &["n1"], moments);
        assert_eq!(ended, Some(exit));
        let talk: Vec<String> = captured.talk().lines().skip(1).map(str::to_owned).collect();
        assert_eq!(
            talk,
            [
                first,
                "node/n1: Requested: no reconciler has picked it up yet",
                "maintenance goes on: n1",
                "hint: `kubectl nm watch n1 --until drained` waits again, `kubectl nm stop n1` gives up",
            ]
        );
    }
}

#[test]
fn a_journal_has_the_time_and_goes_to_stdout() {
    let mut moments = list(vec![requested("n2"), requested("n1")]);
    moments.extend([event(Event::Delete(requested("n2"))), Moment::Interrupted]);
    let (exit, captured) = watch(None, &[], moments);
    assert_eq!(exit.unwrap(), Some(Exit::Interrupted));
    assert_eq!(
        captured.data(),
        "2026-01-02T12:00:00Z n1 Requested: no reconciler has picked it up yet\n\
         2026-01-02T12:00:00Z n2 Requested: no reconciler has picked it up yet\n\
         2026-01-02T12:00:00Z n2 Stopped: the maintenance was deleted\n"
    );
    assert_eq!(captured.talk(), "");
    let (exit, captured) = watch(None, &[], vec![Moment::TimedOut(Duration::from_secs(90))]);
    assert_eq!(exit.unwrap(), Some(Exit::TimedOut));
    assert_eq!(captured.talk(), "timed out after 1m30s\n", "also where nothing is waited for");
}

#[test]
fn a_lost_connection_is_told_and_what_happened_meanwhile_too() {
    let lost = Error::Refused { server: "https://c".into() };
    let mut moments = list(vec![requested("n1"), requested("n2")]);
    moments.push(Moment::News(News::Lost(lost)));
    moments.push(Moment::Reminder);
    moments.extend(list(vec![requested("n2")]));
    moments.push(Moment::News(News::Restored));
    let (_, captured) = watch(Some(Goal::Stopped), &[], moments);
    assert!(captured.data().ends_with("n1 Stopped: the maintenance was deleted\n"));
    assert_eq!(captured.talk().lines().count(), 2);
    assert!(captured.talk().ends_with("connected again\n"));
}

#[test]
fn a_watch_for_nothing_ends_as_its_goal_says() {
    let (exit, _) = watch(Some(Goal::Drained), &["n1"], list(vec![requested("n2")]));
    assert!(matches!(exit, Err(Error::NotInMaintenance(nodes)) if nodes == ["n1"]));
    let (exit, captured) = watch(Some(Goal::Stopped), &["n1"], list(vec![]));
    assert_eq!(
        (exit.unwrap(), captured.talk().as_str()),
        (Some(Exit::Done), "node/n1 is not in maintenance\n")
    );
    let (exit, captured) = watch(Some(Goal::Drained), &[], list(vec![]));
    assert_eq!((exit.unwrap(), captured.talk().as_str()), (Some(Exit::Done), "No maintenances found.\n"));
    let (exit, _) = watch(None, &["n1"], list(vec![]));
    assert_eq!(exit.unwrap(), None);
}

#[test]
fn who_waits_for_a_stop_that_nobody_asked_for_is_told_so() {
    let mut moments = list(vec![requested("n1"), stopping(requested("n2"))]);
    moments.push(Moment::Interrupted);
    let (exit, captured) = watch(Some(Goal::Stopped), &[], moments);
    assert_eq!(exit.unwrap(), Some(Exit::Interrupted));
    let talk: Vec<String> = captured.talk().lines().map(str::to_owned).collect();
    assert_eq!(
        talk[3..],
        [
            "nobody has stopped the maintenance of: n1",
            "hint: `kubectl nm stop n1` does, `kubectl nm watch n1 --until stopped` waits again",
            "nodes are given back all the same: n2",
            "hint: `kubectl nm watch n2 --until stopped` waits again",
        ]
    );
    let (_, captured) = watch(Some(Goal::Stopped), &["n1"], vec![Moment::Interrupted]);
    assert!(!captured.talk().contains("given back"), "nobody knows: {}", captured.talk());
}

#[test]
fn a_journal_has_the_time_of_a_lost_connection_and_of_a_new_one() {
    let lost = Error::Refused { server: "https://c".into() };
    let mut moments = list(vec![requested("n1")]);
    moments.extend([Moment::News(News::Lost(lost)), Moment::News(News::Restored)]);
    let (_, captured) = watch(None, &[], moments);
    let talk: Vec<String> = captured.talk().lines().map(str::to_owned).collect();
    assert!(talk[0].starts_with("2026-01-02T12:00:00Z connection lost: "), "{talk:?}");
    assert_eq!(talk[1], "2026-01-02T12:00:00Z connected again");
}

#[test]
fn a_node_that_is_given_back_is_not_told_what_held_its_drain() {
    let was = || stopping(with_status("n1", running(40, &[("cart-0", "budget cart has 1")])));
    let mut moments = list(vec![was()]);
    moments.push(event(Event::Delete(was())));
    let (exit, captured) = wait(Goal::Stopped, &["n1"], moments);
    assert_eq!(exit, Some(Exit::Done));
    assert_eq!(captured.data(), "node/n1 maintenance stopped\n");
    assert_eq!(captured.talk(), "node/n1: Stopped: the node is back in service\n");
}
