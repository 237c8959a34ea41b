//! A pod on another node than the open one, as far as the tree of replacements shows it.
//!
//! Pods of whole namespaces are watched for the tree, so that each is reduced as soon as it is decoded.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use nm_core::explain::obstacle::{Obstacle, crash_loop, has_ended, running_init_container};
use nm_core::explain::obstacle_wording::crash_loop_words;
use serde::{Deserialize, Serialize};

use crate::objects::node_pod::PodId;

/// A pod that has a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replica {
    pub(crate) id: Arc<PodId>,
    pub(crate) created: Timestamp,
    /// Empty before it is scheduled.
    pub(crate) node: String,
    pub(crate) state: ReplicaState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ReplicaState {
    Ready,
    Waiting(WaitsFor),
    /// It is being deleted.
    Terminating,
    /// Its containers have ended for good.
    Finished,
}

/// What a pod waits for until it is Ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum WaitsFor {
    /// A node. The reason and the message are those of its condition `PodScheduled`, if it has one.
    Node { reason: String, message: String },
    /// Its containers are being created.
    Start,
    /// An init container that runs.
    InitContainer(String),
    /// A container does not start, such as for its image.
    Container { name: String, reason: String, message: String },
    /// A container exits again and again. The reason is empty if the exit code says as much. `has_ended`: it does not wait yet to
    /// begin again.
    #[serde(rename_all = "camelCase")]
    CrashLoop {
        name: String,
        exit_code: Option<i32>,
        reason: String,
        restarts: i32,
        #[serde(default)]
        has_ended: bool,
    },
    /// The startup probe of a container that runs.
    StartupProbe(String),
    /// The readiness probe of a container that runs.
    ReadinessProbe(String),
    /// A readiness gate: its containers are ready.
    ReadinessGate,
}

impl ReplicaState {
    /// All words of [`Self::word`].
    pub(crate) const WORDS: [&str; 6] =
        ["Ready", "Unscheduled", "Starting", "NotReady", "Terminating", "Finished"];

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Waiting(WaitsFor::Node { .. }) => "Unscheduled",
            Self::Waiting(
                WaitsFor::Start
                | WaitsFor::InitContainer(_)
                | WaitsFor::Container { .. }
                | WaitsFor::CrashLoop { .. },
            ) => "Starting",
            Self::Waiting(_) => "NotReady",
            Self::Terminating => "Terminating",
            Self::Finished => "Finished",
        }
    }

    /// Whether it does not become Ready by itself, as far as can be seen.
    pub(crate) fn is_stuck(&self) -> bool {
        match self {
            Self::Waiting(WaitsFor::Node { reason, .. }) => !reason.is_empty(),
            Self::Waiting(WaitsFor::Container { .. } | WaitsFor::CrashLoop { .. }) => true,
            _ => false,
        }
    }

    /// What it waits for, as a sentence without its full stop; empty if it waits for nothing.
    pub(crate) fn message(&self) -> String {
        let Self::Waiting(waits) = self else { return String::new() };
        let joined = |words: &[&str]| -> String {
            let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            words.join(": ")
        };
        match waits {
            WaitsFor::Node { reason, message } if reason.is_empty() && message.is_empty() => {
                String::from("not scheduled yet")
            }
            WaitsFor::Node { reason, message } => joined(&[reason, message]),
            WaitsFor::Start => String::from("its containers are being created"),
            WaitsFor::InitContainer(name) => format!("init container {name} runs"),
            WaitsFor::Container { name, reason, message } => joined(&[name, reason, message]),
            WaitsFor::CrashLoop { name, exit_code, reason, restarts, .. } => {
                crash_loop_words(name, *exit_code, reason, *restarts)
            }
            WaitsFor::StartupProbe(name) => format!("waits for the startup probe of {name}"),
            WaitsFor::ReadinessProbe(name) => format!("waits for the readiness probe of {name}"),
            WaitsFor::ReadinessGate => String::from("waits for its readiness gates"),
        }
    }
}

/// A pod as the watch decodes it.
#[derive(Debug, Clone, Deserialize, Resource)]
#[serde(from = "Pod")]
#[resource(inherit = Pod)]
pub(crate) struct WatchedReplica {
    /// Names and versions only.
    metadata: ObjectMeta,
    replica: Option<Replica>,
}

impl WatchedReplica {
    /// The replica; none if the pod has no controller, which would replace it.
    pub(crate) fn into_replica(self) -> Option<Replica> {
        self.replica
    }
}

