//! Returning pods: those that their owner recreates on the same node after an eviction, because they tolerate the taints of a node
//! in maintenance or bypass the scheduler.
//!
//! A pod that tolerates the cordon and was put back has *returned*: evicting it again would only repeat that, so it may stay
//! (`spec.drain.returningPods`). Any other pod is evicted again, and blocked after the third return.
//!
//! The count is lost when the process ends. Which pods have returned or are blocked is in the status.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::api::names::UNSCHEDULABLE_TAINT;
use crate::cluster::metadata;
use crate::cluster::node_fit;
use crate::cluster::pod::{self, DrainPod};

/// Another process may have evicted the pods that were replaced this long before.
const TAKEOVER: SignedDuration = SignedDuration::from_secs(60);

/// If the pods of an owner have returned for this time on average, none of them is evicted again.
const MAX_RETURNS: u32 = 3;

/// The pods on a cordoned node that have returned, by uid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Returning {
    /// Pods whose owner had another pod on the node before.
    pub returned: HashSet<String>,
    /// Those of them whose owner had none there when the node was cordoned.
    pub came_later: HashSet<String>,
    /// All pods of owners whose pods have returned so often that they are not evicted again.
    pub exhausted: HashSet<String>,
}

/// Counts the returns on one node. Hashes of uids take a tenth of the memory of the uids.
#[derive(Debug, Default)]
pub struct ReturnCounter {
    has_baseline: bool,
    /// Whether the node accepted pods until now, after its first cordon.
    starts_anew: bool,
    hasher: RandomState,
    pods: HashSet<u64>,
    /// The pods that have returned.
    returned: HashSet<u64>,
    owners: HashMap<u64, OwnerReturns>,
}

/// How often the pods of one owner have returned.
#[derive(Debug, Default)]
struct OwnerReturns {
    /// Whether pods of it were on the node when the node was cordoned, as far as that is known.
    was_there: bool,
    returns: u32,
    /// The largest number of its pods at one time: several replicas return together.
    most: u32,
}

impl ReturnCounter {
    /// Of a node that is cordoned again: pods that came meanwhile came to a node that accepted pods.
    pub fn anew() -> Self {
        Self { starts_anew: true, ..Self::default() }
    }

    /// Counts the pods on the node, and returns those that have returned. A counter that begins after the node was `cordoned`, because
    /// another process has worked on it, takes those for returned that have just been created: the other one may have evicted what
    /// they replace. Whether they replace pods of this node is not known.
    pub fn count(
        &mut self,
        pods: &[Arc<DrainPod>],
        cordoned: Option<Timestamp>,
        now: Timestamp,
    ) -> Returning {
        let begins = !self.has_baseline;
        let late_from = cordoned.filter(|_| begins && !self.starts_anew);
        let late_from = late_from.map(|cordoned| cordoned.max(now - TAKEOVER));
        let is_late =
            |pod: &DrainPod| pod.created.zip(late_from).is_some_and(|(created, from)| created > from);
        let mut present: HashMap<&str, Vec<&DrainPod>> = HashMap::new();
        for pod in pods.iter().filter(|pod| pod.deletion.is_none()) {
            if let Some(owner) = pod::controller(pod) {
                present.entry(owner.uid.as_str()).or_default().push(pod);
            }
        }
        let mut returning = Returning::default();
        for (owner, pods) in present {
            let owner = self.hasher.hash_one(owner);
            let is_known = self.owners.contains_key(&owner);
            let seen = self.owners.entry(owner).or_default();
            seen.was_there |= begins && !pods.iter().all(|pod| is_late(pod));
            seen.most = seen.most.max(u32::try_from(pods.len()).unwrap_or(u32::MAX));
            for pod in &pods {
                let uid = self.hasher.hash_one(pod::uid(pod));
                let is_new = self.pods.insert(uid) && !begins;
                seen.returns += u32::from(is_new);
                if (is_new && is_known) || is_late(pod) {
                    self.returned.insert(uid);
                }
                if self.returned.contains(&uid) {
                    returning.returned.insert(pod::uid(pod).to_owned());
                    if !seen.was_there {
                        returning.came_later.insert(pod::uid(pod).to_owned());
                    }
                }
            }
            if seen.returns > (MAX_RETURNS - 1) * seen.most {
                returning.exhausted.extend(pods.iter().map(|pod| pod::uid(pod).to_owned()));
            }
        }
        self.has_baseline = true;
        returning
    }
}

/// Whether a pod tolerates the taints of a node in maintenance, of which `drain_taint` is one. The scheduler may then put
/// a pod that replaces it on the node, if nothing else forbids that.
pub fn tolerates_cordon(pod: &DrainPod, drain_taint: &str) -> bool {
    [drain_taint, UNSCHEDULABLE_TAINT]
        .iter()
        .all(|taint| node_fit::tolerates(&pod.tolerations, &node_fit::taint(taint)))
}

