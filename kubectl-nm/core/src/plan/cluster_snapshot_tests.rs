//! Reads that fail in part.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::testing::fake_server::{cluster, failure};

fn items(names: &[&str], more: Option<&str>) -> (u16, Value) {
    let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    (
        200,
        json!({"kind": "NodeList", "apiVersion": "v1", "items": items,
        "metadata": {"resourceVersion": "1", "continue": more}}),
    )
}

#[tokio::test]
async fn a_list_whose_token_expires_is_read_again_from_the_start() {
    let asked = Mutex::new(0);
    let (cluster, requests) = cluster(move |_, _| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        match *asked {
            1 => items(&["a", "b"], Some("token")),
            2 => failure(410, "Expired", "the provided continue parameter is too old"),
            _ => items(&["b", "c"], None),
        }
    });
    let push = |nodes: &mut Vec<Node>, node| nodes.push(node);
    let nodes = list_everywhere(&cluster, "list nodes", ListParams::default(), push).await.unwrap();
    assert_eq!(nodes.iter().map(node::name).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(requests.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_list_that_always_expires_is_an_error_and_not_a_loop() {
    let (cluster, requests) = cluster(|_, _| failure(410, "Expired", "too old"));
    let push = |nodes: &mut Vec<Node>, node| nodes.push(node);
    assert!(list_everywhere(&cluster, "list nodes", ListParams::default(), push).await.is_err());
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn without_the_installation_nothing_is_in_maintenance() {
    let (cluster, _) = cluster(|_, path| match path {
        "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
        | "/apis/nodemaintenance.kubevirt.io/v1beta1"
        | "/apis/kubevirt.io/v1alpha1" => (404, json!("404 page not found")),
        _ => items(&[], None),
    });
    let read = Box::pin(ClusterSnapshot::read(None, &["n1".into()], &cluster)).await.unwrap();
    assert!(read.maintenances.is_empty() && read.unknown.is_empty(), "{read:?}");
}

#[tokio::test]
async fn without_access_to_an_older_group_the_others_are_still_read() {
    let maintenances = |api_version: &str| {
        let item =
            json!({"apiVersion": api_version, "metadata": {"name": "m"}, "spec": {"nodeName": api_version}});
        let metadata = json!({"resourceVersion": "1"});
        (
            200,
            json!({"kind": "NodeMaintenanceList", "apiVersion": api_version, "metadata": metadata, "items": [item]}),
        )
    };
    let served = |group_version: &str| {
        let resource = json!({"name": "nodemaintenances", "singularName": "nodemaintenance", "namespaced": false,
            "kind": "NodeMaintenance", "verbs": ["list"]});
        (200, json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": [resource]}))
    };
    let (ours, older, hidden) =
        ("nodemaintenance.medik8s.io/v1beta1", "nodemaintenance.kubevirt.io/v1beta1", "kubevirt.io/v1alpha1");
    let (cluster, _) = cluster(move |_, path| {
        let path = path.strip_prefix("/apis/").unwrap_or(path);
        match path.strip_suffix("/nodemaintenances") {
            None if path == older || path == hidden => served(path),
            Some(group) if group == ours || group == older => maintenances(group),
            Some(_) => failure(403, "Forbidden", "you may not"),
            None => items(&[], None),
        }
    });
    let read = Box::pin(ClusterSnapshot::read(None, &["n1".into()], &cluster)).await.unwrap();
    let nodes = |all: &[NodeMaintenance]| -> Vec<String> {
        all.iter().map(|one| one.spec.node_name.clone()).collect()
    };
    assert_eq!(
        (nodes(&read.maintenances), nodes(&read.older)),
        (vec![ours.to_owned()], vec![older.to_owned()])
    );
    let unknown = Unread::forbidden("which nodes are in maintenance", "list nodemaintenances.kubevirt.io");
    assert_eq!(read.unknown, [unknown]);
}

#[tokio::test]
async fn the_claims_that_are_being_deleted_are_read_if_pods_have_claims() {
    const ALL: &str = "GET /api/v1/persistentvolumeclaims";
    let list = |item: &Value| {
        let metadata = json!({"resourceVersion": "1"});
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": [item]}))
    };
    let read = async |claims: usize, is_permitted: bool| {
        let deleted = json!({"metadata": {"namespace": "shop", "name": "data-0", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let volume = |number: usize| json!({"name": "v", "persistentVolumeClaim": {"claimName": format!("data-{number}")}});
        let volumes: Vec<Value> = (0..claims).map(volume).collect();
        let pod = json!({"metadata": {"namespace": "shop", "name": "db-0"},
            "spec": {"nodeName": "n1", "containers": [], "volumes": volumes}});
        let (cluster, requests) = cluster(move |_, path| match path {
            "/api/v1/pods" => list(&pod),
            path if path.contains("persistentvolumeclaims") && !is_permitted => {
                failure(403, "Forbidden", "you may not")
            }
            "/api/v1/persistentvolumeclaims" => list(&deleted),
            "/api/v1/namespaces/shop/persistentvolumeclaims/data-0" => (200, deleted.clone()),
            path if path.contains("/persistentvolumeclaims/") => failure(404, "NotFound", "data-1"),
            path if path.starts_with("/apis/") && path.contains("kubevirt.io") => {
                (404, json!("404 page not found"))
            }
            _ => items(&[], None),
        });
        let read = Box::pin(ClusterSnapshot::read(None, &["n1".into()], &cluster)).await.unwrap();
        let lists = requests.lock().unwrap().iter().filter(|request| *request == ALL).count();
        (read, lists)
    };
    let data = BTreeSet::from([PodReference { namespace: "shop".into(), name: "data-0".into() }]);
    for (claims, expected) in [(2, 0), (MAX_CLAIMS + 1, 1)] {
        let (found, lists) = read(claims, true).await;
        assert_eq!((found.deleted_claims, found.unknown, lists), (data.clone(), Vec::new(), expected));
        let (denied, _) = read(claims, false).await;
        let verb = if expected == 0 { "get" } else { "list" };
        let verb = format!("{verb} persistentvolumeclaims");
        let unknown = Unread::forbidden("which volume claims are being deleted", &verb);
        assert_eq!((denied.deleted_claims.len(), denied.unknown), (0, vec![unknown]));
    }
}
