//! What goes when something else does.

use std::time::Duration;

use serde_json::json;

use crate::pod;
use crate::registry::{DeleteOptions, Propagation};
use crate::resource::{BUDGETS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS};
use crate::store::Key;

use crate::controllers::test_bed::{Bed, pods, ready, web};

fn propagated(propagation: Propagation) -> DeleteOptions {
    DeleteOptions { propagation, ..DeleteOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let bed = Bed::new(1);
    bed.run(web().replicas(3)).await;
    bed.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &DeleteOptions::default());
    assert!(bed.get(&DEPLOYMENTS, &Key::new("ns", "web")).is_none());
    bed.until("all is gone", |state| {
        pods(state).is_empty() && state.list(&REPLICA_SETS, Some("ns")).next().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let bed = Bed::new(1);
    bed.run(web().replicas(3)).await;
    let key = Key::new("ns", "web");
    bed.delete(&DEPLOYMENTS, &key, &propagated(Propagation::Foreground));
    bed.until("the pods are gone", |state| {
        let gone = pods(state).is_empty();
        assert!(gone || state.get(&DEPLOYMENTS, &key).is_some());
        gone
    })
    .await;
    bed.until("the deployment is gone", |state| state.get(&DEPLOYMENTS, &key).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_lose_their_owner() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2)).await;
    let set = bed.read(|state| state.list(&REPLICA_SETS, Some("ns")).next()).unwrap();
    bed.delete(&DEPLOYMENTS, &Key::new("ns", "web"), &propagated(Propagation::Orphan));
    bed.until("the deployment is gone", |state| state.list(&DEPLOYMENTS, Some("ns")).next().is_none()).await;
    bed.pass(Duration::from_secs(5)).await;
    let set = bed.get(&REPLICA_SETS, &Key::of(&set)).unwrap();
    assert_eq!(pod::owners(&set).count(), 0);
    assert_eq!(bed.read(|state| ready(state).len()), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_was_is_collected() {
    let bed = Bed::new(1);
    let owned_by = |uid: &str| {
        json!({"metadata": {"namespace": "ns", "name": format!("of-{}", &uid[..4]), "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "node-01", "uid": uid}]}})
    };
    let node = bed.get(&NODES, &Key::cluster("node-01")).unwrap();
    let kept = bed.create(&LEASES, owned_by(pod::uid(&node)));
    let stale = bed.create(&LEASES, owned_by("an uid of a node of long ago"));
    bed.until("the stale one is gone", |state| state.get(&LEASES, &Key::of(&stale)).is_none()).await;
    bed.pass(Duration::from_secs(5)).await;
    assert!(bed.get(&LEASES, &Key::of(&kept)).is_some());
    bed.delete(&NODES, &Key::cluster("node-01"), &DeleteOptions::default());
    bed.until("the node's lease follows it", |state| state.get(&LEASES, &Key::of(&kept)).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_after_what_is_in_it() {
    let bed = Bed::new(1);
    bed.run(web().replicas(2).budget(json!({"minAvailable": 2}))).await;
    bed.terminate_namespace("ns");
    let key = Key::cluster("ns");
    bed.until("the namespace is gone", |state| {
        let there = state.get(&NAMESPACES, &key).is_some();
        assert!(there || pods(state).is_empty());
        !there
    })
    .await;
    assert!(bed.read(|state| state.list(&BUDGETS, Some("ns")).next().is_none()));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_go_after_a_quarantine() {
    let bed = Bed::new(2);
    bed.run(web().replicas(2)).await;
    bed.delete(&NODES, &Key::cluster("node-02"), &DeleteOptions::default());
    bed.pass(Duration::from_secs(39)).await;
    assert_eq!(bed.read(|state| state.on_node(&PODS, "node-02").count()), 1);
    bed.until("both run on the other node", |state| {
        ready(state).len() == 2 && state.on_node(&PODS, "node-01").count() == 2
    })
    .await;
}
