//! Rotates the webhook's certificates. Every replica watches the Secret and the webhook configuration,
//! and takes the renewal step that `nm-shared` decides. If several replicas take a step at once, the Secret's
//! resourceVersion lets only the first succeed; the others learn of it from their watch.

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
use nm_shared::admission::certificate_renewal::{RenewalStep, Validity, next_step};
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::client::{patch_params, post_params};
use crate::runtime::last_failure::LastFailure;
use crate::watch::watch_stream::{is_forbidden, object_watch_stream};
use crate::webhook::certificate_secret::CertificateSecret;
use crate::webhook::configuration::WebhookConfiguration;
use crate::webhook::credentials::{CredentialsError, Generation};
use crate::webhook::served_certificate::ServedCertificate;

/// How long to wait after a failure, unless a watch delivers a change earlier.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The longest wait before the next step is decided again.
const MAX_WAIT: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("secret {namespace}/{WEBHOOK}: {source}")]
    Secret { namespace: String, source: kube::Error },
    #[error("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}: {0}")]
    Configuration(#[source] kube::Error),
    #[error("something else changes {0} after each write")]
    Overwritten(String),
}

impl RotationError {
    /// Whether another replica was faster.
    fn is_conflict(&self) -> bool {
        let (Self::Secret { source, .. } | Self::Configuration(source)) = self else { return false };
        matches!(source, kube::Error::Api(status) if status.code == 409)
    }
}

type States<K> = Pin<Box<dyn Stream<Item = watcher::Result<Option<K>>> + Send>>;

pub(super) struct CertificateRotation {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    namespace: String,
    lifetime: SignedDuration,
    served: Arc<ServedCertificate>,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// The Secret as it was last delivered or written, if it exists.
    secret: Option<Secret>,
    /// Whether the Secret's state is known.
    is_secret_known: bool,
    /// The content of the Secret. What is damaged or missing there keeps its last known value.
    content: CertificateSecret,
    /// Whether the Secret's certificates are complete.
    is_complete: bool,
    configuration: Option<WebhookConfiguration>,
}

impl CertificateRotation {
    /// Rotates the certificates of this namespace, each of which is valid for `lifetime`.
    pub(super) fn new(
        client: &Client,
        namespace: &str,
        lifetime: SignedDuration,
        served: Arc<ServedCertificate>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client.clone()),
            namespace: namespace.to_owned(),
            lifetime,
            served,
            clock: Box::new(Timestamp::now),
            secret: None,
            is_secret_known: false,
            content: CertificateSecret::default(),
            is_complete: false,
            configuration: None,
        }
    }

    /// Rotates. Never ends.
    pub(super) async fn run(mut self) {
        let mut secrets = states(&self.secrets, WEBHOOK);
        let mut configurations = states(&self.configurations, WEBHOOK_CONFIGURATION);
        let [mut secret_failure, mut configuration_failure, mut step_failure] =
            [(); 3].map(|()| LastFailure::default());
        // A step is taken when it is due, also while the watches fail.
        let mut due = Instant::now();
        loop {
            tokio::select! {
                Some(state) = secrets.next() => match state {
                    Ok(secret) => {
                        secret_failure.clear();
                        self.secret_delivered(secret);
                    }
                    Err(error) => {
                        log_watch_failure(&mut secret_failure, &format!("secret {}/{WEBHOOK}", self.namespace), &error);
                        continue;
                    }
                },
                Some(state) = configurations.next() => match state {
                    Ok(found) => {
                        configuration_failure.clear();
                        self.configuration_delivered(found);
                    }
                    Err(error) => {
                        let what = format!("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}");
                        log_watch_failure(&mut configuration_failure, &what, &error);
                        continue;
                    }
                },
                () = sleep_until(due) => {}
            }
            let wait = match self.advance().await {
                Ok(wait) => {
                    step_failure.clear();
                    wait
                }
                Err(error) => {
                    if !error.is_conflict() && step_failure.is_new(&error.to_string()) {
                        warn!("cannot renew the webhook's certificate; retrying: {error}");
                    }
                    RETRY_INTERVAL
                }
            };
            due = Instant::now() + wait;
        }
    }

    /// Takes in the Secret and serves its certificate.
    fn secret_delivered(&mut self, secret: Option<Secret>) {
        self.is_complete = false;
        if let Some(secret) = &secret {
            let (found, damages) = CertificateSecret::read(secret, &host(&self.namespace));
            self.is_complete = damages.is_empty() && found.current.is_some();
            for damage in damages {
                warn!("secret {}/{WEBHOOK} is damaged and will be repaired: {damage}", self.namespace);
            }
            if let Some(current) = &found.current {
                self.served.serve(&current.credentials);
            }
            let current = found.current.or_else(|| self.content.current.take());
            self.content = CertificateSecret { current, ..found };
        }
        (self.secret, self.is_secret_known) = (secret, true);
    }

    fn configuration_delivered(&mut self, found: Option<ValidatingWebhookConfiguration>) {
        let now = (self.clock)();
        self.configuration = Some(WebhookConfiguration::observe(found, self.configuration.as_ref(), now));
    }

    /// Takes all steps that are due, and returns how long to wait for the next one.
    async fn advance(&mut self) -> Result<Duration, RotationError> {
        loop {
            let Some(configuration) = self.configuration.as_ref().filter(|_| self.is_secret_known) else {
                return Ok(MAX_WAIT);
            };
            let now = (self.clock)();
            let next = next_step(&self.content.authorities(), configuration.trust(), now);
            let content = match next {
                RenewalStep::Begin => {
                    CertificateSecret { current: Some(self.generate(now)?), ..CertificateSecret::default() }
                }
                // A certificate was removed, so it is replaced. It is served until the API server trusts the next one.
                _ if !self.is_complete => CertificateSecret {
                    previous: None,
                    next: Some(self.generate(now)?),
                    ..self.content.clone()
                },
                RenewalStep::Wait(until) => {
                    let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return Ok(wait.min(MAX_WAIT));
                }
                RenewalStep::UpdateBundle(pem) => {
                    self.configure(&pem).await?;
                    continue;
                }
                RenewalStep::Prepare => {
                    CertificateSecret { next: Some(self.generate(now)?), ..self.content.clone() }
                }
                RenewalStep::Promote => self.content.promoted(),
            };
            self.store(content).await?;
        }
    }

    fn generate(&self, now: Timestamp) -> Result<Generation, RotationError> {
        Ok(Generation::generate(&names(&self.namespace), Validity::beginning(now, self.lifetime))?)
    }

    /// Writes the Secret, unless it has changed.
    async fn store(&mut self, content: CertificateSecret) -> Result<(), RotationError> {
        let existing = self.secret.as_ref();
        let mut secret = existing.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta { name: Some(WEBHOOK.to_owned()), ..ObjectMeta::default() },
            ..Secret::default()
        });
        secret.data = Some(content.data());
        let params = post_params();
        let written = match existing {
            None => self.secrets.create(&params, &secret).await,
            Some(_) => self.secrets.replace(WEBHOOK, &params, &secret).await,
        };
        let namespace = self.namespace.clone();
        let written = written.map_err(|source| RotationError::Secret { namespace, source })?;
        self.secret_delivered(Some(written));
        if self.is_complete {
            Ok(())
        } else {
            Err(RotationError::Overwritten(format!("secret {}/{WEBHOOK}", self.namespace)))
        }
    }

    /// Makes the API server trust these authorities.
    async fn configure(&mut self, pem: &str) -> Result<(), RotationError> {
        let Some(configuration) = &self.configuration else { return Ok(()) };
        let change = Patch::Strategic(configuration.patch(pem));
        let written = self.configurations.patch(WEBHOOK_CONFIGURATION, &patch_params(), &change).await;
        self.configuration_delivered(Some(written.map_err(RotationError::Configuration)?));
        if !self.configuration.as_ref().is_some_and(|configuration| configuration.has_bundle(pem)) {
            let what = format!("validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}");
            return Err(RotationError::Overwritten(what));
        }
        info!("updated the webhook configuration with the authorities");
        Ok(())
    }
}

