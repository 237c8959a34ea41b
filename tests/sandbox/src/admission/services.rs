//! Who stands behind a service: there is no network of pods here, so whoever serves a webhook says where.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// A webhook in this process, asked without sockets, so that it answers under a paused clock too.
pub trait Reviewer: fmt::Debug + Send + Sync {
    /// Answers the `request` of an `AdmissionReview` with a `response`; its uid is filled in.
    fn review(&self, request: &Value) -> Value;
}

/// What serves a service.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    /// Somebody who speaks TLS.
    Address(SocketAddr),
    /// Somebody in this process.
    Reviewer(Arc<dyn Reviewer>),
}

/// The services that webhooks may name.
#[derive(Debug, Default)]
pub struct Services {
    backends: Mutex<HashMap<(String, String), Backend>>,
}

impl Services {
    /// From now on the service is served at an address, in place of whoever served it before.
    pub fn serve(&self, namespace: &str, name: &str, address: SocketAddr) {
        self.put(namespace, name, Backend::Address(address));
    }

    /// From now on the service is served in this process, in place of whoever served it before.
    pub fn answer(&self, namespace: &str, name: &str, reviewer: Arc<dyn Reviewer>) {
        self.put(namespace, name, Backend::Reviewer(reviewer));
    }

    /// Nobody serves it any longer.
    pub fn withdraw(&self, namespace: &str, name: &str) {
        self.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Who serves it.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Backend> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn put(&self, namespace: &str, name: &str, backend: Backend) {
        self.lock().insert((namespace.to_owned(), name.to_owned()), backend);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Backend>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
