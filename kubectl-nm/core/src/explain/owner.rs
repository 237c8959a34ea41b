//! What controls a pod, in the words of the screen and of kubectl.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::PodReference;
use nm_shared::cluster::metadata::{self, TEMPLATE_HASH};
use serde::{Serialize, Serializer};

/// What controls a pod. For a pod of a Deployment that is the Deployment, because it would undo changes to each `ReplicaSet`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// `sts/cart`. It comes first because owners are sorted by it.
    text: Arc<str>,
    kind: OwnerKind,
}

/// The owner of a pod; none if it has no controller.
pub fn owner_of(pod: &Pod) -> Option<Owner> {
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    let controller = metadata::controller(pod.metadata.owner_references.as_deref().unwrap_or_default())?;
    Some(Owner::of(controller, hash.map(String::as_str)))
}

/// The Job that controls a pod; none if none does.
pub(super) fn job_of(pod: &Pod) -> Option<PodReference> {
    let owner = owner_of(pod).filter(|owner| owner.kind == OwnerKind::Job)?;
    Some(PodReference { namespace: pod.metadata.namespace.clone()?, name: owner.name().to_owned() })
}

/// Kind of an owner. A kind of the same name in another API group is [`Self::Other`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// `deployments.apps`, which controls the ReplicaSet of the pod.
    Deployment,
    /// `replicasets.apps` that no Deployment controls.
    ReplicaSet,
    /// `statefulsets.apps`.
    StatefulSet,
    /// `daemonsets.apps`.
    DaemonSet,
    /// `replicationcontrollers` of the core group.
    ReplicationController,
    /// `jobs.batch`.
    Job,
    /// `virtualmachineinstances.kubevirt.io`.
    VirtualMachineInstance,
    /// A kind that is not listed above.
    Other {
        /// In lower case.
        kind: Arc<str>,
        /// Empty for the core group.
        group: Arc<str>,
    },
}

/// The API groups and names of the kinds.
static KNOWN: [(OwnerKind, &str, &str); 7] = [
    (OwnerKind::Deployment, "apps", "Deployment"),
    (OwnerKind::ReplicaSet, "apps", "ReplicaSet"),
    (OwnerKind::StatefulSet, "apps", "StatefulSet"),
    (OwnerKind::DaemonSet, "apps", "DaemonSet"),
    (OwnerKind::ReplicationController, "", "ReplicationController"),
    (OwnerKind::Job, "batch", "Job"),
    (OwnerKind::VirtualMachineInstance, "kubevirt.io", "VirtualMachineInstance"),
];

