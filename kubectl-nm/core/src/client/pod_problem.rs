//! Why a pod does not start, as its status shows it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;

use crate::terminal::shortened::{beginning, last_causes};

/// The reasons of a container that waits for its image (`pkg/kubelet/images/types.go` in kubernetes).
pub const IMAGE_REASONS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "ErrImageVolumeUnavailable",
];

/// The reason of a container that exits again and again.
pub(crate) const CRASH_LOOP: &str = "CrashLoopBackOff";

/// What every container waits for: its turn, or to be created.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reasons of a container that has ended while the kubelet did not run (`pkg/kubelet` in kubernetes, containerd).
const LOST_REASONS: [&str; 2] = ["ContainerStatusUnknown", "Unknown"];

/// A container that failed this long ago at most may be about to fail again: the kubelet waits five minutes between two
/// starts at most.
const RECENT_FAILURE: SignedDuration = SignedDuration::from_mins(6);

/// Whether a container of a pod does not start, or does not keep running.
pub fn has_failing_container(pod: &Pod, now: Timestamp) -> bool {
    failing_reason(pod, now).is_some()
}

/// Whether a pod is Ready whenever its containers run: those that fail have run before, and no probe or gate is to be passed.
pub fn is_ready_while_it_runs(pod: &Pod, now: Timestamp) -> bool {
    let Some((spec, status)) = pod.spec.as_ref().zip(pod.status.as_ref()) else { return false };
    let is_probed = |name: &str| {
        let container = spec.containers.iter().find(|container| container.name == name);
        container.is_none_or(|known| known.readiness_probe.is_some() || known.startup_probe.is_some())
    };
    let runs = |container: &ContainerStatus| {
        let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        container.ready || (is_failing(container, now) && last.is_some() && !is_probed(&container.name))
    };
    let inits = status.init_container_statuses.iter().flatten();
    spec.readiness_gates.as_ref().is_none_or(Vec::is_empty)
        && !inits.clone().any(|container| is_failing(container, now))
        && status.container_statuses.iter().flatten().all(runs)
}

/// How long the scheduler may take to place a pod that fits. The drain waits as long for a budget that nothing moves.
const SCHEDULING_TIME: SignedDuration = SignedDuration::from_secs(30);

/// Whether the scheduler has found no node for a pod for a while, and makes none free.
pub fn is_unschedulable(pod: &Pod, now: Timestamp) -> bool {
    let Some(status) = pod.status.as_ref().filter(|status| status.nominated_node_name.is_none()) else {
        return false;
    };
    status.conditions.iter().flatten().any(|condition| {
        let since = condition.last_transition_time.as_ref();
        (condition.type_.as_str(), condition.status.as_str(), condition.reason.as_deref())
            == ("PodScheduled", "False", Some("Unschedulable"))
            && since.is_some_and(|since| now.duration_since(since.0) > SCHEDULING_TIME)
    })
}

/// Why a container of a pod does not start, or does not keep running: `ErrImagePull`; none if all do.
pub fn failing_reason(pod: &Pod, now: Timestamp) -> Option<String> {
    let container = container_statuses(pod).find(|container| is_failing(container, now))?;
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.clone());
    // Between two starts, it has exited, or may be about to exit again.
    Some(reason.unwrap_or_else(|| CRASH_LOOP.to_owned()))
}

/// Whether the kubelet restarts the containers of a pod whenever they exit, so that it never terminates on its own.
pub fn is_restarted_forever(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.restart_policy.as_deref() == Some("Always") && spec.active_deadline_seconds.is_none()
    })
}

/// The init containers of a pod, and then the others.
pub fn container_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = || pod.status.iter();
    let inits = status().flat_map(|status| status.init_container_statuses.iter().flatten());
    inits.chain(status().flat_map(|status| status.container_statuses.iter().flatten()))
}

/// Whether a container does not start, or does not keep running.
pub fn is_failing(container: &ContainerStatus, now: Timestamp) -> bool {
    let state = container.state.as_ref();
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        return !reason.is_empty() && !USUAL.contains(&reason);
    }
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        // Of a container that a reboot of its node has ended, the kubelet does not know how.
        let reason = terminated.reason.as_deref().unwrap_or_default();
        return terminated.exit_code != 0 && !LOST_REASONS.contains(&reason) && container.restart_count > 0;
    }
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    last.is_some_and(|last| {
        let is_recent = last.finished_at.as_ref().is_some_and(|at| now.duration_since(at.0) < RECENT_FAILURE);
        !container.ready && container.restart_count > 1 && last.exit_code != 0 && is_recent
    })
}

/// `pod a: ImagePullBackOff: no such image`; none if the pod starts or runs, or is being deleted.
pub fn pod_problem(pod: &Value) -> Option<String> {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let waiting = shown_containers(pod).find_map(waiting);
    let unscheduled = || items(&pod["status"]["conditions"]).find_map(unscheduled);
    waiting.or_else(unscheduled).map(|why| format!("pod {}: {why}", name(pod)))
}

