//! A pod as far as decisions read it.
//!
//! A real pod is 5 to 10 KiB of JSON, of which a decision reads a tenth. [`DrainPod`] is decoded from it and skips the rest. There
//! may be tens of thousands of them, so it has neither the empty fields of Kubernetes' types nor copies of what pods have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use crate::api::names::{DOMAIN_ANNOTATION, MIRROR_ANNOTATION, NO_SCHEDULE};
use crate::api::pod_reference::PodReference;
use crate::api::returned_pod::WorkloadReference;
use crate::cluster::metadata::{self, ProjectedMetadata};

/// The finalizer that each pod of a Job has until the Job controller has counted it.
pub const JOB_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// A pod as far as decisions read it.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct DrainPod {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Box<str>,
    /// Uid, which distinguishes it from a replacement of the same name.
    pub uid: Box<str>,
    /// Labels. Most pods have those of other pods, too.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The owner that would replace it.
    pub controller: Option<Arc<OwnerReference>>,
    /// Whether it is a mirror pod, which the kubelet runs from a file.
    pub is_mirror: bool,
    /// The name of the virtual machine in the annotation of `KubeVirt`.
    pub domain: Option<Box<str>>,
    /// Finalizers.
    pub finalizers: Box<[String]>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its deletion, once that is requested.
    pub deletion: Option<Deletion>,
    /// The name of its node; empty before it is scheduled.
    pub node: Arc<str>,
    /// The value of its priority class; 0 without one.
    pub priority: i32,
    /// The tolerations that may apply to the taints of a maintenance.
    pub tolerations: Box<[Toleration]>,
    /// How many seconds it may take to terminate.
    pub grace_seconds: u32,
    /// Whether it has emptyDir data, which is deleted with it.
    pub has_empty_dir: bool,
    /// The names of its claims.
    pub claims: Box<[Box<str>]>,
    /// Whether it mounts a volume that a CSI driver on its node may serve: one of a claim, or an inline one.
    pub mounts_served_volume: bool,
    /// Whether it registers a plugin with the kubelet, as the node plugin of a CSI driver does.
    pub registers_plugin: bool,
    /// How far it has come.
    pub phase: PodPhase,
    /// The status of its condition `Ready`, if it has one.
    pub ready: Option<ConditionStatus>,
    /// When the last of its containers terminated, as far as they have; only of a pod that is terminating.
    pub finished_at: Option<Timestamp>,
}

/// A pod as a client of the API receives it.
#[derive(Debug, Clone, Resource)]
#[resource(inherit = Pod)]
pub struct ReceivedPod {
    /// Names and version only.
    metadata: ObjectMeta,
    /// What decisions read.
    pub pod: DrainPod,
}

/// The requested deletion of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// When its grace period ends.
    pub deadline: Timestamp,
    /// The grace period, in seconds.
    pub grace_seconds: Option<i64>,
}

/// The phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// The pod has not started.
    Pending,
    /// The containers of the pod have terminated for good.
    Finished,
    /// Any other.
    #[default]
    Other,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// Anything else.
    Unknown,
}

