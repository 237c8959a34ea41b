//! The first causes behind the budgets of a node, as they were last read: of the open node, or of the selected row.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use nm_core::explain::cause::Cause;
use nm_core::explain::cluster_facts::{ClusterFacts, FactsToRead};
use nm_core::explain::explanation;
use nm_core::explain::local_storage::lacks_node;
use nm_core::leader::{Leadership, Reconcilers};
use nm_shared::{NodeMaintenance, PodReference};

use crate::objects::node_pod::PodId;

/// A read that is this old is repeated.
const REREAD_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// The same for the selected row of a list, which many dashboards show all day.
const REREAD_ROW_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// How often there is a read at most, however fast budgets and pods change.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(crate) struct FirstCauses {
    /// The node that they are about.
    node: String,
    wanted: FactsToRead,
    requested: Option<Timestamp>,
    /// Whether pods have changed since then on which the causes depend.
    is_outdated: bool,
    /// What was read; none before that.
    facts: Option<Box<ClusterFacts>>,
    /// When the first grace period of the pods that were read ends. What was read is out of date then.
    deadline: Option<Timestamp>,
    causes: Vec<Cause>,
    /// The causes of the pods that are shown, about each of these alone, of those that are blocked together with others.
    alone: BTreeMap<PodReference, Cause>,
}

impl FirstCauses {
    /// Those of a node, before anything is read.
    pub(crate) fn about(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// The node that they are about; empty before there is one.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The same, if they are about this node.
    pub(crate) fn of_node(&self, node: &str) -> Option<&Self> {
        Some(self).filter(|causes| causes.node == node)
    }

    /// Turns to a node, and drops what was read of another one. Returns whether they were about this node before.
    pub(crate) fn turn_to(&mut self, node: &str) -> bool {
        let is_same = self.node == node;
        if !is_same {
            *self = Self::about(node);
        }
        is_same
    }

    /// What has to be read now, if anything: what has not been read yet, or what was read a while ago. In a list, only blocked pods
    /// are explained: to find those that terminate, all pods of their node are read.
    pub(crate) fn begin(
        &mut self,
        maintenance: Option<&NodeMaintenance>,
        is_open: bool,
        now: Timestamp,
    ) -> Option<FactsToRead> {
        let age = self.requested.map_or(SignedDuration::MAX, |requested| now.duration_since(requested));
        if age < MIN_INTERVAL {
            return None;
        }
        let mut wanted = FactsToRead::of(maintenance);
        if !is_open {
            wanted.nodes.clear();
        }
        if wanted.is_empty() {
            *self = Self { node: std::mem::take(&mut self.node), ..Self::default() };
            return None;
        }
        let is_over = self.deadline.is_some_and(|deadline| deadline <= now);
        let reread_after = if is_open { REREAD_AFTER } else { REREAD_ROW_AFTER };
        if wanted == self.wanted && age < reread_after && !is_over && !self.is_outdated {
            return None;
        }
        self.is_outdated = false;
        // Until the answer arrives, no other deadline is known: a read that takes long is not begun again and again.
        (self.requested, self.deadline, self.wanted) = (Some(now), None, wanted.clone());
        Some(wanted)
    }

    /// Notes that a pod that may be behind a cause was created, has changed, or is gone.
    pub(crate) fn outdate(&mut self) {
        self.is_outdated = true;
    }

    pub(crate) fn set(&mut self, facts: Box<ClusterFacts>, now: Timestamp) {
        let budgets = facts.budgets.values().filter_map(|guarded| guarded.pods.as_ref().ok());
        let nodes = facts.terminating.values().filter_map(|pods| pods.as_ref().ok());
        let deadline = |pod: &Pod| pod.metadata.deletion_timestamp.as_ref().map(|at| at.0);
        let deadlines = budgets.chain(nodes).flatten().filter_map(deadline);
        self.deadline = deadlines.filter(|deadline| *deadline > now).min();
        self.facts = Some(facts);
    }

    /// Whether the causes name times that pass, such as that of a grace period that is left.
    pub(crate) fn has_times(&self) -> bool {
        self.deadline.is_some()
    }

    /// Words the causes anew.
    pub(crate) fn word(
        &mut self,
        maintenance: Option<&NodeMaintenance>,
        leadership: Leadership,
        kubectl: &str,
        now: Timestamp,
    ) {
        let (Some(maintenance), Some(facts)) = (maintenance, &self.facts) else { return };
        let reconcilers = Reconcilers { leadership, ..Reconcilers::default() };
        self.alone.clear();
        self.causes = explanation::all_causes(maintenance, &reconcilers, facts, kubectl, now);
    }

    /// Words the causes of these pods about each of them alone.
    pub(crate) fn word_alone(
        &mut self,
        pods: &[PodReference],
        maintenance: Option<&NodeMaintenance>,
        leadership: Leadership,
        kubectl: &str,
        now: Timestamp,
    ) {
        self.alone.retain(|pod, _| pods.contains(pod));
        let (Some(maintenance), Some(facts)) = (maintenance, &self.facts) else { return };
        let reconcilers = Reconcilers { leadership, ..Reconcilers::default() };
        for pod in pods {
            let is_shared = || self.among_all(pod).is_some_and(|cause| cause.pods.len() > 1);
            if !self.alone.contains_key(pod) && is_shared() {
                let cause = explanation::of_pod(pod, maintenance, &reconcilers, facts, kubectl, now);
                self.alone.extend(cause.map(|cause| (pod.clone(), cause)));
            }
        }
    }

    /// The causes of the node, those that `explain` prints first before others; none before they are read.
    pub(crate) fn all(&self) -> &[Cause] {
        &self.causes
    }

    /// The cause of a pod, if it has been read.
    pub(crate) fn of(&self, pod: &PodId) -> Option<&Cause> {
        let pod = pod.reference();
        self.alone.get(&pod).or_else(|| self.among_all(&pod))
    }

    /// Whether no node is left for a replacement of the pod, as far as that has been read.
    pub(crate) fn lacks_node(&self, pod: &PodReference) -> bool {
        self.facts.as_ref().is_some_and(|facts| lacks_node(pod, facts))
    }

    fn among_all(&self, pod: &PodReference) -> Option<&Cause> {
        self.causes.iter().find(|cause| cause.keeps(pod))
    }
}

#[cfg(test)]
mod tests {
    use nm_core::testing::objects::{running, with_status};

