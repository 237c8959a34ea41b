//! Keeping the certificates and the path: every replica follows the Secret and the webhook configuration, and takes whatever step
//! `nm-shared` says is next. Of several that take one at once the first is obeyed, by the Secret's resourceVersion; the
//! others hear of it by their watch.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch};
use kube::runtime::watcher;
use kube::{Api, Client};
use nm_shared::admission::certificate_renewal::{
    ConfiguredTrust, RenewalStep, Validity, next_step, path_due,
};
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::client::write_params::{patch_params, post_params};
use crate::watch::watch_stream::watched_object;
use crate::webhook::certificate_secret::Kept;
use crate::webhook::configuration::Configuration;
use crate::webhook::credentials::{CredentialsError, Generation};
use crate::webhook::paths::{self, Paths};
use crate::webhook::served_certificate::{Complaint, Served};

/// What failed is tried again so soon, unless there is news before.
const PAUSE: Duration = Duration::from_secs(2);

/// No timer is set for longer; who is woken looks again.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Make(#[from] CredentialsError),
    #[error("cannot make a path: {0}")]
    Path(#[from] rustls::Error),
    #[error("secret {namespace}/{WEBHOOK}: {source}")]
    Secret { namespace: String, source: kube::Error },
    #[error("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}: {0}")]
    Configuration(#[source] kube::Error),
    #[error("{0} does not stay as it is written; something else changes it")]
    Undone(String),
}

impl StepError {
    /// Whether somebody was faster.
    fn is_conflict(&self) -> bool {
        let (Self::Secret { source, .. } | Self::Configuration(source)) = self else { return false };
        matches!(source, kube::Error::Api(status) if status.code == 409)
    }
}

/// A path of which the API server is to be told.
struct Untold {
    path: String,
    due: Timestamp,
    /// Whom it believes meanwhile.
    bundle: String,
}

type States<K> = Pin<Box<dyn Stream<Item = watcher::Result<Option<K>>> + Send>>;

/// Follows and renews what is served.
pub(super) struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    namespace: String,
    life: SignedDuration,
    served: Arc<Served>,
    /// The time.
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    paths: Arc<Paths>,
    /// The Secret as it was seen last, if there was one.
    secret: Option<Secret>,
    /// Whether anybody has looked.
    is_seen: bool,
    /// What is kept, or will be again: what was found damaged or missing is what was known before.
    kept: Kept,
    /// Whether the Secret holds just that.
    is_whole: bool,
    /// Whether it holds the path.
    has_path: bool,
    /// Since when this path is known.
    path_known: Timestamp,
    configuration: Option<Configuration>,
}

