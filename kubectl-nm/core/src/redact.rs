//! Which fields of an object a bug report may contain.
//!
//! Reports are passed on without review. So objects of others keep only the fields listed here: pods keep their images, but
//! not their commands, arguments and environment, nor the values of their annotations. Managed fields are always removed.

use nm_shared::api::names::{MIRROR_ANNOTATION, UNDO_ANNOTATION};
use serde_json::{Map, Value, json};

use crate::client::reconciler_deployment::CONTAINER as OWN_CONTAINER;

const METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "labels",
    "ownerReferences",
    "finalizers",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Annotations whose values matter to a drain. Others keep only their names.
const ANNOTATIONS: &[&str] = &[MIRROR_ANNOTATION, UNDO_ANNOTATION];

/// Fields of a pod's spec that determine its node.
const POD_SPEC: &[&str] = &[
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priority",
    "priorityClassName",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "restartPolicy",
    "hostNetwork",
    "preemptionPolicy",
    "serviceAccountName",
];

const CONTAINER: &[&str] = &["name", "image", "imagePullPolicy", "resources", "ports", "restartPolicy"];

/// Fields of a pod's status, without addresses.
const POD_STATUS: &[&str] =
    &["phase", "reason", "message", "qosClass", "startTime", "conditions", "nominatedNodeName"];

const CONTAINER_STATUS: &[&str] = &["name", "image", "ready", "started", "restartCount"];

/// Fields of a container's state, without its termination message.
const STATE: &[&str] = &["reason", "exitCode", "signal", "startedAt", "finishedAt"];

/// Fields of a node's status, without addresses and images.
const NODE_STATUS: &[&str] = &["conditions", "capacity", "allocatable", "nodeInfo"];

const DEPLOYMENT_SPEC: &[&str] =
    &["replicas", "selector", "strategy", "minReadySeconds", "progressDeadlineSeconds", "paused"];

const DEPLOYMENT_STATUS: &[&str] = &[
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "conditions",
];

/// The flags of nm-reconciler, each of which can also be set by a variable. None of them is secret.
const SETTINGS: &[&str] = &[
    "--max-concurrent-evictions",
    "--max-unavailable",
    "--external-etcd",
    "--own-pod",
    "--node-conditions",
    "--blocked-after",
    "--migration-start-timeout",
    "--leader-elect",
    "--lease-duration",
    "--namespace",
    "--metrics-addr",
    "--webhook-addr",
    "--webhook-cert-dir",
    "--webhook-cert-lifetime",
    "--log-format",
    "--log-level",
];

/// The flags whose value is optional, after `=`.
const SWITCHES: &[&str] = &["--external-etcd", "--node-conditions", "--leader-elect"];

const REDACTED: &str = "(redacted)";

/// A pod without commands, arguments, environment and addresses.
pub fn pod(pod: &Value) -> Value {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut kept = with_metadata_only(pod);
    kept["spec"] = only(spec, POD_SPEC);
    for list in ["containers", "initContainers"] {
        if spec[list].is_array() {
            kept["spec"][list] = each(&spec[list], |container| only(container, CONTAINER));
        }
    }
    kept["spec"]["volumes"] = each(&spec["volumes"], volume);
    kept["status"] = only(status, POD_STATUS);
    for list in ["containerStatuses", "initContainerStatuses"] {
        if status[list].is_array() {
            kept["status"][list] = each(&status[list], container_status);
        }
    }
    kept
}

/// A node without addresses and images.
pub fn node(node: &Value) -> Value {
    let mut kept = with_metadata_only(node);
    kept["spec"] = only(&node["spec"], &["unschedulable", "taints"]);
    kept["status"] = only(&node["status"], NODE_STATUS);
    kept
}

/// An object whose spec and status contain no secrets: a budget, a lease, a maintenance.
pub fn plain(object: &Value) -> Value {
    let mut kept = with_metadata_only(object);
    for field in ["spec", "status"] {
        if let Some(value) = object.get(field) {
            kept[field] = value.clone();
        }
    }
    kept
}

/// A whole object, such as a CRD, without managed fields.
pub fn whole(object: &Value) -> Value {
    let mut kept = object.clone();
    kept["metadata"] = with_metadata_only(object)["metadata"].clone();
    kept
}

/// An event without its deprecated source and managed fields.
pub fn event(event: &Value) -> Value {
    let mut kept = whole(event);
    if let Some(fields) = kept.as_object_mut() {
        fields.remove("deprecatedSource");
    }
    kept
}

