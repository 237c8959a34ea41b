//! A state of the small world: what the API server has stored, what the leading replica knows and is about to do, and what
//! a watcher of everything remembers to judge it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_tests::invariants::Violation;
use serde_json::{Value, json};

use crate::objects::Object;
use crate::waits::{Asks, Interest, Waits, with_neighbours};

/// Two maintenances may exist at a time, `m0` and `m1`.
pub(crate) const SLOTS: [usize; 2] = [0, 1];

/// The node of both.
pub(crate) const NODE: &str = "n";

/// The whole world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) api: Api,
    /// The term of the leading replica. The other replica has no state but a request that may still be on its way.
    pub(crate) term: Term,
    /// A request whose sender no longer waits for its answer: it crashed, or gave up.
    pub(crate) late: Option<Late>,
    /// How much harm may still be done.
    pub(crate) harm: Harm,
    /// How often time has passed.
    pub(crate) clock: u8,
    /// What the maintenances of each slot are created with, and what people do.
    pub(crate) asks: [Asks; 2],
    pub(crate) interest: Interest,
    pub(crate) watcher: Watcher,
}

/// What the API server has stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Api {
    pub(crate) node: Object,
    pub(crate) maintenances: [Option<Object>; 2],
    pub(crate) lease: Option<Object>,
    pub(crate) pods: Pods,
    /// How many maintenances of each slot there were, for their uids.
    pub(crate) created: [u8; 2],
}

/// The pods of the node, and what their budget allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pods {
    pub(crate) pods: [Pod; 2],
    /// The budget wants one of the two to be healthy somewhere.
    pub(crate) allows_disruption: bool,
}

/// A pod of one name. The number is that of its uid: a replacement has the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Pod {
    Running(u8),
    Terminating(u8),
    /// It is elsewhere.
    Gone(u8),
}

/// What the leader has in memory; a crash loses all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) node: Cached,
    pub(crate) maintenances: [Cached; 2],
    pub(crate) lease: Cached,
    pub(crate) pods: Pods,
    pub(crate) runs: [Option<Run>; 2],
    /// The queued evictions by the uid of their pod, and what decided them.
    pub(crate) evictions: BTreeMap<String, SpecVersion>,
    /// The uids of maintenances whose finalizer was removed.
    pub(crate) released: BTreeSet<String>,
}

/// An object as the watch delivered it, or as the server answered the last write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cached {
    pub(crate) object: Option<Object>,
    /// Whether nobody has written the object since: its resourceVersion is the current one.
    pub(crate) is_current: bool,
}

/// A decision that is being applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    /// The next step is the last.
    pub(crate) steps: Vec<Step>,
    pub(crate) decided_by: SpecVersion,
    /// What the decision is based on.
    pub(crate) node: Cached,
    pub(crate) maintenance_is_current: bool,
    pub(crate) lease_is_current: bool,
}

/// A maintenance at one version of its spec.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SpecVersion {
    pub(crate) uid: String,
    pub(crate) generation: i64,
}

/// A step of a decision, as data. The types of the decision have no hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    LeaveNode,
    WithdrawUnwanted(BTreeSet<String>),
    WithdrawOutdated { has_node: bool },
    Evict(Vec<String>),
    Write(Write),
    RemoveRecord,
}

/// A write. The object is the patch, without its resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Write {
    Metadata(Object),
    RemoveFinalizer(Object),
    CreateLease(Object),
    PatchLease(Object),
    DeleteLease,
    /// It is looked up first.
    DeleteUnobservedLease,
    PatchNode(Object),
    Status(Object),
}

/// A write on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Late {
    pub(crate) write: Write,
    pub(crate) slot: usize,
    pub(crate) uid: String,
    /// Whether the resourceVersion in it is current.
    pub(crate) is_current: bool,
}

/// The bounds of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Harm {
    /// What a person does.
    pub(crate) person: u8,
    /// Crashes, lost answers and late requests.
    pub(crate) faults: u8,
}

/// What judges the world. It sees everything and influences nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Watcher {
    /// The node as people left it: what it has to be after its maintenances.
    pub(crate) before: Object,
    /// Whether the marks of a maintenance are on it.
    pub(crate) is_marked: bool,
    /// Whether nobody can know what was there before.
    pub(crate) is_unknown: bool,
    /// Whether a lease was created by a request that came late. It stays until it expires: a creation has no precondition.
    pub(crate) lease_may_stay: bool,
    pub(crate) waits: Waits,
    pub(crate) violation: Option<Box<Broken>>,
}

/// A violation with a hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Broken(pub(crate) String);

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self(violation.to_string())
    }
}

impl State {
    /// A world of a node and these pods, before its first maintenance.
    pub(crate) fn new(node: Object, pods: [Pod; 2], harm: Harm) -> Self {
        let pods = Pods { pods, allows_disruption: true };
        let api = Api { node, maintenances: [None, None], lease: None, pods, created: [0, 0] };
        let term = Term::new(&api);
        let watcher = Watcher {
            before: node,
            is_marked: false,
            is_unknown: false,
            lease_may_stay: false,
            waits: Waits::default(),
            violation: None,
        };
        let (asks, interest) = ([Asks::default(); 2], Interest::Node);
        Self { api, term, late: None, harm, clock: 0, asks, interest, watcher }
    }

