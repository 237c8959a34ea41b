//! Certificates for tests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SigningKey,
};
use time::{Duration, OffsetDateTime};

/// A certificate with its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) der: Vec<u8>,
}

/// An authority that issues certificates.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// The parameters of a certificate of this name that is valid from an hour ago and for so many seconds from now.
pub(crate) fn params(name: &str, names: &[&str], seconds: i64) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::seconds(seconds);
    params
}

#[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
pub(crate) fn self_signed(params: CertificateParams) -> Issued {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Issued { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().to_vec() }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(name, &[], 3600);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self::of(params)
    }

    pub(crate) fn of(params: CertificateParams) -> Self {
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    pub(crate) fn client(&self, name: &str, seconds: i64) -> Issued {
        let mut params = params(name, &[], seconds);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    pub(crate) fn server(&self, name: &str) -> Issued {
        let mut params = params("server", &[name], 3600);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// The same certificate in version 1, which has no extensions, as openssl issues it to `MicroK8s`. rcgen makes none.
    pub(crate) fn version_1(&self, issued: &Issued) -> Issued {
        let whole = elements(elements(&issued.der)[0].1);
        let fields =
            elements(whole[0].1).into_iter().filter(|(element, _)| !matches!(element[0], 0xA0 | 0xA3));
        let unsigned = sequence(fields.map(|(element, _)| element));
        let signature = self.0.key().sign(&unsigned).unwrap();
        let signature = encode(0x03, &[&[0], &signature[..]].concat());
        let der = sequence([&unsigned, whole[1].0, &signature].into_iter());
        let certificate = STANDARD.encode(&der);
        let certificate = format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
        Issued { certificate, key: issued.key.clone(), der }
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    pub(crate) fn issue(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &*self.0).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().to_vec() }
    }
}

/// The elements of a DER sequence: each as a whole, and its content.
fn elements(mut der: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut elements = Vec::new();
    while let [_, length, ..] = *der {
        let (start, length) = match length {
            0x82 => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
            0x81 => (3, usize::from(der[2])),
            short => (2, usize::from(short)),
        };
        let (element, rest) = der.split_at(start + length);
        elements.push((element, &element[start..]));
        der = rest;
    }
    elements
}

fn encode(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let length = match length {
        [0, short @ 0..0x80] => vec![short],
        [0, long] => vec![0x81, long],
        [high, low] => vec![0x82, high, low],
    };
    [&[tag], &length[..], content].concat()
}

fn sequence<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    encode(0x30, &elements.collect::<Vec<_>>().concat())
}
