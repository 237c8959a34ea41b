//! What `roll resume` confirms, and who continues a roll.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{failure, list, reading_cluster};
use nm_dashboard::AppearanceFlags;
use nm_roll::record::{Halt, LABEL, NODE, SETTINGS, STATE, annotation};
use nm_roll::settings::{NodeAction, RollSettings};
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::commands::roll::args::{AroundArgs, NameArgs, OutputArgs, RollFormat};

const JOB: &str = "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: a}]}}}}";

/// Settings that do this with each drained node.
fn settings(action: &Value) -> RollSettings {
    serde_json::from_value(json!({
        "waves": [1], "maxUnavailable": 1, "action": action, "minReadySeconds": 30,
        "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1,
    }))
    .unwrap()
}

/// A roll as its objects describe it.
fn roll(action: &Value) -> Roll {
    Roll { name: String::from("r"), settings: settings(action), nodes: Vec::new(), record: None }
}

fn args() -> ResumeArgs {
    ResumeArgs {
        roll: NameArgs { name: String::from("r") },
        skip: Vec::new(),
        run: None,
        job: None,
        around: AroundArgs::default(),
        timeout: None,
        yes: false,
        take_over: false,
        here: false,
        runner_image: None,
        output: OutputArgs { output: Some(RollFormat::Lines), appearance: AppearanceFlags::default() },
    }
}

/// How an action is confirmed without a terminal, by these flags.
fn confirmed(action: &Value, run: Option<&str>, job: Option<&str>, yes: bool) -> Result<(), Error> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), job.unwrap_or_default()).unwrap();
    let job = job.map(|_| file.path().to_owned());
    let args = ResumeArgs { run: run.map(str::to_owned), job, yes, ..args() };
    unconfirmed(&args, &roll(action))
}

/// Whether an action is confirmed without a terminal, by these flags.
fn unconfirmed(args: &ResumeArgs, roll: &Roll) -> Result<(), Error> {
    let given = GivenActions::read(&args.around, args.run.as_ref(), args.job.as_ref(), None)?;
    refuse_other_actions(&given, roll)?;
    let unconfirmed = unconfirmed_action(args, &given, roll, &RollRecord::default(), &mut output().0)?;
    assert_eq!(unconfirmed, None, "nobody can be asked");
    Ok(())
}

#[test]
fn an_action_from_the_objects_is_not_begun_unless_it_is_confirmed_word_for_word() {
    let command = json!({"run": "reboot {}"});
    let mut template = serde_saphyr::from_str::<Value>(JOB).unwrap();
    template["metadata"]["namespace"] = json!("default");
    let mut privileged = template.clone();
    privileged["spec"]["template"]["spec"]["hostPID"] = json!(true);
    for (action, run, job, is_confirmed) in [
        (&Value::Null, None, None, true),
        (&Value::Null, Some("reboot {}"), None, false),
        (&command, Some("reboot {}"), None, true),
        (&command, Some("reboot {} "), None, false),
        (&command, Some(""), None, false),
        (&command, None, Some(JOB), false),
        (&command, None, None, false),
        (&json!({"job": template}), None, Some(JOB), true),
        (&json!({"job": privileged}), None, Some(JOB), false),
        (&json!({"job": template}), Some("reboot {}"), None, false),
        (&json!({"job": template}), None, None, false),
    ] {
        let outcome = confirmed(action, run, job, false);
        assert_eq!(outcome.is_ok(), is_confirmed, "{action} by {run:?} and {job:?}: {outcome:?}");
        let outcome = confirmed(action, run, job, true);
        let is_confirmed = is_confirmed || (run, job) == (None, None);
        assert_eq!(outcome.is_ok(), is_confirmed, "with --yes, {action} by {run:?} and {job:?}: {outcome:?}");
    }
}

