//! What `roll status` shows of rolls.

use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::cluster;
use nm_roll::in_cluster::runner_job;
use nm_roll::record::{FINALIZER, LABEL, NODE, SETTINGS, STATE};
use nm_shared::api::names;

use super::*;

/// A maintenance of a roll that somebody has aborted after it had halted, at a step of its node.
fn maintenance(step: &str, is_deleted: bool, finalizers: &[&str]) -> NodeMaintenance {
    let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    let node = json!({"wave": 0, "position": 0, "step": step, "since": "2026-01-02T03:04:05Z",
        "action": {"attempt": 1, "state": "running"}});
    let halt = json!({"node": "n1", "message": "its command failed", "at": "2026-01-02T03:04:05Z"});
    let state = json!({"revision": 2, "paused": true, "aborted": "ada@laptop", "halt": halt});
    let annotations =
        json!({SETTINGS: settings.to_string(), NODE: node.to_string(), STATE: state.to_string()});
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "n1", "labels": {LABEL: "r"}, "annotations": annotations, "finalizers": finalizers,
            "deletionTimestamp": is_deleted.then_some("2026-01-02T03:04:05Z")},
        "spec": {"nodeName": "n1"},
    }))
    .unwrap()
}

/// What is printed about a roll of this maintenance: its first line, and the hints.
fn check(object: NodeMaintenance, state: &str, hints: &str) {
    let (mut out, captured) = output();
    print(&[object], None, &Surroundings::default(), Some("r"), OutputFormat::Table, &mut out).unwrap();
    let first = captured.data().lines().next().map(str::to_owned);
    assert_eq!(first, Some(format!("roll r: 0 done, 1 left, {state}")));
    assert_eq!(captured.messages(), hints);
}

#[test]
fn nodes_that_left_the_roll_are_counted_and_named() {
    let mut object = maintenance("Planned", false, &[]);
    let left = json!([{"node": "n4", "why": "maintenanceDeleted"}]);
    let state = json!({"revision": 2, "skipped": ["n1", "n2", "n3"], "left": left});
    object.metadata.annotations.as_mut().unwrap().insert(STATE.to_owned(), state.to_string());
    let (mut out, captured) = output();
    print(&[object], None, &Surroundings::default(), Some("r"), OutputFormat::Table, &mut out).unwrap();
    let first = captured.data().lines().next().map(str::to_owned);
    let counts = "2 skipped (n2, n3), 1 departed (n4)";
    assert_eq!(first, Some(format!("roll r: 0 done, {counts}, 1 left, not running")));
}

#[test]
fn the_state_for_programs_is_a_word_and_the_message_has_its_cause() {
    for (object, state, message) in [
        (
            maintenance("Acting", false, &[names::FINALIZER]),
            "aborted",
            "aborted by ada@laptop: nobody finishes the 1 node left",
        ),
        (
            maintenance("Draining", true, &[names::FINALIZER]),
            "ending",
            "aborted by ada@laptop, its maintenances are being deleted",
        ),
    ] {
        let (mut out, captured) = output();
        let json = OutputFormat::Data(DataFormat::Json);
        print(&[object], None, &Surroundings::default(), Some("r"), json, &mut out).unwrap();
        let document: Value = serde_json::from_str(&captured.data()).unwrap();
        assert_eq!((&document["state"], &document["message"]), (&json!(state), &json!(message)));
    }
}

#[test]
fn the_message_for_programs_has_absolute_times_and_that_for_people_says_how_long_ago() {
    let at = "2026-01-02T03:04:05.7Z";
    for (state, before, after) in [
        (json!({"revision": 2, "paused": true, "pause": {"by": "bob", "at": at}}), "paused by bob ", ""),
        (
            json!({"revision": 2, "halt": {"node": "n1", "message": "its command failed", "at": at}}),
            "halted ",
            ": its command failed",
        ),
        (
            json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": at}}),
            "ada@vm ran it, last seen ",
            "",
        ),
    ] {
        let mut object = maintenance("Acting", false, &[names::FINALIZER]);
        object.annotations_mut().insert(STATE.into(), state.to_string());
        let shown = |format| {
            let (mut out, captured) = output();
            let seen = Surroundings::default();
            print(std::slice::from_ref(&object), None, &seen, Some("r"), format, &mut out).unwrap();
            captured.data()
        };
        let document: Value = serde_json::from_str(&shown(OutputFormat::Data(DataFormat::Json))).unwrap();
        assert_eq!(document["message"], format!("{before}at 2026-01-02T03:04:05Z{after}"));
        let table = shown(OutputFormat::Table);
        let first = table.lines().next().unwrap();
        assert!(first.contains(before) && first.ends_with(&format!("ago{after}")), "{first}");
    }
}

