//! Validation of built-in resources, as far as clients may depend on it.

mod metadata;
mod pod_update;
mod selector;
mod volume_attachment;

use serde_json::{Value, json};

use crate::cluster::admission::configuration;
use crate::cluster::catalog::resource::Resource;
use crate::cluster::registry::Part;
use crate::model::status_error::FieldError;
use crate::model::{event_versions, names, rbac};

/// All errors in an object; on an update of one part, with the old object.
pub(crate) fn check(resource: &Resource, object: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        errors.extend(name(resource, object));
    }
    if resource.definition.is_some() {
        errors.extend(metadata::of_custom(object, old));
        return errors;
    }
    errors.extend(match old {
        None => metadata::of_new(object),
        Some(_) => metadata::of_changed(resource, object, part),
    });
    match (resource.group(), resource.plural()) {
        ("", "nodes") => {
            let found = taints(object);
            // A node's metadata is validated twice on updates, and both errors are reported.
            if old.is_some() {
                errors.extend(found.clone());
            }
            errors.extend(found);
        }
        ("", "pods") => match old {
            None => {
                errors.extend(pod_update::deadline(&object["spec"]));
                errors.extend(containers(&object["spec"], "spec"));
                let policy = &object["spec"]["restartPolicy"];
                if !matches!(policy.as_str(), None | Some("Always" | "OnFailure" | "Never")) {
                    let known = ["Always", "OnFailure", "Never"];
                    errors.push(FieldError::unsupported("spec.restartPolicy", policy, &known));
                }
            }
            Some(_) if part == Part::Status => {}
            Some(old) => {
                errors.extend(pod_update::deadline(&object["spec"]));
                errors.extend(containers(&object["spec"], "spec"));
                errors.extend(pod_update::check(old, object));
            }
        },
        ("", "events") => errors.extend(event_versions::check(object)),
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") => {
            errors.extend(workload(object, &resource.kind));
            if old.is_some_and(|old| old["spec"]["selector"] != object["spec"]["selector"]) {
                let selector = &object["spec"]["selector"];
                errors.push(FieldError::invalid("spec.selector", selector, "field is immutable"));
            }
        }
        ("coordination.k8s.io", "leases") => errors.extend(lease(&object["spec"])),
        ("", "secrets")
            if old.is_some_and(|old| old["type"] != object["type"]) && object["type"].is_string() =>
        {
            errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
        }
        ("batch", "jobs") => {
            errors.extend(containers(&object["spec"]["template"]["spec"], "spec.template.spec"));
            errors.extend(job_restart_policy(object));
        }
        ("policy", "poddisruptionbudgets") => errors.extend(budget(object)),
        ("storage.k8s.io", "volumeattachments") => errors.extend(volume_attachment::check(object, old)),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => {
            errors.extend(configuration::check(object));
        }
        ("rbac.authorization.k8s.io", plural) => errors.extend(rbac::check(plural, object, old)),
        _ => {}
    }
    errors
}

fn name(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let Some(name) = object["metadata"]["name"].as_str() else {
        return Vec::new();
    };
    let odd = match (resource.group(), resource.plural()) {
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        ("", "namespaces") => names::label(name),
        ("", "services") => names::service(name),
        _ => names::subdomain(name),
    };
    odd.iter().map(|because| FieldError::invalid("metadata.name", &json!(name), because)).collect()
}

/// The API server itself reports a node's taints below `metadata`.
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
        for (name, form) in [("key", names::qualified as fn(&str) -> Vec<String>), ("value", names::value)] {
            let text = taint[name].as_str().unwrap_or_default();
            let odd = if text.is_empty() { Vec::new() } else { form(text) };
            let invalid = |because| FieldError::invalid(format!("{path}.{name}"), &json!(text), because);
            errors.extend(odd.iter().map(|because| invalid(because)));
        }
        let all = node["spec"]["taints"].as_array().into_iter().flatten();
        let same = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if all.take(index).any(same) {
            let (value, added) = (taint["value"].as_str().unwrap_or_default(), &taint["timeAdded"]);
            // In the API server's internal representation.
            let shown = format!(
                r#"{{"Key":{},"Value":{value:?},"Effect":{},"TimeAdded":{added}}}"#,
                taint["key"], taint["effect"]
            );
            errors.push(FieldError {
                reason: "FieldValueDuplicate",
                field: path,
                message: format!("Duplicate value: {shown}: taints must be unique by key and effect pair"),
            });
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

/// A policy that is missing is `Always` by default.
fn job_restart_policy(job: &Value) -> Vec<FieldError> {
    let (field, policy) =
        ("spec.template.spec.restartPolicy", &job["spec"]["template"]["spec"]["restartPolicy"]);
    match policy.as_str() {
        Some("OnFailure" | "Never") => Vec::new(),
        None | Some("" | "Always") => {
            vec![FieldError::required_because(field, "valid values: \"OnFailure\", \"Never\"")]
        }
        Some(_) => vec![
            FieldError::unsupported(field, policy, &["Always", "OnFailure", "Never"]),
            FieldError::unsupported(field, policy, &["OnFailure", "Never"]),
        ],
    }
}

fn workload(object: &Value, kind: &str) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = selector::of_workload(&spec["selector"], "spec.selector", kind);
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object();
    if wanted.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels[key] != *value)) {
        let because = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, because));
    }
    errors.extend(containers(&spec["template"]["spec"], "spec.template.spec"));
    errors
}

