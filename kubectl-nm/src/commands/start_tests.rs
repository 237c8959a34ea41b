//! The decisions of `start`, and its requests.

use nm_core::maintenance::ROLL_LABEL;
use nm_core::maintenance::roll::STATE;
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure, list, nodes};
use nm_core::testing::objects::{named, requested, running, stopping, with_status};
use nm_shared::DrainSpec;
use serde_json::{Value, json};

use super::*;

fn args(line: &str) -> StartArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: StartArgs,
    }
    <Line as clap::Parser>::try_parse_from(std::iter::once("nm").chain(line.split(' '))).unwrap().args
}

/// Starts nodes in a cluster that answers so; how it ended, what was printed and how many were created.
async fn start(
    line: &str,
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Result<Exit, Error>, String, usize) {
    let (cluster, requests) = cluster(answer);
    let (mut out, captured) = output();
    // What the plan would say has tests of its own.
    let ended = run(args(&format!("{line} --no-plan")), &cluster, &mut out).await;
    let created = requests.lock().unwrap().iter().filter(|request| request.starts_with("POST")).count();
    (ended, captured.data() + &captured.messages(), created)
}

fn created(node: &str) -> (u16, Value) {
    (201, serde_json::to_value(requested(node)).unwrap())
}

#[tokio::test]
async fn a_typo_in_one_name_starts_nothing() {
    let (ended, _, posts) = start("n1 n2 -y", |method, path| match (method, path) {
        ("POST", _) => created("n1"),
        (_, "/api/v1/nodes/n1") => (200, json!({"metadata": {"name": "n1"}})),
        (_, "/api/v1/nodes/n2") => failure(404, "NotFound", "n2"),
        (_, "/api/v1/nodes") => nodes(&["n1"]),
        _ => list(&[]),
    })
    .await;
    assert!(matches!(ended, Err(Error::UnknownNodes { names, .. }) if names == ["n2"]));
    assert_eq!(posts, 0);
}

#[tokio::test]
async fn where_the_definition_prunes_a_setting_no_drain_begins() {
    for (flags, pruned) in [
        ("--wait-for-completion", "waitForCompletion"),
        ("--wait-for-volume-detach", "waitForVolumeDetach"),
        ("--surge", "surge"),
        ("--force=false --timeout 1m", "force, spec.drain.timeoutSeconds"),
    ] {
        let (ended, printed, posts) = start(&format!("n1 {flags}"), |method, path| match method {
            "POST" => created("n1"),
            _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
            _ => list(&[]),
        })
        .await;
        let error = ended.map(|_| ()).unwrap_err().to_string();
        let expected = format!("the CRD of NodeMaintenance in this cluster has no spec.drain.{pruned}");
        assert_eq!((error, printed.as_str(), posts), (expected, "", 1), "only the dry run");
    }
}

