//! The output of `status`.

use nm_core::maintenance::ROLL_LABEL;
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure, list, nodes};
use nm_core::testing::objects::{named, requested, running, stopping, with_status};

use super::*;
use nm_shared::api::maintenance::DrainSpec;

fn now() -> Timestamp {
    "2026-01-02T03:07:25Z".parse().unwrap()
}

fn args(line: &str) -> MaintenanceStatusArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: MaintenanceStatusArgs,
    }
    let words = std::iter::once("nm").chain(line.split_whitespace());
    <Line as clap::Parser>::try_parse_from(words).unwrap().args
}

fn raw(object: &NodeMaintenance) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn tables_look_as_in_kubectl() {
    let mut wide = with_status("n2", running(40, &[("cart-0", "m")]));
    wide.spec.reason = Some("new \x1b[31mkernel".into());
    let pods = |count: usize| (0..count).map(|at| format!("cart-{at}")).collect::<Vec<_>>();
    wide.status.as_mut().unwrap().pending_pods = pods(2);
    let mut full = with_status("n3", running(40, &[("cart-0", "m")]));
    full.status.as_mut().unwrap().pending_pods = pods(12);
    let mut of_roll = requested("n1");
    of_roll.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
    let objects = [of_roll, wide, full];
    let text = |wide| table(&objects, wide, now()).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        text(false),
        [
            "NODE   STATE       PROGRESS   BLOCKED   AGE",
            "n1     Requested   <none>     0         3m20s",
            "n2     Blocked     40%        1         3m20s",
            "n3     Blocked     40%        1         3m20s",
        ]
    );
    assert_eq!(
        text(true),
        [
            "NODE   STATE       PROGRESS   BLOCKED   AGE     NAME   ROLL     PENDING                      REASON",
            "n1     Requested   <none>     0         3m20s   n1     kernel   <none>                       <none>",
            "n2     Blocked     40%        1         3m20s   n2     <none>   cart-0,cart-1                new ^[[31mkernel",
            "n3     Blocked     40%        1         3m20s   n3     <none>   cart-0,cart-1 + 10 more...   <none>",
        ]
    );
}

