//! Claims and their volumes, and the attachment of volumes to nodes.

pub(crate) mod attach_detach;
pub(crate) mod csi_driver;
pub(crate) mod volume_binding;
