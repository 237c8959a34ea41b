//! Client certificates, as Go accepts them: also those of X.509 version 1, which the TLS library itself refuses to read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::AuthInfo;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::algorithms::{self, UnsupportedCertificate};

/// A client certificate with its key.
#[derive(Debug)]
pub(crate) struct Identity {
    certified: Arc<CertifiedKey>,
    /// Who issued each certificate, in DER.
    issuers: Vec<Vec<u8>>,
    expires: Option<Timestamp>,
}

/// Why a client certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read the {part} {}: {source}", path.display())]
    Unreadable {
        /// `client-certificate` or `client-key`.
        part: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Data in the kubeconfig is not base64.
    #[error("the {0}-data is not base64")]
    NotBase64(&'static str),
    /// Only one of certificate and key is there.
    #[error("the user has no {0}")]
    Missing(&'static str),
    /// There is no certificate in the PEM, or one that is damaged.
    #[error("the client certificate is no valid certificate in PEM")]
    InvalidCertificate,
    /// There is no key in the PEM, or one that is damaged.
    #[error("the client key is no valid private key in PEM")]
    InvalidKey,
    /// The key has a passphrase.
    #[error("the client key is encrypted with a passphrase")]
    EncryptedKey,
    /// The key is that of another certificate.
    #[error("the client key does not belong to the client certificate")]
    Mismatch,
    /// The TLS library has no support for the key's algorithm.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedCertificate),
}

impl IdentityError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        String::from(match self {
            Self::Unsupported(unsupported) => return unsupported.remedy(),
            Self::EncryptedKey => "kubectl cannot use it either: remove its passphrase with `openssl pkey`",
            Self::Mismatch => {
                "correct client-certificate and client-key in the kubeconfig: they must be a pair"
            }
            Self::Missing(_) => {
                "set client-certificate and client-key in the kubeconfig: they must be a pair"
            }
            Self::Unreadable { .. } | Self::NotBase64(_) | Self::InvalidCertificate | Self::InvalidKey => {
                "correct client-certificate and client-key in the kubeconfig, or log in again"
            }
        })
    }
}

impl Identity {
    /// The client certificate of a user in a kubeconfig; its files are read.
    pub(crate) fn of_user(user: &AuthInfo) -> Result<Option<Self>, IdentityError> {
        let (certificate, key) = ("client-certificate", "client-key");
        let key_data = user.client_key_data.as_ref().map(SecretString::expose_secret);
        let certificate_pem =
            part(certificate, user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
        let key_pem = part(key, key_data, user.client_key.as_deref())?;
        match (certificate_pem, key_pem) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(IdentityError::Missing(key)),
            (None, Some(_)) => Err(IdentityError::Missing(certificate)),
            (Some(certificate), Some(key)) => Self::from_pem(&certificate, &key).map(Some),
        }
    }

    /// A certificate, with those that issued it, and its key.
    ///
    /// # Errors
    /// When they are damaged, are no pair, or have an algorithm that the TLS library does not support.
    pub(crate) fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|_| IdentityError::InvalidCertificate)?;
        let parsed: Option<Vec<X509Certificate<'_>>> =
            chain.iter().map(|der| X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed)).collect();
        let parsed = parsed.ok_or(IdentityError::InvalidCertificate)?;
        let leaf = parsed.first().ok_or(IdentityError::InvalidCertificate)?;
        let der = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            if is_encrypted(key) { IdentityError::EncryptedKey } else { IdentityError::InvalidKey }
        })?;
        let provider: CryptoProvider = rustls::crypto::ring::default_provider();
        let Ok(key) = provider.key_provider.load_private_key(der) else {
            algorithms::check_key(leaf, algorithms::Role::Client)?;
            return Err(IdentityError::InvalidKey);
        };
        // rustls compares them too, but it reads only certificates of version 3.
        if key.public_key().is_some_and(|public| public.as_ref() != leaf.public_key().raw) {
            return Err(IdentityError::Mismatch);
        }
        let issuers = parsed.iter().map(|one| one.issuer().as_raw().to_vec()).collect();
        let expires = Timestamp::from_second(leaf.validity().not_after.timestamp()).ok();
        let certified = Arc::new(CertifiedKey::new(chain, key));
        Ok(Self { certified, issuers, expires })
    }

    /// When the certificate expires.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Whether both have the same certificates.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

/// Sends the certificate, unless the server names authorities that did not issue it, as in Go.
impl ResolvesClientCert for Identity {
    fn resolve(&self, authorities: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_accepted = authorities.is_empty()
            || self.issuers.iter().any(|issuer| authorities.contains(&issuer.as_slice()));
        is_accepted.then(|| self.certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The data of a kubeconfig, or else the content of its file. As in kubectl, an empty value is none.
fn part(
    name: &'static str,
    data: Option<&str>,
    file: Option<&str>,
) -> Result<Option<Vec<u8>>, IdentityError> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        return STANDARD.decode(data).map(Some).map_err(|_| IdentityError::NotBase64(name));
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    std::fs::read(file).map(Some).map_err(|source| IdentityError::Unreadable {
        part: name,
        path: file.into(),
        source,
    })
}

fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
