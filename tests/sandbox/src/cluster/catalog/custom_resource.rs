//! The resources that a CRD defines, and the fields that the API server adds to the CRD.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::Resource;
use crate::cluster::crd::Definition;
use crate::cluster::store::Collection;
use crate::model::status_error::{FieldError, StatusError, qualified};

/// The resources of a CRD: one for each served version, the preferred one first.
///
/// # Errors
/// 422 for an incomplete CRD or invalid rules.
pub(crate) fn resources(crd: &Value) -> Result<Vec<Resource>, StatusError> {
    let spec = &crd["spec"];
    let (group, plural) = names(crd)?;
    let collection = Collection::named(group, plural);
    let names = &spec["names"];
    let list_kind = list_kind(names);
    let list = |field: &str| texts(&names[field]).map(|name| name.to_owned().into()).collect();
    let mut served = Vec::new();
    for version in spec["versions"].as_array().into_iter().flatten() {
        if version["served"] != true {
            continue;
        }
        let definition = Definition::read(version, list_kind.clone()).map_err(|because| {
            let field = "spec.validation.openAPIV3Schema";
            invalid(crd, FieldError::invalid(field, &json!(""), &because))
        })?;
        let kind = text(&names["kind"]);
        let singular = names["singular"].as_str().map_or_else(|| kind.to_lowercase(), str::to_owned);
        served.push(Resource {
            collection: collection.clone(),
            version: text(&version["name"]).into(),
            kind: kind.into(),
            singular: singular.into(),
            short_names: list("shortNames"),
            categories: list("categories"),
            namespaced: spec["scope"] == "Namespaced",
            status: version["subresources"]["status"].is_object(),
            generation: true,
            graceful: false,
            definition: Some(definition.into()),
        });
    }
    served.sort_by_key(|resource| version_rank(&resource.version));
    Ok(served)
}

/// The collection of a CRD.
pub(crate) fn collection(crd: &Value) -> Collection {
    let spec = &crd["spec"];
    Collection::named(text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Sets defaults: the other forms of the names, and no conversion.
pub(crate) fn complete(crd: &mut Value) {
    let kind = text(&crd["spec"]["names"]["kind"]);
    let spec = &mut crd["spec"];
    if spec["names"]["singular"].is_null() {
        spec["names"]["singular"] = json!(kind.to_lowercase());
    }
    spec["names"]["listKind"] = json!(list_kind(&spec["names"]));
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// The status of an established CRD. Conditions that were true keep their times.
pub(crate) fn established(crd: &Value, now: &str) -> Value {
    let since = |kind: &str| {
        let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
        let known = conditions.into_iter().find(|condition| condition["type"] == kind);
        known.map_or(json!(now), |condition| condition["lastTransitionTime"].clone())
    };
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": since(kind), "reason": reason,
            "message": message})
    };
    json!({
        "acceptedNames": crd["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored_versions(crd),
    })
}

/// The status of a new CRD.
pub(crate) fn not_yet_established(crd: &Value) -> Value {
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored_versions(crd)})
}

fn stored_versions(crd: &Value) -> Value {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect()
}

fn names(crd: &Value) -> Result<(String, String), StatusError> {
    let spec = &crd["spec"];
    let required = [
        ("spec.group", &spec["group"]),
        ("spec.scope", &spec["scope"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
        ("spec.versions", &spec["versions"][0]["name"]),
    ];
    for (field, value) in required {
        if value.as_str().is_none_or(str::is_empty) {
            return Err(invalid(crd, FieldError::required(field)));
        }
    }
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = qualified(&group, &plural);
    if crd["metadata"]["name"] != *expected {
        let because = "must be spec.names.plural+\".\"+spec.group";
        let name = &crd["metadata"]["name"];
        return Err(invalid(crd, FieldError::invalid("metadata.name", name, because)));
    }
    let versions = spec["versions"].as_array().into_iter().flatten();
    if versions.filter(|version| version["storage"] == true).count() != 1 {
        let because = "must have exactly one version marked as storage version";
        let shown = Value::Array(Vec::new());
        return Err(invalid(crd, FieldError::invalid("spec.versions", &shown, because)));
    }
    Ok((group, plural))
}

fn invalid(crd: &Value, error: FieldError) -> StatusError {
    let name = text(&crd["metadata"]["name"]);
    StatusError::invalid("apiextensions.k8s.io", "CustomResourceDefinition", &name, &[error])
}

fn list_kind(names: &Value) -> String {
    names["listKind"].as_str().map_or_else(|| format!("{}List", text(&names["kind"])), str::to_owned)
}

/// Stable versions before beta before alpha, and the highest first, as in discovery.
fn version_rank(version: &str) -> (u8, std::cmp::Reverse<(u32, u32)>, String) {
    let numbers: Vec<u32> =
        version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect();
    let stability = match version {
        version if version.contains("alpha") => 2,
        version if version.contains("beta") => 1,
        _ => 0,
    };
    let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
    (stability, std::cmp::Reverse((at(0), at(1))), version.to_owned())
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
