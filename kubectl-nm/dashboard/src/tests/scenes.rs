//! Models with a fleet in the middle of several drains.

use std::sync::Arc;

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_core::client::watch_stream::WatchChange;
use nm_core::testing::objects::{budget, requested, stopping};
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};
use nm_shared::NodeMaintenance;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::cordon_owner::CordonOwner;
use serde_json::{Value, json};

use crate::config::appearance::Appearance;
use crate::config::config_file::Config;
use crate::message::Effect;
use crate::message::Message;
use crate::model::Model;
use crate::model::dialogs::start_preview::DrainPlan;
use crate::model::{Options, RecordingMode};
use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};
use crate::objects::node_pod::NodePod;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::update::update;

/// The message of a budget that allows no eviction.
const CART: &str = "The disruption budget cart needs 3 healthy pods and has 3 currently";

/// A maintenance that was deleted a moment ago.
fn just_stopped(maintenance: NodeMaintenance) -> NodeMaintenance {
    let mut stopped = stopping(maintenance);
    stopped.metadata.deletion_timestamp = Some(Time(now() - SignedDuration::from_secs(5)));
    stopped
}

/// The time in every scene.
pub(crate) fn now() -> Timestamp {
    "2026-01-02T03:10:00Z".parse().unwrap()
}

/// A time so many seconds before that.
pub(super) fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// The settings of every scene.
pub(crate) fn options() -> Options {
    Options {
        nodes: Vec::new(),
        all_nodes: false,
        context: String::from("prod-eu"),
        kubectl: String::from("kubectl"),
        readonly: false,
        recording: RecordingMode::Off,
        config: Config::default(),
        notice: None,
        appearance: Appearance::default(),
        without_colours: None,
        size: (120, 30),
        now: now(),
    }
}

/// A maintenance that started so many seconds ago.
pub(crate) fn maintenance(node: &str, started: i64, status: Value) -> NodeMaintenance {
    let mut object = requested(node);
    object.metadata.creation_timestamp = serde_json::from_value(json!(ago(started))).unwrap();
    object.spec.reason = Some(String::from("kernel 6.12"));
    object.status = serde_json::from_value(status).unwrap();
    object
}

/// A condition with this status for so many seconds.
fn condition(type_: &str, status: &str, reason: &str, since: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
        "lastTransitionTime": ago(since)})
}

fn blocked(namespace: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({"namespace": namespace, "name": name, "reason": reason, "message": message,
        "since": ago(190), "attempts": 12, "budget": budget(message)})
}

/// The maintenance of the node that the scenes open.
pub(crate) fn worker_07() -> NodeMaintenance {
    let mut held = blocked("web", "import-9x", "Finalizers", "terminated, but finalizers keep the object");
    held["finalizers"] = json!(["example.com/backup"]);
    maintenance(
        "worker-07",
        252,
        json!({
            "phase": "Running", "drainProgress": 53, "evictionPods": 26, "totalpods": 30,
            "conditions": [condition("Cordoned", "True", "Cordoned", 250), condition("Drained", "False", "Blocked", 250)],
            "blockedPods": [
                blocked("shop", "cart-0", "DisruptionBudget", CART),
                blocked("shop", "cart-2", "DisruptionBudget", CART),
                held,
            ],
            "migratingPods": [{"namespace": "vms", "name": "virt-launcher-db-x", "machine": "db",
                "source": "worker-07", "target": "worker-11", "since": ago(12)}],
            "podCounts": {"terminating": 5, "blocked": 3, "migrating": 1, "waiting": 3, "staying": 4, "gone": 14},
        }),
    )
}

