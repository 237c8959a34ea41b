//! Volumes that are still attached to a drained node (`spec.drain.waitForVolumeDetach`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A volume that is still attached to the node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AttachedVolume {
    /// Name of the `VolumeAttachment`.
    pub attachment: String,
    /// Name of the `PersistentVolume`; absent for a volume that a pod defines itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume: Option<String>,
    /// The claim that the `PersistentVolume` is bound to, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimReference>,
    /// The CSI driver that has to detach it.
    pub driver: String,
    /// Since when the maintenance has waited for it: the time when the last pod was gone.
    pub since: Time,
    /// Why it could not be detached, as the driver last reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A `PersistentVolumeClaim` by name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(default)]
pub struct ClaimReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for ClaimReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl AttachedVolume {
    /// `pv-1 (claim shop/data-0)`, as far as it is known.
    pub fn label(&self) -> String {
        let volume = self.persistent_volume.as_ref().unwrap_or(&self.attachment);
        match &self.claim {
            Some(claim) => format!("{volume} (claim {claim})"),
            None => volume.clone(),
        }
    }
}
