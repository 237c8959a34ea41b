//! The output of `explain`.

use nm_core::explain::cause::CommonGround;
use nm_core::maintenance::ROLL_LABEL;
use nm_core::terminal::output::captured::output;
use nm_core::testing::fake_server::{cluster, failure, list};
use nm_core::testing::objects::{named, requested, running, with_status};
use serde_json::json;

use super::*;

fn explained(object: &NodeMaintenance) -> (String, bool) {
    explained_under(Leadership::Held, object)
}

pub(super) fn reconcilers(leadership: Leadership) -> Reconcilers {
    Reconcilers { leadership, namespace: Some(String::from("node-maintenance")) }
}

fn explained_under(leadership: Leadership, object: &NodeMaintenance) -> (String, bool) {
    let (mut out, captured) = output();
    let context = Context {
        reconcilers: &reconcilers(leadership),
        facts: &ClusterFacts::default(),
        kubectl: "kubectl",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let is_blocked = explain(object, &BTreeMap::new(), &context, &mut out).unwrap();
    (captured.data(), is_blocked)
}

#[tokio::test]
async fn a_node_that_the_user_may_not_read_is_unknown_and_a_cordoned_one_is_said_to_be() {
    for (code, unschedulable, exit, data, messages) in [
        (
            403,
            false,
            Exit::Error,
            "",
            "node/n1: cannot check that it exists, because you have no permission to read nodes\n",
        ),
        (200, false, Exit::Done, "node/n1 is not in maintenance\n", ""),
        (
            200,
            true,
            Exit::Done,
            "node/n1 is not in maintenance; it is cordoned; if the cordon is not needed any more: kubectl uncordon n1\n",
            "",
        ),
    ] {
        let (cluster, _) = cluster(move |_, path| match path {
            "/api/v1/nodes/n1" if code == 403 => failure(403, "Forbidden", "n1"),
            "/api/v1/nodes/n1" => {
                (200, json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": unschedulable}}))
            }
            _ => list(&[]),
        });
        let (mut out, captured) = output();
        let ended = run(ExplainArgs { nodes: vec!["n1".into()] }, &cluster, &mut out).await.unwrap();
        assert_eq!((ended, captured.data().as_str(), captured.messages().as_str()), (exit, data, messages));
    }
}

#[test]
fn a_cause_is_a_paragraph() {
    let numbers = "The disruption budget cart needs 3 healthy pods and has 3 currently";
    let object = with_status("n1", running(40, &[("cart-0", numbers), ("cart-1", numbers)]));
    let expected = "\
node/n1: Blocked 40%: 5 pods remaining (2 blocked, 1 terminating, 2 evicting), 4 gone

PDB shop/cart needs 3, has 3.
  Blocks shop/cart-0, shop/cart-1 for 3m20s, since 2026-01-02T03:04:05Z; at least 6 evictions were refused.
  Find out why the budget allows no eviction before you change anything:
    kubectl -n shop describe pdb cart
";
    assert_eq!(explained(&object), (expected.to_owned(), true));
}

#[test]
fn without_details_the_last_error_is_the_cause() {
    let mut status = json!({"phase": "Running", "drainProgress": 50, "evictionPods": 2, "totalpods": 3,
        "lastError": "pod shop/cart-0: PDB shop/cart", "pendingPods": ["cart-0"],
        "pendingPodsRefs": [{"namespace": "shop", "name": "cart-0"}]});
    let expected = "\
node/n1: Draining 50%: 1 pod remaining, 1 gone

Pod shop/cart-0: PDB shop/cart
  Blocks shop/cart-0.
  The status has no details of blocked pods. Check the budgets; `kubectl nm doctor` reports whether the CRD in the cluster drops \
the details:
    kubectl get pdb -A
    kubectl nm doctor
";
    assert_eq!(explained(&with_status("n1", status.clone())), (expected.to_owned(), true));
    status["errorOnLeaseCount"] = json!(2);
    let (said, is_blocked) = explained(&with_status("n1", status.clone()));
    assert!(is_blocked && said.contains("get lease node-n1 -o yaml"), "{said}");
    status["lastError"] = json!("");
    assert!(!explained(&with_status("n1", status)).1);
}

#[test]
fn a_maintenance_that_waits_for_a_hook_does_not_continue_on_its_own() {
    let mut status = running(0, &[]);
    status["hold"] =
        json!({"since": "2026-01-02T03:04:05Z", "hooks": [{"name": "flush", "owner": "cache-team"}]});
    let expected = "\
node/n1: Draining 0%: 3 pods remaining (1 terminating, 2 evicting), 4 gone, waiting for hook flush (owner: cache-team)

No pod is evicted yet: the maintenance waits for hook flush (owner: cache-team).
  Ongoing for 3m20s, since 2026-01-02T03:04:05Z.
  The owner of hook flush removes it when the work is done; to continue without the work, remove the annotation:
    kubectl annotate nm n1 pre-drain.hook.kubectl-nm.dev/flush-

Nothing is blocked: the maintenance continues when the hooks are removed.
";
    assert_eq!(explained(&with_status("n1", status)), (expected.to_owned(), false));
}

#[test]
fn a_maintenance_that_waits_for_pods_to_end_is_not_blocked() {
    let mut status = running(40, &[]);
    status["waitingPods"] = json!([{"namespace": "shop", "name": "import-x", "reason": "Completing",
        "since": "2026-01-02T03:04:05Z", "until": "2026-01-02T04:04:05Z"}]);
    let expected = "\
node/n1: Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone

The drain waits for pods to terminate on their own (Completing), and evicts them at 2026-01-02T04:04:05Z.
  Waits for shop/import-x for 3m20s, since 2026-01-02T03:04:05Z.
  A Job counts an evicted pod as failed, and may fail for good: to wait for as long as the pods need, remove the time limit:
    kubectl patch nm n1 --type=merge -p '{\"spec\":{\"drain\":{\"waitForCompletion\":{\"timeoutSeconds\":0}}}}'

Nothing is blocked: the maintenance continues on its own.
";
    assert_eq!(explained(&with_status("n1", status)), (expected.to_owned(), false));
}

#[test]
fn a_queued_maintenance_is_not_blocked() {
    let condition = json!({"type": "Drained", "status": "False", "reason": "MaxUnavailable", "observedGeneration": 1,
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let object = with_status(
        "n1",
        json!({"phase": "Pending", "conditions": [condition],
        "lastError": "position 1 of 2 in the queue: 2 of 3 nodes are unavailable and the limit is 2",
        "queue": {"position": 1, "length": 2, "limit": 2}}),
    );
    let expected = "\
node/n1: Queued

Position 1 of 2 in the queue: 2 of 3 nodes are unavailable and the limit is 2.
  Ongoing for 3m20s, since 2026-01-02T03:04:05Z.
  The maintenance starts when other nodes return to service or become Ready; this lists all maintenances:
    kubectl get nm -o wide
";
    assert_eq!(explained(&object), (expected.to_owned(), false));
}

/// What is said of these maintenances by their status alone, and whether something is blocked.
pub(super) fn explained_by_status(objects: &[NodeMaintenance]) -> (bool, String) {
    let (mut out, captured) = output();
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &ClusterFacts::default(),
        kubectl: "kubectl",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let judged = objects.iter().map(|object| Judged::of(object, &BTreeMap::new(), &context)).collect();
    let is_blocked = explain_all(judged, &context, &mut out).unwrap();
    (is_blocked, captured.data())
}

#[test]
fn a_cause_of_several_nodes_is_one_paragraph_even_if_pods_times_and_numbers_differ() {
    let failed = |node: &str, pods: &[(&str, &str)], left: &str| {
        let mut status = running(50, pods);
        for pod in status["blockedPods"].as_array_mut().unwrap() {
            (pod["reason"], pod["budget"]) = (json!("Unmanaged"), json!(null));
            pod["since"] = json!(if node == "n1" { "2026-01-02T03:04:05Z" } else { "2026-01-02T03:06:25Z" });
        }
        status["phase"] = json!("Failed");
        status["lastError"] = json!(format!("the drain timed out after 60 s, {left} left; pod shop/x: no"));
        status["lastUpdate"] = json!("2026-01-02T03:07:05Z");
        status["conditions"] = json!([{"type": "Drained", "status": "False", "reason": "TimedOut", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut object = with_status(node, status);
        object.spec.drain = Some(serde_json::from_value(json!({"timeoutSeconds": 60})).unwrap());
        object
    };
    let objects =
        [failed("n1", &[("a", "x")], "1 pod is"), failed("n2", &[("b", "x"), ("c", "x")], "2 pods are")];
    let (is_blocked, printed) = explained_by_status(&objects);
    assert!(is_blocked);
    let patch = r#"--type=merge -p '{"spec":{"drain":{"timeoutSeconds":0}}}'"#;
    let expected = format!(
        "\
node/n1: Failed: 4 of 10 pods gone
node/n2: Failed: 4 of 10 pods gone

The drain timed out after 60 s.
  Nodes n1, n2.
  Ongoing for 20s, since 2026-01-02T03:07:05Z.
  First fix what blocks the pods; then remove the timeout, and the drain continues:
    kubectl patch nm n1 {patch}
    kubectl patch nm n2 {patch}

n1: When the drain failed: shop/a has no controller that would replace it, and --force=false keeps it.
n2: When the drain failed: shop/b, shop/c have no controller that would replace them, and --force=false keeps them.
  Nodes n1, n2.
  Blocks shop/a, shop/b, shop/c for up to 3m20s, the earliest since 2026-01-02T03:04:05Z; at least 9 evictions were refused.
  Delete the pod if you no longer need it: no controller replaces it, and a deletion ignores budgets:
    kubectl -n shop delete pod a
    kubectl -n shop delete pod b
    kubectl -n shop delete pod c
"
    );
    assert_eq!(printed, expected);
}

#[test]
fn of_several_nodes_each_sentence_is_true_of_the_nodes_that_it_names() {
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &ClusterFacts::default(),
        kubectl: "kubectl",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let explained = |objects: &[NodeMaintenance]| {
        let (mut out, captured) = output();
        let judged = objects.iter().map(|object| Judged::of(object, &BTreeMap::new(), &context)).collect();
        let is_blocked = explain_all(judged, &context, &mut out).unwrap();
        (captured.data(), is_blocked)
    };
    let healthy = || with_status("n2", running(40, &[]));
    // The status lists no pod: its definition prunes the details.
    let mut pruned = with_status("n1", running(40, &[]));
    pruned.status.as_mut().unwrap().pod_counts.blocked = 1;
    let (said, is_blocked) = explained(&[pruned.clone(), healthy()]);
    assert!(is_blocked && said.contains("1 more pod is blocked; the status does not list it."), "{said}");
    assert!(!said.contains("Nothing is blocked"), "{said}");
    let (said, is_blocked) = explained(&[pruned]);
    assert!(is_blocked && !said.contains("Nothing is blocked"), "{said}");
    let (said, is_blocked) = explained(&[with_status("n1", running(40, &[])), healthy()]);
    assert!(!is_blocked && said.ends_with("\nNothing is blocked.\n"), "{said}");
}

#[test]
fn a_maintenance_that_is_not_blocked_is_reported_so() {
    let (drained, is_blocked) =
        explained(&with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3})));
    assert_eq!((&*drained, is_blocked), ("node/n1: Drained: 3 pods gone\nNothing is blocked.\n", false));
    let (running, is_blocked) = explained(&with_status("n1", running(40, &[])));
    assert!(
        running.ends_with("4 gone\nNothing is blocked: the maintenance continues on its own.\n")
            && !is_blocked,
        "{running}"
    );
}

#[test]
fn the_roll_of_a_maintenance_is_named() {
    let mut object = with_status("n1", running(40, &[]));
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), String::from("kernel"))].into());
    let (said, _) = explained(&object);
    assert!(said.contains("4 gone\nIt is part of roll kernel.\nNothing is blocked"), "{said}");
}

