//! The first cause behind a budget, on the screen of an open node.

use std::collections::HashMap;
use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use nm_core::client::watch_stream::WatchChange;
use nm_core::explain::cluster_facts::{ClusterFacts, GuardedPods, ReadPod, Unseen};
use nm_core::explain::remedy::Remedy;
use nm_core::leader::gap::LeaderGap;
use nm_core::maintenance::ROLL_LABEL;
use nm_core::maintenance::roll::{RollRunners, STATE};
use nm_core::testing::objects::{running, timed_out, with_status};
use nm_shared::{Phase, PodReference};
use ratatui::layout::Rect;
use serde_json::json;

use crate::layout::remedy_lines;
use crate::message::{Effect, Message};
use crate::model::panes::advice::remedy_of_blocked;
use crate::model::{Model, Options};
use crate::objects::replacements::{ReplacementChange, ReplacementScope};
use crate::tests::replacements::{replica, report};
use crate::tests::scenes::{empty, fleet, node, now, options, pod, press, send, type_in};
use crate::update::causes::known_of;

pub(super) fn cart() -> PodReference {
    PodReference { namespace: "shop".into(), name: "cart".into() }
}

/// What a tick asks for, except that nodes are followed.
pub(super) fn tick(model: &mut Model, seconds: i64) -> Vec<Effect> {
    let mut effects = send(model, Message::Tick(now() + SignedDuration::from_secs(seconds)));
    effects.retain(|effect| !matches!(effect, Effect::Follow(_) | Effect::ReadOutages(_)));
    effects
}

/// What is read of a budget that guards `shop/cart-0` and can never allow its eviction.
pub(super) fn never_allowing(node: &str) -> Box<ClusterFacts> {
    let budget = json!({
        "metadata": {"name": "cart", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "cart"}}},
        "status": {"observedGeneration": 1, "expectedPods": 3, "desiredHealthy": 3, "currentHealthy": 3,
            "disruptionsAllowed": 0},
    });
    let pod = json!({"metadata": {"name": "cart-0", "namespace": "shop"}, "spec": {"nodeName": node, "containers": []}});
    let guarded = GuardedPods {
        budget: Ok(Some(serde_json::from_value(budget).unwrap())),
        pods: Ok(vec![serde_json::from_value(pod).unwrap()]),
        incomplete_owners: vec![],
        may_surge: false,
        full_quota: None,
        warnings: HashMap::default(),
    };
    of_cart(guarded)
}

fn parse<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn of_cart(guarded: GuardedPods) -> Box<ClusterFacts> {
    let budgets = [(cart(), guarded)].into();
    Box::new(ClusterFacts { budgets, ..ClusterFacts::default() })
}

pub(super) fn read(facts: Box<ClusterFacts>) -> Message {
    Message::CauseFacts { node: "worker-07".into(), facts }
}

