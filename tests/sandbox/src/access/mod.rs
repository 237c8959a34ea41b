//! Authentication and authorization.
//!
//! [`Access::authenticate`] determines the user from bearer tokens (`tokens`) and `Impersonate-` headers
//! (`impersonation`). [`Access::decide`] checks the attributes of a request (`attributes`) against the user's roles,
//! which are ordinary objects: an index (`roles`) follows them, and `policy` evaluates one rule. `built_in` holds the
//! roles of a new cluster, and `aggregation` the aggregated ones.
//!
//! Unlike in a real API server, users can grant permissions that they do not have.

pub(crate) mod aggregation;
mod attributes;
mod built_in;
mod impersonation;
mod policy;
mod roles;
mod tokens;
mod user;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

pub(crate) use crate::access::attributes::Attributes;
use crate::access::impersonation::Impersonation;
pub(crate) use crate::access::policy::PolicyRule;
use crate::access::roles::Roles;
pub(crate) use crate::access::roles::{Decision, Granted, joined};
use crate::access::tokens::Tokens;
use crate::access::user::MASTERS;
pub(crate) use crate::access::user::User;

use crate::cluster::Cluster;
use crate::cluster::store::Key;
use crate::model::status_error::StatusError;

/// The users of a cluster and their permissions.
#[derive(Debug)]
pub(crate) struct Access {
    cluster: Arc<Cluster>,
    tokens: Mutex<Tokens>,
    roles: Mutex<Roles>,
    admin_token: String,
}

impl Access {
    /// One administrator with a token, and the built-in roles.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        built_in::seed(&cluster);
        let mut tokens = Tokens::default();
        let admin_token = tokens.for_user(User::new("kubernetes-admin", &[MASTERS]));
        let roles = Mutex::new(Roles::new(&cluster.store));
        Self { cluster, tokens: Mutex::new(tokens), roles, admin_token }
    }

    /// The administrator's bearer token.
    pub(crate) fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// A bearer token for a user in groups.
    pub(crate) fn add_user(&self, name: &str, groups: &[&str]) -> String {
        lock(&self.tokens).for_user(User::new(name, groups))
    }

    /// A bearer token for a service account, and when it expires.
    pub(crate) fn account_token(
        &self,
        account: Key,
        uid: &str,
        lifetime: SignedDuration,
    ) -> (String, Timestamp) {
        lock(&self.tokens).for_account(account, uid, self.cluster.clock.now(), lifetime)
    }

    /// The user of a token, if it is valid.
    pub(crate) fn owner(&self, token: &str) -> Option<User> {
        lock(&self.tokens).owner(token, &self.cluster.store, self.cluster.clock.now())
    }

    /// The user of a request, after impersonation.
    ///
    /// # Errors
    /// 401 for an invalid token, 403 for an impersonation that is not allowed, 400 for incomplete impersonation
    /// headers.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<User, StatusError> {
        let user = match bearer(headers) {
            None => User::anonymous(),
            Some(token) => {
                self.owner(token).ok_or_else(|| StatusError::new(401, "Unauthorized", "Unauthorized"))?
            }
        };
        let Some(impersonation) = Impersonation::read(headers)? else {
            return Ok(user);
        };
        for right in impersonation.needs() {
            self.authorize(&user, right)?;
        }
        Ok(impersonation.into_user())
    }

    /// Whether the user may do it, and why. Every authorization decision is made here.
    pub(crate) fn decide(&self, user: &User, wanted: Attributes<'_>) -> Decision {
        if user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        self.roles().verdict(user, wanted)
    }

    /// Like [`Access::decide`], as a result.
    ///
    /// # Errors
    /// 403 that names the user, the verb and the resource.
    pub(crate) fn authorize(&self, user: &User, wanted: Attributes<'_>) -> Result<(), StatusError> {
        let verdict = self.decide(user, wanted);
        if verdict.allowed { Ok(()) } else { Err(wanted.forbidden(user, &verdict.reason)) }
    }

    /// The user's permissions in a namespace.
    pub(crate) fn granted(&self, user: &User, namespace: &str) -> Granted {
        self.roles().granted(user, namespace)
    }

    fn roles(&self) -> MutexGuard<'_, Roles> {
        let mut roles = lock(&self.roles);
        roles.refresh(&self.cluster.store);
        roles
    }
}

/// The bearer token of a request. Other credentials are ignored.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get("authorization")?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic, the tokens are those that were last written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
