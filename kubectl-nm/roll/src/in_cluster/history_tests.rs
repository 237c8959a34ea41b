use std::sync::Arc;

use super::*;
use crate::absence::LeftNode;
use crate::decide::NodeProgress;
use crate::record::{NODE, Runner, Step};

const BEGAN: &str = "2026-03-07T22:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A roll of `n1` to `n4` that is run, and the `ConfigMap` of it.
struct Cluster {
    keeper: HistoryKeeper,
    roll: Roll,
    record: RollRecord,
    stored: Value,
    now: Timestamp,
}

impl Cluster {
    fn new(stored: Value) -> Self {
        let settings = json!({"waves": [4], "maxUnavailable": 1, "minReadySeconds": 30, "startedBy": "ada@laptop",
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        let nodes = ["n1", "n2", "n3", "n4"].map(String::from).to_vec();
        Self {
            keeper: HistoryKeeper::new(),
            roll: Roll { name: "r".into(), settings, nodes: Vec::new(), record: None },
            record: RollRecord { began: Some(time(BEGAN)), nodes, ..RollRecord::default() },
            stored,
            now: time("2026-03-07T22:10:00.7Z"),
        }
    }

    /// What the program sees, with these nodes under way.
    fn sees(&mut self, under_way: &[&str], state: &RollState, aborted: Option<&str>) {
        let progress = under_way.iter().map(|node| NodeProgress {
            node: (*node).to_owned(),
            wave: 0,
            position: 0,
            step: Step::Planned,
            since: time(BEGAN),
            detail: String::new(),
            ready_time: None,
            pods: (0, 0),
            by_now: None,
        });
        let progress: Vec<_> = progress.collect();
        let (roll, record, progress) = (&self.roll, &self.record, &progress);
        let now = self.now;
        self.keeper.note(&RollView { roll, record, progress, state, aborted, is_current: true, now });
    }

    /// Writes to the `ConfigMap`, and returns how the nodes have left, and how the roll ended.
    fn written(&mut self) -> (Vec<(String, Outcome)>, RollEnding) {
        let stored = History::of(&self.stored);
        for (key, value) in stored.continued(&self.keeper.noted.borrow()).patch(&stored) {
            self.stored["data"][key] = value;
        }
        let history = History::of(&self.stored);
        let nodes = history.nodes.iter().map(|(node, entry)| (node.clone(), entry.outcome));
        (nodes.collect(), history.roll.unwrap().ending)
    }
}

fn outcomes(nodes: &[(&str, Outcome)]) -> Vec<(String, Outcome)> {
    nodes.iter().map(|(node, outcome)| ((*node).to_owned(), *outcome)).collect()
}

#[test]
fn each_node_that_has_left_has_an_entry_with_its_outcome() {
    let mut cluster = Cluster::new(json!({}));
    let working = RollState::Working;
    cluster.sees(&["n1", "n2", "n3", "n4"], &working, None);
    assert_eq!(cluster.written(), (Vec::new(), RollEnding::Running));
    // A skipped node is under way until its maintenance is gone.
    cluster.record.skipped.push("n2".into());
    cluster.record.released.push("n1".into());
    cluster.sees(&["n2", "n3", "n4"], &working, None);
    assert_eq!(cluster.written().0, outcomes(&[("n1", Outcome::Done)]));
    assert_eq!(cluster.stored["data"]["n1"], r#"{"outcome":"done","ended":"2026-03-07T22:10:00Z","pods":0}"#);
    cluster.record.released.clear();
    cluster.record.left.push(LeftNode { node: "n3".into(), why: Departure::NodeDeleted });
    // Why n4 has no maintenance is not known yet.
    cluster.sees(&[], &working, None);
    let left = [("n1", Outcome::Done), ("n2", Outcome::Skipped), ("n3", Outcome::NodeDeleted)];
    assert_eq!(cluster.written().0, outcomes(&left));
    cluster.sees(&[], &RollState::Aborted("bob@desk".into()), Some("bob@desk"));
    let (nodes, ending) = cluster.written();
    assert_eq!(nodes, outcomes(&[&left[..], &[("n4", Outcome::Aborted)]].concat()));
    assert_eq!(ending, RollEnding::Aborted { by: "bob@desk".into() });
    let roll: Value = serde_json::from_str(cluster.stored["data"][ROLL_KEY].as_str().unwrap()).unwrap();
    assert_eq!(
        roll,
        json!({"startedBy": "ada@laptop", "began": BEGAN, "state": "aborted", "by": "bob@desk",
            "since": "2026-03-07T22:10:00Z", "total": 4})
    );
}

#[test]
fn the_next_pod_continues_the_history_and_a_new_roll_of_that_name_begins_another() {
    let mut first = Cluster::new(json!({}));
    first.record.released.push("n1".into());
    first.sees(&["n2", "n3", "n4"], &RollState::Working, None);
    let _ = first.written();
    let entry = first.stored["data"]["n1"].clone();

    let mut next = Cluster::new(first.stored);
    next.record.released.push("n1".into());
    next.record.nodes.remove(0);
    let halt = Halt { node: "n2".into(), message: "failed".into(), at: time(BEGAN), cause: None };
    next.sees(&["n2", "n3", "n4"], &RollState::Halted(halt), None);
    assert_eq!(
        next.written(),
        (
            outcomes(&[("n1", Outcome::Done)]),
            RollEnding::Halted { node: "n2".into(), message: "failed".into() }
        )
    );
    assert_eq!(next.stored["data"]["n1"], entry, "it is written once");
    // Somebody aborts the halted roll, and nothing is left of it.
    next.keeper.note_over(Some("bob@desk"), time(BEGAN));
    let (nodes, ending) = next.written();
    assert_eq!(nodes.iter().filter(|(_, outcome)| *outcome == Outcome::Aborted).count(), 3);
    assert_eq!(ending, RollEnding::Aborted { by: "bob@desk".into() });

    let mut other = Cluster::new(next.stored);
    other.record.began = Some(time("2026-03-08T22:00:00Z"));
    other.sees(&["n1", "n2", "n3", "n4"], &RollState::Working, None);
    assert_eq!(other.written(), (Vec::new(), RollEnding::Running));
}

#[test]
fn a_roll_whose_end_was_not_recorded_is_done_if_every_node_has_an_entry() {
    let check = |done: &[&str], expected: RollEnding| {
        let mut cluster = Cluster::new(json!({}));
        cluster.record.released = done.iter().map(ToString::to_string).collect();
        cluster.sees(&[], &RollState::Working, None);
        assert_eq!(cluster.written().1, RollEnding::Running);
        let over = History::of(&cluster.stored).over();
        assert_eq!(over.roll.unwrap().ending, expected, "{done:?}");
    };
    check(&["n1", "n2", "n3", "n4"], RollEnding::Done);
    check(&["n1", "n2", "n3"], RollEnding::Running);
}

#[test]
fn a_roll_that_had_halted_before_its_pod_started_has_who_aborted_it() {
    let mut cluster = Cluster::new(json!({}));
    let halt = Halt { node: "n2".into(), message: "failed".into(), at: time(BEGAN), cause: None };
    cluster.record.halt = Some(halt.clone());
    cluster.keeper.know(&cluster.roll, &cluster.record, time(BEGAN));
    assert_eq!(cluster.written().1, RollEnding::of(&halt));
    cluster.keeper.note_over(Some("bob@desk"), time(BEGAN));
    let (nodes, ending) = cluster.written();
    assert_eq!((nodes.len(), ending), (4, RollEnding::Aborted { by: "bob@desk".into() }));
}

#[test]
fn an_aborted_roll_is_dated_when_it_was_aborted_and_not_when_its_last_node_is_done() {
    let (mut cluster, bob) = (Cluster::new(json!({})), Some("bob@desk"));
    let by = RollEnding::Aborted { by: "bob@desk".into() };
    let since = |cluster: &Cluster| {
        let roll = History::of(&cluster.stored).roll.unwrap();
        (roll.ending, roll.since)
    };
    cluster.roll.nodes = vec![at_step("n1", "Acting")];
    cluster.sees(&["n1"], &RollState::Working, bob);
    let _ = cluster.written();
    let aborted = (by, time("2026-03-07T22:10:00Z"));
    assert_eq!(since(&cluster), aborted);

    // The pod that ran the roll was evicted, and the next one finishes the node.
    let mut next = Cluster { now: time("2026-03-07T22:20:00Z"), ..Cluster::new(cluster.stored) };
    next.record.aborted = Some("bob@desk".into());
    next.keeper.know(&next.roll, &next.record, next.now);
    let _ = next.written();
    next.record.released.push("n1".into());
    next.sees(&[], &RollState::Aborted("bob@desk".into()), bob);
    next.keeper.note_over(bob, time("2026-03-07T22:30:00Z"));
    let _ = next.written();
    assert_eq!(since(&next), aborted);
}

/// A node of the roll that is planned.
fn planned(name: &str) -> RollNode {
    at_step(name, "Planned")
}

/// A node of the roll at this step, with its action, unless that has not begun.
fn at_step(name: &str, step: &str) -> RollNode {
    let action = (step != "Planned").then(|| json!({"attempt": 1, "state": "running"}));
    let node = json!({"wave": 0, "position": 0, "step": step, "since": BEGAN, "action": action}).to_string();
    let object = json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name, "annotations": {NODE: node}}, "spec": {"nodeName": name}});
    RollNode::of(&Arc::new(serde_json::from_value(object).unwrap())).unwrap()
}

