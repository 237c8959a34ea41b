//! Defaults and validation of roles and bindings.

use serde_json::{Value, json};

use crate::model::status_error::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Completes a binding.
pub(crate) fn fill(binding: &mut Value) {
    let role = &mut binding["roleRef"];
    if role.is_object() && role["apiGroup"].as_str().is_none_or(str::is_empty) {
        role["apiGroup"] = json!(GROUP);
    }
    for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(subject["kind"].as_str(), Some("User" | "Group"))
            && subject["apiGroup"].as_str().is_none_or(str::is_empty)
        {
            subject["apiGroup"] = json!(GROUP);
        }
    }
}

/// All errors in a role or a binding; on an update, `old` is the previous version.
pub(crate) fn check(plural: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let in_namespace = !plural.starts_with("cluster");
    if plural.ends_with("roles") { rules(object, in_namespace) } else { binding(object, old, in_namespace) }
}

fn rules(role: &Value, in_namespace: bool) -> Vec<FieldError> {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let required = |field: String, because: &str| {
        let error = FieldError::required(field);
        FieldError { message: format!("{}: {because}", error.message), ..error }
    };
    let mut errors = Vec::new();
    for (index, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        let field = |name: &str| format!("rules[{index}].{name}");
        if is_empty(&rule["verbs"]) {
            errors.push(required(field("verbs"), "verbs must contain at least one value"));
        }
        let urls = &rule["nonResourceURLs"];
        if !is_empty(urls) {
            if in_namespace {
                let because = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(field("nonResourceURLs"), urls, because));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|part| !is_empty(&rule[part])) {
                let because = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(field("nonResourceURLs"), urls, because));
            }
            continue;
        }
        if is_empty(&rule["apiGroups"]) {
            errors.push(required(field("apiGroups"), "resource rules must supply at least one api group"));
        }
        if is_empty(&rule["resources"]) {
            errors.push(required(field("resources"), "resource rules must supply at least one resource"));
        }
    }
    errors
}

fn binding(binding: &Value, old: Option<&Value>, in_namespace: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &binding["roleRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kinds: &[&str] = if in_namespace { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.extend(unsupported("roleRef.kind", &text(&role["kind"]), kinds));
    if text(&role["name"]).is_empty() {
        errors.push(FieldError::required("roleRef.name"));
    }
    for (index, subject) in binding["subjects"].as_array().into_iter().flatten().enumerate() {
        let field = |name: &str| format!("subjects[{index}].{name}");
        if text(&subject["name"]).is_empty() {
            errors.push(FieldError::required(field("name")));
        }
        let kind = text(&subject["kind"]);
        errors.extend(unsupported(&field("kind"), &kind, &["ServiceAccount", "User", "Group"]));
        if kind == "ServiceAccount" && !in_namespace && text(&subject["namespace"]).is_empty() {
            errors.push(FieldError::required(field("namespace")));
        }
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        // In the API server's internal representation.
        let shown =
            format!(r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#, role["apiGroup"], role["kind"], role["name"]);
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: "roleRef".into(),
            message: format!("Invalid value: {shown}: cannot change roleRef"),
        });
    }
    errors
}

fn unsupported(field: &str, found: &str, known: &[&str]) -> Option<FieldError> {
    let listed: Vec<String> = known.iter().map(|kind| format!("{kind:?}")).collect();
    (!known.contains(&found)).then(|| FieldError {
        reason: "FieldValueNotSupported",
        field: field.to_owned(),
        message: format!("Unsupported value: {found:?}: supported values: {}", listed.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(plural: &str, object: &Value) -> Vec<String> {
        let errors = check(plural, object, None).into_iter();
        errors.map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_rule_is_about_something_and_about_one_thing() {
        let role = |rule: Value| json!({"rules": [rule]});
        let good = role(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}));
        assert!(complaints("roles", &good).is_empty());
        assert_eq!(
            complaints("clusterroles", &role(json!({"apiGroups": [""]}))),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        let path = role(json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}));
        assert!(complaints("clusterroles", &path).is_empty());
        assert_eq!(
            complaints("roles", &path),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"
            ]
        );
    }

    #[test]
    fn a_binding_names_a_role_and_somebody() {
        let binding = json!({"roleRef": {"kind": "Role", "name": "x"}, "subjects": [
            {"kind": "ServiceAccount", "name": "x"}, {"kind": "Foo", "name": "y"}, {"kind": "User"}]});
        assert_eq!(
            complaints("clusterrolebindings", &binding),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[0].namespace: Required value",
                "subjects[1].kind: Unsupported value: \"Foo\": supported values: \"ServiceAccount\", \"User\", \
                 \"Group\"",
                "subjects[2].name: Required value",
            ]
        );
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let binding = |role: &str| {
            let mut binding = json!({"roleRef": {"kind": "Role", "name": role}, "subjects": [{"kind": "User", "name": "u"}]});
            fill(&mut binding);
            binding
        };
        assert_eq!(binding("x")["subjects"][0]["apiGroup"], GROUP);
        assert!(check("rolebindings", &binding("x"), Some(&binding("x"))).is_empty());
        let errors = check("rolebindings", &binding("y"), Some(&binding("x")));
        assert_eq!(
            errors[0].message,
            "Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"y\"}: cannot \
             change roleRef"
        );
    }
}