#[test]
fn the_cause_of_an_open_node_is_read_once_and_shown() {
    let mut model = node(options());
    let effects = tick(&mut model, 1);
    let [Effect::ReadCauses { node, wanted, all, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(node, "worker-07");
    assert!(wanted.budgets.contains(&cart()), "{wanted:?}");
    assert!(all.iter().any(|object| object.spec.node_name == "worker-07"), "{all:?}");
    assert_eq!(tick(&mut model, 2), [], "it is not read again at once");

    send(&mut model, read(never_allowing("worker-07")));
    let (why, remedy) = model.remedy().unwrap();
    assert!(
        why.ends_with("The budget can never allow an eviction: maxUnavailable is 0, and it has 3 pods"),
        "{why}"
    );
    assert_eq!(
        remedy.command,
        r#"kubectl -n shop patch pdb cart --type=merge -p '{"spec":{"maxUnavailable":1}}'"#
    );
}

#[test]
fn a_node_that_its_roll_returns_is_not_suggested_to_be_stopped() {
    let mut model = node(options());
    let condition = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": now()});
    let mut drained = with_status("worker-99", json!({"phase": "Succeeded", "conditions": [condition]}));
    drained.metadata.uid = Some("upgraded".into());
    drained.metadata.labels = Some([(ROLL_LABEL.to_owned(), "par".to_owned())].into());
    let record = json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": now()}}).to_string();
    drained.metadata.annotations = Some([(STATE.to_owned(), record)].into());
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(drained))));
    let effects = tick(&mut model, 1);
    let [Effect::ReadCauses { all, rolls, .. }] = &effects[..] else { panic!("{effects:?}") };

    let mut facts = known_of(all, rolls.clone());
    let node = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    facts.nodes = Some(Ok(["worker-07", "worker-99"].map(|name| parse(node(name))).into()));
    let mut guarded = never_allowing("worker-07").budgets.remove(&cart()).unwrap();
    let ready = json!({"metadata": {"name": "cart-0", "namespace": "shop"}, "spec": {"nodeName": "worker-07", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let unfit = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 node(s) were unschedulable."});
    let pending = json!({"metadata": {"name": "cart-1", "namespace": "shop"}, "spec": {"containers": []},
        "status": {"phase": "Pending", "conditions": [unfit]}});
    guarded.pods = Ok([ready, pending].map(parse).into());
    let budget = guarded.budget.as_mut().unwrap().as_mut().unwrap();
    budget.spec.as_mut().unwrap().max_unavailable = Some(IntOrString::Int(1));
    let status = budget.status.as_mut().unwrap();
    (status.desired_healthy, status.current_healthy) = (2, 2);
    facts.budgets = [(cart(), guarded)].into();
    send(&mut model, read(Box::new(facts)));
    let (why, remedy) = model.remedy().unwrap();
    assert!(why.contains("No node is left"), "{why}");
    assert_eq!(remedy.command, "kubectl nm roll status par", "{remedy:?}");
}

#[test]
fn what_could_not_be_read_is_shown_and_no_change_of_the_budget_suggested() {
    let mut model = node(options());
    let hidden = GuardedPods {
        budget: Err(Unseen::Forbidden("get poddisruptionbudgets.policy".into())),
        pods: Ok(vec![]),
        incomplete_owners: vec![],
        may_surge: false,
        full_quota: None,
        warnings: HashMap::default(),
    };
    send(&mut model, read(of_cart(hidden)));
    let (why, remedy) = model.remedy().unwrap();
    assert!(
        why.ends_with("Not known, because you have no permission to get poddisruptionbudgets.policy"),
        "{why}"
    );
    assert_eq!(remedy.command, "kubectl nm explain worker-07");
}

#[test]
fn the_time_that_is_left_is_that_of_the_moment_when_it_is_drawn() {
    let mut model = node(options());
    tick(&mut model, 1);
    let mut facts = never_allowing("worker-07");
    let guarded = facts.budgets.get_mut(&cart()).unwrap();
    let deadline = now() + SignedDuration::from_secs(20);
    let pod = json!({"metadata": {"name": "cart-1", "namespace": "shop", "deletionTimestamp": deadline.to_string(),
        "deletionGracePeriodSeconds": 30}, "spec": {"nodeName": "worker-08", "containers": []}});
    let budget = json!({
        "metadata": {"name": "cart", "namespace": "shop", "generation": 1},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "cart"}}},
        "status": {"observedGeneration": 1, "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2,
            "disruptionsAllowed": 0},
    });
    guarded.budget = Ok(Some(serde_json::from_value(budget).unwrap()));
    let ready = json!({"metadata": {"name": "cart-0", "namespace": "shop"}, "spec": {"nodeName": "worker-07", "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    guarded.pods = Ok([ready, pod].map(|pod| serde_json::from_value(pod).unwrap()).into());
    send(&mut model, read(facts));
    let left = |model: &Model| model.remedy().unwrap().0;
    assert!(left(&model).contains("19s of its grace period"), "{}", left(&model));
    assert_eq!(tick(&mut model, 14), [], "nothing has to be read to count down");
    assert!(left(&model).contains("6s of its grace period"), "{}", left(&model));
    let effects = tick(&mut model, 21);
    assert!(matches!(effects[..], [Effect::ReadCauses { .. }]), "the pod may be gone: {effects:?}");
}

#[test]
fn what_blocks_a_drain_that_has_timed_out_is_not_all_that_has_to_be_done() {
    let advice = |phase: Phase| {
        let mut object = timed_out("worker-07", running(40, &[("cart-0", "m")]));
        object.status.as_mut().unwrap().phase = Some(phase);
        remedy_of_blocked(&object, &RollRunners::default(), "kubectl", now()).unwrap().1.advice
    };
    let continues = "; then remove the timeout, and the drain continues";
    assert!(advice(Phase::Failed).ends_with(continues), "{}", advice(Phase::Failed));
    assert!(!advice(Phase::Running).contains("timeout"), "{}", advice(Phase::Running));
}

/// What is read of a budget that guards `shop/cart-0` and allows its eviction by now.
pub(super) fn allowing(node: &str) -> Box<ClusterFacts> {
    let mut facts = never_allowing(node);
    let budget = facts.budgets.get_mut(&cart()).unwrap().budget.as_mut().unwrap().as_mut().unwrap();
    budget.status.as_mut().unwrap().disruptions_allowed = 1;
    facts
}

#[test]
fn an_eviction_is_retried_only_while_nm_reconciler_leads() {
    let mut model = node(options());
    send(&mut model, read(allowing("worker-07")));
    let advice = |model: &Model| {
        let (why, remedy) = model.remedy().unwrap();
        assert!(why.ends_with("By now, the budget allows 1 eviction"), "{why}");
        (remedy.advice, remedy.command)
    };
    let retried =
        (String::from("The eviction is retried within seconds"), String::from("kubectl nm status worker-07"));
    assert_eq!(advice(&model), retried);
    let renewed = now() - SignedDuration::from_mins(5);
    send(&mut model, Message::Leader(Some(LeaderGap::Lapsed { renewed, valid_seconds: 15 })));
    let (alone, command) = advice(&model);
    assert!(alone.starts_with("Check why nm-reconciler is not running"), "{alone}");
    assert!(command.starts_with("kubectl get pods -A"), "{command}");
    // Whatever works on it is not seen.
    for gap in [None, Some(LeaderGap::NotInstalled)] {
        send(&mut model, Message::Leader(gap));
        assert_eq!(advice(&model), retried);
    }
}

#[test]
fn what_blocked_a_drain_that_has_timed_out_and_is_over_is_shown_with_what_continues_the_drain() {
    let mut model = node(options());
    let mut status = running(40, &[("cart-0", "m")]);
    status["blockedPods"][0]["budget"] = json!({"name": "cart"});
    let failed = timed_out("worker-07", status);
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(failed))));
    send(&mut model, read(allowing("worker-07")));
    let (why, remedy) = model.remedy().unwrap();
    assert!(why.ends_with("By now, the budget allows 1 eviction"), "{why}");
    assert_eq!(
        (remedy.advice.as_str(), remedy.command.as_str()),
        (
            "What blocked the drain is over: remove the timeout, and the drain continues",
            r#"kubectl patch nm worker-07 --type=merge -p '{"spec":{"drain":{"timeoutSeconds":0}}}'"#
        )
    );
}

