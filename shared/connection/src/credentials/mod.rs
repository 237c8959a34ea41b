//! What requests are authenticated with, and when that is renewed.
//!
//! Credentials are read, or issued by a credential program, when the first request needs them, and again when they are about
//! to expire or the server refuses them. All requests share one renewal.

mod auth_provider;
pub(crate) mod error;
mod header;
mod program;
#[cfg(test)]
mod tests;
mod token_file;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use kube::config::AuthInfo;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use self::error::{CredentialError, ProgramError, TokenOrigin};
use self::token_file::TokenFile;
use crate::tls::identity::Identity;

/// How long before they expire credentials are renewed at the earliest. Those that are valid for a short time are renewed
/// when a fifth of it is left.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// How often files are read again, as in client-go.
const FILE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// How long the old credentials are used, while they are valid, after a renewal failed.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// The least time between renewals because of refusals, after the first. It doubles with each further one.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(5);

const MAX_REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// Reads the user from the kubeconfig again. None if that is no longer possible.
pub type Reread = Box<dyn Fn() -> Option<AuthInfo> + Send + Sync>;

/// The credentials of a user, which are renewed while they are used.
#[derive(Clone)]
pub struct Credentials(Arc<Shelf>);

struct Shelf {
    user: Mutex<AuthInfo>,
    reread: Option<Reread>,
    can_prompt: fn() -> bool,
    token_file: Mutex<Option<TokenFile>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Current>>,
    /// The renewal that is under way. It takes itself away, because those who wait for it may give up.
    renewal: Option<Shared<BoxFuture<'static, Renewed>>>,
    /// How many credentials in a row the server has refused, and when the next ones may be issued because of that.
    refusals: u32,
    refused_until: Option<Instant>,
}

impl State {
    fn under_way(&self) -> Option<&Shared<BoxFuture<'static, Renewed>>> {
        // One that panicked did not take itself away.
        self.renewal.as_ref().filter(|renewal| renewal.peek().is_none())
    }
}

type Renewed = Result<Arc<Current>, Arc<CredentialError>>;

/// The credentials of requests at a time.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) identity: Option<Arc<Identity>>,
    expires: Option<Timestamp>,
    renew_at: Option<Timestamp>,
}

impl Credentials {
    /// No credentials, as for a server whose connections are not encrypted.
    pub fn none() -> Self {
        let credentials = Self::new(AuthInfo::default(), None, || false);
        lock(&credentials.0.state).current = Some(Arc::default());
        credentials
    }