impl From<Pod> for WatchedReplica {
    fn from(pod: Pod) -> Self {
        let state = match pod.metadata.deletion_timestamp {
            Some(_) => ReplicaState::Terminating,
            None => state(&pod),
        };
        let Pod { metadata, spec, .. } = pod;
        let node = spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let id = PodId::of(&metadata);
        let created = metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let replica = id.owner.is_some().then(|| Replica { id: Arc::new(id), created, node, state });
        let ObjectMeta { name, namespace, uid, resource_version, .. } = metadata;
        let metadata = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Self { metadata, replica }
    }
}

/// The reasons of a container that waits for its turn, or is being created.
const BEING_CREATED: [&str; 2] = ["PodInitializing", "ContainerCreating"];

fn state(pod: &Pod) -> ReplicaState {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return ReplicaState::Finished;
    }
    let condition =
        |type_: &str| status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
    if condition("Ready").is_some_and(|ready| ready.status == "True") {
        return ReplicaState::Ready;
    }
    if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_none_or(str::is_empty) {
        let scheduled = condition("PodScheduled").filter(|scheduled| scheduled.status != "True");
        let reason = scheduled.and_then(|scheduled| scheduled.reason.clone()).unwrap_or_default();
        let message = scheduled.and_then(|scheduled| scheduled.message.clone()).unwrap_or_default();
        return ReplicaState::Waiting(WaitsFor::Node { reason, message });
    }
    let failing = does_not_start(status);
    let init = || running_init_container(pod).map(|name| WaitsFor::InitContainer(name.to_owned()));
    ReplicaState::Waiting(failing.or_else(init).unwrap_or_else(|| waits_for(status)))
}

/// The container that does not start, which explains more than one that is being created.
fn does_not_start(status: &PodStatus) -> Option<WaitsFor> {
    let (init, main) = (status.init_container_statuses.iter(), status.container_statuses.iter());
    init.chain(main).flatten().find_map(|container| {
        let state = container.state.as_ref()?;
        let ended = state.terminated.as_ref().filter(|_| !container.ready);
        let ended = ended.filter(|ended| ended.reason.as_deref() != Some("Completed"));
        let is_waiting_to_restart = state
            .waiting
            .as_ref()
            .is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"));
        if (is_waiting_to_restart || (ended.is_some() && container.restart_count > 0))
            && let Obstacle::CrashLoop { container: name, exit_code, reason } = crash_loop(container)
        {
            let (restarts, has_ended) = (container.restart_count, has_ended(container));
            return Some(WaitsFor::CrashLoop { name, exit_code, reason, restarts, has_ended });
        }
        let (reason, message) = match &state.waiting {
            Some(waiting) => (&waiting.reason, &waiting.message),
            None => ended.map(|ended| (&ended.reason, &ended.message))?,
        };
        let (reason, message) = (reason.clone().unwrap_or_default(), message.clone().unwrap_or_default());
        let name = container.name.clone();
        (!BEING_CREATED.contains(&reason.as_str())).then_some(WaitsFor::Container { name, reason, message })
    })
}

/// What a pod on a node waits for, whose containers all start.
fn waits_for(status: &PodStatus) -> WaitsFor {
    let main: Vec<&ContainerStatus> = status.container_statuses.iter().flatten().collect();
    let runs =
        |container: &&ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    if main.is_empty() || !main.iter().all(runs) {
        return WaitsFor::Start;
    }
    match main.iter().find(|container| !container.ready) {
        Some(container) if container.started == Some(false) => WaitsFor::StartupProbe(container.name.clone()),
        Some(container) => WaitsFor::ReadinessProbe(container.name.clone()),
        None => WaitsFor::ReadinessGate,
    }
}

#[cfg(test)]
mod tests {
    use nm_core::explain::owner::Owner;
    use serde_json::{Value, json};

    use super::*;

    fn replica(pod: Value) -> Option<Replica> {
        serde_json::from_value::<WatchedReplica>(pod).unwrap().into_replica()
    }

