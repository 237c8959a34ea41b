//! What kinds of object there are and how each behaves where they differ.

use std::borrow::Cow;

use crate::store::Collection;

/// One resource in one version, as discovery lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent traits of a resource, not one state"
)]
pub struct Resource {
    /// Where its objects are kept.
    pub collection: Collection,
    /// API version without the group, as in `v1`.
    pub version: Cow<'static, str>,
    /// Kind, as in `Pod`.
    pub kind: Cow<'static, str>,
    /// Singular name.
    pub singular: Cow<'static, str>,
    /// Names that kubectl takes for the plural.
    pub short_names: Vec<Cow<'static, str>>,
    /// Groups of resources such as `all`.
    pub categories: Vec<Cow<'static, str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is written apart from the rest.
    pub status: bool,
    /// Whether `metadata.generation` counts the changes of what is not metadata or status.
    pub generation: bool,
    /// Whether a delete waits for a kubelet, as it does for pods.
    pub graceful: bool,
}

/// Nodes.
pub const NODES: Collection = Collection::fixed("", "nodes");
/// Namespaces.
pub const NAMESPACES: Collection = Collection::fixed("", "namespaces");
/// Pods.
pub const PODS: Collection = Collection::fixed("", "pods");
/// Events of the core group, which `events.k8s.io` shows too.
pub const EVENTS: Collection = Collection::fixed("", "events");
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
/// Custom resource definitions.
pub const CRDS: Collection = Collection::fixed("apiextensions.k8s.io", "customresourcedefinitions");

/// The resources that every cluster has, in the order of discovery.
pub fn built_in() -> Vec<Resource> {
    let config = |group, plural, version, kind, singular, short: &[&'static str], namespaced| {
        Resource::fixed(
            Collection::fixed(group, plural),
            version,
            kind,
            singular,
            short,
            namespaced,
        )
    };
    let rbac = "rbac.authorization.k8s.io";
    let admission = "admissionregistration.k8s.io";
    vec![
        config("", "namespaces", "v1", "Namespace", "namespace", &["ns"], false).with_status(),
        config("", "nodes", "v1", "Node", "node", &["no"], false).with_status(),
        config("", "pods", "v1", "Pod", "pod", &["po"], true)
            .with_status()
            .counted()
            .graceful()
            .in_all(),
        config("", "services", "v1", "Service", "service", &["svc"], true)
            .with_status()
            .in_all(),
        config("", "configmaps", "v1", "ConfigMap", "configmap", &["cm"], true),
        config("", "secrets", "v1", "Secret", "secret", &[], true),
        config(
            "",
            "serviceaccounts",
            "v1",
            "ServiceAccount",
            "serviceaccount",
            &["sa"],
            true,
        ),
        config("", "events", "v1", "Event", "event", &["ev"], true),
        config(
            "",
            "persistentvolumeclaims",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaim",
            &["pvc"],
            true,
        )
        .with_status(),
        config(
            "apps",
            "deployments",
            "v1",
            "Deployment",
            "deployment",
            &["deploy"],
            true,
        )
        .with_status()
        .counted()
        .in_all(),
        config(
            "apps",
            "replicasets",
            "v1",
            "ReplicaSet",
            "replicaset",
            &["rs"],
            true,
        )
        .with_status()
        .counted()
        .in_all(),
        config(
            "apps",
            "statefulsets",
            "v1",
            "StatefulSet",
            "statefulset",
            &["sts"],
            true,
        )
        .with_status()
        .counted()
        .in_all(),
        config(
            "apps",
            "daemonsets",
            "v1",
            "DaemonSet",
            "daemonset",
            &["ds"],
            true,
        )
        .with_status()
        .counted()
        .in_all(),
        config("batch", "jobs", "v1", "Job", "job", &[], true)
            .with_status()
            .counted()
            .in_all(),
        config(
            "policy",
            "poddisruptionbudgets",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudget",
            &["pdb"],
            true,
        )
        .with_status()
        .counted(),
        config("coordination.k8s.io", "leases", "v1", "Lease", "lease", &[], true),
        config(
            "scheduling.k8s.io",
            "priorityclasses",
            "v1",
            "PriorityClass",
            "priorityclass",
            &["pc"],
            false,
        ),
        config(rbac, "roles", "v1", "Role", "role", &[], true),
        config(
            rbac,
            "rolebindings",
            "v1",
            "RoleBinding",
            "rolebinding",
            &[],
            true,
        ),
        config(
            rbac,
            "clusterroles",
            "v1",
            "ClusterRole",
            "clusterrole",
            &[],
            false,
        ),
        config(
            rbac,
            "clusterrolebindings",
            "v1",
            "ClusterRoleBinding",
            "clusterrolebinding",
            &[],
            false,
        ),
        config(
            admission,
            "validatingwebhookconfigurations",
            "v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfiguration",
            &[],
            false,
        )
        .counted(),
        config(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinition",
            &["crd", "crds"],
            false,
        )
        .with_status()
        .counted(),
    ]
}

impl Resource {
    fn fixed(
        collection: Collection,
        version: &'static str,
        kind: &'static str,
        singular: &'static str,
        short_names: &[&'static str],
        namespaced: bool,
    ) -> Self {
        Self {
            collection,
            version: version.into(),
            kind: kind.into(),
            singular: singular.into(),
            short_names: short_names.iter().map(|&name| name.into()).collect(),
            categories: Vec::new(),
            namespaced,
            status: false,
            generation: false,
            graceful: false,
        }
    }

    fn with_status(self) -> Self {
        Self { status: true, ..self }
    }

    fn counted(self) -> Self {
        Self {
            generation: true,
            ..self
        }
    }

    fn graceful(self) -> Self {
        Self {
            graceful: true,
            ..self
        }
    }

    fn in_all(self) -> Self {
        Self {
            categories: vec!["all".into()],
            ..self
        }
    }

    /// API group.
    pub fn group(&self) -> &str {
        &self.collection.group
    }

    /// Plural name.
    pub fn plural(&self) -> &str {
        &self.collection.plural
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group().is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group(), self.version)
        }
    }
}
