//! The pods that the scheduler has preempted for others, as its events show them.
//!
//! A drain preempts pods on other nodes: its replacements go there instead of pods of lower priority. The scheduler writes an event
//! about each of these. It contains only the uid of the pod that is placed instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::core::PartialObjectMeta;
use nm_shared::PodReference;
use nm_shared::cluster::metadata;

use crate::explain::cluster_facts::{ClusterFacts, PreemptedPod, Preemptor, StoppedPod};
use crate::explain::first_cause::Subject;
use crate::explain::owner::Owner;
use crate::terminal::text::{counted, first_names};

/// How the message of such an event begins; the uid of the other pod follows.
const MESSAGE: &str = "Preempted by pod ";

impl PreemptedPod {
    /// The pod that an event is about; none if the event is another one.
    pub fn of(event: &Event) -> Option<Self> {
        let about = &event.involved_object;
        let at = event.event_time.as_ref().map(|at| at.0);
        // No field has the uid.
        let by_uid = event.message.as_deref()?.strip_prefix(MESSAGE)?.split(' ').next()?;
        Some(Self {
            pod: PodReference { namespace: about.namespace.clone()?, name: about.name.clone()? },
            uid: about.uid.clone()?,
            by_uid: by_uid.to_owned(),
            by: None,
            at: at.or_else(|| event.last_timestamp.as_ref().map(|at| at.0))?,
        })
        .filter(|_| event.reason.as_deref() == Some("Preempted"))
    }
}

/// Names the pods that these were preempted for: they exist, or have been stopped or preempted themselves.
pub fn name_preemptors(
    preempted: &mut [PreemptedPod],
    stopped: &[StoppedPod],
    pods: &[PartialObjectMeta<Pod>],
) {
    let left = stopped.iter().map(|pod| (&pod.uid, &pod.pod));
    let left = left.chain(preempted.iter().map(|pod| (&pod.uid, &pod.pod)));
    let without_owner = |pod: &PodReference| Preemptor { pod: pod.clone(), is_of_daemon_set: false };
    let mut known: HashMap<String, Preemptor> =
        left.map(|(uid, pod)| (uid.clone(), without_owner(pod))).collect();
    known.extend(pods.iter().filter_map(|pod| {
        let pod = &pod.metadata;
        let reference = PodReference { namespace: pod.namespace.clone()?, name: pod.name.clone()? };
        let owner = metadata::controller(pod.owner_references.as_deref().unwrap_or_default());
        let is_of_daemon_set = owner.is_some_and(|owner| metadata::is_of(owner, "apps", "DaemonSet"));
        Some((pod.uid.clone()?, Preemptor { pod: reference, is_of_daemon_set }))
    }));
    for lost in preempted {
        lost.by = known.get(&lost.by_uid).cloned();
    }
}

/// Those of these pods that were probably preempted for pods that replace those that have left a node. `left` are the pods that
/// have left this and other nodes since their drains began.
///
/// A pod does not show which one it replaces. Of the pods of a controller that have preempted others since then, as many as have
/// left are taken for replacements: the controller may have added others.
pub fn of_drain(
    node: &str,
    began: Timestamp,
    left: &[StoppedPod],
    preempted: &[PreemptedPod],
) -> Vec<PreemptedPod> {
    let mut replaced: BTreeMap<(&str, &str), Leaving<'_>> = BTreeMap::new();
    for pod in left {
        if let Some(siblings) = siblings(&pod.pod) {
            let leaving = replaced.entry(siblings).or_default();
            leaving.uids.insert(&pod.uid);
            leaving.is_of_node |= pod.node == node;
        }
    }
    let mut since: Vec<&PreemptedPod> = preempted.iter().filter(|lost| lost.at >= began).collect();
    since.sort_by_key(|lost| lost.at);
    let mut found = Vec::new();
    for lost in since {
        let Some(by) = lost.by.as_ref().filter(|by| !by.is_of_daemon_set) else { continue };
        let Some(leaving) = siblings(&by.pod).and_then(|siblings| replaced.get_mut(&siblings)) else {
            continue;
        };
        if leaving.preemptors.len() < leaving.uids.len() {
            leaving.preemptors.insert(&lost.by_uid);
        }
        if leaving.is_of_node && leaving.preemptors.contains(lost.by_uid.as_str()) {
            found.push(lost.clone());
        }
    }
    found
}

