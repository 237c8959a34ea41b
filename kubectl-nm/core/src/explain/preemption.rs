//! The pods that the scheduler has preempted for others, as its events show them.
//!
//! A drain preempts pods on other nodes: its replacements go there instead of pods of lower priority. The scheduler writes an event
//! about each of these, which names the pod that it places instead.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use nm_shared::PodReference;

use crate::explain::cluster_facts::{ClusterFacts, PreemptedPod, StoppedPod};
use crate::explain::first_cause::Subject;
use crate::explain::owner::Owner;
use crate::terminal::text::{counted, first_names};

impl PreemptedPod {
    /// The pod that an event is about; none if the event is another one.
    pub fn of(event: &Event) -> Option<Self> {
        let (about, by) = (&event.involved_object, event.related.as_ref()?);
        let at = event.event_time.as_ref().map(|at| at.0);
        Some(Self {
            pod: PodReference { namespace: about.namespace.clone()?, name: about.name.clone()? },
            uid: about.uid.clone()?,
            by: PodReference { namespace: by.namespace.clone()?, name: by.name.clone()? },
            at: at.or_else(|| event.last_timestamp.as_ref().map(|at| at.0))?,
        })
        .filter(|_| event.reason.as_deref() == Some("Preempted"))
    }
}

/// Those of these pods that were preempted since the drain of a node began, for pods like those that have left it.
pub fn of_drain(
    node: &str,
    began: Timestamp,
    stopped: &[StoppedPod],
    preempted: &[PreemptedPod],
) -> Vec<PreemptedPod> {
    let left = stopped.iter().filter(|pod| pod.node == node && pod.at >= began);
    let left: BTreeSet<(&str, &str)> = left.filter_map(|pod| siblings(&pod.pod)).collect();
    let is_of_drain = |pod: &&PreemptedPod| {
        pod.at >= began && siblings(&pod.by).is_some_and(|siblings| left.contains(&siblings))
    };
    preempted.iter().filter(is_of_drain).cloned().collect()
}

/// What the names of the pods of a controller have in common, with their namespace.
fn siblings(pod: &PodReference) -> Option<(&str, &str)> {
    let (common, _) = pod.name.rsplit_once('-')?;
    Some((&pod.namespace, common))
}

/// `2 pods of this workload were preempted by shop/high-x`.
pub(super) fn preempted_by<'a>(whose: &str, preempted: impl IntoIterator<Item = &'a PreemptedPod>) -> String {
    let preempted: BTreeSet<(&str, &PodReference)> =
        preempted.into_iter().map(|pod| (pod.uid.as_str(), &pod.by)).collect();
    let by: BTreeSet<String> = preempted.iter().map(|(_, by)| by.to_string()).collect();
    let by: Vec<String> = by.into_iter().collect();
    let was = if preempted.len() == 1 { "was" } else { "were" };
    format!("{} of {whose} {was} preempted by {}", counted(preempted.len(), "pod"), first_names(&by))
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
    use serde_json::json;

    use super::*;

    fn time(minute: u32) -> Timestamp {
        format!("2026-01-02T03:{minute:02}:00Z").parse().unwrap()
    }

    /// The event about `shop/low-6c4-bcdfg`, as a scheduler writes it.
    fn event(by: &str, minute: u32) -> Event {
        let event = json!({
            "metadata": {"name": "low-6c4-bcdfg.18a", "namespace": "shop"}, "reason": "Preempted", "action": "Preempting",
            "message": "Preempted by pod 7d2f on node n2", "eventTime": time(minute), "firstTimestamp": null,
            "reportingComponent": "default-scheduler", "reportingInstance": "default-scheduler-cp1", "type": "Normal",
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "low-6c4-bcdfg", "uid": "u"},
            "related": {"kind": "Pod", "namespace": "shop", "name": by, "uid": "7d2f"},
        });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn only_preemptions_that_name_the_other_pod_are_known() {
        let found = PreemptedPod::of(&event("high-6c4-xyz12", 5)).unwrap();
        assert_eq!(
            (found.pod.to_string(), found.by.to_string(), found.at),
            ("shop/low-6c4-bcdfg".to_owned(), "shop/high-6c4-xyz12".to_owned(), time(5))
        );
        let changed = |change: &dyn Fn(&mut Event)| {
            let mut event = event("high-6c4-xyz12", 5);
            change(&mut event);
            PreemptedPod::of(&event)
        };
        assert_eq!(changed(&|event| event.reason = Some("Killing".into())), None);
        assert_eq!(changed(&|event| event.related = None), None);
    }

    #[test]
    fn a_drain_preempts_for_pods_like_those_that_have_left_its_node() {
        let stopped = |name: &str, node: &str, minute: u32| StoppedPod {
            pod: PodReference { namespace: "shop".into(), name: name.into() },
            uid: name.into(),
            node: node.into(),
            at: time(minute),
        };
        let found = |left: StoppedPod, by: &str, minute: u32| {
            let preempted = PreemptedPod::of(&event(by, minute)).unwrap();
            of_drain("n1", time(4), &[left], &[preempted]).len()
        };
        let left = || stopped("high-6c4-bcdfg", "n1", 5);
        assert_eq!(found(left(), "high-6c4-xyz12", 5), 1);
        assert_eq!(found(stopped("high-0", "n1", 5), "high-0", 5), 1);
        assert_eq!(found(left(), "high-6c4-xyz12", 3), 0, "before the drain");
        assert_eq!(found(left(), "other-6c4-xyz12", 5), 0);
        assert_eq!(found(stopped("high-6c4-bcdfg", "n2", 5), "high-6c4-xyz12", 5), 0, "another node");
        assert_eq!(found(stopped("bare", "n1", 5), "bare", 5), 0, "nothing replaces it");
    }
}
