//! The manifests of nm-reconciler: the files of `manifests/`, built into the program, and the settings that change them.
//!
//! Everything here is pure. The files are the only source of installed objects.

use std::collections::BTreeSet;

use nm_core::client::reconciler_deployment::{self, MAX_UNAVAILABLE, NAME_LABEL};
use nm_shared::Grant;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "node-maintenance";

/// The label with the version of the plugin that installed a Deployment.
pub(crate) const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The files by name, in the order in which they are installed: that of `kustomization.yaml`.
const FILES: &[(&str, &str)] = &[
    ("crd.yaml", include_str!("../../../manifests/crd.yaml")),
    ("namespace.yaml", include_str!("../../../manifests/namespace.yaml")),
    ("service_account.yaml", include_str!("../../../manifests/service_account.yaml")),
    ("priority_level.yaml", include_str!("../../../manifests/priority_level.yaml")),
    ("flow_schema.yaml", include_str!("../../../manifests/flow_schema.yaml")),
    ("lease_flow_schema.yaml", include_str!("../../../manifests/lease_flow_schema.yaml")),
    ("cluster_role.yaml", include_str!("../../../manifests/cluster_role.yaml")),
    ("cluster_role_binding.yaml", include_str!("../../../manifests/cluster_role_binding.yaml")),
    ("webhook_policy.yaml", include_str!("../../../manifests/webhook_policy.yaml")),
    ("webhook_policy_binding.yaml", include_str!("../../../manifests/webhook_policy_binding.yaml")),
    ("node_policy.yaml", include_str!("../../../manifests/node_policy.yaml")),
    ("node_policy_binding.yaml", include_str!("../../../manifests/node_policy_binding.yaml")),
    ("maintenance_policy.yaml", include_str!("../../../manifests/maintenance_policy.yaml")),
    ("maintenance_policy_binding.yaml", include_str!("../../../manifests/maintenance_policy_binding.yaml")),
    ("lease_namespace.yaml", include_str!("../../../manifests/lease_namespace.yaml")),
    ("lease_role.yaml", include_str!("../../../manifests/lease_role.yaml")),
    ("lease_role_binding.yaml", include_str!("../../../manifests/lease_role_binding.yaml")),
    ("event_role.yaml", include_str!("../../../manifests/event_role.yaml")),
    ("event_role_binding.yaml", include_str!("../../../manifests/event_role_binding.yaml")),
    ("leader_role.yaml", include_str!("../../../manifests/leader_role.yaml")),
    ("leader_role_binding.yaml", include_str!("../../../manifests/leader_role_binding.yaml")),
    ("viewer_cluster_role.yaml", include_str!("../../../manifests/viewer_cluster_role.yaml")),
    ("editor_cluster_role.yaml", include_str!("../../../manifests/editor_cluster_role.yaml")),
    ("resource_quota.yaml", include_str!("../../../manifests/resource_quota.yaml")),
    ("pod_disruption_budget.yaml", include_str!("../../../manifests/pod_disruption_budget.yaml")),
    ("deployment.yaml", include_str!("../../../manifests/deployment.yaml")),
    ("webhook_service.yaml", include_str!("../../../manifests/webhook_service.yaml")),
    ("webhook_configuration.yaml", include_str!("../../../manifests/webhook_configuration.yaml")),
];

fn files_of(grant: Grant) -> &'static [(&'static str, &'static str)] {
    macro_rules! component {
        ($name:literal $(, $more:literal)*) => {
            component!(@files $name, "cluster_role", "cluster_role_binding" $(, $more)*)
        };
        (@files $name:literal, $($file:literal),*) => {
            &[$((
                concat!($name, "/", $file, ".yaml"),
                include_str!(concat!("../../../manifests/components/", $name, "/", $file, ".yaml")),
            )),*]
        };
    }
    match grant {
        Grant::NodeConditions => component!("node_conditions"),
        Grant::PodDeletion => component!("pod_deletion"),
        Grant::VolumeDetach => component!("volume_detach"),
        Grant::Surge => component!("surge", "policy", "policy_binding"),
        Grant::VirtualMachines => component!("virtual_machines"),
        Grant::Roll => {
            component!(@files "roll", "namespace", "service_account", "cluster_role", "cluster_role_binding",
            "role", "role_binding", "event_role", "event_role_binding", "policy", "policy_binding")
        }
    }
}

/// The settings of an installation. `None` means as in the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) replicas: Option<u32>,
    /// The limit of unavailable nodes, as an environment variable.
    pub(crate) max_unavailable: Option<MaxUnavailable>,
    /// Whether nm-reconciler has a priority level of its own.
    pub(crate) flow_schemas: Option<bool>,
    pub(crate) grants: BTreeSet<Grant>,
}