/// The parts of a pod that are read, in the shape of its JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodJson {
    metadata: ProjectedMetadata,
    spec: Option<PodSpecJson>,
    status: Option<PodStatusJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpecJson {
    node_name: Option<Box<str>>,
    priority: Option<i32>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<VolumeJson>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeJson {
    name: Box<str>,
    empty_dir: Option<IgnoredAny>,
    persistent_volume_claim: Option<ClaimJson>,
    ephemeral: Option<IgnoredAny>,
    csi: Option<IgnoredAny>,
    host_path: Option<HostPathJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimJson {
    claim_name: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HostPathJson {
    path: String,
}

impl VolumeJson {
    fn is_served(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some() || self.csi.is_some()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatusJson {
    phase: Option<String>,
    conditions: Option<Vec<PodConditionJson>>,
    container_statuses: Option<Vec<ContainerStatusJson>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatusJson {
    state: Option<ContainerStateJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStateJson {
    terminated: Option<TerminatedJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedJson {
    finished_at: Option<Time>,
}

impl ContainerStatusJson {
    fn finished_at(&self) -> Option<Timestamp> {
        let terminated = self.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|time| time.0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodConditionJson {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl<'de> Deserialize<'de> for DrainPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ReceivedPod::deserialize(deserializer).map(|received| received.pod)
    }
}

impl<'de> Deserialize<'de> for ReceivedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PodJson { metadata, spec, status } = PodJson::deserialize(deserializer)?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == READY);
        let containers = status.container_statuses.unwrap_or_default();
        let finished_at = containers.iter().filter_map(ContainerStatusJson::finished_at).max();
        let (metadata, volumes) = (ObjectMeta::from(metadata), spec.volumes.unwrap_or_default());
        let claims = volumes.iter().filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|claim| &*claim.claim_name);
            claim_name(&metadata, &volume.name, claim, volume.ephemeral.is_some())
        });
        let claims = claims.collect();
        let ObjectMeta { namespace, name, uid, resource_version, .. } = &metadata;
        let names = ObjectMeta {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            resource_version: resource_version.clone(),
            ..ObjectMeta::default()
        };
        let pod = DrainPod {
            claims,
            node: spec.node_name.unwrap_or_default().into(),
            priority: spec.priority.unwrap_or(0),
            grace_seconds: grace_seconds(spec.termination_grace_period_seconds),
            tolerations: read_tolerations(spec.tolerations.unwrap_or_default()),
            has_empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
            mounts_served_volume: volumes.iter().any(VolumeJson::is_served),
            registers_plugin: volumes
                .iter()
                .filter_map(|volume| volume.host_path.as_ref())
                .any(|host| is_plugin_registry(&host.path)),
            phase: PodPhase::new(status.phase.as_deref()),
            ready: ready.map(|ready| ConditionStatus::new(&ready.status)),
            finished_at: metadata.deletion_timestamp.as_ref().and(finished_at),
            ..DrainPod::of(metadata)
        };
        Ok(Self { metadata: names, pod })
    }
}

impl From<ReceivedPod> for DrainPod {
    fn from(received: ReceivedPod) -> Self {
        received.pod
    }
}

impl DrainPod {
    /// What is read of the metadata of a pod.
    fn of(metadata: ObjectMeta) -> Self {
        let mut annotations = metadata.annotations.unwrap_or_default();
        let owners = metadata.owner_references.unwrap_or_default();
        let deletion = metadata
            .deletion_timestamp
            .map(|time| Deletion { deadline: time.0, grace_seconds: metadata.deletion_grace_period_seconds });
        Self {
            namespace: metadata.namespace.unwrap_or_default().into(),
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            labels: Arc::new(metadata.labels.unwrap_or_default()),
            controller: metadata::controller(&owners).cloned().map(Arc::new),
            is_mirror: annotations.contains_key(MIRROR_ANNOTATION),
            domain: annotations.remove(DOMAIN_ANNOTATION).map(String::into_boxed_str),
            finalizers: metadata.finalizers.unwrap_or_default().into(),
            created: metadata.creation_timestamp.map(|time| time.0),
            deletion,
            ..Self::default()
        }
    }
}

fn grace_seconds(of_spec: Option<i64>) -> u32 {
    of_spec.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or_default()
}

impl From<&Pod> for DrainPod {
    fn from(pod: &Pod) -> Self {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let tolerations = spec.and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == READY);
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let is_terminating = pod.metadata.deletion_timestamp.is_some();
        let finished_at = |container: &ContainerStatus| {
            let terminated = container.state.as_ref()?.terminated.as_ref()?;
            terminated.finished_at.as_ref().map(|time| time.0)
        };
        let claims = volumes.iter().filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
            claim_name(&pod.metadata, &volume.name, claim, volume.ephemeral.is_some())
        });
        Self {
            claims: claims.collect(),
            node: spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().into(),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            grace_seconds: grace_seconds(spec.and_then(|spec| spec.termination_grace_period_seconds)),
            tolerations: read_tolerations(tolerations),
            has_empty_dir: volumes.iter().any(|volume| volume.empty_dir.is_some()),
            mounts_served_volume: volumes.iter().any(|volume| {
                volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || volume.csi.is_some()
            }),
            registers_plugin: volumes
                .iter()
                .filter_map(|volume| volume.host_path.as_ref())
                .any(|host| is_plugin_registry(&host.path)),
            phase: PodPhase::of(pod),
            ready: ready.map(|ready| ConditionStatus::new(&ready.status)),
            finished_at: is_terminating.then(|| containers.iter().filter_map(finished_at).max()).flatten(),
            ..Self::of(metadata::project(&pod.metadata))
        }
    }
}

/// Whether a path on the node is the directory in which plugins register with the kubelet. Its parent is the root directory
/// of the kubelet, which differs between distributions (`pkg/kubelet/config/defaults.go` in kubernetes/kubernetes).
fn is_plugin_registry(path: &str) -> bool {
    path.trim_end_matches('/').ends_with("/plugins_registry")
}

/// The type of the condition that shows whether a pod is Ready.
const READY: &str = "Ready";

impl PodPhase {
    /// The phase in the status of a pod.
    pub fn of(pod: &Pod) -> Self {
        Self::new(pod.status.as_ref().and_then(|status| status.phase.as_deref()))
    }

    fn new(phase: Option<&str>) -> Self {
        match phase {
            Some("Pending") => Self::Pending,
            Some("Succeeded" | "Failed") => Self::Finished,
            _ => Self::Other,
        }
    }
}

