//! Messages of errors, and which errors are transient.

use super::*;

fn answered(body: &serde_json::Value) -> Error {
    let status: Status = serde_json::from_value(body.clone()).unwrap();
    let asked = format!("create {RESOURCE}");
    Error::from_client(kube::Error::Api(Box::new(status)), &asked, "https://c:6443")
}

#[test]
fn refusals_are_worded_as_in_kubectl() {
    for (body, message, hinted) in [
        (
            serde_json::json!({"message": "no, you may not", "reason": "Forbidden", "code": 403}),
            "Error from server (Forbidden): no, you may not",
            "kubectl auth can-i create nodemaintenances.nodemaintenance.medik8s.io",
        ),
        (
            serde_json::json!({"message": "Unauthorized", "reason": "Unauthorized", "code": 401}),
            "You must be logged in to the server (Unauthorized)",
            "log in again",
        ),
        (
            serde_json::json!({"message": "404 page not found", "reason": "Failed to parse error data", "code": 404}),
            "the cluster at https://c:6443 does not serve NodeMaintenance (nodemaintenances.nodemaintenance.medik8s.io)",
            "`kubectl nm install --image IMAGE`",
        ),
    ] {
        let error = answered(&body);
        assert_eq!(error.to_string(), message);
        assert!(error.hint().unwrap().contains(hinted), "{:?}", error.hint());
    }
}

#[test]
fn a_missing_object_is_not_a_missing_resource() {
    let error = answered(&serde_json::json!({
        "message": "nodemaintenances \"n1\" not found", "reason": "NotFound", "code": 404,
        "details": {"name": "n1", "kind": "nodemaintenances"},
    }));
    assert!(error.status().is_some_and(Status::is_not_found));
}

#[test]
fn only_errors_that_may_pass_are_transient() {
    for (code, transient) in
        [(400, false), (401, false), (403, false), (404, false), (410, true), (429, true), (503, true)]
    {
        assert_eq!(
            answered(&serde_json::json!({"message": "m", "code": code})).is_transient(),
            transient,
            "{code}"
        );
    }
}

#[test]
fn a_webhook_of_nm_reconciler_that_does_not_respond_is_said_first_and_in_plain_words() {
    let raw = "Internal error occurred: failed calling webhook \"validate.nodemaintenance.medik8s.io\": failed to call webhook: \
               Post \"https://nm-reconciler.nm.svc:443/v?timeout=10s\": no endpoints available for service \"nm-reconciler\"";
    let error = answered(&serde_json::json!({"message": raw, "reason": "InternalError", "code": 500}));
    assert_eq!(
        error.headline(),
        "error: cannot create nodemaintenances.nodemaintenance.medik8s.io: the webhook of nm-reconciler does not respond"
    );
    let hint = error.hint().unwrap();
    assert!(hint.contains("nm-reconciler does not run") && hint.contains("`kubectl nm doctor`"), "{hint}");
    assert!(hint.ends_with("no endpoints available for service \"nm-reconciler\""), "{hint}");
    assert!(error.is_transient());
}