impl Settings {
    /// These settings, completed by those that the installed Deployment shows.
    pub(crate) fn or_installed(self, deployment: &Value) -> Self {
        let replicas = || deployment["spec"]["replicas"].as_u64().and_then(|count| u32::try_from(count).ok());
        let variable = MAX_UNAVAILABLE.variable_of(deployment).and_then(|limit| limit.parse().ok());
        Self {
            namespace: self.namespace,
            image: self.image.or_else(|| reconciler_deployment::image(deployment).map(str::to_owned)),
            replicas: self.replicas.or_else(replicas),
            max_unavailable: self.max_unavailable.or(variable),
            flow_schemas: self.flow_schemas,
            grants: self.grants,
        }
    }
}

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let mut objects: Vec<Value> = FILES.iter().map(|(name, text)| read(name, text)).collect();
    if settings.flow_schemas == Some(false) {
        objects.retain(|object| !is_flow_schema(object));
    }
    objects.extend(settings.grants.iter().flat_map(|grant| grant_objects(*grant)));
    for object in &mut objects {
        if let Some(namespace) = &settings.namespace {
            rename(object, namespace);
        }
        if object["kind"] == "Deployment" {
            adjust(object, settings);
        }
    }
    objects
}

/// The objects of an optional permission, in the namespace of the files: its `ClusterRole` and `ClusterRoleBinding`, and what
/// limits it.
pub(crate) fn grant_objects(grant: Grant) -> Vec<Value> {
    files_of(grant).iter().map(|(name, text)| read(name, text)).collect()
}

/// The `ClusterRoleBinding` of an optional permission.
pub(crate) fn grant_binding(grant: Grant) -> Option<Value> {
    grant_objects(grant).into_iter().find(|object| object["kind"] == "ClusterRoleBinding")
}

/// Removes what a definition has only since Kubernetes 1.30, and what older API servers refuse.
pub(crate) fn remove_selectable_fields(object: &mut Value) {
    let versions = object.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        version.remove("selectableFields");
    }
}

/// Whether an object is an admission policy, or binds one. Kubernetes before 1.30 has none.
pub(crate) fn is_policy(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
}

/// The flow schemas of nm-reconciler and the priority level that one of them names, in the order of removal.
pub(crate) fn flow_schemas() -> Vec<Value> {
    objects(&Settings::default()).into_iter().rev().filter(is_flow_schema).collect()
}

/// Whether an object is a flow schema or a priority level. Kubernetes before 1.29 does not have this version of them.
pub(crate) fn is_flow_schema(object: &Value) -> bool {
    object["apiVersion"] == "flowcontrol.apiserver.k8s.io/v1"
}

pub(crate) fn crd() -> Value {
    let (name, text) = FILES[0];
    read(name, text)
}

/// The image in the files, which is not published.
pub(crate) fn default_image() -> String {
    let objects = objects(&Settings::default());
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    deployment.and_then(|deployment| Settings::default().or_installed(deployment).image).unwrap_or_default()
}

/// Whether an object is the namespace of nm-reconciler, or applies to the whole of it. Neither is applied to a namespace that
/// others have created.
pub(crate) fn is_about_own_namespace(object: &Value) -> bool {
    object["kind"] == "ResourceQuota" || object["kind"] == "Namespace" && !is_lease_namespace(object)
}

/// Whether an object is the namespace of node leases, which other operators use too.
pub(crate) fn is_lease_namespace(object: &Value) -> bool {
    object["kind"] == "Namespace" && object["metadata"]["name"] == LEASE_NAMESPACE
}

pub(crate) fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][NAME_LABEL.0] == NAME_LABEL.1
}

fn read(name: &str, text: &str) -> Value {
    // The files are built in, and a test parses them all.
    serde_saphyr::from_str(text).unwrap_or_else(|error| unreachable!("{name}: {error}"))
}

/// Moves objects in nm-reconciler's namespace, and references to it, to another namespace.
fn rename(object: &mut Value, namespace: &str) {
    if object["kind"] == "Namespace" && object["metadata"]["name"] == NAMESPACE {
        object["metadata"]["name"] = json!(namespace);
    }
    match object {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                if key == "namespace" && value == NAMESPACE {
                    *value = json!(namespace);
                } else if key == "namespaces" && *value == json!([NAMESPACE]) {
                    *value = json!([namespace]);
                } else {
                    rename(value, namespace);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, namespace)),
        _ => {}
    }
}

