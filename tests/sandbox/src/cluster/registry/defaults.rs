//! Defaults of built-in resources.
//!
//! Only those that kubectl shows, clients read or controllers rely on, and only if the field is missing.

use serde_json::{Value, json};

use crate::cluster::admission::configuration;
use crate::cluster::catalog::custom_resource;
use crate::cluster::catalog::resource::{ATTACHMENTS, CLAIMS, NODES, Resource};
use crate::model::{rbac, resources};

/// The default `preemptionPolicy` of pods and priority classes.
const PREEMPTS: &str = "PreemptLowerPriority";

/// Sets the defaults of a new built-in object, and its first status.
pub(crate) fn fill(resource: &Resource, object: &mut Value) {
    missing_fields(resource, object);
    match (resource.group(), resource.plural()) {
        ("", "pods") => {
            for list in ["containers", "initContainers"] {
                items(&mut object["spec"], list).for_each(resources::request_limits);
            }
            object["status"]["phase"] = json!("Pending");
            object["status"]["qosClass"] = json!(quality_of_service(&object["spec"]));
        }
        ("", "namespaces") => namespace(object),
        ("", "nodes") => {
            missing(object, "spec", || json!({}));
            node_status(&mut object["status"]);
        }
        ("", "resourcequotas")
        | ("networking.k8s.io", "servicecidrs")
        | ("apps", "deployments")
        | ("batch", "jobs") => {
            object["status"] = json!({});
        }
        ("", "replicationcontrollers") | ("apps", "replicasets") => object["status"] = json!({"replicas": 0}),
        ("networking.k8s.io", "ingresses") => object["status"] = json!({"loadBalancer": {}}),
        ("" | "storage.k8s.io", "persistentvolumes" | "persistentvolumeclaims" | "volumeattachments") => {
            storage(resource, object);
        }
        ("apiextensions.k8s.io", _) => object["status"] = custom_resource::not_yet_established(object),
        ("apps", "statefulsets") => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets") => {
            object["status"] = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0,
                "desiredNumberScheduled": 0, "numberReady": 0});
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => rbac::fill(object),
        ("policy", "poddisruptionbudgets") => {
            object["status"] = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0,
                "expectedPods": 0});
        }
        _ => {}
    }
}

/// Sets the defaults of fields that are missing, as the API server does with every object that it decodes, including what a
/// patch has made of one.
pub(crate) fn missing_fields(resource: &Resource, object: &mut Value) {
    match (resource.group(), resource.plural()) {
        ("", "pods") => {
            let spec = &mut object["spec"];
            pod_spec(spec);
            missing(spec, "enableServiceLinks", || json!(true));
            set(spec, "serviceAccountName", "default");
            set(spec, "serviceAccount", "default");
            set(spec, "preemptionPolicy", PREEMPTS);
        }
        ("", "podtemplates") => pod_spec(&mut object["template"]["spec"]),
        ("", "replicationcontrollers") => {
            let labels = object["spec"]["template"]["metadata"]["labels"].clone();
            missing(&mut object["metadata"], "labels", || labels.clone());
            let spec = &mut object["spec"];
            missing(spec, "selector", || labels);
            replicas(spec);
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("networking.k8s.io", "networkpolicies") => network_policy(&mut object["spec"]),
        ("", "services") => {
            set(&mut object["spec"], "type", "ClusterIP");
            set(&mut object["spec"], "sessionAffinity", "None");
        }
        ("", "secrets") => set(object, "type", "Opaque"),
        ("apps", "deployments") => {
            let spec = &mut object["spec"];
            replicas(spec);
            strategy(&mut spec["strategy"]);
            missing(spec, "revisionHistoryLimit", || json!(10));
            missing(spec, "progressDeadlineSeconds", || json!(600));
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("apps", "replicasets") => {
            replicas(&mut object["spec"]);
            pod_spec(&mut object["spec"]["template"]["spec"]);
        }
        ("apps", "statefulsets") => {
            let spec = &mut object["spec"];
            replicas(spec);
            set(spec, "podManagementPolicy", "OrderedReady");
            missing(
                spec,
                "updateStrategy",
                || json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
            );
            missing(spec, "revisionHistoryLimit", || json!(10));
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("apps", "daemonsets") => {
            let strategy =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            let spec = &mut object["spec"];
            missing(spec, "updateStrategy", || strategy);
            missing(spec, "revisionHistoryLimit", || json!(10));
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("batch", "jobs") => {
            let spec = &mut object["spec"];
            missing(spec, "completions", || json!(1));
            missing(spec, "parallelism", || json!(1));
            missing(spec, "backoffLimit", || json!(6));
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("scheduling.k8s.io", "priorityclasses") => set(object, "preemptionPolicy", PREEMPTS),
        ("admissionregistration.k8s.io", _) => configuration::fill(object),
        _ => {}
    }
}

fn network_policy(spec: &mut Value) {
    let types = if spec["egress"].is_array() { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    missing(spec, "policyTypes", || types);
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            items(rule, "ports").for_each(|port| set(port, "protocol", "TCP"));
        }
    }
}

/// Volumes and claims are protected by a finalizer from the beginning.
fn storage(resource: &Resource, object: &mut Value) {
    if resource.collection == ATTACHMENTS {
        object["status"] = json!({"attached": false});
        return;
    }
    let is_claim = resource.collection == CLAIMS;
    if !is_claim {
        set(&mut object["spec"], "persistentVolumeReclaimPolicy", "Retain");
    }
    set(&mut object["spec"], "volumeMode", "Filesystem");
    let protection = if is_claim { "kubernetes.io/pvc-protection" } else { "kubernetes.io/pv-protection" };
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|own| own == protection) {
        finalizers.push(json!(protection));
        object["metadata"]["finalizers"] = json!(finalizers);
    }
    object["status"] = json!({"phase": "Pending"});
    if !is_claim {
        object["status"]["lastPhaseTransitionTime"] = object["metadata"]["creationTimestamp"].clone();
    }
}

fn strategy(strategy: &mut Value) {
    set(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        for limit in ["maxUnavailable", "maxSurge"] {
            set(&mut strategy["rollingUpdate"], limit, "25%");
        }
    }
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    object["spec"]["finalizers"] = json!(["kubernetes"]);
    object["status"]["phase"] = json!("Active");
}

/// The taint of every node that is created by a request. The node lifecycle controller removes it as soon as the node
/// is Ready.
pub(crate) fn not_ready(resource: &Resource, object: &mut Value) {
    if resource.collection != NODES {
        return;
    }
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    match object["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.contains(&taint) => {}
        Some(taints) => taints.push(taint),
        None => object["spec"]["taints"] = json!([taint]),
    }
}

/// The status that a node has before a kubelet writes one.
fn node_status(status: &mut Value) {
    const INFO: [&str; 10] = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    missing(status, "daemonEndpoints", || json!({"kubeletEndpoint": {"Port": 0}}));
    for field in INFO {
        set(&mut status["nodeInfo"], field, "");
    }
}

fn replicas(spec: &mut Value) {
    missing(spec, "replicas", || json!(1));
}

/// The defaults of a pod spec, in a pod or a template.
fn pod_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    set(spec, "restartPolicy", "Always");
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "schedulerName", "default-scheduler");
    missing(spec, "terminationGracePeriodSeconds", || json!(30));
    missing(spec, "securityContext", || json!({}));
    // Two names of one field. Only a pod gets the default account, not a template.
    for (field, other) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")]
    {
        if let Some(account) = spec[other].as_str().map(str::to_owned) {
            set(spec, field, &account);
        }
    }
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            self::container(container);
        }
    }
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let moving = !tag.contains(':') || tag.ends_with(":latest");
    set(container, "imagePullPolicy", if moving { "Always" } else { "IfNotPresent" });
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    missing(container, "resources", || json!({}));
    for port in items(container, "ports") {
        set(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            set(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) {
            self::probe(probe);
        }
    }
}

