//! Lives of maintenances that wait for volumes to be detached.

use std::sync::Arc;

use kube_sandbox::controllers::volume::{DETACH_DELAY, DETACH_ERROR};
use kube_sandbox::resource::ATTACHMENTS;
use kube_sandbox::workload::{App, Kind};
use serde_json::{Value, json};

use crate::world::{Done, World};

/// The node that is drained.
const NODE: &str = "node-01";

/// Runs an app with a volume on the node. `annotations` say how its driver detaches it.
async fn run_with_volume(world: &World, annotations: Value) {
    let (modes, size) = (json!(["ReadWriteOnce"]), json!({"storage": "1Gi"}));
    let volume = json!({"metadata": {"name": "disk", "annotations": annotations}, "spec": {
        "accessModes": modes, "capacity": size, "csi": {"driver": "disks.example.com", "volumeHandle": "1"}}});
    world.post("/api/v1/persistentvolumes", volume).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": modes, "volumeName": "disk", "resources": {"requests": size}}});
    world.post("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.run_on(NODE, &App::new(Kind::Deployment, "default", "db").pod("volumes", volumes)).await;
}

/// Whether a volume is attached to the node.
fn is_attached(world: &World) -> bool {
    world.read(|state| {
        let mut all = state.list(&ATTACHMENTS, None);
        all.any(|attachment| attachment["spec"]["nodeName"] == NODE)
    })
}

pub(crate) async fn volumes_detached(world: Arc<World>) -> Done {
    run_with_volume(&world, json!({DETACH_DELAY: "20s"})).await;
    world.step("start");
    world.start("m", NODE, json!({"waitForVolumeDetach": {}})).await;
    world.until_phase("m", "Succeeded").await?;
    if is_attached(&world) {
        return Err("the node counts as drained while its volume is attached".to_owned());
    }
    world.step("stop");
    world.stop("m").await
}

pub(crate) async fn volumes_not_detached(world: Arc<World>) -> Done {
    run_with_volume(&world, json!({DETACH_ERROR: "busy"})).await;
    world.step("start");
    let wait = json!({"timeoutSeconds": 20, "onTimeout": "Fail"});
    world.start("m", NODE, json!({"waitForVolumeDetach": wait})).await;
    world.until_phase("m", "Failed").await?;
    world.step("detach");
    world
        .patch("/api/v1/persistentvolumes/disk", json!({"metadata": {"annotations": {DETACH_ERROR: null}}}))
        .await;
    world.until_phase("m", "Succeeded").await?;
    world.step("stop");
    world.stop("m").await
}