#[test]
fn a_drain_without_leader_is_blocked_and_without_knowledge_nothing_is_promised() {
    let under = |leadership| explained_under(leadership, &with_status("n1", running(40, &[])));
    let lapsed = Leadership::Lapsed("2026-01-02T03:04:05Z".parse().unwrap());
    let (said, is_blocked) = under(lapsed);
    let expected = "\n\nNo nm-reconciler leads, so the maintenance makes no progress.\n  Ongoing for 3m20s, since 2026-01-02T03:04:05Z.\n";
    assert!(said.contains(expected) && !said.contains("Nothing is blocked") && is_blocked, "{said}");
    let (said, is_blocked) = under(Leadership::Lapsed("2026-01-02T03:07:20Z".parse().unwrap()));
    assert!(said.contains("No nm-reconciler leads") && !is_blocked, "another may take over: {said}");
    assert!(said.ends_with("\nNothing is blocked.\n"), "{said}");
    let mut held = running(0, &[]);
    held["hold"] = json!({"since": "2026-01-02T03:04:05Z", "hooks": [{"name": "flush", "owner": ""}]});
    let (said, _) = explained_under(lapsed, &with_status("n1", held));
    assert!(!said.contains("continues when the hooks are removed"), "nothing continues: {said}");
    let (said, is_blocked) = under(Leadership::Unknown);
    let expected = "\nNothing is blocked: the maintenance continues as long as nm-reconciler runs.\n";
    assert!(said.ends_with(expected) && !is_blocked, "{said}");
    let drained = with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3}));
    let (said, is_blocked) = explained_under(lapsed, &drained);
    let expected =
        "No nm-reconciler leads, so the node does not return to service when its maintenance is stopped.";
    assert!(said.contains(expected) && !is_blocked, "{said}");
}

