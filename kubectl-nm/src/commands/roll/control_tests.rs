//! Pauses and ends of rolls.

use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use kube::ResourceExt;
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{failure, list, reading_cluster};
use nm_core::testing::objects::requested;
use nm_roll::in_cluster::runner_job;
use nm_roll::record::{Halt, LABEL, NODE, Runner, SETTINGS, STATE, annotation};
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use super::*;

/// A roll of these nodes, which are at their action, a command, or a Job if the roll runs in the cluster.
fn roll(nodes: &[&str], in_cluster: bool) -> Roll {
    let action = if in_cluster { json!({"job": {}}) } else { json!({"run": "reboot"}) };
    let settings = json!({"waves": [1], "maxUnavailable": 1, "action": action, "minReadySeconds": 30,
        "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": in_cluster});
    let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z",
        "action": {"attempt": 1, "state": "running"}});
    let nodes = nodes.iter().map(|name| {
        let mut object = requested(name);
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string())];
        object.metadata.annotations = Some(annotations.map(|(key, text)| (key.to_owned(), text)).into());
        Arc::new(object)
    });
    Roll::find("r", &nodes.collect::<Vec<_>>()).unwrap().unwrap()
}

fn report(left: &[&str], in_cluster: bool, finisher: &Finisher) -> (String, String) {
    let roll = roll(&[&["n0"], left].concat(), in_cluster);
    let is_left = |node: &&RollNode| left.contains(&node.node());
    let (mut out, captured) = output();
    let left: Vec<&RollNode> = roll.nodes.iter().filter(is_left).collect();
    report_left(&roll, finisher, &left, &[], &mut out).unwrap();
    (captured.data(), captured.messages())
}

#[test]
fn an_abort_reports_who_finishes_a_node_or_that_it_stays_in_maintenance_and_what_returns_it() {
    assert_eq!(report(&[], false, &Finisher::Nobody), (String::from("roll r aborted\n"), String::new()));
    let (done, messages) = report(&["n1"], false, &Finisher::Nobody);
    assert_eq!(done, "roll r aborted: 1 node stays in maintenance\n");
    assert_eq!(
        messages,
        "node/n1 (Acting): its command has started\n\
         hint: once the work is done, `kubectl nm roll abort r --return --yes` or `kubectl nm stop n1` returns the node to service; \
         `kubectl nm roll resume r` finishes the command or the Job first\n"
    );
    let job = String::from("Job node-maintenance-rolls/nm-roll-r");
    let (done, messages) = report(&["n1"], true, &Finisher::Known(job.clone()));
    assert_eq!(done, format!("roll r aborted: {job} finishes 1 node, and returns it to service\n"));
    assert_eq!(
        messages,
        "node/n1 (Acting): its Job has started\n\
         hint: `kubectl nm roll watch r` shows the progress, and `kubectl nm roll abort r --return --yes` returns it to service at once. \
         A node whose command or Job fails stays in maintenance\n"
    );
    let (done, messages) = report(&["n1", "n2"], true, &Finisher::Perhaps(job.clone()));
    assert_eq!(
        done,
        format!("roll r aborted: 2 nodes stay in maintenance, unless {job} still runs the roll\n")
    );
    assert!(messages.contains(" or `kubectl nm stop n1 n2 --yes` returns them"), "{messages}");
}