fn probe(probe: &mut Value) {
    for (field, default) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        missing(probe, field, || json!(default));
    }
    if let Some(request) = probe.get_mut("httpGet") {
        set(request, "path", "/");
        set(request, "scheme", "HTTP");
    }
}

/// Never `Guaranteed`, which needs limits for all resources; no pod here has them.
fn quality_of_service(spec: &Value) -> &'static str {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let asks = |container: &Value| {
        ["requests", "limits"].iter().any(|kind| {
            let amounts = container["resources"][kind].as_object();
            amounts.is_some_and(|amounts| !amounts.is_empty())
        })
    };
    if containers.into_iter().any(asks) { "Burstable" } else { "BestEffort" }
}

/// What the API server does on every write: it omits false flags and empty lists, and restores defaults that an update
/// removed.
pub(crate) fn tidy(resource: &Resource, object: &mut Value) {
    if object["spec"].is_object() || object["webhooks"].is_array() || resource.plural() == "secrets" {
        missing_fields(resource, object);
    }
    if resource.collection != NODES {
        return;
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|name, value| match name.as_str() {
            "unschedulable" => *value == true,
            "taints" => value.as_array().is_some_and(|taints| !taints.is_empty()),
            _ => !value.is_null(),
        });
    }
}

/// The items of a list; none if there is no list.
fn items<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn set(object: &mut Value, field: &str, text: &str) {
    missing(object, field, || json!(text));
}

fn missing(object: &mut Value, field: &str, default: impl FnOnce() -> Value) {
    if object[field].is_null() {
        object[field] = default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::built_in;

    fn filled(plural: &str, mut object: Value) -> Value {
        let known = built_in();
        let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
        fill(resource, &mut object);
        object
    }

    #[test]
    fn a_pod_reads_back_as_from_a_cluster() {
        let pod = filled(
            "pods",
            json!({"metadata": {"name": "p"}, "spec": {
            "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "reg:5000/x"}]}}),
        );
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 5);
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(pod["spec"]["serviceAccount"], "default");
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn a_new_node_gets_a_default_status_and_keeps_its_own() {
        let node = filled("nodes", json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}}));
        assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.2");
        assert_eq!(node["status"]["nodeInfo"]["bootID"], "");
    }

    #[test]
    fn a_node_begins_with_the_taint_of_one_that_is_not_ready() {
        let known = built_in();
        let taint = || json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        for (plural, given, expected) in [
            ("nodes", json!({"spec": {}}), json!([taint()])),
            ("nodes", json!({"spec": {"taints": [taint()]}}), json!([taint()])),
            (
                "nodes",
                json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
                json!([{"key": "a", "effect": "NoExecute"}, taint()]),
            ),
            ("pods", json!({"spec": {}}), Value::Null),
        ] {
            let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
            let mut object = given;
            not_ready(resource, &mut object);
            assert_eq!(object["spec"]["taints"], expected, "{plural}");
        }
    }

    #[test]
    fn a_namespace_is_active_and_labelled() {
        let namespace = filled("namespaces", json!({"metadata": {"name": "a"}}));
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "a");
        assert_eq!(namespace["status"]["phase"], "Active");
    }
}
