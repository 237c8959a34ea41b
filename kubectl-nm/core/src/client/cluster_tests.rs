//! Requests of a cluster to a server that is a function.

use std::cell::Cell;
use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::client::nodes::check_exist;
use crate::testing::fake_server::{cluster, failure, list};

#[tokio::test]
async fn a_node_exists_or_is_missing_or_cannot_be_read() {
    let (cluster, _) = cluster(|_, path| match path.rsplit('/').next() {
        Some("n1") => (
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "n1"}}),
        ),
        Some("n2") => failure(404, "NotFound", "n2"),
        Some("n3") => failure(403, "Forbidden", "n3"),
        _ => failure(500, "InternalError", "n4"),
    });
    let check = async |name: &str| check_exist(&cluster, [&name.to_owned()]).await;
    assert_eq!(check("n1").await.unwrap(), [""; 0]);
    assert!(matches!(check("n2").await, Err(Error::UnknownNodes { .. })));
    assert_eq!(check("n3").await.unwrap(), ["n3"]);
    assert_eq!(check("n4").await.unwrap_err().status().unwrap().code, 500);
}

#[tokio::test]
async fn deletion_tells_gone_replaced_and_pending_objects_apart() {
    let (cluster, _) = cluster(|_, path| match path.rsplit('/').next() {
        Some("n1") => failure(404, "NotFound", "n1"),
        Some("n2") => failure(409, "Conflict", "n2"),
        Some("n3") => (200, serde_json::to_value(crate::testing::objects::requested("n3")).unwrap()),
        Some("n4") => {
            (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        _ => failure(403, "Forbidden", "n5"),
    });
    for (name, deletion) in [
        ("n1", Deletion::Gone),
        ("n2", Deletion::Replaced),
        ("n3", Deletion::UnderWay),
        ("n4", Deletion::Gone),
    ] {
        assert_eq!(cluster.delete(name, "u").await.unwrap(), deletion, "{name}");
    }
    assert!(cluster.delete("n5", "u").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_busy_server_are_retried_a_few_times() {
    let (steady, requests) = cluster(|_, _| failure(429, "TooManyRequests", "n1"));
    assert_eq!(steady.maintenances().await.unwrap_err().status().unwrap().code, 429);
    assert_eq!(requests.lock().unwrap().len(), 5);

    let left = Mutex::new(Cell::new(2));
    let (passing, requests) = cluster(move |_, _| {
        let left = left.lock().unwrap();
        if left.replace(left.get() - 1) > 0 {
            return failure(429, "TooManyRequests", "n1");
        }
        list(&[])
    });
    assert!(passing.maintenances().await.unwrap().is_empty());
    assert_eq!(requests.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_missing_resource_differs_from_a_missing_object() {
    let (bare, _) = cluster(|_, _| (404, json!("404 page not found")));
    assert!(matches!(bare.maintenances().await, Err(Error::NotInstalled { .. })));
    assert!(matches!(bare.maintenance("n1").await, Err(Error::NotInstalled { .. })));
    let (empty, _) = cluster(|_, _| failure(404, "NotFound", "n1"));
    assert_eq!(empty.maintenance("n1").await.unwrap(), None);
}
