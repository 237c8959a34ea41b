//! `POST serviceaccounts/NAME/token`.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::http::api::Api;
use crate::http::handlers::write_checks;
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::http::response::answer::{self, HandlerResult, not_allowed};
use crate::model::clock::metav1_time;
use crate::model::status_error::{FieldError, StatusError};

/// The default audience.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

const USUAL_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;

/// Creates a token. Tokens bound to pods are not supported.
///
/// # Errors
/// 404 for an unknown account, 422 for a short lifetime or unsupported options.
pub(crate) fn create(api: &Api, method: &http::Method, call: &Call) -> HandlerResult {
    if method != http::Method::POST {
        return Err(not_allowed());
    }
    options::check_write(&call.query, "CreateOptions")?;
    let mut request = write_checks::read(&call.content_type, &call.body, "TokenRequest")?;
    let account = api.cluster().store.read(|state| state.get(&call.stored.collection, &call.key()));
    let account = account.ok_or_else(|| call.not_found())?;
    let spec = &mut request["spec"];
    if spec["boundObjectRef"].is_object() {
        return Err(StatusError::bad_request("spec.boundObjectRef: not supported by the sandbox"));
    }
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(USUAL_SECONDS);
    if seconds < LEAST_SECONDS {
        let because = "may not specify a duration less than 10 minutes";
        let cause = FieldError::invalid("spec.expirationSeconds", &json!(seconds), because);
        return Err(invalid(cause));
    }
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([AUDIENCE]);
    }
    let for_us = spec["audiences"].as_array().is_some_and(|all| all.contains(&json!(AUDIENCE)));
    let audiences = spec["audiences"].clone();
    let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
    // Tokens for other audiences are never used here, so they are not stored.
    let uid_of_token = if for_us { uid } else { "" };
    let lifetime = SignedDuration::from_secs(seconds);
    let (token, expires) = api.access.account_token(call.key(), uid_of_token, lifetime);
    let created = api.cluster().clock.now_string();
    let reported: Value = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.name(), "namespace": call.namespace(), "uid": uid, "creationTimestamp": created},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": metav1_time(expires)},
    });
    Ok(answer::json(201, &reported))
}

fn invalid(cause: FieldError) -> StatusError {
    let mut refusal = StatusError::invalid("authentication.k8s.io", "TokenRequest", "", &[cause]);
    if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
        details.retain(|field, value| field != "name" || value != "");
    }
    refusal
}
