//! Where the pods of a node went: the tree of replacements, and the summary of a drain that has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::{Event, KeyCode};
use insta::assert_snapshot;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::explain::owner::Owner;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::config::appearance::{Appearance, ThemeName};
use crate::message::{Effect, Message};
use crate::model::{Model, Options};
use crate::objects::replacement_pod::{Replica, WatchedReplica};
use crate::objects::replacements::ReplacementChange;
use crate::objects::replacements::ReplacementScope;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::objects::workload::{ReadyPods, Workload, WorkloadKind};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{
    ago, controllers, empty, maintenance, moving, node, now, options, pod, pods, press, send, set_watch,
    type_in, worker_07,
};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

/// A pod on another node, created so many seconds ago.
pub(super) fn replica(
    namespace: &str,
    name: &str,
    owner: &str,
    on: &str,
    seconds: i64,
    status: &Value,
) -> Arc<Replica> {
    let owner = controllers(owner);
    let pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("new-{name}"),
        "creationTimestamp": ago(seconds), "ownerReferences": owner}, "spec": {"nodeName": on}, "status": status});
    Arc::new(serde_json::from_value::<WatchedReplica>(pod).unwrap().into_replica().unwrap())
}

pub(super) fn report(model: &mut Model, scope: ReplacementScope, change: ReplacementChange) {
    send(model, Message::Replacements { node: String::from("worker-07"), scope, change });
}

pub(super) fn report_pods(model: &mut Model, namespace: &str, replicas: Vec<Arc<Replica>>) {
    let scope = || ReplacementScope::pods(namespace);
    report(model, scope(), ReplacementChange::Replicas(WatchChange::Listed(replicas)));
    report(model, scope(), ReplacementChange::State(WatchState::Live));
}

fn report_workloads(model: &mut Model, namespace: &str, kind: WorkloadKind, found: &[(&str, i32, i32)]) {
    let workload = |(name, ready, wanted): &(&str, i32, i32)| {
        let readiness = ReadyPods { ready: *ready, wanted: *wanted };
        Arc::new(Workload { name: (*name).to_owned(), readiness })
    };
    let change = WatchChange::Listed(found.iter().map(workload).collect());
    report(model, ReplacementScope::workloads(namespace, kind), ReplacementChange::Workloads(kind, change));
}

/// The tree of worker-07 in the middle of its drain, with a replacement in each state.
fn tree(options: Options) -> Model {
    let mut model = moving(options);
    type_in(&mut model, "w");
    let containers = |state: Value| json!({"phase": "Pending", "containerStatuses": [state]});
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let full = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/50 nodes are available: 1 node(s) were unschedulable, 49 Insufficient cpu."}]});
    let image = json!({"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff",
        "message": "Back-off pulling image \"registry.example.com/worker:2\""}}});
    let probed = json!({"name": "app", "ready": false, "started": true, "state": {"running": {}}});
    let worker = |name: &str, on: &str, seconds: i64, status: &Value| {
        replica("pay", name, "ReplicaSet/worker", on, seconds, status)
    };
    report_pods(
        &mut model,
        "pay",
        vec![
            worker("worker-w4", "worker-11", 20, &ready),
            worker("worker-w5", "", 19, &full),
            worker("worker-w6", "worker-12", 18, &containers(image)),
            worker("worker-w7", "worker-12", 17, &containers(probed)),
            worker("worker-before", "worker-09", 9000, &ready),
        ],
    );
    let front = replica("web", "front-6c4f9-k2p", "ReplicaSet/front-6c4f9", "worker-11", 3, &ready);
    report_pods(&mut model, "web", vec![front]);
    report_pods(&mut model, "shop", Vec::new());
    let denied = ReplacementChange::State(WatchState::Forbidden("no".into()));
    report(&mut model, ReplacementScope::pods("vms"), denied);
    report_workloads(&mut model, "shop", WorkloadKind::StatefulSet, &[("cart", 3, 3), ("other", 0, 3)]);
    report_workloads(&mut model, "pay", WorkloadKind::StatefulSet, &[("ledger", 1, 2)]);
    for ready in [5, 2, 3] {
        report_workloads(&mut model, "pay", WorkloadKind::ReplicaSet, &[("worker", ready, 5)]);
    }
    let denied = ReplacementChange::State(WatchState::Forbidden("no".into()));
    report(&mut model, ReplacementScope::workloads("web", WorkloadKind::ReplicaSet), denied);
    model
}

/// The maintenance of worker-07 at its end.
fn drained() -> NodeMaintenance {
    let condition = |type_: &str, since: i64| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": ago(since)});
    let status = json!({"phase": "Succeeded", "drainProgress": 100, "evictionPods": 26, "podCounts": {"gone": 26},
        "conditions": [condition("Cordoned", 250), condition("Drained", 0)], "lastUpdate": ago(0)});
    maintenance("worker-07", 252, status)
}