#[test]
fn a_maintenance_that_failed_or_is_drained_and_is_paused_has_both_words() {
    let conditions = |status: &str| {
        serde_json::json!([{"type": "Suspended", "status": status, "reason": "Paused", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    };
    let state = |phase: &str, suspended: &str| {
        let object =
            with_status("n1", serde_json::json!({"phase": phase, "conditions": conditions(suspended)}));
        let row = table(&[object], false, now())[1].to_string();
        row.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(state("Failed", "True"), "Failed,Paused");
    assert_eq!(state("Failed", "False"), "Failed");
    assert_eq!(state("Succeeded", "True"), "Drained,Paused");
    assert_eq!(state("Running", "True"), "Paused");
}

#[test]
fn blocked_pods_are_printed_on_stderr() {
    let (mut out, captured) = output();
    in_table(&[with_status("n1", running(40, &[("cart-0", "m")]))], false, &mut out).unwrap();
    assert_eq!(captured.data().lines().count(), 2);
    assert_eq!(captured.messages(), "node/n1: blocked shop/cart-0: DisruptionBudget: m\n");
}

#[test]
fn nothing_is_blocked_once_the_maintenance_is_being_deleted() {
    let mut stopping = with_status("n1", running(40, &[("cart-0", "m")]));
    stopping.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-02T03:06:05Z\"").unwrap());
    let (mut out, captured) = output();
    in_table(&[stopping], false, &mut out).unwrap();
    let row = captured.data().lines().nth(1).unwrap().to_owned();
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["n1", "Stopping", "40%", "0"]);
    assert_eq!(captured.messages(), "");
}

/// As the medik8s operator writes it, and as nm-reconciler's is where that operator's definition prunes it.
#[test]
fn without_details_the_last_error_is_printed_and_no_count() {
    let status = serde_json::json!({"phase": "Running", "drainProgress": 50, "evictionPods": 2, "totalpods": 3,
        "lastError": "pod shop/cart-0: PDB shop/cart", "pendingPods": ["cart-0"],
        "pendingPodsRefs": [{"namespace": "shop", "name": "cart-0"}]});
    let (mut out, captured) = output();
    in_table(&[with_status("n1", status)], false, &mut out).unwrap();
    assert!(captured.data().contains("Draining   50%        <unknown>"), "{}", captured.data());
    assert_eq!(captured.messages(), "node/n1: error: pod shop/cart-0: PDB shop/cart\n");
}

#[test]
fn a_queued_maintenance_says_why_unless_it_waits_for_its_turn() {
    let printed = |queue: Value| {
        let status = serde_json::json!({"phase": "Pending", "queue": queue,
            "lastError": "another holder has the lease of the node: remediation"});
        let (mut out, captured) = output();
        in_table(&[with_status("n1", status)], false, &mut out).unwrap();
        captured.messages()
    };
    let why = "node/n1: another holder has the lease of the node: remediation\n";
    assert_eq!(printed(Value::Null), why);
    assert_eq!(printed(serde_json::json!({"position": 2, "length": 90})), "");
}

#[test]
fn the_result_of_a_drain_is_printed_on_stderr_unless_there_are_many() {
    let drained = |node: &str| {
        let at = |type_: &str, time: &str| serde_json::json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
        with_status(
            node,
            serde_json::json!({"phase": "Succeeded", "evictionPods": 3, "podCounts": {"gone": 3}, "departedPods": {}, "conditions": [
                at("Cordoned", "2026-01-02T03:04:05Z"), at("Drained", "2026-01-02T03:06:15Z")]}),
        )
    };
    let (mut out, captured) = output();
    in_table(&[drained("n1"), requested("n2")], false, &mut out).unwrap();
    assert_eq!(captured.messages(), "node/n1: 3 pods gone in 2m10s\n");
    let failed = |reason: &str, error: &str, timeout_seconds: i64| {
        let status = serde_json::json!({"phase": "Failed", "evictionPods": 7, "podCounts": {"gone": 5, "blocked": 2},
            "lastError": error, "conditions": [{"type": "Drained", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T03:06:15Z"}]});
        let mut failed = with_status("n1", status);
        failed.spec.drain = Some(DrainSpec { timeout_seconds, ..DrainSpec::default() });
        let (mut out, captured) = output();
        in_table(&[failed], false, &mut out).unwrap();
        captured.messages()
    };
    let blocked =
        "the drain timed out after 45 s, 2 pods left; pod shop/cart-0: PDB cart; pod shop/cart-1: PDB cart";
    let line = "node/n1: the drain timed out after 45 s; 5 of 7 pods gone\n";
    assert_eq!(failed("TimedOut", blocked, 45), line);
    let removed = "node/n1: the drain timed out; 5 of 7 pods gone\n";
    assert_eq!(failed("TimedOut", blocked, 0), removed, "the time limit has been removed since");
    let invalid = "node/n1: the selector is invalid: a; b; 5 of 7 pods gone\n";
    assert_eq!(failed("InvalidDrain", "the selector is invalid: a; b", 45), invalid);
    let many: Vec<NodeMaintenance> = (0..=MAX_RESULTS).map(|at| drained(&format!("n{at}"))).collect();
    let (mut out, captured) = output();
    in_table(&many, false, &mut out).unwrap();
    assert_eq!(captured.messages(), "");
}

#[test]
fn pods_that_the_drain_waits_for_are_printed_on_stderr() {
    let mut status = running(40, &[]);
    status["waitingPods"] = serde_json::json!([{"namespace": "shop", "name": "import-x", "reason": "Completing",
            "since": "2026-01-02T03:04:05Z"}]);
    let (mut out, captured) = output();
    in_table(&[with_status("n1", status.clone())], false, &mut out).unwrap();
    let line = "node/n1: waiting shop/import-x since 2026-01-02T03:04:05Z: Completing\n";
    assert_eq!(captured.messages(), line);
    // Nothing waits in a maintenance that has failed: no pod is evicted.
    status["phase"] = serde_json::json!("Failed");
    let (mut out, captured) = output();
    in_table(&[with_status("n1", status)], false, &mut out).unwrap();
    assert!(!captured.messages().contains("waiting"), "{}", captured.messages());
}

#[test]
fn given_nodes_without_maintenance_are_found() {
    let nodes = ["n1".to_owned(), "n2".to_owned()];
    assert_eq!(missing(&nodes, &[raw(&requested("n2"))]), ["n1"]);
}

#[test]
fn one_node_prints_one_object_and_everything_else_a_list() {
    let objects = |count| (0..count).map(|i| raw(&named(&format!("a{i}"), "n1", "u"))).collect::<Vec<_>>();
    for (count, alone, kind) in [
        (1, true, "NodeMaintenance"),
        (1, false, "List"),
        (2, true, "List"),
        (0, false, "List"),
        (0, true, ""),
    ] {
        let (mut out, captured) = output();
        in_form(&objects(count), alone, DataFormat::Json, &mut out).unwrap();
        let printed = serde_json::from_str::<Value>(&captured.data()).unwrap_or_default();
        assert_eq!(printed["kind"].as_str().unwrap_or_default(), kind, "{count} {alone}");
    }
}

#[test]
fn documents_keep_unknown_fields() {
    let mut object = raw(&requested("n1"));
    object["spec"]["fromTheFuture"] = serde_json::json!({"x": [1, "no"]});
    let (mut out, captured) = output();
    in_form(&[object.clone()], true, DataFormat::Json, &mut out).unwrap();
    let printed: Value = serde_json::from_str(&captured.data()).unwrap();
    assert_eq!(printed["spec"], object["spec"]);
}

#[tokio::test]
async fn nobody_leading_is_said_where_a_maintenance_needs_a_reconciler_and_the_user_may_see_it() {
    let nothing = || serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []});
    let unseen = async |object: NodeMaintenance| {
        let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next() {
            Some("leases" | "deployments") => (200, nothing()),
            _ => list(std::slice::from_ref(&object)),
        });
        let (mut out, captured) = output();
        let args = args("");
        run(args, &cluster, &mut out).await.unwrap();
        captured.messages()
    };
    assert!(unseen(requested("n1")).await.starts_with("warning: no nm-reconciler was found: "));
    let at_work = unseen(with_status("n1", running(40, &[]))).await;
    assert!(!at_work.contains("warning"), "a reconciler may lead without a lease: {at_work}");
    let shown = async |object: NodeMaintenance, may_see: bool| {
        let (cluster, requests) = cluster(move |_, path| match path.rsplit('/').next() {
            Some("leases") if may_see => {
                let spec = serde_json::json!({"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z",
                    "leaseDurationSeconds": 15});
                let lease = serde_json::json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"}, "spec": spec});
                (
                    200,
                    serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]}),
                )
            }
            Some("leases") => failure(403, "Forbidden", "leases"),
            _ => list(std::slice::from_ref(&object)),
        });
        let (mut out, captured) = output();
        let args = args("");
        assert_eq!(run(args, &cluster, &mut out).await.unwrap(), Exit::Done);
        let has_asked = requests.lock().unwrap().iter().any(|request| request.ends_with("/leases"));
        (captured.messages(), has_asked)
    };
    let said = "warning: no nm-reconciler leads: by this computer's clock, its lease expired at 2026-01-02T03:04:20Z\n";
    assert_eq!(shown(requested("n1"), true).await, (said.to_owned(), true));
    assert_eq!(shown(requested("n1"), false).await, (String::new(), true));
    let drained = with_status("n1", serde_json::json!({"phase": "Succeeded"}));
    assert_eq!(
        shown(drained, true).await,
        ("node/n1: no pods had to move when the drain started\n".to_owned(), false)
    );
}

