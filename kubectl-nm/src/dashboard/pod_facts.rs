//! What is kept of a pod: which one it is, and by what a drain judges it.
//!
//! A node may carry ten thousand pods. One of them takes some ten kibibytes as an object of the API, of which most is
//! empty, and less than half a kibibyte here. So the feed makes facts of each pod as it arrives. They hold whatever
//! the drain spec is, which is the model's to know: other wishes need no pod to be seen again.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, PodSpec, PodStatus, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use nm_shared::api::names::MIRROR_ANNOTATION;
use nm_shared::cluster::pod;
use nm_shared::drain::budget_forecast::Budgets;
use nm_shared::drain::plan::{DaemonSets, DrainPlan, PlannedPod, Verdict};
use nm_shared::drain::pod_state::{self, PodContext, PodState};
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::{DrainSpec, Group};

/// What tells a pod from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodId {
    /// Its uid; where only a status names it, its namespace and name.
    pub(crate) key: String,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// What controls it, as `sts/cart`; empty if nothing does or nobody knows.
    pub(crate) owner: String,
}

/// What is kept of a pod that was seen.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Which pod it is.
    pub(crate) id: Arc<PodId>,
    /// As `app=front,tier=web`, which no label can contain otherwise: a map for each pod would be larger than the rest.
    labels: Box<str>,
    controller: Controller,
    is_mirror: bool,
    is_finished: bool,
    has_empty_dir: bool,
    ending: Option<Box<Ending>>,
}

/// What would replace a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    None,
    DaemonSet,
    Other,
}

#[derive(Debug)]
struct Ending {
    deadline: Timestamp,
    grace: Option<i64>,
    finalizers: Option<Vec<String>>,
}

impl Facts {
    /// Keeps what matters of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let names = pod::names(pod);
        let id = PodId {
            key: names.uid.to_owned(),
            namespace: names.namespace.to_owned(),
            name: names.name.to_owned(),
            owner: owner(pod),
        };
        let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
        let controller = match (pod::daemon_set(pod), pod::controller(pod)) {
            (Some(_), _) => Controller::DaemonSet,
            (None, Some(_)) => Controller::Other,
            (None, None) => Controller::None,
        };
        let ending = pod::deadline(pod).map(|deadline| Ending {
            deadline,
            grace: pod.metadata.deletion_grace_period_seconds,
            finalizers: pod.metadata.finalizers.clone(),
        });
        Self {
            id: Arc::new(id),
            labels: labels.collect::<Vec<_>>().join(",").into(),
            controller,
            is_mirror: pod::is_mirror(pod),
            is_finished: pod::is_finished(pod),
            has_empty_dir: pod::has_empty_dir(pod),
            ending: ending.map(Box::new),
        }
    }

    /// What is to become of it by that drain spec.
    pub(crate) fn verdict(&self, spec: &DrainSpec, now: Timestamp) -> Verdict {
        // Only the reconciler knows all DaemonSets; that one is gone is rare, and then the status says more.
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let judged = DrainPlan::new([Arc::new(self.as_judged())], spec, &daemon_sets, now);
        // With a selector that is none, nobody is moved, and the status says why.
        let verdict = judged.ok().and_then(|plan| plan.pods.first().map(|judged| judged.verdict));
        verdict.unwrap_or(Verdict::Evict)
    }

    /// How far it is on its way, by what can be seen on the pod itself.
    pub(crate) fn state(&self, verdict: Verdict, now: Timestamp) -> PodState {
        let pod = Pod { metadata: self.metadata(), ..Pod::default() };
        let judged = PlannedPod { pod: Arc::new(pod), verdict, warnings: Vec::new() };
        pod_state::state(&judged, &known_of_itself(&Budgets::default()), now)
    }

    /// Whether time alone may change where it stands.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// When its grace ends.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.ending.as_ref().map(|ending| ending.deadline)
    }

    /// When it was asked to end.
    pub(crate) fn asked_at(&self) -> Option<Timestamp> {
        let Ending { deadline, grace, .. } = self.ending.as_deref()?;
        let grace = SignedDuration::from_secs(grace.unwrap_or(0));
        Some(deadline.saturating_sub(grace).unwrap_or(*deadline))
    }

    /// As much of the pod as a state is made by.
    fn metadata(&self) -> ObjectMeta {
        let ending = self.ending.as_deref();
        ObjectMeta {
            deletion_timestamp: ending.map(|ending| Time(ending.deadline)),
            deletion_grace_period_seconds: ending.and_then(|ending| ending.grace),
            finalizers: ending.and_then(|ending| ending.finalizers.clone()),
            ..ObjectMeta::default()
        }
    }

    /// As much of the pod as a verdict is made by.
    fn as_judged(&self) -> Pod {
        let labels = self.labels.split(',').filter_map(|label| label.split_once('='));
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (api_version, kind) = match self.controller {
            Controller::DaemonSet => ("apps/v1", "DaemonSet"),
            Controller::None | Controller::Other => ("", ""),
        };
        let controller = OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            controller: Some(self.controller != Controller::None),
            ..OwnerReference::default()
        };
        let mirror = (MIRROR_ANNOTATION.to_owned(), String::new());
        let empty_dir = Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() };
        Pod {
            metadata: ObjectMeta {
                labels: Some(labels.collect()),
                annotations: self.is_mirror.then(|| BTreeMap::from([mirror])),
                owner_references: Some(vec![controller]),
                ..self.metadata()
            },
            spec: self
                .has_empty_dir
                .then(|| PodSpec { volumes: Some(vec![empty_dir]), ..PodSpec::default() }),
            status: self
                .is_finished
                .then(|| PodStatus { phase: Some(String::from("Succeeded")), ..PodStatus::default() }),
        }
    }
}

