//! The resources of the API and their properties.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cluster::crd::Definition;
use crate::cluster::store::Collection;

/// A resource in one version, as in discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent traits of a resource, not one state")]
pub struct Resource {
    /// The collection of its objects.
    pub collection: Collection,
    /// API version without the group, such as `v1`.
    pub version: Cow<'static, str>,
    /// Kind, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// Singular name.
    pub singular: Cow<'static, str>,
    /// Short names for kubectl.
    pub short_names: Vec<Cow<'static, str>>,
    /// Categories such as `all`.
    pub categories: Vec<Cow<'static, str>>,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Whether it has a status subresource.
    pub status: bool,
    /// Whether `metadata.generation` counts changes outside of metadata and status.
    pub generation: bool,
    /// Whether a delete waits for a kubelet, as for pods.
    pub graceful: bool,
    /// The version of its CRD; none for built-in resources.
    pub definition: Option<Arc<Definition>>,
}

/// Nodes.
pub const NODES: Collection = Collection::fixed("", "nodes");
/// Namespaces.
pub const NAMESPACES: Collection = Collection::fixed("", "namespaces");
/// Pods.
pub const PODS: Collection = Collection::fixed("", "pods");
/// Core events, which `events.k8s.io` serves too.
pub const EVENTS: Collection = Collection::fixed("", "events");
/// `events.k8s.io` events, which are stored as core events.
pub const NEW_EVENTS: Collection = Collection::fixed("events.k8s.io", "events");
/// `ReplicaSets`.
pub const REPLICA_SETS: Collection = Collection::fixed("apps", "replicasets");
/// Deployments.
pub const DEPLOYMENTS: Collection = Collection::fixed("apps", "deployments");
/// `StatefulSets`.
pub const STATEFUL_SETS: Collection = Collection::fixed("apps", "statefulsets");
/// `DaemonSets`.
pub const DAEMON_SETS: Collection = Collection::fixed("apps", "daemonsets");
/// Jobs.
pub const JOBS: Collection = Collection::fixed("batch", "jobs");
/// Disruption budgets.
pub const BUDGETS: Collection = Collection::fixed("policy", "poddisruptionbudgets");
/// Leases.
pub const LEASES: Collection = Collection::fixed("coordination.k8s.io", "leases");
/// Service accounts.
pub const SERVICE_ACCOUNTS: Collection = Collection::fixed("", "serviceaccounts");
/// Roles of a namespace.
pub const ROLES: Collection = Collection::fixed("rbac.authorization.k8s.io", "roles");
/// Role bindings.
pub const ROLE_BINDINGS: Collection = Collection::fixed("rbac.authorization.k8s.io", "rolebindings");
/// Cluster roles.
pub const CLUSTER_ROLES: Collection = Collection::fixed("rbac.authorization.k8s.io", "clusterroles");
/// Cluster role bindings.
pub const CLUSTER_ROLE_BINDINGS: Collection =
    Collection::fixed("rbac.authorization.k8s.io", "clusterrolebindings");
/// Resource quotas.
pub const QUOTAS: Collection = Collection::fixed("", "resourcequotas");
/// Services.
pub const SERVICES: Collection = Collection::fixed("", "services");
/// Endpoint slices.
pub const ENDPOINT_SLICES: Collection = Collection::fixed("discovery.k8s.io", "endpointslices");
/// Priority classes.
pub const PRIORITY_CLASSES: Collection = Collection::fixed("scheduling.k8s.io", "priorityclasses");
/// Persistent volumes.
pub const VOLUMES: Collection = Collection::fixed("", "persistentvolumes");
/// Persistent volume claims.
pub const CLAIMS: Collection = Collection::fixed("", "persistentvolumeclaims");
/// Attachments of volumes to nodes.
pub const ATTACHMENTS: Collection = Collection::fixed("storage.k8s.io", "volumeattachments");
/// Custom resource definitions.
pub const CRDS: Collection = Collection::fixed("apiextensions.k8s.io", "customresourcedefinitions");

/// A built-in resource: group, version, plural, kind, short names and traits.
type BuiltInResource = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