#[test]
fn what_has_not_begun_is_explained_by_who_leads() {
    let under = |leadership| explained_under(leadership, &requested("n1")).0;
    let led = under(Leadership::Held);
    assert!(led.contains("nm-reconciler runs, but has not started the maintenance."), "{led}");
    assert!(led.contains("\n    kubectl logs -n node-maintenance -l app.kubernetes.io/name="), "{led}");
    let lapsed = under(Leadership::Lapsed("2026-01-02T03:04:05Z".parse().unwrap()));
    assert!(lapsed.contains("No nm-reconciler leads, so the maintenance does not start."), "{lapsed}");
    assert!(under(Leadership::Unknown).contains("nm-reconciler has not started the maintenance yet."));
}

#[test]
fn many_pods_are_counted_and_control_characters_are_escaped() {
    let names: Vec<String> = (0..9).map(|at| format!("p{at}\x1b")).collect();
    let pods: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "no\x1b[31m")).collect();
    let mut status = running(0, &pods);
    status["podCounts"]["blocked"] = json!(12);
    let (said, _) = explained(&with_status("n1", status));
    assert!(said.contains("shop/p4^[ and 4 more for"), "{said}");
    assert!(said.ends_with("\n3 more pods are blocked; the status does not list them.\n"), "{said}");
    assert!(!said.contains('\x1b'), "{said}");
}

