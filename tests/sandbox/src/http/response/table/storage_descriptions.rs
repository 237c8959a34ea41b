//! The descriptions of the columns of volumes, claims and attachments.

/// The description of a column.
pub(crate) fn of(plural: &str, column: &str) -> &'static str {
    match (plural, column) {
        ("persistentvolumes", "Capacity") => {
            "capacity is the description of the persistent volume's resources and capacity. More info: \
            https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity"
        }
        ("persistentvolumes", "Access Modes") => {
            "accessModes contains all ways the volume can be mounted. More info: \
            https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes"
        }
        ("persistentvolumes", "Reclaim Policy") => {
            "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its \
            claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default \
            for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported \
            by the volume plugin underlying this PersistentVolume. More info: \
            https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming"
        }
        ("persistentvolumes", "Status") => {
            "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: \
            https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase"
        }
        ("persistentvolumes", "Claim") => {
            "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. \
            Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. \
            More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding"
        }
        ("persistentvolumes", "StorageClass") => "StorageClass of the pv",
        ("persistentvolumes", "VolumeAttributesClass") => "VolumeAttributesClass of the pv",
        ("persistentvolumes", "Reason") => {
            "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and \
            tidy display in the CLI."
        }
        ("persistentvolumes", "VolumeMode") => {
            "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in \
            raw block state. Value of Filesystem is implied when not included in spec."
        }
        ("persistentvolumeclaims", "Status") => {
            "phase represents the current phase of PersistentVolumeClaim."
        }
        ("persistentvolumeclaims", "Volume") => {
            "volumeName is the binding reference to the PersistentVolume backing this claim."
        }
        ("persistentvolumeclaims", "Capacity") => {
            "capacity represents the actual resources of the underlying volume."
        }
        ("persistentvolumeclaims", "Access Modes") => {
            "accessModes contains the actual access modes the volume backing the PVC has. More info: \
            https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1"
        }
        ("persistentvolumeclaims", "StorageClass") => "StorageClass of the pvc",
        ("persistentvolumeclaims", "VolumeAttributesClass") => "VolumeAttributesClass of the pvc",
        ("persistentvolumeclaims", "VolumeMode") => {
            "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when \
            not included in claim spec."
        }
        ("volumeattachments", "Attacher") => {
            "attacher indicates the name of the volume driver that MUST handle this request. This is the name \
            returned by GetPluginName()."
        }
        ("volumeattachments", "PV") => {
            "persistentVolumeName represents the name of the persistent volume to attach."
        }
        ("volumeattachments", "Node") => {
            "nodeName represents the node that the volume should be attached to."
        }
        ("volumeattachments", "Attached") => {
            "attached indicates the volume is successfully attached. This field must only be set by the entity \
            completing the attach operation, i.e. the external-attacher."
        }
        _ => "",
    }
}
