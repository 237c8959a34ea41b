//! The volumes that are attached to nodes, as far as decisions read them.
//!
//! Kubernetes has one `VolumeAttachment` for each volume of a CSI driver and each node. It is deleted when no pod on the
//! node uses the volume, and is gone when the driver has detached it.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::api::attached_volume::ClaimReference;
use crate::cluster::metadata::ProjectedMetadata;

/// A `VolumeAttachment` as far as decisions read it.
#[derive(Debug, Clone, Default, PartialEq, Resource)]
#[resource(inherit = storage::VolumeAttachment)]
pub struct VolumeAttachment {
    /// The metadata that is read.
    pub metadata: ObjectMeta,
    /// The name of the node.
    pub node: Box<str>,
    /// The CSI driver.
    pub driver: Box<str>,
    /// The name of the persistent volume; none for a volume that a pod defines itself.
    pub volume: Option<Box<str>>,
    /// Why the driver could not detach it, the last time.
    pub detach_error: Option<Box<str>>,
}

/// The parts that are read, in the shape of the JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttachmentJson {
    metadata: ProjectedMetadata,
    spec: AttachmentSpecJson,
    status: Option<AttachmentStatusJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpecJson {
    attacher: Box<str>,
    node_name: Box<str>,
    source: AttachmentSourceJson,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSourceJson {
    persistent_volume_name: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentStatusJson {
    detach_error: Option<AttachmentErrorJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttachmentErrorJson {
    message: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for VolumeAttachment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let AttachmentJson { metadata, spec, status } = AttachmentJson::deserialize(deserializer)?;
        Ok(Self {
            metadata: metadata.into(),
            node: spec.node_name,
            driver: spec.attacher,
            volume: spec.source.persistent_volume_name,
            detach_error: status.and_then(|status| status.detach_error?.message),
        })
    }
}

impl VolumeAttachment {
    /// The name of the object.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The claims of persistent volumes, by the names of the volumes. A volume without a claim has none.
pub type ClaimsOfVolumes = HashMap<Box<str>, Option<ClaimReference>>;

/// The claim that a persistent volume is bound to.
pub fn claim_of(volume: &PersistentVolume) -> Option<ClaimReference> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ClaimReference { namespace: claim.namespace.clone()?, name: claim.name.clone()? })
}

/// The volumes attached to one node, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct NodeVolumes {
    /// The attachments.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Whether these are all of them: they have been listed, and the watch is not interrupted.
    pub is_complete: bool,
    /// The claims of their volumes, as far as they have been read.
    pub claims: ClaimsOfVolumes,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_decision_reads_is_decoded() {
        let json = json!({
            "metadata": {"name": "csi-1", "uid": "u", "finalizers": ["external-attacher/d"]},
            "spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
            "status": {"attached": true, "attachmentMetadata": {"a": "b"},
                "detachError": {"time": "2026-01-01T00:00:00Z", "message": "busy", "errorCode": 9}},
        });
        let decoded: VolumeAttachment = serde_json::from_value(json).unwrap();
        assert_eq!((decoded.name(), &*decoded.node, &*decoded.driver), ("csi-1", "n1", "d"));
        assert_eq!(
            (decoded.volume.as_deref(), decoded.detach_error.as_deref()),
            (Some("pv-1"), Some("busy"))
        );
        let inline = json!({"metadata": {"name": "csi-2"}, "spec": {"attacher": "d", "nodeName": "n1",
            "source": {"inlineVolumeSpec": {"accessModes": []}}}, "status": {"attached": false}});
        let decoded: VolumeAttachment = serde_json::from_value(inline).unwrap();
        assert_eq!((decoded.volume, decoded.detach_error), (None, None));
    }

    #[test]
    fn a_volume_is_bound_to_a_claim_or_to_none() {
        let volume = |spec| serde_json::from_value::<PersistentVolume>(json!({"spec": spec})).unwrap();
        let bound = claim_of(&volume(json!({"claimRef": {"namespace": "shop", "name": "data-0"}})));
        assert_eq!(bound.map(|claim| claim.to_string()).as_deref(), Some("shop/data-0"));
        assert_eq!(claim_of(&volume(json!({}))), None);
    }
}