    use super::*;

    #[test]
    fn a_cause_is_read_once_and_again_after_a_while() {
        let numbers = "The disruption budget cart needs 3 healthy pods and has 3 currently";
        let object = |numbers: &str| with_status("n1", running(40, &[("cart-0", numbers)]));
        let (cart, web) = (object(numbers), object(&numbers.replace("cart", "web")));
        let mut causes = FirstCauses::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut read =
            |object: Option<&NodeMaintenance>, second| causes.begin(object, true, at(second)).is_some();
        assert!(read(Some(&cart), 100), "nothing has been read");
        assert!(!read(Some(&cart), 129));
        assert!(read(Some(&cart), 130), "it is old");
        assert!(!read(Some(&web), 134), "one read in five seconds");
        assert!(read(Some(&web), 135), "another budget");
        assert!(!read(None, 200), "it is not in maintenance any more");
        assert!(read(Some(&web), 201));
    }

    #[test]
    fn a_read_that_takes_long_is_not_begun_again_because_a_grace_period_has_ended() {
        let numbers = "The disruption budget cart needs 3 healthy pods and has 3 currently";
        let object = with_status("n1", running(40, &[("cart-0", numbers)]));
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut causes = FirstCauses { deadline: Some(at(110)), ..FirstCauses::default() };
        let reads: Vec<i64> =
            (100..140).filter(|second| causes.begin(Some(&object), true, at(*second)).is_some()).collect();
        assert_eq!(reads, [100, 130]);
        causes.deadline = Some(at(136));
        assert!(
            causes.begin(Some(&object), true, at(136)).is_some()
                && causes.begin(Some(&object), true, at(142)).is_none()
        );
    }
}
