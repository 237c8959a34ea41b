//! What the API server insists on for built-in resources, as far as somebody might run into it here.

use serde_json::{Value, json};

use crate::admission::configuration;
use crate::event_shapes;
use crate::name_forms;
use crate::rbac_objects;
use crate::refusal::FieldError;
use crate::resource::Resource;

/// Everything that is wrong with an object; with its old self on an update.
pub(crate) fn check(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        errors.extend(name(resource, object));
    }
    if resource.definition.is_some() {
        return errors;
    }
    match (resource.group(), resource.plural()) {
        ("", "nodes") => {
            let found = taints(object);
            // A node's metadata is validated twice on updates, and both are reported.
            if old.is_some() {
                errors.extend(found.clone());
            }
            errors.extend(found);
        }
        ("", "pods") => match old {
            None => errors.extend(containers(&object["spec"], "spec")),
            Some(old) => errors.extend(unchanged_pod(old, object)),
        },
        ("", "events") if old.is_none() => errors.extend(event_shapes::check(object)),
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") => {
            errors.extend(workload(object));
        }
        ("batch", "jobs") => {
            errors.extend(containers(&object["spec"]["template"]["spec"], "spec.template.spec"));
        }
        ("policy", "poddisruptionbudgets") => errors.extend(budget(object)),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            errors.extend(configuration::check(object));
        }
        ("rbac.authorization.k8s.io", plural) => errors.extend(rbac_objects::check(plural, object, old)),
        _ => {}
    }
    errors
}

fn name(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let Some(name) = object["metadata"]["name"].as_str() else {
        return Vec::new();
    };
    let odd = match (resource.group(), resource.plural()) {
        ("rbac.authorization.k8s.io", _) => name_forms::path_segment(name),
        ("", "namespaces") => name_forms::label(name),
        ("", "services") => name_forms::service(name),
        _ => name_forms::subdomain(name),
    };
    odd.iter().map(|because| FieldError::invalid("metadata.name", &json!(name), because)).collect()
}

/// The API server itself looks for a node's taints below `metadata`.
fn taints(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, taint) in node["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
        let path = format!("metadata.taints[{index}]");
        if taint["key"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.key")));
        }
        match taint["effect"].as_str() {
            None | Some("") => errors.push(FieldError::required(format!("{path}.effect"))),
            Some("NoSchedule" | "PreferNoSchedule" | "NoExecute") => {}
            Some(other) => errors.push(FieldError {
                reason: "FieldValueNotSupported",
                field: format!("{path}.effect"),
                message: format!(
                    "Unsupported value: {other:?}: supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
                ),
            }),
        }
    }
    errors
}

fn containers(spec: &Value, path: &str) -> Vec<FieldError> {
    let containers = spec["containers"].as_array().filter(|containers| !containers.is_empty());
    let Some(containers) = containers else {
        return vec![FieldError::required(format!("{path}.containers"))];
    };
    let mut errors = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().is_none_or(str::is_empty) {
                errors.push(FieldError::required(format!("{path}.containers[{index}].{field}")));
            }
        }
    }
    errors
}

/// A pod's spec may change in its images, its tolerations, its deadline and little else; a scheduler binds it.
fn unchanged_pod(old: &Value, new: &Value) -> Option<FieldError> {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for free in
            ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"]
        {
            spec[free] = Value::Null;
        }
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        spec
    };
    let because = "pod updates may not change fields other than `spec.containers[*].image`,\
        `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
        tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    (fixed(old) != fixed(new)).then(|| FieldError::forbidden("spec", because))
}

fn workload(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if !spec["selector"].is_object() {
        errors.push(FieldError::required("spec.selector"));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object();
    if wanted.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels[key] != *value)) {
        let because = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, because));
    }
    errors.extend(containers(&spec["template"]["spec"], "spec.template.spec"));
    errors
}

fn budget(object: &Value) -> Option<FieldError> {
    let spec = &object["spec"];
    let both = !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null();
    let shown = json!({"minAvailable": spec["minAvailable"], "maxUnavailable": spec["maxUnavailable"]});
    both.then(|| FieldError::invalid("spec", &shown, "minAvailable and maxUnavailable cannot be both set"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::built_in;

    fn complaints(plural: &str, object: &Value) -> Vec<String> {
        let known = built_in();
        let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
        check(resource, object, None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn what_nobody_could_run_is_refused() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert!(complaints("nodes", &named("node-1.example.com")).is_empty());
        assert_eq!(complaints("nodes", &named("Bad_Name")), ["metadata.name"]);
        assert_eq!(complaints("namespaces", &named("a.b")), ["metadata.name"]);
        assert!(complaints("clusterroles", &named("system:node")).is_empty());
        assert_eq!(complaints("pods", &named("p")), ["spec.containers"]);
        let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a"}]}});
        assert_eq!(complaints("nodes", &tainted), ["metadata.taints[0].effect"]);
    }
}