    pub(crate) fn blame(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.watcher.violation.get_or_insert_with(|| Box::new(violation.into()));
        }
    }
}

impl Term {
    /// A new term, which lists everything.
    pub(crate) fn new(api: &Api) -> Self {
        Self {
            node: Cached::current(Some(api.node)),
            maintenances: api.maintenances.map(Cached::current),
            lease: Cached::current(api.lease),
            pods: api.pods.clone(),
            runs: [None, None],
            evictions: BTreeMap::new(),
            released: BTreeSet::new(),
        }
    }
}

impl Cached {
    pub(crate) fn current(object: Option<Object>) -> Self {
        Self { object, is_current: true }
    }
}

/// The uid of a pod.
pub(crate) fn pod_uid(index: usize, number: u8) -> String {
    format!("p{index}-{number}")
}

impl Pod {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Running(number) | Self::Terminating(number) | Self::Gone(number) => number,
        }
    }
}

/// The uid of a maintenance.
pub(crate) fn uid(maintenance: Object) -> String {
    maintenance.at("/metadata/uid").as_str().unwrap_or_default().to_owned()
}

pub(crate) fn is_deleted(maintenance: Object) -> bool {
    !maintenance.at("/metadata/deletionTimestamp").is_null()
}

/// A node with a taint, a label and an annotation of others.
pub(crate) fn node_in_service() -> Object {
    Object::new(json!({
        "metadata": {"name": NODE, "uid": "node-uid", "labels": {"zone": "a"}, "annotations": {"team": "db"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    }))
}

/// The same, cordoned by a person.
pub(crate) fn node_cordoned_by_hand() -> Object {
    NodeChange::Cordon.applied(node_in_service())
}

/// Whether the node has an undo record that is in force.
pub(crate) fn is_recorded(node: Object) -> bool {
    let record = node.at("/metadata/annotations").get(UNDO_ANNOTATION).cloned();
    let text = record.as_ref().and_then(Value::as_str);
    text.is_some_and(|text| {
        serde_json::from_str::<Value>(text).map_or(true, |record| record["restored"] != true)
    })
}

pub(crate) fn parsed(node: Object) -> std::sync::Arc<Node> {
    node.parse()
}

/// What people do to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NodeChange {
    /// `kubectl cordon`; the node controller adds the taint.
    Cordon,
    /// `kubectl uncordon`; the node controller removes the taint.
    Uncordon,
    StripTaint,
    StripLabel,
    StripRecord,
    /// A taint and a label of their own.
    AddOwnMarks,
    /// What load balancers and autoscalers read.
    SetNeighbours,
    StripNeighbours,
}

impl NodeChange {
    /// What is done to a node for its neighbours.
    pub(crate) const OF_NEIGHBOURS: [Self; 2] = [Self::SetNeighbours, Self::StripNeighbours];

    pub(crate) const ALL: [Self; 6] = [
        Self::Cordon,
        Self::Uncordon,
        Self::StripTaint,
        Self::StripLabel,
        Self::StripRecord,
        Self::AddOwnMarks,
    ];

    pub(crate) fn applied(self, node: Object) -> Object {
        match self {
            Self::Cordon => {
                with_taint(node.merged(&json!({"spec": {"unschedulable": true}})), UNSCHEDULABLE_TAINT)
            }
            Self::Uncordon => {
                without_taint(node.merged(&json!({"spec": {"unschedulable": null}})), UNSCHEDULABLE_TAINT)
            }
            Self::StripTaint => without_taint(node, DRAIN_TAINT),
            Self::StripLabel => node.merged(&json!({"metadata": {"labels": {EXCLUDE_LABEL: null}}})),
            Self::StripRecord => node.merged(&json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}})),
            Self::AddOwnMarks => {
                with_taint(node.merged(&json!({"metadata": {"labels": {"own": "yes"}}})), "own")
            }
            Self::SetNeighbours => with_neighbours(node, (Some("own"), [Some("own"); 2])),
            Self::StripNeighbours => with_neighbours(node, (None, [None; 2])),
        }
    }
}

fn taints(node: Object) -> Vec<Value> {
    node.at("/spec/taints").as_array().cloned().unwrap_or_default()
}

fn with_taint(node: Object, key: &str) -> Object {
    let mut taints = taints(node);
    if taints.iter().any(|taint| taint["key"] == key) {
        return node;
    }
    taints.push(json!({"key": key, "effect": "NoSchedule"}));
    node.merged(&json!({"spec": {"taints": taints}}))
}

fn without_taint(node: Object, key: &str) -> Object {
    let mut taints = taints(node);
    taints.retain(|taint| taint["key"] != key);
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    node.merged(&json!({"spec": {"taints": taints}}))
}