/// A fleet with a maintenance in every state.
pub(crate) fn maintenances() -> Vec<NodeMaintenance> {
    let running = |gone: i32, pods: i32, counts: Value| {
        let mut counts = counts;
        counts["gone"] = json!(gone);
        json!({"phase": "Running", "drainProgress": gone * 100 / pods, "evictionPods": pods, "podCounts": counts,
            "conditions": [condition("Cordoned", "True", "Cordoned", 90)]})
    };
    let done = |pods: i32, since: i64| {
        json!({"phase": "Succeeded", "drainProgress": 100, "evictionPods": pods, "podCounts": {"gone": pods},
            "conditions": [condition("Drained", "True", "Drained", since)]})
    };
    let mut db = running(3, 9, json!({"blocked": 1, "waiting": 5}));
    db["blockedPods"] = json!([blocked("db", "pg-1", "DisruptionBudget", &CART.replace("cart", "pg"))]);
    vec![
        worker_07(),
        maintenance("worker-12", 130, db),
        maintenance(
            "worker-33",
            1800,
            json!({"phase": "Failed", "drainProgress": 20, "evictionPods": 25, "podCounts": {"gone": 5, "waiting": 20},
                "lastError": "the drain timed out after 1800 s, 20 pods are left", "lastUpdate": ago(0)}),
        ),
        maintenance("worker-40", 20, json!({})),
        maintenance("worker-08", 100, running(13, 26, json!({"terminating": 13}))),
        maintenance("worker-09", 40, running(2, 31, json!({"evicting": 29}))),
        just_stopped(maintenance("worker-01", 3000, done(12, 2500))),
        maintenance(
            "worker-21",
            100,
            json!({"phase": "Pending", "lastError": "position 1 of 2 in the queue: 2 of 11 nodes are unavailable and the limit is 2"}),
        ),
        maintenance(
            "worker-22",
            90,
            json!({"phase": "Pending", "lastError": "position 2 of 2 in the queue: 2 of 11 nodes are unavailable and the limit is 2"}),
        ),
        maintenance("worker-02", 700, done(31, 465)),
        maintenance("worker-03", 700, done(28, 400)),
    ]
}

/// The nodes of the cluster.
pub(super) fn nodes() -> Vec<Arc<NodeMetadata>> {
    let worker = |number: u32| NodeMetadata {
        name: format!("worker-{number:02}"),
        was_schedulable: matches!(number, 1..=3 | 7..=9 | 12).then_some(number != 3),
        control_plane: false,
        details: None,
    };
    let control_plane = NodeMetadata { name: "cp-1".into(), control_plane: true, ..NodeMetadata::default() };
    (1..=50).map(worker).chain([control_plane]).map(Arc::new).collect()
}

/// The same with what a watch on whole nodes delivers.
pub(crate) fn whole_nodes() -> Vec<Arc<NodeMetadata>> {
    let whole = |node: Arc<NodeMetadata>| {
        let cordon = match node.name.as_str() {
            "worker-13" => Some(CordonOwner::Person),
            "worker-14" => Some(CordonOwner::Controller("karpenter.sh/disrupted".into())),
            "worker-15" => Some(CordonOwner::Program("kured".into())),
            _ => node.was_schedulable.map(|_| CordonOwner::Maintenance),
        };
        let readiness = match node.name.as_str() {
            "worker-33" | "worker-34" => NodeReadiness::NotReady,
            "worker-35" => NodeReadiness::Unknown,
            _ => NodeReadiness::Ready,
        };
        let number: usize = node.name[node.name.len() - 1..].parse().unwrap();
        let details = NodeDetails {
            readiness,
            ready_since: None,
            cordon,
            pool: if node.control_plane { None } else { Some(["web", "batch"][number % 2].into()) },
            zone: Some(["eu-1a", "eu-1b", "eu-1c"][number % 3].into()),
            version: String::from("v1.36.2"),
            boot_id: String::new(),
            created: Some(now() - SignedDuration::from_hours(24 * 40)),
        };
        Arc::new(NodeMetadata { details: Some(details), ..(*node).clone() })
    };
    nodes().into_iter().map(whole).collect()
}

/// The references of a pod to a controller such as `StatefulSet/cart`.
pub(crate) fn controllers(owner: &str) -> Value {
    let (kind, name) = owner.split_once('/').unwrap();
    let api_version = match kind {
        "DaemonSet" | "ReplicaSet" | "StatefulSet" => "apps/v1",
        "Job" => "batch/v1",
        "VirtualMachineInstance" => "kubevirt.io/v1",
        _ => "v1",
    };
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "o", "controller": true}])
}