/// The Deployment or a pod of nm-reconciler, with nm-reconciler's own flags and variables. Other arguments and values
/// are redacted.
pub fn reconciler(object: &Value) -> Value {
    let template = &object["spec"]["template"];
    if template.is_null() {
        let mut kept = pod(object);
        add_settings(&mut kept["spec"], &object["spec"]);
        return kept;
    }
    let mut pods = pod(template);
    add_settings(&mut pods["spec"], &template["spec"]);
    let mut kept = with_metadata_only(object);
    kept["spec"] = only(&object["spec"], DEPLOYMENT_SPEC);
    kept["spec"]["template"] = json!({"metadata": pods["metadata"], "spec": pods["spec"]});
    kept["status"] = only(&object["status"], DEPLOYMENT_STATUS);
    kept
}

/// Adds nm-reconciler's own flags and variables to its container. Other arguments and values are redacted: a proxy variable
/// may contain a password.
fn add_settings(kept: &mut Value, spec: &Value) {
    let containers = spec["containers"].as_array().into_iter().flatten();
    for (at, container) in containers.enumerate().filter(|(_, container)| container["name"] == OWN_CONTAINER)
    {
        for list in ["command", "args"] {
            if container[list].is_array() {
                kept["containers"][at][list] = arguments(&container[list]);
            }
        }
        if container["env"].is_array() {
            kept["containers"][at]["env"] = each(&container["env"], variable);
        }
    }
}

/// A command line, where only flags of nm-reconciler and their values are kept.
fn arguments(words: &Value) -> Value {
    let mut is_value = false;
    each(words, |word| {
        let text = word.as_str().unwrap_or_default();
        let (flag, value) = text.split_once('=').map_or((text, None), |(flag, value)| (flag, Some(value)));
        let is_known = SETTINGS.contains(&flag) || (is_value && !text.starts_with('-'));
        is_value = SETTINGS.contains(&flag) && !SWITCHES.contains(&flag) && value.is_none();
        if is_known { word.clone() } else { json!(REDACTED) }
    })
}

/// A variable, whose value is kept only if nm-reconciler reads it.
fn variable(variable: &Value) -> Value {
    let name = variable["name"].as_str().unwrap_or_default();
    let of =
        |flag: &&str| name == format!("NM_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
    if SETTINGS.iter().any(of) {
        return variable.clone();
    }
    json!({"name": name, "value": REDACTED})
}

fn with_metadata_only(object: &Value) -> Value {
    let mut metadata = only(&object["metadata"], METADATA);
    if let Some(annotations) = object["metadata"]["annotations"].as_object() {
        let kept = annotations.iter().map(|(name, value)| {
            let known = ANNOTATIONS.contains(&name.as_str());
            (name.clone(), if known { value.clone() } else { json!(REDACTED) })
        });
        metadata["annotations"] = Value::Object(kept.collect());
    }
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata})
}

/// A volume's name, type and claim, which may bind it to a node.
fn volume(volume: &Value) -> Value {
    let fields = volume.as_object().into_iter().flatten();
    let kept = fields.map(|(field, value)| match field.as_str() {
        "name" => (field.clone(), value.clone()),
        "persistentVolumeClaim" => (field.clone(), only(value, &["claimName"])),
        _ => (field.clone(), json!({})),
    });
    Value::Object(kept.collect())
}

fn container_status(container: &Value) -> Value {
    let mut kept = only(container, CONTAINER_STATUS);
    for field in ["state", "lastState"] {
        if let Some(states) = container[field].as_object() {
            let states = states.iter().map(|(name, state)| (name.clone(), only(state, STATE)));
            kept[field] = Value::Object(states.collect());
        }
    }
    kept
}

fn each(list: &Value, keep: impl FnMut(&Value) -> Value) -> Value {
    Value::Array(list.as_array().into_iter().flatten().map(keep).collect())
}