#[tokio::test]
async fn a_setting_that_the_cluster_changes_is_not_reported_as_pruned() {
    let mut stored = requested("n1");
    stored.spec.drain = Some(DrainSpec { timeout_seconds: 600, force: false, ..DrainSpec::default() });
    let (ended, printed, posts) = start("n1 --timeout 1h", move |method, path| match method {
        "POST" => (201, serde_json::to_value(&stored).unwrap()),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(&[]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 2), "{printed}");
}

#[tokio::test]
async fn no_access_to_nodes_is_needed() {
    let (ended, printed, posts) = start("n1 n1", |method, path| match method {
        "POST" => created("n1"),
        _ if path.starts_with("/api/v1/nodes/") => failure(403, "Forbidden", "n1"),
        _ => list(&[]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 1));
    assert_eq!(
        printed,
        "node/n1 maintenance started\nnode/n1: cannot check that it exists, because you have no permission to read nodes\n"
    );
}

#[tokio::test]
async fn losing_a_race_is_a_success_if_the_winner_requested_the_same() {
    for (winner, expected) in [
        (requested("n1"), "node/n1 is already in maintenance\n"),
        (
            stopping(requested("n1")),
            "error: node \"n1\" is returning to service: its maintenance is being deleted\n",
        ),
    ] {
        let (ended, printed, _) = start("n1", move |method, path| match method {
            "POST" => failure(409, "AlreadyExists", "n1"),
            _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
            _ if path.ends_with("/n1") => (200, serde_json::to_value(&winner).unwrap()),
            _ => list(&[]),
        })
        .await;
        assert!(printed.starts_with(expected), "{printed}");
        assert_eq!(ended.unwrap() == Exit::Done, !printed.starts_with("error"));
    }
}

#[tokio::test]
async fn one_refusal_does_not_hide_what_was_started() {
    let (ended, printed, posts) = start("n1 n2 -y", |method, path| match method {
        "POST" => failure(403, "Forbidden", "x"),
        _ if path.starts_with("/api/v1/nodes/") => failure(500, "InternalError", "x"),
        _ => list(&[requested("n1"), named("other", "n2", "u")]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 0));
    assert_eq!(
        printed,
        "node/n1 is already in maintenance\nnode/n2 is already in maintenance (NodeMaintenance other)\n"
    );
    let (ended, printed, _) = start("n1 n2 -y", |method, path| match method {
        "POST" => failure(403, "Forbidden", "x"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n2"}})),
        _ => list(&[requested("n1")]),
    })
    .await;
    assert_eq!(ended.unwrap(), Exit::Error);
    assert!(printed.contains(
        "node/n1 is already in maintenance\nError from server (Forbidden): x Forbidden (node/n2)\nhint: "
    ));
}

#[tokio::test]
async fn if_half_of_fifty_fail_the_others_are_started() {
    let line = (0..50).fold(String::from("-y"), |line, n| format!("{line} n{n}"));
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let (ended, printed, posts) = start(&line, move |method, path| match method {
        "POST" if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) => created("n1"),
        "POST" => failure(403, "Forbidden", "x"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n"}})),
        _ => list(&[]),
    })
    .await;
    assert_eq!((ended.unwrap(), posts), (Exit::Error, 50));
    let count = |text: &str| printed.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("maintenance started"), count("Error from server"), count("hint: ")), (25, 25, 1));
    let (named, every) =
        (|n| printed.contains(&format!("node/n{n} ")) || printed.contains(&format!("(node/n{n})")), 0..50);
    assert!(every.into_iter().all(named), "{printed}");
}

#[tokio::test]
async fn an_existing_maintenance_with_another_spec_fails_only_its_node() {
    let mut stored = requested("n2");
    stored.spec.drain = Some(DrainSpec { force: false, ..DrainSpec::default() });
    let answer = move |method: &str, path: &str| match method {
        "POST" => (201, serde_json::to_value(&stored).unwrap()),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n2"}})),
        _ => list(&[requested("n1")]),
    };
    let (ended, printed, posts) = start("n1 n2 -y --reason kernel --force=false", answer).await;
    assert_eq!((ended.unwrap(), posts), (Exit::Error, 2), "a dry run, and the creation");
    assert_eq!(
        printed,
        "node/n2 maintenance started\n\
         error: node \"n1\" is already in maintenance, but reason is not set and not \"kernel\", \
         drain.force is true and not false\n\
         hint: `kubectl patch nm n1 --type=merge -p '{\"spec\":{\"drain\":{\"force\":false},\"reason\":\"kernel\"}}'` \
         changes it\n"
    );
}

#[tokio::test]
async fn a_node_that_waits_for_its_turn_in_a_roll_is_left_to_the_roll() {
    let mut planned = requested("n1");
    planned.spec.suspend = true;
    planned.labels_mut().insert(ROLL_LABEL.to_owned(), "kernel".to_owned());
    let answer = move |_: &str, path: &str| match path {
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(std::slice::from_ref(&planned)),
    };
    let (ended, printed, posts) = start("n1 -y", answer).await;
    assert_eq!((ended.unwrap(), posts), (Exit::Error, 0));
    assert!(printed.starts_with("error: node \"n1\" is part of roll \"kernel\"\n"), "{printed}");
    assert!(printed.contains("`kubectl nm roll status kernel`"), "{printed}");
}

#[tokio::test]
async fn the_drain_of_a_node_of_a_roll_is_not_to_be_changed_because_its_action_would_begin_early() {
    let mut draining = requested("n1");
    draining.labels_mut().insert(ROLL_LABEL.to_owned(), "kernel".to_owned());
    let answer = move |_: &str, path: &str| match path {
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(std::slice::from_ref(&draining)),
    };
    for other in ["--pod-selector app=low", "--suspend", "--hook flush=team"] {
        let (ended, printed, _) = start(&format!("n1 -y {other}"), answer.clone()).await;
        assert_eq!(ended.unwrap(), Exit::Error);
        assert!(printed.starts_with("error: node \"n1\" is part of roll \"kernel\"\n"), "{printed}");
        assert!(!printed.contains("patch"), "{printed}");
    }
}

#[tokio::test]
async fn a_node_of_a_roll_that_runs_is_not_told_to_resume_the_roll() {
    let mut planned = requested("n1");
    planned.spec.suspend = true;
    planned.labels_mut().insert(ROLL_LABEL.to_owned(), "kernel".to_owned());
    let runner = json!({"id": "x", "who": "ada@vm", "at": Timestamp::now()});
    let record = json!({"revision": 1, "runner": runner}).to_string();
    planned.annotations_mut().insert(STATE.to_owned(), record);
    let answer = move |_: &str, path: &str| match path {
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(std::slice::from_ref(&planned)),
    };
    let (_, printed, _) = start("n1 -y", answer).await;
    let watch = "ada@vm runs the roll: `kubectl nm roll watch kernel` shows the progress";
    assert!(printed.contains(watch) && !printed.contains("`kubectl nm roll resume kernel`"), "{printed}");
}

#[tokio::test]
async fn a_dry_run_creates_nothing() {
    let answer = |method: &str, path: &str| match method {
        "POST" => created("n1"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(&[]),
    };
    for (how, posted, said) in [("client", 0, "(dry run)"), ("server", 1, "(server dry run)")] {
        let (ended, printed, posts) = start(&format!("n1 n2 --wait --dry-run {how}"), answer).await;
        assert_eq!((ended.unwrap(), posts), (Exit::Done, 2 * posted), "{how}");
        assert_eq!(
            printed,
            format!("node/n1 maintenance started {said}\nnode/n2 maintenance started {said}\n")
        );
    }
    let (_, printed, _) = start("n1 --dry-run client --order PriorityAscending -o json", answer).await;
    let object: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(object["spec"]["drain"]["order"], "PriorityAscending");
}

#[tokio::test]
async fn a_dry_run_reports_what_the_drain_would_harm_and_asks_nothing() {
    let node = || json!({"metadata": {"name": "n1"}, "status": {}});
    let objects =
        |items: Value| (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}));
    let answer = move |method: &str, path: &str| match (method, path) {
        ("POST", path) if path.ends_with("/nodemaintenances") => created("n1"),
        ("POST", _) => failure(404, "NotFound", "x"),
        (_, "/api/v1/nodes/n1") => (200, node()),
        (_, "/api/v1/nodes") => objects(json!([node()])),
        (_, path) if path.ends_with("/nodemaintenances") => list(&[]),
        // The resources of an API group.
        (_, path) if path.split('/').count() == 4 && path.starts_with("/apis/") => {
            failure(404, "NotFound", "x")
        }
        _ => objects(json!([])),
    };
    let run = async |line: &str| {
        let (cluster, _) = cluster(answer);
        let (mut out, captured) = output();
        let ended = run(args(line), &cluster, &mut out).await;
        (ended.unwrap(), captured.data(), captured.messages())
    };
    let (_, _, harms) = run("n1 -y").await;
    assert!(harms.contains("no schedulable node is left in the cluster\n"), "{harms}");
    for how in ["client", "server"] {
        let (exit, data, messages) = run(&format!("n1 --dry-run={how}")).await;
        assert_eq!((exit, &messages), (Exit::Done, &harms), "{how}");
        assert!(data.starts_with("node/n1 maintenance started ("), "{data}");
        let (_, data, messages) = run(&format!("n1 --dry-run={how} -o name")).await;
        assert_eq!((data.lines().count(), &messages), (1, &harms), "{how}: {data}");
        for without in ["--no-plan", "--suspend"] {
            let messages = run(&format!("n1 --dry-run={how} {without}")).await.2;
            assert!(!messages.contains("schedulable"), "{how} {messages}");
        }
    }
}

#[tokio::test]
async fn nothing_is_started_unless_all_nodes_can_be() {
    let answer = |method: &str, path: &str| match method {
        "POST" => created("n2"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n2"}})),
        _ => list(&[stopping(requested("n1")), named("n3", "x", "u")]),
    };
    let (ended, _, posts) = start("n2 n1 -y", answer).await;
    assert!(matches!(ended, Err(Error::Ending(node)) if node == "n1"));
    assert_eq!(posts, 0);
    let (ended, _, posts) = start("n2 n3 -y", answer).await;
    assert!(matches!(ended, Err(Error::NameTaken { other, .. }) if other == "x"));
    assert_eq!(posts, 0);
    let (ended, _, posts) = start("n2 n4", answer).await;
    assert!(matches!(ended, Err(Error::Unconfirmed)));
    assert_eq!(posts, 0);
}

/// Answers of a cluster in which these nodes are in maintenance and all others exist.
fn with_maintenances(
    of: &'static [&'static str],
) -> impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static {
    move |method, path| match (method, path) {
        ("POST", _) => created("n3"),
        _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "x"}})),
        _ => list(&of.iter().map(|node| requested(node)).collect::<Vec<_>>()),
    }
}

