//! Reading a pod.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::api::names::MIRROR_ANNOTATION;
use crate::api::status::PodReference;

/// What decides whether a drain moves a pod, and how far it has terminated. [`Pod`] has all of it. A program that keeps
/// thousands of pods implements it for a smaller type.
pub trait PodView {
    /// Its namespace.
    fn namespace(&self) -> &str;
    /// Its labels.
    fn labels(&self) -> Cow<'_, BTreeMap<String, String>>;
    /// The kind of its controller.
    fn controller(&self) -> PodController<'_>;
    /// See [`is_finished`].
    fn is_finished(&self) -> bool;
    /// See [`is_mirror`].
    fn is_mirror(&self) -> bool;
    /// See [`has_empty_dir`].
    fn has_empty_dir(&self) -> bool;
    /// Its termination, if it is terminating.
    fn termination(&self) -> Option<Termination<'_>>;
}

/// The controller of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodController<'a> {
    /// There is none, so that nothing replaces the pod.
    None,
    /// A `DaemonSet` of the apps group with this name.
    DaemonSet(&'a str),
    /// Any other.
    Other,
}

/// The termination of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Termination<'a> {
    /// When its grace period ends.
    pub deadline: Timestamp,
    /// Its grace period in seconds.
    pub grace_seconds: Option<i64>,
    /// Its finalizers.
    pub finalizers: &'a [String],
}

impl PodView for Pod {
    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        self.metadata.labels.as_ref().map_or_else(|| Cow::Owned(BTreeMap::new()), Cow::Borrowed)
    }

    fn controller(&self) -> PodController<'_> {
        match (daemon_set(self), controller(self)) {
            (Some(owner), _) => PodController::DaemonSet(&owner.name),
            (None, Some(_)) => PodController::Other,
            (None, None) => PodController::None,
        }
    }

    fn is_finished(&self) -> bool {
        is_finished(self)
    }

    fn is_mirror(&self) -> bool {
        is_mirror(self)
    }

    fn has_empty_dir(&self) -> bool {
        has_empty_dir(self)
    }

    fn termination(&self) -> Option<Termination<'_>> {
        Some(Termination {
            deadline: deadline(self)?,
            grace_seconds: self.metadata.deletion_grace_period_seconds,
            finalizers: self.metadata.finalizers.as_deref().unwrap_or_default(),
        })
    }
}

/// Whether its containers have terminated for good.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether it is a mirror pod, which the kubelet runs from a file.
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

/// Whether it has emptyDir data, which is deleted with it.
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

/// When its grace period ends, if it is terminating.
pub fn deadline(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

/// The time since its grace period ended; negative while it lasts. None if the pod is not terminating.
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

/// Its uid, which distinguishes it from a replacement of the same name.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
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

/// The value of its priority class; 0 without one.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}
