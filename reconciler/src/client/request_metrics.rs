//! Counts every request to the API server, as a layer of the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Method;
use kube::client::Body;
use tower::{Layer, Service};

use crate::telemetry::metrics::{Metrics, Verb};

/// Adds [`RequestMetrics`] to a client.
#[derive(Clone)]
pub(crate) struct RequestMetricsLayer(pub(crate) Arc<Metrics>);

impl<S> Layer<S> for RequestMetricsLayer {
    type Service = RequestMetrics<S>;

    fn layer(&self, inner: S) -> RequestMetrics<S> {
        RequestMetrics { metrics: self.0.clone(), inner }
    }
}

/// A client whose requests are counted when they are answered or fail.
#[derive(Clone)]
pub(crate) struct RequestMetrics<S> {
    metrics: Arc<Metrics>,
    inner: S,
}

impl<S, B> Service<http::Request<Body>> for RequestMetrics<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let verb = verb(&request);
        let answer = self.inner.call(request);
        let metrics = self.metrics.clone();
        Box::pin(async move {
            let answer = answer.await;
            metrics.requested(verb, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
        })
    }
}

/// What a request does.
pub(crate) fn verb(request: &http::Request<Body>) -> Verb {
    let is_watch = |query: &str| query.split('&').any(|word| matches!(word, "watch=true" | "watch=1"));
    match *request.method() {
        Method::GET if request.uri().query().is_some_and(is_watch) => Verb::Watch,
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_request_is_counted_by_verb_and_status_code() {
        let check = async |method: Method, uri: &str, code: Option<u16>, expected: &str| {
            let metrics = Arc::new(Metrics::new());
            let mut client =
                RequestMetricsLayer(metrics.clone()).layer(tower::service_fn(move |_| async move {
                    let code = code.ok_or("no connection")?;
                    Ok::<_, &str>(http::Response::builder().status(code).body(()).unwrap())
                }));
            let request = http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            let _ = client.call(request).await;
            let lines = metrics.expose();
            assert!(
                lines.contains(&format!("nm_api_requests_total{{{expected}}} 1")),
                "{expected} in {lines}"
            );
        };
        check(Method::GET, "/api/v1/nodes", Some(200), "verb=\"get\",code=\"200\"").await;
        check(Method::GET, "/api/v1/nodes?limit=5&watch=true", Some(200), "verb=\"watch\",code=\"200\"")
            .await;
        check(
            Method::GET,
            "/api/v1/nodes?labelSelector=watch%3Dtrue",
            Some(403),
            "verb=\"get\",code=\"403\"",
        )
        .await;
        check(Method::POST, "/eviction", Some(429), "verb=\"create\",code=\"429\"").await;
        check(Method::PATCH, "/", None, "verb=\"patch\",code=\"none\"").await;
        check(Method::DELETE, "/", Some(404), "verb=\"delete\",code=\"404\"").await;
    }
}
