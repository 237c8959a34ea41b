//! Layers around the Kubernetes client: request metrics, the write fence, and the field manager.

pub(crate) mod fence;
pub(crate) mod request_metrics;
pub(crate) mod write_params;