impl OwnerKind {
    /// The short name of kubectl; of other kinds, the kind in lower case.
    fn word(&self) -> &str {
        match self {
            Self::Deployment => "deploy",
            Self::ReplicaSet => "rs",
            Self::StatefulSet => "sts",
            Self::DaemonSet => "ds",
            Self::ReplicationController => "rc",
            Self::Job => "job",
            Self::VirtualMachineInstance => "vmi",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl Owner {
    /// An owner with this kind and name.
    pub fn new(kind: OwnerKind, name: &str) -> Self {
        Self { text: format!("{}/{name}", kind.word()).into(), kind }
    }

    /// The owner of a pod by its controller. `template_hash` is the label by which a Deployment distinguishes the pods of
    /// one `ReplicaSet` from those of another.
    pub fn of(controller: &OwnerReference, template_hash: Option<&str>) -> Self {
        let OwnerReference { kind, name, .. } = controller;
        let known = KNOWN.iter().find(|(_, group, kind)| metadata::is_of(controller, group, kind));
        match (known, metadata::deployment_name(controller, template_hash)) {
            (_, Some(deployment)) => Self::new(OwnerKind::Deployment, deployment),
            (Some((known, ..)), _) => Self::new(known.clone(), name),
            (None, _) => {
                let (kind, group) =
                    (kind.to_ascii_lowercase().into(), metadata::api_group(controller).into());
                Self::new(OwnerKind::Other { kind, group }, name)
            }
        }
    }

    /// The owner in a recording, which has [`Self::argument`]. None if there is none.
    pub fn recorded(argument: &str) -> Option<Self> {
        let (word, name) = argument.split_once('/')?;
        if let Some((known, ..)) = KNOWN.iter().find(|(known, ..)| known.word() == word) {
            return Some(Self::new(known.clone(), name));
        }
        let (kind, group) = word.split_once('.').unwrap_or((word, ""));
        Some(Self::new(OwnerKind::Other { kind: kind.into(), group: group.into() }, name))
    }

    /// Kind of the owner.
    pub fn kind(&self) -> &OwnerKind {
        &self.kind
    }

    /// Name of the owner, without its kind.
    pub fn name(&self) -> &str {
        self.text.get(self.kind.word().len() + 1..).unwrap_or_default()
    }

    /// Whether a pod of this name is its own, or that of its `ReplicaSet`.
    pub fn names(&self, pod: &str) -> bool {
        let Some(rest) = pod.strip_prefix(self.name()).and_then(|rest| rest.strip_prefix('-')) else {
            return false;
        };
        match self.kind {
            OwnerKind::StatefulSet => rest.parse::<u32>().is_ok(),
            _ => rest
                .split_once('-')
                .is_some_and(|(hash, random)| !hash.is_empty() && random.len() == 5 && !random.contains('-')),
        }
    }

    /// As people see it: `sts/cart`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As kubectl takes it: `sts/cart`, or `statefulset.apps.kruise.io/cart`, because kubectl reads a kind without its group
    /// as one of Kubernetes.
    pub fn argument(&self) -> Cow<'_, str> {
        match &self.kind {
            OwnerKind::Other { kind, group } if !group.is_empty() => {
                format!("{kind}.{group}/{}", self.name()).into()
            }
            _ => Cow::Borrowed(&self.text),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.argument())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(api_version: &str, kind: &str, name: &str, template_hash: Option<&str>) -> Owner {
        let (api_version, kind, name) = (api_version.to_owned(), kind.to_owned(), name.to_owned());
        Owner::of(&OwnerReference { api_version, kind, name, ..OwnerReference::default() }, template_hash)
    }

    #[test]
    fn owners_have_the_short_names_of_kubectl_and_other_kinds_their_group() {
        for (api_version, kind, text, argument) in [
            ("apps/v1", "StatefulSet", "sts/o", "sts/o"),
            ("apps/v1", "DaemonSet", "ds/o", "ds/o"),
            ("v1", "ReplicationController", "rc/o", "rc/o"),
            ("batch/v1", "Job", "job/o", "job/o"),
            ("kubevirt.io/v1", "VirtualMachineInstance", "vmi/o", "vmi/o"),
            ("v1", "Node", "node/o", "node/o"),
            ("apps.kruise.io/v1beta1", "StatefulSet", "statefulset/o", "statefulset.apps.kruise.io/o"),
            ("batch.volcano.sh/v1alpha1", "Job", "job/o", "job.batch.volcano.sh/o"),
        ] {
            let owner = of(api_version, kind, "o", None);
            assert_eq!((owner.text(), owner.name(), &*owner.argument()), (text, "o", argument));
            assert_eq!(Owner::recorded(argument), Some(owner));
        }
    }

    #[test]
    fn the_owner_of_a_pod_of_a_deployment_is_the_deployment() {
        for (api_version, kind, name, hash, text) in [
            ("apps/v1", "ReplicaSet", "front-6c4", "6c4", "deploy/front"),
            ("apps/v1", "ReplicaSet", "front-6c4", "7d5", "rs/front-6c4"),
            ("apps/v1", "ReplicaSet", "6c4", "6c4", "rs/6c4"),
            ("apps/v1", "StatefulSet", "front-6c4", "6c4", "sts/front-6c4"),
            ("example.com/v1", "ReplicaSet", "front-6c4", "6c4", "replicaset/front-6c4"),
        ] {
            assert_eq!(of(api_version, kind, name, Some(hash)).text(), text);
        }
    }

    #[test]
    fn a_recording_without_an_owner_has_none() {
        assert_eq!(["", "sts"].map(Owner::recorded), [None, None]);
    }
}
