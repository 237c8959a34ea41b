//! Nodes of rolls with which nothing is wrong: their turn has not come, or they are back in service and still checked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::rolls::{STATUS, at_step, at_work, drained, halted, maintenance, names};
use super::surroundings::outage;
use super::*;
use crate::maintenance::ROLL_FINALIZER;

/// The maintenance of a node that is back in service, which its roll keeps.
fn kept_maintenance(state: &Value) -> NodeMaintenance {
    let mut own = at_step("Soaking", maintenance("n1", drained(), Some(state)));
    own.metadata.deletion_timestamp = Some(Time("2026-01-02T03:07:00Z".parse().unwrap()));
    own.metadata.finalizers = Some(vec![ROLL_FINALIZER.to_owned()]);
    own
}

/// What the cause says of a node that is back in service, whose maintenance its roll keeps.
fn kept(state: &Value) -> (Vec<String>, String, Vec<String>, bool) {
    let own = kept_maintenance(state);
    let [cause] = <[Cause; 1]>::try_from(explained(&own, &ClusterFacts::of_maintenances([&own]))).unwrap();
    let (passes, Cause { what, advice, commands, .. }) = (cause.passes(), cause);
    (what, advice, commands, passes)
}

#[test]
fn a_node_that_its_roll_keeps_is_explained_by_what_the_roll_does() {
    let checks = "The node is back in service, and roll par checks that it and its workloads stay healthy.";
    let unchecked = "The node is back in service, and roll par has not checked to the end that it and its workloads stay healthy.";
    let (resume, abort) = ("kubectl nm roll resume par", "kubectl nm roll abort par");
    let wait = "Wait until the roll is done with the node; see how far it is";
    let edited = |run: bool, field: &str, value: Value| {
        let mut state = if run { at_work() } else { json!({"revision": 2}) };
        (state["pause"], state[field]) = (json!({"by": "bob@desk", "at": "2026-01-02T03:06:00Z"}), value);
        state
    };
    let bob = "bob@desk paused roll par at 2026-01-02 03:06:00 UTC.";
    for (state, what, advice, commands, passes) in [
        (at_work(), vec![checks], wait.to_owned(), vec![STATUS], true),
        (
            edited(true, "paused", json!(true)),
            vec![checks, bob],
            format!("{wait}. To continue with other nodes, resume the roll"),
            vec![STATUS, resume],
            true,
        ),
        (
            edited(false, "paused", json!(true)),
            vec![unchecked, bob],
            String::from("To continue, resume the roll"),
            vec![resume],
            true,
        ),
        (
            halted(),
            vec![unchecked],
            String::from("See why the roll halted; then continue it, or abort it"),
            vec![STATUS, resume, abort],
            true,
        ),
        (
            json!({"revision": 2}),
            vec![unchecked, "Nobody runs roll par, so the maintenance stays."],
            String::from("See what the roll was doing; then continue it. Or abort the roll"),
            vec![STATUS, resume, abort],
            false,
        ),
        (
            edited(true, "aborted", json!("bob@desk")),
            vec![checks, "The roll was aborted, and ada@vm finishes the node."],
            wait.to_owned(),
            vec![STATUS],
            true,
        ),
        (
            edited(false, "aborted", json!("bob@desk")),
            vec![unchecked, "The roll was aborted, and nobody finishes the node."],
            String::from("To remove what is left of the roll, abort it again"),
            vec![abort],
            true,
        ),
    ] {
        assert_eq!(kept(&state), (names(&what), advice, names(&commands), passes), "{state}");
    }
}