    #[track_caller]
    fn check(node: &str, status: &Value, word: &str, message: &str, is_stuck: bool) {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "s",
            "controller": true}]);
        let pod = json!({"metadata": {"name": "cart-0", "ownerReferences": owner}, "spec": {"nodeName": node},
            "status": status});
        let state = replica(pod).unwrap().state;
        assert_eq!((state.word(), state.message().as_str(), state.is_stuck()), (word, message, is_stuck));
    }

    #[test]
    fn what_a_replacement_waits_for_comes_from_its_conditions_and_containers() {
        let unscheduled = |reason: &str, message: &str| {
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]})
        };
        let full = "0/3 nodes are available: 3 Insufficient cpu.";
        check(
            "",
            &unscheduled("Unschedulable", full),
            "Unscheduled",
            &format!("Unschedulable: {full}"),
            true,
        );
        check("", &unscheduled("SchedulingGated", ""), "Unscheduled", "SchedulingGated", true);
        check("", &json!({"phase": "Pending"}), "Unscheduled", "not scheduled yet", false);
        check("n2", &json!({"phase": "Pending"}), "Starting", "its containers are being created", false);

        let containers = |init: Value, main: Value| {
            json!({"phase": "Pending", "initContainerStatuses": init, "containerStatuses": main,
                "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]})
        };
        let waits = |name: &str, reason: &str, message: &str| json!({"name": name, "ready": false, "state": {"waiting": {"reason": reason, "message": message}}});
        let runs = |name: &str, ready: bool, started: bool| json!({"name": name, "ready": ready, "started": started, "state": {"running": {}}});
        let creating = waits("web", "ContainerCreating", "");
        let of_main = |main: &[Value]| containers(Value::Null, json!(main));
        check(
            "n2",
            &of_main(std::slice::from_ref(&creating)),
            "Starting",
            "its containers are being created",
            false,
        );
        let image = waits("log", "ImagePullBackOff", "Back-off pulling image \"x\"");
        let text = "log: ImagePullBackOff: Back-off pulling image \"x\"";
        check("n2", &of_main(&[creating, image]), "Starting", text, true);
        let init = json!([waits("migrate", "CrashLoopBackOff", "")]);
        let status = containers(init, json!([waits("web", "PodInitializing", "")]));
        check("n2", &status, "Starting", "container migrate keeps exiting, 0 restarts so far", true);
        let mut crashing = waits("c", "CrashLoopBackOff", "back-off 40s restarting failed container");
        crashing["restartCount"] = json!(5);
        crashing["lastState"] = json!({"terminated": {"exitCode": 7, "reason": "Error"}});
        let words = "container c keeps exiting with exit code 7, 5 restarts so far";
        check("n2", &of_main(&[crashing]), "Starting", words, true);
        let again = json!({"name": "c", "restartCount": 5, "state": {"terminated": {"exitCode": 7, "reason": "Error"}}});
        check("n2", &of_main(&[again]), "Starting", words, true);
        let init = json!([{"name": "migrate", "ready": false, "state": {"running": {}}}]);
        let status = containers(init, json!([waits("web", "PodInitializing", "")]));
        check("n2", &status, "Starting", "init container migrate runs", false);
        let init = json!([{"name": "migrate", "state": {"terminated": {"reason": "Completed"}}}]);
        let status = containers(init, json!([runs("web", false, true)]));
        check("n2", &status, "NotReady", "waits for the readiness probe of web", false);
        let ended = json!({"name": "web", "ready": false, "state": {"terminated": {"reason": "OOMKilled"}}});
        check("n2", &of_main(&[ended]), "Starting", "web: OOMKilled", true);
        let started = of_main(&[runs("a", true, true), runs("web", false, false)]);
        check("n2", &started, "NotReady", "waits for the startup probe of web", false);
        let gated = of_main(&[runs("web", true, true)]);
        check("n2", &gated, "NotReady", "waits for its readiness gates", false);
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        check("n2", &ready, "Ready", "", false);
        check("n2", &json!({"phase": "Failed"}), "Finished", "", false);
    }

    #[test]
    fn a_replica_has_its_workload_and_its_age_and_a_pod_without_controller_is_none() {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "front-6c4", "uid": "rs",
            "controller": true}]);
        let labels = json!({"app": "front", "pod-template-hash": "6c4"});
        let pod = json!({"metadata": {"name": "front-6c4-x", "namespace": "web", "uid": "u", "labels": labels,
            "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T03:05:05Z", "ownerReferences": owner,
            "managedFields": [{"manager": "kubelet", "fieldsV1": {}}]}, "spec": {"nodeName": "n2", "containers": []}});
        let watched: WatchedReplica = serde_json::from_value(pod).unwrap();
        assert_eq!(watched.meta().resource_version.as_deref(), Some("7"));
        let found = watched.into_replica().unwrap();
        assert_eq!(found.id.owner, Owner::recorded("deploy/front"));
        assert_eq!(found.id.controller, "rs");
        assert_eq!(found.created, "2026-01-02T03:04:05Z".parse().unwrap());
        assert_eq!((found.node.as_str(), found.state), ("n2", ReplicaState::Terminating));
        assert_eq!(replica(json!({"metadata": {"name": "bare", "labels": null}})), None);
    }
}
