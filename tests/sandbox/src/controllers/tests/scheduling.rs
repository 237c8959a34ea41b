//! What the scheduler promises about requests and preferences. `nodes::node_score` has the scores.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::{DeleteOptions, Part};
use crate::cluster::store::{Key, Object, State};
use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};
use crate::model::{condition, pod};
use crate::workload::{App, Kind};

/// An app whose pods request so much CPU.
fn of_size(name: &str, cpu: &str) -> App {
    App::new(Kind::Deployment, "ns", name)
        .pod("containers", json!([{"name": "app", "image": "i", "resources": {"requests": {"cpu": cpu}}}]))
}

/// Creates an app and waits until so many pods are Ready in all.
async fn run(test: &TestCluster, app: App, expected: usize) {
    app.create(&test.cluster).unwrap();
    test.until("the pods are ready", |state| ready(state).len() == expected).await;
}

fn on(state: &State, node: &str) -> Vec<Object> {
    state.on_node(&PODS, node).collect()
}

/// Why a pod is not scheduled.
fn refusal(pod: &Value) -> Option<String> {
    let condition = condition::find(&pod["status"], "PodScheduled").filter(|it| it["status"] == "False")?;
    condition["message"].as_str().map(str::to_owned)
}

fn prefer_others(test: &TestCluster, node: &str) {
    test.edit(&NODES, &Key::cluster(node), Part::Main, |node| {
        node["spec"]["taints"] = json!([{"key": "example.com/planned", "effect": "PreferNoSchedule"}]);
    });
}

#[tokio::test(start_paused = true)]
async fn pods_avoid_a_node_with_a_preference_until_the_others_are_full() {
    let test = TestCluster::new(3);
    prefer_others(&test, "node-01");
    // Each of the nodes has 8 CPUs.
    run(&test, of_size("first", "2").replicas(8), 8).await;
    assert!(test.read(|state| on(state, "node-01").is_empty()));
    run(&test, of_size("second", "2").replicas(2), 10).await;
    assert_eq!(test.read(|state| on(state, "node-01").len()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_tolerates_the_preference_is_not_repelled() {
    let test = TestCluster::new(2);
    prefer_others(&test, "node-01");
    run(&test, of_size("first", "4"), 1).await;
    let tolerant = json!({"key": "example.com/planned", "operator": "Exists", "effect": "PreferNoSchedule"});
    run(&test, of_size("second", "1").toleration(tolerant), 2).await;
    assert_eq!(test.read(|state| on(state, "node-01").len()), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_fit_nowhere_wait_until_there_is_capacity() {
    let test = TestCluster::new(2);
    run(&test, of_size("large", "5").replicas(2), 2).await;
    of_size("waiting", "4").create(&test.cluster).unwrap();
    let waiting = |state: &State| pods(state).into_iter().find(|pod| pod::name(pod).starts_with("waiting"));
    test.until("it waits", |state| waiting(state).is_some_and(|pod| refusal(&pod).is_some())).await;
    let message = test.read(|state| refusal(&waiting(state).unwrap()));
    assert_eq!(message.as_deref(), Some("0/2 nodes are available: 2 Insufficient cpu."));
    // Small pods do not wait behind it.
    run(&test, web(), 3).await;
    test.edit(&NODES, &Key::cluster("node-02"), Part::Status, |node| {
        node["status"]["allocatable"]["cpu"] = json!("9");
    });
    test.until("it runs", |state| waiting(state).is_some_and(|pod| pod::node(&pod) == Some("node-02"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_keeps_its_capacity_until_it_is_gone() {
    let test = TestCluster::new(1);
    test.run(
        App::new(Kind::Pod, "ns", "old")
            .pod("containers", json!([{"name": "app", "image": "i", "resources": {"limits": {"cpu": "8"}}}])),
    )
    .await;
    of_size("new", "8").create(&test.cluster).unwrap();
    test.until("it waits", |state| pods(state).iter().any(|pod| refusal(pod).is_some())).await;
    test.delete(&PODS, &Key::new("ns", "old"), &DeleteOptions::default());
    test.until("the new one runs", |state| {
        let old = state.get(&PODS, &Key::new("ns", "old"));
        let new = ready(state).iter().any(|pod| pod::name(pod).starts_with("new"));
        assert!(!new || old.is_none(), "both have the CPUs");
        new
    })
    .await;
}