#[test]
fn a_planned_node_says_what_it_waits_for_while_somebody_runs_its_roll() {
    let planned = json!({"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True",
        "reason": "Planned", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    let turn = || "The maintenance starts when its turn in roll par comes";
    let opens = "The window opens at Sat 03 Jan 22:00 CET.";
    for (state, expected) in [
        (at_work(), vec![format!("{}; ada@vm runs the roll.", turn()), opens.to_owned()]),
        (halted(), vec![format!("{}, but the roll starts no node now.", turn())]),
    ] {
        let own = maintenance("n1", planned.clone(), Some(&state));
        let mut facts = ClusterFacts::of_maintenances([&own]);
        facts.turns.insert("n1".to_owned(), vec![opens.to_owned()]);
        let [cause] = <[Cause; 1]>::try_from(explained(&own, &facts)).unwrap();
        assert_eq!((cause.what.clone(), cause.passes()), (expected, true));
        if state == at_work() {
            check_harmless(&cause);
        }
    }
}

#[test]
fn a_node_that_somebody_drained_before_its_turn_says_until_when_it_stays() {
    let opens = "The window opens at Sat 03 Jan 22:00 CET.";
    let paused = edited(at_work(), "/paused", json!(true));
    for (state, why) in [(at_work(), opens), (paused, "Roll par is paused.")] {
        let own = at_step("Planned", maintenance("n1", drained(), Some(&state)));
        let mut facts = ClusterFacts::of_maintenances([&own]);
        if why == opens {
            facts.turns.insert("n1".to_owned(), vec![opens.to_owned()]);
        }
        let [cause] = <[Cause; 1]>::try_from(explained(&own, &facts)).unwrap();
        let early = "Somebody started the drain before its turn in roll par: the node stays drained until its turn comes.";
        assert_eq!((cause.what.as_slice(), cause.passes()), (names(&[early, why]).as_slice(), true));
        assert_eq!(cause.commands, [STATUS, "kubectl nm stop n1"]);
        let result = crate::maintenance::headline(&own).to_string();
        assert!(result.ends_with("; roll par has not reached the node"), "{result}");
    }
}

#[test]
fn a_node_that_its_roll_checks_names_what_is_not_healthy_yet_and_why() {
    let waits = |step: &str, runner: bool| {
        let mut state = if runner { at_work() } else { halted() };
        let why = "Deployment shop/web has 0 of 2 replicas available";
        state["health"] = json!([{"node": "n1", "step": step, "health": {"waiting": why}}]);
        kept(&state).0
    };
    let checks = "The node is back in service, and roll par checks that it and its workloads stay healthy.";
    let why = format!("{checks} Not healthy yet: Deployment shop/web has 0 of 2 replicas available.");
    assert_eq!(waits("Soaking", true), [why]);
    assert_eq!(waits("Checking", true), [checks], "it has been found in an earlier step");
    assert!(!waits("Soaking", false)[0].contains("Not healthy yet"), "nobody has probed it since");

    let own = kept_maintenance(&at_work());
    let pod = crashing("web-1", "n2", 1, "Error");
    let mut facts = ClusterFacts::of_maintenances([&own]);
    facts.outages = outage(2, json!([]), vec![pod]).outages;
    let causes = explained(&own, &facts);
    let [_, down] = &causes[..] else { panic!("{causes:#?}") };
    assert!(down.what[0].starts_with("shop/deploy/web is down") && down.is_outage, "{causes:#?}");
    assert!(down.what.iter().any(|what| what.contains("keeps exiting with exit code 1")), "{causes:#?}");
}

#[test]
fn the_numbers_of_a_budget_are_those_with_which_the_rest_is_explained() {
    let unfit = beside(pending("Unschedulable", UNFIT));
    let [one_later, over] = [(1, 0), (3, 1)].map(|(healthy, allowed)| {
        let budget =
            edited(min_available(json!(2), (3, 2, healthy)), "/status/disruptionsAllowed", json!(allowed));
        explained(&waiting_for_their_turn(), &Situation { budget, ..unfit.clone() }.facts()).remove(0).what
    });
    assert_eq!(one_later[0], "PDB shop/web needs 2, has 1: 2 pods wait for their turn, 1 ahead.");
    let then = [
        "PDB shop/web needs 2, has 2: 2 pods wait for their turn, 1 ahead.",
        "By now, the budget allows 1 eviction.",
    ];
    assert_eq!(over, then);
}
