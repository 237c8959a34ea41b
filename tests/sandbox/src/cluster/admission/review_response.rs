//! The response of a webhook.

use std::borrow::Cow;

use serde_json::Value;

use crate::model::status_error::StatusError;

/// The decision of a webhook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReviewResponse {
    /// Allowed, with warnings.
    Allowed(Vec<String>),
    /// Denied. The warnings are in the error.
    Denied(StatusError),
}

/// Reads an `AdmissionReview` for the request with this uid.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(webhook: &str, uid: &str, review: &Value) -> Result<ReviewResponse, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let invalid = |because: String| Err(format!("received invalid webhook response: {because}"));
    let (version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if (version.as_str(), kind.as_str()) != ("admission.k8s.io/v1", "AdmissionReview") {
        let version = if version.is_empty() { "/" } else { &version };
        return invalid(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    let response = &review["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".into());
    }
    let answered = text(&response["uid"]);
    if answered != uid {
        return invalid(format!("expected response.uid={uid:?}, got {answered:?}"));
    }
    for field in ["patch", "patchType"] {
        if !response[field].is_null() {
            return invalid(format!("validating webhook may not return response.{field}"));
        }
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
    if response["allowed"] == true {
        return Ok(ReviewResponse::Allowed(warnings));
    }
    Ok(ReviewResponse::Denied(StatusError { warnings, ..denied(webhook, &response["status"]) }))
}

/// The error of a webhook's status: its code if that is one of a failure, its reason and its details.
fn denied(webhook: &str, status: &Value) -> StatusError {
    let given = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match given("message").or(given("reason")) {
        Some(because) => format!("{by}: {because}"),
        None => format!("{by} without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let details = &status["details"];
    StatusError {
        code: code.filter(|code| *code >= 400).unwrap_or(400),
        reason: given("reason").map(|reason| Cow::Owned(reason.to_owned())),
        message,
        details: details.is_object().then(|| details.clone()),
        retry_after: details["retryAfterSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok()),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status_of(response: Value) -> (u16, Option<String>, String) {
        let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        review["response"] = response;
        review["response"]["uid"] = json!("u");
        match read("hook.example.com", "u", &review) {
            Ok(ReviewResponse::Denied(refusal)) => {
                (refusal.code, refusal.reason.map(Cow::into_owned), refusal.message)
            }
            Ok(ReviewResponse::Allowed(warnings)) => (200, None, warnings.join(", ")),
            Err(because) => (500, None, because),
        }
    }

    #[test]
    fn denials_are_worded_and_coded_as_the_api_server_does() {
        let denied = "admission webhook \"hook.example.com\" denied the request";
        for (status, code, reason, message) in [
            (json!({"message": "no"}), 400, None, ": no"),
            (Value::Null, 400, None, " without explanation"),
            (json!({"reason": "NotAcceptable"}), 400, Some("NotAcceptable"), ": NotAcceptable"),
            (json!({"code": 403, "reason": "Forbidden", "message": "no"}), 403, Some("Forbidden"), ": no"),
            (json!({"code": 429, "message": "later"}), 429, None, ": later"),
            (json!({"code": 200, "message": "odd"}), 400, None, ": odd"),
            (json!({"code": 500, "message": "odd"}), 500, None, ": odd"),
        ] {
            let expected = (code, reason.map(str::to_owned), format!("{denied}{message}"));
            assert_eq!(status_of(json!({"allowed": false, "status": status})), expected);
        }
        assert_eq!(status_of(json!({"allowed": true, "warnings": ["a", "b"]})).2, "a, b");
    }

    #[test]
    fn an_answer_that_is_none_is_said_to_be() {
        let said = |review: Value| read("hook.example.com", "u", &review).unwrap_err();
        let review = |response: Value| {
            let kind = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
            let mut review = kind;
            review["response"] = response;
            said(review)
        };
        assert_eq!(
            said(json!({"response": {}})),
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
             Kind=AdmissionReview, got /, Kind="
        );
        assert_eq!(review(Value::Null), "received invalid webhook response: webhook response was absent");
        assert_eq!(
            review(json!({"uid": "nope"})),
            "received invalid webhook response: expected response.uid=\"u\", got \"nope\""
        );
        assert_eq!(
            review(json!({"uid": "u", "allowed": true, "patch": "W10="})),
            "received invalid webhook response: validating webhook may not return response.patch"
        );
    }
}
