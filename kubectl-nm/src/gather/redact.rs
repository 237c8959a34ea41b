//! What of an object may leave a cluster in a bug report.
//!
//! Reports are passed on, and nobody reads them through before. So foreign objects keep only what is named here: of a pod its
//! image, but with which command and arguments and in which environment it runs, and what its annotations say, is nobody's
//! business. Bookkeeping is left out of everything.

use nm_shared::api::names::{MIRROR_ANNOTATION, UNDO_ANNOTATION, WEBHOOK};
use serde_json::{Map, Value, json};

use crate::client::reconciler_settings::CONTAINER as OWN_CONTAINER;

/// Of anyone's metadata.
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

/// The annotations whose values matter to a drain. Of the others only the names are kept.
const ANNOTATIONS: &[&str] = &[MIRROR_ANNOTATION, UNDO_ANNOTATION];

/// Of a pod's spec: why it is where it is, and what keeps it there.
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

/// Of a container.
const CONTAINER: &[&str] = &["name", "image", "imagePullPolicy", "resources", "ports", "restartPolicy"];

/// Of a pod's status. Addresses are left out.
const POD_STATUS: &[&str] =
    &["phase", "reason", "message", "qosClass", "startTime", "conditions", "nominatedNodeName"];

/// Of a container's status.
const CONTAINER_STATUS: &[&str] = &["name", "image", "ready", "started", "restartCount"];

/// Of a state that a container is or was in. What it wrote at its end is its own affair.
const STATE: &[&str] = &["reason", "exitCode", "signal", "startedAt", "finishedAt"];

/// Of a node's status. Addresses and the list of images are left out.
const NODE_STATUS: &[&str] = &["conditions", "capacity", "allocatable", "nodeInfo"];

/// Of our Deployment's spec, beside its template.
const DEPLOYMENT_SPEC: &[&str] =
    &["replicas", "selector", "strategy", "minReadySeconds", "progressDeadlineSeconds", "paused"];

/// Of our Deployment's status.
const DEPLOYMENT_STATUS: &[&str] = &[
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "conditions",
];