/// A node that the roll returns to service once the owner of a hook removes that.
fn held(name: &str) -> RollNode {
    let node = at_step(name, "Returning");
    let mut object = (*node.object).clone();
    let hook = ("pre-return.hook.kubectl-nm.dev/heal".to_owned(), "ceph".to_owned());
    object.metadata.annotations.get_or_insert_default().extend([hook]);
    RollNode::of(&Arc::new(object)).unwrap()
}

#[test]
fn nodes_that_leave_a_halted_roll_are_noted_once_it_is_over_with_the_time_when_they_left() {
    let after = |aborted: Option<&str>| {
        let mut cluster = Cluster::new(json!({}));
        let halt = Halt { node: "n4".into(), message: "failed".into(), at: time(BEGAN), cause: None };
        cluster.record.halt = Some(halt);
        cluster.roll.nodes = ["n1", "n2", "n3", "n4"].map(planned).into();
        cluster.keeper.know(&cluster.roll, &cluster.record, time(BEGAN));
        cluster.record.skipped.push("n2".into());
        cluster.roll.record = Some(cluster.record.clone());
        cluster.roll.nodes.drain(..2);
        for now in ["2026-03-07T22:05:00Z", "2026-03-07T22:06:00Z"] {
            cluster.keeper.watch(&cluster.roll, time(now));
            assert_eq!(cluster.written().0, [], "somebody may resume it");
        }
        cluster.keeper.note_over(aborted, time("2026-03-07T22:07:00Z"));
        let ending = cluster.written().1;
        let nodes = History::of(&cluster.stored).nodes.into_values();
        (nodes.map(|node| (node.outcome, node.ended)).collect::<Vec<_>>(), ending)
    };
    let (left, over) = (time("2026-03-07T22:05:00Z"), time("2026-03-07T22:07:00Z"));
    let before = [(Outcome::MaintenanceDeleted, left), (Outcome::Skipped, left)];
    let with = |rest: Outcome| [&before[..], &[(rest, over), (rest, over)]].concat();
    assert_eq!(after(None), (with(Outcome::MaintenanceDeleted), RollEnding::Done));
    let by = RollEnding::Aborted { by: "bob@desk".into() };
    assert_eq!(after(Some("bob@desk")), (with(Outcome::Aborted), by));
}

