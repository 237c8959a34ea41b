//! Every manifest has only fields of its kind, and every file is listed in a kustomization.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use nm_shared::NodeMaintenance;
use nm_tests::manifests::{files_of, folder, read};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The fields of the Prometheus operator's `ServiceMonitor` that the manifests use.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ServiceMonitor {
    api_version: String,
    kind: String,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: ServiceMonitorSpec,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceMonitorSpec {
    selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    endpoints: Vec<Endpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoint {
    port: String,
    path: String,
}

/// The fields of the Prometheus operator's `PrometheusRule` that the manifests use.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PrometheusRule {
    api_version: String,
    kind: String,
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: RuleGroups,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleGroups {
    groups: Vec<RuleGroup>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleGroup {
    name: String,
    rules: Vec<AlertingRule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertingRule {
    alert: String,
    expr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r#for: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// The object after a round trip through its type, which drops unknown fields.
fn round_trip(object: &Value) -> Result<Value, String> {
    fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
        let typed: K = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        serde_json::to_value(typed).map_err(|error| error.to_string())
    }
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Namespace") => through::<Namespace>(object),
        ("v1", "ResourceQuota") => through::<ResourceQuota>(object),
        ("v1", "Service") => through::<Service>(object),
        ("v1", "ServiceAccount") => through::<ServiceAccount>(object),
        ("apps/v1", "Deployment") => through::<Deployment>(object),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            through::<CustomResourceDefinition>(object)
        }
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") => through::<FlowSchema>(object),
        ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration") => {
            through::<PriorityLevelConfiguration>(object)
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => through::<NetworkPolicy>(object),
        ("policy/v1", "PodDisruptionBudget") => through::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => through::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => through::<ClusterRoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => through::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => through::<RoleBinding>(object),
        ("monitoring.coreos.com/v1", "PrometheusRule") => through::<PrometheusRule>(object),
        ("monitoring.coreos.com/v1", "ServiceMonitor") => through::<ServiceMonitor>(object),
        ("nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance") => through::<NodeMaintenance>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration") => {
            through::<ValidatingWebhookConfiguration>(object)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            through::<ValidatingAdmissionPolicy>(object)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            through::<ValidatingAdmissionPolicyBinding>(object)
        }
        (version, kind) => Err(format!("add {version} {kind} to this match")),
    }
}

/// Collects the YAML files below a folder, as paths below the manifests.
fn yaml_files(below: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let path = path.strip_prefix(folder()).unwrap();
            found.insert(path.to_str().unwrap().to_owned());
        }
    }
}

/// All YAML files but those of the generated bundle.
fn manifests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    yaml_files(&folder(), &mut found);
    found.retain(|file| !file.starts_with("bundle/"));
    found
}

#[test]
fn every_manifest_has_only_fields_of_its_type() {
    let objects: Vec<String> =
        manifests().into_iter().filter(|file| !file.ends_with("kustomization.yaml")).collect();
    assert!(objects.len() > 15, "{objects:?}");
    for file in objects {
        let written = read(&file);
        let read = round_trip(&written).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(written, read, "{file} has a field that its type does not have");
    }
}

#[test]
fn unknown_fields_are_detected() {
    let mut budget = read("pod_disruption_budget.yaml");
    budget["spec"]["minAvailabel"] = 1.into();
    assert_ne!(round_trip(&budget), Ok(budget));
}

#[test]
fn every_file_is_listed_in_a_kustomization() {
    let (lists, objects): (Vec<String>, Vec<String>) =
        manifests().into_iter().partition(|file| file.ends_with("kustomization.yaml"));
    let listed: Vec<String> =
        lists.iter().filter(|file| lists_objects(file)).flat_map(|file| files_of(file)).collect();
    let listed_once: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), listed_once.len(), "a file is listed twice: {listed:?}");
    let wanted: BTreeSet<String> = objects.into_iter().filter(|file| !file.starts_with("samples/")).collect();
    assert_eq!(listed_once, wanted);
}

/// Some kustomizations generate objects from other files instead.
fn lists_objects(kustomization: &str) -> bool {
    read(kustomization)["resources"].is_array()
}

#[test]
fn our_objects_have_our_label() {
    for file in files_of("kustomization.yaml") {
        let object = read(&file);
        // The definition and the lease namespace are shared with other operators.
        let is_shared = ["crd.yaml", "lease_namespace.yaml"].contains(&file.as_str());
        let label = object["metadata"]["labels"]["app.kubernetes.io/name"].as_str();
        assert_eq!(label, (!is_shared).then_some("kubectl-nm"), "{file}");
    }
}