impl ConditionStatus {
    fn new(status: &str) -> Self {
        match status {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// The name of the claim of a volume: of the one that it names, or of the one that Kubernetes creates for it.
fn claim_name(pod: &ObjectMeta, volume: &str, claim: Option<&str>, is_ephemeral: bool) -> Option<Box<str>> {
    match claim {
        Some(claim) => Some(claim.into()),
        // <https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming>
        None if is_ephemeral => Some(format!("{}-{volume}", pod.name.as_deref().unwrap_or_default()).into()),
        None => None,
    }
}

/// Every pod tolerates some taints with the effect `NoExecute`, which a maintenance does not set.
fn read_tolerations(mut all: Vec<Toleration>) -> Box<[Toleration]> {
    all.retain(|toleration| matches!(toleration.effect.as_deref(), None | Some("" | NO_SCHEDULE)));
    all.into()
}

/// The termination of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination<'a> {
    /// When its grace period ends.
    pub deadline: Timestamp,
    /// The grace period of the pod, in seconds.
    pub grace_seconds: Option<i64>,
    /// The finalizers of the pod.
    pub finalizers: &'a [String],
    /// When the last of its containers terminated, as far as they have.
    pub finished_at: Option<Timestamp>,
}

/// The termination of the pod, if it is terminating.
pub fn termination(pod: &DrainPod) -> Option<Termination<'_>> {
    let Deletion { deadline, grace_seconds } = pod.deletion?;
    Some(Termination { deadline, grace_seconds, finalizers: &pod.finalizers, finished_at: pod.finished_at })
}

/// Whether only its Job keeps it until the Job has counted it, which may take minutes: its kubelet has confirmed that it ended, by
/// deleting it without a grace period.
pub fn waits_for_its_job(pod: &DrainPod) -> bool {
    let has_ended = pod.deletion.is_some_and(|deletion| deletion.grace_seconds == Some(0));
    has_ended && matches!(&*pod.finalizers, [only] if only == JOB_FINALIZER)
}

/// Whether its containers have terminated for good.
pub fn is_finished(pod: &DrainPod) -> bool {
    pod.phase == PodPhase::Finished
}

/// Whether it is a mirror pod, which the kubelet runs from a file.
pub fn is_mirror(pod: &DrainPod) -> bool {
    pod.is_mirror
}

/// The owner that would replace it.
pub fn controller(pod: &DrainPod) -> Option<&OwnerReference> {
    pod.controller.as_deref()
}

/// The workload of the pod: its Deployment if it has one, because that would undo changes to each `ReplicaSet`, otherwise its controller.
pub fn workload(pod: &DrainPod) -> Option<WorkloadReference> {
    controller(pod).map(|controller| metadata::workload_of(controller, &pod.labels))
}

/// Whether a `DaemonSet` of the apps group controls it.
pub fn daemon_set(pod: &DrainPod) -> Option<&OwnerReference> {
    controller(pod).filter(|owner| metadata::is_of(owner, "apps", "DaemonSet"))
}

/// Whether a Job of the batch group controls it.
pub fn job(pod: &DrainPod) -> Option<&OwnerReference> {
    controller(pod).filter(|owner| metadata::is_of(owner, "batch", "Job"))
}

/// When its grace period ends, if it is terminating.
pub fn deadline(pod: &DrainPod) -> Option<Timestamp> {
    pod.deletion.map(|deletion| deletion.deadline)
}

/// The time since its grace period ended; negative while it lasts. None if the pod is not terminating.
pub fn overdue(pod: &DrainPod, now: Timestamp) -> Option<SignedDuration> {
    deadline(pod).map(|deadline| now.duration_since(deadline))
}

/// The name of the pod with its namespace.
pub fn reference(pod: &DrainPod) -> PodReference {
    PodReference { namespace: pod.namespace.to_string(), name: pod.name.to_string() }
}

/// The name with the namespace in the metadata of a pod.
pub fn reference_in(metadata: &ObjectMeta) -> PodReference {
    PodReference {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// The uid of the pod, which distinguishes it from a replacement of the same name.
pub fn uid(pod: &DrainPod) -> &str {
    &pod.uid
}

/// The names of a pod for an API path and a precondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodNames<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Uid.
    pub uid: &'a str,
}

/// The pod's names, borrowed.
pub fn names(pod: &DrainPod) -> PodNames<'_> {
    PodNames { namespace: &pod.namespace, name: &pod.name, uid: &pod.uid }
}

/// Whether it has this name.
pub fn is_named(pod: &DrainPod, namespace: &str, name: &str) -> bool {
    let names = names(pod);
    names.name == name && names.namespace == namespace
}

/// Whether it has not started yet.
pub fn is_pending(pod: &DrainPod) -> bool {
    pod.phase == PodPhase::Pending
}

/// Whether it is Ready.
pub fn is_ready(pod: &DrainPod) -> bool {
    pod.ready == Some(ConditionStatus::True)
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
