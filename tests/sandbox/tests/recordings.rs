//! Replays what a real API server answered, and holds the sandbox to it: code, reason, message, causes, warnings, and
//! bodies but for what no two clusters share.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read is a failure of its test")]

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use nm_sandbox::clock::Clock;
use nm_sandbox::cluster::Cluster;
use nm_sandbox::http::{Api, Body};
use serde_json::{Value, json};

/// A replay: the server, and the continue token that it gave last.
struct Replay {
    api: Arc<Api>,
    token: String,
}

impl Replay {
    /// The cluster as it was before the recordings: a namespace and three nodes.
    async fn begin() -> Self {
        let replay = Self { api: Api::new(Arc::new(Cluster::new(Clock::start()))), token: String::new() };
        for namespace in ["default", "facts"] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            replay.given(&json!({"method": "POST", "path": "/api/v1/namespaces", "body": body})).await;
        }
        for index in 0..3 {
            let name = format!("node-000{index}");
            let labels = json!({"kubernetes.io/hostname": name, "zone": format!("z{index}")});
            let body =
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
            replay.given(&json!({"method": "POST", "path": "/api/v1/nodes", "body": body})).await;
        }
        replay
    }

    async fn given(&self, request: &Value) {
        let response = self.send(request).await;
        let code = response.status();
        let body = read(response).await;
        assert!(code.is_success(), "could not set the scene with {request}: {body}");
    }

    async fn send(&self, request: &Value) -> Response<Body> {
        let request = self.filled_in(request).await;
        let text = |field: &str| request[field].as_str().unwrap_or_default();
        let mut built = Request::builder().method(text("method")).uri(text("path"));
        match request["token"].as_str() {
            Some("(none)") => {}
            Some(token) => built = built.header("authorization", format!("Bearer {token}")),
            None => built = built.header("authorization", format!("Bearer {}", self.api.admin_token())),
        }
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            built = built.header(name, value.as_str().unwrap());
        }
        let body = match &request["body"] {
            Value::Null => Bytes::new(),
            Value::String(text) => Bytes::from(text.clone()),
            other => Bytes::from(other.to_string()),
        };
        self.api.answer(built.body(body).unwrap()).await
    }

    /// The request with `${uid:PATH}`, `${rv:PATH}` and `${continue}` replaced.
    async fn filled_in(&self, request: &Value) -> Value {
        let mut text = request.to_string().replace("${continue}", &self.token);
        while let Some(start) = text.find("${") {
            let end = start + text[start..].find('}').unwrap();
            let (kind, path) = text[start + 2..end].split_once(':').unwrap();
            let found = json!({"method": "GET", "path": path});
            let found = read(Box::pin(self.send(&found)).await).await;
            let field = if kind == "uid" { "uid" } else { "resourceVersion" };
            let value = found["metadata"][field].as_str().unwrap().to_owned();
            text.replace_range(start..=end, &value);
        }
        serde_json::from_str(&text).unwrap()
    }

    async fn check(&mut self, case: &Value) -> Vec<String> {
        for given in case["given"].as_array().into_iter().flatten() {
            self.given(given).await;
        }
        let response = self.send(&case["request"]).await;
        let expected = &case["response"];
        let mut wrong = Vec::new();
        let mut compare = |what: &str, found: &Value, expected: &Value| {
            if found != expected {
                wrong.push(format!("{what}\n  expected {expected}\n  found    {found}"));
            }
        };
        compare("code", &json!(response.status().as_u16()), &expected["status"]);
        for name in ["content-type", "warning", "retry-after"] {
            // Several warnings were recorded as the last of them.
            let found = response.headers().get_all(name).iter().next_back();
            let found = found.map_or(Value::Null, |value| json!(value.to_str().unwrap()));
            compare(name, &found, &expected["headers"][name]);
        }
        let body = read(response).await;
        if let Some(token) = body["metadata"]["continue"].as_str() {
            token.clone_into(&mut self.token);
        }
        compare("body", &essence(&body), &essence(&expected["body"]));
        wrong
    }
}

async fn read(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
}

/// What two clusters agree on.
fn essence(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = json!({});
            for (name, value) in fields {
                match name.as_str() {
                    "uid"
                    | "resourceVersion"
                    | "creationTimestamp"
                    | "managedFields"
                    | "node.alpha.kubernetes.io/ttl"
                    | "description" => {}
                    "continue" => kept[name] = json!(value != ""),
                    "verbs" => kept[name] = sorted(value),
                    "cells" => kept[name] = value.as_array().into_iter().flatten().map(cell).collect(),
                    _ if value.as_str().is_some_and(is_time) => kept[name] = json!("<time>"),
                    _ => kept[name] = essence(value),
                }
            }
            node_or_crd(&mut kept);
            kept
        }
        Value::Array(items) => {
            let not_ready = "node.kubernetes.io/not-ready";
            items.iter().filter(|item| item["key"] != not_ready).map(essence).collect()
        }
        Value::String(text) => json!(nameless(text)),
        other => other.clone(),
    }
}

/// A node's status is its kubelet's, and a CRD's comes a moment later in a real cluster.
fn node_or_crd(object: &mut Value) {
    let is = |kind: &str| object["kind"] == kind;
    let listed_node = object["metadata"]["labels"]["kubernetes.io/hostname"].is_string();
    if (is("CustomResourceDefinition") || is("Node") || listed_node)
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    for name in ["annotations", "taints"] {
        let nothing = object[name].as_object().is_some_and(serde_json::Map::is_empty)
            || object[name].as_array().is_some_and(Vec::is_empty);
        if (nothing || object[name].is_null())
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove(name);
        }
    }
}

fn sorted(list: &Value) -> Value {
    let mut items: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    items.sort_unstable();
    json!(items)
}

/// A cell, with ages alike.
fn cell(value: &Value) -> Value {
    let age = |text: &str| text.ends_with('s') && text[..text.len() - 1].bytes().all(|b| b.is_ascii_digit());
    match value.as_str() {
        Some(text) if age(text) => json!("<age>"),
        _ => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// A text without uids and without the ends of generated names.
fn nameless(text: &str) -> String {
    let uid = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let generated = regex::Regex::new("\\bnm-[a-z0-9]{5}\\b").unwrap();
    let text = uid.replace_all(text, "<uid>");
    generated.replace_all(&text, "nm-<suffix>").into_owned()
}

async fn replay(recording: &str) {
    let cases: Value = serde_json::from_str(recording).unwrap();
    let mut replay = Replay::begin().await;
    let mut wrong = String::new();
    for case in cases.as_array().unwrap() {
        for difference in replay.check(case).await {
            write!(wrong, "\n{}: {difference}", case["name"]).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test]
async fn discovery_answers_as_recorded() {
    replay(include_str!("../golden/discovery.json")).await;
}

#[tokio::test]
async fn nodes_are_written_and_listed_as_recorded() {
    replay(include_str!("../golden/nodes.json")).await;
}

#[tokio::test]
async fn pods_are_evicted_and_deleted_as_recorded() {
    replay(include_str!("../golden/pods.json")).await;
}

#[tokio::test]
async fn custom_resources_are_held_to_their_schema_as_recorded() {
    replay(include_str!("../golden/custom-resources.json")).await;
}

#[tokio::test]
async fn leases_and_events_are_kept_as_recorded() {
    replay(include_str!("../golden/leases-and-events.json")).await;
}

#[tokio::test]
async fn access_and_malformed_requests_are_refused_as_recorded() {
    replay(include_str!("../golden/access.json")).await;
}
