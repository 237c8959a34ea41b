//! Updates of a pod's spec: only images, the deadline, additional tolerations and fewer scheduling gates are allowed.

use serde_json::{Value, json};

use crate::model::status_error::FieldError;

/// The maximum `activeDeadlineSeconds`.
const LONGEST: i64 = 2_147_483_647;

/// A deadline that is always invalid.
pub(crate) fn deadline(spec: &Value) -> Option<FieldError> {
    outside(&spec["activeDeadlineSeconds"], 1)
}

/// All changes that are not allowed.
pub(crate) fn check(old: &Value, new: &Value) -> Vec<FieldError> {
    let (old, new) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    for list in ["containers", "initContainers"] {
        if items(old, list).len() != items(new, list).len() {
            let because = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), because));
            // Other changes are reported only if the containers are the same.
            return errors;
        }
    }
    let (before, after) = (&old["activeDeadlineSeconds"], &new["activeDeadlineSeconds"]);
    let field = "spec.activeDeadlineSeconds";
    match (before.as_i64(), after.as_i64()) {
        (_, Some(_)) if let Some(error) = outside(after, 0) => {
            errors.push(error);
            return errors;
        }
        (Some(less), Some(more)) if less < more => {
            let because = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(field, after, because));
            return errors;
        }
        (Some(_), None) => {
            let because = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(field, &Value::Null, because));
        }
        _ => {}
    }
    let kept = |toleration: &Value| {
        let lasting = lasting(toleration);
        items(new, "tolerations").iter().any(|other| self::lasting(other) == lasting)
    };
    if !items(old, "tolerations").iter().all(kept) {
        let because = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", because));
    }
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        if !items(old, "schedulingGates").iter().any(|known| known["name"] == gate["name"]) {
            let name = gate["name"].as_str().unwrap_or_default();
            let because = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), &because));
        }
    }
    if fixed(old, new) != fixed(old, old) {
        let because = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
            tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", because));
    }
    errors
}

fn outside(deadline: &Value, least: i64) -> Option<FieldError> {
    let because = format!("must be between {least} and {LONGEST}, inclusive");
    let is_odd = deadline.as_i64().is_some_and(|seconds| !(least..=LONGEST).contains(&seconds));
    is_odd.then(|| FieldError::invalid("spec.activeDeadlineSeconds", deadline, &because))
}

fn items<'a>(spec: &'a Value, list: &str) -> &'a [Value] {
    spec[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A toleration without its mutable fields.
fn lasting(toleration: &Value) -> Value {
    let mut lasting = toleration.clone();
    if let Some(fields) = lasting.as_object_mut() {
        fields.remove("tolerationSeconds");
    }
    lasting
}

/// The immutable fields that changed.
fn fixed(old: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    for free in ["tolerations", "activeDeadlineSeconds", "schedulingGates"] {
        spec[free] = Value::Null;
    }
    let grace = &mut spec["terminationGracePeriodSeconds"];
    if grace.is_null() {
        // Defaults restore it.
        *grace = json!(30);
    } else if *grace == 1 && old["terminationGracePeriodSeconds"].as_i64().is_some_and(|before| before < 0) {
        *grace = old["terminationGracePeriodSeconds"].clone();
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mut old: Value, new: &Value) -> Vec<String> {
        let mut spec =
            json!({"containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 30});
        json_patch::merge(&mut spec, &old);
        old = json!({"spec": spec});
        json_patch::merge(&mut spec, new);
        let errors = check(&old, &json!({"spec": spec}));
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn what_may_change_of_a_pod_does() {
        let (a, b) = (json!({"key": "a", "tolerationSeconds": 1}), json!({"key": "b"}));
        for (old, new) in [
            (json!({}), json!({"containers": [{"name": "c", "image": "y"}]})),
            (json!({}), json!({"terminationGracePeriodSeconds": null})),
            (json!({"terminationGracePeriodSeconds": -1}), json!({"terminationGracePeriodSeconds": 1})),
            (json!({}), json!({"activeDeadlineSeconds": 5})),
            (json!({"activeDeadlineSeconds": 5}), json!({"activeDeadlineSeconds": 4})),
            (json!({"tolerations": [a]}), json!({"tolerations": [b, {"key": "a", "tolerationSeconds": 2}]})),
            (json!({"schedulingGates": [{"name": "g"}]}), json!({"schedulingGates": []})),
        ] {
            assert_eq!(told(old, &new), [""; 0], "{new}");
        }
    }

    #[test]
    fn what_may_not_change_is_told_in_the_servers_words() {
        let field = "spec.activeDeadlineSeconds: Invalid value";
        for (old, new, expected) in [
            (
                json!({}),
                json!({"terminationGracePeriodSeconds": 200}),
                "spec: Forbidden: pod updates may not",
            ),
            (json!({}), json!({"terminationGracePeriodSeconds": 1}), "spec: Forbidden: pod updates may not"),
            (json!({}), json!({"nodeName": "n"}), "spec: Forbidden: pod updates may not"),
            (
                json!({}),
                json!({"containers": []}),
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ),
            (
                json!({}),
                json!({"initContainers": [{"name": "i"}]}),
                "spec.initContainers: Forbidden: pod updates may not add or remove containers",
            ),
            (
                json!({"activeDeadlineSeconds": 60}),
                json!({"activeDeadlineSeconds": 6000}),
                &format!("{field}: 6000: must be less than or equal to previous value"),
            ),
            (
                json!({"activeDeadlineSeconds": 60}),
                json!({"activeDeadlineSeconds": null}),
                &format!("{field}: null: must not update from a positive integer to nil value"),
            ),
            (
                json!({}),
                json!({"activeDeadlineSeconds": -1}),
                &format!("{field}: -1: must be between 0 and 2147483647, inclusive"),
            ),
            (
                json!({"tolerations": [{"key": "a"}]}),
                json!({"tolerations": null}),
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ),
            (
                json!({}),
                json!({"schedulingGates": [{"name": "x/y"}]}),
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x/y'",
            ),
        ] {
            let told = told(old, &new);
            assert!(told.len() == 1 && told[0].starts_with(expected), "{new}: {told:?}");
        }
    }
}
