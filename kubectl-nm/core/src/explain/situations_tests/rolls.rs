//! Nodes in maintenance that are part of rolls: a roll returns its nodes by itself, and no stop takes one out of it.

use serde_json::{Value, json};

use super::*;
use crate::explain::cause::CommonGround;
use crate::explain::cause_wording::Words;
use crate::maintenance::roll::{NODE, STATE};
use crate::maintenance::roll_job::UnstartedJob;
use crate::maintenance::{ROLL_LABEL, State};

pub(super) const STATUS: &str = "kubectl nm roll status par";
/// A roll that somebody runs can only be resumed once it is paused.
const PAUSE_AND_SKIP_N1: &str = "kubectl nm roll pause par && kubectl nm roll resume par --skip n1";

/// A drained or blocked maintenance; of roll `par` if it has a record.
pub(super) fn maintenance(node: &str, status: Value, record: Option<&Value>) -> NodeMaintenance {
    let mut object = with_status(node, status);
    if let Some(record) = record {
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "par".to_owned())].into());
        object.metadata.annotations = Some([(STATE.to_owned(), record.to_string())].into());
    }
    object
}

pub(super) fn at_work() -> Value {
    json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": "2026-01-02T03:07:20Z"}})
}

pub(super) fn halted() -> Value {
    json!({"revision": 2, "halt": {"node": "n2", "message": "m", "at": "2026-01-02T03:05:00Z"}})
}

pub(super) fn drained() -> Value {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:00Z"})
    };
    json!({"phase": "Succeeded", "conditions": [condition("Cordoned"), condition("Drained")]})
}

fn blocked() -> Value {
    let mut status = blocked_status("shop");
    status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:00Z"}]);
    status
}

/// The only cause of `n1`, beside other maintenances. The replacement suits all nodes.
fn cause(own: Option<&Value>, others: &[(&str, Value, Option<&Value>)]) -> Cause {
    let others = others.iter().map(|(node, status, record)| maintenance(node, status.clone(), *record));
    no_node_left(&maintenance("n1", blocked(), own), others.collect(), json!({}))
}

/// The same for a replacement with this `nodeSelector`, which may select nodes by their label `host`.
fn no_node_left(own: &NodeMaintenance, mut all: Vec<NodeMaintenance>, selector: Value) -> Cause {
    all.push(own.clone());
    let known = ClusterFacts::of_maintenances(&all);
    let of_host = |name: &String| edited(cordoned(name), "/metadata/labels", json!({"host": name}));
    let nodes = known.in_maintenance.iter().map(of_host).collect();
    let third = edited(pending("Unschedulable", UNFIT), "/spec/nodeSelector", selector);
    let situation = Situation { nodes, ..beside(third) };
    let facts = ClusterFacts { budgets: situation.facts().budgets, nodes: situation.facts().nodes, ..known };
    let mut causes = explained(own, &facts);
    causes.retain(|cause| cause.what.iter().any(|what| what.contains("No node is left")));
    let [cause] = <[Cause; 1]>::try_from(causes).unwrap();
    cause
}

fn unstarted() -> UnstartedJob {
    let job = PodReference { namespace: "ops".into(), name: "par-0".into() };
    UnstartedJob { job, words: String::from("pod par-0-x: ErrImagePull: no such image") }
}

const DOES_NOT_START: &str =
    "The Job that roll par runs for the node does not start: pod par-0-x: ErrImagePull: no such image.";