fn log_watch_failure(last_failure: &mut LastFailure, what: &str, error: &watcher::Error) {
    if last_failure.is_new(&error.to_string()) {
        warn!("{}", watch_failure(what, error));
    }
}

fn watch_failure(what: &str, error: &watcher::Error) -> String {
    if is_forbidden(error) {
        format!(
            "cannot watch {what}, so the webhook's certificate may not be served or renewed; manifests/ contains the \
             permissions: {error}"
        )
    } else {
        format!("the watch on {what} is interrupted; retrying: {error}")
    }
}

/// The host to which the API server connects.
fn host(namespace: &str) -> String {
    format!("{WEBHOOK}.{namespace}.svc")
}

/// All names for which the certificate is valid. The last two are for a configuration with a `url` on the same host.
fn names(namespace: &str) -> Vec<String> {
    let host = host(namespace);
    vec![format!("{host}.cluster.local"), host, "localhost".to_owned(), "127.0.0.1".to_owned()]
}

fn states<K>(api: &Api<K>, name: &str) -> States<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    object_watch_stream(api.clone(), name).boxed()
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

    const LIFETIME: SignedDuration = SignedDuration::from_hours(4);

    /// An API server that answers one empty list each for the Secret and the configuration and fails every later list and
    /// watch; and the Secrets that are written.
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

    #[test]
    fn only_a_refused_watch_is_reported_as_a_missing_permission() {
        let status = |code: u16| {
            let answer = json!({"kind": "Status", "message": "no", "reason": "R", "code": code});
            Box::new(serde_json::from_value::<kube::core::Status>(answer).unwrap())
        };
        let lost = || kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        for (error, blames_permissions) in [
            (watcher::Error::InitialListFailed(kube::Error::Api(status(403))), true),
            (watcher::Error::WatchStartFailed(kube::Error::Api(status(403))), true),
            (watcher::Error::WatchError(status(403)), true),
            (watcher::Error::InitialListFailed(kube::Error::Api(status(503))), false),
            (watcher::Error::WatchError(status(410)), false),
            (watcher::Error::InitialListFailed(lost()), false),
            (watcher::Error::WatchFailed(lost()), false),
        ] {
            let message = watch_failure("secret a/b", &error);
            assert_eq!(message.contains("permissions"), blames_permissions, "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_certificate_is_renewed_while_the_watches_fail() {
        let (client, mut written) = unwatchable();
        let served = ServedCertificate::none(Readiness::default().check("webhook"), Arc::new(Metrics::new()));
        let mut rotation = CertificateRotation::new(&client, "apps", LIFETIME, Arc::new(served));
        let (began, first) = (Instant::now(), Timestamp::now());
        rotation.clock = Box::new(move || first + SignedDuration::try_from(began.elapsed()).unwrap());
        tokio::spawn(rotation.run());
        let made = written.recv().await.unwrap();
        assert!(made["data"]["tls.crt"].is_string() && made["data"]["next-tls.crt"].is_null(), "{made}");
        let renewed = timeout(Duration::from_secs(4 * 3600), written.recv()).await;
        let renewed = renewed.expect("it is renewed before it expires").unwrap();
        assert!(renewed["data"]["next-tls.crt"].is_string(), "{renewed}");
        let after = began.elapsed().as_secs_f64() / 3600.0;
        assert!((1.9..2.1).contains(&after), "halfway, not after {after} h");
    }
}