/// Whether the template of the pod's owner assigns it to its node, so that its replacement is on the same node.
///
/// The scheduler assigns a pod to a node by a binding, which no entry of `managedFields` has. So an entry that has `nodeName` is of
/// the request that created the pod. Controllers other than those of Kubernetes may choose another node for the replacement.
pub fn is_assigned_by_template(pod: &Pod) -> bool {
    let owner = metadata::controller(pod.metadata.owner_references.as_deref().unwrap_or_default());
    let has_template = owner.is_some_and(|owner| {
        let kinds = [
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("batch", "Job"),
            ("", "ReplicationController"),
        ];
        kinds.iter().any(|(group, kind)| metadata::is_of(owner, group, kind))
    });
    let mut managed = pod.metadata.managed_fields.iter().flatten();
    has_template
        && managed.any(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:nodeName").is_some())
        })
}

/// What of a pod's template puts its replacement on a node in maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnCause {
    /// It tolerates every taint.
    ToleratesEverything,
    /// It tolerates the taints of a node in maintenance.
    ToleratesCordon,
    /// Its owner assigns it to the node, such as with `nodeName`.
    Assigned,
}

impl ReturnCause {
    /// That of a pod that has returned to a node with this taint and the taint of a cordon.
    pub fn of(pod: &DrainPod, drain_taint: &str) -> Self {
        // Only a toleration without a key tolerates a taint without one.
        if node_fit::tolerates(&pod.tolerations, &node_fit::taint("")) {
            Self::ToleratesEverything
        } else if tolerates_cordon(pod, drain_taint) {
            Self::ToleratesCordon
        } else {
            Self::Assigned
        }
    }

    /// Why pods return: `their owner assigns them to this node, bypassing the scheduler`.
    fn words(self, drain_taint: &str) -> String {
        match self {
            Self::ToleratesEverything => {
                "they tolerate every taint (a toleration with operator Exists and no key)".to_owned()
            }
            Self::ToleratesCordon => {
                format!("they tolerate the taints {drain_taint} and {UNSCHEDULABLE_TAINT}")
            }
            Self::Assigned => "their owner assigns them to this node, bypassing the scheduler".to_owned(),
        }
    }
}

