//! The expiry of a CA bundle.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::Value;
use x509_parser::pem::Pem;

/// When the last certificate in a `caBundle` expires; `None` if the bundle has no valid certificate.
pub(crate) fn expiry(bundle: &Value) -> Option<Timestamp> {
    let ByteString(pem) = serde_json::from_value(bundle.clone()).ok()?;
    let seconds = Pem::iter_from_buffer(&pem).filter_map(|block| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    seconds.max().and_then(|second| Timestamp::from_second(second).ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pem(until: Timestamp) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = time::OffsetDateTime::from_unix_timestamp(until.as_second()).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn encoded(pem: &str) -> Value {
        serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap()
    }

    /// A bundle with one certificate that is valid until this time.
    pub(crate) fn bundle(until: Timestamp) -> Value {
        encoded(&pem(until))
    }

    #[test]
    fn the_expiry_is_that_of_the_last_certificate() {
        let (sooner, later): (Timestamp, Timestamp) =
            ("2027-01-01T00:00:00Z".parse().unwrap(), "2031-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(expiry(&encoded(&(pem(later) + &pem(sooner)))), Some(later));
        for nothing in [encoded(""), encoded("-----BEGIN"), Value::Null, serde_json::json!("%")] {
            assert_eq!(expiry(&nothing), None, "{nothing}");
        }
    }
}