#[test]
fn a_job_of_a_roll_that_does_not_start_is_a_cause_with_what_its_pod_shows() {
    let object = maintenance("n1", drained(), Some(&at_work()));
    let mut facts = ClusterFacts::of_maintenances(std::slice::from_ref(&object));
    assert_eq!(explained(&object, &facts).len(), 0, "the action of the roll is under way");
    facts.job_problems.insert(String::from("n1"), unstarted());
    let found = explained(&object, &facts);
    assert_eq!(found[0].what, [DOES_NOT_START]);
    assert_eq!(found[0].commands, [STATUS, "kubectl nm roll abort par --return"]);
    assert!(found[0].advice.contains("which also ends what runs for its other nodes"), "{}", found[0].advice);
    assert_eq!(found[0].common, Some(CommonGround::RollJobs("par".into())));
    // A roll that was aborted already is not aborted once more.
    let aborted = edited(at_work(), "/aborted", json!("bob@vm"));
    let object = maintenance("n1", drained(), Some(&aborted));
    let job_problems = facts.job_problems;
    let facts = ClusterFacts { job_problems, ..ClusterFacts::of_maintenances(std::slice::from_ref(&object)) };
    let causes = explained(&object, &facts);
    let found = causes.iter().find(|cause| cause.what == [DOES_NOT_START]).unwrap();
    assert_eq!(found.commands, [STATUS, "kubectl nm stop n1"]);
    assert!(!found.advice.contains("abort the roll"), "{}", found.advice);
    // Nobody runs the roll any more, so that nobody deletes the Job when the node returns to service.
    let silent = edited(aborted, "/runner/at", json!("2026-01-02T00:00:00Z"));
    let object = maintenance("n1", drained(), Some(&silent));
    let job_problems = facts.job_problems;
    let facts = ClusterFacts { job_problems, ..ClusterFacts::of_maintenances(std::slice::from_ref(&object)) };
    let causes = explained(&object, &facts);
    let found = causes.iter().find(|cause| cause.what == [DOES_NOT_START]).unwrap();
    assert_eq!(found.commands, [STATUS, "kubectl -n ops delete job par-0", "kubectl nm stop n1"]);
}

#[test]
fn every_cause_of_an_aborted_roll_has_the_same_way_out() {
    let aborted = edited(at_work(), "/aborted", json!("bob@vm"));
    let object = maintenance("n1", json!({"phase": "Running"}), Some(&aborted));
    let facts = ClusterFacts::of_maintenances(std::slice::from_ref(&object));
    let causes = explained(&object, &facts);
    let of_roll = causes.iter().find(|cause| cause.what[0].starts_with("Roll par was aborted")).unwrap();
    assert_eq!(of_roll.commands, ["kubectl nm stop n1"], "{of_roll:#?}");
    assert!(!of_roll.advice.contains("abort the roll"), "{of_roll:#?}");
}

#[test]
fn a_job_that_does_not_start_is_a_cause_while_its_roll_is_paused_too() {
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:00Z"})
    };
    let conditions = [condition("Cordoned", "Cordoned"), condition("Suspended", "Paused")];
    let paused = edited(at_work(), "/paused", json!(true));
    let status = json!({"phase": "Running", "conditions": conditions});
    let mut object = maintenance("n1", status, Some(&paused));
    object.spec.suspend = true;
    assert_eq!(State::of(&object), State::Paused);
    let mut facts = ClusterFacts::of_maintenances(std::slice::from_ref(&object));
    facts.job_problems.insert(String::from("n1"), unstarted());
    let found = explained(&object, &facts);
    assert!(found.iter().any(|cause| cause.what == [DOES_NOT_START]), "{found:#?}");
}

#[test]
fn of_nodes_that_could_return_those_without_a_reason_come_first() {
    let own = maintenance("n1", blocked(), None);
    let mut of_ada = maintenance("n2", drained(), None);
    of_ada.spec.reason = Some(String::from("ada: dimm"));
    let others = vec![of_ada, maintenance("n3", drained(), None)];
    let found = no_node_left(&own, others, json!({}));
    let stop = |node: &str| format!("kubectl nm stop {node}");
    assert_eq!(found.commands, ["n3", "n2", "n1"].map(stop), "{found:#?}");
}

