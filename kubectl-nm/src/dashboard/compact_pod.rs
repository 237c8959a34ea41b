//! A pod, reduced to what the dashboard needs.
//!
//! A node may have 10,000 pods. A pod object takes some 10 KiB, most of it empty; a [`CompactPod`] takes less than half a
//! KiB. It has everything that a drain verdict depends on, so that a changed drain spec needs no request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use nm_shared::DrainSpec;
use nm_shared::cluster::pod::{self, DrainPod, PodController, PodView, Termination};
use nm_shared::drain::plan::{DaemonSets, PodFilters, Verdict};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodId {
    /// Its uid; its namespace and name, where only a status names it.
    pub(crate) key: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its controller, such as `sts/cart`; empty if there is none or it is not known.
    pub(crate) owner: String,
}

/// A pod, reduced to what the dashboard needs.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a verdict depends on each of them")]
pub(crate) struct CompactPod {
    pub(crate) id: Arc<PodId>,
    /// As `app=front,tier=web`; labels cannot contain these separators. A map per pod would be larger than the rest.
    labels: Box<str>,
    is_daemon_set: bool,
    is_mirror: bool,
    is_finished: bool,
    has_empty_dir: bool,
    termination: Option<Box<OwnedTermination>>,
}

#[derive(Debug)]
struct OwnedTermination {
    deadline: Timestamp,
    grace_seconds: Option<i64>,
    finalizers: Vec<String>,
}

impl From<&DrainPod> for CompactPod {
    fn from(pod: &DrainPod) -> Self {
        let names = pod::names(pod);
        let id = PodId {
            key: names.uid.to_owned(),
            namespace: names.namespace.to_owned(),
            name: names.name.to_owned(),
            owner: owner(pod),
        };
        let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
        let termination = pod.termination().map(|termination| OwnedTermination {
            deadline: termination.deadline,
            grace_seconds: termination.grace_seconds,
            finalizers: termination.finalizers.to_vec(),
        });
        Self {
            id: Arc::new(id),
            labels: labels.collect::<Vec<_>>().join(",").into(),
            is_daemon_set: pod::daemon_set(pod).is_some(),
            is_mirror: pod::is_mirror(pod),
            is_finished: pod::is_finished(pod),
            has_empty_dir: pod.has_empty_dir,
            termination: termination.map(Box::new),
        }
    }
}

impl PodView for CompactPod {
    fn namespace(&self) -> &str {
        &self.id.namespace
    }

    fn labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        let labels = self.labels.split(',').filter_map(|label| label.split_once('='));
        Cow::Owned(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn controller(&self) -> PodController<'_> {
        match self.id.owner.split_once('/') {
            None => PodController::None,
            Some((_, name)) if self.is_daemon_set => PodController::DaemonSet(name),
            Some(_) => PodController::Other,
        }
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    fn is_mirror(&self) -> bool {
        self.is_mirror
    }

    fn has_empty_dir(&self) -> bool {
        self.has_empty_dir
    }

    fn termination(&self) -> Option<Termination<'_>> {
        let OwnedTermination { deadline, grace_seconds, finalizers } = self.termination.as_deref()?;
        Some(Termination { deadline: *deadline, grace_seconds: *grace_seconds, finalizers })
    }
}

impl CompactPod {
    pub(crate) fn verdict(&self, spec: &DrainSpec, now: Timestamp) -> Verdict {
        // Only the reconciler knows all DaemonSets. A missing one is rare, and then the status reports more.
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        // With an invalid selector nothing is evicted, and the status reports why.
        PodFilters::new(spec, &daemon_sets, now).map_or(Verdict::Evict, |filters| filters.judge(self).0)
    }

    /// Whether it is terminating, so that its state may change with time alone.
    pub(crate) fn is_terminating(&self) -> bool {
        self.termination.is_some()
    }

    /// When its grace period ends.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.termination.as_ref().map(|termination| termination.deadline)
    }

    pub(crate) fn terminating_since(&self) -> Option<Timestamp> {
        let OwnedTermination { deadline, grace_seconds, .. } = self.termination.as_deref()?;
        let grace = SignedDuration::from_secs(grace_seconds.unwrap_or(0));
        Some(deadline.saturating_sub(grace).unwrap_or(*deadline))
    }
}

/// The label by which a deployment distinguishes the pods of its replica sets.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The controller of a pod, with the short names of kubectl. For a pod of a deployment that is the deployment, because
/// it would undo changes to its replica sets.
fn owner(pod: &DrainPod) -> String {
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

    use nm_shared::drain::pod_state;

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    /// Pods that differ in everything that a verdict depends on.
    fn pods() -> Vec<DrainPod> {
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
            json!({"annotations": {"kubernetes.io/config.mirror": "x", "other": "y"}}),
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
    fn a_compact_pod_gets_the_verdict_and_the_state_of_the_pod() {
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
            let filters = PodFilters::new(&parsed, &daemon_sets, now).unwrap();
            for pod in pods() {
                let (verdict, _) = filters.judge(&pod);
                let compact = CompactPod::from(&pod);
                assert_eq!(compact.verdict(&parsed, now), verdict, "{spec} {pod:?}");
                let state = pod_state::visible_state(&pod, verdict, None, now);
                assert_eq!(pod_state::visible_state(&compact, verdict, None, now), state, "{spec} {pod:?}");
            }
        }
    }

    #[test]
    fn an_invalid_selector_does_not_make_pods_blocked() {
        let spec: DrainSpec =
            parse(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}));
        let pod = parse(json!({"metadata": {"name": "a"}}));
        assert_eq!(CompactPod::from(&pod).verdict(&spec, Timestamp::UNIX_EPOCH), Verdict::Evict);
    }

    #[test]
    fn owners_have_the_short_names_of_kubectl() {
        for (kind, owner) in [("StatefulSet", "sts/o"), ("VirtualMachineInstance", "vmi/o"), ("Job", "job/o")]
        {
            let reference =
                json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]);
            let pod = parse(json!({"metadata": {"name": "a", "ownerReferences": reference}}));
            assert_eq!(CompactPod::from(&pod).id.owner, owner);
        }
    }

    #[test]
    fn the_owner_of_a_pod_of_a_deployment_is_the_deployment() {
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
            assert_eq!(CompactPod::from(&pod).id.owner, owner);
        }
    }
}
