//! The certificate that is served at the moment: connections that begin take the newest, those that are open stay.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Check;
use crate::webhook::credentials::{Credentials, provider};

/// What is served.
pub(super) struct Served {
    certified: RwLock<Option<Arc<CertifiedKey>>>,
    check: Check,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

impl Served {
    /// Nothing yet; `check` holds from the first certificate on, and until the one that is served has expired.
    pub(super) fn nothing(check: Check, metrics: Arc<Metrics>) -> Self {
        check.fail("there is no certificate yet");
        Self { certified: RwLock::default(), check, metrics }
    }

    /// From now on serves this.
    pub(super) fn serve(&self, credentials: &Credentials) {
        let new = &credentials.certified;
        let mut certified = self.certified.write().unwrap_or_else(PoisonError::into_inner);
        if certified.as_ref().is_some_and(|old| old.cert == new.cert) {
            return;
        }
        *certified = Some(new.clone());
        drop(certified);
        self.check.pass_until(credentials.validity.until, "the certificate has expired");
        self.metrics.certificate_expires(credentials.validity.until);
        info!(until = %credentials.validity.until, "the webhook serves a new certificate");
    }

    /// Takes connections with what is served then.
    ///
    /// # Errors
    /// Never, with the versions of TLS that are compiled in.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// When what is read or done again and again fails, this says so once, and once more when it fails in another way.
#[derive(Debug, Default)]
pub(super) struct Complaint(String);

impl Complaint {
    /// Whether this is new.
    pub(super) fn is_new(&mut self, what: &str) -> bool {
        let is_new = self.0 != what;
        what.clone_into(&mut self.0);
        is_new
    }

    /// All is well again.
    pub(super) fn over(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use nm_shared::admission::certificate_renewal::Validity;

    use super::super::credentials::Generation;
    use super::*;
    use crate::telemetry::readiness::Readiness;

    #[test]
    fn it_is_ready_with_a_certificate_that_is_valid_and_not_with_one_that_has_expired() {
        let readiness = Readiness::default();
        let served = Served::nothing(readiness.check("webhook"), Arc::new(Metrics::new()));
        let state = || readiness.report().unwrap_or_else(|report| report).lines().next().unwrap().to_owned();
        let serve = |ago: i64| {
            let begins = Timestamp::now() - SignedDuration::from_hours(ago);
            let validity = Validity::beginning(begins, SignedDuration::from_hours(1));
            served.serve(&Generation::make(&["localhost".to_owned()], validity).unwrap().credentials);
        };
        assert_eq!(state(), "[-]webhook failed: there is no certificate yet");
        serve(0);
        assert_eq!(state(), "[+]webhook ok");
        serve(2);
        assert_eq!(state(), "[-]webhook failed: the certificate has expired");
    }
}