/// The built-in resources, in the order of discovery.
///
/// Each property is a field of [`Resource`].
#[rustfmt::skip]
const BUILT_IN: &[BuiltInResource] = &[
    ("", "v1", "configmaps", "ConfigMap", "cm", "namespaced"),
    ("", "v1", "endpoints", "Endpoints", "ep", "namespaced"),
    ("", "v1", "events", "Event", "ev", "namespaced"),
    ("", "v1", "limitranges", "LimitRange", "limits", "namespaced"),
    ("", "v1", "namespaces", "Namespace", "ns", "status"),
    ("", "v1", "nodes", "Node", "no", "status"),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", "namespaced status"),
    ("", "v1", "persistentvolumes", "PersistentVolume", "pv", "status"),
    ("", "v1", "pods", "Pod", "po", "namespaced status generation graceful all"),
    ("", "v1", "podtemplates", "PodTemplate", "", "namespaced generation"),
    ("", "v1", "replicationcontrollers", "ReplicationController", "rc", "namespaced status generation all"),
    ("", "v1", "resourcequotas", "ResourceQuota", "quota", "namespaced status"),
    ("", "v1", "secrets", "Secret", "", "namespaced"),
    ("", "v1", "serviceaccounts", "ServiceAccount", "sa", "namespaced"),
    ("", "v1", "services", "Service", "svc", "namespaced status all"),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", "", "namespaced"),
    ("apps", "v1", "daemonsets", "DaemonSet", "ds", "namespaced status generation all"),
    ("apps", "v1", "deployments", "Deployment", "deploy", "namespaced status generation all"),
    ("apps", "v1", "replicasets", "ReplicaSet", "rs", "namespaced status generation all"),
    ("apps", "v1", "statefulsets", "StatefulSet", "sts", "namespaced status generation all"),
    ("events.k8s.io", "v1", "events", "Event", "ev", "namespaced"),
    ("batch", "v1", "jobs", "Job", "", "namespaced status generation all"),
    ("networking.k8s.io", "v1", "ingressclasses", "IngressClass", "", "generation"),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", "ing", "namespaced status generation"),
    ("networking.k8s.io", "v1", "ipaddresses", "IPAddress", "ip", ""),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "netpol", "namespaced generation"),
    ("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", "", "status"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", "namespaced status generation"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", "", ""),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", "", ""),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", "", "namespaced"),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", "", "namespaced"),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", "sc", ""),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", "", "status"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "",
        "generation"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "",
        "status generation"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "",
        "generation"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "",
        "generation"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", "crd crds",
        "status generation"),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "pc", ""),
    ("coordination.k8s.io", "v1", "leases", "Lease", "", "namespaced"),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "", ""),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "", "namespaced generation"),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", "", "status generation"),
    ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", "",
        "status generation"),
];

/// The built-in resources, in the order of discovery.
pub fn built_in() -> Vec<Resource> {
    BUILT_IN.iter().map(|row| Resource::fixed(*row)).collect()
}

impl Resource {
    fn fixed((group, version, plural, kind, short_names, traits): BuiltInResource) -> Self {
        let has = |word| traits.split(' ').any(|each| each == word);
        let in_all: &[&str] = if has("all") { &["all"] } else { &[] };
        Self {
            collection: Collection::fixed(group, plural),
            version: version.into(),
            kind: kind.into(),
            singular: kind.to_lowercase().into(),
            short_names: short_names.split_whitespace().map(Into::into).collect(),
            categories: in_all.iter().map(|&name| name.into()).collect(),
            namespaced: has("namespaced"),
            status: has("status"),
            generation: has("generation"),
            graceful: has("graceful"),
            definition: None,
        }
    }

    /// The collection of its objects: `events.k8s.io` is a view of core events.
    pub fn storage(&self) -> &Collection {
        const CORE: &Collection = &EVENTS;
        if self.collection == NEW_EVENTS { CORE } else { &self.collection }
    }

    /// API group.
    pub fn group(&self) -> &str {
        &self.collection.group
    }

    /// Plural name.
    pub fn plural(&self) -> &str {
        &self.collection.plural
    }

    /// `group/version`, or only the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group().is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group(), self.version)
        }
    }

    /// The metadata fields that a status update may change.
    pub fn metadata_of_status(&self) -> &'static [&'static str] {
        match (self.group(), self.plural()) {
            _ if self.definition.is_some() => &[],
            ("networking.k8s.io", "servicecidrs") | ("storage.k8s.io", "volumeattachments") => &[],
            ("", "pods") => &["labels", "annotations", "finalizers"],
            ("apps", "deployments") => &["annotations", "finalizers", "ownerReferences"],
            _ => &["labels", "annotations", "finalizers", "ownerReferences"],
        }
    }
}
