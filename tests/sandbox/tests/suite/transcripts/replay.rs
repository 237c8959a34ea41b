//! One request after the other, each answer beside the recorded one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_sandbox::clock::Clock;
use kube_sandbox::cluster::Cluster;
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target};
use kube_sandbox::http::{Api, Body};
use serde_json::{Map, Value, json};

use super::essence::essence;
use super::exclusions::without;

/// How long a watch that has no end of its own is listened to after its last event.
const SILENCE: Duration = Duration::from_secs(5);

/// A replay: the server, the continue token that it gave last, and the versions of the objects that it answered with.
pub(crate) struct Replay {
    api: Arc<Api>,
    /// What of discovery is not compared.
    left_out: Vec<&'static str>,
    token: String,
    versions: HashMap<String, Value>,
}

impl Replay {
    /// The cluster as it was before the recordings: two namespaces and three nodes.
    pub(crate) async fn begin(left_out: Vec<&'static str>) -> Self {
        let api = Api::new(Arc::new(Cluster::new(Clock::start())));
        let mut replay = Self { api, left_out, token: String::new(), versions: HashMap::new() };
        for namespace in ["default", "facts"] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            replay.given(&json!({"method": "POST", "path": "/api/v1/namespaces", "body": body})).await;
        }
        for index in 0..3 {
            let (create, annotate) = hollow_node(index);
            replay.given(&create).await;
            replay.given(&annotate).await;
        }
        replay
    }

    /// Sets the scene, sends the request and says where the answer is not the recorded one.
    pub(crate) async fn check(&mut self, case: &Value) -> Vec<String> {
        if case["anew"] == true {
            *self = Self::begin(self.left_out.clone()).await;
        }
        for given in listed(&case["given"]) {
            self.given(given).await;
        }
        let fault = case["fault"].as_str().map(|name| self.api.faults().add(fault(name)));
        let response = self.send(&case["request"]).await;
        if let Some(fault) = fault {
            self.api.faults().remove(fault);
        }
        let expected = &case["response"];
        let mut wrong = Differences::default();
        wrong.compare("code", &json!(response.status().as_u16()), &expected["status"]);
        for name in ["content-type", "retry-after"] {
            let found = response.headers().get(name);
            let found = found.map_or(Value::Null, |value| json!(value.to_str().unwrap()));
            wrong.compare(name, &found, &expected["headers"][name]);
        }
        let warnings = response.headers().get_all("warning").into_iter();
        let warnings: Value = warnings.map(|value| value.to_str().unwrap()).collect();
        wrong.compare("warnings", &warnings, &json!(listed(&expected["headers"]["warning"])));
        if expected["events"].is_array() {
            for during in listed(&case["during"]) {
                self.given(during).await;
            }
            let ends = case["request"]["path"].as_str().unwrap().contains("timeoutSeconds");
            self.check_events(response, listed(&expected["events"]), ends, &mut wrong).await;
            return wrong.0;
        }
        let body = read(response).await;
        if let Some(token) = body["metadata"]["continue"].as_str() {
            token.clone_into(&mut self.token);
        }
        self.check_version(&body, &expected["resourceVersion"], &mut wrong);
        wrong.compare("body", &essence(&body), &essence(&without(&self.left_out, &expected["body"])));
        wrong.0
    }

    /// What the watch says: the recorded events in their order, with rising versions, and then nothing or its end.
    async fn check_events(
        &self,
        response: Response<Body>,
        expected: &[Value],
        ends: bool,
        wrong: &mut Differences,
    ) {
        let mut body = response.into_body();
        let mut said = Vec::new();
        let ended = loop {
            let Ok(frame) = tokio::time::timeout(SILENCE, body.frame()).await else { break false };
            let Some(frame) = frame else { break true };
            let bytes = frame.unwrap().into_data().unwrap();
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            said.extend(lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()));
        };
        wrong.compare("ended", &json!(ended), &json!(ends));
        wrong.compare("events", &json!(said.len()), &json!(expected.len()));
        for (index, (said, expected)) in said.iter().zip(expected).enumerate() {
            wrong.compare(&format!("event {index}"), &essence(said), &essence(expected));
        }
        let version = |event: &Value| {
            let text = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
            text.parse::<u64>().unwrap()
        };
        for pair in said.windows(2) {
            let (before, after) = (version(&pair[0]), version(&pair[1]));
            let grows = before < after || (before == after && pair[1]["type"] == "BOOKMARK");
            assert!(grows, "versions only grow: {said:?}");
        }
    }

    /// Whether a write changed the object's version since it was last answered with.
    fn check_version(&mut self, body: &Value, expected: &Value, wrong: &mut Differences) {
        let metadata = &body["metadata"];
        let Some(uid) = metadata["uid"].as_str() else { return };
        let before = self.versions.insert(uid.to_owned(), metadata["resourceVersion"].clone());
        if expected.is_string() {
            let found = match before {
                None => "was not known before",
                Some(before) if before == metadata["resourceVersion"] => "stays",
                Some(_) => "changes",
            };
            wrong.compare("resourceVersion", &json!(found), expected);
        }
    }

    async fn given(&mut self, request: &Value) {
        let response = self.send(request).await;
        let code = response.status();
        let body = read(response).await;
        assert!(code.is_success(), "could not set the scene with {request}: {body}");
        if let Some(uid) = body["metadata"]["uid"].as_str() {
            self.versions.insert(uid.to_owned(), body["metadata"]["resourceVersion"].clone());
        }
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

    /// The request with `${uid:PATH}`, `${rv:PATH}`, `${now}` and `${continue}` replaced.
    async fn filled_in(&self, request: &Value) -> Value {
        let mut text = request.to_string().replace("${continue}", &self.token);
        text = text.replace("${now}", "${rv:/api/v1/nodes}");
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
}

/// The request of a node's kubelet to add it, and what a controller then writes to it.
fn hollow_node(index: usize) -> (Value, Value) {
    let name = format!("node-000{index}");
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    let since = "2026-11-21T07:33:06Z";
    let create = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{index}")}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": since,
                "lastTransitionTime": since, "reason": "Hollow"}],
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "hollow",
                "osImage": "hollow", "containerRuntimeVersion": "hollow", "kubeletVersion": "v1.36.2",
                "kubeProxyVersion": "v1.36.2", "operatingSystem": "linux", "architecture": "amd64"}}});
    // Without the taint that every node begins with.
    let annotate = json!({"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": {"taints": null}});
    (
        json!({"method": "POST", "path": "/api/v1/nodes", "body": create}),
        json!({"method": "PATCH", "path": format!("/api/v1/nodes/{name}"), "body": annotate,
            "headers": {"Content-Type": "application/merge-patch+json"}}),
    )
}

/// A moment that comes by itself on a real server, and on demand in the sandbox.
fn fault(name: &str) -> Rule {
    assert_eq!(name, "initializing", "the one moment that was recorded");
    Rule::new(Target::any(), Action::Fail(Failure::Initializing, Moment::BeforeEffect))
}

/// Stands for a field that is not there, which is not the same as one that is `null`.
const ABSENT: &str = "<absent>";

/// Where an answer is not the recorded one.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    /// Names each field or item that differs.
    fn compare(&mut self, what: &str, found: &Value, expected: &Value) {
        match (found, expected) {
            (Value::Object(left), Value::Object(right)) => {
                let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
                for name in names {
                    let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or(json!(ABSENT));
                    self.compare(&format!("{what}.{name}"), &of(left), &of(right));
                }
            }
            (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                for (index, (found, expected)) in left.iter().zip(right).enumerate() {
                    self.compare(&format!("{what}[{index}]"), found, expected);
                }
            }
            _ if found == expected => {}
            _ => self.0.push(format!("{what}\n  expected {expected}\n  found    {found}")),
        }
    }
}

fn listed(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

async fn read(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
}