#[test]
fn an_object_with_another_name_is_named() {
    let (said, is_blocked) = explained(&named("kernel", "n1", "u"));
    assert!(
        said.starts_with(
            "node/n1: Requested: nm-reconciler has not started the maintenance yet (NodeMaintenance kernel)\n"
        ),
        "{said}"
    );
    assert!(is_blocked);
    assert!(!explained(&requested("n1")).0.contains("NodeMaintenance"));
}

#[test]
fn a_pod_that_waits_for_long_is_looked_into_and_one_that_waits_in_vain_is_not_well() {
    let waiting = json!([{"namespace": "shop", "name": "web-1", "reason": "BudgetTurn", "since": "2026-01-02T03:04:05Z",
        "ahead": 0, "budget": {"name": "web"}}]);
    let object = with_status("n1", json!({"phase": "Running", "waitingPods": waiting}));
    assert!(!is_kept_by_pods(&object, "2026-01-02T03:04:10Z".parse().unwrap()));
    assert!(is_kept_by_pods(&object, "2026-01-02T03:04:20Z".parse().unwrap()));
    let judged = |outlook| Judged {
        object: &object,
        causes: vec![Cause { outlook, ..Cause::default() }],
        halted: None,
    };
    let (passes, will_block) = (judged(Outlook::Passes), judged(Outlook::WillBlock));
    assert!(passes.is_well() && !will_block.is_well() && !will_block.is_blocked());
}

