//! Certificates and their private keys: generated, parsed, and checked against each other.

use std::sync::Arc;

use jiff::Timestamp;
use nm_shared::admission::certificate_renewal::{Authority, Validity};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error("invalid certificate: {0}")]
    Certificate(String),
    #[error("invalid private key: {0}")]
    Key(String),
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    #[error("the certificate is not valid for {name} with its authority: {source}")]
    Untrusted { name: String, source: rustls::Error },
    #[error("cannot generate a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

/// A certificate and its private key, which can be served.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    /// The certificate chain, in PEM.
    pub(super) certificate: String,
    pub(super) key: String,
    /// When the certificate is valid.
    pub(super) validity: Validity,
    /// Both, as rustls serves them.
    pub(super) certified: Arc<CertifiedKey>,
}

/// The cryptography of every TLS connection and certificate.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Credentials {
    /// Parses both from PEM.
    ///
    /// # Errors
    /// When one is invalid, or they do not belong together.
    pub(super) fn read(certificate: &str, key: &str) -> Result<Self, CredentialsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| CredentialsError::Certificate(error.to_string()))?;
        let first = chain.first().ok_or_else(|| CredentialsError::Certificate("it is empty".to_owned()))?;
        let validity = validity(first)?;
        let der = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| CredentialsError::Key(error.to_string()))?;
        let certified = CertifiedKey::from_der(chain, der, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CredentialsError::Mismatch,
            other => CredentialsError::Key(other.to_string()),
        })?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            validity,
            certified: Arc::new(certified),
        })
    }

    /// Checks that a client that trusts the authority accepts the certificate for `name` during its validity.
    fn check(&self, authority: &str, name: &str) -> Result<(), CredentialsError> {
        let untrusted = |source| CredentialsError::Untrusted { name: name.to_owned(), source };
        let other = |error: &dyn ToString| untrusted(rustls::Error::General(error.to_string()));
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(root.map_err(|error| other(&error))?).map_err(untrusted)?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| other(&error))?;
        let server = ServerName::try_from(name).map_err(|error| other(&error))?;
        let at = u64::try_from(self.validity.until.as_second()).unwrap_or_default();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        let Some((first, rest)) = self.certified.cert.split_first() else { return Ok(()) };
        verifier.verify_server_cert(first, rest, &server, &[], at).map(|_| ()).map_err(untrusted)
    }
}

fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, CredentialsError> {
    let unreadable = |error: String| CredentialsError::Certificate(error);
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| unreadable(error.to_string()))?;
    let time = |second: i64| Timestamp::from_second(second).map_err(|error| unreadable(error.to_string()));
    let validity = parsed.validity();
    Ok(Validity {
        from: time(validity.not_before.timestamp())?,
        until: time(validity.not_after.timestamp())?,
    })
}

/// A certificate, its private key, and the authority that signed only this certificate.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    /// The authority that clients have to trust, in PEM.
    pub(super) authority_pem: String,
    pub(super) credentials: Credentials,
}

impl Generation {
    /// Generates one for all of `names`.
    ///
    /// # Errors
    /// When there is no randomness.
    pub(super) fn generate(names: &[String], validity: Validity) -> Result<Self, CredentialsError> {
        let from = validity.from.as_second();
        let authority_key = KeyPair::generate()?;
        let mut authority = params(Vec::new(), validity)?;
        // A unique name, by which clients that trust two authorities find the right one.
        authority.distinguished_name.push(DnType::CommonName, format!("nm-reconciler webhook {from}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate()?;
        let mut server = params(names.to_vec(), validity)?;
        server.distinguished_name.push(DnType::CommonName, "nm-reconciler webhook");
        server.use_authority_key_identifier_extension = true;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = server.signed_by(&key, &issuer)?.pem();
        Ok(Self { authority_pem: pem, credentials: Credentials::read(&certificate, &key.serialize_pem())? })
    }

    /// Parses one from PEM.
    ///
    /// # Errors
    /// When a part is invalid, they do not belong together, or the certificate is for another name.
    pub(super) fn read(
        authority: &str,
        certificate: &str,
        key: &str,
        name: &str,
    ) -> Result<Self, CredentialsError> {
        let credentials = Credentials::read(certificate, key)?;
        credentials.check(authority, name)?;
        Ok(Self { authority_pem: authority.to_owned(), credentials })
    }

    /// The authority and its validity.
    pub(super) fn authority(&self) -> Authority {
        Authority { pem: self.authority_pem.clone(), validity: self.credentials.validity }
    }
}

/// Parses an authority alone.
///
/// # Errors
/// When it is invalid.
pub(super) fn read_authority(pem: &str) -> Result<Authority, CredentialsError> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| CredentialsError::Certificate(error.to_string()))?;
    Ok(Authority { pem: pem.to_owned(), validity: validity(&certificate)? })
}

fn params(names: Vec<String>, validity: Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let time = |time: Timestamp| {
        // No clock is outside of the years that a certificate can express.
        OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    (params.not_before, params.not_after) = (time(validity.from), time(validity.until));
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    const NAME: &str = "a.b.svc";

    fn generated(life: i64) -> Generation {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let validity = Validity::beginning(now, SignedDuration::from_secs(life));
        Generation::generate(&[NAME.to_owned()], validity).unwrap()
    }

    fn reread(
        authority: &Generation,
        certificate: &Generation,
        key: &Generation,
        name: &str,
    ) -> Result<(), String> {
        Generation::read(
            &authority.authority_pem,
            &certificate.credentials.certificate,
            &key.credentials.key,
            name,
        )
        .map(|_| ())
        .map_err(|error| error.to_string())
    }

    #[test]
    fn a_generated_certificate_can_be_read() {
        let one = generated(3600);
        assert_eq!(reread(&one, &one, &one, NAME), Ok(()));
        let validity = one.credentials.validity;
        assert_eq!(validity.until.duration_since(validity.from).as_secs(), 3600 + 180);
        assert_eq!(read_authority(&one.authority_pem).unwrap(), one.authority());
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let (one, two) = (generated(3600), generated(3600));
        let error = |result: Result<(), String>| result.unwrap_err();
        assert_eq!(
            error(reread(&one, &one, &two, NAME)),
            "the private key does not belong to the certificate"
        );
        let untrusted = "the certificate is not valid for ";
        assert!(error(reread(&two, &one, &one, NAME)).starts_with(untrusted));
        assert!(error(reread(&one, &one, &one, "c.b.svc")).starts_with(untrusted));
    }

    #[test]
    fn damaged_parts_are_refused() {
        let one = generated(3600);
        let (certificate, key) = (&one.credentials.certificate, &one.credentials.key);
        let cut = &certificate[..certificate.len() / 2];
        for (certificate, key, expected) in [
            ("", key.as_str(), "invalid certificate: "),
            ("hello", key, "invalid certificate: "),
            (cut, key, "invalid certificate: "),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key, "invalid certificate: "),
            (certificate, "", "invalid private key: "),
            (certificate, certificate, "invalid private key: "),
        ] {
            let error = Credentials::read(certificate, key).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(read_authority("hello").is_err());
    }
}