#[tokio::test]
async fn only_new_maintenances_have_to_be_confirmed() {
    let already = "node/n1 is already in maintenance\nnode/n2 is already in maintenance\n";
    let (ended, printed, _) = start("n1 n2", with_maintenances(&["n1", "n2"])).await;
    assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, already));
    let (ended, printed, posts) = start("n1 n2 n3", with_maintenances(&["n1", "n2"])).await;
    assert_eq!((ended.unwrap(), posts), (Exit::Done, 1), "one node needs no confirmation: {printed}");
    let (ended, _, _) = start("n1 n2 n3", with_maintenances(&["n1"])).await;
    assert!(matches!(ended, Err(Error::Unconfirmed)));
}

#[tokio::test]
async fn a_client_dry_run_prints_existing_objects_without_server_fields() {
    let (ended, printed, _) = start("n1 --dry-run client -o json", with_maintenances(&["n1"])).await;
    assert_eq!(ended.unwrap(), Exit::Done);
    let object: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(object["spec"]["nodeName"], "n1");
    assert_eq!((&object["metadata"], object.get("status")), (&json!({"name": "n1"}), None), "{printed}");
}

#[tokio::test]
async fn the_timeout_of_a_wait_is_not_compared_with_an_existing_maintenance() {
    let (cluster, _) = cluster(|_, _| failure(500, "InternalError", "x"));
    let existing = || Started { object: requested("n1"), created: false };
    let rolls = RollRunners::default();
    let there = |line: &str| check_existing(existing(), &args(line), &rolls, &cluster);
    assert!(matches!(there("n1 --timeout 60s"), Err(Error::Differs { .. })));
    assert!(matches!(there("n1 --timeout 60s --wait --force=false"), Err(Error::Differs { .. })));
    assert!(!there("n1 --timeout 60s --wait").unwrap().created);
    let started = [true, false].map(|created| Started { object: requested("n1"), created });
    let tracked = |line: &str| tracker(&args(line), &started, true);
    assert_eq!(
        (tracked("n1 --wait").exit_condition(), tracked("n1").exit_condition()),
        (ExitCondition::Goal(Goal::Drained), ExitCondition::Never)
    );
}