    /// The credentials of a user. `can_prompt` is whether a credential program may use the terminal at this moment.
    pub fn new(user: AuthInfo, reread: Option<Reread>, can_prompt: fn() -> bool) -> Self {
        Self(Arc::new(Shelf {
            user: Mutex::new(user),
            reread,
            can_prompt,
            token_file: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Issues the credentials before the first request: whoever has to log in is asked now.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn prepare(&self) -> Result<(), Arc<CredentialError>> {
        self.current().await.map(drop)
    }

    /// The credentials to send a request with.
    pub(crate) async fn current(&self) -> Renewed {
        let renewal = {
            let mut state = lock(&self.0.state);
            match &state.current {
                Some(current) if !current.is_due(Timestamp::now()) => return Ok(current.clone()),
                _ => self.renewal(&mut state),
            }
        };
        let renewed = renewal.await;
        match (renewed, lock(&self.0.state).current.clone()) {
            // They were renewed early, and are still valid.
            (Err(_), Some(current)) if !current.is_due(Timestamp::now()) => Ok(current),
            (renewed, _) => renewed,
        }
    }

    /// The server has refused these credentials. Returns others to try, if there are any.
    pub(crate) async fn after_refusal(
        &self,
        refused: &Arc<Current>,
    ) -> Result<Option<Arc<Current>>, Arc<CredentialError>> {
        let renewal = {
            let mut state = lock(&self.0.state);
            match &state.current {
                Some(newer) if !Arc::ptr_eq(newer, refused) => return Ok(Some(newer.clone())),
                _ => {}
            }
            if state.under_way().is_none() {
                if state.refused_until.is_some_and(|until| Instant::now() < until) {
                    return Ok(None);
                }
                let pause =
                    REFUSAL_INTERVAL.saturating_mul(2_u32.saturating_pow(state.refusals.saturating_sub(1)));
                let pause =
                    if state.refusals == 0 { Duration::ZERO } else { pause.min(MAX_REFUSAL_INTERVAL) };
                state.refused_until = Some(Instant::now() + pause);
                state.refusals = state.refusals.saturating_add(1);
            }
            self.renewal(&mut state)
        };
        let renewed = renewal.await?;
        Ok((!renewed.is_same(refused)).then_some(renewed))
    }

    /// The server has accepted credentials.
    pub(crate) fn note_accepted(&self) {
        let mut state = lock(&self.0.state);
        (state.refusals, state.refused_until) = (0, None);
    }

    /// The renewal that is under way, or one that begins. It goes on if the requests that wait for it give up.
    fn renewal(&self, state: &mut State) -> Shared<BoxFuture<'static, Renewed>> {
        if let Some(renewal) = state.under_way() {
            return renewal.clone();
        }
        let issuing = tokio::spawn(self.clone().renew());
        let renewal = async { issuing.await.unwrap_or_else(|_| Err(Arc::new(ended()))) }.boxed().shared();
        state.renewal = Some(renewal.clone());
        renewal
    }

    async fn renew(self) -> Renewed {
        let is_first = lock(&self.0.state).current.is_none();
        if !is_first && let Some(user) = self.0.reread.as_ref().and_then(|reread| reread()) {
            *lock(&self.0.user) = user;
        }
        let user = lock(&self.0.user).clone();
        let issued = self.0.issue(&user).await.map(Arc::new).map_err(Arc::new);
        let mut state = lock(&self.0.state);
        state.renewal = None;
        let now = Timestamp::now();
        match (&issued, &state.current) {
            (Ok(current), _) => state.current = Some(current.clone()),
            (Err(_), Some(old)) if old.expires.is_some_and(|expires| now < expires) => {
                state.current =
                    Some(Arc::new(Current { renew_at: Some(now + RETRY_INTERVAL), ..old.copy() }));
            }
            (Err(_), _) => {}
        }
        issued
    }
}

impl Shelf {
    async fn issue(&self, user: &AuthInfo) -> Result<Current, CredentialError> {
        let identity = Identity::of_user(user)?;
        let now = Timestamp::now();
        let mut expires = identity.as_ref().and_then(Identity::expires);
        let mut authorization = self.own_authorization(user)?;
        let is_from_file = set(user.token_file.as_ref()).is_some();
        let identity = identity.map(Arc::new);
        if authorization.is_none()
            && let Some(provider) = &user.auth_provider
        {
            let (header, until) = auth_provider::authorization(provider, now)?;
            authorization = Some(header);
            expires = expires.into_iter().chain(until).min();
        }
        // As in client-go, no program is started beside other credentials.
        if authorization.is_none()
            && identity.is_none()
            && let Some(exec) = &user.exec
        {
            let issued = program::run(exec, self.can_prompt).await?;
            let identity = issued.identity.map(Arc::new);
            let renew_at = issued.expires.map(|expires| due(expires, Timestamp::now()));
            return Ok(Current {
                authorization: issued.authorization,
                identity,
                expires: issued.expires,
                renew_at,
            });
        }
        let file = is_from_file.then_some(now + FILE_INTERVAL);
        // Reading the same again helps only if somebody has renewed it.
        let renewed = expires.map(|expires| due(expires, now).max(now + FILE_INTERVAL));
        Ok(Current { authorization, identity, expires, renew_at: file.into_iter().chain(renewed).min() })
    }

    /// The token or password of the kubeconfig. As in client-go, a token file takes precedence over a token.
    fn own_authorization(&self, user: &AuthInfo) -> Result<Option<HeaderValue>, CredentialError> {
        let token = user.token.as_ref().map(SecretString::expose_secret).filter(|token| !token.is_empty());
        let name = set(user.username.as_ref());
        if name.is_some() && (token.is_some() || set(user.token_file.as_ref()).is_some()) {
            return Err(CredentialError::Ambiguous("username", "token"));
        }
        if user.exec.is_some() && user.auth_provider.is_some() {
            return Err(CredentialError::Ambiguous("exec", "auth-provider"));
        }
        let inline = || token.map(|token| header::bearer(token, TokenOrigin::User)).transpose();
        if let Some(path) = set(user.token_file.as_ref()).map(Path::new) {
            let mut file = lock(&self.token_file);
            let file = match &mut *file {
                Some(known) if known.is_of(path) => known,
                other => other.insert(TokenFile::new(path)),
            };
            return match (file.read(), token) {
                (Err(_), Some(_)) => inline(),
                (read, _) => read.map(Some),
            };
        }
        if let Some(name) = name {
            let password = user.password.as_ref().map_or("", SecretString::expose_secret);
            return header::basic(name, password).map(Some);
        }
        inline()
    }
}

impl Current {
    fn is_due(&self, now: Timestamp) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_identity = match (&self.identity, &other.identity) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.authorization == other.authorization && is_same_identity
    }

    fn copy(&self) -> Self {
        Self {
            authorization: self.authorization.clone(),
            identity: self.identity.clone(),
            expires: self.expires,
            renew_at: self.renew_at,
        }
    }
}

/// When credentials that are issued now are renewed.
fn due(expires: Timestamp, now: Timestamp) -> Timestamp {
    let valid = expires.duration_since(now);
    let due = expires - EXPIRY_MARGIN.min(valid / 5).max(SignedDuration::ZERO);
    // Those that have expired already are used for a moment, so that each of many requests does not start a program.
    due.max(now + SignedDuration::from_secs(1))
}

fn set(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

fn ended() -> CredentialError {
    CredentialError::Program { command: None, install_hint: None, problem: ProgramError::Ended }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
