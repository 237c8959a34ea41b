//! Lives of maintenances that are stopped at each step of the evacuation of a virtual machine. In the end, no mark names the
//! node, no migration that has not begun is left, and a virtual machine that had not begun to move is where it was, although
//! virt-controller runs again, without limits.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube_sandbox::kubevirt::{
    BACKOFF, CONTROLLER_DOWN, KUBEVIRTS, MIGRATION_FAILS, MIGRATIONS, NAMESPACE, UNSCHEDULABLE_TIMEOUT, VMIS,
    Vmi,
};
use kube_sandbox::request_log::Entry;
use kube_sandbox::resource::PODS;
use kube_sandbox::store::{Key, State};
use serde_json::{Value, json};

use crate::world::{Done, World};

/// The node that is drained.
const NODE: &str = "node-01";

/// How long an eviction takes at least that a fault delays.
const LATE: Duration = Duration::from_secs(5);

const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
const OTHER_NODE: &str = "/api/v1/nodes/node-02";

/// Runs a virtual machine on the node.
pub(crate) async fn run_vm(world: &World, vmi: Vmi) {
    world.patch(OTHER_NODE, json!({"spec": {"unschedulable": true}})).await;
    world.pass(1).await;
    vmi.create(world.sandbox.cluster()).unwrap();
    let runs = |state: &State| state.on_node(&PODS, NODE).next().is_some();
    world.until("the virtual machine runs", runs).await.unwrap();
    world.pass(5).await;
    world.patch(OTHER_NODE, json!({"spec": {"unschedulable": null}})).await;
    world.pass(1).await;
}

async fn set(world: &World, annotations: Value) {
    world.patch(KUBEVIRT, json!({"metadata": {"annotations": annotations}})).await;
}

fn is_marked(state: &State) -> bool {
    state.list(&VMIS, None).any(|vmi| vmi["status"]["evacuationNodeName"] == NODE)
}

fn has_migration(state: &State, phase: &str) -> bool {
    state.list(&MIGRATIONS, None).any(|migration| migration["status"]["phase"] == phase)
}

/// What becomes of the virtual machine.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Stays,
    /// Its migration has begun.
    Leaves,
}

/// Whether an eviction from before the stop arrived late. No precondition of an eviction says that its maintenance exists, so
/// that of a former leader marks the machine again, and KubeVirt moves it once.
fn is_evicted_late(world: &World, stopped: Timestamp) -> bool {
    let is_late = |entry: &Entry| {
        let arrived = entry.at.checked_add(entry.took).unwrap();
        entry.subresource == "eviction" && entry.took >= LATE && (entry.at..arrived).contains(&stopped)
    };
    world.sandbox.requests().count(is_late) > 0
}

/// Starts a maintenance, stops it once the evacuation has come this far, and checks what is left.
async fn stopped_when(world: Arc<World>, what: &str, fate: Fate, reached: impl Fn(&State) -> bool) -> Done {
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until(what, reached).await?;
    world.step("stop");
    let stopped = world.now();
    world.stop("m").await?;
    // What only held the evacuation up ends.
    set(&world, json!({CONTROLLER_DOWN: null, BACKOFF: null, UNSCHEDULABLE_TIMEOUT: null})).await;
    world.patch(KUBEVIRT, json!({"spec": {"configuration": {"migrations": null}}})).await;
    world.pass(30).await;
    if is_evicted_late(&world, stopped) {
        return Ok(());
    }
    let on_node =
        world.read(|state| state.list(&VMIS, None).filter(|vmi| vmi["status"]["nodeName"] == NODE).count());
    if fate == Fate::Stays && on_node != 1 {
        return Err("the virtual machine has left the node".to_owned());
    }
    let kubevirt = world.read(|state| state.get(&KUBEVIRTS, &Key::new(NAMESPACE, "kubevirt")));
    if kubevirt.is_none() {
        return Err("KubeVirt is gone".to_owned());
    }
    let left: Vec<String> = world.read(|state| {
        let marks = state.list(&VMIS, None).filter(|vmi| vmi["status"]["evacuationNodeName"] == NODE);
        let unbegun = state.list(&MIGRATIONS, None).filter(|migration| {
            matches!(migration["status"]["phase"].as_str(), None | Some("" | "Pending" | "Scheduling"))
        });
        let name = |object: kube_sandbox::store::Object| object["metadata"]["name"].to_string();
        marks.map(name).chain(unbegun.map(name)).collect()
    });
    if left.is_empty() { Ok(()) } else { Err(format!("left of the evacuation: {left:?}")) }
}

pub(crate) async fn stopped_when_marked(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    set(&world, json!({CONTROLLER_DOWN: "true"})).await;
    stopped_when(world, "it is marked", Fate::Stays, is_marked).await
}

pub(crate) async fn stopped_in_the_queue(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    let none = json!({"parallelMigrationsPerCluster": 0});
    world.patch(KUBEVIRT, json!({"spec": {"configuration": {"migrations": none}}})).await;
    stopped_when(world, "it is in the queue", Fate::Stays, |state| has_migration(state, "Pending")).await
}

pub(crate) async fn stopped_while_scheduling(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    world.patch(OTHER_NODE, json!({"spec": {"unschedulable": true}})).await;
    world.pass(1).await;
    stopped_when(world, "no node takes its target pod", Fate::Stays, |state| {
        has_migration(state, "Scheduling")
    })
    .await
}

pub(crate) async fn stopped_while_moving(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    stopped_when(world, "it moves", Fate::Leaves, |state| has_migration(state, "Running")).await
}

pub(crate) async fn stopped_at_the_handoff(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    let steps = ["Scheduled", "PreparingTarget", "TargetReady"];
    let is_reached = move |state: &State| steps.iter().any(|phase| has_migration(state, phase));
    stopped_when(world, "it is handed over", Fate::Leaves, is_reached).await
}

pub(crate) async fn stopped_in_the_backoff(world: Arc<World>) -> Done {
    let fails = Vmi::new("default", "vm").migration_fails("no");
    run_vm(&world, fails).await;
    assert!(world.read(|state| {
        state.list(&VMIS, None).all(|vmi| vmi["metadata"]["annotations"][MIGRATION_FAILS] == "no")
    }));
    set(&world, json!({BACKOFF: "3600", UNSCHEDULABLE_TIMEOUT: "5"})).await;
    let is_reached = |state: &State| has_migration(state, "Failed") && has_migration(state, "Pending");
    stopped_when(world, "it waits for another attempt", Fate::Stays, is_reached).await
}
