//! Lives of maintenances whose pods share a budget with others: those of a rollout that has stalled, and unhealthy ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_sandbox::controllers::kubelet::annotations;
use kube_sandbox::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App, Kind};
use nm_shared::{NodeMaintenance, SurgeObstacle};
use serde_json::{Value, json};

use crate::world::{Done, MAINTENANCES, PATH, World};

/// The node that is drained.
const NODE: &str = "node-01";

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// An app whose pods the budget of the shop guards.
fn in_shop(kind: Kind, name: &str) -> App {
    App::new(kind, "default", name).label("tier", "shop")
}

/// Creates the budget of the shop.
async fn guard_shop(world: &World, rule: Value) {
    let mut spec = json!({"selector": {"matchLabels": {"tier": "shop"}}});
    spec.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    world.post(BUDGETS, json!({"metadata": {"name": "shop"}, "spec": spec})).await;
}

/// How many pods of the shop are Ready and stay.
fn ready(state: &State) -> usize {
    let is_ready = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
            && pod["metadata"]["labels"]["tier"] == "shop"
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    state.list(&PODS, Some("default")).filter(|pod| is_ready(pod)).count()
}

fn has_succeeded(state: &State) -> bool {
    state.get(&MAINTENANCES, &Key::cluster("m")).is_some_and(|m| m["status"]["phase"] == "Succeeded")
}

/// One budget guards a Deployment that is restarted for the maintenance, and one whose rollout has stalled.
pub(crate) async fn stalled_rollout(world: Arc<World>) -> Done {
    world.run_on(NODE, &in_shop(Kind::Deployment, "stable").replicas(2)).await;
    world.run_on(NODE, &in_shop(Kind::Deployment, "canary")).await;
    guard_shop(&world, json!({"maxUnavailable": 0})).await;
    // No node has this label.
    let nowhere = json!({"nodeSelector": {"example.com/none": "yes"}});
    let stalled = json!({"spec": {"progressDeadlineSeconds": 5, "template": {"spec": nowhere}}});
    world.patch("/apis/apps/v1/namespaces/default/deployments/canary", stalled).await;
    let has_stalled = |state: &State| {
        let canary = state.get(&DEPLOYMENTS, &Key::new("default", "canary"));
        let conditions = canary.map(|canary| canary["status"]["conditions"].clone()).unwrap_or_default();
        let mut conditions = conditions.as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Progressing" && one["status"] == "False")
    };
    world.until("the rollout of canary has stalled", has_stalled).await?;
    let too_few = AtomicBool::new(false);
    world.step("start");
    world.start("m", NODE, json!({"surge": "WhenBlocked"})).await;
    let only_canary_is_left = |state: &State| {
        too_few.fetch_or(ready(state) < 3, Ordering::Relaxed);
        let m = state.get(&MAINTENANCES, &Key::cluster("m"));
        let Some(m) = m.and_then(|m| serde_json::from_value::<NodeMaintenance>(Value::clone(&m)).ok()) else {
            return false;
        };
        let status = m.status.unwrap_or_default();
        let mut obstacles =
            status.blocked_pods.iter().filter_map(|pod| Some(pod.facts.surge.as_ref()?.reason));
        status.pending_pods.len() == 1 && obstacles.any(|reason| reason == SurgeObstacle::Stalled)
    };
    world.until("only the pod of canary is left, with the reason", only_canary_is_left).await?;
    if too_few.load(Ordering::Relaxed) {
        return Err("the shop had too few ready pods".to_owned());
    }
    world.step("open the budget");
    world.patch(&format!("{BUDGETS}/shop"), json!({"spec": {"maxUnavailable": 1}})).await;
    world.until("m is Succeeded", has_succeeded).await?;
    world.step("stop");
    world.stop("m").await
}

/// Beside a healthy pod there are one that does not run and one that is not Ready, which the budget ignores.
pub(crate) async fn unhealthy_beside_healthy(world: Arc<World>) -> Done {
    world.run_on("node-02", &in_shop(Kind::Deployment, "stays")).await;
    world.run_on(NODE, &in_shop(Kind::Deployment, "web")).await;
    for (name, annotation, value) in
        [("pending", annotations::START_DELAY, "3h"), ("sick", annotations::NEVER_READY, "")]
    {
        let pod = in_shop(Kind::Pod, name).annotation(annotation, value).node_name(NODE);
        pod.create(world.sandbox.cluster()).unwrap();
    }
    guard_shop(&world, json!({"minAvailable": 1})).await;
    world.pass(2).await;
    let too_few = AtomicBool::new(false);
    world.step("start");
    world.start("m", NODE, json!({})).await;
    let is_drained = |state: &State| {
        too_few.fetch_or(ready(state) < 1, Ordering::Relaxed);
        has_succeeded(state)
    };
    world.until("m is Succeeded", is_drained).await?;
    if too_few.load(Ordering::Relaxed) {
        return Err("the shop had no ready pod".to_owned());
    }
    world.step("stop");
    world.stop("m").await
}

/// Somebody pauses the maintenance when it is about to restart a Deployment. The request may wait for the end of throttling.
pub(crate) async fn surge_paused(world: Arc<World>) -> Done {
    world.run_on(NODE, &in_shop(Kind::Deployment, "web")).await;
    guard_shop(&world, json!({"maxUnavailable": 0})).await;
    let templates = || world.read(|state| state.list(&REPLICA_SETS, Some("default")).count());
    world.step("start");
    world.start("m", NODE, json!({"surge": "WhenBlocked"})).await;
    let is_surging =
        |m: &NodeMaintenance| m.status.as_ref().is_some_and(|status| status.restarted_replica_sets.is_some());
    world.until_maintenance("m", "is about to restart web", is_surging).await?;
    world.step("pause");
    world.patch(&format!("{PATH}/m"), json!({"spec": {"suspend": true}})).await;
    // A request that was sent before may be late.
    world.pass(20).await;
    let before = templates();
    world.pass(60).await;
    if templates() > before {
        return Err("web was restarted during the pause".to_owned());
    }
    world.step("resume");
    world.patch(&format!("{PATH}/m"), json!({"spec": {"suspend": false}})).await;
    world.until("m is Succeeded", has_succeeded).await?;
    world.step("stop");
    world.stop("m").await?;
    if templates() <= 2 { Ok(()) } else { Err("web was restarted more than once".to_owned()) }
}

/// A roll was given up: its finalizer keeps the maintenance of a node that is back in service, and another one is created.
pub(crate) async fn kept_by_a_roll(world: Arc<World>) -> Done {
    world.run_on(NODE, &App::new(Kind::Deployment, "default", "web")).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until("m is Succeeded", has_succeeded).await?;
    world.step("stop by the roll");
    world.keep("m").await;
    world.delete(&format!("{PATH}/m")).await;
    world.until_kept("m").await?;
    world.step("start again");
    world.start("second", NODE, json!({})).await;
    world.until_phase("second", "Succeeded").await?;
    world.until_marked(NODE).await?;
    world.step("stop");
    world.stop("second").await?;
    world.stop("m").await
}
