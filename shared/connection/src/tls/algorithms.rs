//! The algorithms that the TLS library supports, and names for the others that Go supports.

use std::fmt;

use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_PKCS1_RSASSAPSS, OID_PKCS1_SHA1WITHRSA,
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512, OID_SIG_ED25519,
};
use x509_parser::public_key::PublicKey;

/// The sizes of RSA keys that the library supports, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A certificate with an algorithm that the TLS library does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the TLS library of this program does not support {algorithm}, which the {role} \"{subject}\" has")]
pub struct UnsupportedCertificate {
    /// Whose certificate it is.
    pub role: Role,
    /// The subject of the certificate.
    pub subject: String,
    /// What it has.
    pub algorithm: Algorithm,
}

/// Whose certificate it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Role {
    /// The user's.
    #[strum(to_string = "client certificate")]
    Client,
    /// The API server's.
    #[strum(to_string = "certificate of the server")]
    Server,
    /// That of an authority that issued another.
    #[strum(to_string = "certificate of the authority")]
    Authority,
}

/// An algorithm that the library does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// An RSA key of this many bits.
    Rsa(usize),
    /// A key on this curve.
    Curve(String),
    /// A key of another kind, by its identifier.
    Key(String),
    /// A signature by this algorithm.
    Signature(String),
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "an RSA key of {bits} bits"),
            Self::Curve(name) => write!(f, "an ECDSA key on the curve {name}"),
            Self::Key(identifier) => write!(f, "a key of the algorithm {identifier}"),
            Self::Signature(name) => write!(f, "a signature by {name}"),
        }
    }
}

impl UnsupportedCertificate {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        let good = match self.algorithm {
            Algorithm::Signature(_) => "signed with SHA-256 or SHA-384",
            _ => "with an RSA key of 2048 to 8192 bits, an ECDSA key on P-256 or P-384, or an Ed25519 key",
        };
        format!("kubectl may accept it; to use this program, issue a certificate {good}")
    }
}

/// Fails if the library cannot use the key of this certificate.
pub(crate) fn check_key(certificate: &X509Certificate<'_>, role: Role) -> Result<(), UnsupportedCertificate> {
    match unsupported_key(certificate) {
        None => Ok(()),
        Some(algorithm) => Err(unsupported(certificate, role, algorithm)),
    }
}

/// Fails if the library cannot verify the signature on this certificate.
pub(crate) fn check_signature(
    certificate: &X509Certificate<'_>,
    role: Role,
) -> Result<(), UnsupportedCertificate> {
    let oid = &certificate.signature_algorithm.algorithm;
    // Most certificates are signed by keys that support all of these hashes.
    let supported = [
        OID_PKCS1_SHA256WITHRSA,
        OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA,
        OID_PKCS1_RSASSAPSS,
        OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ED25519,
    ];
    if supported.contains(oid) {
        return Ok(());
    }
    let name = match oid {
        sha1 if *sha1 == OID_PKCS1_SHA1WITHRSA => "RSA with SHA-1".to_owned(),
        sha512 if *sha512 == OID_SIG_ECDSA_WITH_SHA512 => "ECDSA with SHA-512".to_owned(),
        other => other.to_id_string(),
    };
    Err(unsupported(certificate, role, Algorithm::Signature(name)))
}

fn unsupported(
    certificate: &X509Certificate<'_>,
    role: Role,
    algorithm: Algorithm,
) -> UnsupportedCertificate {
    UnsupportedCertificate { role, subject: certificate.subject().to_string(), algorithm }
}

fn unsupported_key(certificate: &X509Certificate<'_>) -> Option<Algorithm> {
    let key = certificate.public_key();
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => {
            let bits = rsa.key_size();
            (!RSA_BITS.contains(&bits)).then_some(Algorithm::Rsa(bits))
        }
        Ok(PublicKey::EC(_)) => {
            let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
            unsupported_curve(&curve?)
        }
        _ if key.algorithm.algorithm == OID_SIG_ED25519 => None,
        _ => Some(Algorithm::Key(key.algorithm.algorithm.to_id_string())),
    }
}

fn unsupported_curve(curve: &Oid<'_>) -> Option<Algorithm> {
    match curve {
        supported if *supported == OID_EC_P256 || *supported == OID_NIST_EC_P384 => None,
        p521 if *p521 == OID_NIST_EC_P521 => Some(Algorithm::Curve("P-521".to_owned())),
        other => Some(Algorithm::Curve(other.to_id_string())),
    }
}
