//! Measurements of `growth` with pods whose `ReplicaSet`s or volumes the reconciler reads.

use std::collections::HashSet;
use std::time::Duration;

use kube_sandbox::registry::{self, Effect};
use kube_sandbox::resource::{ATTACHMENTS, BUDGETS, NODES, PODS};
use kube_sandbox::store::Key;
use kube_sandbox::workload::{App, Kind};
use nm_tests::cluster::Cluster;
use nm_tests::volumes::DRIVER;
use serde_json::{Value, json};

use crate::fleet::{POLL_INTERVAL, maintenances};
use crate::growing_maintenances::{create, until_drained};
use crate::meter::{Meter, start};

/// How many `ReplicaSet`s have pods on a node while none may be read.
const DENIED_PER_NODE: usize = 10;

/// How long the reconciler is observed while it may not read them and the statuses show that.
const OBSERVED: Duration = Duration::from_secs(20);

/// How long the statuses have shown that before.
const SETTLE: Duration = Duration::from_secs(5);

/// How many volumes a pod has.
const VOLUMES_PER_POD: usize = 4;

/// How soon the volumes of a pod that is gone are detached.
const DETACH_INTERVAL: Duration = Duration::from_millis(200);

const NAMESPACE: &str = "default";

/// Creates Deployments, and waits until their pods are Ready and their budgets count them.
async fn deploy(cluster: &Cluster, apps: impl Iterator<Item = App>) {
    let state = cluster.sandbox().unwrap().cluster();
    let mut pods = 0;
    for app in apps {
        pods += app.pods(0);
        app.create(state).unwrap();
    }
    let is_counted = |budget: &Value| {
        let status = &budget["status"];
        status["expectedPods"].as_u64() > Some(0) && status["currentHealthy"] == status["expectedPods"]
    };
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    let is_ready = || {
        state.store.read(|state| {
            state.list(&PODS, Some(NAMESPACE)).filter(|pod| is_running(pod)).count() == pods
                && state.list(&BUDGETS, Some(NAMESPACE)).all(|budget| is_counted(&budget))
        })
    };
    while !is_ready() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Drains nodes whose pods are all blocked, because the permission for surges is not granted.
pub(crate) async fn surge_denied(size: usize) {
    let cluster = Cluster::of_sandbox(size.div_ceil(DENIED_PER_NODE), 0, |sandbox| sandbox).await;
    let nodes = cluster.nodes().await;
    let app = |at: usize| {
        let app = App::new(Kind::Deployment, NAMESPACE, &format!("app-{at}"));
        app.node_name(&nodes[at / DENIED_PER_NODE]).budget(json!({"minAvailable": 1}))
    };
    deploy(&cluster, (0..size).map(app)).await;
    let reconciler = start(&cluster, &[]);
    create(&cluster, &nodes, &json!({"drain": {"surge": "WhenBlocked"}})).await;
    let is_denied = |pod: &&Value| pod["surge"]["reason"].is_string();
    let denied = || {
        let found = maintenances(&cluster);
        let pods =
            found.iter().flat_map(|found| found["status"]["blockedPods"].as_array().into_iter().flatten());
        pods.filter(is_denied).count()
    };
    while denied() < size {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    tokio::time::sleep(SETTLE).await;
    let meter = Meter::new(&cluster, &reconciler);
    tokio::time::sleep(OBSERVED).await;
    meter.print(&format!("surge_denied for {} s", OBSERVED.as_secs()), size);
}

/// Drains one node with pods of many Deployments, whose budgets allow one eviction each.
pub(crate) async fn replica_sets(size: usize) {
    let cluster = Cluster::of_sandbox(2, 0, |sandbox| sandbox).await;
    cluster.grant("surge").await;
    let nodes = cluster.nodes().await;
    let state = cluster.sandbox().unwrap().cluster();
    state.store.write(|state| {
        let found: Vec<_> = state.list(&NODES, None).collect();
        for node in found {
            let mut node = (*node).clone();
            for resource in ["pods", "cpu", "memory"] {
                node["status"]["capacity"][resource] = json!("100000");
                node["status"]["allocatable"][resource] = json!("100000");
            }
            state.put(&NODES, node);
        }
    });
    cluster.patch_node(&nodes[1], json!({"spec": {"unschedulable": true}})).await;
    let app = |at: usize| {
        let app = App::new(Kind::Deployment, NAMESPACE, &format!("app-{at}"));
        app.replicas(2).budget(json!({"minAvailable": 1}))
    };
    deploy(&cluster, (0..size).map(app)).await;
    cluster.patch_node(&nodes[1], json!({"spec": {"unschedulable": false}})).await;
    let reconciler = start(&cluster, &[]);
    let meter = Meter::once_quiet(&cluster, &reconciler).await;
    create(&cluster, &nodes[..1], &json!({"drain": {"surge": "WhenBlocked"}})).await;
    until_drained(&cluster, &nodes[..1]).await;
    meter.print_once_quiet("replica_sets", size).await;
}

/// Drains nodes whose maintenances wait for volumes.
pub(crate) async fn volumes(size: usize) {
    let cluster = Cluster::of_sandbox(2 * size, 20 * size, |sandbox| sandbox).await;
    cluster.grant("volume_detach").await;
    let nodes = cluster.nodes().await;
    let nodes = &nodes[..size];
    attach(&cluster);
    let reconciler = start(&cluster, &[]);
    let meter = Meter::once_quiet(&cluster, &reconciler).await;
    create(&cluster, nodes, &json!({"drain": {"waitForVolumeDetach": {}}})).await;
    let detach = async {
        loop {
            detach(&cluster);
            tokio::time::sleep(DETACH_INTERVAL).await;
        }
    };
    tokio::select! {
        () = detach => {}
        () = until_drained(&cluster, nodes) => {}
    }
    meter.print_once_quiet("volumes", size).await;
}

/// What the names of the volumes of a pod, and of their attachments, begin with. The volumes themselves do not exist, so that no
/// controller of the sandbox detaches them.
fn volumes_of(pod: &Value) -> String {
    format!("pv-{}", pod["metadata"]["uid"].as_str().unwrap())
}

/// Attaches the volumes of all pods but those of a `DaemonSet`.
fn attach(cluster: &Cluster) {
    let state = cluster.sandbox().unwrap().cluster();
    let (now, resource) = (state.clock.now(), state.catalog.of(&ATTACHMENTS).unwrap());
    state.store.write(|state| {
        let is_daemon = |pod: &Value| pod["metadata"]["namespace"] == "kube-system";
        let pods: Vec<_> = state.list(&PODS, None).filter(|pod| !is_daemon(pod)).collect();
        for pod in pods {
            for at in 0..VOLUMES_PER_POD {
                let name = format!("{}-{at}", volumes_of(&pod));
                let attachment = json!({"metadata": {"name": name}, "spec": {"attacher": DRIVER,
                    "nodeName": pod["spec"]["nodeName"], "source": {"persistentVolumeName": name}}});
                registry::create(state, &resource, attachment, now, Effect::Real).unwrap();
            }
        }
    });
}

/// Detaches the volumes of the pods that are gone.
fn detach(cluster: &Cluster) {
    cluster.sandbox().unwrap().cluster().store.write(|state| {
        let used: HashSet<String> = state.list(&PODS, None).map(|pod| volumes_of(&pod)).collect();
        let is_used = |attachment: &Value| {
            let name = attachment["metadata"]["name"].as_str().unwrap();
            name.rsplit_once('-').is_some_and(|(pod, _)| used.contains(pod))
        };
        let gone: Vec<Key> = state
            .list(&ATTACHMENTS, None)
            .filter(|attachment| !is_used(attachment))
            .map(|attachment| Key::of(&attachment))
            .collect();
        for key in gone {
            state.remove(&ATTACHMENTS, &key);
        }
    });
}