/// What `explain` without a name prints of these maintenances, where other requests are answered so.
async fn explained_all(
    objects: Vec<NodeMaintenance>,
    answer: impl Fn(&str) -> (u16, serde_json::Value) + Send + Sync + 'static,
) -> String {
    let (cluster, _) = cluster(move |_, path| {
        let is_own = path.ends_with("/nodemaintenance.medik8s.io/v1beta1/nodemaintenances");
        if is_own { list(&objects) } else { answer(path) }
    });
    let (mut out, captured) = output();
    run(ExplainArgs { nodes: Vec::new() }, &cluster, &mut out).await.unwrap();
    captured.data()
}

fn items(items: &serde_json::Value) -> (u16, serde_json::Value) {
    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
}

/// A node whose drain has ended, with this status of the pods that left.
fn drained(node: &str, departed: &serde_json::Value) -> NodeMaintenance {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"})
    };
    with_status(
        node,
        json!({"phase": "Succeeded", "evictionPods": 1, "podCounts": {"gone": 1}, "departedPods": departed,
            "conditions": [condition("Cordoned"), condition("Drained")]}),
    )
}

#[tokio::test]
async fn that_a_node_was_deleted_is_known_of_all_maintenances_that_end() {
    let said = explained_all(vec![nm_core::testing::objects::stopping(requested("n1"))], |path| match path {
        "/api/v1/nodes/n1" => failure(404, "NotFound", "n1"),
        _ => items(&json!([])),
    })
    .await;
    assert!(
        said.contains("The node was deleted, but nm-reconciler has not removed its maintenance yet."),
        "{said}"
    );
}

#[tokio::test]
async fn of_all_maintenances_paused_ones_of_nodes_that_are_off_are_explained() {
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let pods = json!([{"namespace": "shop", "name": "web-1"}]);
    let paused = with_status(
        "n1",
        json!({"phase": "Running", "conditions": suspended, "pendingPods": ["web-1"], "pendingPodsRefs": pods}),
    );
    let off = json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "NodeStatusUnknown", "message": "m"}]}});
    let said = explained_all(vec![paused], move |path| match path {
        "/api/v1/nodes/n1" => (200, off.clone()),
        _ => items(&json!([])),
    })
    .await;
    assert!(said.contains("its kubelet does not report, so its pod cannot terminate."), "{said}");
}

