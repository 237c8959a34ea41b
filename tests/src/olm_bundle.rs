//! Generates the bundle with which the Operator Lifecycle Manager (OLM) installs the reconciler, from the manifests.
//!
//! The format is registry+v1, see <https://olm.operatorframework.io/docs/tasks/creating-operator-manifests/>. A bundle
//! takes few kinds of objects, and OLM chooses their names and namespaces. `ServiceVersion::take` decides for each kind
//! what becomes of it, and panics for a kind that it does not know.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::manifests;
use crate::olm_webhooks;

/// The name of the package.
const PACKAGE: &str = "nm-reconciler";

/// The channel of every version.
const CHANNEL: &str = "alpha";

/// The folder in which OLM mounts the webhook's certificate, as `tls.crt` and `tls.key`.
const CERTIFICATE_DIR: &str = "/tmp/k8s-webhook-server/serving-certs";

/// The oldest supported version of Kubernetes: the one whose types the program is built with.
const OLDEST_KUBERNETES: &str = "1.33.0";

const SUMMARY: &str = "Puts nodes into maintenance and returns them to service as they were";

const DESCRIPTION: &str = "\
Creating a `NodeMaintenance` cordons its node and evicts the pods through the Eviction API; its status shows what blocks each
pod that remains. Deleting it returns the node to service exactly as it was before. The objects are those of the medik8s
node-maintenance-operator, which must not run at the same time.

Nodes in maintenance have a lease in the namespace `medik8s-leases`. OLM neither creates namespaces nor grants permissions in
them: first apply `lease_namespace.yaml`, `lease_role.yaml` and `lease_role_binding.yaml` of the manifests. For events about maintenances and
nodes, also apply `event_role.yaml` and `event_role_binding.yaml`, and for the policies that limit what nm-reconciler may change
`node_policy.yaml`, `node_policy_binding.yaml`, `maintenance_policy.yaml` and `maintenance_policy_binding.yaml`. For a share of the
API server's concurrency, apply `priority_level.yaml`, `flow_schema.yaml` and `lease_flow_schema.yaml`.

Before you uninstall it, stop all maintenances (`kubectl nm stop --all`): only nm-reconciler returns nodes to service.";

/// The files of the bundle: path and content.
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![
        ("Dockerfile".to_owned(), dockerfile()),
        ("metadata/annotations.yaml".to_owned(), yaml(&json!({"annotations": annotations()}))),
        ("tests/scorecard/config.yaml".to_owned(), yaml(&scorecard())),
    ];
    let mut version = ServiceVersion::default();
    for mut object in manifests::all() {
        if let Some(file) = version.take(&mut object) {
            files.push((format!("manifests/{file}.yaml"), yaml(&json!(object))));
        }
    }
    files.push((format!("manifests/{PACKAGE}.clusterserviceversion.yaml"), yaml(&version.finish())));
    files
}

fn yaml(value: &Value) -> String {
    format!("# Generated from manifests/; a test verifies it.\n{}", serde_saphyr::to_string(value).unwrap())
}

/// Where OLM's tools find each part of the bundle. The bundle's image has the same labels.
fn annotations() -> Map<String, Value> {
    let bundle = |name: &str| format!("operators.operatorframework.io.bundle.{name}.v1");
    let test = |name: &str| format!("operators.operatorframework.io.test.{name}.v1");
    let pairs = [
        (bundle("mediatype"), "registry+v1"),
        (bundle("manifests"), "manifests/"),
        (bundle("metadata"), "metadata/"),
        (bundle("package"), PACKAGE),
        (bundle("channels"), CHANNEL),
        (bundle("channel.default"), CHANNEL),
        (test("mediatype"), "scorecard+v1"),
        (test("config"), "tests/scorecard/"),
    ];
    pairs.into_iter().map(|(name, value)| (name, json!(value))).collect()
}

