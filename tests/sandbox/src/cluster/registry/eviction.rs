//! The Eviction API: a pod's deletion, if its disruption budget allows one.
//!
//! What a real API server does in a chain of optimistic writes is one step here. The order of the checks is its
//! order, because clients see it: the namespace, the pod, whether a budget matters at all, the budget, and only then
//! the preconditions. A precondition that fails therefore has cost the budget a disruption already, which the
//! disruption controller gives back two minutes later.

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

/// More evictions than this that the disruption controller has not noticed yet close a budget.
const MOST_DISRUPTED_PODS: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod: deletes it, charging its disruption budget.
///
/// `eviction` is the request's body. A dry run may be asked for by `effect` or in the body's `deleteOptions`.
///
/// # Errors
/// 404 for a namespace or pod that is not there, 403 in a terminating namespace, 429 when a budget refuses, 500 when
/// several budgets match, 409 when a precondition does not hold, 400 when the body names another pod.
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

/// What is checked before any webhook is asked: the namespace, and that the body is about this pod.
///
/// # Errors
/// 404 and 403 for a namespace that is missing or terminating, 400 when the body names another pod.
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

/// A pod that serves nobody, or is going anyway, needs no budget's consent.
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

/// A pod that is not Ready does not count as healthy, so its going costs nothing where the budget's policy agrees.
fn passes_while_unhealthy(pod: &Value, budget: &Value) -> bool {
    if pod::is_ready(pod) {
        return false;
    }
    let status = &budget["status"];
    let (current, desired) = (count(status, "currentHealthy"), count(status, "desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (current >= desired && desired > 0)
}

/// Takes one disruption off the budget and notes whose it is.
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
        // It has enough of them, and still nobody knows how many there should be.
        return format!("The disruption budget {name} does not allow evicting pods currently");
    }
    format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
}

fn refused(cause: &str) -> StatusError {
    let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
    StatusError::new(429, "TooManyRequests", REFUSED).with_details(causes)
}

/// The same, for a budget that will have made up its mind in a moment.
fn refused_for_now(cause: &str) -> StatusError {
    let mut refusal = refused(cause);
    refusal.retry_after = Some(10);
    if let Some(details) = &mut refusal.details {
        details["retryAfterSeconds"] = json!(10);
    }
    refusal
}

/// Marks the pod as a target of disruption, then deletes it: two writes, as watchers of a real server see them.
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
    // It held before the write above, which has made a newer one.
    options.resource_version = None;
    registry::delete(state, pods, key, &options, now, effect).map(|_| ())
}

fn count(of: &Value, field: &str) -> i64 {
    of[field].as_i64().unwrap_or(0)
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
