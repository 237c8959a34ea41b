//! What goes when something else does.

use std::time::Duration;

use serde_json::json;

use crate::cluster::catalog::resource::{
    BUDGETS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS,
};
use crate::cluster::registry::{DeleteOptions, Propagation};
use crate::cluster::store::Key;
use crate::model::pod;

use crate::controllers::engine::test_cluster::{TestCluster, pods, ready, web};

fn propagated(propagation: Propagation) -> DeleteOptions {
    DeleteOptions { propagation, ..DeleteOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let test = TestCluster::new(1);
    test.run(web().replicas(3)).await;
    test.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &DeleteOptions::default());
    assert!(test.get(&DEPLOYMENTS, &Key::new("ns", "web")).is_none());
    test.until("all is gone", |state| {
        pods(state).is_empty() && state.list(&REPLICA_SETS, Some("ns")).next().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let test = TestCluster::new(1);
    test.run(web().replicas(3)).await;
    let key = Key::new("ns", "web");
    test.delete(&DEPLOYMENTS, &key, &propagated(Propagation::Foreground));
    test.until("the pods are gone", |state| {
        let gone = pods(state).is_empty();
        assert!(gone || state.get(&DEPLOYMENTS, &key).is_some());
        gone
    })
    .await;
    test.until("the deployment is gone", |state| state.get(&DEPLOYMENTS, &key).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_lose_their_owner() {
    let test = TestCluster::new(1);
    test.run(web().replicas(2)).await;
    let set = test.read(|state| state.list(&REPLICA_SETS, Some("ns")).next()).unwrap();
    test.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &propagated(Propagation::Orphan));
    test.until("the deployment is gone", |state| state.list(&DEPLOYMENTS, Some("ns")).next().is_none()).await;
    test.pass(Duration::from_secs(5)).await;
    let set = test.get(&REPLICA_SETS, &Key::of(&set)).unwrap();
    assert_eq!(pod::owners(&set).count(), 0);
    assert_eq!(test.read(|state| ready(state).len()), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_was_is_collected() {
    let test = TestCluster::new(1);
    let owned_by = |uid: &str| {
        json!({"metadata": {"namespace": "ns", "name": format!("of-{}", &uid[..4]), "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "node-01", "uid": uid}]}})
    };
    let node = test.get(&NODES, &Key::cluster("node-01")).unwrap();
    let kept = test.create(&LEASES, owned_by(pod::uid(&node)));
    let stale = test.create(&LEASES, owned_by("an uid of a node of long ago"));
    test.until("the stale one is gone", |state| state.get(&LEASES, &Key::of(&stale)).is_none()).await;
    test.pass(Duration::from_secs(5)).await;
    assert!(test.get(&LEASES, &Key::of(&kept)).is_some());
    test.delete(&NODES, &Key::cluster("node-01"), &DeleteOptions::default());
    test.until("the node's lease follows it", |state| state.get(&LEASES, &Key::of(&kept)).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_after_what_is_in_it() {
    let test = TestCluster::new(1);
    test.run(web().replicas(2).budget(json!({"minAvailable": 2}))).await;
    test.terminate_namespace("ns");
    let key = Key::cluster("ns");
    test.until("the namespace is gone", |state| {
        let there = state.get(&NAMESPACES, &key).is_some();
        assert!(there || pods(state).is_empty());
        !there
    })
    .await;
    assert!(test.read(|state| state.list(&BUDGETS, Some("ns")).next().is_none()));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_go_after_a_quarantine() {
    let test = TestCluster::new(2);
    test.run(web().replicas(2)).await;
    test.delete(&NODES, &Key::cluster("node-02"), &DeleteOptions::default());
    test.pass(Duration::from_secs(39)).await;
    assert_eq!(test.read(|state| state.on_node(&PODS, "node-02").count()), 1);
    test.until("both run on the other node", |state| {
        ready(state).len() == 2 && state.on_node(&PODS, "node-01").count() == 2
    })
    .await;
}
