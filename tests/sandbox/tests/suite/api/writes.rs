//! What a write may say of the object that it means: its uid, its version, what keeps it.

use std::sync::Arc;

use crate::admin_client::{begin, call, json_of};
use http_body_util::BodyExt;
use kube_sandbox::http::Api;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/a";

async fn node(api: &Arc<Api>) -> Value {
    json_of(api, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "a"}})).await
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_change_a_uid_and_an_object_of_another_is_not_written() {
    let api = begin();
    let node = node(&api).await;
    let refused = json_of(&api, "PATCH", NODE, &json!({"metadata": {"uid": "x"}})).await;
    let message = "Node \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable";
    assert_eq!((&refused["code"], &refused["message"]), (&json!(422), &json!(message)));
    assert_eq!(refused["details"]["causes"].as_array().unwrap().len(), 2);
    // An old version comes first.
    let both = json!({"metadata": {"uid": "x", "resourceVersion": "1"}});
    assert_eq!(json_of(&api, "PATCH", NODE, &both).await["code"], 409);
    let mut other = node.clone();
    other["metadata"]["uid"] = json!("x");
    assert_eq!(json_of(&api, "PUT", NODE, &other).await["reason"], "Conflict");
    let own = json!({"metadata": {"uid": node["metadata"]["uid"], "labels": {"a": "b"}}});
    assert_eq!(json_of(&api, "PATCH", NODE, &own).await["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_read_is_not_created_again() {
    let api = begin();
    let node = node(&api).await;
    let refused = json_of(&api, "POST", "/api/v1/nodes", &node).await;
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(500), &Value::Null));
    assert_eq!(refused["message"], "resourceVersion should not be set on objects to be created");
    let dry = json_of(&api, "POST", "/api/v1/nodes?dryRun=All", &node).await;
    assert_eq!(dry["reason"], "AlreadyExists");
}

