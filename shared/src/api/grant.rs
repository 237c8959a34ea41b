//! Permissions that are not installed by default, because the features that need them are off by default.

use std::str::FromStr;

use crate::api::status::ForbiddenAccess;

/// A permission that is not installed by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Grant {
    /// To patch `nodes/status`, for the reconciler's flag `--node-conditions`.
    NodeConditions,
    /// To delete pods, for `spec.drain.deleteAfterSeconds`.
    PodDeletion,
    /// To read `VolumeAttachment`s and persistent volumes, for `spec.drain.waitForVolumeDetach`.
    VolumeDetach,
    /// To read and restart Deployments, for `spec.drain.surge`.
    Surge,
    /// To read and delete the migrations of virtual machines, beside KubeVirt.
    VirtualMachines,
    /// To run rolls in the cluster, for `kubectl nm roll --in-cluster`: a service account of its own, and not nm-reconciler's.
    Roll,
}

/// A permission: verb, API group and resource.
pub type Permission = (&'static str, &'static str, &'static str);

impl Grant {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NodeConditions,
        Self::PodDeletion,
        Self::VolumeDetach,
        Self::Surge,
        Self::VirtualMachines,
        Self::Roll,
    ];

    /// The value of `kubectl nm install --grant`. The component of the manifests is named so with an underscore.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// What it permits nm-reconciler.
    pub fn permissions(self) -> &'static [Permission] {
        match self {
            Self::NodeConditions => &[("patch", "", "nodes/status")],
            Self::PodDeletion => &[("delete", "", "pods")],
            Self::VolumeDetach => &[
                ("list", "storage.k8s.io", "volumeattachments"),
                ("watch", "storage.k8s.io", "volumeattachments"),
                ("get", "", "persistentvolumes"),
            ],
            Self::Surge => &[
                ("patch", "apps", "deployments"),
                ("list", "apps", "deployments"),
                ("watch", "apps", "deployments"),
                ("get", "apps", "replicasets"),
            ],
            Self::VirtualMachines => &[
                ("delete", "kubevirt.io", "virtualmachineinstancemigrations"),
                ("list", "kubevirt.io", "virtualmachineinstancemigrations"),
                ("watch", "kubevirt.io", "virtualmachineinstancemigrations"),
            ],
            Self::Roll => &[],
        }
    }

    /// What it permits, as a part of a sentence.
    pub fn permits(self) -> &'static str {
        match self {
            Self::NodeConditions => "patch nodes/status",
            Self::PodDeletion => "delete pods",
            Self::VolumeDetach => "watch volumeattachments and get persistentvolumes",
            Self::Surge => "watch and patch deployments and get replicasets",
            Self::VirtualMachines => "watch and delete virtualmachineinstancemigrations",
            Self::Roll => "run rolls",
        }
    }

    /// The feature that needs it.
    pub fn feature(self) -> &'static str {
        match self {
            Self::NodeConditions => "--node-conditions",
            Self::PodDeletion => "spec.drain.deleteAfterSeconds",
            Self::VolumeDetach => "spec.drain.waitForVolumeDetach",
            Self::Surge => "spec.drain.surge",
            Self::VirtualMachines => "reading and ending the migrations of virtual machines",
            Self::Roll => "kubectl nm roll --in-cluster",
        }
    }

    /// The grant that gives this access; none if it is installed by default.
    pub fn of(access: &ForbiddenAccess) -> Option<Self> {
        let is_wanted =
            |(verb, _, resource): &Permission| (*verb, *resource) == (&*access.verb, &*access.resource);
        Self::ALL.into_iter().find(|grant| grant.permissions().iter().any(is_wanted))
    }

    /// How to get it, as the end of a sentence.
    pub fn hint(self) -> String {
        let component = self.as_str().replace('-', "_");
        format!(
            "{} needs this permission: run `kubectl nm install --grant {self}` or apply manifests/components/{component}",
            self.feature()
        )
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|grant| grant.as_str() == text)
            .ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_found_by_the_access_it_gives() {
        let of = |verb: &str, resource: &str| {
            Grant::of(&ForbiddenAccess { user: "u".into(), verb: verb.into(), resource: resource.into() })
        };
        assert_eq!(of("delete", "pods"), Some(Grant::PodDeletion));
        assert_eq!(of("patch", "nodes/status"), Some(Grant::NodeConditions));
        assert_eq!(of("watch", "volumeattachments"), Some(Grant::VolumeDetach));
        assert_eq!(of("get", "persistentvolumes"), Some(Grant::VolumeDetach));
        assert_eq!(of("list", "virtualmachineinstancemigrations"), Some(Grant::VirtualMachines));
        assert_eq!(of("create", "pods/eviction"), None);
    }

    #[test]
    fn a_grant_parses_as_it_prints_and_its_hint_names_both_ways_to_get_it() {
        for grant in Grant::ALL {
            assert_eq!(grant.to_string().parse(), Ok(grant));
        }
        assert!(
            "pods".parse::<Grant>().unwrap_err().contains("node-conditions, pod-deletion, volume-detach")
        );
        let hint = Grant::PodDeletion.hint();
        for part in ["spec.drain.deleteAfterSeconds", "--grant pod-deletion", "components/pod_deletion"] {
            assert!(hint.contains(part), "{part} in {hint}");
        }
    }
}