/// What a pod alone tells of its drain: nothing of evictions, budgets and nodes.
fn known_of_itself(budgets: &Budgets) -> PodContext<'_> {
    PodContext {
        group: Group::Medik8s,
        attempt: None,
        steady_now: SteadyTime::MIN,
        blocked_by_budget: None,
        overdue: false,
        budgets,
        evacuation: None,
        node_ready: true,
    }
}

/// The label by which a deployment tells the pods of one of its replica sets from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// What controls a pod, with the short names that kubectl takes. For the pods of a deployment that is the deployment,
/// which undoes what is done to its replica sets.
fn owner(pod: &Pod) -> String {
    pod::controller(pod).map_or_else(String::new, |owner| {
        let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
        if let ("ReplicaSet", Some(deployment)) = (owner.kind.as_str(), deployment) {
            return format!("deploy/{deployment}");
        }
        let kind = match owner.kind.as_str() {
            "ReplicaSet" => "rs",
            "StatefulSet" => "sts",
            "DaemonSet" => "ds",
            "ReplicationController" => "rc",
            "VirtualMachineInstance" => "vmi",
            other => return format!("{}/{}", other.to_ascii_lowercase(), owner.name),
        };
        format!("{kind}/{}", owner.name)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    /// Pods that differ in everything that a verdict is made by.
    fn pods() -> Vec<Pod> {
        let owner = |api: &str, kind: &str, controls: bool| json!([{"apiVersion": api, "kind": kind, "name": "o", "uid": "o", "controller": controls}]);
        let owners = [
            json!([]),
            owner("apps/v1", "DaemonSet", true),
            owner("apps/v1", "ReplicaSet", true),
            owner("apps/v1", "DaemonSet", false),
            owner("other.io/v1", "DaemonSet", true),
        ];
        let volumes = [
            json!([]),
            json!([{"name": "s", "secret": {"secretName": "s"}}, {"name": "t", "emptyDir": {"sizeLimit": "1Gi"}}]),
        ];
        let metadata = [
            json!({}),
            json!({"annotations": {MIRROR_ANNOTATION: "x", "other": "y"}}),
            json!({"labels": {"app": "front", "example.com/empty": "", "tier": "web"}}),
            json!({"labels": {"app": "cart"}}),
            json!({"deletionTimestamp": "2026-01-02T03:09:00Z", "deletionGracePeriodSeconds": 30}),
            json!({"deletionTimestamp": "2026-01-02T03:00:00Z", "finalizers": ["a/b"]}),
        ];
        let mut pods = Vec::new();
        for owner in &owners {
            for volumes in &volumes {
                for phase in ["Running", "Succeeded", "Failed"] {
                    for metadata in &metadata {
                        let mut metadata = metadata.clone();
                        metadata["name"] = json!("a");
                        metadata["ownerReferences"] = owner.clone();
                        pods.push(parse(json!({
                            "metadata": metadata,
                            "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "volumes": volumes},
                            "status": {"phase": phase},
                        })));
                    }
                }
            }
        }
        pods
    }

    #[test]
    fn facts_are_judged_as_the_pod_itself_by_whatever_spec() {
        let now = "2026-01-02T03:10:00Z".parse().unwrap();
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let specs = [
            json!({}),
            json!({"force": false, "deleteEmptyDirData": false}),
            json!({"force": false, "skipWaitForDeleteTimeoutSeconds": 120}),
            json!({"deleteEmptyDirData": false, "podSelector": {"matchLabels": {"app": "front"}}}),
            json!({"podSelector": {"matchExpressions": [{"key": "example.com/empty", "operator": "Exists"}]}}),
            json!({"podSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}}),
        ];
        for spec in specs {
            let parsed: DrainSpec = parse(spec.clone());
            for pod in pods() {
                let plan = DrainPlan::new([Arc::new(pod.clone())], &parsed, &daemon_sets, now).unwrap();
                let facts = Facts::of(&pod);
                let verdict = facts.verdict(&parsed, now);
                assert_eq!(verdict, plan.pods[0].verdict, "{spec} {}", json!(pod));
                let state = pod_state::state(&plan.pods[0], &known_of_itself(&Budgets::default()), now);
                assert_eq!(facts.state(verdict, now), state, "{spec} {}", json!(pod));
            }
        }
    }

    #[test]
    fn a_selector_that_is_none_moves_nobody_and_calls_nobody_blocked() {
        let spec: DrainSpec =
            parse(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}));
        let pod = parse(json!({"metadata": {"name": "a"}}));
        assert_eq!(Facts::of(&pod).verdict(&spec, Timestamp::UNIX_EPOCH), Verdict::Evict);
    }

    #[test]
    fn owners_are_named_as_kubectl_takes_them() {
        for (kind, owner) in [("StatefulSet", "sts/o"), ("VirtualMachineInstance", "vmi/o"), ("Job", "job/o")]
        {
            let reference =
                json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
            let pod = parse(json!({"metadata": {"name": "a", "ownerReferences": reference}}));
            assert_eq!(Facts::of(&pod).id.owner, owner);
        }
    }

    #[test]
    fn the_owner_of_a_deployments_pod_is_the_deployment() {
        for (kind, name, hash, owner) in [
            ("ReplicaSet", "front-6c4", "6c4", "deploy/front"),
            ("ReplicaSet", "front-6c4", "7d5", "rs/front-6c4"),
            ("ReplicaSet", "6c4", "6c4", "rs/6c4"),
            ("StatefulSet", "front-6c4", "6c4", "sts/front-6c4"),
        ] {
            let reference = json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
            let labels = json!({"pod-template-hash": hash});
            let pod =
                parse(json!({"metadata": {"name": "a", "labels": labels, "ownerReferences": reference}}));
            assert_eq!(Facts::of(&pod).id.owner, owner);
        }
    }
}
