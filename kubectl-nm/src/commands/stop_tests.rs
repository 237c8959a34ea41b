//! Which maintenances are stopped, and what is said about it.

use nm_core::maintenance::{ROLL_LABEL, uid};
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure, list, nodes};
use nm_core::testing::objects::{named, requested, stopping};
use nm_roll::record::{NODE, SETTINGS, STATE};
use nm_shared::{MigratingPod, NodeMaintenanceStatus};
use serde_json::{Value, json};

use super::*;

#[test]
fn every_object_of_a_node_is_found_whatever_its_name() {
    let existing =
        [requested("n2"), named("a", "n1", "u"), stopping(named("b", "n1", "v")), named("n1", "n3", "w")];
    let existing = existing.map(|maintenance| GroupedMaintenance { group: Group::Medik8s, maintenance });
    let nodes = ["n1".to_owned(), "n2".to_owned()];
    let found: Vec<String> = of_nodes(&nodes, &existing).iter().map(|object| uid(object)).collect();
    assert_eq!(found, ["u", "v", "uid-n2"]);
}

/// Stops in a cluster with these objects: the result, the printed text, and the deleted objects.
async fn stop(args: StopArgs, existing: Vec<NodeMaintenance>) -> (Result<Exit, Error>, String, Vec<String>) {
    let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
        ("DELETE", Some("n3")) => failure(403, "Forbidden", "n3"),
        ("DELETE", Some("n6")) => failure(409, "Conflict", "n6"),
        ("DELETE", _) => {
            (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        (_, Some("nodes")) => nodes(&["n1", "n2", "n4"]),
        (_, Some("nodemaintenances")) => list(&existing),
        (_, Some("n9")) => failure(404, "NotFound", "n9"),
        (_, Some("n8")) => failure(403, "Forbidden", "n8"),
        (_, Some("n7")) => (200, json!({"metadata": {"name": "n7"}, "spec": {"unschedulable": true}})),
        (_, name) => (200, json!({"metadata": {"name": name}})),
    });
    let (mut out, captured) = output();
    let ended = run(args, &cluster, &mut out).await;
    let log = requests.lock().unwrap();
    let deleted = log.iter().filter_map(|line| line.strip_prefix("DELETE "));
    let deleted = deleted.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect();
    (ended, captured.data() + &captured.messages(), deleted)
}

fn args(line: &str) -> StopArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: StopArgs,
    }
    <Line as clap::Parser>::try_parse_from(std::iter::once("nm").chain(line.split(' '))).unwrap().args
}

#[tokio::test]
async fn a_node_that_is_not_in_maintenance_is_not_an_error_if_it_exists() {
    let (ended, printed, deleted) = stop(args("n1 n8"), vec![]).await;
    assert_eq!((ended.unwrap(), deleted.len()), (Exit::Done, 0));
    assert_eq!(
        printed,
        "node/n1 is not in maintenance\n\
         node/n8 is not in maintenance\n\
         node/n8: cannot check that it exists, because you have no permission to read nodes\n"
    );
    let (_, printed, _) = stop(args("n7"), vec![]).await;
    assert_eq!(
        printed,
        "node/n7 is not in maintenance; it is cordoned; if the cordon is not needed any more: kubectl uncordon n7\n"
    );
    let (ended, _, deleted) = stop(args("n1 n9 -y"), vec![requested("n1")]).await;
    assert!(matches!(ended, Err(Error::UnknownNodes { names, .. }) if names == ["n9"]));
    assert!(deleted.is_empty(), "{deleted:?}");
}

#[tokio::test]
async fn a_node_that_is_not_in_maintenance_is_read_once() {
    let (cluster, requests) = cluster(|_, path| match path.rsplit('/').next() {
        Some("nodemaintenances") => list(&[]),
        name => (200, json!({"metadata": {"name": name}, "spec": {"unschedulable": true}})),
    });
    let (mut out, captured) = output();
    run(args("n7"), &cluster, &mut out).await.unwrap();
    assert!(captured.data().contains("kubectl uncordon n7"), "{}", captured.data());
    let requests = requests.lock().unwrap();
    assert_eq!(requests.iter().filter(|request| request.ends_with("/nodes/n7")).count(), 1, "{requests:?}");
}

