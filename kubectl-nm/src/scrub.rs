//! What of an object may leave a cluster in a bug report.
//!
//! Reports are passed on, and nobody reads them through before. So foreign objects keep only what is named here: of a pod its
//! image, but with which command and arguments and in which environment it runs, and what its annotations say, is nobody's
//! business. Bookkeeping is left out of everything.

use nm_shared::names::{MIRROR_ANNOTATION, UNDO_ANNOTATION, WEBHOOK};
use serde_json::{Map, Value, json};

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

/// What stands for what is left out of a text that is whole otherwise.
const HIDDEN: &str = "(left out)";

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
            service["path"] = json!(HIDDEN);
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

/// Our Deployment, or a pod of it: all but the values of variables that are not ours, such as a proxy's with its password.
pub(crate) fn ours(object: &Value) -> Value {
    let mut kept = whole(object);
    for spec in ["/spec", "/spec/template/spec"] {
        let containers = kept.pointer_mut(spec).and_then(|spec| spec.get_mut("containers"));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            for variable in container["env"].as_array_mut().into_iter().flatten() {
                let is_ours = variable["name"].as_str().is_some_and(|name| name.starts_with("NM_"));
                if !is_ours && variable.get("value").is_some() {
                    variable["value"] = json!("(left out)");
                }
            }
        }
    }
    if let Some(template) = kept.pointer_mut("/spec/template/metadata") {
        *template = frame(&json!({"metadata": template.clone()}))["metadata"].clone();
    }
    kept
}

/// What it is and its metadata.
fn frame(object: &Value) -> Value {
    let mut metadata = only(&object["metadata"], METADATA);
    if let Some(annotations) = object["metadata"]["annotations"].as_object() {
        let kept = annotations.iter().map(|(name, value)| {
            let known = ANNOTATIONS.contains(&name.as_str());
            (name.clone(), if known { value.clone() } else { json!("(left out)") })
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

fn each(list: &Value, keep: impl Fn(&Value) -> Value) -> Value {
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
        assert_eq!((path(0), path(1), path(2)), (&json!(HIDDEN), &json!("/p"), &Value::Null));
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
    fn of_ours_only_foreign_variables_are_left_out() {
        let env =
            json!([{"name": "NM_MAX_UNAVAILABLE", "value": "1"}, {"name": "HTTPS_PROXY", "value": "SECRET"}]);
        let spec = json!({"containers": [{"env": env, "args": ["--node-conditions"]}]});
        let template = json!({"metadata": {"annotations": {"x": "SECRET"}}, "spec": spec});
        for object in
            [json!({"metadata": {}, "spec": {"template": template}}), json!({"metadata": {}, "spec": spec})]
        {
            let kept = ours(&object).to_string();
            assert!(!kept.contains("SECRET"), "{kept}");
            assert!(kept.contains("\"value\":\"1\"") && kept.contains("--node-conditions"), "{kept}");
        }
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
