//! Lives of maintenances whose node was cordoned before, or stays so.

use std::sync::Arc;

use kube_sandbox::workload::{App, Kind};
use serde_json::json;

use crate::world::{Done, World};

/// The node that is drained.
const NODE: &str = "node-01";

fn web() -> App {
    App::new(Kind::Deployment, "default", "web")
}

pub(crate) async fn cordoned_before(world: Arc<World>) -> Done {
    world.run_on(NODE, &web()).await;
    let foreign = json!([{"key": "example.com/slow", "effect": "PreferNoSchedule"}]);
    let metadata = json!({"labels": {"example.com/mine": "1"}, "annotations": {"example.com/mine": "1"}});
    world
        .patch(
            &format!("/api/v1/nodes/{NODE}"),
            json!({"metadata": metadata, "spec": {"unschedulable": true, "taints": foreign}}),
        )
        .await;
    world.pass(1).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}

pub(crate) async fn stays_cordoned(world: Arc<World>) -> Done {
    world.run_on(NODE, &web().replicas(2)).await;
    world.step("start");
    world.start("m", NODE, json!({})).await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop_and_keep_cordon("m", NODE).await
}
