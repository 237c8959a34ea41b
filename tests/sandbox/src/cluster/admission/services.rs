//! Servers of the services that webhooks refer to. There is no cluster network, so tests register addresses.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// A webhook in this process, called without sockets, so that it also works with a paused clock.
pub trait Reviewer: fmt::Debug + Send + Sync {
    /// Returns the `response` to the `request` of an `AdmissionReview`, without its uid.
    fn review(&self, request: &Value) -> Value;
}

/// A server of a service.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    /// An address that speaks TLS.
    Address(SocketAddr),
    /// A webhook in this process.
    Reviewer(Arc<dyn Reviewer>),
}

/// The services that webhooks may refer to.
#[derive(Debug, Default)]
pub struct Services {
    backends: Mutex<HashMap<(String, String), VecDeque<Backend>>>,
}

impl Services {
    /// Serves a service at an address. Replaces its previous servers.
    pub fn serve(&self, namespace: &str, name: &str, address: SocketAddr) {
        self.put(namespace, name, Backend::Address(address));
    }

    /// Adds an address to a service. Requests use its addresses in turn.
    pub fn serve_also(&self, namespace: &str, name: &str, address: SocketAddr) {
        let mut backends = self.lock();
        backends
            .entry((namespace.to_owned(), name.to_owned()))
            .or_default()
            .push_back(Backend::Address(address));
    }

    /// Serves a service in this process. Replaces its previous servers.
    pub fn answer(&self, namespace: &str, name: &str, reviewer: Arc<dyn Reviewer>) {
        self.put(namespace, name, Backend::Reviewer(reviewer));
    }

    /// Removes all servers of a service.
    pub fn withdraw(&self, namespace: &str, name: &str) {
        self.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// The next server of a service.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Backend> {
        let mut backends = self.lock();
        let serving = backends.get_mut(&(namespace.to_owned(), name.to_owned()))?;
        serving.rotate_left(1);
        serving.back().cloned()
    }

    fn put(&self, namespace: &str, name: &str, backend: Backend) {
        self.lock().insert((namespace.to_owned(), name.to_owned()), VecDeque::from([backend]));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), VecDeque<Backend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(services: &Services) -> Option<u16> {
        match services.find("n", "s")? {
            Backend::Address(address) => Some(address.port()),
            Backend::Reviewer(_) => None,
        }
    }

    #[test]
    fn those_who_serve_a_service_take_turns() {
        let services = Services::default();
        assert_eq!(port(&services), None);
        services.serve("n", "s", ([127, 0, 0, 1], 1).into());
        services.serve_also("n", "s", ([127, 0, 0, 1], 2).into());
        assert_eq!([1, 2, 3].map(|_| port(&services).unwrap()), [1, 2, 1]);
        services.serve("n", "s", ([127, 0, 0, 1], 3).into());
        assert_eq!([1, 2].map(|_| port(&services).unwrap()), [3, 3], "in place of whoever served it before");
        services.withdraw("n", "s");
        assert_eq!(port(&services), None);
    }
}
