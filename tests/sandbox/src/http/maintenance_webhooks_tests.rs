//! Webhooks on custom resources: what becomes of a maintenance that one of them is asked about.

use super::*;

const MAINTENANCES: &str = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances";

fn maintenance(name: &str) -> Value {
    json!({"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name}, "spec": {"nodeName": "node-01", "reason": "kernel"}})
}

fn served() -> Arc<Api> {
    let api = api();
    crate::http::install(api.cluster(), json!(nm_shared::api::crd::crd())).unwrap();
    api
}

/// The webhook is asked about maintenances and nothing else, and answers as `path` says.
async fn ask(api: &Arc<Api>, hook: &Hook, path: &str, change: Value) {
    let mut configuration = hook.config(path, &change);
    configuration["webhooks"][0]["rules"] = json!([{"operations": ["CREATE", "UPDATE", "DELETE"],
        "apiGroups": ["nodemaintenance.medik8s.io"], "apiVersions": ["v1beta1"], "resources": ["nodemaintenances"]}]);
    configure(api, configuration).await;
}

/// Makes a maintenance while nobody is asked.
async fn given(api: &Arc<Api>, name: &str) {
    call(api, "DELETE", &format!("{CONFIGURATIONS}/hook"), Value::Null).await;
    let created = call(api, "POST", MAINTENANCES, maintenance(name)).await;
    assert_eq!(created.code, 201, "{}", created.body);
}

/// Writes the maintenance `a` in one way; what is created is another, `b`.
async fn write(api: &Arc<Api>, operation: &str) -> Answered {
    let path = format!("{MAINTENANCES}/a");
    match operation {
        "CREATE" => call(api, "POST", MAINTENANCES, maintenance("b")).await,
        "UPDATE" => call(api, "PATCH", &path, json!({"spec": {"reason": "firmware"}})).await,
        _ => call(api, "DELETE", &path, Value::Null).await,
    }
}

async fn state(api: &Arc<Api>) -> Vec<(String, String)> {
    let listed = call(api, "GET", MAINTENANCES, Value::Null).await.body;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["spec"]["reason"]))).collect()
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())).collect()
}

/// Names and reasons.
type Pairs = &'static [(&'static str, &'static str)];
/// A kind of write, the code of its success, and what is there afterwards.
type Written = (&'static str, u16, Pairs);

const UNCHANGED: Pairs = &[("a", "kernel")];
const WRITES: [Written; 3] = [
    ("CREATE", 201, &[("a", "kernel"), ("b", "kernel")]),
    ("UPDATE", 200, &[("a", "firmware")]),
    ("DELETE", 200, &[]),
];

#[tokio::test]
async fn a_write_of_a_custom_resource_that_is_allowed_takes_effect_and_shows_its_warnings() {
    let hook = Hook::start().await;
    for (path, warnings) in [("allow", vec![]), ("warn", vec!["299 - \"careful \\\"now\\\"\""])] {
        for (operation, code, after) in WRITES {
            let api = served();
            given(&api, "a").await;
            ask(&api, &hook, path, json!({})).await;
            let answered = write(&api, operation).await;
            assert_eq!((answered.code, answered.warnings()), (code, warnings.clone()), "{operation}");
            assert_eq!(state(&api).await, named(after), "{operation}");
            let [asked] = &hook.heard()[..] else { panic!("once: {operation}") };
            let name = if operation == "CREATE" { "b" } else { "a" };
            assert_eq!(summary(asked), format!("{operation} nodemaintenances {name}"));
            let (new, old) = (!asked["object"].is_null(), !asked["oldObject"].is_null());
            assert_eq!((new, old), (operation != "DELETE", operation != "CREATE"), "{operation}");
        }
    }
}

#[tokio::test]
async fn a_write_of_a_custom_resource_that_is_denied_says_why_and_changes_nothing() {
    let hook = Hook::start().await;
    for (operation, ..) in WRITES {
        let api = served();
        given(&api, "a").await;
        ask(&api, &hook, "deny", json!({})).await;
        let answered = write(&api, operation).await;
        let because = "admission webhook \"hook.example.com\" denied the request: because I say so";
        assert_eq!((answered.code, answered.message()), (400, because), "{operation}");
        assert_eq!(state(&api).await, named(UNCHANGED), "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_keeps_silent_stops_a_custom_resource_or_not_as_its_policy_says() {
    let hook = Hook::start().await;
    for policy in ["Fail", "Ignore"] {
        for (operation, code, after) in WRITES {
            let api = served();
            given(&api, "a").await;
            ask(&api, &hook, "silent", json!({"timeoutSeconds": 3, "failurePolicy": policy})).await;
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
async fn a_webhook_on_a_custom_resource_is_not_asked_about_its_status() {
    let (hook, api) = (Hook::start().await, served());
    given(&api, "a").await;
    ask(&api, &hook, "deny", json!({})).await;
    let status = json!({"status": {"phase": "Running"}});
    let answered = call(&api, "PATCH", &format!("{MAINTENANCES}/a/status"), status).await;
    assert_eq!((answered.code, &answered.body["status"]["phase"]), (200, &json!("Running")));
    assert!(hook.heard().is_empty());
}
