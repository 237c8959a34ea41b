//! Lives of maintenances that have a pod replaced before it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_sandbox::resource::{PODS, REPLICA_SETS};
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App, Kind};
use nm_shared::{NodeMaintenance, SurgeObstacle};
use serde_json::{Value, json};

use crate::world::{Done, MAINTENANCES, World};

/// The node that is drained.
const NODE: &str = "node-01";

pub(crate) async fn surged(world: Arc<World>) -> Done {
    surges(world, 1).await
}

pub(crate) async fn surged_three(world: Arc<World>) -> Done {
    surges(world, 3).await
}

/// All pods of a Deployment are on the node, and its budget requires all of them.
async fn surges(world: Arc<World>, replicas: usize) -> Done {
    let web = App::new(Kind::Deployment, "default", "web").replicas(replicas);
    let web = web.budget(json!({"minAvailable": replicas}));
    world.run_on(NODE, &web).await;
    let too_few = AtomicBool::new(false);
    world.step("start");
    world.start("m", NODE, json!({"surge": "WhenBlocked"})).await;
    let is_drained = |state: &State| {
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let is_ready =
                conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            is_ready
                && pod["metadata"]["labels"]["app"] == "web"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        if state.list(&PODS, Some("default")).filter(|pod| ready(pod)).count() < replicas {
            too_few.store(true, Ordering::Relaxed);
        }
        state.get(&MAINTENANCES, &Key::cluster("m")).is_some_and(|m| m["status"]["phase"] == "Succeeded")
    };
    world.until("m is Succeeded", is_drained).await?;
    world.step("stop");
    world.stop("m").await?;
    let templates = world.read(|state| state.list(&REPLICA_SETS, Some("default")).count());
    match (too_few.load(Ordering::Relaxed), templates) {
        (true, _) => Err("web had too few ready pods".to_owned()),
        (false, 1..=2) => Ok(()),
        (false, templates) => Err(format!("web was restarted {} times", templates - 1)),
    }
}

/// Somebody undoes the restart, and later restarts the Deployment.
pub(crate) async fn surge_undone(world: Arc<World>) -> Done {
    const OTHER_NODE: &str = "/api/v1/nodes/node-02";
    const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
    let web = App::new(Kind::Deployment, "default", "web").budget(json!({"minAvailable": 1}));
    world.run_on(NODE, &web).await;
    let templates = || world.read(|state| state.list(&REPLICA_SETS, Some("default")).count());
    world.step("start");
    world.patch(OTHER_NODE, json!({"spec": {"unschedulable": true}})).await;
    world.start("m", NODE, json!({"surge": "WhenBlocked"})).await;
    let is_surging = |m: &NodeMaintenance| {
        m.status
            .as_ref()
            .is_some_and(|status| status.surging_pods.as_ref().is_some_and(|pods| !pods.is_empty()))
    };
    world.until_maintenance("m", "surges a pod", is_surging).await?;
    world.until("web is restarted", |state| state.list(&REPLICA_SETS, Some("default")).count() == 2).await?;
    world.step("undo");
    world.patch(WEB, json!({"spec": {"template": {"metadata": {"annotations": null}}}})).await;
    let is_undone = |m: &NodeMaintenance| {
        let blocked = m.status.iter().flat_map(|status| &status.blocked_pods);
        let mut obstacles = blocked.filter_map(|pod| Some(pod.facts.surge.as_ref()?.reason));
        obstacles.any(|reason| reason == SurgeObstacle::RolledBack)
    };
    world.until_maintenance("m", "reports that the restart was undone", is_undone).await?;
    let before = templates();
    world.patch(OTHER_NODE, json!({"spec": {"unschedulable": null}})).await;
    world.pass(60).await;
    if templates() > before {
        return Err("web was restarted again".to_owned());
    }
    world.step("restart");
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "by hand"});
    world.patch(WEB, json!({"spec": {"template": {"metadata": {"annotations": restarted}}}})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await?;
    if templates() <= before + 1 { Ok(()) } else { Err("web was restarted again".to_owned()) }
}
