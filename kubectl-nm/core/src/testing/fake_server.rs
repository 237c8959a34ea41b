//! A cluster whose server is a function.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::client::cluster::Cluster;
use crate::connection::Connection;

/// The code of a response that never comes.
pub const NEVER: u16 = 0;

/// A cluster that responds to each request with the result of `answer` for its method and path, and the requests received.
/// The path of a watch is `watch`. A response whose code is [`NEVER`] never comes.
pub fn cluster(
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Cluster, Arc<Mutex<Vec<String>>>) {
    let (cluster, requests, _) = serve(move |method, path, _| answer(method, path), None);
    (cluster, requests)
}

/// The same, if responses depend on the bodies of requests.
pub fn reading_cluster(
    answer: impl Fn(&str, &str, &Value) -> (u16, Value) + Send + Sync + 'static,
) -> Cluster {
    serve(answer, None).0
}

/// The same with responses that take a second each, and the largest number of concurrent requests.
pub fn slow_cluster(
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Cluster, Arc<AtomicUsize>) {
    let (cluster, _, most) = serve(move |method, path, _| answer(method, path), Some(Duration::from_secs(1)));
    (cluster, most)
}

fn serve(
    answer: impl Fn(&str, &str, &Value) -> (u16, Value) + Send + Sync + 'static,
    takes: Option<Duration>,
) -> (Cluster, Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (log, answer, peak) = (requests.clone(), Arc::new(answer), most.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (log.clone(), answer.clone());
        let (under_way, peak) = (under_way.clone(), peak.clone());
        async move {
            peak.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            if let Some(takes) = takes {
                tokio::time::sleep(takes).await;
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (method, path) = (head.method.as_str(), head.uri.path());
            let path = if head.uri.query().is_some_and(|query| query.contains("watch=true")) {
                "watch"
            } else {
                path
            };
            log.lock().unwrap().push(format!("{method} {path}"));
            let (code, body) = answer(method, path, &body);
            if code == NEVER {
                std::future::pending::<()>().await;
            }
            Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap()))
        }
    });
    let client = kube::Client::new(service, "default");
    let cluster = Cluster::from(Connection {
        client,
        server: "https://c:6443".into(),
        context: "c".into(),
        flags: String::new(),
        kubectl: "kubectl".into(),
        kubeconfig: None,
        kubectl_arguments: Vec::new(),
        request_timeout: None,
    });
    (cluster, requests, most)
}

/// A list of maintenances as the server sends it.
pub fn list(objects: &[NodeMaintenance]) -> (u16, Value) {
    let metadata = json!({"resourceVersion": "1"});
    (
        200,
        json!({"kind": "NodeMaintenanceList", "apiVersion": "x/v1", "metadata": metadata, "items": objects}),
    )
}

/// A list of the metadata of nodes as the server sends it.
pub fn nodes(names: &[&str]) -> (u16, Value) {
    let item = |name: &&str| json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": name}});
    let items: Vec<Value> = names.iter().map(item).collect();
    (
        200,
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items}),
    )
}

/// A refusal as the server sends it.
pub fn failure(code: u16, reason: &str, name: &str) -> (u16, Value) {
    let details = json!({"name": name, "kind": "x"});
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{name} {reason}"), "reason": reason, "code": code, "details": details});
    (code, body)
}