impl Keeper {
    /// A keeper of what is served in this namespace, by certificates that are valid for `life`.
    pub(super) fn new(
        client: &Client,
        namespace: &str,
        life: SignedDuration,
        served: Arc<Served>,
        paths: Arc<Paths>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client.clone()),
            namespace: namespace.to_owned(),
            life,
            served,
            clock: Box::new(Timestamp::now),
            paths,
            secret: None,
            is_seen: false,
            kept: Kept::default(),
            is_whole: false,
            has_path: false,
            path_known: Timestamp::MIN,
            configuration: None,
        }
    }

    /// Keeps, for ever.
    pub(super) async fn run(mut self) {
        let mut secrets = states(&self.secrets, WEBHOOK);
        let mut configurations = states(&self.configurations, WEBHOOK_CONFIGURATION);
        let (mut unread, mut untold, mut undone) =
            (Complaint::default(), Complaint::default(), Complaint::default());
        // Whatever the watches tell meanwhile, or fail to, what is due then is done then.
        let mut due = Instant::now();
        loop {
            tokio::select! {
                Some(state) = secrets.next() => match state {
                    Ok(secret) => {
                        unread.over();
                        self.see(secret);
                    }
                    Err(error) => {
                        complain(&mut unread, &format!("secret {}/{WEBHOOK}", self.namespace), &error);
                        continue;
                    }
                },
                Some(state) = configurations.next() => match state {
                    Ok(found) => {
                        untold.over();
                        self.hear(found);
                    }
                    Err(error) => {
                        let what = format!("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}");
                        complain(&mut untold, &what, &error);
                        continue;
                    }
                },
                () = sleep_until(due) => {}
            }
            let rest = match self.advance().await {
                Ok(rest) => {
                    undone.over();
                    rest
                }
                Err(error) => {
                    if !error.is_conflict() && undone.is_new(&error.to_string()) {
                        warn!(
                            "the webhook's certificate is not looked after, which will be tried again: {error}"
                        );
                    }
                    PAUSE
                }
            };
            due = Instant::now() + rest;
        }
    }

    /// Takes the Secret as it is now, and serves what it says.
    fn see(&mut self, secret: Option<Secret>) {
        (self.is_whole, self.has_path) = (false, false);
        if let Some(secret) = &secret {
            let (kept, damages) = Kept::read(secret, &host(&self.namespace));
            self.is_whole = damages.is_empty() && kept.current.is_some();
            self.has_path = kept.path.is_some();
            for damage in damages {
                warn!("secret {}/{WEBHOOK} is damaged and will be mended: {damage}", self.namespace);
            }
            if let Some(current) = &kept.current {
                self.served.serve(&current.credentials);
            }
            let current = kept.current.or_else(|| self.kept.current.take());
            let path = kept.path.or_else(|| self.kept.path.clone());
            if path != self.kept.path {
                self.path_known = (self.clock)();
            }
            self.kept = Kept { current, path, ..kept };
            if let Some(path) = &self.kept.path {
                self.paths.keep(path);
            }
        }
        (self.secret, self.is_seen) = (secret, true);
    }

    fn hear(&mut self, found: Option<ValidatingWebhookConfiguration>) {
        let configuration = Configuration::seen(found, self.configuration.as_ref(), (self.clock)());
        self.paths.name(&configuration.paths());
        self.configuration = Some(configuration);
    }

    /// Takes all steps that are due, and returns for how long there is none.
    async fn advance(&mut self) -> Result<Duration, StepError> {
        loop {
            let Some(configuration) = self.configuration.as_ref().filter(|_| self.is_seen) else {
                return Ok(LONGEST_REST);
            };
            let now = (self.clock)();
            let next = next_step(&self.kept.facts(), configuration.told(), now);
            let untold = self.untold_path(configuration);
            let new = match next {
                RenewalStep::Begin => Kept { current: Some(self.make(now)?), ..Kept::default() },
                // Whoever removed it wants another; those who are told of this one have it until they know the other.
                _ if !self.is_whole => {
                    Kept { previous: None, next: Some(self.make(now)?), ..self.kept.clone() }
                }
                _ if !self.has_path => self.kept.clone(),
                RenewalStep::Wait(until) => {
                    let until = untold.as_ref().map_or(until, |untold| untold.due.min(until));
                    if let Some(untold) = untold.filter(|untold| untold.due <= now) {
                        self.tell(&untold.bundle, Some(&untold.path)).await?;
                        continue;
                    }
                    let rest = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return Ok(rest.min(LONGEST_REST));
                }
                RenewalStep::UpdateBundle(pem) => {
                    let path = untold.filter(|untold| untold.due <= now).map(|untold| untold.path);
                    self.tell(&pem, path.as_deref()).await?;
                    continue;
                }
                RenewalStep::Prepare => Kept { next: Some(self.make(now)?), ..self.kept.clone() },
                RenewalStep::Promote => self.kept.promoted(),
            };
            self.keep(new).await?;
        }
    }

    /// The path that is kept, if the API server asks at another one.
    fn untold_path(&self, configuration: &Configuration) -> Option<Untold> {
        let path = self.kept.path.clone().filter(|path| self.has_path && !configuration.leads_to(path))?;
        let (told, current) = (configuration.told(), self.kept.current.as_ref()?);
        let due = path_due(told, self.path_known, &current.credentials.validity);
        let ConfiguredTrust::Bundle { pem, .. } = told else { return None };
        Some(Untold { path, due, bundle: pem.clone() })
    }

    fn make(&self, now: Timestamp) -> Result<Generation, StepError> {
        Ok(Generation::make(&names(&self.namespace), Validity::beginning(now, self.life))?)
    }

    /// Writes the Secret, if it is still what was seen.
    async fn keep(&mut self, kept: Kept) -> Result<(), StepError> {
        let seen = self.secret.as_ref();
        let mut secret = seen.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta { name: Some(WEBHOOK.to_owned()), ..ObjectMeta::default() },
            ..Secret::default()
        });
        let path = match kept.path.clone().or_else(|| self.kept.path.clone()) {
            Some(path) => path,
            None => paths::make()?,
        };
        secret.data = Some(Kept { path: Some(path), ..kept }.data());
        let params = post_params();
        let written = match seen {
            None => self.secrets.create(&params, &secret).await,
            Some(_) => self.secrets.replace(WEBHOOK, &params, &secret).await,
        };
        let namespace = self.namespace.clone();
        let written = written.map_err(|source| StepError::Secret { namespace, source })?;
        self.see(Some(written));
        if self.is_whole && self.has_path {
            Ok(())
        } else {
            Err(StepError::Undone(format!("secret {}/{WEBHOOK}", self.namespace)))
        }
    }

    /// Has the API server believe these authorities, and ask at this path.
    async fn tell(&mut self, pem: &str, path: Option<&str>) -> Result<(), StepError> {
        let Some(configuration) = &self.configuration else { return Ok(()) };
        let change = Patch::Strategic(configuration.telling(pem, path));
        let told = self.configurations.patch(WEBHOOK_CONFIGURATION, &patch_params(), &change).await;
        self.hear(Some(told.map_err(StepError::Configuration)?));
        let says = |configuration: &Configuration| {
            configuration.says(pem) && path.is_none_or(|path| configuration.leads_to(path))
        };
        if !self.configuration.as_ref().is_some_and(says) {
            let what = format!("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}");
            return Err(StepError::Undone(what));
        }
        info!("the API server was told whom to believe for the webhook, and where to ask");
        Ok(())
    }
}