/// A pod of the open node.
pub(crate) fn pod(namespace: &str, name: &str, owner: &str, more: &Value) -> Arc<NodePod> {
    let mut metadata = json!({"namespace": namespace, "name": name, "uid": name});
    if !owner.is_empty() {
        metadata["ownerReferences"] = controllers(owner);
    }
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    let pod: DrainPod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    Arc::new(NodePod::from(pod))
}

/// The pods of the open node.
pub(crate) fn pods() -> Vec<Arc<NodePod>> {
    let ending = |seconds: i64| {
        let deadline = now() + SignedDuration::from_secs(seconds);
        json!({"deletionTimestamp": deadline.to_string(), "deletionGracePeriodSeconds": 60})
    };
    let nothing = json!({});
    let mut pods = vec![
        pod("shop", "cart-0", "StatefulSet/cart", &nothing),
        pod("shop", "cart-2", "StatefulSet/cart", &nothing),
        pod("web", "import-9x", "Job/import", &nothing),
        pod("pay", "ledger-1", "StatefulSet/ledger", &ending(19)),
        pod("vms", "virt-launcher-db-x", "VirtualMachineInstance/db", &nothing),
        pod("web", "front-6c4f9-aa1", "ReplicaSet/front-6c4f9", &nothing),
        pod("web", "front-6c4f9-9zq", "ReplicaSet/front-6c4f9", &nothing),
        pod("web", "bare", "", &nothing),
        pod("kube-system", "cni-x7", "DaemonSet/cni", &nothing),
    ];
    pods.extend((0..4).map(|i| pod("pay", &format!("worker-{i}"), "ReplicaSet/worker", &ending(40 + i))));
    pods
}

/// The events about the open node.
pub(crate) fn events() -> Vec<Arc<Event>> {
    let event = |name: &str, seconds: i64, type_: &str, reason: &str, note: &str| {
        let value = json!({"metadata": {"name": name}, "type": type_, "reason": reason, "note": note,
            "eventTime": format!("{}.000000Z", ago(seconds).trim_end_matches('Z'))});
        Arc::new(serde_json::from_value(value).unwrap())
    };
    vec![
        event("a", 251, "Normal", "Cordoned", "node worker-07 takes no new pods"),
        event("b", 190, "Warning", "EvictionBlocked", "shop/cart-0: PDB shop/cart needs 3, has 3"),
        event("c", 12, "Normal", "Migrating", "vms/virt-launcher-db-x goes to worker-11"),
    ]
}

/// A model that knows nothing of the cluster yet.
pub(super) fn empty(options: Options) -> Model {
    let tracker = GoalTracker::new(options.nodes.clone(), ExitCondition::Never);
    Model::new(options, tracker)
}

/// A model with the fleet view.
pub(super) fn fleet(options: Options) -> Model {
    let mut model = empty(options);
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes())));
    send(
        &mut model,
        Message::Maintenances(WatchChange::Listed(maintenances().into_iter().map(Arc::new).collect())),
    );
    model
}

/// A model with the view of all nodes, whose pods were counted.
pub(super) fn all_nodes(options: Options) -> Model {
    let mut model = fleet(options);
    assert_eq!(press(&mut model, KeyCode::Tab), [Effect::WatchWholeNodes]);
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    let effects = send(&mut model, Message::Nodes(WatchChange::Listed(whole_nodes())));
    let [Effect::CountPods(nodes)] = &effects[..] else { panic!("{effects:?}") };
    let counts = nodes.iter().zip(20..).map(|(node, count)| (node.clone(), count)).collect();
    send(&mut model, Message::PodCounts { counts, error: None });
    model
}

