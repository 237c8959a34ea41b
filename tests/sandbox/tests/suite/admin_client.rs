//! Calling the API server in process, as the administrator.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube_sandbox::clock::Clock;
use kube_sandbox::cluster::Cluster;
use kube_sandbox::http::{Api, Body};
use serde_json::{Value, json};

/// An API server over an empty cluster.
pub(crate) fn begin() -> Arc<Api> {
    Api::new(Arc::new(Cluster::new(Clock::start())))
}

/// One request; patches are merge patches.
pub(crate) async fn call(api: &Arc<Api>, method: &str, path: &str, accept: &str, body: &Value) -> Body {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {}", api.admin_token()))
        .header("accept", accept)
        .header("content-type", content_type);
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    api.answer(request.body(body).unwrap()).await.into_body()
}

/// The same, with the answer read.
pub(crate) async fn json_of(api: &Arc<Api>, method: &str, path: &str, body: &Value) -> Value {
    let body = call(api, method, path, "application/json", body).await;
    let bytes = body.collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
}