#[tokio::test(start_paused = true)]
async fn a_read_of_a_version_that_is_to_come_is_refused() {
    let api = begin();
    node(&api).await;
    for path in ["/api/v1/nodes", NODE] {
        let refused = json_of(&api, "GET", &format!("{path}?resourceVersion=999"), &Value::Null).await;
        assert_eq!((&refused["code"], &refused["reason"]), (&json!(504), &json!("Timeout")), "{path}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("Timeout: Too large resource version: 999, current: "), "{message}");
    }
    assert_eq!(
        json_of(&api, "GET", &format!("{NODE}?resourceVersion=0"), &Value::Null).await["kind"],
        "Node"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_removed_only_when_it_is_empty() {
    let api = begin();
    let path = "/api/v1/namespaces/a";
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    let gone = json_of(&api, "DELETE", path, &Value::Null).await;
    assert_eq!(gone["status"]["phase"], "Terminating");
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], Value::Null);
    let mut without = gone.clone();
    without["spec"] = json!({"finalizers": []});
    for (method, body) in [("PUT", without), ("PATCH", json!({"spec": {"finalizers": null}}))] {
        let kept = json_of(&api, method, path, &body).await;
        assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]), "{method}");
    }
    assert_eq!(json_of(&api, "GET", path, &Value::Null).await["kind"], "Namespace");
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_every_cluster_has_cannot_be_deleted() {
    let api = begin();
    let refused = json_of(&api, "DELETE", "/api/v1/namespaces/kube-system?dryRun=All", &Value::Null).await;
    let message = "namespaces \"kube-system\" is forbidden: this namespace may not be deleted";
    assert_eq!((&refused["code"], &refused["message"]), (&json!(403), &json!(message)));
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_bookmarks_gets_one_after_the_initial_events() {
    let api = begin();
    node(&api).await;
    let path = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=1";
    for from in ["", "&resourceVersion=0"] {
        let body = call(&api, "GET", &format!("{path}{from}"), "application/json", &Value::Null).await;
        let bytes = body.collect().await.unwrap().to_bytes();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let said: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!([&said[0]["type"], &said[1]["type"]], ["ADDED", "BOOKMARK"]);
        assert_eq!(said[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(said.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_to_the_status_changes_as_much_of_metadata_as_its_kind_lets_it() {
    let api = begin();
    let create = async |path: &str, mut object: Value| {
        object["metadata"] = json!({"name": "a", "labels": {"old": "1"}});
        json_of(&api, "POST", path, &object).await
    };
    create("/api/v1/namespaces", json!({})).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let workload = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let (old, new) = (json!({"old": "1"}), json!({"old": "1", "new": "1"}));
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]);
    let change = json!({"metadata": {"labels": {"new": "1"}, "annotations": {"new": "1"},
        "finalizers": ["example.com/new"], "ownerReferences": owners}});
    for (path, object, labels, annotated, owned) in [
        ("/api/v1/nodes", json!({}), &new, true, true),
        ("/api/v1/namespaces/a/pods", json!({"spec": template["spec"]}), &new, true, false),
        ("/apis/apps/v1/namespaces/a/deployments", workload.clone(), &old, true, true),
        ("/apis/apps/v1/namespaces/a/replicasets", workload, &new, true, true),
        ("/apis/networking.k8s.io/v1/servicecidrs", json!({}), &old, false, false),
    ] {
        create(path, object).await;
        let status = format!("{path}/a/status");
        let metadata = json_of(&api, "PATCH", &status, &change).await["metadata"].clone();
        assert_eq!(metadata["labels"], *labels, "{path}");
        assert_eq!(metadata["annotations"].is_object(), annotated, "{path}");
        assert_eq!(metadata["finalizers"].is_array(), annotated, "{path}");
        assert_eq!(metadata["ownerReferences"].is_array(), owned, "{path}");
        if *labels == new {
            let refused =
                json_of(&api, "PATCH", &status, &json!({"metadata": {"labels": {"a b": "c"}}})).await;
            assert_eq!(refused["details"]["causes"].as_array().map(Vec::len), Some(3), "{path}: {refused}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_pod_with_several_containers_needs_a_container_name() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "i", "image": "x"}],
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}});
    let made = json_of(&api, "POST", "/api/v1/namespaces/a/pods", &pod).await;
    assert_eq!(made["metadata"]["name"], "p", "{made}");
    let log = "/api/v1/namespaces/a/pods/p/log";
    for (query, message) in [
        (
            "",
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]",
        ),
        ("?container=c", "container c is not valid for pod p"),
    ] {
        let refused = json_of(&api, "GET", &format!("{log}{query}"), &Value::Null).await;
        assert_eq!((&refused["code"], &refused["message"]), (&json!(400), &json!(message)), "{query}");
    }
    for container in ["a", "b", "i"] {
        let reported = json_of(&api, "GET", &format!("{log}?container={container}"), &Value::Null).await;
        assert_eq!(reported, "", "{container}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_set_by_updates_and_patches_and_defaults_to_zero() {
    let api = begin();
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await;
    let labels = json!({"app": "w"});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
    let sets = "/apis/apps/v1/namespaces/a/statefulsets";
    json_of(&api, "POST", sets, &json!({"metadata": {"name": "w"}, "spec": spec})).await;
    let scale = format!("{sets}/w/scale");
    let read = json_of(&api, "GET", &scale, &Value::Null).await;
    let of = |replicas: Value| json!({"spec": {"replicas": replicas}});
    for (method, content_type, body, expected) in [
        ("PATCH", "application/merge-patch+json", of(json!(5)), json!(5)),
        (
            "PATCH",
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]),
            json!(4),
        ),
        (
            "PATCH",
            "application/json-patch+json",
            json!([{"op": "test", "path": "/spec/replicas", "value": 9}]),
            json!(422),
        ),
        ("PATCH", "application/merge-patch+json", json!({"metadata": {"labels": {}}}), json!(4)),
        ("PATCH", "application/merge-patch+json", of(json!(-1)), json!(422)),
        ("PUT", "application/json", of(json!("two")), json!(400)),
        ("PUT", "application/json", read, json!(409)),
        ("PUT", "application/json", json!({"kind": "Pod"}), json!(400)),
        ("PUT", "application/json", json!({"spec": {}}), Value::Null),
    ] {
        let request = http::Request::builder()
            .method(method)
            .uri(&scale)
            .header("authorization", format!("Bearer {}", api.admin_token()))
            .header("content-type", content_type);
        let response = api.answer(request.body(bytes::Bytes::from(body.to_string())).unwrap()).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        let found = if answer["kind"] == "Scale" { &answer["spec"]["replicas"] } else { &answer["code"] };
        let expected = if expected.is_null() { json!(0) } else { expected };
        assert_eq!(*found, expected, "{method} {body}: {answer}");
    }
    let set = json_of(&api, "GET", &format!("{sets}/w"), &Value::Null).await;
    assert_eq!(set["spec"]["replicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_must_name_its_pod_and_kind() {
    const POD: &str = "/api/v1/namespaces/default/pods/a";
    let api = begin();
    json_of(&api, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "default"}})).await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    json_of(&api, "POST", "/api/v1/namespaces/default/pods", &pod).await;
    let of_kind =
        |kind: &str, metadata: Value| json!({"apiVersion": "policy/v1", "kind": kind, "metadata": metadata});
    for (body, expected) in [
        (of_kind("Eviction", json!({"name": "b"})), "name in URL does not match name in Eviction object"),
        (of_kind("Eviction", json!({})), "name in URL does not match name in Eviction object"),
        (of_kind("Expulsion", json!({"name": "a"})), "no kind \"Expulsion\" is registered"),
    ] {
        let answer = json_of(&api, "POST", &format!("{POD}/eviction"), &body).await;
        let message = answer["message"].as_str().unwrap();
        assert!(answer["code"] == 400 && message.contains(expected), "{body}: {answer}");
    }
    let pod = json_of(&api, "GET", POD, &Value::Null).await;
    assert_eq!((&pod["kind"], &pod["metadata"]["deletionTimestamp"]), (&json!("Pod"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_number_is_refused_by_lists_reads_and_watches() {
    let api = begin();
    node(&api).await;
    let refused =
        "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    for (path, code) in [("/api/v1/nodes?", 400), ("/api/v1/nodes/a?", 500), ("/api/v1/nodes?watch=1&", 500)]
    {
        let answer = json_of(&api, "GET", &format!("{path}resourceVersion=abc"), &Value::Null).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(answer["code"] == code && message.contains(refused), "{path}: {answer}");
    }
}
