//! The service that authenticates requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use kube::Config;
use kube::client::Body;
use rustls::ClientConfig;
use tower::{BoxError, Service, ServiceExt};

use crate::credentials::{Credentials, Current};
use crate::tls::TlsSettings;
use crate::tls::identity::Identity;

/// Opens connections: makes the service that sends requests, for connections with these settings.
type Connect<S> = Arc<dyn Fn(ClientConfig) -> kube::Result<S> + Send + Sync>;

/// Sends requests with the credentials of a user, and once more with renewed ones if the server refuses them.
///
/// A renewed client certificate is that of new connections. What the old connections carry goes on: servers verify a client
/// when a request begins.
pub struct Authenticated<S> {
    credentials: Credentials,
    tls: TlsSettings,
    connect: Connect<S>,
    connections: Arc<Mutex<Option<Connections<S>>>>,
}

/// The connections with a client certificate.
struct Connections<S> {
    identity: Option<Arc<Identity>>,
    service: S,
}

impl<S: Clone> Authenticated<S> {
    /// Sends requests to the server of `config` through what `connect` returns.
    ///
    /// # Errors
    /// When the certificates of `config` cannot be used.
    pub fn new(
        config: &Config,
        credentials: Credentials,
        connect: impl Fn(ClientConfig) -> kube::Result<S> + Send + Sync + 'static,
    ) -> kube::Result<Self> {
        let tls = TlsSettings::new(config)?;
        // Fails early if there can be no connection.
        connect(tls.client_config(None)?)?;
        Ok(Self { credentials, tls, connect: Arc::new(connect), connections: Arc::default() })
    }

    fn connections(&self, current: &Current) -> kube::Result<S> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*connections
            && is_same(open.identity.as_ref(), current.identity.as_ref())
        {
            return Ok(open.service.clone());
        }
        let identity = current.identity.clone();
        let service = (self.connect)(self.tls.client_config(identity.clone())?)?;
        *connections = Some(Connections { identity, service: service.clone() });
        Ok(service)
    }
}

fn is_same(one: Option<&Arc<Identity>>, other: Option<&Arc<Identity>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl<S, B> Authenticated<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>> + Clone,
{
    async fn send(&self, current: &Current, mut request: Request<Body>) -> Result<Response<B>, BoxError> {
        if let Some(authorization) = &current.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let service = self.connections(current)?;
        service.oneshot(request).await.map_err(Into::into)
    }

    async fn send_authenticated(self, request: Request<Body>) -> Result<Response<B>, BoxError> {
        let current = self.credentials.current().await?;
        let again = copy(&request);
        let answer = self.send(&current, request).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            self.credentials.note_accepted();
            return Ok(answer);
        }
        match (self.credentials.after_refusal(&current).await?, again) {
            (Some(renewed), Some(request)) => self.send(&renewed, request).await,
            _ => Ok(answer),
        }
    }
}

/// The same request, unless its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

impl<S, B> Service<Request<Body>> for Authenticated<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send_authenticated(request).boxed()
    }
}

impl<S> Clone for Authenticated<S> {
    fn clone(&self) -> Self {
        Self {
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            connect: self.connect.clone(),
            connections: self.connections.clone(),
        }
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