fn dockerfile() -> String {
    let label = |(name, value): (&String, &Value)| format!("LABEL {name}={}", value.as_str().unwrap());
    let labels = annotations().iter().map(label).collect::<Vec<_>>().join("\n");
    format!(
        "# Generated from manifests/; a test verifies it.\nFROM scratch\n{labels}\n\
        COPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n"
    )
}

/// The tests for `operator-sdk scorecard` to run.
fn scorecard() -> Value {
    let test = |suite: &str, name: &str| {
        json!({
            "image": "quay.io/operator-framework/scorecard-test:v1.42.0",
            "entrypoint": ["scorecard-test", name],
            "labels": {"suite": suite, "test": format!("{name}-test")},
        })
    };
    let olm = [
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ];
    let mut tests = vec![test("basic", "basic-check-spec")];
    tests.extend(olm.map(|name| test("olm", name)));
    json!({"apiVersion": "scorecard.operatorframework.io/v1alpha3", "kind": "Configuration",
        "metadata": {"name": "config"}, "stages": [{"parallel": true, "tests": tests}]})
}

/// The parts of the `ClusterServiceVersion`, collected from the objects.
#[derive(Default)]
struct ServiceVersion {
    definitions: Vec<Value>,
    deployments: Vec<Value>,
    webhooks: Vec<Value>,
    /// The program's rules in the whole cluster.
    rules: Vec<Value>,
}

impl ServiceVersion {
    /// Collects what belongs into the `ClusterServiceVersion`. Returns a file name for an object that the bundle has as a
    /// file of its own.
    fn take(&mut self, object: &mut DynamicObject) -> Option<String> {
        let name = object.name_any();
        let account = manifests::service_account();
        match object.types.as_ref().unwrap().kind.as_str() {
            "CustomResourceDefinition" => {
                self.definitions.push(owned(object));
                Some(name)
            }
            "ClusterRole" if name == account.name_any() => {
                let is_olms_task =
                    |rule: &Value| rule["resources"] == json!(["validatingwebhookconfigurations"]);
                self.rules.extend(rules(object).into_iter().filter(|rule| !is_olms_task(rule)));
                None
            }
            // `permissions` of the version would be granted in all namespaces, because the program watches all of them.
            // OLM leaves a Role and a RoleBinding of the bundle in its namespace.
            "Role" if object.namespace() == account.namespace() => {
                remove_certificate_rules(object);
                Some(format!("{name}_role"))
            }
            "RoleBinding" if object.namespace() == account.namespace() => Some(format!("{name}_rolebinding")),
            // OLM creates accounts, bindings and the webhook's service itself, and does not take namespaces and quotas.
            // The remaining roles are about the leases of nodes and about events, in namespaces that OLM does not manage. Granting
            // them in all namespaces would include the leases for leader election and for the nodes' heartbeats.
            // OLM takes neither policies nor flow schemas.
            "Namespace"
            | "ResourceQuota"
            | "Role"
            | "RoleBinding"
            | "ServiceAccount"
            | "ClusterRoleBinding"
            | "Service"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding"
            | "FlowSchema"
            | "PriorityLevelConfiguration" => None,
            "ClusterRole" => Some(format!("{name}_clusterrole")),
            "PodDisruptionBudget" => Some(format!("{name}_poddisruptionbudget")),
            "Deployment" => {
                let mut spec = object.data["spec"].clone();
                stay_available_during_a_drain(&mut spec);
                self.deployments.push(json!({"name": name, "label": object.labels(), "spec": spec}));
                None
            }
            "ValidatingWebhookConfiguration" => {
                let webhooks = object.data["webhooks"].as_array().unwrap();
                self.webhooks.extend(webhooks.iter().flat_map(olm_webhooks::definitions));
                None
            }
            kind => panic!("decide what the bundle does with a {kind}"),
        }
    }

