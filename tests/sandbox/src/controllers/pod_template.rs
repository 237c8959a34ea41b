//! Pods out of a controller's template, with what the API server would fill in.

use serde_json::{Map, Value, json};

use crate::pod;

/// What a new pod is called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PodName<'a> {
    /// The owner's name and a random end.
    Generated,
    /// Exactly this.
    Fixed(&'a str),
}

/// A pod of `owner`, as its template has it.
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
    json!({"metadata": metadata, "spec": with_defaults(template["spec"].clone())})
}

/// The reference by which a controller owns what it makes.
pub(crate) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

fn with_defaults(mut spec: Value) -> Value {
    let defaults = json!({
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
        "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    });
    fill(&mut spec, &defaults);
    let container = json!({
        "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    });
    for entry in spec["containers"].as_array_mut().into_iter().flatten() {
        fill(entry, &container);
    }
    spec
}

fn fill(object: &mut Value, defaults: &Value) {
    let (Some(object), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else {
        return;
    };
    for (field, value) in defaults {
        object.entry(field).or_insert_with(|| value.clone());
    }
}
