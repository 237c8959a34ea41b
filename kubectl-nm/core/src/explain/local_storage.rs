//! What becomes of a pod that somebody deletes, such as one that its emptyDir data keeps (`--delete-emptydir-data=false`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use nm_shared::cluster::metadata::foreign_finalizers;
use nm_shared::cluster::pod::reference_in;
use nm_shared::drain::returning::is_assigned_by_template;
use nm_shared::{BlockReason, BlockedPod, NodeMaintenance, PodReference};

use crate::explain::cause::{Cause, capitalized, few};
use crate::explain::cause_wording::Words;
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::first_cause::{Subject, subject};
use crate::explain::no_node_left::NoNodeLeft;
use crate::terminal::text::first_names;

/// Whether no node is left for a replacement of a pod, as far as that was read.
pub fn lacks_node(pod: &PodReference, facts: &ClusterFacts) -> bool {
    let mut read = facts.pods().filter(|read| reference_in(&read.metadata) == *pod);
    read.any(|read| no_node_left(read, facts).is_some())
}

/// What a deletion leads to, as far as the pod could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletion {
    /// No controller replaces the pod.
    NotReplaced,
    /// Its template assigns the replacement to the same node.
    Returns,
    /// No node is left for the replacement.
    Unplaced,
    /// A controller replaces the pod elsewhere, or that is not known.
    Replaced,
}

impl Deletion {
    pub(super) fn of(pod: &BlockedPod, facts: &ClusterFacts) -> Self {
        match facts.read_pod(pod) {
            _ if facts.is_bare(pod) => Self::NotReplaced,
            Some(pod) if is_assigned_by_template(pod) => Self::Returns,
            Some(pod) if no_node_left(pod, facts).is_some() => Self::Unplaced,
            _ => Self::Replaced,
        }
    }
}

/// Advises to keep pods whose replacements could not run on another node: a deletion would lose their data for nothing. `removed` is
/// what has to be removed before anybody deletes a pod.
pub(super) fn advise(
    cause: &mut Cause,
    pods: &[&BlockedPod],
    removed: Option<&str>,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    let Some(first) = pods.first().filter(|pod| pod.reason == BlockReason::LocalStorage) else { return };
    let read: Vec<&Pod> = pods.iter().filter_map(|pod| facts.read_pod(pod)).collect();
    let (keep, stop) = Words::of(maintenance, facts, &[], kubectl, now).keep_own();
    let keep = capitalized(&keep);
    let (the_pod, its, it_is) =
        if pods.len() == 1 { ("the pod", "its", "it is") } else { ("the pods", "their", "they are") };
    let replacements = if pods.len() == 1 { "replacement" } else { "replacements" };
    match Deletion::of(first, facts) {
        Deletion::NotReplaced | Deletion::Replaced => {}
        Deletion::Returns => {
            cause.what.push(format!(
                "After a deletion, {its} {replacements} would start on this node: {its} pod template assigns {the_pod} to it (nodeName)."
            ));
            cause.advice = format!("{keep} and keep {the_pod}: a deletion only loses {its} emptyDir data");
            cause.commands = vec![stop];
        }
        Deletion::Unplaced => {
            let mut lefts: Vec<(NoNodeLeft, Vec<Subject>)> = Vec::new();
            for (pod, left) in read.into_iter().filter_map(|pod| Some((pod, no_node_left(pod, facts)?))) {
                match lefts.iter_mut().find(|(known, _)| *known == left) {
                    Some((_, subjects)) => subjects.push(subject(pod)),
                    None => lefts.push((left, vec![subject(pod)])),
                }
            }
            cause.what.extend(few(lefts.iter().map(|(left, subjects)| {
                let words = Words::of(maintenance, facts, subjects, kubectl, now);
                let why = words.why_no_node_is_left(left);
                format!("A replacement of {} fits on no other node: {why}.", words.subjects())
            })));
            let delete =
                removed.map_or_else(|| String::from("delete"), |removed| format!("once {removed}, delete"));
            cause.advice = format!(
                "{keep} and keep {the_pod}; or {delete} {the_pod}: {its} emptyDir data is lost, and {it_is} unavailable until there is a \
                 node for {its} {replacements}"
            );
            cause.commands.insert(0, stop);
        }
    }
}

/// Names the finalizers of pods that are advised to be deleted, as far as the pods could be read.
pub(super) fn warn_of_finalizers(cause: &mut Cause, pods: &[&BlockedPod], facts: &ClusterFacts) {
    let is_deletable =
        |pod: &&&BlockedPod| matches!(pod.reason, BlockReason::LocalStorage | BlockReason::Unmanaged);
    let mut kept: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    let is_advised = |pod: &&&BlockedPod| Deletion::of(pod, facts) != Deletion::Returns;
    for blocked in pods.iter().filter(is_deletable).filter(is_advised) {
        let finalizers = facts.read_pod(blocked).and_then(|pod| pod.metadata.finalizers.as_deref());
        for finalizer in foreign_finalizers(finalizers.unwrap_or_default()) {
            kept.entry(finalizer).or_default().push(blocked.reference().to_string());
        }
    }
    cause.what.extend(few(kept.iter().map(|(finalizer, pods)| {
        let stay = if pods.len() == 1 { "stays" } else { "stay" };
        let names = first_names(pods);
        format!("After a deletion, {names} {stay} Terminating until finalizer {finalizer} is removed.")
    })));
}

fn no_node_left(pod: &Pod, facts: &ClusterFacts) -> Option<NoNodeLeft> {
    let Some(Ok(nodes)) = &facts.nodes else { return None };
    NoNodeLeft::of(pod, nodes, &facts.volumes, &facts.in_maintenance)
}
