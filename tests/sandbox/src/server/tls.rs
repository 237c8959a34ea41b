//! A throwaway certificate authority: it signs the server's certificate, and its key is dropped.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::{fmt, io};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// The server's TLS identity.
#[derive(Clone)]
pub(crate) struct Identity {
    /// Accepts connections.
    pub(crate) acceptor: TlsAcceptor,
    /// The authority's certificate in PEM, for kubeconfigs.
    pub(crate) authority: String,
    /// The server's own certificate in PEM.
    pub(crate) certificate: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Creates an authority and a certificate for the loopback addresses.
///
/// # Errors
/// When no random numbers are available.
pub(crate) fn identity() -> io::Result<Identity> {
    let authority_key = KeyPair::generate().map_err(io::Error::other)?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "kube-sandbox");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let certificate = authority.self_signed(&authority_key).map_err(io::Error::other)?;
    let issuer = Issuer::new(authority, authority_key);

    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "kubernetes".to_owned()])
        .map_err(io::Error::other)?;
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let signed = server.signed_by(&key, &issuer).map_err(io::Error::other)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
            config.with_no_client_auth().with_single_cert(vec![signed.der().clone()], key)
        })
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Identity {
        acceptor: Arc::new(config).into(),
        authority: certificate.pem(),
        certificate: signed.pem(),
    })
}
