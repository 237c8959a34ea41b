//! The manifests in `manifests/`, read from the files that `kubectl apply -k manifests/` installs.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The kinds that run the reconciler in the cluster. Tests run it as a local process.
const IN_CLUSTER_KINDS: [&str; 5] =
    ["Deployment", "PodDisruptionBudget", "ResourceQuota", "Service", "ValidatingWebhookConfiguration"];

/// The folder of the manifests.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

/// All objects, in the order of the kustomization.
pub fn all() -> Vec<DynamicObject> {
    files_of("kustomization.yaml").iter().map(|file| serde_json::from_value(read(file)).unwrap()).collect()
}

/// The flow schemas of nm-reconciler and its priority level.
pub fn flow_schemas() -> Vec<DynamicObject> {
    let is_one = |object: &DynamicObject| {
        object.types.as_ref().is_some_and(|types| types.api_version.starts_with("flowcontrol."))
    };
    all().into_iter().filter(is_one).collect()
}

/// The objects of a component.
pub fn component(name: &str) -> Vec<DynamicObject> {
    let files = files_of(&format!("components/{name}/kustomization.yaml"));
    files.iter().map(|file| serde_json::from_value(read(file)).unwrap()).collect()
}

/// The objects that the reconciler needs wherever it runs.
pub fn prerequisites() -> Vec<DynamicObject> {
    let is_one =
        |object: &DynamicObject| !IN_CLUSTER_KINDS.contains(&object.types.as_ref().unwrap().kind.as_str());
    all().into_iter().filter(is_one).collect()
}

/// The files that a kustomization lists, by their paths below [`folder`].
pub fn files_of(kustomization: &str) -> Vec<String> {
    let list = read(kustomization);
    let parent = kustomization.strip_suffix("kustomization.yaml").unwrap();
    let files = list["resources"].as_array().expect("the kustomization lists resources");
    files.iter().map(|file| format!("{parent}{}", file.as_str().unwrap())).collect()
}

/// The content of a file below [`folder`].
pub fn read(file: &str) -> Value {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The configuration of the webhook.
pub fn webhook_configuration() -> DynamicObject {
    serde_json::from_value(read("webhook_configuration.yaml")).unwrap()
}

/// The reconciler's service account.
pub fn service_account() -> ServiceAccount {
    the_one()
}

/// The reconciler's permissions in all namespaces, without those of components.
pub fn cluster_role() -> ClusterRole {
    let name = service_account().name_any();
    all_of::<ClusterRole>().into_iter().find(|role| role.name_any() == name).expect("the reconciler's role")
}

/// The components that grant optional permissions.
pub const PERMISSION_COMPONENTS: [&str; 5] =
    ["node_conditions", "pod_deletion", "volume_detach", "surge", "virtual_machines"];

/// All rules that can be granted to the reconciler, each with its namespace; `None` stands for the whole cluster.
pub fn rules() -> Vec<(Option<String>, PolicyRule)> {
    let granted = PERMISSION_COMPONENTS
        .into_iter()
        .flat_map(component)
        .filter_map(|object| object.try_parse::<ClusterRole>().ok());
    let roles = granted.filter(|role| role.rules.is_some()).chain([cluster_role()]);
    let everywhere = roles.flat_map(|role| role.rules.unwrap_or_default()).map(|rule| (None, rule));
    let in_its_namespace = |role: Role| {
        let namespace = role.metadata.namespace;
        role.rules.into_iter().flatten().map(move |rule| (namespace.clone(), rule))
    };
    everywhere.chain(all_of::<Role>().into_iter().flat_map(in_its_namespace)).collect()
}

/// The only object of a kind.
pub fn the_one<K: Resource<DynamicType = ()> + DeserializeOwned>() -> K {
    let mut found = all_of::<K>();
    assert_eq!(found.len(), 1, "one {}", K::kind(&()));
    found.remove(0)
}

/// All objects of a kind.
pub fn all_of<K: Resource<DynamicType = ()> + DeserializeOwned>() -> Vec<K> {
    let is_wanted =
        |object: &DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == K::kind(&()));
    all().into_iter().filter(is_wanted).map(|object| object.try_parse().unwrap()).collect()
}