#[tokio::test]
async fn a_halted_roll_is_reported_with_the_nodes_that_are_part_of_it() {
    let of_roll = |node: &str, state: Option<Value>| {
        let mut object = with_status(node, serde_json::json!({"phase": "Succeeded"}));
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
        let state = state.map(|state| (String::from("kubectl-nm.dev/roll-state"), state.to_string()));
        object.metadata.annotations = Some(state.into_iter().collect());
        object
    };
    let halt =
        serde_json::json!({"node": "n2", "message": "its command failed", "at": "2026-01-02T03:04:05Z"});
    let halted = serde_json::json!({"revision": 2, "halt": halt});
    let alone = with_status("n3", serde_json::json!({"phase": "Succeeded"}));
    let existing = [of_roll("n1", None), of_roll("n2", Some(halted)), alone];
    let line = "roll kernel halted: its command failed; `kubectl nm roll status kernel` shows more\n";
    for (nodes, format, count) in [
        (&[][..], OutputFormat::Table, 1),
        (&["n1"], OutputFormat::Table, 1),
        (&["n3"], OutputFormat::Table, 0),
        (&[], OutputFormat::Data(DataFormat::Json), 0),
    ] {
        let existing = existing.clone();
        let (cluster, _) = cluster(move |_, _| list(&existing));
        let (mut out, captured) = output();
        let args = MaintenanceStatusArgs { output: format, ..args(&nodes.join(" ")) };
        run(args, &cluster, &mut out).await.unwrap();
        assert_eq!(captured.messages().matches(line).count(), count, "{}", captured.messages());
    }
}