fn complain(complaint: &mut Complaint, what: &str, error: &watcher::Error) {
    if complaint.is_new(&error.to_string()) {
        warn!(
            "cannot follow {what}, so the webhook's certificate may not be served or renewed; manifests/ has the \
             rights for it: {error}"
        );
    }
}

/// The host by which the API server calls the webhook.
fn host(namespace: &str) -> String {
    format!("{WEBHOOK}.{namespace}.svc")
}

/// All names by which the webhook may be called. The last two are for a configuration with a `url` on the same host,
/// where nobody else can be called by them.
fn names(namespace: &str) -> Vec<String> {
    let host = host(namespace);
    vec![format!("{host}.cluster.local"), host, "localhost".to_owned(), "127.0.0.1".to_owned()]
}

fn states<K>(api: &Api<K>, name: &str) -> States<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watched_object(api.clone(), name).boxed()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use http::{Method, Request, Response, StatusCode};
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::readiness::Readiness;

    const LIFE: SignedDuration = SignedDuration::from_hours(4);

    /// An API server that lists a Secret and a configuration once, of which there are none, and fails every later list and
    /// watch; and the Secrets that it takes.
    fn unwatchable() -> (Client, mpsc::UnboundedReceiver<Value>) {
        let (sender, written) = mpsc::unbounded_channel();
        let lists = Arc::new(AtomicUsize::new(0));
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (sender, lists) = (sender.clone(), lists.clone());
            async move {
                let watches = request.uri().query().unwrap_or_default().contains("watch=true");
                let mut code = StatusCode::OK;
                let answer = if request.method() != Method::GET {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let mut secret: Value = serde_json::from_slice(&body).unwrap();
                    secret["metadata"]["resourceVersion"] = json!("1");
                    sender.send(secret.clone()).unwrap();
                    secret
                } else if !watches && lists.fetch_add(1, Ordering::Relaxed) < 2 {
                    json!({"metadata": {"resourceVersion": "1"}, "items": []})
                } else {
                    code = StatusCode::SERVICE_UNAVAILABLE;
                    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "R", "code": 503})
                };
                let mut response = Response::new(Body::from(answer.to_string()));
                *response.status_mut() = code;
                Ok::<_, Infallible>(response)
            }
        });
        (Client::new(server, "default"), written)
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_fail_until_the_certificate_is_old_do_not_keep_it_from_being_renewed() {
        let (client, mut written) = unwatchable();
        let served = Served::nothing(Readiness::default().check("webhook"), Arc::new(Metrics::new()));
        let mut keeper = Keeper::new(&client, "apps", LIFE, Arc::new(served), Arc::default());
        let (began, first) = (Instant::now(), Timestamp::now());
        keeper.clock = Box::new(move || first + SignedDuration::try_from(began.elapsed()).unwrap());
        tokio::spawn(keeper.run());
        let made = written.recv().await.unwrap();
        assert!(made["data"]["tls.crt"].is_string() && made["data"]["next-tls.crt"].is_null(), "{made}");
        let renewed = timeout(Duration::from_secs(4 * 3600), written.recv()).await;
        let renewed = renewed.expect("it is renewed before it has expired").unwrap();
        assert!(renewed["data"]["next-tls.crt"].is_string(), "{renewed}");
        let after = began.elapsed().as_secs_f64() / 3600.0;
        assert!((1.9..2.1).contains(&after), "halfway, not after {after} h");
    }
}
