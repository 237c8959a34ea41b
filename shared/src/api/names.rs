//! The names that clusters already know this maintenance by, to the letter those of the medik8s
//! node-maintenance-operator, and the few that are ours.

/// API group of `NodeMaintenance`.
pub const GROUP: &str = "nodemaintenance.medik8s.io";

/// Finalizer on a `NodeMaintenance` while its node has something to be given back.
pub const FINALIZER: &str = "foregroundDeleteNodeMaintenance";

/// Taint of a node in maintenance, with effect `NoSchedule`.
pub const DRAIN_TAINT: &str = "medik8s.io/drain";

/// The same for maintenances of the groups from before the operator moved to medik8s.
pub const KUBEVIRT_DRAIN_TAINT: &str = "kubevirt.io/drain";

/// Kubernetes' own taint of a cordoned node, with effect `NoSchedule`.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// The effect of these taints.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Label of a node in maintenance: health checkers must not remediate it. Its value is [`EXCLUDE_VALUE`].
pub const EXCLUDE_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";

/// Value of [`EXCLUDE_LABEL`].
pub const EXCLUDE_VALUE: &str = "true";

/// Namespace of the leases on nodes.
pub const LEASE_NAMESPACE: &str = "medik8s-leases";

/// Who holds the lease of a node in maintenance.
pub const LEASE_HOLDER: &str = "node-maintenance";

/// Annotation on a node in maintenance: what we changed, so that exactly that is undone.
pub const UNDO_ANNOTATION: &str = "kubectl-nm.dev/undo";

/// Annotation on a maintenance of a control-plane node that goes ahead although etcd may lose its quorum, with the value
/// `true`.
pub const OVERRIDE_QUORUM_ANNOTATION: &str = "kubectl-nm.dev/override-quorum";

/// Annotation of a mirror pod: its kubelet runs it from a file, and no API call ends it.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The webhook's Service and, for its certificates, its Secret, both in the program's own namespace.
pub const WEBHOOK: &str = "nm-reconciler-webhook";

/// The `ValidatingWebhookConfiguration` by which the API server knows the webhook.
pub const WEBHOOK_CONFIGURATION: &str = "nm-reconciler";

/// Who we are in `managedFields` and in events.
pub const FIELD_MANAGER: &str = "nm-reconciler";
