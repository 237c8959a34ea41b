//! The Eviction API.
//!
//! What a real API server does with several optimistic writes is one step here. Checks have the API server's order,
//! since clients see it: the namespace, the pod, whether a budget applies, the budget, then the preconditions. A
//! failed precondition has therefore already taken a disruption from the budget, which the disruption controller
//! restores two minutes later.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Catalog;
use crate::cluster::catalog::resource::{BUDGETS, NAMESPACES, PODS, Resource};
use crate::cluster::registry;
use crate::cluster::registry::{DeleteOptions, Effect, Part};
use crate::cluster::store::{Key, Object, State};
use crate::model::clock::metav1_time;
use crate::model::condition;
use crate::model::label_selector::LabelSelector;
use crate::model::pod;
use crate::model::status_error::StatusError;

/// The maximum number of evictions that the disruption controller has not yet processed.
const MOST_DISRUPTED_PODS: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod: deletes it if its budget allows a disruption.
///
/// `eviction` is the request's body. `effect` or the body's `deleteOptions` may request a dry run.
///
/// # Errors
/// 404 for an unknown namespace or pod, 403 in a terminating namespace, 429 if the budget does not allow it, 500 if
/// several budgets match, 409 if a precondition fails, 400 if the body names another pod.
pub(crate) fn evict(
    state: &mut State,
    catalog: &Catalog,
    namespace: &str,
    name: &str,
    eviction: &Value,
    effect: Effect,
    now: Timestamp,
) -> Result<(), StatusError> {
    let key = Key::new(namespace, name);
    let missing = || StatusError::not_found("", "pods", name);
    let pods = catalog.of(&PODS).ok_or_else(missing)?;
    let budgets = catalog.of(&BUDGETS).ok_or_else(missing)?;
    admit(state, &pods, &key, eviction)?;
    let effect = match effect {
        Effect::Real if is_dry_run(&eviction["deleteOptions"]) => Effect::DryRun,
        effect => effect,
    };
    let pod = state.get(&PODS, &key).ok_or_else(missing)?;
    if !passes_budgets(&pod)
        && let Some(budget) = budget_of(state, &pod)?
        && !passes_while_unhealthy(&pod, &budget)
    {
        charge(state, &budgets, &budget, name, effect, now)?;
    }
    delete(state, &pods, &key, &eviction["deleteOptions"], effect, now)
}

/// The checks before webhooks: the namespace, and that the body is about this pod.
///
/// # Errors
/// 404 and 403 for a namespace that is missing or terminating, 400 if the body names another pod.
pub(crate) fn admit(state: &State, pods: &Resource, key: &Key, eviction: &Value) -> Result<(), StatusError> {
    let namespace = state
        .get(&NAMESPACES, &Key::cluster(&*key.namespace))
        .ok_or_else(|| StatusError::not_found("", "namespaces", &key.namespace))?;
    if pod::is_terminating(&namespace) {
        return Err(registry::namespace_terminating(pods, key));
    }
    if eviction["metadata"]["name"] != *key.name {
        return Err(StatusError::bad_request("name in URL does not match name in Eviction object"));
    }
    Ok(())
}

fn is_dry_run(options: &Value) -> bool {
    let wanted = options["dryRun"].as_array();
    wanted.is_some_and(|wanted| wanted.iter().any(|entry| entry == "All"))
}

/// A pod that is not running, or is terminating, needs no budget.
fn passes_budgets(pod: &Value) -> bool {
    pod::phase(pod) == "Pending" || pod::is_finished(pod) || pod::is_terminating(pod)
}

fn budget_of(state: &State, pod: &Value) -> Result<Option<Object>, StatusError> {
    let labels = &pod["metadata"]["labels"];
    let mut matching = state
        .list(&BUDGETS, Some(pod::namespace(pod)))
        .filter(|budget| LabelSelector::parse(&budget["spec"]["selector"]).matches(labels));
    let first = matching.next();
    if matching.next().is_none() {
        return Ok(first);
    }
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    Err(StatusError { reason: None, ..StatusError::new(500, "", message) })
}

/// A pod that is not Ready is not counted as healthy; the budget's policy decides whether it may be evicted.
fn passes_while_unhealthy(pod: &Value, budget: &Value) -> bool {
    if pod::is_ready(pod) {
        return false;
    }
    let status = &budget["status"];
    let (current, desired) = (count(status, "currentHealthy"), count(status, "desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (current >= desired && desired > 0)
}

/// Takes one disruption from the budget and records the pod.
fn charge(
    state: &mut State,
    budgets: &Resource,
    budget: &Object,
    pod: &str,
    effect: Effect,
    now: Timestamp,
) -> Result<(), StatusError> {
    let name = pod::name(budget);
    let status = &budget["status"];
    if count(status, "observedGeneration") < count(&budget["metadata"], "generation") {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused_for_now(&cause));
    }
    let allowed = count(status, "disruptionsAllowed");
    let forbidden = |because| StatusError::forbidden("policy", "poddisruptionbudget", name, because);
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED_PODS) {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(refused(&exhausted(name, status)));
    }
    let mut next = Value::clone(budget);
    next["status"]["disruptionsAllowed"] = json!(allowed - 1);
    next["status"]["disruptedPods"][pod] = json!(metav1_time(now));
    if allowed == 1 {
        let generation = &budget["metadata"]["generation"];
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation,
            "reason": "InsufficientPods", "message": "",
        });
        condition::set(&mut next["status"], condition, now);
    }
    registry::update(state, budgets, &next, Part::Status, effect).map(|_| ())
}

fn exhausted(name: &str, status: &Value) -> String {
    let failed = condition::find(status, "DisruptionAllowed")
        .filter(|condition| condition["status"] == "False" && condition["reason"] == "SyncFailed");
    if let Some(condition) = failed {
        let because = condition["message"].as_str().unwrap_or_default();
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {because}"
        );
    }
    let (desired, current) = (count(status, "desiredHealthy"), count(status, "currentHealthy"));
    if current > desired {
        // There are enough healthy pods, but the expected number is unknown.
        return format!("The disruption budget {name} does not allow evicting pods currently");
    }
    format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
}

fn refused(cause: &str) -> StatusError {
    let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    StatusError::new(429, "TooManyRequests", REFUSED).with_details(causes)
}

/// For a budget whose status is not up to date.
fn refused_for_now(cause: &str) -> StatusError {
    let mut refusal = refused(cause);
    refusal.retry_after = Some(10);
    if let Some(details) = &mut refusal.details {
        details["retryAfterSeconds"] = json!(10);
    }
    refusal
}

/// Adds the `DisruptionTarget` condition, then deletes the pod: two writes, as in a real server.
fn delete(
    state: &mut State,
    pods: &Resource,
    key: &Key,
    options: &Value,
    effect: Effect,
    now: Timestamp,
) -> Result<(), StatusError> {
    let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
    let mut options = DeleteOptions {
        grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..DeleteOptions::default()
    };
    registry::delete(state, pods, key, &options, now, Effect::DryRun)?;
    if effect == Effect::DryRun {
        return Ok(());
    }
    if let Some(pod) = state.get(&PODS, key) {
        let mut next = Value::clone(&pod);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
        });
        condition::set(&mut next["status"], condition, now);
        registry::update(state, pods, &next, Part::Status, effect)?;
    }
    // The precondition held before the write above, which changed the version.
    options.resource_version = None;
    registry::delete(state, pods, key, &options, now, effect).map(|_| ())
}

fn count(of: &Value, field: &str) -> i64 {
    of[field].as_i64().unwrap_or(0)
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