/// The remedy and the cell WHY of the only node in the list, whose drain has this status.
fn in_list(status: serde_json::Value) -> (String, Remedy, String) {
    let mut model = empty(options());
    let drained = Arc::new(with_status("worker-07", status));
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![drained])));
    let (why, remedy) = model.remedy().unwrap();
    let row = model.fleet.rows.nth(0).unwrap();
    (why, remedy, model.fleet.why(row, model.now).into_owned())
}

#[test]
fn what_keeps_the_whole_drain_comes_before_a_blocked_pod_in_the_list() {
    let mut status = running(0, &[("bare", "has no controller")]);
    status["blockedPods"][0]["reason"] = json!("Unmanaged");
    status["podCounts"] = json!({"blocked": 1});
    let (why, remedy, _) = in_list(status.clone());
    assert!(why.starts_with("worker-07: shop/bare: has no controller"), "{why}");
    assert!(remedy.command.ends_with("delete pod bare"), "{remedy:?}");

    let mut held = status.clone();
    held["hold"] = json!({"since": now(), "hooks": [{"name": "db", "owner": "dba"}]});
    let (why, remedy, cell) = in_list(held);
    assert_eq!(why, "worker-07: No pod is evicted yet: the maintenance waits for hook db (owner: dba)");
    assert!(remedy.command.contains(" annotate nm worker-07 pre-drain.hook"), "{remedy:?}");
    assert_eq!(cell, "waiting for hook db (owner: dba)");

    let mut contested = status;
    let again = "something keeps uncordoning node worker-07";
    contested["conditions"] = json!([{"type": "Degraded", "status": "True", "reason": "CordonContested", "message": again,
        "lastTransitionTime": now()}]);
    let (why, remedy, cell) = in_list(contested);
    assert_eq!(
        (why.as_str(), cell.as_str()),
        ("worker-07: Something keeps uncordoning node worker-07", again)
    );
    assert!(remedy.command.ends_with("--show-managed-fields"), "{remedy:?}");
}

