//! How far a Deployment's pods are, and what keeps them, as its objects tell.

use serde_json::Value;

/// How many replicas are as they are to be; otherwise why not.
///
/// # Errors
///
/// Says what is missing, and the cause where an object names one.
pub(crate) fn ready(deployment: &Value, pods: &[Value]) -> Result<u64, String> {
    let status = &deployment["status"];
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let seen = number(&status["observedGeneration"]) >= number(&deployment["metadata"]["generation"]);
    let (updated, available) = (number(&status["updatedReplicas"]), number(&status["availableReplicas"]));
    if seen && updated >= wanted && available >= wanted {
        return Ok(wanted);
    }
    // Those of before may be available still.
    let available = if seen { available.min(updated) } else { 0 };
    let missing = format!("{available} of {wanted} replicas are available");
    let cause = pods.iter().find_map(trouble).or_else(|| failure(deployment));
    Err(cause.map_or_else(|| missing.clone(), |cause| format!("{missing}; {cause}")))
}

/// What keeps a pod.
fn trouble(pod: &Value) -> Option<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let waiting = items(&pod["status"]["containerStatuses"]).find_map(|container| {
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|reason| *reason != "ContainerCreating")?;
        let ended = &container["lastState"]["terminated"]["exitCode"];
        let ended = ended.as_i64().map(|code| format!(" (ended with {code})")).unwrap_or_default();
        let message = waiting["message"].as_str().map(|said| format!(": {said}")).unwrap_or_default();
        Some(format!("{reason}{ended}{message}"))
    });
    let unscheduled = || {
        items(&pod["status"]["conditions"])
            .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")
            .and_then(|condition| condition["message"].as_str().map(|said| format!("not scheduled: {said}")))
    };
    waiting.or_else(unscheduled).map(|why| format!("pod {name}: {why}"))
}

/// Why the Deployment cannot make pods.
fn failure(deployment: &Value) -> Option<String> {
    items(&deployment["status"]["conditions"])
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True")
        .and_then(|condition| condition["message"].as_str().map(str::to_owned))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(generation: u64, updated: u64, available: u64) -> Value {
        json!({"metadata": {"generation": generation}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available}})
    }

    #[test]
    fn a_rollout_is_over_when_all_new_replicas_are_available() {
        assert_eq!(ready(&deployment(2, 2, 2), &[]), Ok(2));
        for (generation, updated, available, said) in [
            (3, 2, 2, "0 of 2 replicas are available"),
            (2, 1, 2, "1 of 2 replicas are available"),
            (2, 2, 1, "1 of 2 replicas are available"),
        ] {
            assert_eq!(ready(&deployment(generation, updated, available), &[]), Err(said.into()));
        }
        assert_eq!(ready(&json!({}), &[]), Err("0 of 1 replicas are available".into()));
    }

    #[test]
    fn the_cause_is_named_where_an_object_names_one() {
        let begun = json!({"metadata": {"name": "b"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        let unpullable = json!({"metadata": {"name": "a"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}});
        let crashing = json!({"metadata": {"name": "a"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2}}}]}});
        let homeless = json!({"metadata": {"name": "a"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}});
        for (pod, said) in [
            (unpullable, "pod a: ImagePullBackOff: no such image"),
            (crashing, "pod a: CrashLoopBackOff (ended with 2)"),
            (homeless, "pod a: not scheduled: 0/3 nodes are available"),
        ] {
            let why = ready(&deployment(2, 2, 0), &[begun.clone(), pod]).unwrap_err();
            assert_eq!(why, format!("0 of 2 replicas are available; {said}"));
        }
        let mut refused = deployment(2, 0, 0);
        refused["status"]["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
        assert_eq!(ready(&refused, &[]), Err("0 of 2 replicas are available; exceeded quota".into()));
    }
}