#[test]
fn explain_is_pointed_at_where_pods_do_not_leave() {
    let drained = |node: &str, gone: i32| {
        with_status(
            node,
            serde_json::json!({"phase": "Succeeded", "evictionPods": gone, "podCounts": {"gone": gone}}),
        )
    };
    let blocked = |node: &str| with_status(node, running(40, &[("cart-0", "m")]));
    let surging = |since: &str| {
        let pod = serde_json::json!({"namespace": "shop", "name": "web-x", "deployment": "web", "restarted": true,
            "since": since, "replacement": {"name": "web-y", "node": "n2", "ready": false}});
        with_status("n1", serde_json::json!({"phase": "Running", "surgingPods": [pod]}))
    };
    let stuck = |whose: &str| format!("why, and which workloads {whose} left without a ready pod");
    for (objects, expected) in [
        (vec![requested("n1"), drained("n2", 0)], None),
        (vec![drained("n2", 3)], None),
        (vec![surging("2026-01-02T03:04:05Z")], None),
        (
            vec![surging("2026-01-02T03:03:05Z")],
            Some(format!("hint: `kubectl nm explain n1 --context=c` shows {}", stuck("its drain has"))),
        ),
        (
            vec![drained("n2", 3), blocked("n1")],
            Some(format!("hint: `kubectl nm explain n1 --context=c` shows {}", stuck("its drain has"))),
        ),
        (
            (1..5).map(|at| blocked(&format!("n{at}"))).collect(),
            Some(format!("hint: `kubectl nm explain --context=c` shows {}", stuck("their drains have"))),
        ),
    ] {
        let hint = explain_hint(&objects, " --context=c", "2026-01-02T03:04:30Z".parse().unwrap())
            .map(|hint| hint.to_string());
        assert_eq!(hint, expected);
    }
}

#[tokio::test]
async fn a_roll_that_is_paused_or_that_nobody_runs_is_reported() {
    let mut object = with_status("n1", serde_json::json!({"phase": "Succeeded"}));
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
    let mut printed = async |state: Value| {
        object.metadata.annotations =
            Some([(String::from("kubectl-nm.dev/roll-state"), state.to_string())].into());
        let object = object.clone();
        let (cluster, _) = cluster(move |_, _| list(std::slice::from_ref(&object)));
        let (mut out, captured) = output();
        run(args(""), &cluster, &mut out).await.unwrap();
        captured.messages()
    };
    let pause = serde_json::json!({"by": "ada@laptop", "at": "2026-01-02T03:04:05.6Z"});
    let paused = printed(serde_json::json!({"revision": 2, "paused": true, "pause": pause})).await;
    let line = "roll kernel is paused by ada@laptop since 2026-01-02T03:04:05Z: no further node, command or Job is started; \
                `kubectl nm roll resume kernel` continues it\n";
    assert!(paused.contains(line), "{paused}");
    let runner =
        |at: &str| serde_json::json!({"revision": 2, "runner": {"id": "x", "who": "ada@laptop", "at": at}});
    let killed = printed(runner("2026-01-02T03:04:05Z")).await;
    let line =
        "nobody runs roll kernel now: `kubectl nm roll status kernel` shows whether it continues by itself\n";
    assert!(killed.contains(line), "{killed}");
    let mut aborted = runner("2026-01-02T03:04:05Z");
    aborted["aborted"] = serde_json::json!("bob@laptop");
    let left = printed(aborted).await;
    let line = "bob@laptop aborted roll kernel, and nobody runs it now: `kubectl nm roll status kernel` shows what becomes of its nodes\n";
    assert!(left.contains(line), "{left}");
    let running = printed(runner(&Timestamp::now().to_string())).await;
    assert!(!running.contains("kernel"), "{running}");
}

