//! Lists in pages: every page shows the cluster as it was when the first was asked for.

use std::sync::Arc;

use crate::admin_client::{begin, json_of};
use kube_sandbox::http::Api;
use serde_json::{Value, json};

async fn node(api: &Arc<Api>, name: &str) {
    let made = json_of(api, "POST", "/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
    assert_eq!(made["kind"], "Node", "{made}");
}

async fn page(api: &Arc<Api>, query: &str) -> Value {
    json_of(api, "GET", &format!("/api/v1/nodes?limit=2&{query}"), &Value::Null).await
}

fn names(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|node| node["metadata"]["name"].as_str().unwrap()).collect()
}

fn token(page: &Value) -> String {
    format!("continue={}", page["metadata"]["continue"].as_str().unwrap())
}

#[tokio::test]
async fn later_pages_show_the_moment_of_the_first() {
    let api = begin();
    for name in ["a", "b", "c", "d", "e"] {
        node(&api, name).await;
    }
    let first = page(&api, "").await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));

    json_of(&api, "DELETE", "/api/v1/nodes/c", &Value::Null).await;
    json_of(&api, "DELETE", "/api/v1/nodes/e", &Value::Null).await;
    node(&api, "e").await;
    node(&api, "ca").await;
    json_of(&api, "PATCH", "/api/v1/nodes/d", &json!({"spec": {"unschedulable": true}})).await;

    let second = page(&api, &token(&first)).await;
    assert_eq!((names(&second), &second["metadata"]["remainingItemCount"]), (vec!["c", "d"], &json!(1)));
    assert_eq!(second["items"][1]["spec"]["unschedulable"], Value::Null);
    let third = page(&api, &token(&second)).await;
    assert_eq!((names(&third), &third["metadata"]["continue"]), (vec!["e"], &Value::Null));
    let versions = [&first, &second, &third].map(|page| &page["metadata"]["resourceVersion"]);
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");

    let now = json_of(&api, "GET", "/api/v1/nodes", &Value::Null).await;
    assert_eq!(names(&now), ["a", "b", "ca", "d", "e"]);
    assert_eq!(now["items"][3]["spec"]["unschedulable"], true);
}

#[tokio::test]
async fn a_page_of_forgotten_history_is_refused_with_410() {
    let api = begin();
    for name in ["a", "b", "c"] {
        node(&api, name).await;
    }
    let first = page(&api, "").await;
    node(&api, "d").await;
    api.cluster().store.write(kube_sandbox::store::State::compact);
    let refused = page(&api, &token(&first)).await;
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(410), &json!("Expired")));
}

#[tokio::test]
async fn a_list_of_any_version_comes_whole() {
    let api = begin();
    for name in ["a", "b", "c"] {
        node(&api, name).await;
    }
    let whole = page(&api, "resourceVersion=0").await;
    assert_eq!((names(&whole), &whole["metadata"]["continue"]), (vec!["a", "b", "c"], &Value::Null));
}