/// The pods of a controller that have left, by uid, and those that have probably replaced them.
#[derive(Default)]
struct Leaving<'a> {
    uids: BTreeSet<&'a str>,
    /// Whether one of them has left the node in question.
    is_of_node: bool,
    preemptors: BTreeSet<&'a str>,
}

/// What the names of the pods of a controller have in common, with their namespace.
fn siblings(pod: &PodReference) -> Option<(&str, &str)> {
    let (common, _) = pod.name.rsplit_once('-')?;
    Some((&pod.namespace, common))
}

/// `2 pods of this workload were preempted by shop/high-x`; without a name if it is not known of all.
pub(super) fn preempted_by<'a>(whose: &str, preempted: impl IntoIterator<Item = &'a PreemptedPod>) -> String {
    let mut pods: BTreeSet<&str> = BTreeSet::new();
    let mut by: Option<BTreeSet<String>> = Some(BTreeSet::new());
    for lost in preempted {
        pods.insert(&lost.uid);
        by = by.zip(lost.by.as_ref()).map(|(mut names, by)| {
            names.insert(by.pod.to_string());
            names
        });
    }
    let was = if pods.len() == 1 { "was" } else { "were" };
    let by: Vec<String> = by.into_iter().flatten().collect();
    let by = if by.is_empty() { String::new() } else { format!(" by {}", first_names(&by)) };
    format!("{} of {whose} {was} preempted{by}", counted(pods.len(), "pod"))
}

