//! The Kubernetes client: its layers (request metrics, the write fence), discovery, and the field manager.

pub(crate) mod discovery;
pub(crate) mod fence;
pub(crate) mod request_metrics;

use kube::api::{PatchParams, PostParams};
use nm_shared::api::names::FIELD_MANAGER;

/// The parameters of every patch: our field manager.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The parameters of every object that is created or replaced: our field manager.
pub(crate) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