fn update_maintenance(model: &mut Model, object: NodeMaintenance) {
    send(model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
}

/// The same drain, once it has ended.
pub(super) fn ended(options: Options) -> Model {
    let mut model = tree(options);
    let mut object = worker_07();
    let left = |name: &str| json!({"namespace": "shop", "name": name});
    let status = object.status.as_mut().unwrap();
    status.pending_pods_refs = serde_json::from_value(json!([left("cart-0"), left("cart-2")])).unwrap();
    update_maintenance(&mut model, object);
    for pod in pods().into_iter().filter(|pod| pod.id.owner != Owner::recorded("ds/cni")) {
        let change = WatchChange::Deleted(pod);
        send(&mut model, Message::Pods { node: "worker-07".into(), change });
    }
    update_maintenance(&mut model, drained());
    model
}

#[test]
fn the_tree_shows_where_pods_went_and_what_their_replacements_wait_for() {
    for (width, height) in [(200, 50), (120, 40), (80, 36), (45, 36)] {
        assert_snapshot!(format!("tree_{width}x{height}"), painted(&tree(sized(width, height))));
    }
}

#[test]
fn a_workload_without_a_ready_pod_of_which_pods_left_is_first_unless_it_was_down_before() {
    let mut model = tree(options());
    let first = |model: &Model| model.open.as_ref().unwrap().tree.rows.nth(0).unwrap().line();
    assert_ne!(first(&model).as_deref(), Some("pay rs/worker"));
    report_workloads(&mut model, "pay", WorkloadKind::ReplicaSet, &[("worker", 0, 5)]);
    assert_eq!(first(&model).as_deref(), Some("pay rs/worker"));
    assert!(text(&model).contains("! 0/5 ready"), "{}", text(&model));
    report_workloads(&mut model, "pay", WorkloadKind::ReplicaSet, &[("worker", 0, 0)]);
    assert_ne!(first(&model).as_deref(), Some("pay rs/worker"), "it is scaled to 0");
}

#[test]
fn themes_and_ascii_show_the_same_tree() {
    for (name, theme) in
        [("light", ThemeName::Light), ("colour_blind", ThemeName::ColourBlind), ("mono", ThemeName::Mono)]
    {
        let options = Options { appearance: Appearance { theme, ascii: false }, ..sized(80, 24) };
        assert_snapshot!(format!("tree_{name}"), painted(&tree(options)));
    }
    let appearance = Appearance { ascii: true, ..Appearance::default() };
    let model = tree(Options { appearance, ..sized(80, 24) });
    assert!(text(&model).is_ascii());
    assert_snapshot!("tree_ascii", painted(&model));
}

#[test]
fn a_drain_that_has_ended_leaves_a_summary() {
    let mut model = ended(sized(120, 30));
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Esc);
    assert!(model.open.is_none());
    let find = |uid: &str| model.fleet.maintenance(uid).map(AsRef::as_ref);
    let summaries = model.records.ended(find, false);
    let [(name, lines)] = &summaries[..] else { panic!("{summaries:?}") };
    assert_eq!((name.as_str(), lines.len()), ("worker-07", 4));
    assert!(lines[3].contains("pay rs/worker 2/5"), "the readiness outlives the view of the node: {lines:?}");
}

#[test]
fn the_tree_watches_the_namespaces_of_pods_that_leave_and_only_once() {
    let mut model = node(options());
    let effects = type_in(&mut model, "w");
    let pods = ["pay", "shop", "vms", "web"].map(ReplacementScope::pods);
    let workloads = [
        ("pay", WorkloadKind::ReplicaSet),
        ("pay", WorkloadKind::StatefulSet),
        ("shop", WorkloadKind::StatefulSet),
        ("web", WorkloadKind::ReplicaSet),
    ]
    .map(|(namespace, kind)| ReplacementScope::workloads(namespace, kind));
    let mut wanted: BTreeSet<ReplacementScope> = pods.into_iter().chain(workloads).collect();
    assert_eq!(effects, [Effect::WatchReplacements(wanted.clone())]);
    assert_eq!(type_in(&mut model, "ww"), []);

    let late = |namespace: &str, name: &str| {
        let change = WatchChange::Applied(pod(namespace, name, "StatefulSet/late", &json!({})));
        Message::Pods { node: "worker-07".into(), change }
    };
    assert_eq!(send(&mut model, late("shop", "late-0")), []);
    wanted.insert(ReplacementScope::pods("new"));
    wanted.insert(ReplacementScope::workloads("new", WorkloadKind::StatefulSet));
    assert_eq!(send(&mut model, late("new", "late-1")), [Effect::WatchReplacements(wanted)]);
}

