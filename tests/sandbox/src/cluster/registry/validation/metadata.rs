//! Validation of metadata.
//!
//! On an update the API server validates metadata several times, so causes are repeated.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::cluster::registry::{Part, finalizers};
use crate::model::names;
use crate::model::status_error::FieldError;

/// All errors in the metadata of a new object.
pub(crate) fn of_new(object: &Value) -> Vec<FieldError> {
    let mut errors = content(object);
    errors.extend(finalizer_forms(object));
    errors.extend(finalizer_domains(object));
    errors
}

/// All errors in the metadata of an updated object.
pub(crate) fn of_changed(resource: &Resource, object: &Value, part: Part) -> Vec<FieldError> {
    let (content, forms) = (content(object), finalizer_forms(object));
    let domains = finalizer_domains(object);
    let once_more = match (resource.group(), resource.plural()) {
        ("policy", _) => return [content.as_slice(), &forms, &content, &forms].concat(),
        ("apiextensions.k8s.io", _) => return [content.as_slice(), &forms, &content, &content].concat(),
        ("apps", _) | ("", "services") => false,
        _ => part == Part::Main,
    };
    let mut errors = [content.as_slice(), &forms, &content, &content, &domains].concat();
    if once_more {
        errors.extend([content, forms, domains].concat());
    }
    errors
}

/// All errors in the metadata of a custom resource, whose finalizers need no domain.
pub(crate) fn of_custom(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (content, forms) = (content(object), finalizer_forms(object));
    if old.is_some() { [content.as_slice(), &forms, &content].concat() } else { [content, forms].concat() }
}

fn content(object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        errors.extend(validation_errors("metadata.labels", key, &names::qualified(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(validation_errors("metadata.labels", value, &names::value(value)));
    }
    for key in metadata["annotations"].as_object().into_iter().flatten().map(|(key, _)| key) {
        // Upper case is allowed here.
        errors.extend(validation_errors("metadata.annotations", key, &names::qualified(&key.to_lowercase())));
    }
    errors.extend(owners(&metadata["ownerReferences"]));
    errors
}

fn validation_errors(field: &str, text: &str, odd: &[String]) -> Vec<FieldError> {
    odd.iter().map(|because| FieldError::invalid(field, &json!(text), because)).collect()
}

fn owners(references: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for owner in references.as_array().into_iter().flatten() {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        if version.is_empty() || version.matches('/').count() > 1 {
            let field = "metadata.ownerReferences.apiVersion";
            errors.push(FieldError::invalid(field, &json!(version), "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if owner[name].as_str().is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences.{name}");
                errors.push(FieldError::invalid(field, &json!(""), "must not be empty"));
            }
        }
        if (version, &owner["kind"]) == ("v1", &json!("Event")) {
            let because = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(blamed(&shown(owner), because));
        }
    }
    errors.extend(rivals(references));
    errors
}

/// Only one owner may be the controller.
fn rivals(references: &Value) -> Vec<FieldError> {
    let owners = || references.as_array().into_iter().flatten();
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let names = owners().filter(|owner| owner["controller"] == true);
    let mut names = names.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")));
    let Some(first) = names.next() else { return Vec::new() };
    let all = format!("[{}]", owners().map(shown).collect::<Vec<_>>().join(","));
    let because = |other: String| {
        format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {other}"
        )
    };
    names.map(|other| blamed(&all, &because(other))).collect()
}

fn blamed(shown: &str, because: &str) -> FieldError {
    let message = format!("Invalid value: {shown}: {because}");
    FieldError { reason: "FieldValueInvalid", field: "metadata.ownerReferences".into(), message }
}

/// An owner reference with its fields in the API server's order.
fn shown(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let given = fields.into_iter().filter_map(|field| Some((field, owner.get(field)?)));
    let fields: Vec<String> = given.map(|(field, value)| format!("{field:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn finalizer_forms(object: &Value) -> Vec<FieldError> {
    let names = finalizers(object).into_iter();
    names.flat_map(|name| validation_errors("metadata.finalizers", name, &names::qualified(name))).collect()
}

fn finalizer_domains(object: &Value) -> Vec<FieldError> {
    let because = "name is neither a standard finalizer name nor is it fully qualified";
    let standard = |name: &str| matches!(name, "foregroundDeletion" | "orphan" | "kubernetes");
    let names = finalizers(object).into_iter().enumerate();
    names
        .filter(|(_, name)| !name.contains('/') && !standard(name))
        .map(|(index, name)| {
            FieldError::invalid(format!("metadata.finalizers[{index}]"), &json!(name), because)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::built_in;

    fn reported(metadata: &Value) -> Vec<String> {
        let errors = of_new(&json!({"metadata": metadata})).into_iter();
        errors.map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn metadata_of_no_known_form_is_refused() {
        let good = json!({"labels": {"a": "b", "example.com/a": ""}, "annotations": {"Example.com/A": "any thing"},
            "finalizers": ["example.com/a", "orphan"]});
        assert!(reported(&good).is_empty());
        for (metadata, begins) in [
            (
                json!({"labels": {"a b": "c"}}),
                "metadata.labels: Invalid value: \"a b\": name part must consist",
            ),
            (
                json!({"labels": {"a": "c d"}}),
                "metadata.labels: Invalid value: \"c d\": a valid label must be",
            ),
            (
                json!({"annotations": {"a b": ""}}),
                "metadata.annotations: Invalid value: \"a b\": name part must",
            ),
            (
                json!({"finalizers": ["bad"]}),
                "metadata.finalizers[0]: Invalid value: \"bad\": name is neither",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1"}]}),
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\
                 \"uid\":\"1\"}: /v1, Kind=Event is disallowed from being an owner",
            ),
            (
                json!({"ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true},
                    {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": true}]}),
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"A\",\"name\":\"a\",\
                 \"uid\":\"1\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"B\",\"name\":\"b\",\"uid\":\"2\",\
                 \"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in \
                 references for A/a and B/b",
            ),
        ] {
            let reported = reported(&metadata);
            assert_eq!(reported.len(), 1, "{reported:?}");
            assert!(reported[0].starts_with(begins), "{reported:?}");
        }
    }

    #[test]
    fn repeated_errors_of_an_update_are_reported_as_by_the_server() {
        let known = built_in();
        let reported = |plural: &str, metadata: &Value, part| {
            let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
            of_changed(resource, &json!({"metadata": metadata}), part).len()
        };
        let (label, finalizer) = (json!({"labels": {"a b": "c"}}), json!({"finalizers": ["bad"]}));
        for (plural, part, labels, finalizers) in [
            ("pods", Part::Main, 4, 2),
            ("pods", Part::Status, 3, 1),
            ("deployments", Part::Main, 3, 1),
            ("deployments", Part::Status, 3, 1),
            ("services", Part::Main, 3, 1),
            ("poddisruptionbudgets", Part::Main, 2, 0),
            ("customresourcedefinitions", Part::Main, 3, 0),
        ] {
            assert_eq!(reported(plural, &label, part), labels, "{plural}");
            assert_eq!(reported(plural, &finalizer, part), finalizers, "{plural}");
        }
    }

    #[test]
    fn custom_objects_are_held_to_the_same_forms_but_for_domains() {
        let reported = |metadata: Value| of_custom(&json!({"metadata": metadata}), None).len();
        assert_eq!(
            reported(json!({"finalizers": ["foregroundDeleteNodeMaintenance"], "labels": {"a": "b"}})),
            0
        );
        assert_eq!(reported(json!({"finalizers": ["not valid"], "labels": {"a b": ""}})), 2);
        assert_eq!(
            reported(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n"}]})),
            1
        );
    }
}
