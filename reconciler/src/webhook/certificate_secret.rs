//! The Secret in which certificates and the path are kept, so that all replicas serve the same.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use nm_shared::admission::certificate_renewal::{Authority, Generations};

use crate::webhook::credentials::{Generation, authority};
use crate::webhook::paths;

/// The fields of a generation: authority, certificate, key.
const CURRENT: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// Those of the one that will be served.
const NEXT: [&str; 3] = ["next-ca.crt", "next-tls.crt", "next-tls.key"];

/// The authority of the one that was.
const PREVIOUS: &str = "previous-ca.crt";

/// Where reviews are answered.
const PATH: &str = "webhook-path";

/// What the Secret holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// The authority of what was served before.
    pub(super) previous: Option<Authority>,
    /// What is served.
    pub(super) current: Option<Generation>,
    /// What will be.
    pub(super) next: Option<Generation>,
    /// The path at which reviews are answered.
    pub(super) path: Option<String>,
}

impl Kept {
    /// What a Secret holds for a server of this name, and what of it is damaged, which counts as not there.
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
            authority(&pem).map_err(|error| damages.push(format!("{PREVIOUS}: {error}"))).ok()
        });
        let path = text(PATH);
        if path.as_deref().is_some_and(|path| !paths::is_one(path)) {
            // Not which: it is none that anybody may see.
            damages.push(format!("{PATH}: it is not /validate/ and 32 hexadecimal digits"));
        }
        (Self { previous, current, next, path: path.filter(|path| paths::is_one(path)) }, damages)
    }

    /// The same as the Secret holds it.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put =
            |field: &str, text: &str| data.insert(field.to_owned(), ByteString(text.as_bytes().into()));
        for (fields, generation) in [(CURRENT, &self.current), (NEXT, &self.next)] {
            let Some(Generation { authority, credentials }) = generation else { continue };
            for (field, text) in fields.iter().zip([authority, &credentials.certificate, &credentials.key]) {
                put(field, text);
            }
        }
        if let Some(previous) = &self.previous {
            put(PREVIOUS, &previous.pem);
        }
        if let Some(path) = &self.path {
            put(PATH, path);
        }
        data
    }

    /// What is to be decided with.
    pub(super) fn facts(&self) -> Generations {
        let facts = |generation: &Option<Generation>| generation.as_ref().map(Generation::facts);
        Generations {
            previous: self.previous.clone(),
            current: facts(&self.current),
            next: facts(&self.next),
        }
    }

    /// What is served when the next one takes its turn.
    pub(super) fn promoted(&self) -> Self {
        let previous = self.current.as_ref().map(Generation::facts);
        Self { previous, current: self.next.clone(), next: None, path: self.path.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{SignedDuration, Timestamp};
    use nm_shared::admission::certificate_renewal::Validity;

    const NAME: &str = "a.b.svc";

    fn made() -> Generation {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let validity = Validity::beginning(now, SignedDuration::from_hours(1));
        Generation::make(&[NAME.to_owned()], validity).unwrap()
    }

    fn reread(
        kept: &Kept,
        change: impl FnOnce(&mut BTreeMap<String, ByteString>),
    ) -> (Generations, Vec<String>) {
        let mut data = kept.data();
        change(&mut data);
        let (kept, damages) = Kept::read(&Secret { data: Some(data), ..Secret::default() }, NAME);
        (kept.facts(), damages)
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let path = Some(paths::make().unwrap());
        let all = Kept { previous: None, current: Some(made()), next: Some(made()), path };
        let promoted = Kept { next: Some(made()), ..all.promoted() };
        for kept in [Kept::default(), all, promoted] {
            assert_eq!(reread(&kept, |_| {}), (kept.facts(), vec![]));
            let secret = Secret { data: Some(kept.data()), ..Secret::default() };
            assert_eq!(Kept::read(&secret, NAME).0.path, kept.path);
        }
    }

    #[test]
    fn what_is_damaged_is_not_there_and_is_told() {
        let kept = Kept {
            next: Some(made()),
            ..Kept { current: Some(made()), next: Some(made()), ..Kept::default() }.promoted()
        };
        let whole = kept.facts();
        let (found, damages) = reread(&kept, |data| drop(data.remove("tls.key")));
        assert_eq!(found, Generations { current: None, ..whole.clone() });
        assert!(damages[0].starts_with("tls.crt: the key is none"), "{damages:?}");
        let (found, damages) =
            reread(&kept, |data| drop(data.insert(PREVIOUS.into(), ByteString(vec![0xff]))));
        assert_eq!(found, Generations { previous: None, ..whole.clone() });
        assert!(damages[0].starts_with("previous-ca.crt: the certificate is none"), "{damages:?}");
        let (_, damages) =
            reread(&kept, |data| drop(data.insert(PATH.into(), ByteString(b"/validate".into()))));
        assert_eq!(damages, ["webhook-path: it is not /validate/ and 32 hexadecimal digits"]);
        let swap = |data: &mut BTreeMap<String, ByteString>| {
            let key = data["tls.key"].clone();
            data.insert("next-tls.key".into(), key);
        };
        let (found, damages) = reread(&kept, swap);
        assert_eq!(found, Generations { next: None, ..whole });
        assert_eq!(damages, ["next-tls.crt: the key is not that of the certificate"]);
    }
}
