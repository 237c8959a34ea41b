//! What a node promises that reboots.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::catalog::resource::{EVENTS, NODES, PODS};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, Object, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};
use crate::controllers::nodes::kubelet::annotations;
use crate::model::{condition, pod};
use crate::workload::{App, Kind, node};

const NODE: &str = "node-01";

fn reboot(test: &TestCluster, downtime: &str) {
    test.edit(&NODES, &Key::cluster(NODE), Part::Main, |node| {
        node["metadata"]["annotations"][annotations::REBOOT] = json!(downtime);
    });
}

fn the_node(state: &State) -> Object {
    state.get(&NODES, &Key::cluster(NODE)).unwrap()
}

fn boot_id(node: &Value) -> String {
    node["status"]["nodeInfo"]["bootID"].as_str().unwrap_or_default().to_owned()
}

/// The status and the reason of the node's Ready condition.
fn readiness(node: &Value) -> (String, String) {
    let condition = condition::find(&node["status"], "Ready").unwrap();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// The Ready conditions that the node has had since a revision, without repetitions.
fn readiness_since(test: &TestCluster, revision: u64) -> Vec<String> {
    let changes = test.read(|state| state.changes_since(&NODES, revision).unwrap().collect::<Vec<_>>());
    let mut seen: Vec<String> =
        changes.iter().filter_map(|change| change.after.as_ref()).map(|node| readiness(node).0).collect();
    seen.dedup();
    seen
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap()
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_reboots_is_unknown_then_not_ready_then_ready_with_another_boot_id() {
    let test = TestCluster::new(1);
    test.run(web()).await;
    App::new(Kind::DaemonSet, "ns", "agent").create(&test.cluster).unwrap();
    test.until("both pods are ready", |state| ready(state).len() == 2).await;
    let before = test.read(the_node);
    assert!(uuid::Uuid::parse_str(&boot_id(&before)).is_ok());
    let addresses = |state: &State| -> Vec<Value> {
        pods(state).iter().map(|pod| pod["status"]["podIP"].clone()).collect()
    };
    let addresses_before = test.read(addresses);
    let began = Instant::now();
    reboot(&test, "10s");

    test.pass(Duration::from_millis(1_900)).await;
    assert_eq!(test.read(|state| ready(state).len()), 2, "nobody has noticed");
    test.until("the node is unknown", |state| readiness(&the_node(state)).0 == "Unknown").await;
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(test.read(|state| readiness(&the_node(state)).1), "NodeStatusUnknown");
    assert_eq!(test.read(|state| ready(state).len()), 0);
    test.until("it is tainted", |state| taints(&the_node(state)) == ["node.kubernetes.io/unreachable"]).await;
    assert_eq!(test.read(|state| boot_id(&the_node(state))), boot_id(&before));

    test.until("the boot ID is new", |state| boot_id(&the_node(state)) != boot_id(&before)).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    let started = test.read(the_node);
    assert_eq!(readiness(&started), ("False".into(), "KubeletNotReady".into()));
    assert!(pod::annotation(&started, annotations::REBOOT).is_none());
    test.read(|state| {
        for pod in pods(state) {
            assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 255);
            assert!(!pod::is_ready(&pod) && restarts(&pod) == 0);
        }
    });

    test.until("the pods are ready", |state| ready(state).len() == 2).await;
    let after = test.read(the_node);
    assert_eq!(readiness(&after), ("True".into(), "KubeletReady".into()));
    test.until("its taints are gone", |state| taints(&the_node(state)).is_empty()).await;
    test.read(|state| {
        for pod in pods(state) {
            let container = &pod["status"]["containerStatuses"][0];
            assert_eq!(restarts(&pod), 1);
            assert_eq!(container["lastState"]["terminated"]["reason"], "Unknown");
            assert!(container["state"]["running"].is_object());
        }
        assert!(addresses(state).iter().all(|address| !addresses_before.contains(address)));
        let events = state.list(&EVENTS, Some("default")).collect::<Vec<_>>();
        let rebooted = events.iter().find(|event| event["reason"] == "Rebooted").unwrap();
        assert_eq!(
            (&rebooted["type"], &rebooted["involvedObject"]["kind"]),
            (&json!("Warning"), &json!("Node"))
        );
        assert!(rebooted["message"].as_str().unwrap().ends_with(&boot_id(&after)));
    });
}

#[tokio::test(start_paused = true)]
async fn a_short_reboot_is_seen_only_when_the_kubelet_starts() {
    let test = TestCluster::new(1);
    test.run(web()).await;
    let (before, revision) = test.read(|state| (the_node(state), state.revision()));
    reboot(&test, "1s");
    test.until("the boot ID is new", |state| boot_id(&the_node(state)) != boot_id(&before)).await;
    test.until("the node and its pod are ready", |state| {
        readiness(&the_node(state)).0 == "True" && ready(state).iter().any(|pod| restarts(pod) == 1)
    })
    .await;
    assert_eq!(readiness_since(&test, revision), ["True", "False", "True"]);
}

#[tokio::test(start_paused = true)]
async fn each_reboot_restarts_the_pods_once_more() {
    let test = TestCluster::new(1);
    test.run(web()).await;
    let mut boot_ids = vec![test.read(|state| boot_id(&the_node(state)))];
    for round in 1..=3 {
        reboot(&test, "3s");
        test.until("the pod is restarted", |state| ready(state).iter().any(|pod| restarts(pod) == round))
            .await;
        boot_ids.push(test.read(|state| boot_id(&the_node(state))));
    }
    boot_ids.sort();
    boot_ids.dedup();
    assert_eq!(boot_ids.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_returns_stays_unknown_until_the_annotation_is_removed() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::Pod, "ns", "kept")).await;
    App::new(Kind::Pod, "ns", "leaving").create(&test.cluster).unwrap();
    test.until("both pods are ready", |state| ready(state).len() == 2).await;
    reboot(&test, annotations::NEVER);
    test.delete(&PODS, &Key::new("ns", "leaving"), &DeleteOptions::default());
    test.pass(Duration::from_secs(3_600)).await;
    test.read(|state| {
        assert_eq!(readiness(&the_node(state)).0, "Unknown");
        assert_eq!((pods(state).len(), ready(state).len()), (2, 0));
    });
    test.edit(&NODES, &Key::cluster(NODE), Part::Main, |node| {
        node["metadata"]["annotations"] = json!({});
    });
    test.until("one pod is ready and the other is gone", |state| {
        pods(state).len() == 1 && ready(state).len() == 1 && readiness(&the_node(state)).0 == "True"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_bound_to_a_node_during_its_reboot_starts_afterwards() {
    let test = TestCluster::new(1);
    reboot(&test, "1500ms");
    test.pass(Duration::from_millis(100)).await;
    let began = Instant::now();
    test.run(web()).await;
    assert!(began.elapsed() >= Duration::from_millis(1_400), "{:?}", began.elapsed());
    assert_eq!(test.read(|state| restarts(&ready(state)[0])), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_job_fails_when_its_node_reboots() {
    let test = TestCluster::new(1);
    test.run(App::new(Kind::Job, "ns", "batch")).await;
    let old = test.read(|state| pods(state).remove(0));
    reboot(&test, "3s");
    test.until("it has failed, and another runs", |state| {
        let failed = state.get(&PODS, &Key::of(&old)).is_some_and(|pod| pod::phase(&pod) == "Failed");
        failed && ready(state).len() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_during_its_reboot_does_not_affect_one_of_the_same_name() {
    let test = TestCluster::new(1);
    reboot(&test, annotations::NEVER);
    test.pass(Duration::from_secs(10)).await;
    test.delete(&NODES, &Key::cluster(NODE), &DeleteOptions::default());
    test.pass(Duration::from_secs(10)).await;
    let another = test.create(&NODES, node(1, 1));
    test.run(web()).await;
    let now = test.read(the_node);
    assert_eq!((readiness(&now).0.as_str(), boot_id(&now)), ("True", boot_id(&another)));
}
