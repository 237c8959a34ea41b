//! Lives of maintenances, each a script of what people and controllers do. A life ends when nothing is left of its
//! maintenances. Whatever fails on the way, its waits are what has to be reached.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sandbox::controllers::kubelet::annotations;
use kube_sandbox::kubevirt::Vmi;
use kube_sandbox::resource::{LEASES, NODES, PODS};
use kube_sandbox::store::Key;
use kube_sandbox::workload::{App, Kind};
use nm_shared::api::names::{EXCLUDE_LABEL, LEASE_NAMESPACE, PLANNED_TAINT, UNDO_ANNOTATION};
use serde_json::json;

use crate::budget_lives::{kept_by_a_roll, stalled_rollout, surge_paused, unhealthy_beside_healthy};
use crate::completion_lives::left_to_complete;
use crate::cordon_lives::{cordoned_before, stays_cordoned};
use crate::evacuation_lives::{
    run_vm, stopped_at_the_handoff, stopped_in_the_backoff, stopped_in_the_queue, stopped_when_marked,
    stopped_while_moving, stopped_while_scheduling,
};
use crate::hold_lives::{held_by_hooks, left_out_and_protected};
use crate::surge_lives::{surge_undone, surged, surged_three};
use crate::volume_lives::{volumes_detached, volumes_not_detached};
use crate::world::{Done, MAINTENANCES, PATH, Setup, World};

/// A script.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) name: &'static str,
    pub(crate) setup: fn() -> Setup,
    pub(crate) run: fn(Arc<World>) -> BoxFuture<'static, Done>,
}

/// The node that is drained.
const NODE: &str = "node-01";

const NODE_PATH: &str = "/api/v1/nodes/node-01";

macro_rules! life {
    ($name:ident, $setup:expr) => {
        Life { name: stringify!($name), setup: || $setup, run: |world| Box::pin($name(world)) }
    };
    ($name:ident) => {
        life!($name, Setup::default())
    };
}

/// All lives.
pub(crate) fn all() -> Vec<Life> {
    vec![
        life!(drained),
        life!(blocked_by_a_budget),
        life!(late_pods_and_lost_marks),
        life!(keeps_returning),
        life!(returned),
        life!(returning_pods_waited_for),
        life!(timed_out),
        life!(surged),
        life!(surged_three),
        life!(surge_undone),
        life!(surge_paused),
        life!(stalled_rollout),
        life!(unhealthy_beside_healthy),
        life!(kept_by_a_roll),
        life!(kinds_of_pods_refused),
        life!(stopped_midway),
        life!(selected_in_order),
        life!(deleted_after_a_while),
        life!(not_waited_for),
        life!(volumes_detached),
        life!(volumes_not_detached),
        life!(left_to_complete),
        life!(cordoned_before),
        life!(stays_cordoned),
        life!(held_by_hooks),
        life!(left_out_and_protected),
        life!(taken_over),
        life!(two_of_one_node),
        life!(queued, Setup { nodes: 3, flags: &["--max-unavailable", "1"], ..Setup::default() }),
        life!(lease_of_another),
        life!(lease_renewed),
        life!(virtual_machine, kubevirt(20)),
        life!(stopped_when_marked, kubevirt(3600)),
        life!(stopped_in_the_queue, kubevirt(3600)),
        life!(stopped_while_scheduling, kubevirt(3600)),
        life!(stopped_at_the_handoff, kubevirt(3600)),
        life!(stopped_while_moving, kubevirt(3600)),
        life!(stopped_in_the_backoff, kubevirt(2)),
        life!(node_deleted),
        life!(planned),
        life!(planned_and_deleted),
        life!(paused),
        life!(node_conditions, Setup { flags: &["--node-conditions"], ..Setup::default() }),
    ]
}

/// A cluster with KubeVirt, in which a migration takes so many seconds.
fn kubevirt(seconds: u64) -> Setup {
    Setup { kubevirt: Some(Duration::from_secs(seconds)), ..Setup::default() }
}

