//! Several programs apply the same manifests: kubectl, the plugin, and tools that apply what is in git. In every order there are
//! neither conflicts nor changes.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nm_tests::cluster::Cluster;
use nm_tests::manifests;
use nm_tests::programs::{Outcome, kubectl_at, plugin};
use nm_tests::skip::has_kubectl;
use nm_tests::wait::wait_until;
use serde_json::json;

const COMPONENTS: [&str; 7] = [
    "network_policy",
    "node_conditions",
    "pod_deletion",
    "surge",
    "virtual_machines",
    "roll",
    "volume_detach",
];

/// The API of the object's kind, in its namespace.
fn api_of(cluster: &Cluster, object: &DynamicObject) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&object.types.as_ref().unwrap().try_into().unwrap());
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(cluster.client.clone(), &namespace, &resource),
        None => Api::all_with(cluster.client.clone(), &resource),
    }
}

/// The objects of the manifests and of the components. Only the definition has its own name, so that nothing that is installed
/// in the cluster changes.
fn objects() -> Vec<DynamicObject> {
    let mut objects = manifests::all();
    objects.extend(COMPONENTS.into_iter().flat_map(manifests::component));
    for object in &mut objects {
        let kind = object.types.as_ref().unwrap().kind.clone();
        if kind != "CustomResourceDefinition" {
            object.metadata.name = Some(format!("e2e-{}", object.name_any()));
        }
        if kind == "Deployment" {
            object.data["spec"]["replicas"] = json!(0);
        }
    }
    objects
}

/// What remains of an object without the fields that record who wrote it, and without annotations, in which kubectl and
/// controllers keep their notes.
fn content(object: &DynamicObject) -> serde_json::Value {
    let mut content = serde_json::to_value(object).unwrap();
    content.as_object_mut().unwrap().remove("status");
    let metadata = content["metadata"].as_object_mut().unwrap();
    metadata
        .retain(|field, _| !matches!(field.as_str(), "managedFields" | "resourceVersion" | "annotations"));
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn two_field_managers_that_apply_a_manifest_have_no_conflict() {
    let cluster = Cluster::start(0).await;
    // Its objects below have another name, and this namespace.
    cluster.grant("roll").await;
    let mut conflicts = Vec::new();
    for object in objects() {
        let (api, name) = (api_of(&cluster, &object), object.name_any());
        let apply = async |manager: &str| {
            api.patch(&name, &PatchParams::apply(manager), &Patch::Apply(&object)).await
        };
        // The definition is there, and a test that failed may have left other objects.
        let first =
            api.patch(&name, &PatchParams::apply("e2e-git").force(), &Patch::Apply(&object)).await.unwrap();
        match apply("e2e-nm").await {
            Ok(second) => assert_eq!(content(&first), content(&second), "{name}"),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                conflicts.push(format!("{} {name}: {}", object.types.as_ref().unwrap().kind, status.message));
            }
            Err(error) => panic!("{name}: {error}"),
        }
        let third = apply("e2e-git").await.unwrap();
        assert_eq!(content(&first), content(&third), "{name}");
        if object.types.as_ref().unwrap().kind != "CustomResourceDefinition" {
            cluster.remove(&object).await;
        }
    }
    assert_eq!(conflicts, [""; 0]);
}

/// Who installs the manifests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Installer {
    /// `kubectl apply -k`, which merges on the client.
    Kubectl,
    /// Server-side apply by a tool that applies what is in git.
    Git,
    /// `kubectl nm install`.
    Plugin,
    /// The same with a permission that the others do not grant.
    PluginWithGrant,
}

impl Installer {
    async fn install(self, cluster: &Cluster) -> Outcome {
        let folder = manifests::folder();
        let kustomize = ["apply", "-k", folder.to_str().unwrap()];
        let outcome = match self {
            Self::Kubectl => kubectl_at(cluster.kubeconfig(), &kustomize).await,
            Self::Git => {
                let by_server = ["--server-side", "--field-manager=git"];
                kubectl_at(cluster.kubeconfig(), &[&kustomize[..], &by_server].concat()).await
            }
            Self::Plugin => plugin(cluster, &["install", "--wait=false"]).await,
            Self::PluginWithGrant => {
                let image =
                    manifests::read("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["image"]
                        .clone();
                let grant =
                    ["install", "--grant", "surge", "--image", image.as_str().unwrap(), "--wait=false"];
                plugin(cluster, &grant).await
            }
        };
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
        wait_until(&definitions, &nm_shared::api::crd::crd().name_any(), "there", |found| found.is_some())
            .await;
        assert_eq!(outcome.code, Some(0), "{self:?}: {outcome:?}");
        outcome
    }
}

/// The content of everything that is installed, by kind and name.
async fn installed(cluster: &Cluster) -> BTreeMap<String, serde_json::Value> {
    let mut found = BTreeMap::new();
    for object in manifests::all() {
        let kind = object.types.as_ref().unwrap().kind.clone();
        let mut content = content(&api_of(cluster, &object).get(&object.name_any()).await.unwrap());
        let metadata = content["metadata"].as_object_mut().unwrap();
        metadata.remove("generation");
        // Only the plugin sets it, and no other installer removes it.
        if let Some(labels) = metadata.get_mut("labels").and_then(serde_json::Value::as_object_mut) {
            labels.remove("app.kubernetes.io/version");
        }
        found.insert(format!("{kind} {}", object.name_any()), content);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_git_and_the_plugin_can_install_in_any_order() {
    use Installer::{Git, Kubectl, Plugin, PluginWithGrant};

    if !has_kubectl() {
        return;
    }
    for order in [
        [Kubectl, Plugin, Git, PluginWithGrant],
        [Kubectl, Git, PluginWithGrant, Plugin],
        [Git, Plugin, Kubectl, PluginWithGrant],
        [Git, Kubectl, PluginWithGrant, Plugin],
        [PluginWithGrant, Kubectl, Git, Plugin],
        [Plugin, Git, Kubectl, PluginWithGrant],
    ] {
        let cluster = Cluster::bare_sandbox(1, 0, |sandbox| sandbox).await;
        let _ = order[0].install(&cluster).await;
        let first = installed(&cluster).await;
        for again in order.into_iter().skip(1).chain(order) {
            let outcome = again.install(&cluster).await;
            assert_eq!(installed(&cluster).await, first, "{again:?} of {order:?}");
            if again == Plugin || again == PluginWithGrant {
                let configured: Vec<&str> =
                    outcome.stderr.lines().filter(|line| line.starts_with("  ")).collect();
                let labels =
                    |line: &&str| !line.contains("metadata.labels") && !line.contains("metadata.annotations");
                assert_eq!(configured.into_iter().find(labels), None, "{again:?} of {order:?}: {outcome:?}");
            }
        }
        let doctor = plugin(&cluster, &["doctor", "-o", "json"]).await;
        let checks: serde_json::Value = serde_json::from_str(&doctor.stdout).unwrap();
        for check in ["definition", "policy"] {
            let found =
                checks["findings"].as_array().unwrap().iter().find(|found| found["check"] == check).unwrap();
            assert_eq!(found["result"], "ok", "{order:?}: {found:#}");
        }
    }
}
