//! CRDs come into service and leave it, with what they define.

use crate::admin_client::{begin, json_of};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const THINGS: &str = "/apis/example.com/v1/things";

fn crd() -> Value {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "order": {"type": "string", "default": "None", "enum": ["None", "PriorityAscending"]}}}}}}})
    };
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1beta1", false), version("v1", true)]}})
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_established_and_served_at_once_in_every_version() {
    let api = begin();
    json_of(&api, "POST", CRDS, &crd()).await;
    let stored = json_of(&api, "GET", CRD, &Value::Null).await;
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True"));
    let groups = json_of(&api, "GET", "/apis/example.com", &Value::Null).await;
    assert_eq!(groups["preferredVersion"]["version"], "v1");

    let made = json_of(&api, "POST", THINGS, &json!({"metadata": {"name": "a"}, "spec": {"bogus": 1}})).await;
    assert_eq!(made["spec"], json!({"order": "None"}));
    let older = json_of(&api, "GET", "/apis/example.com/v1beta1/things/a", &Value::Null).await;
    assert_eq!((&older["apiVersion"], &older["kind"]), (&json!("example.com/v1beta1"), &json!("Thing")));
    let patched = json!({"spec": {"order": "PriorityAscending"}});
    json_of(&api, "PATCH", "/apis/example.com/v1beta1/things/a", &patched).await;
    let newer = json_of(&api, "GET", "/apis/example.com/v1/things/a", &Value::Null).await;
    assert_eq!(newer["spec"]["order"], "PriorityAscending");
}

#[tokio::test(start_paused = true)]
async fn whole_numbers_are_returned_without_a_fraction_however_they_were_sent() {
    let api = begin();
    let mut with_minimum = crd();
    let drain = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"grace": {"type": "number", "minimum": -1.0, "maximum": 0.5}}});
    with_minimum["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["drain"] = drain;
    let minimum = |crd: &Value| {
        let schema = crd.pointer("/spec/versions/1/schema/openAPIV3Schema/properties/drain/properties/grace");
        schema.unwrap().to_string()
    };
    let written = r#"{"maximum":0.5,"minimum":-1,"type":"number"}"#;
    assert_eq!(minimum(&json_of(&api, "POST", CRDS, &with_minimum).await), written);
    assert_eq!(minimum(&json_of(&api, "PUT", CRD, &with_minimum).await), written);
    assert_eq!(minimum(&json_of(&api, "GET", CRD, &Value::Null).await), written);

    let thing = json!({"metadata": {"name": "a"}, "drain": {"grace": 0.0, "other": [2.0]}});
    let made = json_of(&api, "POST", THINGS, &thing).await;
    assert_eq!(made["drain"].to_string(), r#"{"grace":0,"other":[2]}"#);
    let patched = json_of(&api, "PATCH", &format!("{THINGS}/a"), &json!({"drain": {"grace": -1.0}})).await;
    assert_eq!(patched["drain"]["grace"].to_string(), "-1");
}

#[tokio::test(start_paused = true)]
async fn a_definition_takes_its_objects_with_it() {
    let api = begin();
    json_of(&api, "POST", CRDS, &crd()).await;
    json_of(&api, "POST", THINGS, &json!({"metadata": {"name": "a"}})).await;
    json_of(&api, "DELETE", CRD, &Value::Null).await;
    assert_eq!(json_of(&api, "GET", THINGS, &Value::Null).await, json!("404 page not found\n"));
    json_of(&api, "POST", CRDS, &crd()).await;
    let list = json_of(&api, "GET", THINGS, &Value::Null).await;
    assert_eq!((&list["kind"], &list["items"]), (&json!("ThingList"), &json!([])));
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_objects_that_are_held_by_finalizers() {
    let api = begin();
    json_of(&api, "POST", CRDS, &crd()).await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    json_of(&api, "POST", THINGS, &held).await;
    json_of(&api, "DELETE", CRD, &Value::Null).await;
    let waiting = json_of(&api, "GET", &format!("{THINGS}/a"), &Value::Null).await;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    assert!(json_of(&api, "GET", CRD, &Value::Null).await["metadata"]["deletionTimestamp"].is_string());

    json_of(&api, "PATCH", &format!("{THINGS}/a"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(json_of(&api, "GET", CRD, &Value::Null).await["code"], 404);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_served_is_refused() {
    let api = begin();
    for (path, value, field) in [
        ("/metadata/name", json!("other.example.com"), "metadata.name"),
        ("/spec/names/kind", json!(""), "spec.names.kind"),
        ("/spec/versions/0/storage", json!(true), "spec.versions"),
    ] {
        let mut crd = crd();
        *crd.pointer_mut(path).unwrap() = value;
        let refused = json_of(&api, "POST", CRDS, &crd).await;
        assert_eq!(
            (&refused["code"], &refused["details"]["causes"][0]["field"]),
            (&json!(422), &json!(field))
        );
    }
}
