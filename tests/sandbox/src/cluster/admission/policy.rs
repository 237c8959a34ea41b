//! `ValidatingAdmissionPolicy`: CEL expressions that must be true for a write, if a binding refers to the policy.
//!
//! Parameters of policies and match resources of bindings are not supported; those that use them are skipped with a
//! log message.

use serde_json::{Value, json};

use crate::cluster::admission::match_condition::{self, Condition};
use crate::cluster::admission::review_request::ReviewRequest;
use crate::cluster::admission::webhook::Webhook;
use crate::cluster::store::{Collection, Object, Store};
use crate::model::status_error::StatusError;

const POLICIES: Collection = Collection::fixed("admissionregistration.k8s.io", "validatingadmissionpolicies");
const BINDINGS: Collection =
    Collection::fixed("admissionregistration.k8s.io", "validatingadmissionpolicybindings");

/// Whether no policy is bound.
pub(crate) fn is_idle(store: &Store) -> bool {
    store.read(|state| state.list(&BINDINGS, None).next().is_none())
}

/// Evaluates every bound policy.
///
/// # Errors
/// The first violation. `namespace` returns the labels of the request's namespace.
pub(crate) fn check(
    store: &Store,
    question: &ReviewRequest,
    namespace: impl Fn() -> Value,
) -> Result<(), StatusError> {
    let (policies, bindings): (Vec<Object>, Vec<Object>) =
        store.read(|state| (state.list(&POLICIES, None).collect(), state.list(&BINDINGS, None).collect()));
    if [&POLICIES, &BINDINGS]
        .iter()
        .any(|own| own.group == question.asked.group && own.plural == question.asked.plural)
    {
        // Policies are not subject to policies, so that a broken one can be fixed.
        return Ok(());
    }
    for binding in bindings.iter().filter(|binding| denies(binding)) {
        let policy =
            policies.iter().find(|policy| policy["metadata"]["name"] == binding["spec"]["policyName"]);
        if let Some(policy) = policy
            && let Err(because) = hold(policy, question, &namespace)
        {
            let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let (policy, binding) = (name(policy), name(binding));
            let said = format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {}",
                because.message
            );
            let refusal = question.forbidden(&said);
            let mut details = refusal.details.clone().unwrap_or_default();
            details["causes"] = json!([{"message": said}]);
            let refusal = StatusError { code: because.code, reason: Some(because.reason.into()), ..refusal };
            return Err(refusal.with_details(details));
        }
    }
    Ok(())
}

/// Whether a binding denies violations.
fn denies(binding: &Value) -> bool {
    let spec = &binding["spec"];
    let chooses = !spec["matchResources"].is_null() || !spec["paramRef"].is_null();
    if chooses {
        tracing::warn!(binding = %binding["metadata"]["name"], "matchResources and paramRef are not played");
    }
    !chooses && spec["validationActions"].as_array().is_some_and(|actions| actions.contains(&json!("Deny")))
}

/// Why a policy is violated.
struct Denial {
    code: u16,
    reason: &'static str,
    message: String,
}

fn hold(policy: &Value, question: &ReviewRequest, namespace: impl Fn() -> Value) -> Result<(), Denial> {
    let spec = &policy["spec"];
    let constraints = &spec["matchConstraints"];
    // `matchConstraints` has the form of a webhook's rules.
    let concerned = Webhook::parse(&json!({
        "rules": constraints["resourceRules"], "matchPolicy": constraints["matchPolicy"],
        "namespaceSelector": constraints["namespaceSelector"], "objectSelector": constraints["objectSelector"],
        "matchConditions": spec["matchConditions"], "failurePolicy": spec["failurePolicy"],
    }));
    let Some(view) = concerned.view(question, namespace) else { return Ok(()) };
    let request = question.request("", view);
    let failed = |message: String| {
        let denial = Denial { code: 422, reason: "Invalid", message };
        if concerned.fails_closed { Err(denial) } else { Ok(()) }
    };
    match match_condition::all_hold(&concerned.conditions, &request) {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(because) => return failed(because),
    }
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let variables: Vec<(&str, Condition)> = list("variables")
        .map(|variable| (variable["name"].as_str().unwrap_or_default(), Condition::parse(variable)))
        .collect();
    for validation in list("validations") {
        match match_condition::holds(&Condition::parse(validation), &variables, &request) {
            Ok(true) => {}
            Ok(false) => {
                let expression = validation["expression"].as_str().unwrap_or_default();
                let message = validation["message"]
                    .as_str()
                    .map_or_else(|| format!("failed expression: {}", expression.trim()), str::to_owned);
                let (code, reason) = match validation["reason"].as_str() {
                    Some("Forbidden") => (403, "Forbidden"),
                    Some("RequestEntityTooLarge") => (413, "RequestEntityTooLarge"),
                    _ => (422, "Invalid"),
                };
                return Err(Denial { code, reason, message });
            }
            Err(because) => failed(because)?,
        }
    }
    Ok(())
}