#[test]
fn in_a_roll_a_surge_is_set_for_all_nodes_that_are_still_to_be_drained() {
    let surged = |others: &[(&str, Value)]| {
        let own = maintenance("n1", blocked(), Some(&at_work()));
        let others = others.iter().map(|(node, status)| maintenance(node, status.clone(), Some(&at_work())));
        let known = ClusterFacts::of_maintenances(&others.chain([own.clone()]).collect::<Vec<_>>());
        let facts = never("maxUnavailable", json!(0), 1).facts();
        let causes = explained(&own, &ClusterFacts { budgets: facts.budgets, nodes: facts.nodes, ..known });
        let [cause] = <[Cause; 1]>::try_from(causes).unwrap();
        cause
    };
    let patch = r#"--type=merge -p '{"spec":{"drain":{"surge":"WhenBlocked"}}}'"#;
    let planned = surged(&[("n2", json!({"phase": "Pending"}))]);
    let all = format!("kubectl get nm -l kubectl-nm.dev/roll=par -o name | xargs kubectl patch {patch}");
    assert_eq!(planned.commands, [all], "{planned:#?}");
    assert!(planned.advice.ends_with(
        ". A pod may move to a node that roll par drains later: this sets it for all nodes of the roll"
    ));
    let last = surged(&[("n2", drained())]);
    assert_eq!(last.commands, [format!("kubectl patch nm n1 {patch}")], "{last:#?}");
}

#[test]
fn a_node_that_its_roll_returns_is_waited_for_and_never_stopped() {
    for own in [None, Some(&at_work())] {
        let cause = cause(own, &[("n2", drained(), Some(&at_work()))]);
        let wait = "Wait until roll par is done with n2 and returns it to service; or add a node";
        let (advice, commands) = match own {
            Some(_) => (wait.to_owned(), vec![STATUS]),
            None => (format!("{wait}, or return n1 to service"), vec![STATUS, "kubectl nm stop n1"]),
        };
        assert_eq!(
            (cause.advice, cause.commands),
            (advice, commands.into_iter().map(String::from).collect())
        );
    }
}

#[test]
fn of_nodes_beside_those_of_a_roll_one_can_be_returned() {
    let others = [("n2", drained(), Some(&at_work())), ("n3", drained(), None)];
    let found = cause(Some(&at_work()), &others);
    assert!(
        found
            .advice
            .ends_with("; or add a node, or return n3 to service, unless its machine is being worked on"),
        "{found:#?}"
    );
    assert_eq!(found.commands, [STATUS, "kubectl nm stop n3"]);
}

#[test]
fn a_roll_that_returns_no_node_by_itself_is_continued_without_the_node() {
    let mut paused = at_work();
    paused["paused"] = json!(true);
    for (own, others, without, skips) in [
        (at_work(), vec![], "n1", &[PAUSE_AND_SKIP_N1][..]),
        (paused, vec![], "n1", &["kubectl nm roll resume par --skip n1"]),
        (
            at_work(),
            vec![("n2", blocked(), Some(&at_work()))],
            "one of n2, n1",
            &["kubectl nm roll pause par && kubectl nm roll resume par --skip n2", PAUSE_AND_SKIP_N1],
        ),
        (
            halted(),
            vec![("n2", drained(), Some(&halted()))],
            "one of n2, n1",
            &["kubectl nm roll resume par --skip n2", "kubectl nm roll resume par --skip n1"],
        ),
    ] {
        let found = cause(Some(&own), &others);
        let paused = if own["paused"] == true { ", which is paused," } else { "" };
        assert_eq!(
            found.advice,
            format!("Add a node, or continue roll par{paused} without {without}"),
            "{found:#?}"
        );
        assert_eq!(found.commands, [&[STATUS], skips].concat());
    }
}