#[test]
fn a_roll_whose_job_is_starting_is_not_to_be_resumed() {
    let of_job = |is_starting: bool| {
        let mut object = maintenance("Acting", false, &[names::FINALIZER]);
        object.annotations_mut().insert(STATE.into(), json!({"revision": 2}).to_string());
        let job = RollJob::Starting("Job a/b is starting: its pod is not scheduled".to_owned());
        let job = ("r".to_owned(), job);
        let starting = BTreeMap::from_iter(is_starting.then_some(job));
        let jobs = Surroundings { starting, ..Surroundings::default() };
        let (mut out, captured) = output();
        print(&[object.clone()], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
        let (first, hints) = (captured.data().lines().next().map(str::to_owned), captured.messages());
        let (mut out, captured) = output();
        print(&[object], None, &jobs, Some("r"), OutputFormat::Data(DataFormat::Json), &mut out).unwrap();
        let document: Value = serde_json::from_str(&captured.data()).unwrap();
        (first.unwrap(), hints, document["state"].clone())
    };
    let starting = "roll r: 0 done, 1 left, Job a/b is starting: its pod is not scheduled";
    assert_eq!(of_job(true), (starting.to_owned(), String::new(), json!("starting")));
    let (first, hints, state) = of_job(false);
    assert_eq!((first.as_str(), state), ("roll r: 0 done, 1 left, not running", json!("notRunning")));
    assert!(hints.contains("`kubectl nm roll resume r --yes` continues it"), "{hints}");
}

#[test]
fn an_aborted_roll_names_who_finishes_its_nodes_and_a_paused_one_who_paused_it() {
    let now = Timestamp::now();
    let runner = |ago: i64| {
        let at = now - jiff::SignedDuration::from_secs(ago);
        json!({"id": "x", "who": "Job a/b", "at": at, "inCluster": true})
    };
    let aborted = |ago: i64| json!({"revision": 2, "paused": true, "aborted": "ada", "runner": runner(ago)});
    let pause = json!({"by": "bob@desk", "at": now - jiff::SignedDuration::from_secs(720)});
    let paused = json!({"revision": 2, "paused": true, "pause": pause, "runner": runner(5)});
    let mut halted = aborted(5);
    halted["halt"] = json!({"node": "n1", "message": "its command failed", "at": now});
    let job = || BTreeMap::from([("r".to_owned(), RollJob::Starting("Job a/b is starting".to_owned()))]);
    let title = runner_job::title("r");
    let nobody = String::from("aborted by ada: nobody finishes the 1 node left");
    for (state, jobs, sentence, finisher, is_continued) in [
        (
            aborted(5),
            BTreeMap::new(),
            String::from("aborted by ada: Job a/b finishes 1 node"),
            json!("Job a/b"),
            false,
        ),
        (aborted(600), BTreeMap::new(), nobody.clone(), Value::Null, true),
        (aborted(600), job(), format!("aborted by ada: {title} finishes 1 node"), json!(title), false),
        (halted, BTreeMap::new(), nobody, Value::Null, true),
        (paused, BTreeMap::new(), String::from("paused by bob@desk 12m ago"), Value::Null, true),
    ] {
        let jobs = Surroundings { starting: jobs, ..Surroundings::default() };
        let mut object = maintenance("Acting", false, &[names::FINALIZER]);
        object.annotations_mut().insert(STATE.into(), state.to_string());
        let (mut out, captured) = output();
        print(&[object.clone()], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
        let first = captured.data().lines().next().map(str::to_owned);
        assert_eq!(first, Some(format!("roll r: 0 done, 1 left, {sentence}")));
        assert_eq!(
            captured.messages().contains("`kubectl nm roll resume r --yes` continues it"),
            is_continued,
            "{state}"
        );
        let (mut out, captured) = output();
        print(&[object], None, &jobs, Some("r"), OutputFormat::Data(DataFormat::Json), &mut out).unwrap();
        let document: Value = serde_json::from_str(&captured.data()).unwrap();
        assert_eq!((&document["finishedBy"], &document["pause"]), (&finisher, &state["pause"]));
    }
}

#[test]
fn a_job_that_cannot_start_or_be_read_is_named_with_what_repairs_it() {
    let of_job = |aborted: Option<&str>, job: RollJob| {
        let mut object = maintenance("Acting", false, &[names::FINALIZER]);
        let state = json!({"revision": 2, "aborted": aborted}).to_string();
        object.annotations_mut().insert(STATE.into(), state);
        let settings = object.annotations_mut().get_mut(SETTINGS).unwrap();
        let mut known: Value = serde_json::from_str(settings).unwrap();
        known["inCluster"] = json!(true);
        *settings = known.to_string();
        let jobs =
            Surroundings { starting: BTreeMap::from([("r".to_owned(), job)]), ..Surroundings::default() };
        let (mut out, captured) = output();
        print(&[object], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
        (captured.data().lines().next().unwrap().to_owned(), captured.messages())
    };
    let words = String::from("Job a/b is starting: pod p: ImagePullBackOff");
    let (first, hints) = of_job(None, RollJob::Stuck { words: words.clone(), is_image: true });
    assert!(first.ends_with(&words), "{first}");
    assert!(hints.contains("`kubectl nm roll resume r --runner-image IMAGE`"), "{hints}");
    assert!(!hints.contains("continues it"), "{hints}");
    let unread = || RollJob::Unread("jobs is forbidden".into());
    let (first, hints) = of_job(None, unread());
    assert!(first.ends_with("not running; its Job cannot be read: jobs is forbidden"), "{first}");
    assert!(hints.contains("`kubectl nm roll resume r --yes` continues it"), "{hints}");
    let (first, _) = of_job(Some("ada"), unread());
    let title = runner_job::title("r");
    let rest = format!("nobody finishes the 1 node left, unless {title} still runs the roll");
    assert!(first.ends_with(&rest), "{first}");
}

#[test]
fn the_window_for_programs_is_open_or_closed_until_a_time_or_null() {
    let now = "2027-03-06T20:00:00Z".parse().unwrap();
    for (text, expected) in [
        (None, Value::Null),
        (Some("19:00-21:00 UTC"), json!({"isOpen": true, "closes": "2027-03-06T21:00:00Z"})),
        (Some("21:00-22:00 UTC"), json!({"isOpen": false, "opens": "2027-03-06T21:00:00Z"})),
        (Some("00:00-24:00 UTC"), json!({"isOpen": true, "closes": null})),
    ] {
        let windows = Windows(text.map(|text: &str| text.parse().unwrap()).into_iter().collect());
        assert_eq!(window(&windows, now), expected, "{text:?}");
    }
}

#[test]
fn an_aborted_roll_is_continued_only_if_something_is_left_of_it() {
    let ours = [names::FINALIZER];
    let ends = "aborted by ada@laptop, its maintenances are being deleted";
    check(maintenance("Draining", true, &ours), ends, "");
    let left = "aborted by ada@laptop: nobody finishes the 1 node left";
    let hint = "hint: `kubectl nm roll resume r --yes` continues it\n";
    let returned = format!(
        "hint: once the work is done, `kubectl nm roll abort r --return --yes` or `kubectl nm stop n1` returns the node to service; {}",
        hint.trim_start_matches("hint: ")
    );
    check(maintenance("Acting", false, &ours), left, &returned);
    check(maintenance("Recovering", true, &[FINALIZER]), left, hint);
}

#[test]
fn the_pod_of_a_nodes_job_that_does_not_start_shows_why() {
    let mut object = maintenance("Acting", false, &[names::FINALIZER]);
    object.metadata.uid = Some("u".to_owned());
    let runner = json!({"id": "x", "who": "ada@laptop", "at": Timestamp::now()});
    object.annotations_mut().insert(STATE.into(), json!({"revision": 2, "runner": runner}).to_string());
    let why = "pod r-0-x: ErrImagePull: no such image";
    let problems = BTreeMap::from([("n1".to_owned(), why.to_owned())]);
    let jobs = Surroundings { problems, ..Surroundings::default() };
    let (mut out, captured) = output();
    print(&[object], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
    assert!(captured.data().contains(why), "{}", captured.data());
}

#[test]
fn a_roll_that_a_lost_node_has_halted_names_how_to_go_on_without_it() {
    let hints = |conditions: Value| {
        let mut object = maintenance("Acting", false, &[names::FINALIZER]);
        object.metadata.uid = Some("u".to_owned());
        let halt = json!({"node": "n1", "message": "node n1 is not back", "at": Timestamp::now()});
        object.annotations_mut().insert(STATE.into(), json!({"revision": 2, "halt": halt}).to_string());
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"},
            "status": {"conditions": conditions}}))
        .unwrap();
        let (mut out, captured) = output();
        print(&[object], Some(&[node]), &Surroundings::default(), Some("r"), OutputFormat::Table, &mut out)
            .unwrap();
        captured.messages()
    };
    let skip = "; with --skip n1, without that node";
    let lost = hints(json!([{"type": "Ready", "status": "Unknown"}]));
    let ready = hints(json!([{"type": "Ready", "status": "True"}]));
    assert!(lost.contains(skip) && !ready.contains(skip), "{lost}{ready}");
    let explained = "hint: `kubectl nm explain n1` shows why, and what to do; then `kubectl nm roll resume r --yes` continues it";
    assert!(lost.starts_with(explained) && ready.starts_with(explained), "{lost}{ready}");
}

#[test]
fn a_roll_whose_drain_has_ended_since_it_halted_shows_that_and_a_failed_job_the_command_for_its_log() {
    let shown = |step: &str, status: &Value, halt: Value| {
        let mut object = maintenance(step, false, &[names::FINALIZER]);
        object.metadata.uid = Some("u".to_owned());
        object.status = serde_json::from_value(status.clone()).unwrap();
        object.annotations_mut().insert(STATE.into(), json!({"revision": 2, "halt": halt}).to_string());
        if step == "Acting" {
            let settings = object.annotations_mut().get_mut(SETTINGS).unwrap();
            let mut all: Value = serde_json::from_str(settings).unwrap();
            all["action"] = json!({"job": {"metadata": {"namespace": "ops"}}});
            *settings = all.to_string();
            let node = object.annotations_mut().get_mut(NODE).unwrap();
            *node = node.replace("\"running\"", "{\"jobFailed\":\"no\"}");
        }
        let (mut out, captured) = output();
        print(&[object], None, &Surroundings::default(), Some("r"), OutputFormat::Table, &mut out).unwrap();
        (captured.data().lines().next().unwrap().to_owned(), captured.messages())
    };
    let halt = json!({"node": "n1", "message": "the drain failed", "at": Timestamp::now(), "cause": "drain"});
    let (first, hints) = shown("Draining", &json!({"phase": "Succeeded"}), halt.clone());
    assert!(first.ends_with("halted 0s ago: the drain failed; by now, node n1 is drained"), "{first}");
    assert!(hints.starts_with("hint: `kubectl nm roll resume r --yes` continues it"), "{hints}");
    let (first, _) = shown("Draining", &json!({"phase": "Failed"}), halt);
    assert!(first.ends_with("halted 0s ago: the drain failed"), "{first}");

    let halt = json!({"node": "n1", "message": "the action failed", "at": Timestamp::now()});
    let (_, hints) = shown("Acting", &json!({"phase": "Succeeded"}), halt);
    let log = "hint: `kubectl -n ops logs job/r-0-1767323045` shows what its Job printed; `kubectl nm explain n1` shows why";
    assert!(hints.starts_with(log), "{hints}");
}

#[test]
fn who_has_to_confirm_a_node_is_told_where() {
    let mut object = maintenance("Confirming", false, &[names::FINALIZER]);
    let runner = json!({"id": "x", "who": "ada@laptop", "at": Timestamp::now()});
    object.annotations_mut().insert(STATE.into(), json!({"revision": 2, "runner": runner}).to_string());
    check(
        object,
        "ada@laptop runs it",
        "hint: on the terminal where ada@laptop runs the roll, answer whether it continues with n1\n",
    );
}

#[tokio::test]
async fn a_roll_of_which_a_node_needs_a_leader_is_shown_with_a_warning_if_nobody_leads() {
    let spec = json!({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z", "leaseDurationSeconds": 15});
    let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
    let leases = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]});
    let (cluster, _) = cluster(move |_, _| (200, leases.clone()));
    let returning = maintenance("Returning", true, &[names::FINALIZER, FINALIZER]);
    let soaking = maintenance("Soaking", true, &[FINALIZER]);
    for (shown, object, is_warned) in [
        (None, &returning, true),
        (Some("r"), &returning, true),
        (Some("other"), &returning, false),
        (Some("r"), &soaking, false),
    ] {
        let (mut out, captured) = output();
        warn_of_leader(shown, std::slice::from_ref(object), &cluster, &mut out).await;
        let said = captured.messages();
        assert_eq!(said.starts_with("warning: no nm-reconciler leads: "), is_warned, "{shown:?}: {said}");
        assert_eq!(said.is_empty(), !is_warned, "{shown:?}: {said}");
    }
}