#[test]
fn the_actions_around_the_drain_are_confirmed_too() {
    let command = |text: &str| Some(NodeAction::Run(text.to_owned()));
    let stored = RollSettings { before: command("b"), after: command("a"), ..settings(&json!({"run": "r"})) };
    let roll = Roll { settings: stored, ..roll(&Value::Null) };
    for (before, run, after, is_confirmed) in [
        (Some("b"), Some("r"), Some("a"), true),
        (None, Some("r"), Some("a"), false),
        (Some("b"), Some("r"), None, false),
        (Some("b"), Some("r"), Some("b"), false),
        (Some("r"), None, None, false),
        (None, None, None, false),
    ] {
        let [before, run, after] = [before, run, after].map(|text| text.map(str::to_owned));
        let around = AroundArgs { before, after, ..AroundArgs::default() };
        let given = format!("{around:?} {run:?}");
        let args = ResumeArgs { run, around, ..args() };
        let outcome = unconfirmed(&args, &roll);
        assert_eq!(outcome.is_ok(), is_confirmed, "{given}: {outcome:?}");
    }
    // An action that the roll does not have is not added.
    let around = AroundArgs { after: Some("a".into()), ..AroundArgs::default() };
    let args = ResumeArgs { run: Some("r".into()), around, ..args() };
    let refused = unconfirmed(&args, &self::roll(&json!({"run": "r"})));
    let refusal = refused.as_ref().unwrap_err().above();
    assert!(matches!(refusal, Some(RollError::OtherAction { .. })), "{refused:?}");
}

fn runner() -> Runner {
    let (id, who) = ("other".into(), "other@there".into());
    Runner { id, who, at: Timestamp::UNIX_EPOCH, in_cluster: false, node: None }
}

/// Resumes a roll whose runner has died while the command of its only node ran. When somebody asks for a heartbeat, the
/// record changes like this. Returns the outcome, the record that is stored then, the messages, and how long it took.
async fn resumed(
    args: ResumeArgs,
    meanwhile: impl Fn(&mut RollRecord) + Send + Sync + 'static,
) -> (Result<Exit, Error>, RollRecord, String, Instant) {
    let record = RollRecord { revision: 1, runner: Some(runner()), ..RollRecord::default() };
    resumed_from(record, &settings(&json!({"run": "x"})), args, None, meanwhile).await
}