/// Why the pod, whose owner's pods have returned to a node with this taint and the taint of a cordon, is not evicted. It may have been
/// there since before the drain: returns are counted for all pods of an owner together.
pub fn why(pod: &DrainPod, drain_taint: &str) -> String {
    let cause = ReturnCause::of(pod, drain_taint).words(drain_taint);
    format!(
        "pods of its owner have returned to the node at least {MAX_RETURNS} times and are not evicted again: {cause}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT};
    use serde_json::{Value, json};

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn now() -> Timestamp {
        at("2026-01-01T00:00:20Z")
    }

    fn pod(uid: &str, owner: &str) -> Arc<DrainPod> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"uid": uid, "ownerReferences": [owner]}})).unwrap(),
        )
    }

    #[test]
    fn a_pod_is_blocked_after_its_third_return() {
        let mut returns = ReturnCounter::default();
        let exhausted =
            |returns: &mut ReturnCounter, pods: &[Arc<DrainPod>]| returns.count(pods, None, now()).exhausted;
        assert!(exhausted(&mut returns, &[pod("a0", "a"), pod("b0", "b")]).is_empty());
        for uid in ["a1", "a2"] {
            assert!(exhausted(&mut returns, &[pod(uid, "a")]).is_empty(), "{uid}");
            assert!(exhausted(&mut returns, &[pod(uid, "a")]).is_empty(), "{uid} is one pod");
            assert!(exhausted(&mut returns, &[]).is_empty());
        }
        assert_eq!(exhausted(&mut returns, &[pod("a3", "a"), pod("b1", "b")]), ["a3".to_owned()].into());
    }

    #[test]
    fn a_pod_has_returned_if_its_owner_had_another_on_the_cordoned_node_and_stays_so() {
        let mut returns = ReturnCounter::default();
        let mut returned = |pods: &[Arc<DrainPod>]| {
            let mut found: Vec<String> = returns.count(pods, None, now()).returned.into_iter().collect();
            found.sort();
            found
        };
        assert!(returned(&[pod("a0", "a"), pod("a1", "a")]).is_empty(), "these were there before");
        assert_eq!(returned(&[pod("a1", "a"), pod("a2", "a")]), ["a2"], "a1 has not been evicted yet");
        assert!(returned(&[pod("b0", "b"), pod("b1", "b")]).is_empty(), "the first of this owner");
        assert_eq!(returned(&[pod("a2", "a"), pod("a3", "a"), pod("b2", "b")]), ["a2", "a3", "b2"]);
        assert_eq!(
            returns.count(&[pod("a3", "a"), pod("b2", "b")], None, now()).came_later,
            ["b2".to_owned()].into()
        );
    }

    #[test]
    fn a_process_that_takes_over_takes_pods_that_came_after_the_cordon_for_returned() {
        let created = |uid: &str, at: &str| {
            let mut pod = DrainPod::clone(&pod(uid, "a"));
            pod.created = Some(at.parse().unwrap());
            Arc::new(pod)
        };
        let pods = [created("old", "2026-01-01T00:00:00Z"), created("late", "2026-01-01T00:00:09Z")];
        let cordoned = Some(at("2026-01-01T00:00:05Z"));
        let count = |pods, cordoned, now| ReturnCounter::default().count(pods, cordoned, now);
        let found = count(&pods, cordoned, now());
        assert_eq!((found.returned, found.came_later), (["late".to_owned()].into(), [].into()));
        let alone = count(&pods[1..], cordoned, now());
        assert_eq!(alone.came_later, ["late".to_owned()].into(), "perhaps in place of a pod of another node");
        assert_eq!(count(&pods, None, now()), Returning::default(), "the drain begins");
        let later = count(&pods, cordoned, at("2026-01-01T00:02:00Z"));
        assert_eq!(later, Returning::default(), "it was not created just now");
        let again = ReturnCounter::anew().count(&pods, cordoned, now());
        assert_eq!(again, Returning::default(), "the node accepted pods meanwhile");
    }

    #[test]
    fn replicas_return_together() {
        let mut returns = ReturnCounter::default();
        let round =
            |n: usize| -> Vec<Arc<DrainPod>> { (0..4).map(|i| pod(&format!("{n}-{i}"), "a")).collect() };
        for n in 0..3 {
            assert!(returns.count(&round(n), None, now()).exhausted.is_empty(), "{n}");
        }
        assert_eq!(returns.count(&round(3), None, now()).exhausted.len(), 4);
    }

    #[test]
    fn a_pod_that_has_never_left_is_not_said_to_have_returned_when_the_pods_of_its_owner_have() {
        let mut returns = ReturnCounter::default();
        let stays = pod("old", "a");
        let mut round = |n: usize| {
            returns.count(&[Arc::clone(&stays), pod(&format!("new-{n}"), "a")], None, now()).exhausted
        };
        let last = (0..6).map(&mut round).find(|exhausted| !exhausted.is_empty()).unwrap();
        assert!(last.contains("old") && last.len() == 2, "{last:?}");
        let why = why(&stays, DRAIN_TAINT);
        assert!(why.starts_with("pods of its owner have returned to the node at least 3 times"), "{why}");
    }

    #[test]
    fn terminating_pods_and_pods_without_an_owner_do_not_count() {
        let mut returns = ReturnCounter::default();
        returns.count(&[], None, now());
        for n in 0..10 {
            let ending = json!({"metadata": {"uid": n.to_string(), "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]}});
            let alone = json!({"metadata": {"uid": format!("alone-{n}")}});
            let pods = [ending, alone].map(|pod| Arc::new(serde_json::from_value(pod).unwrap()));
            assert_eq!(returns.count(&pods, None, now()), Returning::default());
        }
    }

    #[test]
    fn the_reason_is_a_toleration_or_the_bypassed_scheduler() {
        let check = |tolerations: Value, part: &str| {
            let pod = serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}}))
                .unwrap();
            let why = why(&pod, DRAIN_TAINT);
            assert!(why.contains(part), "{tolerations}: {why}");
        };
        let both = |operator: Value| -> Value {
            [DRAIN_TAINT, UNSCHEDULABLE_TAINT]
                .map(|key| json!({"key": key, "operator": operator}))
                .into_iter()
                .collect()
        };
        check(json!([{"operator": "Exists"}]), "tolerate every taint");
        check(json!([{"operator": "Exists", "effect": "NoExecute"}]), "bypassing the scheduler");
        check(both(json!("Exists")), "tolerate the taints");
        check(both(json!("Equal")), "tolerate the taints");
        check(json!([{"key": DRAIN_TAINT, "operator": "Exists"}]), "bypassing the scheduler");
        check(json!([]), "bypassing the scheduler");
        let pod =
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": both(json!("Exists"))}}));
        assert!(
            why(&pod.unwrap(), KUBEVIRT_DRAIN_TAINT).contains("bypassing the scheduler"),
            "the node has another taint"
        );
    }
}