#[test]
fn a_node_that_is_finished_after_the_abort_is_done() {
    let (mut cluster, bob) = (Cluster::new(json!({})), Some("bob@desk"));
    let aborted = outcomes(&["n2", "n3", "n4"].map(|node| (node, Outcome::Aborted)));
    for step in ["Acting", "Checking", "Returning", "Recovering", "Soaking"] {
        cluster.roll.nodes = vec![at_step("n1", step)];
        cluster.sees(&["n1"], &RollState::Working, bob);
        assert_eq!(cluster.written().0, aborted, "{step}");
    }
    // Whoever aborts a roll while a node soaks takes it out.
    let mut other = Cluster::new(cluster.stored.clone());
    other.sees(&[], &RollState::Working, bob);
    assert_eq!(other.written().0[0], ("n1".to_owned(), Outcome::Aborted));
    cluster.record.released.push("n1".into());
    cluster.sees(&[], &RollState::Aborted("bob@desk".into()), bob);
    assert_eq!(cluster.written().0[0], ("n1".to_owned(), Outcome::Done));
}

#[test]
fn a_node_that_was_back_in_service_at_the_abort_is_returned_and_not_aborted() {
    for (node, expected) in [
        (at_step("n1", "Draining"), Outcome::Aborted),
        (at_step("n1", "Acting"), Outcome::Aborted),
        (held("n1"), Outcome::Aborted),
        (at_step("n1", "Returning"), Outcome::Returned),
        (at_step("n1", "Recovering"), Outcome::Returned),
        (at_step("n1", "Soaking"), Outcome::Returned),
    ] {
        let (mut cluster, step) = (Cluster::new(json!({})), node.record.step);
        cluster.roll.nodes = vec![node];
        cluster.sees(&["n1"], &RollState::Working, None);
        cluster.roll.nodes.clear();
        cluster.sees(&[], &RollState::Working, Some("bob@desk"));
        assert_eq!(cluster.written().0[0], ("n1".to_owned(), expected), "{step:?}");
        let ending = History::of(&cluster.stored).over().roll.unwrap().ending;
        assert_eq!(ending, RollEnding::Aborted { by: "bob@desk".into() }, "nobody has seen that it is done");
    }
}

