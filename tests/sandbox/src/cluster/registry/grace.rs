//! Grace periods.
//!
//! The first deletion of a pod sets its grace period. A later one can only shorten it, counted from the first.
//! Repeated deletions change nothing.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NAMESPACES, Resource};
use crate::cluster::registry::metadata::bump_generation;
use crate::model::clock::metav1_time;

/// Sets the `deletionTimestamp`, or moves it forward if the grace period is shorter. It is never moved back.
pub(crate) fn mark_deleted(resource: &Resource, object: &mut Value, asked: Option<i64>, now: Timestamp) {
    let asked = asked.map(at_least_none);
    let (since, grace) = match begun(object) {
        Some((since, pending)) => {
            let Some(less) = asked.filter(|asked| *asked < pending) else { return };
            (since, less)
        }
        None => (now, if resource.graceful { of_pod(object, asked) } else { 0 }),
    };
    let is_new = object["metadata"]["deletionTimestamp"].is_null();
    object["metadata"]["deletionTimestamp"] = json!(metav1_time(after(since, grace)));
    // A namespace waits for its content, without a grace period.
    if resource.collection != NAMESPACES {
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    // An object without a generation stays without one.
    if is_new && (resource.generation || object["metadata"]["generation"].is_i64()) {
        bump_generation(object);
    }
}

/// When the object was deleted, and its grace period in seconds.
fn begun(object: &Value) -> Option<(Timestamp, i64)> {
    let metadata = &object["metadata"];
    let ends_at: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    Some((after(ends_at, -grace), grace))
}

/// The grace period of a pod in seconds; none if no kubelet would confirm its termination.
fn of_pod(pod: &Value, asked: Option<i64>) -> i64 {
    let unbound = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unbound || finished {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    asked.unwrap_or_else(|| at_least_none(own))
}

/// A negative grace period is one second, since zero would remove the pod without its kubelet.
fn at_least_none(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn after(since: Timestamp, seconds: i64) -> Timestamp {
    since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::built_in;

    fn running() -> Value {
        json!({"metadata": {"name": "p", "generation": 1}, "status": {"phase": "Running"},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 100}})
    }

    /// The graces of one deletion after the other, ten seconds apart, and when the last ends.
    fn check(mut pod: Value, asked: &[Option<i64>], graces: &[i64], ends_after: i64) {
        let known = built_in();
        let pods = known.iter().find(|resource| resource.graceful).unwrap();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut found = Vec::new();
        for &seconds in asked {
            mark_deleted(pods, &mut pod, seconds, now);
            found.push(pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap());
            now = after(now, 10);
        }
        assert_eq!(found, graces, "{asked:?}");
        assert_eq!(pod["metadata"]["generation"], 2, "{asked:?}");
        let ends_at = metav1_time(after(Timestamp::UNIX_EPOCH, ends_after));
        assert_eq!(pod["metadata"]["deletionTimestamp"], ends_at, "{asked:?}");
    }

    #[test]
    fn a_pod_gets_what_was_asked_for_first_and_never_more() {
        check(running(), &[None], &[100], 100);
        check(running(), &[Some(600)], &[600], 600);
        check(running(), &[Some(600), None], &[600, 600], 600);
        check(running(), &[Some(600), Some(700), None], &[600, 600, 600], 600);
    }

    #[test]
    fn less_time_counts_from_the_first_deletion() {
        check(running(), &[Some(600), Some(500)], &[600, 500], 500);
        check(running(), &[None, None, Some(5)], &[100, 100, 5], 5);
    }

    #[test]
    fn less_than_nothing_is_a_second_and_nothing_is_none() {
        check(running(), &[Some(-5)], &[1], 1);
        check(running(), &[None, Some(-1), Some(0)], &[100, 1, 0], 0);
        let mut own = running();
        own["spec"]["terminationGracePeriodSeconds"] = json!(-1);
        check(own, &[None], &[1], 1);
    }

    #[test]
    fn a_pod_that_no_kubelet_runs_gets_no_time() {
        let mut pod = running();
        pod["status"]["phase"] = json!("Failed");
        check(pod, &[Some(600)], &[0], 0);
        let mut pod = running();
        pod["spec"]["nodeName"] = Value::Null;
        check(pod, &[None], &[0], 0);
    }
}
