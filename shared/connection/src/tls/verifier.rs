//! Which servers are trusted, if the authorities are known: as Go decides it, with the TLS library's own verification.
//!
//! There are three differences to the library alone. A server's certificate that is itself one of the authorities is trusted,
//! whether or not it may issue others. One that may not issue others is an authority for itself only. And an authority that
//! has expired is none.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use super::algorithms::{self, Role, UnsupportedCertificate};

/// How long the authorities of a file are used before it is read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// Verifies servers by the authorities of a kubeconfig, or of a service account.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    authorities: RwLock<(Arc<Authorities>, Instant)>,
    /// Read again from time to time, because the authorities of a cluster are rotated.
    file: Option<PathBuf>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    /// Verification by those that may issue certificates; none if there are none.
    issuers: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerVerifier {
    /// A verifier with these authorities, and later with those of the file.
    pub(super) fn new(authorities: &[Vec<u8>], file: Option<PathBuf>) -> Self {
        let certificates = authorities.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        Self {
            authorities: RwLock::new((Arc::new(Authorities::new(certificates)), Instant::now())),
            file,
            algorithms,
        }
    }

    fn current(&self) -> Arc<Authorities> {
        let Some(file) = &self.file else {
            return self.authorities.read().unwrap_or_else(PoisonError::into_inner).0.clone();
        };
        let mut authorities = self.authorities.write().unwrap_or_else(PoisonError::into_inner);
        if authorities.1.elapsed() >= RELOAD_INTERVAL {
            authorities.1 = Instant::now();
            // The last ones are used while the file cannot be read.
            if let Some(read) = std::fs::read(file).ok().and_then(|pem| Authorities::parse(&pem)) {
                authorities.0 = Arc::new(read);
            }
        }
        authorities.0.clone()
    }
}

impl Authorities {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        let issuers =
            by_issuers(certificates.iter().filter(|der| parse(der).is_some_and(|one| may_issue(&one))));
        Self { certificates, issuers }
    }

    fn parse(pem: &[u8]) -> Option<Self> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        certificates.ok().filter(|certificates| !certificates.is_empty()).map(Self::new)
    }

    fn verify(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.certificates.iter().any(|known| known == server) {
            return verify_itself(server, name, now);
        }
        let by = |issuers: Option<&WebPkiServerVerifier>| match issuers {
            Some(issuers) => issuers.verify_server_cert(server, intermediates, name, &[], now).map(drop),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let by_all = by(self.issuers.as_deref());
        let issuers = self.certificates.iter().filter_map(|der| Some((der, parse(der)?)));
        let (valid, outdated): (Vec<_>, Vec<_>) =
            issuers.filter(|(_, one)| may_issue(one)).partition(|(_, one)| verify_dates(one, now).is_ok());
        if outdated.is_empty() {
            return by_all;
        }
        let by_valid = by(by_issuers(valid.into_iter().map(|(der, _)| der)).as_deref());
        if by_valid.is_err() && by_all.is_ok() { Err(CertificateError::Expired.into()) } else { by_valid }
    }

    /// The certificate that has an algorithm that the library does not support, if that can be the reason for a failure.
    fn unsupported(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Result<(), UnsupportedCertificate> {
        let (server, intermediates) = (parse(server), intermediates.iter().filter_map(parse));
        let presented: Vec<X509Certificate<'_>> = server.into_iter().chain(intermediates).collect();
        for (position, certificate) in presented.iter().enumerate() {
            let role = if position == 0 { Role::Server } else { Role::Authority };
            algorithms::check_key(certificate, role)?;
            algorithms::check_signature(certificate, role)?;
        }
        let is_issuer =
            |known: &X509Certificate<'_>| presented.iter().any(|one| one.issuer() == known.subject());
        for authority in self.certificates.iter().filter_map(parse).filter(is_issuer) {
            algorithms::check_key(&authority, Role::Authority)?;
        }
        Ok(())
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authorities = self.current();
        let verified = authorities.verify(server, intermediates, name, now);
        let key_of_server =
            parse(server).map_or(Ok(()), |server| algorithms::check_key(&server, Role::Server));
        let unsupported = match &verified {
            Ok(()) => key_of_server,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. }
                | CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )) => Ok(()),
            Err(_) => authorities.unsupported(server, intermediates),
        };
        unsupported.map_err(|unsupported| Error::Other(OtherError(Arc::new(unsupported))))?;
        verified.map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    /// Also names P-521, last, so that a server that has nothing else sends its certificate and can be told why it is refused.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

/// Verification by these authorities; none if there are none.
fn by_issuers<'a>(
    issuers: impl Iterator<Item = &'a CertificateDer<'static>>,
) -> Option<Arc<WebPkiServerVerifier>> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(issuers.cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build().ok()
}

/// Verifies a server whose certificate is one of the authorities: everything but who issued it.
fn verify_itself(server: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let certificate = parse(server).ok_or(CertificateError::BadEncoding)?;
    verify_dates(&certificate, now)?;
    let usage = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(server)?, name)
}

fn verify_dates(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if seconds > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// Whether a certificate may issue others, by Go's rules for the authorities that it is given.
fn may_issue(certificate: &X509Certificate<'_>) -> bool {
    let is_authority = match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => certificate.version() != X509Version::V3,
        Err(_) => false,
    };
    let signs = certificate.key_usage();
    is_authority && signs.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

#[cfg(test)]
#[path = "verifier_tests.rs"]
mod tests;
