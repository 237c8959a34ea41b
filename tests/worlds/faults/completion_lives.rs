//! Lives of maintenances that leave the pods of Jobs to end by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_sandbox::controllers::kubelet::annotations;
use kube_sandbox::resource::PODS;
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App, Kind};
use serde_json::json;

use crate::world::{Done, MAINTENANCES, World};

/// The node that is drained.
const NODE: &str = "node-01";

pub(crate) async fn left_to_complete(world: Arc<World>) -> Done {
    let job = |name: &str| App::new(Kind::Job, "default", name);
    world.run_on(NODE, &job("ends").annotation(annotations::RUN_FOR, "20s")).await;
    world.run_on(NODE, &job("goes-on")).await;
    world.run_on(NODE, &App::new(Kind::Deployment, "default", "web")).await;
    world.step("start");
    world.start("m", NODE, json!({"waitForCompletion": {"timeoutSeconds": 40}})).await;
    let ended_early = AtomicBool::new(false);
    let is_drained = |state: &State| {
        let mut ends =
            state.list(&PODS, Some("default")).filter(|pod| pod["metadata"]["labels"]["app"] == "ends");
        if ends
            .any(|pod| !pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running")
        {
            ended_early.store(true, Ordering::Relaxed);
        }
        state.get(&MAINTENANCES, &Key::cluster("m")).is_some_and(|m| m["status"]["phase"] == "Succeeded")
    };
    world.until("m is Succeeded", is_drained).await?;
    world.step("stop");
    world.stop("m").await?;
    // The time limit is read from a clock.
    if ended_early.load(Ordering::Relaxed) && !world.wrong_clocks.load(Ordering::Relaxed) {
        return Err("a pod of the Job `ends` was evicted before it ended".to_owned());
    }
    Ok(())
}
