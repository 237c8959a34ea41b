//! Names in the cluster: the exact names of the medik8s node-maintenance-operator, and our own.

/// API group of `NodeMaintenance`.
pub const GROUP: &str = "nodemaintenance.medik8s.io";

/// Finalizer on a `NodeMaintenance` until its node is returned to service.
pub const FINALIZER: &str = "foregroundDeleteNodeMaintenance";

/// Taint of a node in maintenance, with effect `NoSchedule`.
pub const DRAIN_TAINT: &str = "medik8s.io/drain";

/// The taint of a node in a maintenance of the older API groups, instead of [`DRAIN_TAINT`].
pub const KUBEVIRT_DRAIN_TAINT: &str = "kubevirt.io/drain";

/// Kubernetes' own taint of a cordoned node, with effect `NoSchedule`.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Taint of a node for which a maintenance is planned, with effect [`PREFER_NO_SCHEDULE`].
pub const PLANNED_TAINT: &str = "kubectl-nm.dev/maintenance-planned";

/// The effect of [`PLANNED_TAINT`]: the scheduler prefers other nodes.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// The effect of the other taints.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Label of a node in maintenance, which health checkers must not remediate. Its value is [`EXCLUDE_VALUE`].
pub const EXCLUDE_LABEL: &str = "remediation.medik8s.io/exclude-from-remediation";

/// Value of [`EXCLUDE_LABEL`].
pub const EXCLUDE_VALUE: &str = "true";

/// Namespace of the leases on nodes.
pub const LEASE_NAMESPACE: &str = "medik8s-leases";

/// The holder in the lease of a node in maintenance.
pub const LEASE_HOLDER: &str = "node-maintenance";

/// Annotation on a node whose maintenance has started or is planned: the undo record, which lists what we changed.
pub const UNDO_ANNOTATION: &str = "kubectl-nm.dev/undo";

/// Annotation on a maintenance without an owner reference: the uid of the node on which it began. Some clusters let only users
/// who may delete an object set its owner (`OwnerReferencesPermissionEnforcement`).
pub const NODE_UID_ANNOTATION: &str = "kubectl-nm.dev/node-uid";

/// Annotation on a maintenance of a control-plane node. With the value `true`, it starts although etcd may lose its quorum.
pub const OVERRIDE_QUORUM_ANNOTATION: &str = "kubectl-nm.dev/override-quorum";

/// Annotation on a maintenance. With the value `true`, its node stays cordoned when the maintenance ends, as after `kubectl cordon`.
pub const KEEP_CORDON_ANNOTATION: &str = "kubectl-nm.dev/keep-cordon";

/// Annotation on maintenances that are created together: an id and how many they are, as `ID/COUNT`. Their nodes are all cordoned
/// before the first pod is evicted.
pub const START_TOGETHER_ANNOTATION: &str = "kubectl-nm.dev/start-together";

/// Label of the maintenances of a roll, and of the pods of its Jobs; its value is the roll's name.
pub const ROLL_LABEL: &str = "kubectl-nm.dev/roll";

/// The domain of the annotations of a maintenance that are hooks before its first eviction.
pub const PRE_DRAIN_HOOK: &str = "pre-drain.hook.kubectl-nm.dev";

/// The domain of the annotations of a maintenance that are hooks before its node returns to service.
pub const PRE_RETURN_HOOK: &str = "pre-return.hook.kubectl-nm.dev";

/// The end of the domains of all hooks.
pub const HOOK_DOMAIN: &str = ".hook.kubectl-nm.dev";

/// Kubernetes' own label of a node that load balancers outside of the cluster leave out, unless its value is `false`.
pub const LOAD_BALANCER_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Annotations of a node, with the value `true`, that the Kubernetes Cluster Autoscaler and Karpenter do not remove.
pub const AUTOSCALER_ANNOTATIONS: [&str; 2] =
    ["cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"];

/// Annotation of one maintenance of a roll: the record of the roll as JSON. `kubectl nm roll` writes it; nm-reconciler only counts
/// the rolls that have halted.
pub const ROLL_STATE_ANNOTATION: &str = "kubectl-nm.dev/roll-state";

/// Taint by which an administrator confirms that the machine of a node is off:
/// <https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown>.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Label of the Job that runs a roll, and of its pods: the name of the roll. Unlike the label of its maintenances, it does not
/// keep a pod from being evicted.
pub const ROLL_RUNNER_LABEL: &str = "kubectl-nm.dev/roll-runner";

/// Annotation of a mirror pod, which the kubelet runs from a file and no API request can end.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Annotation of a pod that runs a virtual machine: the name of its instance (`DomainAnnotation`). KubeVirt's webhook uses
/// it too.
pub const DOMAIN_ANNOTATION: &str = "kubevirt.io/domain";

/// Annotation in the pod template of a restarted Deployment, as `kubectl rollout restart` sets it.
pub const RESTARTED_AT_ANNOTATION: &str = "kubectl.kubernetes.io/restartedAt";

/// Annotation of a disruption budget whose pods the disruption controller is to count again: any change of the budget makes it count.
pub const RECOUNT_ANNOTATION: &str = "kubectl-nm.dev/recount";

/// The webhook's Service and the Secret with its certificates, both in the reconciler's namespace.
pub const WEBHOOK: &str = "nm-reconciler-webhook";

/// The path at which the webhook answers reviews.
pub const WEBHOOK_PATH: &str = "/validate";

/// The `ValidatingWebhookConfiguration` of the webhook.
pub const WEBHOOK_CONFIGURATION: &str = "nm-reconciler";

/// The reconciler's name in `managedFields` and in events.
pub const FIELD_MANAGER: &str = "nm-reconciler";

/// The node of a maintenance that is created in a dry run to test whether the webhook works. No cluster has it: names under
/// `invalid` are reserved (RFC 2606).
pub const PROBE_NODE: &str = "kubectl-nm.invalid";