    fn finish(mut self) -> Value {
        let version = env!("CARGO_PKG_VERSION");
        let account = manifests::service_account();
        if !self.webhooks.is_empty() {
            self.use_olms_certificate();
        }
        let permissions = json!([{"serviceAccountName": account.name_any(), "rules": self.rules}]);
        let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}));
        let image = &self.deployments[0]["spec"]["template"]["spec"]["containers"][0]["image"];
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "ClusterServiceVersion",
            "metadata": {
                "name": format!("{PACKAGE}.v{version}"),
                // As OLM's tools write it: the namespace is chosen at installation.
                "namespace": "placeholder",
                "annotations": {
                    "alm-examples": serde_json::to_string_pretty(&samples()).unwrap(),
                    "capabilities": "Basic Install",
                    "categories": "OpenShift Optional",
                    "containerImage": image,
                    "description": SUMMARY,
                    "operatorframework.io/suggested-namespace": namespace(&account),
                },
            },
            "spec": {
                "displayName": "Node maintenance by kubectl-nm",
                "description": DESCRIPTION,
                "version": version,
                "maturity": CHANNEL,
                "minKubeVersion": OLDEST_KUBERNETES,
                "provider": {"name": "kubectl-nm"},
                "keywords": ["node", "maintenance", "drain", "cordon"],
                "installModes": modes,
                "customresourcedefinitions": {"owned": self.definitions},
                "install": {
                    "strategy": "deployment",
                    "spec": {
                        "clusterPermissions": permissions,
                        "deployments": self.deployments,
                    },
                },
                "webhookdefinitions": self.webhooks,
            },
        })
    }

    /// Configures the program to serve the certificate that OLM issues instead of its own.
    fn use_olms_certificate(&mut self) {
        let variable = json!({"name": "NM_WEBHOOK_CERT_DIR", "value": CERTIFICATE_DIR});
        let variables = self.deployments[0].pointer_mut("/spec/template/spec/containers/0/env").unwrap();
        variables.as_array_mut().unwrap().push(variable);
    }
}

/// OLM issues the certificate of the webhook and mounts it, so the program neither reads nor writes a Secret.
fn remove_certificate_rules(role: &mut DynamicObject) {
    let rules = role.data["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["resources"] != json!(["secrets"]));
}

/// OLM marks a version as failed while its Deployment is not `Available`, which it is only if no more than `maxUnavailable`
/// replicas are missing. A drain of the node of one replica must not fail the version.
fn stay_available_during_a_drain(deployment: &mut Value) {
    *deployment.pointer_mut("/strategy/rollingUpdate/maxUnavailable").unwrap() = json!(1);
}

fn namespace(account: &ServiceAccount) -> String {
    account.namespace().unwrap()
}

fn rules(role: &DynamicObject) -> Vec<Value> {
    role.data["rules"].as_array().cloned().unwrap_or_default()
}

/// A custom resource definition with descriptors of its fields, for OLM's console.
fn owned(definition: &DynamicObject) -> Value {
    let spec = &definition.data["spec"];
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let descriptors = |part: &str| -> Vec<Value> {
        let fields = schema["properties"][part]["properties"].as_object().unwrap();
        let line = |(name, field): (&String, &Value)| json!({"path": name, "displayName": in_words(name), "description": field["description"]});
        fields.iter().map(line).collect()
    };
    json!({
        "name": definition.name_any(),
        "kind": spec["names"]["kind"],
        "version": version["name"],
        "displayName": "Node maintenance",
        "description": schema["description"],
        "resources": [{"kind": "Node", "version": "v1", "name": ""}, {"kind": "Pod", "version": "v1", "name": ""}],
        "specDescriptors": descriptors("spec"),
        "statusDescriptors": descriptors("status"),
    })
}

/// `drainProgress` as `Drain progress`.
fn in_words(name: &str) -> String {
    let mut words = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(if at == 0 { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() });
    }
    words
}

/// The samples that OLM's console offers.
fn samples() -> Vec<Value> {
    ["nodemaintenance.yaml", "nodemaintenance_drain.yaml"]
        .map(|file| manifests::read(&format!("samples/{file}")))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_are_field_names_in_words() {
        for (name, words) in [("nodeName", "Node name"), ("totalpods", "Totalpods"), ("phase", "Phase")] {
            assert_eq!(in_words(name), words);
        }
    }
}