fn adjust(deployment: &mut Value, settings: &Settings) {
    deployment["metadata"]["labels"][VERSION_LABEL] = json!(env!("CARGO_PKG_VERSION"));
    if let Some(replicas) = settings.replicas {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    let Some(container) = reconciler_deployment::container_mut(deployment) else { return };
    if let Some(image) = &settings.image {
        container["image"] = json!(image);
    }
    if let Some(limit) = settings.max_unavailable {
        MAX_UNAVAILABLE.set_variable(container, &limit.to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
        objects.iter().find(|object| object["kind"] == kind).unwrap()
    }

    #[test]
    fn the_files_are_those_of_the_kustomization_in_its_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let text = std::fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
        let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(json!(names), kustomization["resources"]);
        assert_eq!(objects(&Settings::default()).len(), FILES.len());
        assert_eq!(crd()["kind"], "CustomResourceDefinition");
        assert!(
            default_image().starts_with("localhost/"),
            "a name that no cluster pulls from a public registry: {}",
            default_image()
        );
    }

    #[test]
    fn settings_change_only_their_fields() {
        let settings = Settings {
            namespace: Some("kube-nodes".into()),
            image: Some("r.example.com/nm:2".into()),
            replicas: Some(3),
            max_unavailable: Some("10%".parse().unwrap()),
            flow_schemas: None,
            grants: BTreeSet::from(Grant::ALL),
        };
        let changed = objects(&settings);
        let text = serde_json::to_string(&changed).unwrap();
        assert!(!text.contains(&format!("\"{NAMESPACE}\"")), "{text}");
        assert!(text.contains(LEASE_NAMESPACE));
        let deployment = of_kind(&changed, "Deployment");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            (&deployment["spec"]["replicas"], &container["image"]),
            (&json!(3), &json!("r.example.com/nm:2"))
        );
        let limit = json!({"name": "NM_MAX_UNAVAILABLE", "value": "10%"});
        assert_eq!(container["env"].as_array().unwrap().last(), Some(&limit));
        assert_eq!(of_kind(&changed, "Namespace")["metadata"]["name"], "kube-nodes");
        let bindings = changed.iter().filter(|object| object["kind"] == "ClusterRoleBinding");
        let subjects: Vec<&Value> = bindings.map(|binding| &binding["subjects"][0]["namespace"]).collect();
        let mut namespaces = vec!["kube-nodes"; Grant::ALL.len()];
        namespaces.push("node-maintenance-rolls");
        assert_eq!(subjects, namespaces);

        let plain = objects(&Settings::default());
        assert!(!of_kind(&plain, "Deployment").to_string().contains("NM_MAX_UNAVAILABLE"));
        assert_eq!(of_kind(&plain, "Namespace")["metadata"]["name"], NAMESPACE);
    }

    #[test]
    fn an_optional_permission_is_granted_by_its_component() {
        let plain = objects(&Settings::default()).len();
        for grant in Grant::ALL {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/components");
            assert!(folder.join(grant.as_str().replace('-', "_")).join("kustomization.yaml").exists());
            if grant.permissions().is_empty() {
                continue;
            }
            let settings = Settings { grants: [grant].into(), ..Settings::default() };
            let granted = objects(&settings).split_off(plain);
            let policies = granted.iter().filter(|object| is_policy(object)).count();
            assert_eq!((policies, granted.len()), if grant == Grant::Surge { (2, 4) } else { (0, 2) });
            let rules = of_kind(&granted, "ClusterRole")["rules"].as_array().unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let texts = |value: &Value| value.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
            let permitted = rules.iter().flat_map(|rule| {
                let [groups, resources, verbs] =
                    ["apiGroups", "resources", "verbs"].map(|field| texts(&rule[field]));
                assert_eq!((groups.len(), resources.len()), (1, 1), "{rule}");
                verbs.into_iter().map(move |verb| (verb, groups[0].clone(), resources[0].clone()))
            });
            let wanted = grant.permissions().iter().map(|(verb, group, resource)| {
                ((*verb).to_owned(), (*group).to_owned(), (*resource).to_owned())
            });
            assert_eq!(permitted.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_flow_schemas_can_be_left_out_and_their_level_is_removed_last() {
        let kinds: Vec<Value> = flow_schemas().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["FlowSchema", "FlowSchema", "PriorityLevelConfiguration"]);
        let all = objects(&Settings::default());
        let fewer = objects(&Settings { flow_schemas: Some(false), ..Settings::default() });
        assert_eq!(fewer.len() + 3, all.len());
        assert!(!fewer.iter().any(is_flow_schema));
    }

    #[test]
    fn an_upgrade_keeps_settings_that_are_not_given() {
        let given = Settings {
            image: Some("r.example.com/nm:1".into()),
            replicas: Some(1),
            max_unavailable: Some("2".parse().unwrap()),
            ..Settings::default()
        };
        let installed = objects(&given);
        let installed = of_kind(&installed, "Deployment");
        assert_eq!(Settings::default().or_installed(installed), given);
        let asked = Settings { replicas: Some(2), ..Settings::default() };
        assert_eq!(asked.clone().or_installed(installed), Settings { replicas: Some(2), ..given });
        assert_eq!(asked.clone().or_installed(&Value::Null), asked);
    }

    #[test]
    fn objects_about_the_whole_namespace_are_found() {
        let objects = objects(&Settings::default());
        let about: Vec<&Value> = objects.iter().filter(|object| is_about_own_namespace(object)).collect();
        let kinds: Vec<&Value> = about.iter().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["Namespace", "ResourceQuota"]);
        assert!(about.iter().all(|object| is_ours(object)));
        assert_eq!(objects.iter().filter(|object| is_lease_namespace(object)).count(), 1);
    }
}