#[test]
fn the_hook_of_a_roll_that_is_at_work_is_left_to_the_roll() {
    let held = |owner: &str, record: &Value| {
        let mut status = blocked();
        status["blockedPods"] = json!([]);
        status["podCounts"] = json!({});
        status["hold"] =
            json!({"since": "2026-01-02T03:07:00Z", "hooks": [{"name": "roll", "owner": owner}]});
        let own = maintenance("n1", status, Some(record));
        let causes = explained(&own, &ClusterFacts::of_maintenances([&own]));
        causes.into_iter().flat_map(|cause| cause.commands).collect::<Vec<_>>()
    };
    let remove = "kubectl annotate nm n1 pre-drain.hook.kubectl-nm.dev/roll-";
    assert_eq!(held("roll/par", &at_work()), [STATUS], "its action is under way");
    let of_halted = held("roll/par", &halted());
    assert!(of_halted.contains(&STATUS.to_owned()), "{of_halted:?}");
    assert!(!of_halted.contains(&remove.to_owned()), "its action has failed: {of_halted:?}");
    assert!(held("storage team", &at_work()).contains(&remove.to_owned()));
    let mut aborted = halted();
    (aborted["aborted"], aborted["paused"]) = (json!("bob@desk"), json!(true));
    let of_aborted = held("roll/par", &aborted);
    assert!(of_aborted.contains(&"kubectl nm stop n1".to_owned()), "{of_aborted:?}");
    assert!(!of_aborted.contains(&remove.to_owned()), "its action has failed: {of_aborted:?}");
}

#[test]
fn a_node_whose_surge_may_wait_for_another_node_does_not_return_by_itself() {
    for (since, returns) in [("2026-01-02T03:07:00Z", true), ("2026-01-02T03:06:00Z", false)] {
        let mut status = drained();
        (status["phase"], status["conditions"]) = (json!("Running"), blocked()["conditions"].clone());
        status["surgingPods"] = json!([{"namespace": "pay", "name": "api-1", "deployment": "api", "restarted": true,
            "since": since}]);
        let found = cause(None, &[("n2", status, Some(&at_work()))]);
        assert_eq!(found.advice.contains("Wait until roll par is done with n2"), returns, "{found:#?}");
    }
}

#[test]
fn the_node_that_is_skipped_is_the_one_that_the_pod_fits() {
    for own in [None, Some(&halted())] {
        let own = maintenance("n1", blocked(), own);
        let other = maintenance("n2", drained(), Some(&halted()));
        let found = no_node_left(&own, vec![other], json!({"host": "n2"}));
        assert!(found.advice.ends_with(", or continue roll par without n2"), "{found:#?}");
        assert_eq!(found.commands[1..], [STATUS, "kubectl nm roll resume par --skip n2"], "{found:#?}");
    }
}

#[test]
fn a_node_for_which_somebody_has_to_act_does_not_return_by_itself() {
    let failed = json!({"attempt": 1, "state": {"failed": "the command ended with exit code 1"}});
    for (step, action, returns) in [
        ("Checking", json!(null), true),
        ("Acting", json!({"attempt": 1, "state": "running"}), true),
        ("Confirming", json!(null), false),
        ("Acting", failed, false),
    ] {
        let mut other = maintenance("n2", drained(), Some(&at_work()));
        let record = json!({"step": step, "action": action}).to_string();
        other.metadata.annotations.get_or_insert_default().insert(NODE.to_owned(), record);
        let found = no_node_left(&maintenance("n1", blocked(), None), vec![other], json!({}));
        assert_eq!(
            found.advice.contains("Wait until roll par is done with n2"),
            returns,
            "{step}: {found:#?}"
        );
    }
}

/// The maintenance whose roll has come to this step with its node.
pub(super) fn at_step(step: &str, mut maintenance: NodeMaintenance) -> NodeMaintenance {
    let record = json!({"step": step}).to_string();
    maintenance.metadata.annotations.get_or_insert_default().insert(NODE.to_owned(), record);
    maintenance
}

