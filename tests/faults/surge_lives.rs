//! The life of a maintenance that has a pod replaced before it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_sandbox::resource::{PODS, REPLICA_SETS};
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App, Kind};
use serde_json::{Value, json};

use crate::world::{Done, MAINTENANCES, World};

/// The node that is drained.
const NODE: &str = "node-01";

pub(crate) async fn surged(world: Arc<World>) -> Done {
    let web = App::new(Kind::Deployment, "default", "web").budget(json!({"minAvailable": 1}));
    world.run_on(NODE, &web).await;
    let bare = AtomicBool::new(false);
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
        if !state.list(&PODS, Some("default")).any(|pod| ready(&pod)) {
            bare.store(true, Ordering::Relaxed);
        }
        state.get(&MAINTENANCES, &Key::cluster("m")).is_some_and(|m| m["status"]["phase"] == "Succeeded")
    };
    world.until("m is Succeeded", is_drained).await?;
    world.step("stop");
    world.stop("m").await?;
    let templates = world.read(|state| state.list(&REPLICA_SETS, Some("default")).count());
    match (bare.load(Ordering::Relaxed), templates) {
        (true, _) => Err("web had no ready pod".to_owned()),
        (false, 1..=2) => Ok(()),
        (false, templates) => Err(format!("web was restarted {} times", templates - 1)),
    }
}
