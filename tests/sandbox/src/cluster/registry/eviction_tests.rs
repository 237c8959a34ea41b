//! Evictions as a real API server answered them.

#![expect(clippy::needless_pass_by_value, reason = "cases read better without a borrow each")]

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::registry::eviction::*;
use crate::model::clock::Clock;
use crate::workload;

/// A cluster without controllers: whatever a case needs, it writes itself.
struct Still(Cluster);

impl Still {
    fn new() -> Self {
        let cluster = Cluster::new(Clock::start());
        workload::seed_namespace(&cluster, "facts").unwrap();
        Self(cluster)
    }

    fn put(&self, collection: &crate::cluster::store::Collection, object: Value) {
        self.0.store.write(|state| state.put(collection, object));
    }

    fn pod(&self, name: &str, phase: &str, ready: &str) {
        self.put(
            &PODS,
            json!({
                "metadata": {"namespace": "facts", "name": name, "uid": format!("uid-of-{name}"),
                    "generation": 1, "labels": {"app": "guarded"}},
                "spec": {"nodeName": "node-0000", "terminationGracePeriodSeconds": 5},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
    }

    fn budget(&self, name: &str, spec: Value, desired: i64, current: i64, allowed: i64) {
        let mut budget = json!({
            "metadata": {"namespace": "facts", "name": name, "generation": 1}, "spec": spec,
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
                "desiredHealthy": desired, "expectedPods": 1},
        });
        budget["spec"]["selector"] = json!({"matchLabels": {"app": "guarded"}});
        self.put(&BUDGETS, budget);
    }

    fn get(&self, collection: &crate::cluster::store::Collection, name: &str) -> Value {
        let key = Key::new("facts", name);
        self.0
            .store
            .read(|state| state.get(collection, &key))
            .map_or(Value::Null, |object| Value::clone(&object))
    }

    fn evict(&self, name: &str, options: Value, effect: Effect) -> Result<(), StatusError> {
        self.evict_in("facts", name, options, effect)
    }

    fn evict_in(
        &self,
        namespace: &str,
        name: &str,
        options: Value,
        effect: Effect,
    ) -> Result<(), StatusError> {
        let body = json!({"metadata": {"name": name}, "deleteOptions": options});
        let now = self.0.clock.now();
        self.0.store.write(|state| evict(state, &self.0.catalog, namespace, name, &body, effect, now))
    }
}

fn check(answer: Result<(), StatusError>, expected: Value) {
    let status = answer.unwrap_err().to_status();
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(status[field], *value, "{field} of {status}");
    }
}

fn exhausted_by(name: &str, desired: i64, current: i64) -> Value {
    json!({
        "code": 429, "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message":
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")}]},
    })
}

#[tokio::test(start_paused = true)]
async fn an_eviction_marks_the_pod_and_deletes_it_with_its_grace() {
    let still = Still::new();
    still.pod("web-0", "Running", "True");
    still.evict("web-0", json!({"gracePeriodSeconds": 1}), Effect::Real).unwrap();
    let pod = still.get(&PODS, "web-0");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 1);
    assert_eq!(pod["metadata"]["generation"], 2);
    let condition = condition::find(&pod["status"], "DisruptionTarget").unwrap();
    assert_eq!(condition["reason"], "EvictionByEvictionAPI");
    assert_eq!(condition["message"], "Eviction API: evicting");
    // A second one is accepted and changes nothing.
    still.evict("web-0", json!({}), Effect::Real).unwrap();
    assert_eq!(still.get(&PODS, "web-0"), pod);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_by_either_way_changes_nothing() {
    let still = Still::new();
    still.pod("web-0", "Running", "True");
    still.budget("guard", json!({}), 0, 1, 1);
    let revision = still.0.store.read(State::revision);
    still.evict("web-0", json!({}), Effect::DryRun).unwrap();
    still.evict("web-0", json!({"dryRun": ["All"]}), Effect::Real).unwrap();
    assert_eq!(still.0.store.read(State::revision), revision);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_uid_is_a_conflict() {
    let still = Still::new();
    still.pod("web-0", "Running", "True");
    let answer = still.evict("web-0", json!({"preconditions": {"uid": "other"}}), Effect::Real);
    let message = "Operation cannot be fulfilled on Pod \"web-0\": the UID in the precondition (other) does not match \
        the UID in record (uid-of-web-0). The object might have been deleted and then recreated";
    check(
        answer,
        json!({"code": 409, "reason": "Conflict", "message": message,
            "details": {"name": "web-0", "kind": "Pod"}}),
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_resource_version_is_a_conflict_and_the_newest_is_not() {
    let still = Still::new();
    still.pod("web-0", "Running", "True");
    let version = |version: &str| json!({"preconditions": {"resourceVersion": version}});
    let current = still.get(&PODS, "web-0")["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let message = format!(
        "Operation cannot be fulfilled on Pod \"web-0\": the ResourceVersion in the precondition (1) does not match \
        the ResourceVersion in record ({current}). The object might have been modified"
    );
    let answer = still.evict("web-0", version("1"), Effect::Real);
    check(answer, json!({"code": 409, "reason": "Conflict", "message": message}));
    assert_eq!(still.evict("web-0", version(&current), Effect::Real), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_not_found() {
    let still = Still::new();
    let missing = |message: &str| json!({"code": 404, "reason": "NotFound", "message": message});
    check(still.evict("web-0", json!({}), Effect::Real), missing("pods \"web-0\" not found"));
    let absent = still.evict_in("absent", "x", json!({}), Effect::Real);
    check(absent, missing("namespaces \"absent\" not found"));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_refuses_with_its_numbers() {
    let still = Still::new();
    still.pod("guarded-0", "Running", "True");
    still.budget("guard", json!({}), 1, 1, 0);
    for effect in [Effect::Real, Effect::DryRun] {
        let answer = still.evict("guarded-0", json!({}), effect);
        assert_eq!(answer.as_ref().unwrap_err().retry_after, None);
        check(answer, exhausted_by("guard", 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_behind_asks_to_come_back_in_ten_seconds() {
    let still = Still::new();
    still.pod("guarded-0", "Running", "True");
    still.budget("guard", json!({}), 0, 1, 1);
    let mut budget = still.get(&BUDGETS, "guard");
    budget["metadata"]["generation"] = json!(2);
    still.put(&BUDGETS, budget);
    let answer = still.evict("guarded-0", json!({}), Effect::Real);
    assert_eq!(answer.as_ref().unwrap_err().retry_after, Some(10));
    check(
        answer,
        json!({"code": 429, "details": {"retryAfterSeconds": 10, "causes": [{"reason": "DisruptionBudget",
            "message": "The disruption budget guard is still being processed by the server."}]}}),
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_takes_its_disruption_off_the_budget() {
    let still = Still::new();
    still.pod("a", "Running", "True");
    still.pod("b", "Running", "True");
    still.budget("guard", json!({}), 1, 2, 1);
    still.evict("a", json!({}), Effect::Real).unwrap();
    let status = &still.get(&BUDGETS, "guard")["status"];
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["a"].is_string());
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
    // There are still enough of them, so it is not said that there are too few.
    let cause = "The disruption budget guard does not allow evicting pods currently";
    check(
        still.evict("b", json!({}), Effect::Real),
        json!({"code": 429, "details": {"causes": [{"reason": "DisruptionBudget", "message": cause}]}}),
    );
}

#[tokio::test(start_paused = true)]
async fn two_budgets_over_one_pod_are_an_internal_error_without_a_reason() {
    let still = Still::new();
    still.pod("guarded-0", "Running", "True");
    still.budget("guard", json!({}), 0, 1, 1);
    still.budget("second", json!({}), 0, 1, 1);
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    check(
        still.evict("guarded-0", json!({}), Effect::Real),
        json!({"code": 500, "reason": null, "message": message}),
    );
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_passes_as_the_policy_says() {
    let case = |policy: Value, desired, current| {
        let still = Still::new();
        still.pod("unready-0", "Running", "False");
        still.budget("unready", policy, desired, current, 0);
        still.evict("unready-0", json!({}), Effect::DryRun)
    };
    let always = || json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    check(case(json!({}), 1, 0), exhausted_by("unready", 1, 0));
    assert_eq!(case(json!({}), 1, 1), Ok(()));
    assert_eq!(case(always(), 1, 0), Ok(()));
    check(case(json!({}), 0, 0), exhausted_by("unready", 0, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_that_serve_nobody_pass_an_exhausted_budget() {
    for phase in ["Pending", "Succeeded", "Failed"] {
        let still = Still::new();
        still.pod("x", phase, "False");
        still.budget("guard", json!({}), 1, 1, 0);
        assert_eq!(still.evict("x", json!({}), Effect::Real), Ok(()), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_is_forbidden_with_its_cause() {
    let still = Still::new();
    still.pod("last-0", "Running", "True");
    let facts = Key::cluster("facts");
    let terminating = still.0.store.read(|state| state.get(&NAMESPACES, &facts)).map(|namespace| {
        let mut namespace = Value::clone(&namespace);
        namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        namespace
    });
    still.put(&NAMESPACES, terminating.unwrap());
    let message = "pods \"last-0\" is forbidden: unable to create new content in namespace facts because it is being \
        terminated";
    check(
        still.evict("last-0", json!({}), Effect::Real),
        json!({"code": 403, "reason": "Forbidden", "message": message, "details": {
            "name": "last-0", "kind": "pods", "causes": [{"reason": "NamespaceTerminating",
                "message": "namespace facts is being terminated", "field": "metadata.namespace"}]}}),
    );
}