/// The maintenance of a node of roll `kernel`, with this action and record of the roll.
fn of_roll(name: &str, action: Value, node: Value, record: Option<&Value>) -> GroupedMaintenance {
    let mut settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
    settings["action"] = action;
    let mut step = json!({"wave": 0, "position": 0, "step": "Acting", "since": "2026-01-02T03:04:05Z"});
    if let (Value::Object(step), Value::Object(node)) = (&mut step, node) {
        step.extend(node);
    }
    let mut object = requested(name);
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "kernel".to_owned())].into());
    let annotations = [(SETTINGS, settings), (NODE, step)];
    let annotations = annotations.into_iter().chain(record.map(|record| (STATE, record.clone())));
    object.metadata.annotations =
        Some(annotations.map(|(name, value)| (name.to_owned(), value.to_string())).collect());
    GroupedMaintenance { group: Group::Medik8s, maintenance: object }
}

/// What is said before the first `stopped` of these nodes are stopped.
fn said(all: &[GroupedMaintenance], stopped: usize) -> Vec<String> {
    let now = "2026-01-02T03:04:35Z".parse().unwrap();
    let warnings = stop_warnings::of_rolls(all, &all[..stopped], "kubectl --context x", now);
    warnings.iter().map(ToString::to_string).collect()
}

fn runner() -> Value {
    json!({"id": "x", "who": "ada@vm", "at": "2026-01-02T03:04:05Z"})
}

fn halt() -> Value {
    json!({"node": "n1", "message": "its command failed", "at": "2026-01-02T03:04:05Z"})
}

#[test]
fn a_roll_that_was_aborted_or_is_done_with_the_node_is_not_warned_of() {
    let warned = |record: Value| !said(&[of_roll("n1", Value::Null, json!({}), Some(&record))], 1).is_empty();
    assert!(warned(json!({"revision": 1})));
    assert!(!warned(json!({"revision": 2, "aborted": "ada"})));
    assert!(!warned(json!({"revision": 2, "released": ["n1"]})));
    assert!(warned(json!("unreadable")));
}

#[test]
fn a_node_that_leaves_a_roll_is_warned_of_by_what_becomes_of_the_roll() {
    let leaves = "warning: node/n1 leaves roll kernel before the node is done";
    let abort = "`kubectl nm roll abort kernel --context x` aborts the whole roll";
    let rest = format!("exits with code 3 even if its other nodes are done. {abort}");
    let now = format!("{leaves}, so that the roll {rest}");
    let later = format!("{leaves}, so that the roll, once it continues, {rest}");
    let ends = |leave: &str| format!("{leave}. No other node is left in the roll, so that the roll ends");
    let (ends, both) = (ends(leaves), ends("warning: nodes n1, n2 leave roll kernel before they are done"));
    for (record, stopped, expected) in [
        (json!({"runner": runner()}), 1, &now),
        (json!({"runner": runner(), "paused": true}), 1, &later),
        (json!({"runner": runner(), "halt": halt()}), 1, &later),
        (json!({}), 1, &later),
        (json!({"halt": halt()}), 2, &both),
        (json!({"halt": halt(), "released": ["n2"]}), 1, &ends),
        (json!({"runner": runner()}), 2, &both),
    ] {
        let all = ["n1", "n2"].map(|name| of_roll(name, Value::Null, json!({}), Some(&record)));
        assert_eq!(said(&all, stopped), [expected.as_str()], "{record}");
    }
    // A roll in the cluster has no exit code.
    let mut all =
        ["n1", "n2"].map(|name| of_roll(name, Value::Null, json!({}), Some(&json!({"runner": runner()}))));
    for object in &mut all {
        let annotations = object.maintenance.metadata.annotations.as_mut().unwrap();
        let mut settings: Value = serde_json::from_str(&annotations[SETTINGS]).unwrap();
        settings["inCluster"] = json!(true);
        annotations.insert(SETTINGS.to_owned(), settings.to_string());
    }
    assert_eq!(said(&all, 1), [format!("{leaves}, so that the roll ends without it. {abort}")]);
}