#[test]
fn the_question_says_which_nodes_stay_and_which_commands_end() {
    let mut roll = roll(&["n1", "n2"], false);
    let words = |lines: Vec<Line>| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        words(roll.nodes.iter().map(|node| stays(node, &roll)).collect())[0],
        "node/n1 (Acting) does not return to service now: its command has started"
    );
    let now = Timestamp::now();
    assert_eq!(words(ended_actions(&roll, "kubectl", now)), [""; 0], "nobody runs the roll");
    let at = json!({"revision": 1, "runner": {"id": "x", "who": "ada@laptop", "at": now}}).to_string();
    let object = Arc::make_mut(&mut roll.nodes[0].object);
    object.annotations_mut().insert(STATE.to_owned(), at);
    let warning =
        "warning: the command of roll r runs for node/n2 now: the roll terminates it within seconds";
    assert_eq!(words(ended_actions(&roll, "kubectl", now))[1], warning);
    let node = &mut roll.nodes[1];
    (node.record.step, node.record.action) = (Step::Planned, None);
    assert_eq!(removal(node), "planned maintenance deleted");
    let status = json!({"conditions": [{"type": "Cordoned", "status": "True", "reason": "r", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    Arc::make_mut(&mut node.object).status = Some(serde_json::from_value(status).unwrap());
    assert_eq!(
        stays(&roll.nodes[1], &roll).to_string(),
        "node/n2 (Planned) does not return to service now: somebody has started its drain before its turn"
    );
    assert_eq!(removal(&roll.nodes[1]), "maintenance is stopping", "with --return");
}

#[test]
fn a_pause_names_what_continues_which_without_a_program_are_jobs_alone() {
    let now = Timestamp::from_second(10_000).unwrap();
    let all = Some("The action of 2 nodes is not interrupted.");
    let jobs = Some("The Job of 2 nodes is not interrupted, and its result is read when the roll continues.");
    for (in_cluster, last_sign, expected) in [
        (false, Some(7), all),
        (false, Some(600), None),
        (false, None, None),
        (true, Some(7), all),
        (true, Some(600), jobs),
        (true, None, jobs),
    ] {
        let runner = last_sign.map(|ago| Runner {
            id: "x".into(),
            who: "ada".into(),
            at: now - SignedDuration::from_secs(ago),
            in_cluster,
            node: None,
        });
        let record = RollRecord { runner, ..RollRecord::default() };
        let shown = continuing(&roll(&["n1", "n2"], in_cluster), &record, now);
        assert_eq!(shown.as_deref(), expected, "{in_cluster} {last_sign:?}");
    }
}

#[test]
fn an_aborted_node_whose_action_has_not_begun_is_not_said_to_run_it() {
    let node = json!({"wave": 0, "position": 0, "step": "Draining", "since": "2026-01-02T03:04:05Z",
        "before": {"attempt": 1, "state": "succeeded"}});
    let mut object = requested("n1");
    let settings = roll(&["n0"], false).nodes[0].object.annotations()[SETTINGS].clone();
    let mut settings: Value = serde_json::from_str(&settings).unwrap();
    settings["before"] = json!({"run": "leave"});
    object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
    let annotations = [(SETTINGS, settings.to_string()), (NODE, node.to_string())];
    object.metadata.annotations = Some(annotations.map(|(key, text)| (key.to_owned(), text)).into());
    let roll = Roll::find("r", &[Arc::new(object)]).unwrap().unwrap();
    let (mut out, captured) = output();
    report_left(&roll, &Finisher::Nobody, &[&roll.nodes[0]], &[], &mut out).unwrap();
    let messages = captured.messages();
    let (mut out, known) = output();
    report_left(&roll, &Finisher::Known("ada".into()), &[&roll.nodes[0]], &[], &mut out).unwrap();
    let still = "hint: the roll still drains n1, and runs its command or its Job; `kubectl nm roll watch r`";
    assert!(known.messages().contains(still), "{}", known.messages());
    assert!(messages.starts_with("node/n1 (Draining): its --before command has run\n"), "{messages}");
    assert!(
        messages.ends_with(
            "`kubectl nm roll resume r` continues the roll after all, and runs its command or its Job\n"
        ),
        "{messages}"
    );
}

/// Who finishes the node of a roll in the cluster, or of one on a computer. `answers`: its program does. `job`: what the API
/// server answers about the Job.
async fn found(record: RollRecord, in_cluster: bool, answers: bool, job: (u16, Value)) -> Finisher {
    let roll = roll(&["n1"], in_cluster);
    let stored = Mutex::new(record.clone());
    let object = NodeMaintenance::clone(&roll.nodes[0].object);
    let cluster = reading_cluster(move |method, path, body| {
        let mut stored = stored.lock().unwrap();
        match (method, path.rsplit('/').next().unwrap()) {
            ("PATCH", _) => {
                let state = body.pointer("/metadata/annotations").unwrap()[STATE].as_str().unwrap();
                *stored = serde_json::from_str(state).unwrap();
                (200, json!(object))
            }
            (_, "nodemaintenances") => {
                let mut object = object.clone();
                let mut shown = stored.clone();
                if shown.asked && answers {
                    shown.runner.as_mut().unwrap().at = Timestamp::now();
                }
                object.annotations_mut().insert(STATE.to_owned(), annotation(&shown));
                list(&[object])
            }
            (_, "pods") => list(&[]),
            _ => job.clone(),
        }
    });
    find_finisher(&roll, &record, &cluster).await
}

#[tokio::test(start_paused = true)]
async fn a_program_that_answers_and_a_job_that_has_not_ended_finish_the_nodes_of_an_aborted_roll() {
    let missing = || failure(404, "NotFound", "jobs.batch \"nm-roll-r\" not found");
    let job = |suspend: bool| {
        let spec = json!({"suspend": suspend});
        (
            200,
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nm-roll-r"}, "spec": spec}),
        )
    };
    let title = runner_job::title("r");
    let record = |ago: i64, in_cluster| {
        let at = Timestamp::now() - SignedDuration::from_secs(ago);
        let runner = Some(Runner { id: "x".into(), who: "ada@laptop".into(), at, in_cluster, node: None });
        RollRecord { runner, aborted: Some("bob".into()), paused: true, ..RollRecord::default() }
    };
    let program = Finisher::Known("ada@laptop".into());
    assert_eq!(found(record(7, false), false, true, missing()).await, program);
    assert_eq!(
        found(record(7, false), false, false, missing()).await,
        Finisher::Perhaps("ada@laptop".into())
    );
    assert_eq!(found(record(600, false), false, false, missing()).await, Finisher::Nobody);
    let released = RollRecord { runner: None, ..record(0, true) };
    assert_eq!(found(released.clone(), false, false, job(false)).await, Finisher::Nobody);
    // Its pod was evicted, and the next one has not started.
    assert_eq!(found(released.clone(), true, false, job(false)).await, Finisher::Known(title.clone()));
    assert_eq!(found(released.clone(), true, false, job(true)).await, Finisher::Nobody);
    assert_eq!(found(released.clone(), true, false, missing()).await, Finisher::Nobody);
    let forbidden = failure(403, "Forbidden", "jobs.batch is forbidden");
    assert_eq!(found(released, true, false, forbidden).await, Finisher::Perhaps(title));
    let halt = Halt { node: "n1".into(), message: "m".into(), at: Timestamp::now(), cause: None };
    let halted = RollRecord { halt: Some(halt), ..record(7, true) };
    assert_eq!(found(halted, true, true, job(false)).await, Finisher::Nobody);
}
