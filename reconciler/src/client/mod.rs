//! The Kubernetes client: its connections, its layers (request metrics, throttling, the write fence), discovery, and the
//! field manager.

mod api_server;
pub(crate) mod discovery;
pub(crate) mod fence;
mod http2;
pub(crate) mod request_metrics;
pub(crate) mod throttle;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{PatchParams, PostParams};
use kube::client::ClientBuilder;
use nm_shared::api::names::FIELD_MANAGER;
use tower::util::option_layer;

pub(crate) use crate::client::api_server::ApiServer;
use crate::client::fence::Fence;
use crate::client::request_metrics::RequestMetricsLayer;
use crate::client::throttle::Throttle;
pub(crate) use crate::client::transport::{HttpService, http1_builder};
use crate::telemetry::metrics::Metrics;

/// The client of a term.
#[derive(Clone)]
pub(crate) struct TermClient {
    pub(crate) client: Client,
    /// Pauses the client.
    pub(crate) throttle: Throttle,
}

impl TermClient {
    /// A client whose connections belong to the current runtime, and whose writes end with the fence.
    ///
    /// # Errors
    /// When the configuration has unusable certificates.
    pub(crate) fn new(
        server: &ApiServer,
        metrics: &Arc<Metrics>,
        fence: Option<&Fence>,
    ) -> kube::Result<Self> {
        Ok(Self::layered(transport::builder(server)?, metrics, fence))
    }

    /// The same over a service in this process.
    pub(crate) fn in_process(
        service: HttpService,
        read_timeout: Duration,
        metrics: &Arc<Metrics>,
        fence: &Fence,
    ) -> Self {
        Self::layered(transport::in_process(service, read_timeout), metrics, Some(fence))
    }

    fn layered(builder: ClientBuilder<HttpService>, metrics: &Arc<Metrics>, fence: Option<&Fence>) -> Self {
        let throttle = Throttle::default();
        let builder = builder
            .with_layer(&RequestMetricsLayer(metrics.clone()))
            .with_layer(&throttle)
            .with_layer(&option_layer(fence.cloned()));
        Self { client: builder.build(), throttle }
    }
}

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