#[tokio::test]
async fn what_is_not_known_of_the_workloads_of_several_nodes_is_said_once() {
    let objects = vec![
        drained("n1", &json!({})),
        drained("n2", &json!({})),
        with_status("n3", json!({"phase": "Failed", "lastError": "m"})),
        with_status("n4", json!({"phase": "Failed", "lastError": "m"})),
    ];
    let event = |at: usize| {
        json!({"metadata": {"name": format!("e{at}"), "namespace": "shop"}, "reason": "Killing",
            "involvedObject": {"namespace": format!("ns-{at}"), "name": "p", "uid": at.to_string()},
            "source": {"host": if at.is_multiple_of(2) { "n1" } else { "n2" }}, "lastTimestamp": "2026-01-02T03:05:00Z"})
    };
    let events: Vec<serde_json::Value> = (0..30).map(event).collect();
    let said = explained_all(objects, move |path| match path {
        "/api/v1/events" => items(&json!(events)),
        _ => items(&json!([])),
    })
    .await;
    assert_eq!(said.matches("It is not known of all workloads whose pods left").count(), 1, "{said}");
    assert!(said.contains("Nodes n1, n2."), "{said}");
}

#[test]
fn every_workload_of_several_nodes_that_is_down_is_named_or_counted() {
    let objects: Vec<NodeMaintenance> = (0..12).map(|at| drained(&format!("n{at}"), &json!({}))).collect();
    let judged = |at: usize| {
        let down = vec![format!("shop/deploy/web-{at}")];
        let cause = Cause {
            what: vec![
                format!("shop/deploy/web-{at} is down: its 1 pod is not ready."),
                format!("1 pod of this workload left n{at} during the drain."),
            ],
            common: Some(CommonGround::Outages(Vec::new())),
            is_outage: true,
            down,
            ..Cause::default()
        };
        Judged { object: &objects[at], causes: vec![cause], halted: None }
    };
    let context = Context {
        reconcilers: &reconcilers(Leadership::Held),
        facts: &ClusterFacts::default(),
        kubectl: "kubectl",
        now: "2026-01-02T03:07:25Z".parse().unwrap(),
    };
    let (mut out, captured) = output();
    explain_all((0..12).map(judged).collect(), &context, &mut out).unwrap();
    let said = captured.data();
    let down = "shop/deploy/web-0, shop/deploy/web-1, shop/deploy/web-2 and 9 more are down: none of their pods is ready.";
    assert!(said.contains(down) && said.contains("    kubectl get deployments,statefulsets -A\n"), "{said}");
    assert!(said.contains("4 more details are left out here"), "{said}");
}

#[tokio::test]
async fn a_job_that_failed_since_its_pod_left_is_named() {
    let event = json!({"metadata": {"name": "e", "namespace": "shop"}, "reason": "Killing",
        "involvedObject": {"namespace": "shop", "name": "batch-x7k2p", "uid": "u"},
        "source": {"host": "n1"}, "lastTimestamp": "2026-01-02T03:05:00Z"});
    let failed = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
        "lastTransitionTime": "2026-01-02T03:05:09Z"});
    let job = json!({"metadata": {"name": "batch", "namespace": "shop"}, "status": {"conditions": [failed]}});
    let answer = move |path: &str| match path {
        "/api/v1/events" => items(&json!([event])),
        "/apis/batch/v1/namespaces/shop/jobs" => items(&json!([job])),
        _ => items(&json!([])),
    };
    let said = explained_all(vec![drained("n1", &json!({"ofJobs": 1}))], answer.clone()).await;
    assert!(said.contains("shop/job/batch has failed (BackoffLimitExceeded)"), "{said}");
    assert!(said.contains("kubectl -n shop describe job batch"), "{said}");
    let said = explained_all(vec![drained("n1", &json!({}))], answer).await;
    assert_eq!(said, "No maintenance is blocked or failed.\n", "the drain evicted no pod of a Job");
}

#[test]
fn a_cause_that_needs_nothing_has_no_line_of_advice() {
    let cause = Cause { what: vec![String::from("It is over.")], ..Cause::default() };
    let lines = paragraph(&cause, &[], Timestamp::UNIX_EPOCH);
    assert_eq!(lines.iter().map(Line::to_string).collect::<Vec<_>>(), ["It is over."]);
}
