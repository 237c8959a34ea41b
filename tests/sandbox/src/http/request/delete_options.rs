//! `DeleteOptions`, from the body or from the query.

use serde_json::{Value, json};

use crate::cluster::registry::{DeleteOptions, Effect, Propagation};
use crate::http::decode::known_fields;
use crate::http::handlers::write_checks;
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::model::status_error::{FieldError, StatusError};

/// Reads the options.
///
/// # Errors
/// 415 and 400 for an invalid body, 422 for options that contradict each other.
pub(crate) fn read(call: &Call) -> Result<(DeleteOptions, Effect), StatusError> {
    let said = if call.body.is_empty() { of_query(call)? } else { of_body(call)? };
    check(&said)?;
    Ok(understood(&said))
}

/// Validates the options.
///
/// # Errors
/// 422 for an unknown policy, two policies, or an invalid `dryRun`.
pub(crate) fn check(said: &Value) -> Result<(), StatusError> {
    const FIELD: &str = "propagationPolicy";
    let mut errors = Vec::new();
    let policy = &said[FIELD];
    if !policy.is_null() && !said["orphanDependents"].is_null() {
        let because = "orphanDependents and deletionPropagation cannot be both set";
        errors.push(FieldError::invalid(FIELD, policy, because));
    }
    if !matches!(policy.as_str(), None | Some("Foreground" | "Background" | "Orphan")) {
        errors.push(FieldError::unsupported(FIELD, policy, &["Foreground", "Background", "Orphan", "nil"]));
    }
    errors.extend(options::dry_run(&words(&said["dryRun"])));
    options::refuse("DeleteOptions", &errors)
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn understood(said: &Value) -> (DeleteOptions, Effect) {
    let propagation = match said["propagationPolicy"].as_str() {
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        None if said["orphanDependents"] == true => Propagation::Orphan,
        _ => Propagation::Background,
    };
    let precondition = |field: &str| said["preconditions"][field].as_str().map(str::to_owned);
    let options = DeleteOptions {
        grace_period_seconds: said["gracePeriodSeconds"].as_i64(),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation,
    };
    let effect = if words(&said["dryRun"]).is_empty() { Effect::Real } else { Effect::DryRun };
    (options, effect)
}

fn of_query(call: &Call) -> Result<Value, StatusError> {
    let query = &call.query;
    let mut said = json!({"dryRun": query.all("dryRun").collect::<Vec<_>>()});
    if let Some(seconds) = options::number(query, "gracePeriodSeconds")? {
        said["gracePeriodSeconds"] = json!(seconds);
    }
    if query.given("orphanDependents").is_some() {
        said["orphanDependents"] = json!(query.flag("orphanDependents"));
    }
    if let Some(policy) = query.given("propagationPolicy") {
        said["propagationPolicy"] = json!(policy);
    }
    if let Some(uid) = query.get("uid") {
        said["preconditions"] = json!({"uid": uid});
    }
    Ok(said)
}

fn of_body(call: &Call) -> Result<Value, StatusError> {
    let mut said = write_checks::parsed(&call.content_type, &call.body)?.map_err(StatusError::bad_request)?;
    let kind = said["kind"].as_str().filter(|kind| !kind.is_empty());
    if let Some(kind) = kind.filter(|kind| *kind != "DeleteOptions") {
        let version = said["apiVersion"].as_str().unwrap_or_default();
        return Err(StatusError::bad_request(write_checks::unregistered(kind, version)));
    }
    match known_fields::decode("meta.k8s.io", "DeleteOptions", &mut said).misfit {
        Some(misfit) => Err(StatusError::bad_request(misfit.to_string())),
        None => Ok(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(said: &Value) -> String {
        check(said).err().map_or_else(String::new, |refusal| format!("{} {}", refusal.code, refusal.message))
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        let invalid = "422 DeleteOptions.meta.k8s.io \"\" is invalid:";
        for (said, expected) in [
            (
                json!({"gracePeriodSeconds": -5, "propagationPolicy": "Orphan", "dryRun": ["All"]}),
                String::new(),
            ),
            (
                json!({"propagationPolicy": "zz"}),
                format!(
                    "{invalid} propagationPolicy: Unsupported value: \"zz\": supported values: \"Foreground\", \
                     \"Background\", \"Orphan\", \"nil\""
                ),
            ),
            (
                json!({"propagationPolicy": "Background", "orphanDependents": false}),
                format!(
                    "{invalid} propagationPolicy: Invalid value: \"Background\": orphanDependents and \
                     deletionPropagation cannot be both set"
                ),
            ),
            (
                json!({"dryRun": ["All", "maybe"]}),
                format!(
                    "{invalid} dryRun: Unsupported value: [\"All\",\"maybe\"]: supported values: \"All\""
                ),
            ),
        ] {
            assert_eq!(reported(&said), expected);
        }
    }
}
