//! How this program signs what it writes: managed fields tell by its name which are its own.

use kube::api::{PatchParams, PostParams};
use nm_shared::api::names::FIELD_MANAGER;

/// For a patch.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// For an object that is created or replaced.
pub(crate) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