#[test]
fn no_pod_of_an_open_node_is_to_be_deleted_while_a_hook_holds_the_drain() {
    let mut model = node(options());
    let mut status = running(0, &[("cart-0", "has no controller")]);
    status["blockedPods"][0]["reason"] = json!("Unmanaged");
    status["hold"] = json!({"since": now(), "hooks": [{"name": "db", "owner": "dba"}]});
    let held = with_status("worker-07", status);
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(held))));
    assert!(model.remedy().unwrap().1.advice.starts_with("The owner of hook db removes it"));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Up);
    let (_, remedy) = model.remedy().unwrap();
    assert_eq!(
        remedy.advice,
        "Once the hook is removed, delete the pod if you no longer need it: no controller replaces it, and a deletion ignores budgets"
    );
}

#[test]
fn what_holds_the_whole_drain_comes_before_its_pods_until_the_user_chooses_one() {
    let mut model = node(options());
    let mut status = running(40, &[("cart-0", "m")]);
    status["conditions"] = json!([{"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": now()}]);
    let mut paused = with_status("worker-07", status);
    paused.spec.suspend = true;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(paused))));
    let command = |model: &Model| model.remedy().unwrap().1.command;
    assert_eq!(command(&model), "kubectl nm resume worker-07");
    press(&mut model, KeyCode::Down);
    assert_ne!(command(&model), "kubectl nm resume worker-07");
}

#[test]
fn what_is_said_of_a_pod_follows_its_status_without_another_read() {
    let mut model = node(options());
    send(&mut model, read(allowing("worker-07")));
    let mut status = running(40, &[("cart-0", "m")]);
    status["blockedPods"][0]["budget"] = json!({"name": "cart"});
    let failed = Arc::new(timed_out("worker-07", status));
    send(&mut model, Message::Maintenances(WatchChange::Applied(failed)));
    let advice = model.remedy().unwrap().1.advice;
    assert_eq!(advice, "What blocked the drain is over: remove the timeout, and the drain continues");
}

