//! Pods made from a controller's template.

use serde_json::{Map, Value, json};

use crate::model::pod;

/// The name of a new pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PodName<'a> {
    /// The owner's name and a random suffix.
    Generated,
    /// Exactly this name.
    Fixed(&'a str),
}

/// A pod of `owner`, from its template.
pub(crate) fn pod(owner: &Value, name: PodName<'_>) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata.insert(field.into(), template["metadata"][field].clone());
        }
    }
    match name {
        PodName::Generated => metadata.insert("generateName".into(), json!(format!("{}-", pod::name(owner)))),
        PodName::Fixed(name) => metadata.insert("name".into(), json!(name)),
    };
    metadata.insert("namespace".into(), owner["metadata"]["namespace"].clone());
    metadata.insert("ownerReferences".into(), json!([owner_reference(owner)]));
    // Moved, since `json!` would copy everything.
    let fields = [("metadata", Value::Object(metadata)), ("spec", template["spec"].clone())];
    fields.into_iter().collect()
}

/// The owner reference of a controller.
pub(crate) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}