/// A deployment in the namespace `default`.
fn app(name: &str) -> App {
    App::new(Kind::Deployment, "default", name)
}

/// A deployment of one pod whose budget allows no disruption.
fn blocked_app(name: &str) -> App {
    app(name).budget(json!({"minAvailable": 1}))
}

async fn delete_budget(world: &World, name: &str) {
    world.delete(&format!("/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}")).await;
}

async fn drained(world: Arc<World>) -> Done {
    App::new(Kind::DaemonSet, "kube-system", "agent").create(world.sandbox.cluster()).unwrap();
    world.run_on(NODE, &app("web").replicas(3).budget(json!({"maxUnavailable": 1}))).await;
    world.run_on(NODE, &app("api").replicas(2)).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

/// Plans a maintenance of the node, and waits until the node has the taint.
async fn plan(world: &Arc<World>) -> Done {
    world.step("plan");
    let object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "m"}, "spec": {"nodeName": NODE, "suspend": true},
    });
    world.post(PATH, object).await;
    world
        .until("the node is tainted", |state| {
            let node = state.get(&NODES, &Key::cluster(NODE));
            node.is_some_and(|node| node["spec"]["taints"].to_string().contains(PLANNED_TAINT))
        })
        .await
}

async fn suspend(world: &World, suspend: bool) {
    world.patch(&format!("{PATH}/m"), json!({"spec": {"suspend": suspend}})).await;
}

