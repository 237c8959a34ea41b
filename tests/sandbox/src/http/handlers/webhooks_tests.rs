//! Webhooks over real connections: what they are asked, and what is made of what they answer.

#[path = "custom_resource_webhooks_tests.rs"]
mod custom_resources;

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};

use crate::cluster::Cluster;
use crate::http::Api;
use crate::model::clock::Clock;
use crate::server::tls;
use crate::workload;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook that answers by the path that it is called at, and remembers what it was asked.
struct Hook {
    port: u16,
    bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    async fn start() -> Self {
        let identity = tls::identity().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (acceptor, received) = (identity.acceptor, asked.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, received) = (acceptor.clone(), received.clone());
                tokio::spawn(async move {
                    // Some clients of these tests do not like the certificate.
                    if let Ok(stream) = acceptor.accept(socket).await {
                        let answer = service_fn(move |request| answer(received.clone(), request));
                        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                    }
                });
            }
        });
        Self { port, bundle: STANDARD.encode(identity.authority), asked }
    }

    fn config(&self, path: &str, change: &Value) -> Value {
        let mut webhook = json!({
            "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://127.0.0.1:{}/{path}", self.port), "caBundle": self.bundle},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ns"}},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        });
        json_patch::merge(&mut webhook, change);
        json!({"metadata": {"name": "hook"}, "webhooks": [webhook]})
    }

    /// What was asked since the last time, without what differs each time.
    fn received(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn answer(
    received: Arc<Mutex<Vec<Value>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let response = match path.as_str() {
        "deny" => json!({"allowed": false, "status": {"message": "because I say so"}}),
        "later" => json!({"allowed": false, "warnings": ["hm"], "status": {"code": 429, "message": "later",
            "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}}),
        "warn" => json!({"allowed": true, "warnings": ["careful \"now\"", "a\nline"]}),
        "silent" => std::future::pending().await,
        _ => json!({"allowed": true}),
    };
    let mut answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    answer["response"] = response;
    answer["response"]["uid"] = review["request"]["uid"].clone();
    received.lock().unwrap().push(review["request"].clone());
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}

fn api() -> Arc<Api> {
    let cluster = Arc::new(Cluster::new(Clock::start()));
    workload::seed_nodes(&cluster, 1).unwrap();
    workload::seed_namespace(&cluster, "ns").unwrap();
    Api::new(cluster)
}

struct Answered {
    code: u16,
    headers: HeaderMap,
    body: Value,
}

impl Answered {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }
}

async fn call(api: &Arc<Api>, method: &str, path: &str, body: Value) -> Answered {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {}", api.admin_token()))
        .header("content-type", content_type)
        .body(if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) });
    let (head, body) = api.answer(request.unwrap()).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answered { code: head.status.as_u16(), headers: head.headers, body }
}

/// Puts a configuration in place of the last one.
async fn configure(api: &Arc<Api>, configuration: Value) {
    call(api, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await;
    let created = call(api, "POST", CONFIGURATIONS, configuration).await;
    assert_eq!(created.code, 201, "{}", created.body);
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"x": "1"}})
}

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