/// The flags of nm-reconciler; each can also be set by a variable. None of them takes a secret.
const SETTINGS: &[&str] = &[
    "--max-concurrent-evictions",
    "--max-unavailable",
    "--own-pod",
    "--node-conditions",
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

/// Those of them that take no value, or only one with `=`.
const SWITCHES: &[&str] = &["--node-conditions", "--leader-elect"];

/// What stands where something was.
const LEFT_OUT: &str = "(left out)";

/// A pod that is not ours.
pub(crate) fn pod(pod: &Value) -> Value {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut kept = frame(pod);
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

/// A node.
pub(crate) fn node(node: &Value) -> Value {
    let mut kept = frame(node);
    kept["spec"] = only(&node["spec"], &["unschedulable", "taints"]);
    kept["status"] = only(&node["status"], NODE_STATUS);
    kept
}

/// An object whose spec and status hold no secrets: a budget, a lease, a maintenance.
pub(crate) fn plain(object: &Value) -> Value {
    let mut kept = frame(object);
    for field in ["spec", "status"] {
        if let Some(value) = object.get(field) {
            kept[field] = value.clone();
        }
    }
    kept
}

/// A definition: all of it but bookkeeping.
pub(crate) fn whole(object: &Value) -> Value {
    let mut kept = object.clone();
    kept["metadata"] = frame(object)["metadata"].clone();
    kept
}

/// A webhook configuration, but not at which path our webhook is asked: who knows that may ask, too.
pub(crate) fn webhooks(configuration: &Value) -> Value {
    let mut kept = whole(configuration);
    for webhook in kept["webhooks"].as_array_mut().into_iter().flatten() {
        let service = &mut webhook["clientConfig"]["service"];
        if service["name"] == WEBHOOK && service["path"].is_string() {
            service["path"] = json!(LEFT_OUT);
        }
    }
    kept
}

/// An event: what happened to what. Its note is written by whom it is from.
pub(crate) fn event(event: &Value) -> Value {
    let mut kept = whole(event);
    if let Some(fields) = kept.as_object_mut() {
        fields.remove("deprecatedSource");
    }
    kept
}

/// Our Deployment, or a pod of it: of its containers what is kept of anyone's, and beside that how nm-reconciler is set.
pub(crate) fn ours(object: &Value) -> Value {
    let template = &object["spec"]["template"];
    if template.is_null() {
        let mut kept = pod(object);
        add_settings(&mut kept["spec"], &object["spec"]);
        return kept;
    }
    let mut pods = pod(template);
    add_settings(&mut pods["spec"], &template["spec"]);
    let mut kept = frame(object);
    kept["spec"] = only(&object["spec"], DEPLOYMENT_SPEC);
    kept["spec"]["template"] = json!({"metadata": pods["metadata"], "spec": pods["spec"]});
    kept["status"] = only(&object["status"], DEPLOYMENT_STATUS);
    kept
}

/// Adds to the container of nm-reconciler the flags and variables that it knows. What else is there is only counted or
/// named: a proxy's variable may hold its password.
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

/// The words of a command line, of which only flags of nm-reconciler and their values are told.
fn arguments(words: &Value) -> Value {
    let mut is_value = false;
    each(words, |word| {
        let text = word.as_str().unwrap_or_default();
        let (flag, value) = text.split_once('=').map_or((text, None), |(flag, value)| (flag, Some(value)));
        let is_known = SETTINGS.contains(&flag) || (is_value && !text.starts_with('-'));
        is_value = SETTINGS.contains(&flag) && !SWITCHES.contains(&flag) && value.is_none();
        if is_known { word.clone() } else { json!(LEFT_OUT) }
    })
}

/// A variable, of which only what nm-reconciler reads is told.
fn variable(variable: &Value) -> Value {
    let name = variable["name"].as_str().unwrap_or_default();
    let of =
        |flag: &&str| name == format!("NM_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
    if SETTINGS.iter().any(of) {
        return variable.clone();
    }
    json!({"name": name, "value": LEFT_OUT})
}

/// What it is and its metadata.
fn frame(object: &Value) -> Value {
    let mut metadata = only(&object["metadata"], METADATA);
    if let Some(annotations) = object["metadata"]["annotations"].as_object() {
        let kept = annotations.iter().map(|(name, value)| {
            let known = ANNOTATIONS.contains(&name.as_str());
            (name.clone(), if known { value.clone() } else { json!(LEFT_OUT) })
        });
        metadata["annotations"] = Value::Object(kept.collect());
    }
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata})
}

/// The volume's name and kind, and the claim by which it may be bound to a node.
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

    /// An object in which everything that is to stay inside says so.
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
    fn the_path_of_our_webhook_stays_inside() {
        let webhook = |service: &str| json!({"name": "a", "clientConfig": {"service": {"name": service, "path": "/p"}}});
        let kept = webhooks(
            &json!({"webhooks": [webhook(WEBHOOK), webhook("other"), {"clientConfig": {"url": "u"}}]}),
        );
        let path = |index: usize| &kept["webhooks"][index]["clientConfig"]["service"]["path"];
        assert_eq!((path(0), path(1), path(2)), (&json!(LEFT_OUT), &json!("/p"), &Value::Null));
    }

    #[test]
    fn how_a_pod_is_run_stays_inside() {
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
        assert_eq!(kept["metadata"]["annotations"]["vault"], "(left out)");
        assert_eq!(pod(&json!({})), pod(&Value::Null), "an object without anything in it");
    }

    #[test]
    fn a_nodes_cordon_and_its_record_are_kept_but_not_its_addresses() {
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
    fn of_ours_nothing_but_its_own_settings_is_kept_beyond_what_is_kept_of_anyones() {
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
        for (kept, spec) in [(ours(&deployment), "/spec/template/spec"), (ours(&pod), "/spec")] {
            assert!(!kept.to_string().contains("SECRET"), "{kept}");
            let container = &kept.pointer(spec).unwrap()["containers"][1];
            let out = LEFT_OUT;
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
        assert_eq!(ours(&deployment)["spec"]["replicas"], 2);
        assert_eq!(ours(&deployment)["status"]["readyReplicas"], 1);
        assert_eq!(ours(&pod)["status"]["phase"], "Running");
    }

    #[test]
    fn of_others_objects_bookkeeping_is_left_out() {
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
