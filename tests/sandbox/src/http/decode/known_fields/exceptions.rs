//! Fields about which the `k8s-openapi` types are incomplete.

/// Fields that are newer than the types. Their values are not checked.
#[rustfmt::skip]
pub(crate) const YOUNGER: &[(&str, &[&str])] = &[
    ("io.k8s.api.core.v1.Container", &["restartPolicyRules"]),
    ("io.k8s.api.core.v1.EnvVarSource", &["fileKeyRef"]),
    ("io.k8s.api.core.v1.EphemeralContainer", &["restartPolicyRules"]),
    ("io.k8s.api.core.v1.NodeStatus", &["declaredFeatures"]),
    ("io.k8s.api.core.v1.PodSpec", &["hostnameOverride", "schedulingGroup"]),
    ("io.k8s.api.core.v1.PodStatus",
        &["allocatedResources", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses", "resources"]),
    ("io.k8s.api.core.v1.ResourceHealth", &["message"]),
    ("io.k8s.api.core.v1.VolumeMountStatus", &["volumeStatus"]),
    ("io.k8s.api.core.v1.VolumeProjection", &["podCertificate"]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition",
        &["observedGeneration"]),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        &["observedGeneration"]),
];

/// Lists that Go serializes even if they are empty, although they are not required.
#[rustfmt::skip]
pub(crate) const KEPT: &[(&str, &str)] = &[
    ("io.k8s.api.discovery.v1.EndpointSlice", "ports"),
    ("io.k8s.api.rbac.v1.ClusterRole", "rules"),
    ("io.k8s.api.rbac.v1.Role", "rules"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", "conditions"),
];
