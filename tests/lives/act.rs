//! What can happen in a life, and how it is drawn at random.

use proptest::prelude::*;
use proptest::sample::select;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::point::{Fault, RequestKind};
use crate::view::{ClockFault, View};

/// How many nodes there are.
pub(crate) const NODES: u8 = 2;

/// How many names maintenances have.
const NAMES: u8 = 3;

/// Something that happens, and how many milliseconds pass until the next thing happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step(pub(crate) Act, pub(crate) u64);

/// Something that happens. Nodes, names and pods are numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Act {
    /// A person creates a maintenance of a node.
    Start { name: u8, node: u8, drain: Drain, suspend: bool },
    /// A person deletes a maintenance.
    Stop(u8),
    /// A person suspends a maintenance, or resumes it.
    Suspend(u8, bool),
    /// A person changes the spec.
    Edit(u8, Drain),
    /// A person changes a node.
    Node(u8, NodeChange),
    /// A person deletes a node.
    DeleteNode(u8),
    /// A deleted node joins again.
    JoinNode(u8),
    /// A person deletes a pod, which its controller replaces.
    DeletePod(u8),
    /// The budget of an app allows a disruption, or none.
    Budget(App, bool),
    /// A pod is bound to a node, cordoned or not.
    LatePod(u8),
    /// A webhook refuses so many evictions.
    Refuse(u64),
    /// A fault at the next request of this kind.
    Fault(String, Fault),
    /// A watch shows the world late.
    See(String, View),
    /// A clock is wrong.
    Clock(ClockFault),
    /// All watches end.
    EndWatches,
    /// Requests take so many milliseconds longer.
    Slow(u64),
    /// The API server is down for so many seconds.
    ServerDown(u64),
    /// The leader is killed, and another replica leads so many seconds later.
    Kill(u64),
    /// Another replica leads.
    Lead,
}

/// The apps, each with its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum App {
    Web,
    Db,
}

/// What people do to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeChange {
    Cordon,
    Uncordon,
    StripTaint,
    StripLabel,
    StripRecord,
    /// A label and a taint of their own.
    AddOwnMarks,
}

/// A `spec.drain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Drain {
    Default,
    TimesOut,
    NotForced,
    DeletesPods,
    InOrder,
    SelectsPods,
    DoesNotWait,
    WaitsForVolumes,
    LetsPodsEnd,
}

impl Drain {
    const ALL: [Self; 9] = [
        Self::Default,
        Self::TimesOut,
        Self::NotForced,
        Self::DeletesPods,
        Self::InOrder,
        Self::SelectsPods,
        Self::DoesNotWait,
        Self::WaitsForVolumes,
        Self::LetsPodsEnd,
    ];

    pub(crate) fn spec(self) -> Value {
        match self {
            Self::Default => json!({}),
            Self::TimesOut => json!({"timeoutSeconds": 10}),
            Self::NotForced => json!({"force": false}),
            Self::DeletesPods => json!({"deleteAfterSeconds": 5}),
            Self::InOrder => json!({"order": "PriorityAscending", "gracePeriodSeconds": 1}),
            Self::SelectsPods => json!({"podSelector": {"matchLabels": {"app": "web"}}}),
            Self::DoesNotWait => json!({"skipWaitForDeleteTimeoutSeconds": 1}),
            Self::WaitsForVolumes => json!({"waitForVolumeDetach": {"timeoutSeconds": 30}}),
            Self::LetsPodsEnd => {
                let selector = json!({"matchLabels": {"app": "web"}});
                json!({"waitForCompletion": {"podSelector": selector, "timeoutSeconds": 5}})
            }
        }
    }
}

/// Draws lives with up to so many scenes, and faults at these kinds of requests.
pub(crate) fn lives(kinds: &[RequestKind], scenes: usize) -> impl Strategy<Value = Vec<Step>> + use<> {
    prop::collection::vec(scene(kinds), scenes / 4..=scenes).prop_map(|scenes| scenes.concat())
}