#[test]
fn what_runs_for_the_node_is_warned_of_by_who_ends_it() {
    let (command, job) = (json!({"run": "sleep 10"}), json!({"job": {"metadata": {"namespace": "ops"}}}));
    let running = json!({"action": {"attempt": 2, "state": "running"}});
    let ended = json!({"action": {"attempt": 2, "state": {"failed": "exit code 1"}}});
    let run = json!({"runner": runner()});
    let terminates =
        "warning: the command of roll kernel runs for node/n1 now: the roll terminates it within seconds";
    let deletes = "warning: the Job of roll kernel runs for node/n1 now: the roll deletes it within seconds";
    let stays = "warning: the Job of roll kernel may still run for node/n1: if it exists, \
                 `kubectl --context x -n ops delete job kernel-0-1767323045-2` deletes it";
    for (action, node, record, expected) in [
        (&command, &running, &run, Some(terminates)),
        (&command, &running, &json!({"runner": runner(), "paused": true}), Some(terminates)),
        (&command, &running, &json!({"runner": runner(), "aborted": "bob"}), Some(terminates)),
        // Another node has halted the roll, whose program waits until the actions that are under way have finished.
        (&command, &running, &json!({"runner": runner(), "halt": halt()}), Some(terminates)),
        // A pod that has just begun to run it does not follow the Job.
        (&job, &running, &json!({"runner": runner(), "halt": halt()}), Some(stays)),
        (&command, &ended, &run, None),
        // A command ends with the program that has started it.
        (&command, &running, &json!({}), None),
        (&job, &running, &run, Some(deletes)),
        (&job, &running, &json!({}), Some(stays)),
        (&job, &json!({}), &json!({}), None),
    ] {
        let all = [of_roll("n1", action.clone(), node.clone(), Some(record))];
        let leaves = |line: &String| line.contains("leaves roll");
        let lines: Vec<String> = said(&all, 1).into_iter().filter(|line| !leaves(line)).collect();
        assert_eq!(lines, Vec::from_iter(expected), "{action} {node} {record}");
    }
}

#[tokio::test]
async fn rollouts_that_the_maintenance_has_started_are_named_with_the_command_that_reverts_them() {
    let surging = |name: &str, restarted: bool| {
        json!({"namespace": "t4", "name": format!("{name}-7d-x"), "deployment": name, "restarted": restarted,
            "since": "2026-01-02T03:04:05Z"})
    };
    let stuck = |name: &str| {
        json!({"namespace": "t4", "name": format!("{name}-5c-x"), "reason": "DisruptionBudget", "message": "m",
            "attempts": 0, "since": "2026-01-02T03:04:05Z", "surge": {"reason": "Stalled", "deployment": name}})
    };
    let of_others = json!({"surgingPods": [surging("web", false)], "blockedPods": [stuck("api")]});
    assert_eq!(stopped(json!({}), of_others).await, "");
    let one = stopped(json!({}), json!({"surgingPods": [surging("one", true), surging("one", true)]})).await;
    let expected = "warning: 1 rollout that the maintenance of node/n1 has started continues: t4/one\n\
                    hint: unless the Deployment has changed since, `kubectl -n t4 rollout undo deployment/one` reverts it\n";
    assert_eq!(one, expected);
    let several = json!({"surgingPods": [surging("one", true)], "blockedPods": [stuck("api")],
        "restartedReplicaSets": [{"namespace": "t4", "name": "api-5c", "revision": 1}]});
    let expected = "warning: 2 rollouts that the maintenance of node/n1 has started continue: t4/api, t4/one\n\
                    hint: unless the Deployment has changed since, `kubectl -n t4 rollout undo deployment/api` reverts the rollout of t4/api\n";
    assert_eq!(stopped(json!({}), several).await, expected);
}

