//! Lives of maintenances that wait for hooks, and of nodes that load balancers leave out and autoscalers keep.

use std::sync::Arc;

use kube_sandbox::resource::NODES;
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{App, Kind};
use nm_shared::api::names::{LOAD_BALANCER_LABEL, PRE_DRAIN_HOOK, PRE_RETURN_HOOK};
use serde_json::{Value, json};

use crate::world::{Done, PATH, World};

/// The node that is drained.
const NODE: &str = "node-01";

fn web() -> App {
    App::new(Kind::Deployment, "default", "web")
}

async fn set_hook(world: &World, domain: &str, owner: Value) {
    let annotations = json!({format!("{domain}/flush"): owner});
    world.patch(&format!("{PATH}/m"), json!({"metadata": {"annotations": annotations}})).await;
}

/// Removes the hook until `done`: a restore of etcd may bring it back.
async fn while_removing(world: &World, domain: &str, done: impl Future<Output = Done>) -> Done {
    let remove = async {
        loop {
            set_hook(world, domain, Value::Null).await;
            world.pass(1).await;
        }
    };
    tokio::select! {
        done = done => done,
        () = remove => Ok(()),
    }
}

async fn until_held(world: &World) -> Done {
    let is_held = |maintenance: &nm_shared::NodeMaintenance| {
        maintenance.status.as_ref().is_some_and(|status| status.hold.is_some())
    };
    world.until_maintenance("m", "waits", is_held).await
}

pub(crate) async fn held_by_hooks(world: Arc<World>) -> Done {
    world.run_on(NODE, &web().replicas(2)).await;
    world.step("start");
    let hook = json!({format!("{PRE_DRAIN_HOOK}/flush"): "cache"});
    world.start_annotated("m", NODE, json!({}), hook).await;
    until_held(&world).await?;
    world.step("remove the hook");
    while_removing(&world, PRE_DRAIN_HOOK, world.until_phase("m", "Succeeded")).await?;
    world.step("set a hook before the return, and stop");
    set_hook(&world, PRE_RETURN_HOOK, json!("cache")).await;
    world.delete(&format!("{PATH}/m")).await;
    until_held(&world).await?;
    world.step("remove the hook");
    while_removing(&world, PRE_RETURN_HOOK, world.stop("m")).await
}

fn is_left_out(state: &State) -> bool {
    let node = state.get(&NODES, &Key::cluster(NODE));
    node.is_some_and(|node| node["metadata"]["labels"].get(LOAD_BALANCER_LABEL).is_some())
}

/// Sets `spec.drain` until the node follows: a restore of etcd may bring the old one back.
async fn until_asked(world: &World, drain: Value, left_out: bool) -> Done {
    let ask = async {
        loop {
            world.patch(&format!("{PATH}/m"), json!({"spec": {"drain": drain}})).await;
            world.pass(1).await;
        }
    };
    tokio::select! {
        done = world.until("the node follows", move |state| is_left_out(state) == left_out) => done,
        () = ask => Ok(()),
    }
}

pub(crate) async fn left_out_and_protected(world: Arc<World>) -> Done {
    world.run_on(NODE, &web().replicas(2)).await;
    let before = json!({"annotations": {"karpenter.sh/do-not-disrupt": "false"}});
    world.patch(&format!("/api/v1/nodes/{NODE}"), json!({"metadata": before})).await;
    world.pass(1).await;
    world.step("start");
    let drain = json!({"loadBalancers": {"exclude": true, "delaySeconds": 10}, "autoscalers": "Protect"});
    world.start("m", NODE, drain.clone()).await;
    world.until_phase("m", "Succeeded").await?;
    assert!(world.read(is_left_out), "the label is there until the end");
    world.step("ask for nothing");
    let nothing = json!({"loadBalancers": {"exclude": false, "delaySeconds": 10}, "autoscalers": "Ignore"});
    until_asked(&world, nothing, false).await?;
    world.step("ask again");
    until_asked(&world, drain, true).await?;
    world.step("stop");
    world.stop("m").await
}
