//! Validation of volume attachments.
//! Source: kubernetes/kubernetes `pkg/apis/storage/validation/validation.go`.

use serde_json::{Value, json};

use crate::model::names;
use crate::model::status_error::FieldError;

/// All errors in an attachment; on an update, with the old object.
pub(crate) fn check(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    match old {
        Some(old) if old["spec"] != *spec => vec![immutable(spec)],
        Some(_) => Vec::new(),
        None => of_new(spec),
    }
}

fn of_new(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match spec["attacher"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.attacher")),
        attacher => errors.extend(subdomain("spec.attacher", attacher)),
    }
    let (volume, inline) = (&spec["source"]["persistentVolumeName"], &spec["source"]["inlineVolumeSpec"]);
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (volume.as_str(), inline.is_object()) {
        (None, false) => errors.push(FieldError::required_because("spec.source", one)),
        (Some(_), true) => errors.push(FieldError::forbidden("spec.source", one)),
        (Some(""), false) => errors.push(FieldError::required_because(
            "spec.source.persistentVolumeName",
            "must specify non empty persistentVolumeName",
        )),
        _ => {}
    }
    errors.extend(subdomain("spec.nodeName", spec["nodeName"].as_str().unwrap_or_default()));
    errors.extend(
        volume.as_str().into_iter().flat_map(|name| subdomain("spec.source.persistentVolumeName", name)),
    );
    errors
}

fn subdomain(field: &str, name: &str) -> Vec<FieldError> {
    let odd = names::subdomain(name);
    odd.iter().map(|because| FieldError::invalid(field, &json!(name), because)).collect()
}

fn immutable(spec: &Value) -> FieldError {
    let source = &spec["source"];
    // In the API server's internal representation.
    let shown = format!(
        r#"{{"Attacher":{},"Source":{{"PersistentVolumeName":{},"InlineVolumeSpec":{}}},"NodeName":{}}}"#,
        spec["attacher"], source["persistentVolumeName"], source["inlineVolumeSpec"], spec["nodeName"]
    );
    FieldError {
        reason: "FieldValueInvalid",
        field: "spec".into(),
        message: format!("Invalid value: {shown}: field is immutable"),
    }
}
