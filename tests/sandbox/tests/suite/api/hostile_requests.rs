//! Requests that mean no good: each is answered, at once, and the next one as if nothing had been.

use std::sync::Arc;

use crate::admin_client::{begin, json_of};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_sandbox::http::Api;
use kube_sandbox::server::Service;
use serde_json::{Value, json};
use tower::Service as _;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PLAIN: &str = "application/json";

/// What a client of a socket is answered: the code, and the body as JSON or as text.
async fn ask(api: &Arc<Api>, method: &str, path: &str, content_type: &str, body: String) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = Service::admin(api.clone()).call(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_is_answered() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "a"}})).await;
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    let long = "a".repeat(3000);
    let named = |name: &str| json!({"metadata": {"name": name}}).to_string();
    let labelled = json!({"metadata": {"labels": {"a\0b": "c\0d"}, "annotations": {"e": "f\0g\r\n"}}});
    let nested = |begin: &str, end: &str| format!("{}1{}", begin.repeat(100_000), end.repeat(100_000));
    let bomb = json!(vec![json!({"op": "copy", "from": "/metadata", "path": "/metadata/labels"}); 10_000]);
    let (nodes, node) = ("/api/v1/nodes", "/api/v1/nodes/a");
    let maybe = "?dryRun=maybe";
    let mut odd = Vec::new();
    for (method, path, content_type, body, expected) in [
        ("GET", format!("{nodes}/{long}"), PLAIN, String::new(), 404),
        ("GET", format!("{nodes}/a%00b"), PLAIN, String::new(), 404),
        ("GET", "/api/v1/namespaces/a%00/pods/a".into(), PLAIN, String::new(), 404),
        ("GET", "/api/v1/namespaces/a%00/pods".into(), PLAIN, String::new(), 200),
        ("GET", format!("{nodes}/%ff%fe%"), PLAIN, String::new(), 404),
        ("GET", format!("{nodes}?labelSelector=%00"), PLAIN, String::new(), 400),
        ("GET", format!("{nodes}?labelSelector={long}"), PLAIN, String::new(), 400),
        ("GET", format!("{nodes}?fieldSelector=metadata.name%3D%00"), PLAIN, String::new(), 200),
        ("GET", format!("{nodes}?limit=1&continue=%00%ff{long}"), PLAIN, String::new(), 400),
        ("GET", format!("{nodes}?watch=1&timeoutSeconds={}", i64::MAX), PLAIN, String::new(), 200),
        ("GET", format!("{nodes}?watch=1&timeoutSeconds={}", i64::MIN), PLAIN, String::new(), 200),
        ("GET", "//api/v1/nodes".into(), PLAIN, String::new(), 404),
        ("GET", "/api/v1//nodes".into(), PLAIN, String::new(), 404),
        ("HEAD", nodes.into(), PLAIN, String::new(), 200),
        ("HEAD", node.into(), PLAIN, String::new(), 200),
        ("OPTIONS", nodes.into(), PLAIN, String::new(), 405),
        ("OPTIONS", node.into(), PLAIN, String::new(), 405),
        ("TRACE", node.into(), PLAIN, String::new(), 405),
        ("BREW", node.into(), PLAIN, String::new(), 405),
        ("POST", nodes.into(), PLAIN, named(&long), 422),
        ("POST", nodes.into(), PLAIN, named("a\0b"), 422),
        ("POST", nodes.into(), PLAIN, "\0".into(), 400),
        ("POST", nodes.into(), PLAIN, nested("[", "]"), 400),
        ("POST", nodes.into(), "application/yaml", nested("[", "]"), 400),
        ("PATCH", node.into(), MERGE, labelled.to_string(), 422),
        ("PATCH", node.into(), STRATEGIC, labelled.to_string(), 422),
        ("PATCH", node.into(), STRATEGIC, nested("{\"a\":", "}"), 400),
        ("PATCH", format!("{node}?fieldManager=m"), APPLY, "\0".into(), 400),
        ("PATCH", node.into(), JSON, bomb.to_string(), 422),
        ("POST", format!("/api/v1/namespaces/a/pods/a/binding{maybe}"), PLAIN, "{}".into(), 422),
        ("POST", format!("/api/v1/namespaces/a/serviceaccounts/a/token{maybe}"), PLAIN, "{}".into(), 422),
        ("PUT", format!("/api/v1/namespaces/a/finalize{maybe}"), PLAIN, "{}".into(), 422),
        ("PUT", format!("/apis/apps/v1/namespaces/a/deployments/a/scale{maybe}"), PLAIN, "{}".into(), 422),
        ("PATCH", format!("/apis/apps/v1/namespaces/a/deployments/a/scale{maybe}"), MERGE, "{}".into(), 422),
        ("PATCH", node.into(), STRATEGIC, json!({"spec": {"$patch": "bogus"}}).to_string(), 500),
    ] {
        let (code, answer) = ask(&api, method, &path, content_type, body).await;
        if code != expected {
            let answer: String = answer.to_string().chars().take(300).collect();
            odd.push(format!("{method} {path:.60} {content_type}: {code} for {expected}: {answer}"));
        }
    }
    assert_eq!(odd, [""; 0]);
    assert_eq!(json_of(&api, "GET", node, &Value::Null).await["kind"], "Node");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_three_mebibytes_is_refused_wherever_one_is_read() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "a"}})).await;
    let (nodes, node) = ("/api/v1/nodes", "/api/v1/nodes/a");
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let most = 3 * 1024 * 1024;
    for (method, path) in
        [("POST", nodes), ("POST", review), ("PUT", node), ("PATCH", node), ("DELETE", node)]
    {
        let (code, answer) = ask(&api, method, path, MERGE, " ".repeat(most + 1)).await;
        assert_eq!((code, &answer["reason"]), (413, &json!("RequestEntityTooLarge")), "{method} {path}");
        assert_eq!(answer["message"], "Request entity too large: limit is 3145728");
    }
    assert_eq!(ask(&api, "GET", node, PLAIN, " ".repeat(most + 1)).await.0, 200);
    let filled = format!("{{}}{}", " ".repeat(most - 2));
    assert_eq!(ask(&api, "PATCH", node, MERGE, filled).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_directive_is_quoted_with_what_it_stood_in() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "a"}})).await;
    for patch in [json!({"$patch": "bogus"}), json!({"spec": {"$patch": "bogus"}})] {
        let (code, answer) = ask(&api, "PATCH", "/api/v1/nodes/a", STRATEGIC, patch.to_string()).await;
        assert_eq!((code, &answer["reason"]), (500, &Value::Null), "{patch}");
        assert_eq!(answer["message"], "unknown patch type: bogus in map: map[$patch:bogus]");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pods_grace_is_filled_in_again_and_otherwise_stays() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    let pods = "/api/v1/namespaces/a/pods";
    let spec = json!({"containers": [{"name": "c", "image": "x"}]});
    json_of(&api, "POST", pods, &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let pod = format!("{pods}/p");
    let grace = |seconds: Value| json!({"spec": {"terminationGracePeriodSeconds": seconds}});
    let refused = json_of(&api, "PATCH", &pod, &grace(json!(200))).await;
    let message = "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than";
    assert!(refused["message"].as_str().unwrap().starts_with(message), "{refused}");
    let kept = json_of(&api, "PATCH", &pod, &grace(Value::Null)).await;
    assert_eq!(kept["spec"]["terminationGracePeriodSeconds"], 30, "{kept}");
}
