//! What a drain needs to know of one pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::api::names::MIRROR_ANNOTATION;
use crate::api::status::PodReference;

/// Whether its containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether its kubelet runs it from a file.
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

/// Whether it keeps data that goes with it.
pub fn has_empty_dir(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().any(|volume| volume.empty_dir.is_some())
}

/// The owner that would replace it.
pub fn controller(pod: &Pod) -> Option<&OwnerReference> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Whether a `DaemonSet` of the apps group controls it.
pub fn daemon_set(pod: &Pod) -> Option<&OwnerReference> {
    controller(pod).filter(|owner| owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/"))
}

/// When its grace ends, if it is terminating.
pub fn deadline(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

/// For how long its grace has been over; negative while it is not. None if it is not terminating.
pub fn overdue(pod: &Pod, now: Timestamp) -> Option<SignedDuration> {
    deadline(pod).map(|deadline| now.duration_since(deadline))
}

/// Its name with its namespace.
pub fn reference(pod: &Pod) -> PodReference {
    PodReference {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
    }
}

/// Its uid: what tells it from a replacement of the same name.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// What an API path and a precondition need of a pod.
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
pub fn names(pod: &Pod) -> PodNames<'_> {
    PodNames {
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        name: pod.metadata.name.as_deref().unwrap_or_default(),
        uid: uid(pod),
    }
}

/// Whether it has not started yet.
pub fn is_pending(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending")
}

/// Whether it is Ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The number that its priority class stands for; 0 without one.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}
