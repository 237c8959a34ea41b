//! The Kubernetes client: its layers (request metrics, the write fence), discovery, and the field manager.

pub(crate) mod discovery;
pub(crate) mod fence;
pub(crate) mod request_metrics;

use std::time::Duration;

use kube::api::{PatchParams, PostParams};
use nm_shared::api::names::FIELD_MANAGER;

/// The answer to a request, or an error after `limit`.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let answered = tokio::time::timeout(limit, request).await;
    answered.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
}

/// The parameters of every patch: our field manager.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The parameters of every object that is created or replaced: our field manager.
pub(crate) fn post_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