/// By what, and when, pods of the owners of these pods were preempted, as far as these are not scheduled; none without an event.
pub(super) fn were_preempted(subjects: &[Subject], facts: &ClusterFacts) -> Option<String> {
    let unscheduled = subjects.iter().filter(|subject| subject.node.is_none());
    let owners: BTreeSet<(&str, &Owner)> = unscheduled
        .filter_map(|subject| Some((subject.pod.namespace.as_str(), subject.owner.as_ref()?)))
        .collect();
    let is_of = |pod: &PodReference| {
        owners.iter().any(|(namespace, owner)| *namespace == pod.namespace && owner.names(&pod.name))
    };
    let preempted: Vec<&PreemptedPod> = facts.preempted.iter().filter(|lost| is_of(&lost.pod)).collect();
    let first = preempted.iter().map(|lost| lost.at).min()?;
    let at = if preempted.len() == 1 { "at" } else { "the first at" };
    let whose: Vec<String> = owners.iter().map(|(_, owner)| owner.to_string()).collect();
    Some(format!("{}, {at} {first}.", preempted_by(&first_names(&whose), preempted)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn time(minute: u32) -> Timestamp {
        format!("2026-01-02T03:{minute:02}:00Z").parse().unwrap()
    }

    /// The event about `shop/low-6c4-bcdfg`, as the scheduler of Kubernetes 1.36 writes it.
    fn event(by: &str, minute: u32) -> Event {
        let event = json!({
            "metadata": {"name": "low-6c4-bcdfg.18a", "namespace": "shop"}, "reason": "Preempted", "action": "Preempting",
            "message": format!("Preempted by pod {by} on node n2"), "eventTime": time(minute), "firstTimestamp": null,
            "lastTimestamp": null, "source": {}, "type": "Normal",
            "reportingComponent": "default-scheduler", "reportingInstance": "default-scheduler-cp1",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "low-6c4-bcdfg", "uid": "u",
                "resourceVersion": "9"},
        });
        serde_json::from_value(event).unwrap()
    }

    fn stopped(name: &str, node: &str, minute: u32) -> StoppedPod {
        StoppedPod {
            pod: PodReference { namespace: "shop".into(), name: name.into() },
            uid: format!("uid-{name}"),
            node: node.into(),
            at: time(minute),
        }
    }

    /// A pod whose uid is its name.
    fn pod(name: &str, kind: &str) -> PartialObjectMeta<Pod> {
        let owner: Value =
            json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true});
        let pod = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner]}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_pod_that_was_placed_instead_is_found_by_its_uid() {
        let found = PreemptedPod::of(&event("7d2f", 5)).unwrap();
        assert_eq!(
            (found.pod.to_string(), found.by_uid.as_str(), found.at),
            ("shop/low-6c4-bcdfg".to_owned(), "7d2f", time(5))
        );
        let changed = |change: &dyn Fn(&mut Event)| {
            let mut event = event("7d2f", 5);
            change(&mut event);
            PreemptedPod::of(&event)
        };
        assert_eq!(changed(&|event| event.reason = Some("Killing".into())), None);
        assert_eq!(changed(&|event| event.message = Some("Stopping container c".into())), None);
        let named = |uid: &str| {
            let mut preempted = [PreemptedPod::of(&event(uid, 5)).unwrap()];
            name_preemptors(&mut preempted, &[stopped("gone-1", "n3", 6)], &[pod("high-1", "ReplicaSet")]);
            preempted_by("web", &preempted)
        };
        assert_eq!(named("high-1"), "1 pod of web was preempted by shop/high-1");
        assert_eq!(named("uid-gone-1"), "1 pod of web was preempted by shop/gone-1", "it has left, too");
        assert_eq!(named("7d2f"), "1 pod of web was preempted");
    }

    #[test]
    fn a_drain_preempts_for_as_many_pods_like_those_that_have_left_its_node() {
        let of_kind = |kind: &str, left: &[StoppedPod], by: &[(&str, u32)]| {
            let mut preempted: Vec<PreemptedPod> =
                by.iter().map(|(by, minute)| PreemptedPod::of(&event(by, *minute)).unwrap()).collect();
            let pods: Vec<PartialObjectMeta<Pod>> = by.iter().map(|(by, _)| pod(by, kind)).collect();
            name_preemptors(&mut preempted, &[], &pods);
            let found = of_drain("n1", time(4), left, &preempted);
            found.into_iter().map(|lost| lost.by_uid).collect::<Vec<_>>()
        };
        let found = |left: &[StoppedPod], by: &[(&str, u32)]| of_kind("ReplicaSet", left, by);
        let left = || stopped("high-6c4-bcdfg", "n1", 5);
        let one = [("high-6c4-x", 5)];
        assert_eq!(found(&[left()], &one), ["high-6c4-x"]);
        assert_eq!(found(&[stopped("high-0", "n1", 5)], &[("high-0", 5)]), ["high-0"]);
        let two = [("high-6c4-y", 7), ("high-6c4-x", 5), ("high-6c4-x", 8)];
        assert_eq!(found(&[left()], &two), ["high-6c4-x", "high-6c4-x"], "the other one replaces none");
        let also = stopped("high-6c4-bcdfh", "n3", 5);
        assert_eq!(found(&[left(), also], &two).len(), 3, "the other drain has replacements, too");
        assert_eq!(found(&[left(), left()], &two).len(), 2, "each of its containers is stopped");
        for (why, found) in [
            ("before the drain", found(&[left()], &[("high-6c4-x", 3)])),
            ("another controller", found(&[left()], &[("other-6c4-x", 5)])),
            ("another node", found(&[stopped("high-6c4-bcdfg", "n2", 5)], &one)),
            ("nothing replaces it", found(&[stopped("bare", "n1", 5)], &[("bare", 5)])),
            ("a DaemonSet has a pod on each node", of_kind("DaemonSet", &[left()], &one)),
        ] {
            assert_eq!(found, [""; 0], "{why}");
        }
    }
}
