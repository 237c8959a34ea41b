//! What a request looks at: of a large cluster no more than it is about. Objects are counted, nothing is timed.

use std::sync::Arc;

use crate::admin_client::{begin, json_of};
use kube_sandbox::http::Api;
use kube_sandbox::resource::{NODES, PODS};
use kube_sandbox::store::{Key, State};
use kube_sandbox::workload::{seed_namespace, seed_nodes};
use serde_json::{Value, json};

const NODE_COUNT: usize = 20;
const PODS_OF_A_NODE: usize = 10;

/// A cluster without controllers whose pods are bound by hand, each node's spread over two namespaces.
fn cluster() -> Arc<Api> {
    let api = begin();
    let cluster = api.cluster();
    seed_nodes(cluster, NODE_COUNT).unwrap();
    for namespace in ["a", "b"] {
        seed_namespace(cluster, namespace).unwrap();
    }
    cluster.store.write(|state| {
        for node in 1..=NODE_COUNT {
            for number in 0..PODS_OF_A_NODE {
                let namespace = ["a", "b"][number % 2];
                let metadata =
                    json!({"namespace": namespace, "name": format!("p-{node}-{number}"), "uid": "u"});
                let spec = json!({"nodeName": format!("node-{node:02}")});
                state.put(&PODS, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}));
            }
        }
    });
    api
}

fn examined(api: &Api) -> u64 {
    api.cluster().store.read(State::examined)
}

async fn examined_by(api: &Arc<Api>, method: &str, path: &str, body: Value) -> (u64, Value) {
    // The first request of all may read roles and bindings once.
    json_of(api, "GET", "/api/v1/namespaces/a", &Value::Null).await;
    let before = examined(api);
    let answer = json_of(api, method, path, &body).await;
    (examined(api) - before, answer)
}

#[tokio::test]
async fn a_list_of_one_nodes_pods_looks_at_those_alone() {
    let api = cluster();
    let path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-07";
    let (examined, list) = examined_by(&api, "GET", path, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), PODS_OF_A_NODE);
    assert_eq!(examined, PODS_OF_A_NODE as u64);
}

#[tokio::test]
async fn a_list_of_a_namespace_looks_at_no_other() {
    let api = cluster();
    let (examined, _) =
        examined_by(&api, "GET", "/api/v1/namespaces/b/pods?labelSelector=x", Value::Null).await;
    assert_eq!(examined, (NODE_COUNT * PODS_OF_A_NODE / 2) as u64);
}

#[tokio::test]
async fn an_eviction_looks_at_one_pod_and_not_at_its_neighbours() {
    let api = cluster();
    let path = "/api/v1/namespaces/a/pods/p-7-0/eviction";
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p-7-0"}});
    let (examined, answer) = examined_by(&api, "POST", path, body).await;
    assert_eq!(answer["status"], "Success", "{answer}");
    assert!(examined < PODS_OF_A_NODE as u64, "{examined} objects");
}

#[test]
fn a_watch_of_one_node_is_told_of_that_nodes_changes_alone() {
    let api = cluster();
    let (count, since) = api.cluster().store.write(|state| {
        let since = state.revision();
        for node in 1..=NODE_COUNT {
            state.remove(&PODS, &Key::new("a", format!("p-{node}-0")));
        }
        state.put(&NODES, json!({"metadata": {"name": "node-07"}}));
        let examined = state.examined();
        assert_eq!(state.changes_on_node(&PODS, "node-07", since).unwrap().count(), 1);
        (state.examined() - examined, since)
    });
    assert_eq!(count, 2, "the pod before, and its last state");
    api.cluster().store.write(|state| {
        state.compact();
        assert!(state.changes_on_node(&PODS, "node-07", since).is_none());
    });
}