async fn planned(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web").replicas(2)).await;
    plan(&world).await?;
    world.step("resume");
    suspend(&world, false).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn planned_and_deleted(world: Arc<World>) -> Done {
    plan(&world).await?;
    world.step("stop");
    world.stop("m").await
}

async fn paused(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_blocked("m").await?;
    world.step("pause");
    suspend(&world, true).await;
    let is_suspended = |maintenance: &nm_shared::NodeMaintenance| {
        let conditions = maintenance.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.type_ == "Suspended" && condition.status == "True")
    };
    world.until_maintenance("m", "is suspended", is_suspended).await?;
    delete_budget(&world, "db").await;
    world.step("resume");
    suspend(&world, false).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn blocked_by_a_budget(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_blocked("m").await?;
    world.step("open the budget");
    delete_budget(&world, "db").await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn late_pods_and_lost_marks(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("late pod");
    App::new(Kind::Pod, "default", "late").node_name(NODE).create(world.sandbox.cluster()).unwrap();
    let late = |state: &kube_sandbox::store::State| state.get(&PODS, &Key::new("default", "late")).is_none();
    world.until("the late pod is gone", late).await?;
    world.step("uncordon");
    world.patch(NODE_PATH, json!({"spec": {"unschedulable": null}})).await;
    world.until_marked(NODE).await?;
    world.step("strip the label and the taints");
    let stripped = json!({"metadata": {"labels": {EXCLUDE_LABEL: null}}, "spec": {"taints": null}});
    world.patch(NODE_PATH, stripped).await;
    world.until_marked(NODE).await?;
    world.step("strip the record");
    world.patch(NODE_PATH, json!({"metadata": {"annotations": {UNDO_ANNOTATION: null}}})).await;
    world.until_marked(NODE).await?;
    world.step("stop");
    world.stop("m").await
}

async fn keeps_returning(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("boomerang").node_name(NODE)).await;
    world.step("start");
    world.start("m", NODE, json!({"returningPods": "Wait"})).await;
    world.until_blocked("m").await?;
    world.step("delete the deployment");
    world.delete("/apis/apps/v1/namespaces/default/deployments/boomerang").await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn returned(world: Arc<World>) -> Done {
    let pinned = app("operator").node_selector("kubernetes.io/hostname", NODE);
    world.run_on(NODE, &pinned.tolerates_everything()).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    let is_back = |maintenance: &nm_shared::NodeMaintenance| {
        maintenance.status.as_ref().is_some_and(|status| status.returned_pods.is_some())
    };
    world.until_maintenance("m", "has a returned pod", is_back).await?;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn returning_pods_waited_for(world: Arc<World>) -> Done {
    let pinned = app("operator").node_selector("kubernetes.io/hostname", NODE);
    world.run_on(NODE, &pinned.tolerates_everything()).await;
    world.step("start");
    world.start("m", NODE, json!({"returningPods": "Wait"})).await;
    world.until_blocked("m").await?;
    world.step("delete the deployment");
    world.delete("/apis/apps/v1/namespaces/default/deployments/operator").await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn timed_out(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.step("start");
    world.start("m", NODE, json!({"timeoutSeconds": 30})).await;
    world.until_phase("m", "Failed").await?;
    world.step("allow more time");
    world.patch(&format!("{PATH}/m"), json!({"spec": {"drain": {"timeoutSeconds": 0}}})).await;
    world.until_phase("m", "Running").await?;
    world.step("open the budget");
    delete_budget(&world, "db").await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn kinds_of_pods_refused(world: Arc<World>) -> Done {
    world.run_on(NODE, &App::new(Kind::Pod, "default", "bare")).await;
    let scratch = json!([{"name": "scratch", "emptyDir": {}}]);
    world.run_on(NODE, &app("cache").pod("volumes", scratch)).await;
    world.step("start");
    world.start("m", NODE, json!({"force": false, "deleteEmptyDirData": false})).await;
    let both = |maintenance: &nm_shared::NodeMaintenance| {
        maintenance.status.as_ref().is_some_and(|status| status.blocked_pods.len() == 2)
    };
    world.until_maintenance("m", "has two blocked pods", both).await?;
    world.step("allow both");
    world
        .patch(&format!("{PATH}/m"), json!({"spec": {"drain": {"force": true, "deleteEmptyDirData": true}}}))
        .await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn stopped_midway(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world
        .run_on(NODE, &app("web").replicas(2).grace(60).annotation(annotations::IGNORE_TERMINATION, ""))
        .await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    let terminates = |state: &kube_sandbox::store::State| {
        state.on_node(&PODS, NODE).filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count() == 2
    };
    world.until("two pods terminate", terminates).await?;
    world.step("stop");
    world.stop("m").await
}

async fn selected_in_order(world: Arc<World>) -> Done {
    for (name, value) in [("low", 10), ("high", 1000)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        world.post("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
        world.run_on(NODE, &app(name).label("goes", "yes").pod("priorityClassName", json!(name))).await;
    }
    world.run_on(NODE, &app("stays")).await;
    world.step("start");
    let selector = json!({"matchLabels": {"goes": "yes"}});
    let drain = json!({"podSelector": selector, "gracePeriodSeconds": 5, "order": "PriorityAscending"});
    world.start("m", NODE, drain).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn deleted_after_a_while(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.step("start");
    world.start("m", NODE, json!({"deleteAfterSeconds": 20})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn not_waited_for(world: Arc<World>) -> Done {
    let slow = json!({
        "metadata": {"name": "slow", "finalizers": ["example.com/slow"]},
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "registry.example/slow:1"}],
            "terminationGracePeriodSeconds": 2},
    });
    world.post("/api/v1/namespaces/default/pods", slow).await;
    world.pass(2).await;
    world.step("start");
    world.start("m", NODE, json!({"skipWaitForDeleteTimeoutSeconds": 15})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn taken_over(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.run_on(NODE, &app("web").replicas(2)).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_blocked("m").await?;
    world.kill_replica();
    world.pass(5).await;
    world.step("take over");
    delete_budget(&world, "db").await;
    world.start_replica();
    world.until_phase("m", "Succeeded").await?;
    world.kill_replica();
    world.delete(&format!("{PATH}/m")).await;
    world.pass(5).await;
    world.step("take over and stop");
    world.start_replica();
    world.until_gone("m").await
}

async fn two_of_one_node(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.pass(1).await;
    world.start("second", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.until_phase("second", "Failed").await?;
    world.step("stop the first");
    world.stop("m").await?;
    world.until_phase("second", "Succeeded").await?;
    world.until_marked(NODE).await?;
    world.step("stop the second");
    world.stop("second").await
}

async fn queued(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    world.run_on("node-02", &app("api")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.start("queued", "node-02", json!({})).await;
    world.until_phase("queued", "Pending").await?;
    world.step("stop the first");
    world.stop("m").await?;
    world.until_phase("queued", "Succeeded").await?;
    world.step("stop the second");
    world.stop("queued").await
}

async fn lease_of_another(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases");
    let lease = json!({
        "metadata": {"name": "node-node-01"},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 60, "renewTime": micro(&world)},
    });
    world.post(&path, lease).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    // For a replica whose clock is ahead the lease has expired.
    let is_decided = |maintenance: &nm_shared::NodeMaintenance| {
        let phase = maintenance.status.as_ref().and_then(|status| status.phase);
        matches!(phase, Some(nm_shared::Phase::Pending | nm_shared::Phase::Succeeded))
    };
    world.until_maintenance("m", "is Pending or Succeeded", is_decided).await?;
    world.step("the lease expires");
    world.until_phase("m", "Succeeded").await?;
    world.step("the lease is taken away");
    let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": micro(&world)});
    world.patch(&format!("{path}/node-node-01"), json!({"spec": spec})).await;
    // For a replica whose clock is ahead the lease has expired, and it takes it.
    let is_decided = |state: &kube_sandbox::store::State| {
        let lease = state.get(&LEASES, &Key::new(LEASE_NAMESPACE, "node-node-01"));
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == nm_shared::api::names::LEASE_HOLDER)
            || state.get(&MAINTENANCES, &Key::cluster("m")).is_some_and(|m| m["status"]["phase"] == "Failed")
    };
    world.until("m is Failed, or has the lease again", is_decided).await?;
    world.step("stop");
    world.stop("m").await
}

fn micro(world: &World) -> String {
    world.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

async fn lease_renewed(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    let renewed = |state: &kube_sandbox::store::State| {
        let lease = state.get(&LEASES, &Key::new(LEASE_NAMESPACE, "node-node-01"));
        lease.map(|lease| lease["spec"]["renewTime"].clone())
    };
    let first = world.read(renewed);
    world.pass(1790).await;
    world.step("renew");
    let is_renewed = |state: &kube_sandbox::store::State| renewed(state) != first;
    world.until("the lease is renewed", is_renewed).await?;
    world.step("stop");
    world.stop("m").await
}

async fn virtual_machine(world: Arc<World>) -> Done {
    run_vm(&world, Vmi::new("default", "vm")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

async fn node_deleted(world: Arc<World>) -> Done {
    world.run_on(NODE, &blocked_app("db")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_blocked("m").await?;
    world.step("delete the node");
    world.delete(NODE_PATH).await;
    // It belongs to the node.
    world.until_gone("m").await
}

async fn node_conditions(world: Arc<World>) -> Done {
    world.run_on(NODE, &app("web")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.until("the node shows that it is drained", |state| shows_drained(state, true)).await?;
    world.step("stop");
    world.stop("m").await?;
    world.until("the node shows nothing of it", |state| shows_drained(state, false)).await
}

fn shows_drained(state: &kube_sandbox::store::State, expected: bool) -> bool {
    let node = state.get(&NODES, &Key::cluster(NODE));
    let conditions = node.map(|node| node["status"]["conditions"].clone()).unwrap_or_default();
    let drained = conditions.as_array().into_iter().flatten().find(|one| one["type"] == "Drained");
    drained.is_some_and(|one| one["status"] == "True") == expected
}