#[tokio::test]
async fn the_hooks_that_delay_the_first_eviction_are_named() {
    let hooked = || {
        let mut object = requested("n1");
        let hook = ("pre-drain.hook.kubectl-nm.dev/flush".to_owned(), "cache-team".to_owned());
        object.metadata.annotations = Some([hook].into());
        object
    };
    let answer = move |exists: bool| {
        move |method: &str, path: &str| match method {
            "POST" => (201, serde_json::to_value(hooked()).unwrap()),
            _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
            _ => list(&if exists { vec![hooked()] } else { vec![] }),
        }
    };
    let named = "node/n1: no pod is evicted until hook flush (owner: cache-team) is removed\n";
    let (_, printed, _) = start("n1 --hook flush=cache-team", answer(false)).await;
    assert_eq!(printed, format!("node/n1 maintenance started\n{named}"));
    let (_, printed, _) = start("n1", answer(true)).await;
    assert_eq!(printed, format!("node/n1 is already in maintenance\n{named}"));
}

#[tokio::test]
async fn a_node_of_a_roll_may_return_to_service_while_somebody_works_on_it() {
    let runner = || json!({"id": "x", "who": "ada@vm", "at": Timestamp::now()});
    let halt = json!({"node": "n1", "message": "its command failed", "at": Timestamp::UNIX_EPOCH});
    for (record, expected) in [
        (None, "which may return it to service at any time"),
        (Some(json!({"runner": runner()})), "which may return it to service at any time"),
        (Some(json!({"runner": runner(), "aborted": "bob"})), "which may return it to service at any time"),
        (
            Some(json!({"runner": runner(), "halt": halt})),
            "which has halted, and may return it to service once it continues",
        ),
        (Some(json!({"paused": true})), "which is paused, and may return it to service once it continues"),
        (Some(json!({})), "which nobody runs now, and which may return it to service once it continues"),
        (Some(json!({"aborted": "bob"})), "which was aborted, and does not return it to service"),
    ] {
        let mut of_roll = requested("n1");
        of_roll.labels_mut().insert(ROLL_LABEL.to_owned(), "kernel".to_owned());
        if let Some(record) = &record {
            of_roll.annotations_mut().insert(STATE.to_owned(), record.to_string());
        }
        let (_, printed, _) = start("n1", move |_, path| match path {
            "/api/v1/nodes/n1" => (200, json!({"metadata": {"name": "n1"}})),
            _ => list(std::slice::from_ref(&of_roll)),
        })
        .await;
        let line = format!("node/n1 is already in maintenance as part of roll kernel, {expected}\n");
        assert_eq!(printed, line, "{record:?}");
    }
}