#[test]
fn a_node_without_a_maintenance_has_no_tree() {
    let mut model = empty(Options { nodes: vec!["worker-07".into()], ..options() });
    let change = WatchChange::Listed(pods());
    send(&mut model, Message::Pods { node: "worker-07".into(), change });
    assert_eq!(type_in(&mut model, "w"), []);
    assert!(text(&model).contains("No pod leaves this node."), "{}", text(&model));
}

#[test]
fn pods_of_too_many_namespaces_are_reported_as_not_watched() {
    let mut model = node(options());
    let ending = json!({"deletionTimestamp": (now() + SignedDuration::from_secs(9)).to_string()});
    let of =
        |number: usize| pod(&format!("ns-{number:03}"), &format!("p-{number:03}"), "ReplicaSet/x", &ending);
    let change = WatchChange::Listed((0..60).map(of).collect());
    send(&mut model, Message::Pods { node: "worker-07".into(), change });
    let effects = type_in(&mut model, "w");
    let [Effect::WatchReplacements(scopes)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(scopes.len(), 100, "pods and ReplicaSets of fifty namespaces");
    press(&mut model, KeyCode::End);
    assert!(text(&model).contains("not watched: more than 50 namespaces"), "{}", text(&model));
    press(&mut model, KeyCode::Home);
    assert!(text(&model).contains("loading the pods of ns-000"), "{}", text(&model));
}

#[test]
fn the_tree_is_filtered_sorted_and_left_like_a_list() {
    let mut model = tree(sized(120, 40));
    let shown = |model: &Model| text(model);
    type_in(&mut model, "/state:unsch");
    press(&mut model, KeyCode::Enter);
    assert!(shown(&model).contains("worker-w5") && !shown(&model).contains("worker-w4"), "{}", shown(&model));
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "f");
    assert!(shown(&model).contains("cart-0") && !shown(&model).contains("ledger"), "{}", shown(&model));
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "sS");
    assert!(shown(&model).contains("sort:name"), "{}", shown(&model));
    type_in(&mut model, "s");
    assert!(shown(&model).contains("sort:risk"), "a tree has no other order");
    press(&mut model, KeyCode::Esc);
    assert!(model.open.as_ref().is_some_and(|open| !open.tree.is_shown));
    assert!(shown(&model).contains("NAMESPACE/POD"), "{}", shown(&model));
}

#[test]
fn the_selected_row_of_the_tree_is_what_keys_act_on() {
    let mut model = tree(sized(120, 40));
    type_in(&mut model, "/worker-w5");
    press(&mut model, KeyCode::Enter);
    let open = model.open.as_ref().unwrap();
    assert!(open.selected_pod().is_none(), "a replacement is no pod of the node");
    let command = "kubectl -n pay describe pod worker-w5";
    assert!(
        text(&model).contains("Unschedulable: 0/50") && text(&model).contains(command),
        "{}",
        text(&model)
    );
    assert_eq!(model.copy_text().as_deref(), Some(command));
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "/cart-0");
    press(&mut model, KeyCode::Enter);
    let row = model.open.as_ref().unwrap().selected_pod().unwrap();
    assert_eq!(row.id.name, "cart-0");
    assert!(text(&model).contains("kubectl nm explain worker-07"), "{}", text(&model));
}

#[test]
fn messages_for_another_node_do_not_change_the_tree() {
    let mut model = tree(sized(120, 40));
    let before = text(&model);
    let change = ReplacementChange::Replicas(WatchChange::Listed(Vec::new()));
    let scope = ReplacementScope::pods("pay");
    send(&mut model, Message::Replacements { node: "worker-12".into(), scope, change });
    assert_eq!(text(&model), before);
}

#[test]
fn a_lost_watch_says_how_old_its_data_is() {
    let mut model = tree(sized(120, 40));
    let since = now() - SignedDuration::from_secs(42);
    let lost = ReplacementChange::State(WatchState::Lost { since, error: "e".into() });
    report(&mut model, ReplacementScope::workloads("pay", WorkloadKind::StatefulSet), lost);
    assert!(text(&model).contains("data 42s old"), "{}", text(&model));
}

#[test]
fn text_of_replacements_never_controls_the_terminal() {
    let mut model = tree(sized(200, 50));
    let evil = "x\u{1b}[31m\u{202e}y";
    let message =
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": evil, "message": evil}]});
    report_pods(&mut model, "pay", vec![replica("pay", evil, "ReplicaSet/worker", "", 20, &message)]);
    let shown = text(&model);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()) && !shown.contains('\u{202e}'), "{shown}");
    assert!(shown.contains("x^[[31m\\u{202e}y: x^[[31m"), "{shown}");
}