/// Draws a few things that happen shortly after each other. Most follow the begin or the end of a maintenance, when most
/// requests are sent.
fn scene(kinds: &[RequestKind]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let first = prop_oneof![4 => start(), 3 => (0..NAMES).prop_map(Act::Stop), 3 => act(kinds)];
    let soon = || select(vec![0, 2, 5, 9, 13, 20, 40, 90, 150, 400, 1_200]);
    let others = prop::collection::vec((soon(), act(kinds)), 0..=3);
    let pause = select(vec![500, 2_000, 5_000, 15_000, 40_000]);
    (first, others, pause).prop_map(|(first, others, pause)| {
        let (pauses, acts): (Vec<u64>, Vec<Act>) = others.into_iter().unzip();
        let acts = std::iter::once(first).chain(acts);
        acts.zip(pauses.into_iter().chain([pause])).map(|(act, pause)| Step(act, pause)).collect()
    })
}

fn act(kinds: &[RequestKind]) -> impl Strategy<Value = Act> + use<> {
    prop_oneof![5 => by_people(), 2 => by_controllers(), 5 => by_machines(kinds)]
}

fn start() -> impl Strategy<Value = Act> {
    let drain = select(Drain::ALL.to_vec());
    (0..NAMES, 0..NODES, drain, prop::bool::weighted(0.2))
        .prop_map(|(name, node, drain, suspend)| Act::Start { name, node, drain, suspend })
}

fn by_people() -> impl Strategy<Value = Act> {
    use NodeChange::{AddOwnMarks, Cordon, StripLabel, StripRecord, StripTaint, Uncordon};
    let (name, node) = (0..NAMES, 0..NODES);
    let drain = select(Drain::ALL.to_vec());
    let change = select(vec![Cordon, Uncordon, StripTaint, StripLabel, StripRecord, AddOwnMarks]);
    prop_oneof![
        5 => start(),
        6 => name.clone().prop_map(Act::Stop),
        2 => (name.clone(), any::<bool>()).prop_map(|(name, suspend)| Act::Suspend(name, suspend)),
        2 => (name, drain).prop_map(|(name, drain)| Act::Edit(name, drain)),
        8 => (node.clone(), change).prop_map(|(node, change)| Act::Node(node, change)),
        1 => node.clone().prop_map(Act::DeleteNode),
        1 => node.prop_map(Act::JoinNode),
        1 => (0..8_u8).prop_map(Act::DeletePod),
    ]
}

fn by_controllers() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (select(vec![App::Web, App::Db]), any::<bool>()).prop_map(|(app, allows)| Act::Budget(app, allows)),
        2 => (0..NODES).prop_map(Act::LatePod),
        1 => (1..6_u64).prop_map(Act::Refuse),
    ]
}

fn by_machines(kinds: &[RequestKind]) -> impl Strategy<Value = Act> + use<> {
    let requests: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    let watches = kinds.iter().filter(|kind| kind.verb == "watch");
    // The two that matter most.
    let often =
        watches.clone().filter(|kind| ["nodes", "nodemaintenances"].contains(&kind.resource.as_str()));
    let watches: Vec<String> = often.clone().chain(often).chain(watches).map(ToString::to_string).collect();
    prop_oneof![
        8 => (select(requests), select(Fault::ALL.to_vec()))
            .prop_map(|(request, fault)| Act::Fault(request, fault)),
        4 => (select(watches), select(View::ALL.to_vec())).prop_map(|(watch, view)| Act::See(watch, view)),
        1 => select(ClockFault::ALL.to_vec()).prop_map(Act::Clock),
        1 => Just(Act::EndWatches),
        1 => select(vec![50, 1_000, 8_000]).prop_map(Act::Slow),
        1 => (1..20_u64).prop_map(Act::ServerDown),
        2 => (0..20_u64).prop_map(Act::Kill),
        3 => Just(Act::Lead),
    ]
}
