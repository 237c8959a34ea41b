//! Certificates and their keys: made, read, and checked against each other.

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

/// Why these are no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error("the certificate is none: {0}")]
    Certificate(String),
    #[error("the key is none: {0}")]
    Key(String),
    #[error("the key is not that of the certificate")]
    Mismatch,
    #[error("the certificate is not one for {name} by its authority: {source}")]
    Stranger { name: String, source: rustls::Error },
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A certificate and its key, fit to be served.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    /// The certificate and what leads to its authority, in PEM.
    pub(super) certificate: String,
    /// The key, in PEM.
    pub(super) key: String,
    /// For how long the certificate is valid.
    pub(super) validity: Validity,
    /// Both, as the connections take them.
    pub(super) certified: Arc<CertifiedKey>,
}

/// The only cryptography here.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Credentials {
    /// Reads both from PEM.
    ///
    /// # Errors
    /// When they are none, or do not belong together.
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

    /// Whether who believes the authority takes the certificate for that of `name`, while it is valid.
    fn check(&self, authority: &str, name: &str) -> Result<(), CredentialsError> {
        let stranger = |source| CredentialsError::Stranger { name: name.to_owned(), source };
        let other = |error: &dyn ToString| stranger(rustls::Error::General(error.to_string()));
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(root.map_err(|error| other(&error))?).map_err(stranger)?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| other(&error))?;
        let server = ServerName::try_from(name).map_err(|error| other(&error))?;
        let at = u64::try_from(self.validity.until.as_second()).unwrap_or_default();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        let Some((first, rest)) = self.certified.cert.split_first() else { return Ok(()) };
        verifier.verify_server_cert(first, rest, &server, &[], at).map(|_| ()).map_err(stranger)
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

/// A certificate, its key, and the authority that signed this and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    /// Whom clients are to believe, in PEM.
    pub(super) authority: String,
    /// What is served.
    pub(super) credentials: Credentials,
}

impl Generation {
    /// A new one, for all of `names`.
    ///
    /// # Errors
    /// When there is no randomness to be had.
    pub(super) fn make(names: &[String], validity: Validity) -> Result<Self, CredentialsError> {
        let from = validity.from.as_second();
        let authority_key = KeyPair::generate()?;
        let mut authority = params(Vec::new(), validity)?;
        // A name of its own: clients that believe two authorities look for the right one by name.
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
        Ok(Self { authority: pem, credentials: Credentials::read(&certificate, &key.serialize_pem())? })
    }

    /// Reads one from PEM.
    ///
    /// # Errors
    /// When its parts are damaged or do not belong together, or when it is for another name.
    pub(super) fn read(
        authority: &str,
        certificate: &str,
        key: &str,
        name: &str,
    ) -> Result<Self, CredentialsError> {
        let credentials = Credentials::read(certificate, key)?;
        credentials.check(authority, name)?;
        Ok(Self { authority: authority.to_owned(), credentials })
    }

    /// What is to be decided with.
    pub(super) fn facts(&self) -> Authority {
        Authority { pem: self.authority.clone(), validity: self.credentials.validity }
    }
}

/// An authority alone, whose certificate is out of use.
///
/// # Errors
/// When it is none.
pub(super) fn authority(pem: &str) -> Result<Authority, CredentialsError> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| CredentialsError::Certificate(error.to_string()))?;
    Ok(Authority { pem: pem.to_owned(), validity: validity(&certificate)? })
}

fn params(names: Vec<String>, validity: Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let time = |time: Timestamp| {
        // Nobody's clock is outside of the years that a certificate can name.
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

    fn made(life: i64) -> Generation {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let validity = Validity::beginning(now, SignedDuration::from_secs(life));
        Generation::make(&[NAME.to_owned()], validity).unwrap()
    }

    fn reread(
        authority: &Generation,
        certificate: &Generation,
        key: &Generation,
        name: &str,
    ) -> Result<(), String> {
        Generation::read(
            &authority.authority,
            &certificate.credentials.certificate,
            &key.credentials.key,
            name,
        )
        .map(|_| ())
        .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_made_is_what_is_read() {
        let one = made(3600);
        assert_eq!(reread(&one, &one, &one, NAME), Ok(()));
        let validity = one.credentials.validity;
        assert_eq!(validity.until.duration_since(validity.from).as_secs(), 3600 + 180);
        assert_eq!(authority(&one.authority).unwrap(), one.facts());
    }

    #[test]
    fn what_does_not_belong_together_is_no_generation() {
        let (one, two) = (made(3600), made(3600));
        let said = |result: Result<(), String>| result.unwrap_err();
        assert_eq!(said(reread(&one, &one, &two, NAME)), "the key is not that of the certificate");
        let stranger = "the certificate is not one for ";
        assert!(said(reread(&two, &one, &one, NAME)).starts_with(stranger));
        assert!(said(reread(&one, &one, &one, "c.b.svc")).starts_with(stranger));
    }

    #[test]
    fn what_is_damaged_is_told_so() {
        let one = made(3600);
        let (certificate, key) = (&one.credentials.certificate, &one.credentials.key);
        let cut = &certificate[..certificate.len() / 2];
        for (certificate, key, expected) in [
            ("", key.as_str(), "the certificate is none: "),
            ("hello", key, "the certificate is none: "),
            (cut, key, "the certificate is none: "),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                key,
                "the certificate is none: ",
            ),
            (certificate, "", "the key is none: "),
            (certificate, certificate, "the key is none: "),
        ] {
            let error = Credentials::read(certificate, key).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(authority("hello").is_err());
    }
}
