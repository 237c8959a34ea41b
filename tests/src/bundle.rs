//! The bundle by which the Operator Lifecycle Manager (OLM) installs the reconciler, made from the manifests.
//!
//! Its format is the registry+v1 of <https://olm.operatorframework.io/docs/tasks/creating-operator-manifests/>. OLM takes
//! few kinds of objects, and names and namespaces of its own choice, so what it cannot carry is said here, kind by kind;
//! a kind that nobody has thought of is a panic.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::bundle_webhooks;
use crate::manifests;

/// The name of the package.
const PACKAGE: &str = "nm-reconciler";

/// The channel that every version is in.
const CHANNEL: &str = "alpha";

/// Where OLM puts the certificate of a webhook: `tls.crt` and `tls.key`.
const CERTIFICATES: &str = "/tmp/k8s-webhook-server/serving-certs";

/// The oldest Kubernetes whose types the program is built with.
const OLDEST_KUBERNETES: &str = "1.33.0";

const ABOUT: &str = "Puts nodes into maintenance and gives them back as they were";

const DESCRIPTION: &str = "\
Creating a `NodeMaintenance` cordons its node and moves the pods away through the Eviction API; its status says of each pod
that stays who refuses. Deleting it gives the node back exactly as it was. The objects are those of the medik8s
node-maintenance-operator, which must not run beside it.

Nodes in maintenance are leased in the namespace `medik8s-leases`. OLM makes no namespaces and grants no rights in others, so
apply `lease_namespace.yaml`, `lease_role.yaml` and `lease_role_binding.yaml` of the manifests before.";

/// The files of the bundle, by their paths in its folder.
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![
        ("Dockerfile".to_owned(), dockerfile()),
        ("metadata/annotations.yaml".to_owned(), yaml(&json!({"annotations": annotations()}))),
        ("tests/scorecard/config.yaml".to_owned(), yaml(&scorecard())),
    ];
    let mut version = ServiceVersion::default();
    for object in manifests::all() {
        if let Some(carried) = version.take(&object) {
            files.push((format!("manifests/{carried}.yaml"), yaml(&json!(object))));
        }
    }
    files.push((format!("manifests/{PACKAGE}.clusterserviceversion.yaml"), yaml(&version.finish())));
    files
}

fn yaml(value: &Value) -> String {
    format!("# Generated from manifests/; a test holds it.\n{}", serde_saphyr::to_string(value).unwrap())
}

/// How OLM's tools know what is in the folder; the image of the bundle carries the same as labels.
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
        "# Generated from manifests/; a test holds it.\nFROM scratch\n{labels}\n\
        COPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n"
    )
}

/// What `operator-sdk scorecard` is to look at.
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

/// The `ClusterServiceVersion` as it is gathered from the objects.
#[derive(Default)]
struct ServiceVersion {
    definitions: Vec<Value>,
    deployments: Vec<Value>,
    webhooks: Vec<Value>,
    /// Rules everywhere, and those in the program's own namespace.
    rules: [Vec<Value>; 2],
}

impl ServiceVersion {
    /// Takes what it says itself. What stands beside it in the bundle is named by the file that it is in.
    fn take(&mut self, object: &DynamicObject) -> Option<String> {
        let name = object.name_any();
        let account = manifests::service_account();
        match object.types.as_ref().unwrap().kind.as_str() {
            "CustomResourceDefinition" => {
                self.definitions.push(owned(object));
                Some(name)
            }
            "ClusterRole" if name == account.name_any() => {
                let is_for_olm =
                    |rule: &Value| rule["resources"] == json!(["validatingwebhookconfigurations"]);
                self.rules[0].extend(rules(object).into_iter().filter(|rule| !is_for_olm(rule)));
                None
            }
            "Role" if object.namespace() == account.namespace() => {
                self.rules[1].extend(rules(object));
                None
            }
            // OLM makes accounts, bindings and the webhook's service itself, and takes no namespaces and quotas. The role
            // that is left is about the leases of nodes, in a namespace that OLM does not look after: to grant it in all
            // namespaces would be to grant it where leases elect leaders and keep nodes alive.
            // The policy narrows a right that is not granted where OLM writes the webhook's configuration.
            "Namespace"
            | "ResourceQuota"
            | "Role"
            | "RoleBinding"
            | "ServiceAccount"
            | "ClusterRoleBinding"
            | "Service"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding" => None,
            "ClusterRole" => Some(format!("{name}_clusterrole")),
            "PodDisruptionBudget" => Some(format!("{name}_poddisruptionbudget")),
            "Deployment" => {
                self.deployments
                    .push(json!({"name": name, "label": object.labels(), "spec": object.data["spec"]}));
                None
            }
            "ValidatingWebhookConfiguration" => {
                let webhooks = object.data["webhooks"].as_array().unwrap();
                self.webhooks.extend(webhooks.iter().flat_map(bundle_webhooks::described));
                None
            }
            kind => panic!("what becomes of a {kind} under OLM?"),
        }
    }

    fn finish(mut self) -> Value {
        let version = env!("CARGO_PKG_VERSION");
        let account = manifests::service_account();
        if !self.webhooks.is_empty() {
            self.read_certificates();
        }
        let [everywhere, at_home] =
            self.rules.map(|rules| json!([{"serviceAccountName": account.name_any(), "rules": rules}]));
        let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .map(|mode| json!({"type": mode, "supported": mode == "AllNamespaces"}));
        let image = &self.deployments[0]["spec"]["template"]["spec"]["containers"][0]["image"];
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "ClusterServiceVersion",
            "metadata": {
                "name": format!("{PACKAGE}.v{version}"),
                // As OLM's tools write it: the namespace is chosen when it is installed.
                "namespace": "placeholder",
                "annotations": {
                    "alm-examples": serde_json::to_string_pretty(&samples()).unwrap(),
                    "capabilities": "Basic Install",
                    "categories": "OpenShift Optional",
                    "containerImage": image,
                    "description": ABOUT,
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
                        "clusterPermissions": everywhere,
                        "permissions": at_home,
                        "deployments": self.deployments,
                    },
                },
                "webhookdefinitions": self.webhooks,
            },
        })
    }

    /// Has the program serve what OLM issues, in place of certificates of its own.
    fn read_certificates(&mut self) {
        let variable = json!({"name": "NM_WEBHOOK_CERT_DIR", "value": CERTIFICATES});
        let variables = self.deployments[0].pointer_mut("/spec/template/spec/containers/0/env").unwrap();
        variables.as_array_mut().unwrap().push(variable);
    }
}

fn namespace(account: &ServiceAccount) -> String {
    account.namespace().unwrap()
}

fn rules(role: &DynamicObject) -> Vec<Value> {
    role.data["rules"].as_array().cloned().unwrap_or_default()
}

/// A definition as OLM's console shows it, with a line for each field.
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

/// The samples, which OLM's console offers.
fn samples() -> Vec<Value> {
    ["nodemaintenance.yaml", "nodemaintenance_drain.yaml"]
        .map(|file| manifests::read(&format!("samples/{file}")))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_in_words() {
        for (name, words) in [("nodeName", "Node name"), ("totalpods", "Totalpods"), ("phase", "Phase")] {
            assert_eq!(in_words(name), words);
        }
    }
}
