//! Watches: what is said, in which order, and when they end.

use std::sync::Arc;

use crate::admin_client::{begin, call, json_of};
use http_body_util::BodyExt;
use kube_sandbox::http::{Api, Body};
use serde_json::{Value, json};

async fn node(api: &Arc<Api>, name: &str) -> Value {
    let body = json!({"metadata": {"name": name, "labels": {"zone": "a"}}});
    json_of(api, "POST", "/api/v1/nodes", &body).await
}

async fn patch(api: &Arc<Api>, name: &str, patch: &Value) -> Value {
    json_of(api, "PATCH", &format!("/api/v1/nodes/{name}"), patch).await
}

/// A watch that is read event by event.
struct Watch {
    body: Body,
    pending: Vec<Value>,
}

impl Watch {
    async fn begin(api: &Arc<Api>, query: &str) -> Self {
        Self::with(api, query, "application/json").await
    }

    async fn with(api: &Arc<Api>, query: &str, accept: &str) -> Self {
        let path = format!("/api/v1/nodes?watch=1&{query}");
        let body = call(api, "GET", &path, accept, &Value::Null).await;
        Self { body, pending: Vec::new() }
    }

    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Value> {
        while self.pending.is_empty() {
            let bytes = self.body.frame().await?.unwrap().into_data().unwrap();
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.pending = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        }
        Some(self.pending.remove(0))
    }

    /// The next event as `TYPE name`.
    async fn reported(&mut self) -> String {
        let event = self.next().await.unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_the_existing_objects() {
    let api = begin();
    node(&api, "a").await;
    let mut watch = Watch::begin(&api, "").await;
    assert_eq!(watch.reported().await, "ADDED a");
    node(&api, "b").await;
    patch(&api, "b", &json!({"spec": {"unschedulable": true}})).await;
    json_of(&api, "DELETE", "/api/v1/nodes/b", &Value::Null).await;
    for expected in ["ADDED b", "MODIFIED b", "DELETED b"] {
        assert_eq!(watch.reported().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_at_a_version_gets_only_later_changes() {
    let api = begin();
    let first = node(&api, "a").await;
    node(&api, "b").await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Watch::begin(&api, &format!("resourceVersion={version}")).await;
    assert_eq!(watch.reported().await, "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_changes_sends_no_event() {
    let api = begin();
    node(&api, "a").await;
    let mut watch = Watch::begin(&api, "").await;
    assert_eq!(watch.reported().await, "ADDED a");
    patch(&api, "a", &json!({"spec": {"unschedulable": false}})).await;
    patch(&api, "a", &json!({"metadata": {"labels": {"zone": "a"}}})).await;
    node(&api, "b").await;
    assert_eq!(watch.reported().await, "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn leaving_a_selection_is_a_deletion_and_coming_back_an_addition() {
    let api = begin();
    node(&api, "a").await;
    let mut watch = Watch::begin(&api, "labelSelector=zone%3Da").await;
    assert_eq!(watch.reported().await, "ADDED a");
    let left = patch(&api, "a", &json!({"metadata": {"labels": {"zone": "b"}}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["zone"], "a");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    patch(&api, "a", &json!({"metadata": {"labels": {"zone": "a"}}})).await;
    assert_eq!(watch.reported().await, "ADDED a");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_its_bookmark() {
    let api = begin();
    node(&api, "a").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::begin(&api, query).await;
    assert_eq!(watch.reported().await, "ADDED a");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    let list = json_of(&api, "GET", "/api/v1/nodes", &Value::Null).await;
    assert_eq!(metadata["resourceVersion"], list["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks() {
    let api = begin();
    let mut watch = Watch::begin(&api, "allowWatchBookmarks=true").await;
    assert_eq!(watch.reported().await, "BOOKMARK ");
}

#[tokio::test(start_paused = true)]
async fn the_last_bookmark_comes_two_seconds_before_the_end() {
    let api = begin();
    let mut watch = Watch::begin(&api, "allowWatchBookmarks=true&timeoutSeconds=30").await;
    let began = tokio::time::Instant::now();
    let mut bookmarks = Vec::new();
    for _ in 0..2 {
        assert_eq!(watch.reported().await, "BOOKMARK ");
        bookmarks.push(began.elapsed().as_secs());
    }
    assert_eq!(bookmarks, [0, 28], "one after the initial events");
    assert_eq!(watch.next().await, None);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_over() {
    let api = begin();
    let mut watch = Watch::begin(&api, "timeoutSeconds=5").await;
    let began = tokio::time::Instant::now();
    assert_eq!(watch.next().await, None);
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn forgotten_history_is_an_error_event_of_code_410() {
    let api = begin();
    let first = node(&api, "a").await;
    node(&api, "b").await;
    api.cluster().store.write(kube_sandbox::store::State::compact);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = Watch::begin(&api, &format!("resourceVersion={version}")).await;
    let error = watch.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!((&error["object"]["code"], &error["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watched_table_names_its_columns_once() {
    let api = begin();
    node(&api, "a").await;
    let mut watch = Watch::with(&api, "", "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    node(&api, "b").await;
    let second = watch.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_can_be_watched() {
    let api = begin();
    node(&api, "a").await;
    let mut watch =
        Watch::with(&api, "", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"]["spec"], Value::Null);
}