#[test]
fn a_hook_that_holds_a_drain_or_the_return_of_a_node_is_named() {
    let mut status = running(0, &[]);
    status["hold"] = serde_json::json!({"since": "2026-01-02T03:04:05Z", "hooks": [{"name": "flush", "owner": "cache-team"}]});
    let held = with_status("n1", status);
    let mut returning = stopping(held.clone());
    returning.metadata.annotations =
        Some([(String::from("pre-return.hook.kubectl-nm.dev/flush"), String::from("cache-team"))].into());
    for (object, expected) in [
        (held, "node/n1: waiting for hook flush (owner: cache-team)"),
        (returning, "node/n1: the node stays cordoned, waiting for hook flush (owner: cache-team)"),
    ] {
        let lines: Vec<String> = details(&object, false).iter().map(ToString::to_string).collect();
        assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
    }
}

#[tokio::test]
async fn labels_select_nodes_of_which_those_in_maintenance_are_shown() {
    let shown = async |line: &str| {
        let existing = ["n1", "n2", "n4"].map(|node| with_status(node, running(40, &[])));
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/nodes" => nodes(&["n1", "n2", "n3"]),
            "/api/v1/nodes/n3" => (200, serde_json::json!({"metadata": {"name": "n3"}})),
            _ => list(&existing),
        });
        let (mut out, captured) = output();
        let result = run(args(line), &cluster, &mut out).await;
        (result.map_err(|error| error.to_string()), captured.data())
    };
    assert_eq!(
        shown("-l pool=blue -o name").await,
        (
            Ok(Exit::Done),
            "nodemaintenance.nodemaintenance.medik8s.io/n1\n\
        nodemaintenance.nodemaintenance.medik8s.io/n2\n"
                .to_owned()
        )
    );
    let (_, json) = shown("-l pool=blue -o json").await;
    assert!(json.contains("\"kind\": \"List\""), "{json}");
    assert!(shown("n3").await.0.is_err());
}

#[test]
fn the_table_of_many_blocked_pods_stays_in_sight_unless_each_is_asked_for() {
    let blocked = |node: &str| {
        let pod = |at: usize| {
            let (namespace, name) = (format!("team-{}", at % 8), format!("web-{at}"));
            let (reason, since) = ("DisruptionBudget", "2026-01-02T03:04:05Z");
            serde_json::json!({"namespace": namespace, "name": name, "reason": reason, "message": "m",
                "since": since, "attempts": 1})
        };
        let pods: Vec<Value> = (0..16).map(pod).collect();
        with_status(
            node,
            serde_json::json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 16}}),
        )
    };
    let (mut out, captured) = output();
    in_table(&[blocked("n1")], false, &mut out).unwrap();
    let messages = captured.messages();
    assert_eq!(messages.lines().count(), 11, "{messages}");
    let others =
        "node/n1: blocked 6 more pods for 3 other causes (-v shows all): team-5/web-5, team-5/web-13,";
    assert!(messages.contains(others), "{messages}");
    let nodes: Vec<NodeMaintenance> = (0..20).map(|at| blocked(&format!("n{at}"))).collect();
    let (mut out, captured) = output();
    in_table(&nodes, false, &mut out).unwrap();
    let messages = captured.messages();
    assert_eq!(messages.lines().count(), MAX_DETAILS + 1, "{messages}");
    assert!(
        messages.ends_with("170 more lines about pods and volumes left out; -v shows all\n"),
        "{messages}"
    );
}
