//! The certificate that the webhook serves now. New connections use the newest one; open connections keep theirs.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::ReadinessCheck;
use crate::webhook::credentials::{Credentials, provider};

pub(super) struct ServedCertificate {
    certified: RwLock<Option<Arc<CertifiedKey>>>,
    check: ReadinessCheck,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCertificate").finish_non_exhaustive()
    }
}

impl ServedCertificate {
    /// None yet. `check` passes while a certificate is served that has not expired.
    pub(super) fn none(check: ReadinessCheck, metrics: Arc<Metrics>) -> Self {
        check.fail("there is no certificate yet");
        Self { certified: RwLock::default(), check, metrics }
    }

    pub(super) fn serve(&self, credentials: &Credentials) {
        let new = &credentials.certified;
        let mut certified = self.certified.write().unwrap_or_else(PoisonError::into_inner);
        if certified.as_ref().is_some_and(|old| old.cert == new.cert) {
            return;
        }
        *certified = Some(new.clone());
        drop(certified);
        self.check.pass_until(credentials.validity.until, "the certificate has expired");
        self.metrics.certificate_is_valid(&credentials.validity);
        info!(until = %credentials.validity.until, "the webhook serves a new certificate");
    }

    /// Accepts TLS connections with the certificate that is served at that time.
    ///
    /// # Errors
    /// Never with the TLS versions that are compiled in.
    pub(super) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certified.read().unwrap_or_else(PoisonError::into_inner).clone()
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
    fn the_check_passes_with_a_valid_certificate_and_fails_with_an_expired_one() {
        let readiness = Readiness::default();
        let served = ServedCertificate::none(readiness.check("webhook"), Arc::new(Metrics::new()));
        let state = || readiness.report().lines.lines().next().unwrap().to_owned();
        let serve = |ago: i64| {
            let begins = Timestamp::now() - SignedDuration::from_hours(ago);
            let validity = Validity::beginning(begins, SignedDuration::from_hours(1));
            served.serve(&Generation::generate(&["localhost".to_owned()], validity).unwrap().credentials);
        };
        assert_eq!(state(), "[-]webhook failed: there is no certificate yet");
        serve(0);
        assert_eq!(state(), "[+]webhook ok");
        serve(2);
        assert_eq!(state(), "[-]webhook failed: the certificate has expired");
    }
}
