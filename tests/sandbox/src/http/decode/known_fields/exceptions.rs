//! Where the types say less than an API server knows.

/// Fields that are younger than the types. Their values are not looked into.
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

/// Lists that Go writes even when they are empty, though their schemas do not require them.
#[rustfmt::skip]
pub(crate) const KEPT: &[(&str, &str)] = &[
    ("io.k8s.api.discovery.v1.EndpointSlice", "ports"),
    ("io.k8s.api.rbac.v1.ClusterRole", "rules"),
    ("io.k8s.api.rbac.v1.Role", "rules"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", "conditions"),
];