/// A model with the view of worker-07.
pub(crate) fn node(options: Options) -> Model {
    let mut model = fleet(options);
    let effects = press(&mut model, KeyCode::Enter);
    assert_eq!(effects, [Effect::Open(String::from("worker-07"))]);
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    set_watch(&mut model, WatchKind::Events, WatchState::Live);
    let node = || String::from("worker-07");
    send(&mut model, Message::Pods { node: node(), change: WatchChange::Listed(pods()) });
    let last = pods().into_iter().find(|pod| pod.id.name == "front-6c4f9-aa1").unwrap();
    send(&mut model, Message::Pods { node: node(), change: WatchChange::Deleted(last) });
    send(&mut model, Message::Events { node: node(), change: WatchChange::Listed(events()) });
    model
}

/// The same after twenty seconds in which pods went.
pub(super) fn moving(options: Options) -> Model {
    let mut model = node(options);
    for gone in [0, 1, 1, 1, 4, 4, 5, 8, 8, 9, 9, 9, 12, 12, 13, 13, 13, 14, 14, 14] {
        let mut object = worker_07();
        object.status.as_mut().unwrap().pod_counts.gone = gone;
        send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
        send(&mut model, Message::Tick(now()));
    }
    model
}

/// Sends a message to the model.
pub(crate) fn send(model: &mut Model, message: Message) -> Vec<Effect> {
    update(model, message).into_iter().collect()
}

/// Reports the state of a watch; one on a node is on the open node.
pub(super) fn set_watch(model: &mut Model, kind: WatchKind, state: WatchState) {
    let opened =
        matches!(kind, WatchKind::Pods | WatchKind::Events).then(|| model.opened().map(String::from));
    send(model, Message::Watch { kind, node: opened.flatten(), state });
}

/// Presses a key.
pub(crate) fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    let modifiers = KeyModifiers::NONE;
    send(model, Message::Input(Input::Key(KeyEvent::new(code, modifiers))))
}

/// Presses Enter, and answers that what is confirmed harms nothing if that is not known yet.
pub(super) fn confirm(model: &mut Model) -> Vec<Effect> {
    let effects = press(model, KeyCode::Enter);
    let [Effect::CheckPlan(request)] = &effects[..] else { return effects };
    let plan = DrainPlan { is_harmless: true, ..DrainPlan::default() };
    send(model, Message::Planned { request: request.clone(), plan })
}

/// Types a text.
pub(super) fn type_in(model: &mut Model, text: &str) -> Vec<Effect> {
    text.chars().flat_map(|c| press(model, KeyCode::Char(c))).collect()
}

/// The messages of [`node`], as a recording has them.
pub(crate) fn node_messages() -> Vec<Message> {
    let node = || String::from("worker-07");
    let live = |kind, node| Message::Watch { kind, node, state: WatchState::Live };
    let objects = maintenances().into_iter().map(Arc::new).collect();
    let last = pods().into_iter().find(|pod| pod.id.name == "front-6c4f9-aa1").unwrap();
    vec![
        live(WatchKind::Maintenances, None),
        live(WatchKind::Nodes, None),
        live(WatchKind::Pods, Some(node())),
        live(WatchKind::Events, Some(node())),
        Message::Nodes(WatchChange::Listed(whole_nodes())),
        Message::Maintenances(WatchChange::Listed(objects)),
        Message::Pods { node: node(), change: WatchChange::Listed(pods()) },
        Message::Events { node: node(), change: WatchChange::Listed(events()) },
        Message::Pods { node: node(), change: WatchChange::Deleted(last) },
    ]
}

/// The list in which a node is selected for which a maintenance is planned.
pub(super) fn with_planned() -> Model {
    let mut model = fleet(options());
    let mut planned = maintenance(
        "worker-12",
        60,
        json!({"phase": "Pending", "conditions": [
        {"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
            "lastTransitionTime": "2026-01-02T03:05:00Z"}]}),
    );
    planned.metadata.uid = Some(String::from("uid-worker-12"));
    planned.spec.suspend = true;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(planned))));
    type_in(&mut model, "/worker-12");
    press(&mut model, KeyCode::Enter);
    model
}