/// A socket whose port refuses connections, and that nothing else can take while it exists.
fn unused_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn webhook_denials_have_the_servers_error_message() {
    let (hook, api) = (Hook::start().await, api());
    configure(&api, hook.config("deny", &json!({}))).await;
    let answered = call(&api, "POST", MAPS, config_map("a")).await;
    let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400,
        "message": "admission webhook \"hook.example.com\" denied the request: because I say so"});
    assert_eq!((answered.code, answered.body), (400, expected));

    configure(&api, hook.config("later", &json!({}))).await;
    let answered = call(&api, "POST", MAPS, config_map("a")).await;
    assert_eq!((answered.code, answered.warnings()), (429, vec!["299 - \"hm\""]));
    assert_eq!(answered.headers["retry-after"], "3");
    assert_eq!(answered.body["reason"], "TooManyRequests");

    configure(&api, hook.config("warn", &json!({}))).await;
    let answered = call(&api, "POST", MAPS, config_map("a")).await;
    // What does not fit a header is left out.
    assert_eq!((answered.code, answered.warnings()), (201, vec!["299 - \"careful \\\"now\\\"\""]));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_fails_the_request_or_is_ignored() {
    let (hook, api) = (Hook::start().await, api());
    let other = STANDARD.encode(tls::identity().unwrap().authority);
    let both = tls::identity().unwrap().authority;
    let both = STANDARD.encode(both + &String::from_utf8(STANDARD.decode(&hook.bundle).unwrap()).unwrap());
    let unused = unused_port();
    let closed = unused.local_addr().unwrap().port();
    let port = hook.port;
    for (change, because) in [
        (
            json!({"clientConfig": {"url": format!("https://127.0.0.1:{closed}/x")}}),
            format!(
                "Post \"https://127.0.0.1:{closed}/x?timeout=10s\": dial tcp 127.0.0.1:{closed}: connect: \
                 connection refused"
            ),
        ),
        (
            json!({"clientConfig": {"caBundle": other}}),
            format!(
                "Post \"https://127.0.0.1:{port}/allow?timeout=10s\": tls: failed to verify certificate: x509: \
                 certificate signed by unknown authority"
            ),
        ),
        (
            json!({"clientConfig": {"url": null, "service": {"namespace": "n", "name": "nobody", "path": "/p"}}}),
            "Post \"https://nobody.n.svc:443/p?timeout=10s\": service \"nobody\" not found".into(),
        ),
    ] {
        configure(&api, hook.config("allow", &change)).await;
        let cause = format!("failed calling webhook \"hook.example.com\": failed to call webhook: {because}");
        let answered = call(&api, "POST", MAPS, config_map("a")).await;
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("Internal error occurred: {cause}"), "reason": "InternalError",
            "details": {"causes": [{"message": cause}]}, "code": 500});
        assert_eq!((answered.code, answered.body), (500, expected));

        let mut ignored = hook.config("allow", &change);
        ignored["webhooks"][0]["failurePolicy"] = json!("Ignore");
        configure(&api, ignored).await;
        assert_eq!(call(&api, "POST", &format!("{MAPS}?dryRun=All"), config_map("a")).await.code, 201);
    }
    configure(&api, hook.config("allow", &json!({"clientConfig": {"caBundle": both}}))).await;
    assert_eq!(call(&api, "POST", MAPS, config_map("a")).await.code, 201);
    let service = json!({"clientConfig": {"url": null, "service": {"namespace": "n", "name": "s"}}});
    api.cluster().admission.services.serve("n", "s", ([127, 0, 0, 1], port).into());
    configure(&api, hook.config("allow", &service)).await;
    let answered = call(&api, "POST", MAPS, config_map("b")).await;
    assert!(answered.message().contains("certificate is valid for localhost, "), "{}", answered.body);
}

#[tokio::test(start_paused = true)]
async fn a_silent_webhook_is_called_until_its_timeout() {
    let (hook, api) = (Hook::start().await, api());
    configure(&api, hook.config("silent", &json!({"timeoutSeconds": 7}))).await;
    let began = tokio::time::Instant::now();
    let answered = call(&api, "POST", MAPS, config_map("a")).await;
    assert!(answered.message().ends_with("/silent?timeout=7s\": context deadline exceeded"));
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test]
async fn an_eviction_fails_if_a_webhook_denies_it_or_is_not_served() {
    const PODS: &str = "/api/v1/namespaces/ns/pods";
    let (hook, api) = (Hook::start().await, api());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(call(&api, "POST", PODS, pod).await.code, 201);
    let unused = unused_port();
    let closed = unused.local_addr().unwrap().port();
    let nobody = json!({"clientConfig": {"url": format!("https://127.0.0.1:{closed}/x")}});
    let stranger = json!({"clientConfig": {"caBundle": STANDARD.encode(tls::identity().unwrap().authority)}});
    for (path, change, policy, code, expected) in [
        ("deny", &json!({}), "Fail", 400, "denied the request: because I say so"),
        ("deny", &json!({}), "Ignore", 400, "denied the request: because I say so"),
        ("later", &json!({}), "Fail", 429, "denied the request: later"),
        ("allow", &nobody, "Fail", 500, "connect: connection refused"),
        ("allow", &stranger, "Fail", 500, "certificate signed by unknown authority"),
        ("allow", &nobody, "Ignore", 201, ""),
        ("allow", &stranger, "Ignore", 201, ""),
        ("allow", &json!({}), "Fail", 201, ""),
    ] {
        let mut configuration = hook.config(path, change);
        let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods/eviction"]}]);
        configuration["webhooks"][0]["rules"] = rules;
        configuration["webhooks"][0]["failurePolicy"] = json!(policy);
        configure(&api, configuration).await;
        let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}});
        let answered = call(&api, "POST", &format!("{PODS}/p/eviction"), eviction).await;
        assert_eq!(answered.code, code, "{path} {policy}: {}", answered.body);
        assert!(answered.message().ends_with(expected), "{path} {policy}: {}", answered.body);
        let is_heard = hook.received().len() == 1;
        assert_eq!(is_heard, *change == json!({}), "{path} {policy}");
    }
}