#[test]
fn every_size_of_the_tree_can_be_drawn() {
    for mut model in [tree(options()), ended(options())] {
        for width in [1, 2, 5, 39, 40, 49, 50, 79, 119, 120, 300] {
            for height in [1, 2, 7, 8, 9, 11, 13, 16, 20, 60] {
                send(&mut model, Message::Input(Event::Resize(width, height)));
                text(&model);
            }
        }
    }
}

#[test]
fn a_tree_that_follows_each_change_is_the_one_that_is_built_anew() {
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let mut model = tree(sized(120, 50));
    let replica_of_pay = |name: &str| replica("pay", name, "ReplicaSet/worker", "worker-13", 16, &ready);
    let of_pay = |change| (ReplacementScope::pods("pay"), ReplacementChange::Replicas(change));
    let pods = pods();
    let named = |name: &str| pods.iter().find(|pod| pod.id.name == name).unwrap().clone();
    let in_node = |change| Message::Pods { node: "worker-07".into(), change };
    let of = |(scope, change)| Message::Replacements { node: "worker-07".into(), scope, change };
    let late = pod("pay", "worker-late", "ReplicaSet/worker", &json!({}));
    let workload = Arc::new(Workload { name: "cart".into(), readiness: ReadyPods { ready: 0, wanted: 3 } });
    let kind = WorkloadKind::StatefulSet;
    let change = ReplacementChange::Workloads(kind, WatchChange::Applied(workload));
    for message in [
        of(of_pay(WatchChange::Applied(replica_of_pay("worker-w5")))),
        of(of_pay(WatchChange::Deleted(replica_of_pay("worker-w4")))),
        of((ReplacementScope::workloads("shop", kind), change)),
        in_node(WatchChange::Deleted(named("ledger-1"))),
        in_node(WatchChange::Applied(late.clone())),
        in_node(WatchChange::Deleted(named("bare"))),
        in_node(WatchChange::Deleted(late)),
        Message::Tick(now() + SignedDuration::from_secs(3600)),
    ] {
        let what = format!("{message:?}");
        let before = text(&model);
        send(&mut model, message);
        let followed = text(&model);
        assert_ne!(followed, before, "{what}");
        model.open.as_mut().unwrap().tree.outdate();
        send(&mut model, Message::Input(Event::Resize(120, 50)));
        assert_eq!(text(&model), followed, "{what}");
    }
}

#[test]
fn a_pod_that_only_the_status_has_named_has_an_unknown_owner() {
    let mut model = crate::tests::screens::pods_forbidden(options());
    let mut object = NodeMaintenance::clone(model.fleet.maintenance_of("worker-07").unwrap());
    let status = object.status.as_mut().unwrap();
    status.pending_pods_refs.retain(|pod| pod.namespace != "web");
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    let left = pods().into_iter().filter(|pod| pod.id.namespace != "web").collect();
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(left) });
    press(&mut model, KeyCode::Char('w'));
    let shown = text(&model);
    assert!(shown.contains("web: owner unknown") && shown.contains("its workload is not known"), "{shown}");
    assert!(!shown.contains("no controller"), "{shown}");
}

#[test]
fn one_pod_that_left_before_is_counted_as_one() {
    let mut model = tree(options());
    let mut object = worker_07();
    object.status.as_mut().unwrap().pod_counts.gone -= 12;
    update_maintenance(&mut model, object);
    let shown = text(&model);
    assert!(shown.contains("1 pod left before you opened this node and is not shown"), "{shown}");
}

#[test]
fn the_log_of_a_replacement_that_keeps_exiting_is_that_of_the_run_that_has_ended() {
    let loops = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let ended = json!({"terminated": {"exitCode": 7, "reason": "Error"}});
    for (state, flag) in [(loops, " --previous"), (ended, "")] {
        let mut model = moving(options());
        type_in(&mut model, "w");
        let container = json!({"name": "app", "ready": false, "restartCount": 3, "state": state});
        let status = json!({"phase": "Running", "containerStatuses": [container]});
        let crashing = replica("pay", "worker-w6", "ReplicaSet/worker", "worker-12", 18, &status);
        report_pods(&mut model, "pay", vec![crashing]);
        let is_selected = |model: &Model| model.copy_text().is_some_and(|text| text.contains("worker-w6"));
        for _ in 0..100 {
            if !is_selected(&model) {
                press(&mut model, KeyCode::Down);
            }
        }
        let expected = format!("kubectl -n pay logs worker-w6 -c app{flag}");
        assert_eq!(model.copy_text().as_deref(), Some(expected.as_str()));
    }
}
