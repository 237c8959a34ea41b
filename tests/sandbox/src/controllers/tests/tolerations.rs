//! What pods promise that stay where others are moved away from.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{DAEMON_SETS, DEPLOYMENTS, NODES, PODS, REPLICA_SETS};
use crate::cluster::registry::Part;
use crate::cluster::store::{Key, Object, State};
use crate::model::pod;
use crate::workload::{App, Kind};

use crate::controllers::engine::test_cluster::{TestCluster, pods, web};

const NODE: &str = "node-02";

/// Cordons the node, with the taint of a drain beside.
fn begin_drain(test: &TestCluster) {
    test.edit(&NODES, &Key::cluster(NODE), Part::Main, |node| {
        node["spec"] = json!({"unschedulable": true, "taints": [
            {"key": "medik8s.io/drain", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]});
    });
}

fn on_node(state: &State) -> Vec<Object> {
    state.on_node(&PODS, NODE).collect()
}

/// Evicts the one pod on the node three times, and each time waits for another that is Ready there.
async fn comes_back_each_time(test: &TestCluster) {
    for _ in 0..3 {
        let old = test.read(|state| on_node(state).remove(0));
        test.evict(&old).unwrap();
        test.until("another is ready on the node, and the old one is gone", |state| {
            let pods = on_node(state);
            pods.len() == 1 && pod::is_ready(&pods[0]) && pod::uid(&pods[0]) != pod::uid(&old)
        })
        .await;
    }
}

fn app(kind: Kind) -> App {
    App::new(kind, "ns", "web")
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_tolerates_everything_and_belongs_to_one_node_comes_back_to_it_after_each_eviction() {
    for kind in [Kind::Deployment, Kind::StatefulSet, Kind::Job] {
        let test = TestCluster::new(3);
        test.run(app(kind).tolerates_everything().node_selector("kubernetes.io/hostname", NODE)).await;
        begin_drain(&test);
        comes_back_each_time(&test).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_that_tolerates_everything_comes_back_under_the_taints_of_a_drain() {
    let test = TestCluster::new(3);
    begin_drain(&test);
    test.run(app(Kind::DaemonSet).tolerates_everything()).await;
    comes_back_each_time(&test).await;
    test.until("no node is without it", |state| {
        let set = state.get(&DAEMON_SETS, &Key::new("ns", "web")).unwrap();
        set["status"]["numberReady"] == 3 && set["status"]["numberMisscheduled"] == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_named_node_takes_a_replicas_pod_without_a_scheduler() {
    let test = TestCluster::new(3);
    begin_drain(&test);
    test.run(app(Kind::Deployment).node_name(NODE)).await;
    comes_back_each_time(&test).await;
    let pod = test.read(|state| on_node(state).remove(0));
    let set = test.read(|state| state.list(&REPLICA_SETS, Some("ns")).next()).unwrap();
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], pod::uid(&set));
    assert!(test.get(&DEPLOYMENTS, &Key::new("ns", "web")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_that_names_a_node_runs_on_that_alone() {
    let test = TestCluster::new(3);
    app(Kind::DaemonSet).node_name(NODE).create(&test.cluster).unwrap();
    test.until("its pod is ready", |state| on_node(state).iter().any(|pod| pod::is_ready(pod))).await;
    test.pass(Duration::from_secs(5)).await;
    assert_eq!(test.read(|state| pods(state).len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_toleration_must_cover_each_taint_and_the_cordon() {
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    for (tolerations, comes_back) in [
        (vec![exists("medik8s.io/drain"), exists("node.kubernetes.io/unschedulable")], true),
        (vec![exists("medik8s.io/drain")], false),
        (vec![exists("node.kubernetes.io/unschedulable")], false),
    ] {
        let test = TestCluster::new(3);
        let pinned = web().node_selector("kubernetes.io/hostname", NODE);
        test.run(tolerations.iter().cloned().fold(pinned, App::toleration)).await;
        begin_drain(&test);
        let old = test.read(|state| on_node(state).remove(0));
        test.evict(&old).unwrap();
        test.until("another is there", |state| pods(state).iter().all(|pod| pod::uid(pod) != pod::uid(&old)))
            .await;
        test.pass(Duration::from_secs(5)).await;
        assert_eq!(!test.read(on_node).is_empty(), comes_back, "{tolerations:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemonset_pod_gets_each_usual_toleration_once() {
    let test = TestCluster::new(1);
    let for_a_time = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 5});
    let app = app(Kind::DaemonSet).toleration(for_a_time).pod("hostNetwork", json!(true));
    test.run(app).await;
    let tolerations = test.read(|state| pods(state).remove(0))["spec"]["tolerations"].clone();
    let tolerations: Vec<&Value> = tolerations.as_array().unwrap().iter().collect();
    let keys: Vec<&str> = tolerations.iter().map(|it| it["key"].as_str().unwrap()).collect();
    let expected = [
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ];
    assert_eq!(keys, expected.map(|condition| format!("node.kubernetes.io/{condition}")));
    assert!(tolerations.iter().all(|it| it["tolerationSeconds"].is_null()), "for good");
}