/// The same for a roll with this record, these settings and this Job that runs it.
async fn resumed_from(
    record: RollRecord,
    settings: &RollSettings,
    args: ResumeArgs,
    job: Option<Value>,
    meanwhile: impl Fn(&mut RollRecord) + Send + Sync + 'static,
) -> (Result<Exit, Error>, RollRecord, String, Instant) {
    let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": Timestamp::UNIX_EPOCH,
        "action": {"attempt": 1, "state": "running"}});
    let object: NodeMaintenance = serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "n0", "uid": "uid-n0", "resourceVersion": "5", "labels": {LABEL: "r"}, "annotations":
            {SETTINGS: annotation(settings), NODE: node.to_string(), STATE: annotation(&record)}},
        "spec": {"nodeName": "n0"},
    }))
    .unwrap();
    let stored = Arc::new(Mutex::new(object));
    let server = Arc::clone(&stored);
    let cluster = reading_cluster(move |method, path, body| {
        let mut object = server.lock().unwrap();
        match (method, &job) {
            ("GET", Some(job)) if path.contains("/jobs/") => return (200, job.clone()),
            ("GET", None) if path.contains("/jobs/") => return failure(404, "NotFound", "nm-roll-r"),
            ("GET", _) => return list(std::slice::from_ref(&object)),
            _ => {}
        }
        let annotations = object.metadata.annotations.get_or_insert_default();
        if let Some(state) = body.pointer("/metadata/annotations").and_then(|all| all[STATE].as_str()) {
            let mut record: RollRecord = serde_json::from_str(state).unwrap();
            if record.asked {
                record.revision += 1;
                meanwhile(&mut record);
            }
            annotations.insert(STATE.to_owned(), annotation(&record));
        }
        (200, json!(*object))
    });
    let (mut out, captured) = output();
    let ended = Box::pin(resume(args, None, &cluster, &mut out)).await;
    let record = stored.lock().unwrap().metadata.annotations.as_ref().unwrap()[STATE].clone();
    (ended, serde_json::from_str(&record).unwrap(), captured.messages(), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_roll_that_is_paused_or_aborted_while_resume_waits_for_a_heartbeat_stays_so() {
    let confirmed = || ResumeArgs { run: Some(String::from("x")), ..args() };
    let (ended, record, ..) = resumed(confirmed(), |record| record.paused = true).await;
    assert!(matches!(refusal(&ended), Some(RollError::PausedMeanwhile(_))), "{ended:?}");
    assert_eq!((record.paused, record.runner), (true, Some(runner())));
    let abort = |record: &mut RollRecord| {
        (record.paused, record.aborted) = (true, Some(String::from("she@there")));
    };
    let (ended, record, ..) = resumed(confirmed(), abort).await;
    assert!(matches!(refusal(&ended), Some(RollError::AbortedMeanwhile { .. })), "{ended:?}");
    assert!(record.paused && record.aborted.is_some(), "{record:?}");
}

#[test]
fn a_roll_that_asks_about_each_node_is_not_resumed_without_a_terminal() {
    let confirming = RollSettings { confirm: true, ..settings(&Value::Null) };
    let roll = Roll { settings: confirming, ..roll(&Value::Null) };
    let none = GivenActions { before: None, action: None, after: None };
    let record = RollRecord::default();
    let error = confirm(&args(), &none, &roll, &record, "blue", &mut output().0).unwrap_err();
    assert_eq!(error.to_string(), "roll \"r\" asks for a confirmation of each node, which needs a terminal");
    assert_eq!(
        error.hint().unwrap(),
        "resume it on a terminal; or `kubectl nm roll abort r --return` ends the roll and returns its nodes to service"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_to_be_confirmed_is_known_before_the_wait_for_a_heartbeat_of_a_paused_roll_too() {
    for paused in [false, true] {
        let begun = Instant::now();
        let record = || RollRecord { paused, ..paused_record() };
        let run = settings(&json!({"run": "x"}));
        let (ended, stored, messages, at) = resumed_from(record(), &run, args(), None, |_| {}).await;
        let refused = matches!(refusal(&ended), Some(RollError::UnconfirmedAction { .. }));
        // The program that ran the roll has some seconds to answer.
        assert!(refused && at - begun < Duration::from_secs(5), "{ended:?} after {:?}", at - begun);
        assert_eq!((stored.runner, stored.paused), (Some(runner()), paused));
        // The command of the program that has died may not have.
        assert!(
            messages.starts_with("warning: other@there has started the command for n0. The command may"),
            "{messages}"
        );
        let begun = Instant::now();
        let confirming = RollSettings { confirm: true, ..settings(&Value::Null) };
        let (ended, _, _, at) = resumed_from(record(), &confirming, args(), None, |_| {}).await;
        let refused = matches!(refusal(&ended), Some(RollError::ResumeNeedsTerminal(_)));
        assert!(refused && at - begun < Duration::from_secs(5), "{ended:?} after {:?}", at - begun);
    }
}

#[tokio::test(start_paused = true)]
async fn another_action_is_refused_at_once_whoever_runs_the_roll() {
    for paused in [false, true] {
        for in_cluster in [false, true] {
            let begun = Instant::now();
            let args = ResumeArgs { run: Some(String::from("other")), ..args() };
            let settings = RollSettings { in_cluster, ..settings(&json!({"run": "x"})) };
            let record = RollRecord { paused, ..paused_record() };
            let (ended, record, _, at) = resumed_from(record, &settings, args, None, answers).await;
            assert!(matches!(refusal(&ended), Some(RollError::OtherAction { .. })), "{ended:?}");
            assert_eq!((at - begun, record.asked), (Duration::ZERO, false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_has_not_confirmed_anything_yet_is_told_who_runs_the_roll() {
    let answers = |record: &mut RollRecord| {
        record.runner = Some(Runner { at: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1), ..runner() });
    };
    let (ended, ..) = resumed(args(), answers).await;
    assert!(matches!(refusal(&ended), Some(RollError::Running { .. })), "{ended:?}");
    let (ended, ..) = resumed(ResumeArgs { skip: vec!["n0".into()], ..args() }, answers).await;
    let hint = ended.unwrap_err().hint().unwrap();
    let continues =
        "`kubectl nm roll pause r && kubectl nm roll resume r --skip n0` pauses it, and continues it";
    assert!(hint.starts_with(continues), "{hint}");
}

fn paused_record() -> RollRecord {
    RollRecord { revision: 1, paused: true, runner: Some(runner()), ..RollRecord::default() }
}

/// A sign of life of the program that runs the roll.
fn answers(record: &mut RollRecord) {
    record.runner.as_mut().unwrap().at += SignedDuration::from_secs(1);
}

#[tokio::test(start_paused = true)]
async fn a_skip_that_ends_a_command_is_announced_before_it_does() {
    let args = ResumeArgs { skip: vec![String::from("n0")], ..args() };
    let (ended, record, messages, _) =
        resumed_from(paused_record(), &settings(&json!({"run": "x"})), args, None, answers).await;
    assert_eq!((ended.unwrap(), record.paused), (Exit::Done, false));
    assert_eq!(
        messages,
        "warning: --skip n0 terminates the command, which is running, and returns the node to service now\n\
         node/n0 is skipped, and returns to service\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_paused_roll_whose_job_waits_is_continued_without_the_confirmation_of_its_actions() {
    let mut template = serde_saphyr::from_str::<Value>(JOB).unwrap();
    template["metadata"] = json!({"name": "a", "namespace": runner_job::NAMESPACE});
    let settings = RollSettings { in_cluster: true, ..settings(&json!({"job": template})) };
    let in_cluster = || {
        let runner = Some(Runner { in_cluster: true, ..runner() });
        RollRecord { runner, ..paused_record() }
    };
    let args =
        || ResumeArgs { skip: vec![String::from("n0")], runner_image: Some(String::from("nm:1")), ..args() };
    let job = runner_job::of("r", &settings, "nm:1");
    let (ended, record, messages, _) =
        resumed_from(in_cluster(), &settings, args(), Some(job.clone()), |_| {}).await;
    assert_eq!((ended.unwrap(), record.paused), (Exit::Done, false));
    let skipped =
        "warning: --skip n0 deletes the Job, which may be running, and returns the node to service now\n";
    assert!(messages.starts_with(skipped), "{messages}");
    let mut other = job;
    other["spec"]["template"]["spec"]["containers"][0]["args"][3] = json!("--settings=others");
    for job in [None, Some(other)] {
        let (ended, record, ..) = resumed_from(in_cluster(), &settings, args(), job, |_| {}).await;
        let error = ended.unwrap_err();
        let is_unconfirmed =
            matches!(error.above(), Some(RollError::UnconfirmedAction { is_paused: true, .. }));
        assert!(is_unconfirmed && record.paused, "{error}");
        assert_eq!(
            error.hint().unwrap(),
            "roll r is paused, and stays paused until it is resumed; `kubectl nm roll resume r --skip n0 --runner-image \
             nm:1 --yes` confirms the action, and so do its flags (--run with the same command, --job with the same file); \
             on a terminal, you are asked"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_halt_that_nobody_has_read_is_not_continued() {
    let halts = |record: &mut RollRecord| {
        record.halt = Some(halt("n0"));
        record.runner = None;
    };
    let confirmed = ResumeArgs { run: Some(String::from("x")), ..args() };
    let (ended, record, ..) = resumed(confirmed, halts).await;
    assert!(matches!(refusal(&ended), Some(RollError::HaltedMeanwhile { .. })), "{ended:?}");
    assert_eq!(record.halt, Some(halt("n0")));
}

fn halt(node: &str) -> Halt {
    Halt { node: node.to_owned(), message: "no".into(), at: Timestamp::UNIX_EPOCH, cause: None }
}

#[test]
fn a_paused_roll_that_was_aborted_or_has_halted_meanwhile_is_not_resumed() {
    let before = RollRecord { paused: true, runner: Some(runner()), ..RollRecord::default() };
    let aborted = RollRecord { aborted: Some("she@there".into()), ..before.clone() };
    let halted = RollRecord { halt: Some(halt("n0")), ..before.clone() };
    assert!(refuse_what_others_ended("r", &before, &before).is_ok());
    for ended in [aborted, halted] {
        assert!(refuse_what_others_ended("r", &before, &ended).is_err());
        assert!(refuse_what_others_ended("r", &ended, &ended).is_ok(), "it was read");
    }
}

#[test]
fn a_roll_is_continued_only_if_it_is_as_it_was_read() {
    let (before, me) = (RollRecord { runner: Some(runner()), ..RollRecord::default() }, this_runner());
    let paused = RollRecord { paused: true, ..before.clone() };
    let other = RollRecord { runner: Some(Runner { id: "third".into(), ..runner() }), ..before.clone() };
    for (before, record, take_over, is_claimed) in [
        (&before, &before, false, true),
        (&before, &RollRecord { runner: None, ..before.clone() }, false, true),
        (&before, &other, false, false),
        (&before, &other, true, true),
        (&before, &paused, true, false),
        (&paused, &paused, false, true),
    ] {
        let claimed = claim("r", before, record.clone(), &me, take_over);
        assert_eq!(claimed.is_ok(), is_claimed, "{record:?}: {claimed:?}");
        let claimed = claimed.unwrap_or_else(|_| RollRecord { runner: Some(me.clone()), ..record.clone() });
        assert!(!is_claimed || (!claimed.paused && claimed.runner.as_ref() == Some(&me)), "{claimed:?}");
    }
}

#[test]
fn the_action_of_a_node_that_is_skipped_is_not_announced() {
    let settings = settings(&Value::Null);
    let failed = |node: &str, position: usize| {
        let record = json!({"wave": 0, "position": position, "step": "Acting", "since": Timestamp::UNIX_EPOCH,
            "action": {"attempt": 1, "state": {"failed": "the command ended with exit code 1"}}});
        let object: NodeMaintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": node, "labels": {LABEL: "r"},
                "annotations": {SETTINGS: annotation(&settings), NODE: record.to_string()}},
            "spec": {"nodeName": node},
        }))
        .unwrap();
        Arc::new(object)
    };
    let roll = Roll::find("r", &[failed("n0", 0), failed("n1", 1)]).unwrap().unwrap();
    for (skip, expected) in [
        (vec![], "The action of n0, n1 failed, and runs again.\n"),
        (vec!["n0"], "The action of n1 failed, and runs again.\n"),
        (vec!["n0", "n1"], ""),
    ] {
        let args = ResumeArgs { skip: skip.into_iter().map(str::to_owned).collect(), ..args() };
        let (mut out, captured) = output();
        let none = GivenActions { before: None, action: None, after: None };
        let record = RollRecord { revision: 1, ..RollRecord::default() };
        confirm(&args, &none, &roll, &record, "c", &mut out).unwrap();
        assert!(captured.messages().contains(expected), "{}", captured.messages());
        assert_eq!(captured.messages().contains("runs again"), !expected.is_empty());
    }
}

fn refusal(ended: &Result<Exit, Error>) -> Option<&RollError> {
    ended.as_ref().err().and_then(Error::above)
}