#[test]
fn causes_are_read_again_when_a_replacement_appears_or_changes() {
    let mut model = node(options());
    let is_read = |model: &mut Model, seconds: i64| {
        tick(model, seconds).iter().any(|effect| matches!(effect, Effect::ReadCauses { .. }))
    };
    assert!(is_read(&mut model, 1));
    send(&mut model, read(never_allowing("worker-07")));
    let change = |model: &mut Model, owner: &str, status: serde_json::Value| {
        let pod = replica("shop", "new", owner, "worker-08", 1, &status);
        report(model, ReplacementScope::pods("shop"), ReplacementChange::Replicas(WatchChange::Applied(pod)));
    };
    let (pending, ready) =
        (json!({"phase": "Pending"}), json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    change(&mut model, "StatefulSet/other", pending.clone());
    assert!(!is_read(&mut model, 7), "no pod of it has to leave");
    change(&mut model, "StatefulSet/cart", pending.clone());
    assert!(is_read(&mut model, 8), "it is new");
    change(&mut model, "StatefulSet/cart", pending);
    assert!(!is_read(&mut model, 14), "it is as before");
    change(&mut model, "StatefulSet/cart", ready);
    assert!(is_read(&mut model, 15), "it is Ready");
    assert!(!is_read(&mut model, 21), "once");
}

/// What is read of budgets of these namespaces, each of which guards a pod on worker-07 with the name of its namespace and can never allow its eviction.
fn alike(namespaces: &[&str]) -> Box<ClusterFacts> {
    let facts = never_allowing("worker-07");
    let guarded = |namespace: &&str| {
        let mut guarded = facts.budgets[&cart()].clone();
        let pod = &mut guarded.pods.as_mut().unwrap()[0].metadata;
        (pod.name, pod.namespace) = (Some((*namespace).into()), Some((*namespace).into()));
        let budget = &mut guarded.budget.as_mut().unwrap().as_mut().unwrap().metadata;
        (budget.name, budget.namespace) = (Some("web".into()), Some((*namespace).into()));
        (PodReference { namespace: (*namespace).into(), name: "web".into() }, guarded)
    };
    Box::new(ClusterFacts { budgets: namespaces.iter().map(guarded).collect(), ..ClusterFacts::default() })
}

#[test]
fn what_is_said_of_a_selected_pod_is_about_its_own_budget_even_if_others_block_alike() {
    let namespaces = ["team-03", "team-13", "team-23", "team-33"];
    let mut model = node(options());
    let mut status = running(40, &[("web-0", "m"); 4]);
    for (at, namespace) in namespaces.iter().enumerate() {
        let pod = &mut status["blockedPods"][at];
        (pod["namespace"], pod["name"]) = (json!(namespace), json!(namespace));
        pod["budget"] = json!({"name": "web", "desiredHealthy": 3, "currentHealthy": 3});
    }
    let pods = namespaces.map(|namespace| pod(namespace, namespace, "StatefulSet/web", &json!({})));
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods.into()) });
    let object = Arc::new(with_status("worker-07", status));
    send(&mut model, Message::Maintenances(WatchChange::Applied(object)));
    send(&mut model, read(alike(&namespaces)));
    for namespace in namespaces {
        let own = format!("kubectl -n {namespace} patch pdb web ");
        let (why, remedy) = model.remedy().unwrap();
        assert!(why.starts_with(&format!("{namespace}/{namespace}: PDB {namespace}/web needs 3")), "{why}");
        assert!(remedy.command.starts_with(&own), "{namespace}: {remedy:?}");
        assert!(model.copy_text().unwrap().starts_with(&own), "{namespace}");
        press(&mut model, KeyCode::Down);
    }
    // The rows of the workloads are about their own pods, too.
    press(&mut model, KeyCode::Char('w'));
    press(&mut model, KeyCode::Char('g'));
    for _ in 0..2 * namespaces.len() {
        let row = model.open.as_ref().unwrap().tree.rows.selected().unwrap();
        let own = format!("kubectl -n {} patch pdb web ", row.group.name.0);
        assert!(model.copy_text().unwrap().starts_with(&own), "{own}: {:?}", model.copy_text());
        press(&mut model, KeyCode::Down);
    }
}