#[test]
fn only_a_person_takes_a_roll_over() {
    let runner = |in_cluster| Runner {
        id: "x".into(),
        who: "bob@desk".into(),
        at: time(BEGAN),
        in_cluster,
        node: None,
    };
    let mut cluster = Cluster::new(json!({}));
    cluster.sees(&["n1"], &RollState::Working, None);
    cluster.sees(&[], &RollState::TakenOver(runner(true)), None);
    assert_eq!(cluster.written(), (Vec::new(), RollEnding::Running));
    cluster.sees(&[], &RollState::TakenOver(runner(false)), None);
    assert_eq!(cluster.written(), (Vec::new(), RollEnding::TakenOver { by: "bob@desk".into() }));
}

#[test]
fn the_longest_history_fits_into_a_config_map() {
    let (began, ended) = (Some(time(BEGAN)), time(BEGAN));
    let entry = NodeHistory { outcome: Outcome::MaintenanceDeleted, began, ended, pods: 250 };
    // The longest name that a node may have.
    let nodes = (0..2 * MAX_NODES).map(|node| (format!("{node:0>253}"), entry.clone()));
    let next = History { nodes: nodes.collect(), ..History::default() };
    let history = History::default().continued(&next);
    assert_eq!(history.nodes.len(), MAX_NODES);
    assert!(json!(history.data()).to_string().len() < 1 << 20);
}