#[tokio::test]
async fn a_webhook_is_asked_about_every_kind_of_write() {
    let (hook, api) = (Hook::start().await, api());
    configure(&api, hook.config("allow", &json!({}))).await;
    let pods = "/api/v1/namespaces/ns/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n",
        "containers": [{"name": "c", "image": "i"}]}});
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}});
    let evict = |name: &str| format!("{pods}/{name}/eviction");
    let missing = json!({"metadata": {"name": "missing"}});
    for (method, path, body, code, asked) in [
        ("POST", MAPS.to_owned(), config_map("a"), 201, "CREATE configmaps a"),
        ("POST", MAPS.to_owned(), config_map("a"), 409, "CREATE configmaps a"),
        ("POST", MAPS.to_owned(), config_map("A_"), 422, ""),
        ("PUT", format!("{MAPS}/a"), config_map("a"), 200, "UPDATE configmaps a"),
        ("PUT", format!("{MAPS}/b"), config_map("b"), 404, ""),
        (
            "PATCH",
            format!("{MAPS}/a?dryRun=All"),
            json!({"data": {"x": "2"}}),
            200,
            "UPDATE configmaps a dry",
        ),
        ("DELETE", format!("{MAPS}/b"), Value::Null, 404, ""),
        ("DELETE", format!("{MAPS}/a"), json!({"preconditions": {"uid": "x"}}), 409, ""),
        ("DELETE", format!("{MAPS}/a"), Value::Null, 200, "DELETE configmaps a"),
        ("POST", pods.to_owned(), pod, 201, "CREATE pods p"),
        (
            "PATCH",
            format!("{pods}/p/status"),
            json!({"status": {"message": "x"}}),
            200,
            "UPDATE pods/status p",
        ),
        // Webhooks see a dry run only if the query asks for one.
        ("POST", evict("p"), eviction, 201, "CREATE pods/eviction p"),
        ("POST", evict("missing"), missing.clone(), 404, "CREATE pods/eviction missing"),
        ("POST", evict("p"), missing, 400, ""),
        ("DELETE", pods.to_owned(), Value::Null, 200, "DELETE pods "),
        // It goes on terminating.
        ("DELETE", format!("{pods}/p"), Value::Null, 200, ""),
        (
            "PATCH",
            "/api/v1/namespaces/ns".into(),
            json!({"metadata": {"labels": {"a": "b"}}}),
            200,
            "UPDATE namespaces ns",
        ),
        ("PATCH", format!("{CONFIGURATIONS}/hook"), json!({"metadata": {"labels": {"a": "b"}}}), 200, ""),
    ] {
        let answered = call(&api, method, &path, body).await;
        assert_eq!(answered.code, code, "{method} {path}: {}", answered.body);
        let received: Vec<String> = hook.received().iter().map(summary).collect();
        let expected: Vec<&str> = if asked.is_empty() { vec![] } else { vec![asked] };
        assert_eq!(received, expected, "{method} {path}");
    }
}

fn summary(request: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let below = request["subResource"].as_str().map(|below| format!("/{below}")).unwrap_or_default();
    let dry = if request["dryRun"] == true { " dry" } else { "" };
    let plural = text(&request["resource"]["resource"]);
    format!("{} {plural}{below} {}{dry}", text(&request["operation"]), text(&request["name"]))
}

#[tokio::test]
async fn the_request_of_a_review_is_complete() {
    let (hook, api) = (Hook::start().await, api());
    configure(&api, hook.config("allow", &json!({}))).await;
    call(&api, "POST", &format!("{MAPS}?fieldManager=me&dryRun=All"), config_map("a")).await;
    let evict = "/api/v1/namespaces/ns/pods/p/eviction";
    call(&api, "POST", evict, json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 2}}))
        .await;
    let mut received = hook.received();
    let metadata = &mut received[0]["object"]["metadata"];
    for (field, is_text) in [("uid", true), ("creationTimestamp", true), ("managedFields", false)] {
        assert_eq!(metadata[field].is_string(), is_text, "{field}");
        metadata.as_object_mut().unwrap().remove(field);
    }
    for request in &mut received {
        assert!(request["uid"].is_string());
        request["uid"] = json!("u");
    }
    let gvk = |group: &str, kind: &str| json!({"group": group, "version": "v1", "kind": kind});
    let gvr = |plural: &str| json!({"group": "", "version": "v1", "resource": plural});
    let user = json!({"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]});
    let create = json!({
        "uid": "u", "kind": gvk("", "ConfigMap"), "resource": gvr("configmaps"),
        "requestKind": gvk("", "ConfigMap"), "requestResource": gvr("configmaps"), "name": "a", "namespace": "ns",
        "operation": "CREATE", "userInfo": user, "oldObject": null, "dryRun": true,
        "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns"},
            "data": {"x": "1"}},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
            "dryRun": ["All"]},
    });
    let eviction = json!({
        "uid": "u", "kind": gvk("policy", "Eviction"), "resource": gvr("pods"), "subResource": "eviction",
        "requestKind": gvk("policy", "Eviction"), "requestResource": gvr("pods"),
        "requestSubResource": "eviction", "name": "p", "namespace": "ns", "operation": "CREATE",
        "userInfo": user, "oldObject": null, "dryRun": false,
        "object": {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p", "namespace": "ns"},
            "deleteOptions": {"gracePeriodSeconds": 2}},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    });
    assert_eq!(received, [create, eviction]);
}