#[test]
fn machines_that_leave_nevertheless_are_named_with_the_grant_that_would_keep_others() {
    let pod = |machine: &str| MigratingPod {
        namespace: "vms".to_owned(),
        name: format!("virt-launcher-{machine}"),
        machine: machine.to_owned(),
        ..MigratingPod::default()
    };
    let shown = |pods: Vec<MigratingPod>| {
        let status = NodeMaintenanceStatus { migrating_pods: Some(pods), ..NodeMaintenanceStatus::default() };
        let object = NodeMaintenance { status: Some(status), ..requested("n1") };
        stop_warnings::machines(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let stays = MigratingPod { stays_on_stop: true, ..pod("a") };
    let begun = MigratingPod { target: Some("n2".to_owned()), ..pod("b") };
    assert_eq!(shown(vec![stays.clone()]), [""; 0]);
    let warning = "warning: 1 virtual machine still leaves node/n1: vms/b to n2";
    assert_eq!(shown(vec![stays, begun]), [warning]);
    let unknown = shown(vec![pod("c")]);
    assert!(unknown.len() == 2 && unknown[1].contains("--grant virtual-machines"), "{unknown:?}");
}

#[test]
fn machines_that_are_blocked_without_a_visible_migration_are_named_too() {
    let blocked = |migration: Value| {
        let mut pod = json!({"namespace": "vms", "name": "virt-launcher-u", "reason": "MigrationNotStarted",
            "message": "", "since": "2026-01-01T00:00:00Z", "attempts": 0});
        if !migration.is_null() {
            pod["migration"] = migration;
        }
        let status = serde_json::from_value(json!({"blockedPods": [pod]})).unwrap();
        let object = NodeMaintenance { status: Some(status), ..requested("n1") };
        stop_warnings::machines(&object).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let unseen = blocked(Value::Null);
    assert_eq!(unseen[0], "warning: 1 virtual machine still leaves node/n1: vms/virt-launcher-u");
    assert!(unseen[1].contains("--grant virtual-machines"), "{unseen:?}");
    assert_eq!(blocked(json!({"name": "m", "phase": "Pending"})), [""; 0], "its migration is deleted");
}

#[tokio::test]
async fn a_cordon_is_kept_by_an_annotation_that_is_written_before_the_maintenance_is_deleted() {
    let conditions = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let begun = |node: &str, conditions: &Value| NodeMaintenance {
        status: serde_json::from_value(json!({"phase": "Succeeded", "conditions": conditions})).unwrap(),
        ..requested(node)
    };
    let existing = [
        begun("n1", &conditions),
        begun("n2", &json!([])),
        stopping(begun("n3", &conditions)),
        begun("n4", &conditions),
    ];
    let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
        ("DELETE", name) => (
            200,
            json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "kind": "NodeMaintenance", "metadata": {"name": name, "uid": format!("uid-{}", name.unwrap()),
            "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["f"]}, "spec": {"nodeName": name}}),
        ),
        ("PATCH", Some(name)) => (200, json!(existing.iter().find(|object| node(object) == name))),
        (_, Some("nodemaintenances")) => list(&existing),
        (_, name) => {
            let record = json!({"madeUnschedulable": name != Some("n4")}).to_string();
            (
                200,
                json!({"metadata": {"name": name, "annotations": {"kubectl-nm.dev/undo": record},
                "labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}}}),
            )
        }
    });
    let (mut out, captured) = output();
    let ended = run(args("--all -y --keep-cordon"), &cluster, &mut out).await;
    assert_eq!(ended.unwrap(), Exit::Error);
    assert_eq!(
        captured.data(),
        "node/n1 maintenance is stopping: the node stays cordoned\n\
         node/n4 maintenance is stopping: the node stays cordoned, as before\n"
    );
    let messages = captured.messages();
    for expected in ["medik8s node-maintenance-operator, which uncordons", "is already stopping"] {
        assert!(messages.contains(expected), "{messages}");
    }
    let log = requests.lock().unwrap();
    let of_first: Vec<&str> = log
        .iter()
        .filter(|line| line.ends_with("nodemaintenances/n1"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(of_first, ["PATCH", "DELETE"]);
    assert!(!log.iter().any(|line| line.ends_with("nodemaintenances/n2")), "it is left alone: {log:?}");
}

#[tokio::test]
async fn labels_and_all_select_nodes_in_maintenance() {
    let existing = || vec![requested("n4"), requested("n2"), requested("n5")];
    for (line, expected) in [("-l a=b -y", vec!["n2", "n4"]), ("--all -y", vec!["n2", "n4", "n5"])] {
        let (ended, printed, deleted) = stop(args(line), existing()).await;
        assert_eq!(
            (ended.unwrap(), deleted),
            (Exit::Done, expected.iter().map(ToString::to_string).collect())
        );
        let stopped = expected
            .iter()
            .fold(String::new(), |all, node| format!("{all}node/{node} maintenance stopped\n"));
        assert_eq!(printed, stopped, "{line}");
        let (ended, printed, _) = stop(args(line), vec![]).await;
        assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, "No maintenances found.\n"), "{line}");
    }
}

#[tokio::test]
async fn a_maintenance_that_was_started_meanwhile_is_not_stopped_and_reported() {
    let (ended, printed, _) = stop(args("n6"), vec![requested("n6")]).await;
    let said = "node/n6 maintenance stopped, and another one was started\n";
    assert_eq!((ended.unwrap(), printed.as_str()), (Exit::Done, said));
}

#[tokio::test]
async fn the_reason_of_each_maintenance_that_is_stopped_is_named() {
    let with = |node: &str, reason: &str| {
        let mut object = requested(node);
        object.spec.reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        object
    };
    let existing = vec![with("n2", "disk swap"), with("n4", ""), with("n6", "disk swap")];
    let (_, printed, _) = stop(args("n2 n4 n6 -y"), existing).await;
    let expected = "node/n2 maintenance stopped (reason: disk swap)\nnode/n4 maintenance stopped\n\
                    node/n6 maintenance stopped (reason: disk swap), and another one was started\n";
    assert_eq!(printed, expected);
    for (object, expected) in [
        (
            with("n1", "disk swap"),
            "node/n1 maintenance is stopping (reason: disk swap): the node stays cordoned",
        ),
        (
            stopping(with("n1", "disk swap")),
            "node/n1 maintenance is already stopping (reason: disk swap): the node stays cordoned",
        ),
        (
            named("a", "n1", "u"),
            "node/n1 maintenance is stopping (NodeMaintenance a): the node stays cordoned",
        ),
    ] {
        let line = line(&object, Deletion::UnderWay, Some(NodeEnding::CordonKept));
        assert_eq!(line.to_string(), expected);
    }
}

#[test]
fn the_question_names_the_reasons_with_their_nodes_unless_all_have_the_same() {
    let named = |all: &[(&str, &str)]| {
        let object = |(node, reason): &(&str, &str)| {
            let mut maintenance = requested(node);
            maintenance.spec.reason = Some((*reason).to_owned());
            maintenance
        };
        purposes(&all.iter().map(object).collect::<Vec<_>>())
    };
    assert_eq!(named(&[("n1", ""), ("n2", "")]), None);
    assert_eq!(named(&[("n1", "disk"), ("n2", "disk")]).as_deref(), Some("disk"));
    assert_eq!(named(&[("n1", "disk"), ("n2", "")]).as_deref(), Some("disk (n1)"));
    let several = [("n1", "disk"), ("n2", "kernel"), ("n3", "disk")];
    assert_eq!(named(&several).as_deref(), Some("disk (n1, n3); kernel (n2)"));
}

#[tokio::test]
async fn more_than_one_node_has_to_be_confirmed() {
    for line in ["n1 n2", "--all", "-l a=b"] {
        let (ended, _, deleted) = stop(args(line), vec![requested("n1"), requested("n2")]).await;
        assert!(matches!(ended, Err(Error::Unconfirmed)), "{line}");
        assert!(deleted.is_empty(), "{line}");
    }
}

#[tokio::test]
async fn a_refusal_for_one_node_does_not_affect_the_others() {
    let (ended, printed, _) = stop(args("--all -y"), vec![requested("n3"), requested("n4")]).await;
    assert_eq!(ended.unwrap(), Exit::Error);
    let expected =
        "node/n4 maintenance stopped\nError from server (Forbidden): n3 Forbidden (node/n3)\nhint: ";
    assert!(printed.starts_with(expected), "{printed}");
}

/// What is printed about a maintenance that has begun, with these annotations and this status.
async fn stopped(annotations: Value, mut status: Value) -> String {
    status["phase"] = json!("Running");
    status["conditions"] = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let mut object = requested("n1");
    object.status = serde_json::from_value(status).unwrap();
    object.metadata.annotations = serde_json::from_value(annotations).unwrap();
    let ending = json!(stopping(object.clone()));
    let (cluster, _) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
        ("DELETE", _) => (200, ending.clone()),
        (_, Some("nodemaintenances")) => list(std::slice::from_ref(&object)),
        (_, name) => (200, json!({"metadata": {"name": name}})),
    });
    let (mut out, captured) = output();
    assert_eq!(run(args("n1"), &cluster, &mut out).await.unwrap(), Exit::Done);
    captured.messages()
}

#[tokio::test]
async fn the_hooks_that_keep_the_node_are_named() {
    let kept = stopped(
        json!({"pre-return.hook.kubectl-nm.dev/heal": "ceph", "pre-drain.hook.kubectl-nm.dev/flush": "x"}),
        json!({}),
    )
    .await;
    assert_eq!(kept, "node/n1: the node stays cordoned until hook heal (owner: ceph) is removed\n");
    assert_eq!(stopped(json!({}), json!({})).await, "");
}

#[tokio::test]
async fn pods_that_no_kubelet_ends_are_named() {
    let pod = |name: &str| {
        json!({"namespace": "shop", "name": name, "reason": "NodeNotReady", "message": "m", "attempts": 0,
            "since": "2026-01-02T03:04:05Z", "node": "n1"})
    };
    let said = stopped(json!({}), json!({"blockedPods": [pod("db-0"), pod("web")]})).await;
    let expected = "warning: node/n1 is not Ready, and 2 of its pods are terminating: they do not terminate until the kubelet reports \
                    again, or the node has the taint node.kubernetes.io/out-of-service: shop/db-0, shop/web\n";
    assert_eq!(said, expected);
}

#[test]
fn the_line_of_a_node_that_is_off_names_all_that_keeps_pods_away() {
    let line = |ending| line(&stopping(requested("n1")), Deletion::UnderWay, Some(ending)).to_string();
    let taint = "taint node.kubernetes.io/out-of-service keeps pods away until somebody removes it";
    let stopping = "node/n1 maintenance is already stopping: the node will be uncordoned, but";
    assert_eq!(line(NodeEnding::OutOfService { is_ready: true }), format!("{stopping} its {taint}"));
    assert_eq!(
        line(NodeEnding::OutOfService { is_ready: false }),
        format!("{stopping} it is not Ready, and its {taint}")
    );
}

#[tokio::test]
async fn a_node_that_nobody_returns_to_service_is_warned_of() {
    let object = requested("n1");
    let ending = json!(stopping(object.clone()));
    let (cluster, requests) = cluster(move |method, path| match (method, path.rsplit('/').next()) {
        ("DELETE", _) => (200, ending.clone()),
        (_, Some("nodemaintenances")) => list(std::slice::from_ref(&object)),
        (_, Some("leases")) => {
            let lease = json!({"metadata": {"namespace": "nm", "name": "nm-reconciler"},
                "spec": {"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000000Z", "leaseDurationSeconds": 15}});
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [lease]}))
        }
        (_, name) => (200, json!({"metadata": {"name": name}})),
    });
    let (mut out, captured) = output();
    assert_eq!(run(args("n1"), &cluster, &mut out).await.unwrap(), Exit::Done);
    let said = "warning: no nm-reconciler leads: by this computer's clock, its lease expired at 2026-01-02T03:04:20Z\n";
    assert_eq!(captured.messages(), said, "{:?}", requests.lock().unwrap());
}