#[test]
fn what_blocks_another_row_than_the_selected_one_begins_with_its_name() {
    for (scene, keys, name) in
        [(node as fn(Options) -> Model, "jjj", "shop/cart-0: "), (fleet, "jjjj", "worker-07: shop/cart-0: ")]
    {
        let mut model = scene(options());
        send(&mut model, read(never_allowing("worker-07")));
        type_in(&mut model, keys);
        let (_, remedy) = model.remedy().unwrap();
        for (width, height) in [(40, 12), (80, 16), (80, 24), (200, 50)] {
            let (why, _) = remedy_lines(&model, Rect { x: 0, y: 0, width, height });
            assert!(why[0].starts_with(name), "{why:?}");
        }
        assert_eq!(model.copy_text(), Some(remedy.command));
    }
}

/// The lines of the pane with the details of `shop/cart-0`, which is blocked so.
fn details(blocked: &serde_json::Value, facts: Option<Box<ClusterFacts>>) -> String {
    let mut model = node(options());
    let mut status = running(40, &[("cart-0", "m")]);
    let pod = status["blockedPods"][0].as_object_mut().unwrap();
    pod.extend(blocked.as_object().unwrap().clone());
    let object = Arc::new(with_status("worker-07", status));
    send(&mut model, Message::Maintenances(WatchChange::Applied(object)));
    if let Some(facts) = facts {
        send(&mut model, read(facts));
    }
    press(&mut model, KeyCode::Char('v'));
    model.pane_lines(500).into_iter().map(|(line, _)| line + "\n").collect()
}

#[test]
fn the_details_of_a_pod_show_all_commands_of_its_cause() {
    let two = json!({"reason": "MultipleDisruptionBudgets", "budget": null, "budgets": [{"name": "two"}, {"name": "two-b"}]});
    let facts = Box::new(ClusterFacts::default());
    for facts in [None, Some(facts)] {
        let said = details(&two, facts);
        let commands = "  kubectl -n shop edit pdb two two-b\n  kubectl -n shop annotate pdb two two-b ";
        assert!(said.contains(commands), "{said}");
    }
}

#[test]
fn the_details_of_a_pod_that_returns_show_how_to_edit_its_owner() {
    let pod: k8s_openapi::api::core::v1::Pod = parse(json!({
        "metadata": {"name": "cart-0", "namespace": "shop",
            "ownerReferences": [{"kind": "StatefulSet", "name": "cart", "controller": true, "apiVersion": "apps/v1", "uid": "u"}]},
        "spec": {"nodeName": "worker-07", "containers": [], "tolerations": [{"operator": "Exists"}]}}));
    let replacement = ReadPod { pod, warnings: Vec::new() };
    let replacements = [(PodReference { name: "cart-0".into(), ..cart() }, Ok(Some(replacement)))].into();
    let cordoned = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let nodes = Some(Ok(["worker-07", "worker-99"].map(|name| parse(cordoned(name))).into()));
    let in_maintenance = ["worker-07", "worker-99"].map(str::to_owned).into();
    let facts = Box::new(ClusterFacts { replacements, nodes, in_maintenance, ..ClusterFacts::default() });
    let said = details(&json!({"reason": "KeepsReturning", "budget": null}), Some(facts));
    let first = said.lines().find(|line| line.starts_with("  ")).unwrap_or_default();
    assert_ne!(first, "  kubectl -n shop edit sts/cart", "a node may return to service first: {said}");
    assert!(said.contains("\n  kubectl -n shop edit sts/cart\n"), "{said}");
}

#[test]
fn a_list_leaves_it_to_explain_what_lets_a_pod_return() {
    let message = "pods of its owner have returned to the node at least 3 times and are not evicted again: their owner assigns them to this node, bypassing the scheduler";
    let mut status = running(0, &[("web-0", message)]);
    status["blockedPods"][0]["reason"] = json!("KeepsReturning");
    status["podCounts"] = json!({"blocked": 1});
    let (_, remedy, _) = in_list(status);
    assert_eq!(
        (remedy.advice.as_str(), remedy.command.as_str()),
        ("This shows how to change what lets the pod return", "kubectl nm explain worker-07")
    );
}
