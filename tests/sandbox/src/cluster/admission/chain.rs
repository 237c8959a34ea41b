//! Calls all webhooks that match a request, concurrently.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cluster::admission::match_condition;
use crate::cluster::admission::policy;
use crate::cluster::admission::review_request::{ReviewRequest, View};
use crate::cluster::admission::review_response;
use crate::cluster::admission::review_response::ReviewResponse;
use crate::cluster::admission::services::Services;
use crate::cluster::admission::webhook::Webhook;
use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::store::{Collection, Key, Object, Store};
use crate::model::status_error::StatusError;

const CONFIGURATIONS: Collection =
    Collection::fixed("admissionregistration.k8s.io", "validatingwebhookconfigurations");

/// What was read of a configuration.
#[derive(Debug)]
struct WebhookCache {
    version: Value,
    webhooks: Arc<[Webhook]>,
}

/// The webhooks of a cluster, by configuration.
#[derive(Debug, Default)]
pub struct Admission {
    /// The servers of the services that webhooks refer to.
    pub services: Services,
    /// The parsed webhooks of each configuration, by its name.
    known: Mutex<HashMap<String, WebhookCache>>,
}

impl Admission {
    /// Calls every webhook that matches a request, and returns warnings. The store is not locked meanwhile.
    ///
    /// # Errors
    /// The first denial, or the first failure of a webhook whose failure policy is `Fail`.
    pub(crate) async fn review(
        &self,
        store: &Store,
        question: impl FnOnce() -> ReviewRequest,
    ) -> Result<Vec<String>, StatusError> {
        let configurations: Vec<Object> = store.read(|state| state.list(&CONFIGURATIONS, None).collect());
        if configurations.is_empty() && policy::is_idle(store) {
            return Ok(Vec::new());
        }
        let question = question();
        policy::check(store, &question, || namespace_labels(store, &question))?;
        if question.asked.group == CONFIGURATIONS.group {
            // Webhook configurations are not subject to webhooks, so that a broken one can be fixed.
            return Ok(Vec::new());
        }
        let webhooks: Vec<Arc<[Webhook]>> =
            configurations.iter().map(|configuration| self.webhooks(configuration)).collect();
        let asked = webhooks.iter().flat_map(|webhooks| webhooks.iter()).filter_map(|webhook| {
            let view = webhook.view(&question, || namespace_labels(store, &question))?;
            Some(self.ask(webhook, &question, view))
        });
        let mut warnings = Vec::new();
        let mut refused = None;
        for verdict in join_all(asked).await {
            match verdict {
                Ok(ReviewResponse::Allowed(more)) => warnings.extend(more),
                Ok(ReviewResponse::Denied(mut refusal)) => {
                    warnings.append(&mut refusal.warnings);
                    _ = refused.get_or_insert(refusal);
                }
                Err(refusal) => _ = refused.get_or_insert(refusal),
            }
        }
        match refused {
            Some(refusal) => Err(StatusError { warnings, ..refusal }),
            None => Ok(warnings),
        }
    }

    async fn ask(
        &self,
        webhook: &Webhook,
        question: &ReviewRequest,
        view: &View,
    ) -> Result<ReviewResponse, StatusError> {
        let allowed = Ok(ReviewResponse::Allowed(Vec::new()));
        let uid = Uuid::new_v4().to_string();
        let request = question.request(&uid, view);
        match match_condition::all_hold(&webhook.conditions, &request) {
            Ok(true) => {}
            Err(because) if webhook.fails_closed => return Err(question.forbidden(&because)),
            Ok(false) | Err(_) => return allowed,
        }
        let name = &webhook.name;
        if question.dry_run && !webhook.answers_dry_runs {
            let message = format!("admission webhook {name:?} does not support dry run");
            return Err(StatusError::bad_request(message));
        }
        let answered = webhook.line.ask(&self.services, &request).await;
        match answered.and_then(|review| review_response::read(name, &uid, &review)) {
            Ok(verdict) => Ok(verdict),
            Err(because) if webhook.fails_closed => {
                let cause = format!("failed calling webhook {name:?}: {because}");
                Err(StatusError::new(500, "InternalError", format!("Internal error occurred: {cause}"))
                    .with_details(json!({"causes": [{"message": cause}]})))
            }
            Err(because) => {
                tracing::debug!(webhook = name, because, "a webhook that may fail did");
                allowed
            }
        }
    }

    fn webhooks(&self, configuration: &Value) -> Arc<[Webhook]> {
        let metadata = &configuration["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name)
            && known.version == metadata["resourceVersion"]
        {
            return known.webhooks.clone();
        }
        let entries = configuration["webhooks"].as_array().into_iter().flatten();
        let webhooks: Arc<[Webhook]> = entries.map(Webhook::parse).collect();
        let version = metadata["resourceVersion"].clone();
        known.insert(name.to_owned(), WebhookCache { version, webhooks: webhooks.clone() });
        webhooks
    }
}

/// Whether there are no webhooks and no policies.
pub(crate) fn is_idle(store: &Store) -> bool {
    store.read(|state| state.list(&CONFIGURATIONS, None).next().is_none()) && policy::is_idle(store)
}

/// The labels that a `namespaceSelector` matches: for a write to a namespace, its new labels.
fn namespace_labels(store: &Store, question: &ReviewRequest) -> Value {
    let written = &question.asked.object;
    if question.is_about_namespaces() && question.subresource.is_empty() && written.is_object() {
        return written["metadata"]["labels"].clone();
    }
    let namespace = store.read(|state| state.get(&NAMESPACES, &Key::cluster(&*question.namespace)));
    namespace.map_or(Value::Null, |namespace| namespace["metadata"]["labels"].clone())
}
