//! The Secret with the webhook's certificates, which makes all replicas serve the same.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use nm_shared::admission::certificate_renewal::{Authority, Generations};

use crate::webhook::credentials::{Generation, read_authority};

/// The keys of the generation that is served: authority, certificate, private key.
const CURRENT: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// The keys of the next generation.
const NEXT: [&str; 3] = ["next-ca.crt", "next-tls.crt", "next-tls.key"];

/// The key of the previous authority.
const PREVIOUS: &str = "previous-ca.crt";

#[derive(Debug, Clone, Default)]
pub(super) struct CertificateSecret {
    /// The authority of the generation that was served before.
    pub(super) previous: Option<Authority>,
    pub(super) current: Option<Generation>,
    pub(super) next: Option<Generation>,
}

impl CertificateSecret {
    /// Parses the content for a server of this name. What is damaged counts as missing and is returned too.
    pub(super) fn read(secret: &Secret, name: &str) -> (Self, Vec<String>) {
        let text = |field: &str| {
            let value = secret.data.as_ref().and_then(|data| data.get(field))?;
            Some(String::from_utf8_lossy(&value.0).into_owned())
        };
        let mut damages = Vec::new();
        let mut generation = |fields: [&str; 3]| {
            let values = fields.map(text);
            if values.iter().all(Option::is_none) {
                return None;
            }
            let [authority, certificate, key] = values.map(Option::unwrap_or_default);
            Generation::read(&authority, &certificate, &key, name)
                .map_err(|error| damages.push(format!("{}: {error}", fields[1])))
                .ok()
        };
        let (current, next) = (generation(CURRENT), generation(NEXT));
        let previous = text(PREVIOUS).and_then(|pem| {
            read_authority(&pem).map_err(|error| damages.push(format!("{PREVIOUS}: {error}"))).ok()
        });
        (Self { previous, current, next }, damages)
    }

    /// The content as the Secret's data.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put =
            |field: &str, text: &str| data.insert(field.to_owned(), ByteString(text.as_bytes().into()));
        for (fields, generation) in [(CURRENT, &self.current), (NEXT, &self.next)] {
            let Some(Generation { authority_pem, credentials }) = generation else { continue };
            for (field, text) in
                fields.iter().zip([authority_pem, &credentials.certificate, &credentials.key])
            {
                put(field, text);
            }
        }
        if let Some(previous) = &self.previous {
            put(PREVIOUS, &previous.pem);
        }
        data
    }

    /// The authorities, by which the next renewal step is decided.
    pub(super) fn authorities(&self) -> Generations {
        let authority = |generation: &Option<Generation>| generation.as_ref().map(Generation::authority);
        Generations {
            previous: self.previous.clone(),
            current: authority(&self.current),
            next: authority(&self.next),
        }
    }

    /// The content after the next generation has become the current one.
    pub(super) fn promoted(&self) -> Self {
        let previous = self.current.as_ref().map(Generation::authority);
        Self { previous, current: self.next.clone(), next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};
    use nm_shared::admission::certificate_renewal::Validity;

    const NAME: &str = "a.b.svc";

    fn generated() -> Generation {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let validity = Validity::beginning(now, SignedDuration::from_hours(1));
        Generation::generate(&[NAME.to_owned()], validity).unwrap()
    }

    fn reread(
        kept: &CertificateSecret,
        change: impl FnOnce(&mut BTreeMap<String, ByteString>),
    ) -> (Generations, Vec<String>) {
        let mut data = kept.data();
        change(&mut data);
        let (kept, damages) =
            CertificateSecret::read(&Secret { data: Some(data), ..Secret::default() }, NAME);
        (kept.authorities(), damages)
    }

    #[test]
    fn the_content_survives_a_round_trip() {
        let all = CertificateSecret { previous: None, current: Some(generated()), next: Some(generated()) };
        let promoted = CertificateSecret { next: Some(generated()), ..all.promoted() };
        for kept in [CertificateSecret::default(), all, promoted] {
            assert_eq!(reread(&kept, |_| {}), (kept.authorities(), vec![]));
        }
    }

    #[test]
    fn damaged_content_counts_as_missing_and_is_reported() {
        let kept = CertificateSecret {
            next: Some(generated()),
            ..CertificateSecret {
                current: Some(generated()),
                next: Some(generated()),
                ..CertificateSecret::default()
            }
            .promoted()
        };
        let whole = kept.authorities();
        let (found, damages) = reread(&kept, |data| drop(data.remove("tls.key")));
        assert_eq!(found, Generations { current: None, ..whole.clone() });
        assert!(damages[0].starts_with("tls.crt: invalid private key"), "{damages:?}");
        let (found, damages) =
            reread(&kept, |data| drop(data.insert(PREVIOUS.into(), ByteString(vec![0xff]))));
        assert_eq!(found, Generations { previous: None, ..whole.clone() });
        assert!(damages[0].starts_with("previous-ca.crt: invalid certificate"), "{damages:?}");
        let swap = |data: &mut BTreeMap<String, ByteString>| {
            let key = data["tls.key"].clone();
            data.insert("next-tls.key".into(), key);
        };
        let (found, damages) = reread(&kept, swap);
        assert_eq!(found, Generations { next: None, ..whole });
        assert_eq!(damages, ["next-tls.crt: the private key does not belong to the certificate"]);
    }
}
