//! Webhooks that validate custom resources.

use crate::http::handlers::webhooks::tests::*;

const REPAIRS: &str = "/apis/garage.example.com/v1/repairs";

fn repair(name: &str) -> Value {
    json!({"apiVersion": "garage.example.com/v1", "kind": "Repair",
        "metadata": {"name": name}, "spec": {"nodeName": "node-01", "reason": "kernel"}})
}

fn crd() -> Value {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["nodeName"], "properties": {"nodeName": text, "reason": text}},
        "status": {"type": "object", "properties": {"phase": text}}}});
    json!({"metadata": {"name": "repairs.garage.example.com"}, "spec": {"group": "garage.example.com",
        "scope": "Cluster", "names": {"plural": "repairs", "kind": "Repair"}, "versions": [{"name": "v1",
            "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}})
}

fn api_with_repairs() -> Arc<Api> {
    let api = api();
    crate::cluster::registry::definitions::install(api.cluster(), crd()).unwrap();
    api
}

/// Registers the webhook for repairs only; it answers as `path` says.
async fn register(api: &Arc<Api>, hook: &Hook, path: &str, change: Value) {
    let mut configuration = hook.config(path, &change);
    configuration["webhooks"][0]["rules"] = json!([{"operations": ["CREATE", "UPDATE", "DELETE"],
        "apiGroups": ["garage.example.com"], "apiVersions": ["v1"], "resources": ["repairs"]}]);
    configure(api, configuration).await;
}

/// Creates a repair without a webhook.
async fn create(api: &Arc<Api>, name: &str) {
    call(api, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await;
    let created = call(api, "POST", REPAIRS, repair(name)).await;
    assert_eq!(created.code, 201, "{}", created.body);
}

/// Updates or deletes the repair `a`, or creates the repair `b`.
async fn write(api: &Arc<Api>, operation: &str) -> Answered {
    let path = format!("{REPAIRS}/a");
    match operation {
        "CREATE" => call(api, "POST", REPAIRS, repair("b")).await,
        "UPDATE" => call(api, "PATCH", &path, json!({"spec": {"reason": "firmware"}})).await,
        _ => call(api, "DELETE", &path, Value::Null).await,
    }
}

async fn state(api: &Arc<Api>) -> Vec<(String, String)> {
    let listed = call(api, "GET", REPAIRS, Value::Null).await.body;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["spec"]["reason"]))).collect()
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())).collect()
}

/// Names and reasons.
type Pairs = &'static [(&'static str, &'static str)];
/// An operation, the status code of its success, and the repairs that exist afterwards.
type Written = (&'static str, u16, Pairs);

const UNCHANGED: Pairs = &[("a", "kernel")];
const WRITES: [Written; 3] = [
    ("CREATE", 201, &[("a", "kernel"), ("b", "kernel")]),
    ("UPDATE", 200, &[("a", "firmware")]),
    ("DELETE", 200, &[]),
];

#[tokio::test]
async fn an_allowed_write_of_a_custom_resource_takes_effect_and_returns_the_warnings() {
    let hook = Hook::start().await;
    for (path, warnings) in [("allow", vec![]), ("warn", vec!["299 - \"careful \\\"now\\\"\""])] {
        for (operation, code, after) in WRITES {
            let api = api_with_repairs();
            create(&api, "a").await;
            register(&api, &hook, path, json!({})).await;
            let answered = write(&api, operation).await;
            assert_eq!((answered.code, answered.warnings()), (code, warnings.clone()), "{operation}");
            assert_eq!(state(&api).await, named(after), "{operation}");
            let [asked] = &hook.received()[..] else { panic!("once: {operation}") };
            let name = if operation == "CREATE" { "b" } else { "a" };
            assert_eq!(summary(asked), format!("{operation} repairs {name}"));
            let (new, old) = (!asked["object"].is_null(), !asked["oldObject"].is_null());
            assert_eq!((new, old), (operation != "DELETE", operation != "CREATE"), "{operation}");
        }
    }
}

#[tokio::test]
async fn a_denied_write_of_a_custom_resource_reports_the_reason_and_changes_nothing() {
    let hook = Hook::start().await;
    for (operation, ..) in WRITES {
        let api = api_with_repairs();
        create(&api, "a").await;
        register(&api, &hook, "deny", json!({})).await;
        let answered = write(&api, operation).await;
        let because = "admission webhook \"hook.example.com\" denied the request: because I say so";
        assert_eq!((answered.code, answered.message()), (400, because), "{operation}");
        assert_eq!(state(&api).await, named(UNCHANGED), "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_times_out_on_a_custom_resource_follows_its_failure_policy() {
    let hook = Hook::start().await;
    for policy in ["Fail", "Ignore"] {
        for (operation, code, after) in WRITES {
            let api = api_with_repairs();
            create(&api, "a").await;
            register(&api, &hook, "silent", json!({"timeoutSeconds": 3, "failurePolicy": policy})).await;
            let answered = write(&api, operation).await;
            if policy == "Ignore" {
                assert_eq!((answered.code, state(&api).await), (code, named(after)), "{operation}");
                continue;
            }
            assert_eq!((answered.code, state(&api).await), (500, named(UNCHANGED)), "{operation}");
            let because = format!(
                "Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: Post \
                 \"https://127.0.0.1:{}/silent?timeout=3s\": context deadline exceeded",
                hook.port
            );
            assert_eq!(answered.message(), because);
        }
    }
}

#[tokio::test]
async fn a_webhook_on_a_custom_resource_is_not_called_for_its_status() {
    let (hook, api) = (Hook::start().await, api_with_repairs());
    create(&api, "a").await;
    register(&api, &hook, "deny", json!({})).await;
    let status = json!({"status": {"phase": "Running"}});
    let answered = call(&api, "PATCH", &format!("{REPAIRS}/a/status"), status).await;
    assert_eq!((answered.code, &answered.body["status"]["phase"]), (200, &json!("Running")));
    assert!(hook.received().is_empty());
}