fn only(object: &Value, fields: &[&str]) -> Value {
    let kept = fields.iter().filter_map(|field| Some(((*field).to_owned(), object.get(*field)?.clone())));
    Value::Object(kept.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod in which everything that must be redacted is marked.
    fn pod_with_secrets() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "cart-0", "managedFields": ["SECRET"], "labels": {"app": "cart"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "SECRET", "vault": "SECRET"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "cart:1", "command": ["SECRET"],
                "args": ["SECRET"], "env": [{"name": "A", "value": "SECRET"}], "envFrom": ["SECRET"],
                "livenessProbe": {"httpGet": {"httpHeaders": ["SECRET"]}}, "lifecycle": "SECRET"}],
                "initContainers": [{"name": "init", "image": "init:1", "args": ["SECRET"]}],
                "hostAliases": ["SECRET"],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "cart"}},
                    {"name": "token", "secret": {"secretName": "SECRET"}}, {"name": "tmp", "emptyDir": {}}]},
            "status": {"phase": "Running", "podIP": "SECRET", "containerStatuses": [{"name": "main", "ready": true,
                "lastState": {"terminated": {"exitCode": 1, "message": "SECRET"}}}]}})
    }

    #[test]
    fn commands_and_environment_of_pods_are_redacted() {
        let kept = pod(&pod_with_secrets());
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
        assert_eq!(kept["spec"]["containers"][0], json!({"name": "main", "image": "cart:1"}));
        assert_eq!(
            kept["spec"]["volumes"][2],
            json!({"name": "tmp", "emptyDir": {}}),
            "a drain depends on it"
        );
        assert_eq!(kept["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "cart");
        assert_eq!(kept["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
        assert_eq!(kept["metadata"]["labels"]["app"], "cart");
        assert_eq!(kept["metadata"]["annotations"]["vault"], REDACTED);
        assert_eq!(pod(&json!({})), pod(&Value::Null), "an empty object");
    }

    #[test]
    fn nodes_keep_their_cordon_and_undo_record_but_not_their_addresses() {
        let kept = node(
            &json!({"kind": "Node", "metadata": {"name": "n1", "annotations": {UNDO_ANNOTATION: "{}", "ip": "SECRET"}},
            "spec": {"unschedulable": true, "providerID": "SECRET", "taints": [{"key": "a"}]},
            "status": {"addresses": ["SECRET"], "images": ["SECRET"], "conditions": [{"type": "Ready"}]}}),
        );
        assert!(!kept.to_string().contains("SECRET"), "{kept}");
        assert_eq!(kept["metadata"]["annotations"][UNDO_ANNOTATION], "{}");
        assert_eq!(
            (&kept["spec"]["unschedulable"], &kept["spec"]["taints"][0]["key"]),
            (&json!(true), &json!("a"))
        );
        assert_eq!(kept["status"]["conditions"][0]["type"], "Ready");
    }

    #[test]
    fn nm_reconciler_keeps_only_its_own_settings_in_addition() {
        let env = json!([{"name": "NM_MAX_UNAVAILABLE", "value": "1"}, {"name": "NM_TOKEN", "value": "SECRET"},
            {"name": "HTTPS_PROXY", "value": "SECRET"}, {"name": "A", "valueFrom": {"secretKeyRef": {"key": "SECRET"}}}]);
        let mut pod = pod_with_secrets();
        pod["spec"]["initContainers"][0]["env"] = json!([{"name": "A", "value": "SECRET"}]);
        let sidecar = pod["spec"]["containers"][0].clone();
        pod["spec"]["containers"] = json!([sidecar, {"name": "reconciler", "env": env, "command": ["sh", "-c", "SECRET"],
            "args": ["--node-conditions", "SECRET", "--log-level", "debug", "SECRET", "--max-unavailable=2", "--token=SECRET"],
            "lifecycle": {"preStop": {"exec": {"command": ["SECRET"]}}}}]);
        pod["status"]["hostIP"] = json!("SECRET");
        let mut template = pod.clone();
        template["metadata"]["annotations"] = json!({"x": "SECRET"});
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "nm-reconciler", "annotations": {"x": "SECRET"}},
            "spec": {"replicas": 2, "template": template}, "status": {"readyReplicas": 1}});
        for (kept, spec) in [(reconciler(&deployment), "/spec/template/spec"), (reconciler(&pod), "/spec")] {
            assert!(!kept.to_string().contains("SECRET"), "{kept}");
            let container = &kept.pointer(spec).unwrap()["containers"][1];
            let out = REDACTED;
            assert_eq!(
                container["args"],
                json!(["--node-conditions", out, "--log-level", "debug", out, "--max-unavailable=2", out])
            );
            assert_eq!(container["command"], json!([out, out, out]));
            assert_eq!(container["env"][0], env[0]);
            assert_eq!(container["env"][3], json!({"name": "A", "value": out}));
            assert_eq!(
                kept.pointer(spec).unwrap()["containers"][0],
                json!({"name": "main", "image": "cart:1"})
            );
        }
        assert_eq!(reconciler(&deployment)["spec"]["replicas"], 2);
        assert_eq!(reconciler(&deployment)["status"]["readyReplicas"], 1);
        assert_eq!(reconciler(&pod)["status"]["phase"], "Running");
    }

    #[test]
    fn managed_fields_are_removed() {
        let object = json!({"kind": "X", "metadata": {"name": "a", "managedFields": [1], "annotations": {"b": "SECRET"}},
            "spec": {"c": 1}, "webhooks": [{"name": "w"}], "data": "SECRET", "deprecatedSource": {}});
        assert_eq!(plain(&object)["spec"]["c"], 1);
        assert!(!plain(&object).to_string().contains("SECRET"));
        assert_eq!(whole(&object)["webhooks"][0]["name"], "w");
        assert!(event(&object).get("deprecatedSource").is_none());
        for kept in [plain(&object), whole(&object), event(&object)] {
            assert!(!kept.to_string().contains("managedFields"), "{kept}");
        }
    }
}