fn lease(spec: &Value) -> Vec<FieldError> {
    let below = |field: &str, least: i64| spec[field].as_i64().is_some_and(|number| number < least);
    let mut errors = Vec::new();
    if below("leaseDurationSeconds", 1) {
        let field = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(field, &spec["leaseDurationSeconds"], "must be greater than 0"));
    }
    if below("leaseTransitions", 0) {
        let because = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &spec["leaseTransitions"], because));
    }
    errors
}

fn budget(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        // In the API server's internal representation.
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"]
        );
        errors.push(FieldError {
            reason: "FieldValueInvalid",
            field: "spec".into(),
            message: format!("Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set"),
        });
    }
    errors.extend(["minAvailable", "maxUnavailable"].into_iter().filter_map(|field| amount(spec, field)));
    errors.extend(selector::check(&spec["selector"], "spec.selector"));
    let policy = &spec["unhealthyPodEvictionPolicy"];
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if policy.as_str().is_some_and(|policy| !known.contains(&policy)) {
        errors.push(FieldError::unsupported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
    errors
}

/// A number or percentage of pods.
fn amount(spec: &Value, field: &str) -> Option<FieldError> {
    let value = &spec[field];
    let because = match value {
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            "must be greater than or equal to 0"
        }
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            match digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit())) {
                None => {
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                     regex used for validation is '[0-9]+%')"
                }
                Some(digits) if digits.parse::<u64>().is_ok_and(|percent| percent <= 100) => return None,
                Some(_) => "must not be greater than 100%",
            }
        }
        _ => return None,
    };
    Some(FieldError::invalid(format!("spec.{field}"), value, because))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::built_in;
    use crate::model::status_error::StatusError;

    fn validation_errors(plural: &str, object: &Value) -> Vec<String> {
        let known = built_in();
        let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
        check(resource, object, None, Part::Main).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_pod_that_cannot_run_is_rejected() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert!(validation_errors("nodes", &named("node-1.example.com")).is_empty());
        assert_eq!(validation_errors("nodes", &named("Bad_Name")), ["metadata.name"]);
        assert_eq!(validation_errors("namespaces", &named("a.b")), ["metadata.name"]);
        assert!(validation_errors("clusterroles", &named("system:node")).is_empty());
        assert_eq!(validation_errors("pods", &named("p")), ["spec.containers"]);
        let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a"}]}});
        assert_eq!(validation_errors("nodes", &tainted), ["metadata.taints[0].effect"]);
    }

    #[test]
    fn a_job_whose_pods_would_be_restarted_forever_is_rejected() {
        let known = built_in();
        let resource = known.iter().find(|resource| resource.plural() == "jobs").unwrap();
        let told = |policy: Option<&str>| {
            let mut job = json!({"metadata": {"name": "x"}, "spec": {"template": {"spec": {
                "containers": [{"name": "c", "image": "i"}]}}}});
            if let Some(policy) = policy {
                job["spec"]["template"]["spec"]["restartPolicy"] = json!(policy);
            }
            let errors = check(resource, &job, None, Part::Main);
            StatusError::invalid("batch", "Job", "x", &errors).message
        };
        let field = "Job.batch \"x\" is invalid: spec.template.spec.restartPolicy";
        let required = format!("{field}: Required value: valid values: \"OnFailure\", \"Never\"");
        assert_eq!(told(None), required);
        assert_eq!(told(Some("Always")), required);
        assert_eq!(
            told(Some("Sometimes")),
            "Job.batch \"x\" is invalid: [spec.template.spec.restartPolicy: Unsupported value: \"Sometimes\": supported \
             values: \"Always\", \"OnFailure\", \"Never\", spec.template.spec.restartPolicy: Unsupported value: \
             \"Sometimes\": supported values: \"OnFailure\", \"Never\"]"
        );
    }

    #[test]
    fn invalid_parameters_have_the_servers_error_message() {
        let known = built_in();
        let told = |plural: &str, spec: Value| {
            let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            let errors = check(resource, &object, None, Part::Main).into_iter();
            errors.map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        for (plural, spec, expected) in [
            (
                "nodes",
                json!({"taints": [taint, taint]}),
                "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\
                 \"TimeAdded\":null}: taints must be unique by key and effect pair",
            ),
            (
                "poddisruptionbudgets",
                json!({"minAvailable": 1, "maxUnavailable": 1, "selector": {}}),
                "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{},\"MaxUnavailable\":1,\
                 \"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set",
            ),
            (
                "poddisruptionbudgets",
                json!({"minAvailable": "200%"}),
                "spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%",
            ),
            (
                "poddisruptionbudgets",
                json!({"maxUnavailable": -1}),
                "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "poddisruptionbudgets",
                json!({"unhealthyPodEvictionPolicy": "Zz"}),
                "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Zz\": supported values: \"AlwaysAllow\", \
                 \"IfHealthyBudget\"",
            ),
            (
                "leases",
                json!({"leaseDurationSeconds": 0}),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
        ] {
            assert_eq!(told(plural, spec), [expected]);
        }
    }
}