#[test]
fn a_node_for_which_somebody_has_to_confirm_is_confirmed_and_not_skipped() {
    let mut paused = at_work();
    paused["paused"] = json!(true);
    let confirm = "Confirm n2 on the terminal where ada@vm runs roll par, which then returns it to service";
    for (state, advice, commands) in [
        (at_work(), format!("{confirm}; or add a node"), vec![STATUS]),
        (
            paused,
            String::from("Add a node, or continue roll par, which is paused, without one of n2, n1"),
            vec![STATUS, "kubectl nm roll resume par --skip n2", "kubectl nm roll resume par --skip n1"],
        ),
    ] {
        let other = at_step("Confirming", maintenance("n2", drained(), Some(&state)));
        let found = no_node_left(&maintenance("n1", blocked(), Some(&state)), vec![other], json!({}));
        assert_eq!((found.advice.as_str(), found.commands), (advice.as_str(), names(&commands)));
    }
    let own = at_step("Confirming", maintenance("n1", drained(), Some(&at_work())));
    let [cause] = <[Cause; 1]>::try_from(explained(&own, &ClusterFacts::of_maintenances([&own]))).unwrap();
    assert_eq!(cause.what, ["Roll par waits until somebody confirms that it continues with node n1."]);
    assert_eq!(cause.advice, "Answer the question on the terminal where ada@vm runs the roll");
    assert_eq!((cause.passes(), cause.commands), (true, names(&[STATUS])));
}

#[test]
fn a_roll_that_was_aborted_returns_the_nodes_that_its_program_finishes() {
    let mut aborted = at_work();
    (aborted["aborted"], aborted["paused"]) = (json!("bob@desk"), json!(true));
    let failed = json!({"step": "Acting", "action": {"attempt": 1, "state": {"failed": "no"}}});
    for (record, advice, commands) in [
        (
            json!({"step": "Checking"}),
            "Wait until roll par is done with n2 and returns it to service; or add a node, or return n1 to service",
            [STATUS, "kubectl nm stop n1"],
        ),
        (
            failed,
            "Add a node, or return one of these nodes to service, unless its machine is being worked on",
            ["kubectl nm stop n2", "kubectl nm stop n1"],
        ),
    ] {
        let mut other = maintenance("n2", drained(), Some(&aborted));
        other.metadata.annotations.get_or_insert_default().insert(NODE.to_owned(), record.to_string());
        let found = no_node_left(&maintenance("n1", blocked(), None), vec![other], json!({}));
        assert_eq!((found.advice.as_str(), found.commands), (advice, names(&commands)));
    }
    let own = at_step("Acting", maintenance("n1", drained(), Some(&aborted)));
    let [cause] = <[Cause; 1]>::try_from(explained(&own, &ClusterFacts::of_maintenances([&own]))).unwrap();
    let what = "Roll par was aborted: ada@vm finishes the nodes whose command or Job has started, and returns them to service.";
    assert_eq!(cause.what, [what]);
    assert_eq!((cause.passes(), cause.commands), (true, names(&[STATUS])));
}

pub(super) fn names(commands: &[&str]) -> Vec<String> {
    commands.iter().map(ToString::to_string).collect()
}

#[test]
fn what_an_aborted_roll_has_left_in_maintenance_is_stopped() {
    let aborted = json!({"revision": 2, "aborted": "ada@vm"});
    let found = cause(None, &[("n2", drained(), Some(&aborted))]);
    assert_eq!(found.commands, ["kubectl nm stop n2", "kubectl nm stop n1"], "{found:#?}");
}

#[test]
fn the_only_pod_of_a_budget_on_a_node_of_a_roll_is_kept_by_the_roll() {
    let own = maintenance("n1", blocked(), Some(&at_work()));
    let known = ClusterFacts::of_maintenances([&own]);
    let situation = Situation { nodes: vec![cordoned("n1")], ..never("minAvailable", json!(1), 1) };
    let facts = ClusterFacts { budgets: situation.facts().budgets, nodes: situation.facts().nodes, ..known };
    let causes = explained(&own, &facts);
    let commands: Vec<&String> = causes.iter().flat_map(|cause| &cause.commands).collect();
    assert!(!commands.iter().any(|command| command.contains("nm stop")), "{causes:#?}");
    assert!(commands.iter().any(|command| *command == PAUSE_AND_SKIP_N1), "{causes:#?}");
}