/// `pod a: OutOfcpu: Node didn't have enough resource: cpu`: why the kubelet, or the control plane, has ended a pod of which nothing
/// has run; none if something has, or if the pod has not ended.
pub fn rejection(pod: &Value) -> Option<String> {
    let field = |name: &str| pod["status"][name].as_str().filter(|text| !text.is_empty());
    let reason = field("reason").filter(|_| field("phase") == Some("Failed") && !has_run(pod))?;
    let message = field("message").map(|message| format!(": {}", last_causes(message))).unwrap_or_default();
    Some(format!("pod {}: {reason}{message}", name(pod)))
}

/// Whether a container of a pod runs, or has run.
pub fn has_run(pod: &Value) -> bool {
    let is_run = |state: &Value| state["running"].is_object() || state["terminated"].is_object();
    shown_containers(pod).any(|container| is_run(&container["state"]) || is_run(&container["lastState"]))
}

/// Whether the image of a container cannot be used, so that the pod does not start until it is changed or available.
pub fn is_about_image(pod: &Value) -> bool {
    shown_containers(pod)
        .filter_map(|container| container["state"]["waiting"]["reason"].as_str())
        .any(|reason| IMAGE_REASONS.contains(&reason))
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// The init containers of a pod, and then the others.
fn shown_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["status"]["initContainerStatuses"]).chain(items(&pod["status"]["containerStatuses"]))
}

fn waiting(container: &Value) -> Option<String> {
    let waiting = &container["state"]["waiting"];
    let reason = waiting["reason"].as_str().filter(|reason| !USUAL.contains(reason))?;
    let code = container["lastState"]["terminated"]["exitCode"].as_i64();
    let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
    let message = waiting["message"].as_str().filter(|message| !message.is_empty());
    let message = message.map(|message| format!(": {}", last_causes(message))).unwrap_or_default();
    Some(format!("{reason}{code}{message}"))
}

fn unscheduled(condition: &Value) -> Option<String> {
    (condition["type"] == "PodScheduled" && condition["status"] == "False").then(|| {
        let message = condition["message"].as_str().unwrap_or_default().trim_end_matches('.');
        match message {
            "" => String::from("not scheduled"),
            message => format!("not scheduled: {}", beginning(message)),
        }
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_that_cannot_be_used_is_known_by_every_reason_of_the_kubelet() {
        for (reason, expected) in [
            ("ErrImagePull", true),
            ("ErrImageNeverPull", true),
            ("RegistryUnavailable", true),
            ("SignatureValidationFailed", true),
            ("ErrImageVolumeUnavailable", true),
            ("CrashLoopBackOff", false),
            ("ContainerCreating", false),
        ] {
            let container = json!({"state": {"waiting": {"reason": reason}}});
            let pod = json!({"status": {"containerStatuses": [container]}});
            assert_eq!(is_about_image(&pod), expected, "{reason}");
        }
        assert!(!is_about_image(&json!({})));
    }

    #[test]
    fn a_container_that_was_restarted_once_and_runs_does_not_fail() {
        let now = "2026-01-02T03:04:05Z";
        let ended =
            |reason: &str| json!({"terminated": {"exitCode": 1, "reason": reason, "finishedAt": now}});
        for (restarts, state, last, expected) in [
            (0, json!({"running": {}}), json!({}), false),
            (1, json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended("Error"), true),
            (0, json!({"waiting": {"reason": "ErrImagePull"}}), json!({}), true),
            (0, json!({"waiting": {"reason": "ContainerCreating"}}), json!({}), false),
            (1, ended("Error"), json!({}), true),
            (1, ended("Unknown"), json!({}), false),
            (1, json!({"running": {}}), ended("Error"), false),
            (2, json!({"running": {}}), ended("Error"), true),
        ] {
            let container = json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
                "state": state, "lastState": last});
            let pod = serde_json::from_value(json!({"status": {"containerStatuses": [container]}})).unwrap();
            assert_eq!(has_failing_container(&pod, now.parse().unwrap()), expected, "{container}");
        }
    }

    #[test]
    fn a_pod_that_does_not_start_shows_why() {
        let waiting = |waiting: Value| json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
        let unscheduled = |message: &str| json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]});
        for (status, expected) in [
            (json!({"phase": "Running"}), None),
            (waiting(json!({"reason": "ContainerCreating"})), None),
            (waiting(json!({"reason": "PodInitializing"})), None),
            (
                waiting(json!({"reason": "ImagePullBackOff", "message": "no such image"})),
                Some("pod a: ImagePullBackOff: no such image"),
            ),
            (waiting(json!({"reason": "ErrImagePull"})), Some("pod a: ErrImagePull")),
            (
                json!({"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2}}}]}),
                Some("pod a: CrashLoopBackOff (exit code 2)"),
            ),
            (
                unscheduled("0/3 nodes are available: 3 node(s) were unschedulable."),
                Some("pod a: not scheduled: 0/3 nodes are available: 3 node(s) were unschedulable"),
            ),
            (unscheduled(""), Some("pod a: not scheduled")),
        ] {
            let mut pod = json!({"metadata": {"name": "a"}, "status": status});
            assert_eq!(pod_problem(&pod).as_deref(), expected, "{pod}");
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            assert_eq!(pod_problem(&pod), None);
        }
    }
}
