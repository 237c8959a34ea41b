//! The paths at which reviews are answered.
//!
//! Anyone who reaches the port can post there, so the API server is given a path that cannot be guessed. It is stored in
//! the Secret beside the certificate, so that all replicas answer there. The configuration may also contain another path,
//! such as that of an earlier version: reviews are answered there too, until every API server knows that the
//! configuration has changed. All other paths answer 404.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::webhook::credentials::provider;

/// The beginning of every generated path.
const PREFIX: &str = "/validate/";

/// How many hexadecimal digits follow: 128 bits.
const DIGITS: usize = 32;

/// All API servers know a changed configuration after this time.
const PROPAGATION_TIME: Duration = Duration::from_secs(30);

/// Generates a path that cannot be guessed.
///
/// # Errors
/// When there is no randomness.
pub(super) fn generate() -> Result<String, rustls::Error> {
    let mut bytes = [0; DIGITS / 2];
    provider().secure_random.fill(&mut bytes).map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
    Ok(bytes.iter().fold(PREFIX.to_owned(), |path, byte| format!("{path}{byte:02x}")))
}

pub(super) fn is_generated(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| {
        rest.len() == DIGITS
            && rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// The paths at which reviews are answered.
#[derive(Debug, Default)]
pub(super) struct WebhookPaths(RwLock<KnownPaths>);

#[derive(Debug, Default)]
struct KnownPaths {
    own: Option<String>,
    /// The paths that the configuration contains, and those that it contained until this time.
    configured: BTreeMap<String, Option<Instant>>,
}

impl WebhookPaths {
    pub(super) fn fixed(path: &str) -> Self {
        let paths = Self::default();
        paths.set_own(path);
        paths
    }

    pub(super) fn set_own(&self, path: &str) {
        self.change(|known| known.own = Some(path.to_owned()));
    }

    pub(super) fn set_configured(&self, configured: &BTreeSet<String>) {
        let now = Instant::now();
        self.change(|known| {
            known.configured.retain(|_, removed| is_valid(*removed));
            for (path, removed) in &mut known.configured {
                *removed = if configured.contains(path) { None } else { removed.or(Some(now)) };
            }
            known.configured.extend(configured.iter().map(|path| (path.clone(), None)));
        });
    }

    /// Whether reviews are answered at this path.
    pub(super) fn contains(&self, path: &str) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.own.as_deref() == Some(path)
            || known.configured.get(path).is_some_and(|removed| is_valid(*removed))
    }

    fn change(&self, change: impl FnOnce(&mut KnownPaths)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

fn is_valid(removed: Option<Instant>) -> bool {
    removed.is_none_or(|removed| removed.elapsed() < PROPAGATION_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_path_is_unique_and_recognised() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert!(is_generated(&one) && is_generated(&other) && one != other, "{one} {other}");
        for bad in
            ["", "/", "/validate", "/validate/", "/validate/0", &one.to_uppercase(), &format!("{one}0")]
        {
            assert!(!is_generated(bad), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_is_answered_while_it_is_own_or_configured_and_until_every_api_server_knows_its_removal() {
        let paths = WebhookPaths::default();
        let configure =
            |names: &[&str]| paths.set_configured(&names.iter().map(|&name| name.to_owned()).collect());
        assert!(!paths.contains("/"));
        configure(&["/validate"]);
        paths.set_own("/validate/a");
        assert!(paths.contains("/validate") && paths.contains("/validate/a") && !paths.contains("/"));
        configure(&["/validate/a"]);
        assert!(paths.contains("/validate"));
        tokio::time::advance(PROPAGATION_TIME).await;
        assert!(!paths.contains("/validate") && paths.contains("/validate/a"));
        paths.set_own("/validate/b");
        assert!(paths.contains("/validate/a"), "it is still configured");
        configure(&["/validate/b"]);
        configure(&["/validate/a"]);
        tokio::time::advance(PROPAGATION_TIME).await;
        assert!(paths.contains("/validate/a") && paths.contains("/validate/b"), "configured again, and own");
    }
}