#[test]
fn a_pod_that_may_fit_a_node_that_its_roll_returns_waits_for_it() {
    let apart = "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) were unschedulable.";
    let own = maintenance("n1", blocked(), Some(&at_work()));
    let known = ClusterFacts::of_maintenances([&own, &maintenance("n2", drained(), Some(&at_work()))]);
    let nodes = vec![cordoned("n1"), cordoned("n2"), node("n3", json!({}))];
    let situation = Situation { nodes, ..beside(pending("Unschedulable", apart)) };
    let facts = ClusterFacts { budgets: situation.facts().budgets, nodes: situation.facts().nodes, ..known };
    let causes = explained(&own, &facts);
    let cause = causes.iter().find(|cause| cause.commands.contains(&STATUS.to_owned())).unwrap();
    let wait = "; or wait until roll par is done with n2 and returns it to service: the pods may fit there";
    assert!(cause.advice.ends_with(wait), "{causes:#?}");
    assert!(!cause.commands.iter().any(|command| command.contains("nm stop")), "{causes:#?}");
}

#[test]
fn a_node_that_can_be_stopped_beside_one_that_its_roll_returns_is_in_the_advice() {
    let apart = "0/4 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 3 node(s) were unschedulable.";
    let aborted = json!({"revision": 2, "aborted": "ada@vm"});
    let own = maintenance("n1", blocked(), None);
    let mut left = maintenance("n3", drained(), Some(&aborted));
    left.metadata.labels = Some([(ROLL_LABEL.to_owned(), "old".to_owned())].into());
    let known = ClusterFacts::of_maintenances([&own, &maintenance("n2", drained(), Some(&at_work())), &left]);
    let nodes = vec![cordoned("n1"), cordoned("n2"), cordoned("n3"), node("n4", json!({}))];
    let situation = Situation { nodes, ..beside(pending("Unschedulable", apart)) };
    let facts = ClusterFacts { budgets: situation.facts().budgets, nodes: situation.facts().nodes, ..known };
    let causes = explained(&own, &facts);
    let cause = causes.iter().find(|cause| cause.commands.contains(&STATUS.to_owned())).unwrap();
    assert!(cause.commands.contains(&"kubectl nm stop n3".to_owned()), "{causes:#?}");
    let stop = "; or return a node to service on which the pods may fit, unless its machine is being worked on; or wait until roll par is done with n2";
    assert!(cause.advice.contains(stop), "{causes:#?}");
}

#[test]
fn a_drained_node_on_which_its_roll_works_returns_by_itself() {
    let ways = |status: Value| {
        let own = maintenance("n1", status, Some(&at_work()));
        let facts = ClusterFacts::of_maintenances([&own]);
        let words = Words::of(&own, &facts, &[], "kubectl", NOW.parse().unwrap());
        let ways = words.ways_back(&["n1".to_owned()].into());
        (ways.wait(), ways.commands(&words))
    };
    let wait = "wait until roll par is done with n1 and returns it to service";
    assert_eq!(
        ways(drained()),
        (Some(wait.to_owned()), vec![STATUS.to_owned()]),
        "a skip would end its action"
    );
    assert_eq!(ways(blocked()), (None, vec![STATUS.to_owned(), PAUSE_AND_SKIP_N1.to_owned()]));
}

#[test]
fn nodes_of_a_roll_that_wait_for_each_other_beside_a_node_of_others_are_offered_with_its_reason() {
    let own = maintenance("n1", blocked(), Some(&at_work()));
    let mut of_ada = maintenance("n3", drained(), None);
    of_ada.spec.reason = Some(String::from("dimm by ada"));
    let others = vec![maintenance("n2", blocked(), Some(&at_work())), of_ada];
    let found = no_node_left(&own, others, json!({}));
    assert!(
        found.advice.ends_with(
            "return n3 to service, unless its machine is being worked on (n3: dimm by ada), or continue roll par without one \
             of n2, n1"
        ),
        "{found:#?}"
    );
    let skip = |node: &str| format!("kubectl nm roll pause par && kubectl nm roll resume par --skip {node}");
    assert_eq!(found.commands, ["kubectl nm stop n3", STATUS, &skip("n2"), &skip("n1")]);
}
