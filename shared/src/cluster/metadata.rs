//! The metadata of an object as far as anything here reads it.
//!
//! Everything else is skipped while an object is decoded: managed fields and annotations are often the larger half of it,
//! and a decoded map of labels is larger than its JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::api::names::{AUTOSCALER_ANNOTATIONS, DOMAIN_ANNOTATION, MIRROR_ANNOTATION, UNDO_ANNOTATION};
use crate::api::returned_pod::WorkloadReference;

/// The annotations that anything here reads.
const READ_ANNOTATIONS: [&str; 5] = [
    DOMAIN_ANNOTATION,
    MIRROR_ANNOTATION,
    UNDO_ANNOTATION,
    AUTOSCALER_ANNOTATIONS[0],
    AUTOSCALER_ANNOTATIONS[1],
];

/// Metadata that is decoded without the parts that nothing reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectedMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<ReadAnnotations>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

impl From<ProjectedMetadata> for ObjectMeta {
    fn from(read: ProjectedMetadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            labels: read.labels,
            annotations: read.annotations.map(|annotations| annotations.0).filter(|read| !read.is_empty()),
            owner_references: read.owner_references,
            finalizers: read.finalizers,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            deletion_grace_period_seconds: read.deletion_grace_period_seconds,
            ..Self::default()
        }
    }
}

/// The finalizers that others than Kubernetes, which removes its own, have to remove.
pub fn foreign_finalizers(finalizers: &[String]) -> impl Iterator<Item = &String> {
    finalizers.iter().filter(|name| {
        let domain = name.split_once('/').map(|(domain, _)| domain);
        domain.is_some_and(|domain| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
    })
}

/// Reduces metadata that is decoded already to the parts that anything here reads.
pub fn project(metadata: &ObjectMeta) -> ObjectMeta {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| READ_ANNOTATIONS.contains(&key.as_str()));
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        labels: metadata.labels.clone(),
        annotations: Some(annotations).filter(|read| !read.is_empty()),
        owner_references: metadata.owner_references.clone(),
        finalizers: metadata.finalizers.clone(),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
        ..ObjectMeta::default()
    }
}

/// The owner that controls an object, and replaces it when it is gone.
pub fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The API group of an owner; empty for the core group.
pub fn api_group(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether an owner is of a kind of an API group, in any version. Other groups may have kinds of the same name.
pub fn is_of(owner: &OwnerReference, group: &str, kind: &str) -> bool {
    owner.kind == kind && api_group(owner) == group
}

/// The name of the Deployment whose `ReplicaSet` an owner is, by the label with which it distinguishes the pods of one
/// `ReplicaSet` from those of another.
pub fn deployment_name<'a>(owner: &'a OwnerReference, template_hash: Option<&str>) -> Option<&'a str> {
    if !is_of(owner, "apps", "ReplicaSet") {
        return None;
    }
    owner.name.strip_suffix(template_hash?)?.strip_suffix('-')
}

/// The label by which a Deployment distinguishes the pods of its `ReplicaSet`s.
pub const TEMPLATE_HASH: &str = "pod-template-hash";

/// The workload of a pod by its metadata: its Deployment if it has one, otherwise its controller.
pub fn workload(metadata: &ObjectMeta) -> Option<WorkloadReference> {
    let owner = controller(metadata.owner_references.as_deref().unwrap_or_default())?;
    Some(workload_of(owner, metadata.labels.as_ref().unwrap_or(&BTreeMap::new())))
}

/// The workload of a pod with this controller and these labels.
pub fn workload_of(controller: &OwnerReference, labels: &BTreeMap<String, String>) -> WorkloadReference {
    let (kind, name) = match deployment_name(controller, labels.get(TEMPLATE_HASH).map(String::as_str)) {
        Some(deployment) => ("Deployment", deployment),
        None => (controller.kind.as_str(), controller.name.as_str()),
    };
    let (kind, name) = (kind.to_owned(), name.to_owned());
    WorkloadReference { api_version: controller.api_version.clone(), kind, name }
}

#[derive(Debug, Clone, Default)]
struct ReadAnnotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for ReadAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Annotations;

        impl<'de> Visitor<'de> for Annotations {
            type Value = ReadAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReadAnnotations, A::Error> {
                let mut read = ReadAnnotations::default();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    if READ_ANNOTATIONS.contains(&&*key) {
                        read.0.insert(key.into_owned(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(read)
            }
        }

        deserializer.deserialize_map(Annotations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(api_version: &str, kind: &str, controller: Option<bool>) -> OwnerReference {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        OwnerReference { api_version, kind, controller, ..OwnerReference::default() }
    }

    #[test]
    fn a_kind_of_the_same_name_in_another_group_is_another_kind() {
        for (api_version, group, is_it) in [
            ("apps/v1", "apps", true),
            ("apps/v1beta2", "apps", true),
            ("apps.kruise.io/v1beta1", "apps", false),
            ("apps", "apps", false),
            ("v1", "", true),
            ("apps/v1", "", false),
        ] {
            let set = owner(api_version, "StatefulSet", Some(true));
            assert_eq!(is_of(&set, group, "StatefulSet"), is_it, "{api_version}");
            assert!(!is_of(&set, group, "DaemonSet"), "{api_version}");
        }
    }

    #[test]
    fn an_owner_that_does_not_control_is_no_controller() {
        let owners = [owner("v1", "A", None), owner("v1", "B", Some(false)), owner("v1", "C", Some(true))];
        assert_eq!(controller(&owners).map(|owner| owner.kind.as_str()), Some("C"));
        assert_eq!(controller(&owners[..2]), None);
    }
}