#[tokio::test]
async fn an_existing_maintenance_that_makes_no_progress_is_printed_with_its_state() {
    let hint = "hint: `kubectl nm explain n1` shows why, and what continues the drain\n";
    for (status, flags, state, hint) in [
        (json!({"phase": "Failed", "lastError": "timed out"}), "", ": Failed", hint),
        (running(40, &[("a", "m")]), "", ": Blocked", hint),
        (json!({"phase": "Succeeded"}), "", ": Drained", ""),
        (
            json!({"phase": "Succeeded", "unselectedPods": 7}),
            "",
            ": Drained; 7 pods stay: podSelector does not match them",
            "",
        ),
        (json!({"phase": "Running"}), "", "", ""),
        (json!({"phase": "Failed"}), " --dry-run", "", ""),
    ] {
        let object = with_status("n1", status.clone());
        let (ended, printed, _) = start(&format!("n1{flags}"), move |_, path| match path {
            "/api/v1/nodes/n1" => (200, json!({"metadata": {"name": "n1"}})),
            _ => list(std::slice::from_ref(&object)),
        })
        .await;
        assert_eq!(ended.unwrap(), Exit::Done);
        assert_eq!(printed, format!("node/n1 is already in maintenance{state}\n{hint}"), "{status}");
    }
    let mut of_roll = with_status("n1", json!({"phase": "Succeeded", "unselectedPods": 1}));
    of_roll.labels_mut().insert(ROLL_LABEL.to_owned(), "kernel".to_owned());
    let (_, printed, _) = start("n1", move |_, path| match path {
        "/api/v1/nodes/n1" => (200, json!({"metadata": {"name": "n1"}})),
        _ => list(std::slice::from_ref(&of_roll)),
    })
    .await;
    let rest = "as part of roll kernel, which may return it to service at any time; 1 pod stays: podSelector does not match it\n";
    assert_eq!(printed, format!("node/n1 is already in maintenance: Drained, {rest}"));
}

#[tokio::test]
async fn a_webhook_that_nobody_serves_is_reported_with_the_node_and_the_remedy() {
    let raw = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\": failed to call webhook: \
               Post \"https://nm-reconciler.nm.svc:443/v\": no endpoints available for service \"nm-reconciler\"";
    for flags in ["", " --timeout 1m"] {
        let (ended, printed, _) = start(&format!("n1{flags}"), move |method, path| match method {
            "POST" => (
                500,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": raw,
                    "reason": "InternalError", "code": 500}),
            ),
            _ if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"name": "n1"}})),
            _ => list(&[]),
        })
        .await;
        assert_eq!(ended.unwrap(), Exit::Error);
        let (error, hint) = printed.split_once('\n').unwrap();
        assert!(error.ends_with("the webhook of nm-reconciler does not respond (node/n1)"), "{printed}");
        assert!(hint.contains("`kubectl nm doctor`") && hint.contains("no endpoints available"), "{printed}");
    }
}
