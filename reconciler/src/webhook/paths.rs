//! The paths at which reviews are answered.
//!
//! Whoever reaches the port may post there, so the API server is told of a path that nobody can guess. It is kept in the
//! Secret beside the certificate, so that all replicas answer there. A configuration may also name another path, as one of
//! an earlier version does: there it is answered, too, for as long as the configuration names it, and until every API
//! server has heard that it does no more. Everywhere else there is nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::webhook::credentials::provider;

/// What every path begins with.
const PREFIX: &str = "/validate/";

/// How many digits follow: 128 bits in hexadecimal.
const DIGITS: usize = 32;

/// The API servers have heard of another path within this time.
const HEARD: Duration = Duration::from_secs(30);

/// A new path that nobody can guess.
///
/// # Errors
/// When there is no randomness to be had.
pub(super) fn make() -> Result<String, rustls::Error> {
    let mut bytes = [0; DIGITS / 2];
    provider().secure_random.fill(&mut bytes).map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
    Ok(bytes.iter().fold(PREFIX.to_owned(), |path, byte| format!("{path}{byte:02x}")))
}

/// Whether this is such a path.
pub(super) fn is_one(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| {
        rest.len() == DIGITS
            && rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Where reviews are answered.
#[derive(Debug, Default)]
pub(super) struct Paths(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    own: Option<String>,
    /// Those that the configuration names, and those that it has named: since when it does no more.
    named: BTreeMap<String, Option<Instant>>,
}

impl Paths {
    /// The only one there ever is.
    pub(super) fn fixed(path: &str) -> Self {
        let paths = Self::default();
        paths.keep(path);
        paths
    }

    /// From now on this is the path that is kept.
    pub(super) fn keep(&self, path: &str) {
        self.known(|known| known.own = Some(path.to_owned()));
    }

    /// Notes which paths the configuration names.
    pub(super) fn name(&self, named: &BTreeSet<String>) {
        let now = Instant::now();
        self.known(|known| {
            known.named.retain(|_, since| since.is_none_or(|since| since.elapsed() < HEARD));
            for (path, since) in &mut known.named {
                *since = if named.contains(path) { None } else { since.or(Some(now)) };
            }
            known.named.extend(named.iter().map(|path| (path.clone(), None)));
        });
    }

    /// Whether reviews are answered at this path.
    pub(super) fn lead_to(&self, path: &str) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_named = |since: &Option<Instant>| since.is_none_or(|since| since.elapsed() < HEARD);
        known.own.as_deref() == Some(path) || known.named.get(path).is_some_and(is_named)
    }

    fn known(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_be_guessed_and_may_be_named_in_a_configuration() {
        let (one, other) = (make().unwrap(), make().unwrap());
        assert!(is_one(&one) && is_one(&other) && one != other, "{one} {other}");
        for bad in
            ["", "/", "/validate", "/validate/", "/validate/0", &one.to_uppercase(), &format!("{one}0")]
        {
            assert!(!is_one(bad), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_leads_here_while_it_is_kept_or_named_and_until_every_api_server_has_heard_of_another() {
        let paths = Paths::default();
        let named = |names: &[&str]| paths.name(&names.iter().map(|&name| name.to_owned()).collect());
        assert!(!paths.lead_to("/"));
        named(&["/validate"]);
        paths.keep("/validate/a");
        assert!(paths.lead_to("/validate") && paths.lead_to("/validate/a") && !paths.lead_to("/"));
        named(&["/validate/a"]);
        assert!(paths.lead_to("/validate"));
        tokio::time::advance(HEARD).await;
        assert!(!paths.lead_to("/validate") && paths.lead_to("/validate/a"));
        paths.keep("/validate/b");
        assert!(paths.lead_to("/validate/a"), "it is named still");
        named(&["/validate/b"]);
        named(&["/validate/a"]);
        tokio::time::advance(HEARD).await;
        assert!(paths.lead_to("/validate/a") && paths.lead_to("/validate/b"), "named again, and kept");
    }
}
