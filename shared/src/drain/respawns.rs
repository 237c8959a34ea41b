//! Pods that come back to the node however often they are moved: their owner's new pods tolerate the taints of a node in
//! maintenance, or are placed past the scheduler. After the third return they are left alone and reported.
//!
//! The count is a cache that begins anew with the process; that a pod was given up is in the status, and stays.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Toleration};

use crate::api::names::{NO_SCHEDULE, UNSCHEDULABLE_TAINT};
use crate::cluster::pod;

/// A pod that has come back this often is not moved again.
const PATIENCE: usize = 3;

/// The pods seen on one node, by the uid of their owner.
#[derive(Debug, Default)]
pub struct RespawnCounter {
    looked: bool,
    owners: HashMap<String, OwnerRespawns>,
}

/// What was seen of one owner.
#[derive(Debug, Default)]
struct OwnerRespawns {
    pods: HashSet<String>,
    returned: usize,
    /// The most that were there at once: several replicas come back several at a time.
    most: usize,
}

impl RespawnCounter {
    /// Looks at the pods on the node, and returns the uids of those that are not to be moved again.
    pub fn note(&mut self, pods: &[Arc<Pod>]) -> HashSet<String> {
        let mut present: HashMap<&str, Vec<&Pod>> = HashMap::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            if let Some(owner) = pod::controller(pod) {
                present.entry(owner.uid.as_str()).or_default().push(pod);
            }
        }
        let mut given_up = HashSet::new();
        for (owner, pods) in present {
            let seen = self.owners.entry(owner.to_owned()).or_default();
            seen.most = seen.most.max(pods.len());
            for pod in &pods {
                let is_new = seen.pods.insert(pod::uid(pod).to_owned());
                seen.returned += usize::from(is_new && self.looked);
            }
            if seen.returned > (PATIENCE - 1) * seen.most {
                given_up.extend(pods.iter().map(|pod| pod::uid(pod).to_owned()));
            }
        }
        self.looked = true;
        given_up
    }
}

/// Why the pod comes back to a node with this taint beside that of a cordon, for a person.
pub fn why(pod: &Pod, drain_taint: &str) -> String {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let cause =
        if tolerations.iter().any(|toleration| is_boundless(toleration) && tolerates_effect(toleration)) {
            "it tolerates every taint (a toleration with operator Exists and no key)".to_owned()
        } else if [drain_taint, UNSCHEDULABLE_TAINT].iter().all(|taint| is_tolerated(tolerations, taint)) {
            format!("it tolerates the taints {drain_taint} and {UNSCHEDULABLE_TAINT}")
        } else {
            "its owner puts it on this node past the scheduler".to_owned()
        };
    format!("came back {PATIENCE} times and is not moved again: {cause}")
}

fn is_tolerated(tolerations: &[Toleration], taint: &str) -> bool {
    // The taints of a maintenance have no value.
    let matches = |toleration: &Toleration| {
        toleration.key.as_deref() == Some(taint)
            && (exists(toleration) || toleration.value.as_deref().unwrap_or_default().is_empty())
    };
    tolerations.iter().any(|toleration| matches(toleration) && tolerates_effect(toleration))
}

fn is_boundless(toleration: &Toleration) -> bool {
    toleration.key.as_deref().unwrap_or_default().is_empty() && exists(toleration)
}

fn exists(toleration: &Toleration) -> bool {
    toleration.operator.as_deref() == Some("Exists")
}

fn tolerates_effect(toleration: &Toleration) -> bool {
    matches!(toleration.effect.as_deref(), None | Some("" | NO_SCHEDULE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT};
    use serde_json::{Value, json};

    fn pod(uid: &str, owner: &str) -> Arc<Pod> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"uid": uid, "ownerReferences": [owner]}})).unwrap(),
        )
    }

    #[test]
    fn the_third_return_of_an_owners_pod_is_the_last() {
        let mut returns = RespawnCounter::default();
        assert!(returns.note(&[pod("a0", "a"), pod("b0", "b")]).is_empty());
        for uid in ["a1", "a2"] {
            assert!(returns.note(&[pod(uid, "a")]).is_empty(), "{uid}");
            assert!(returns.note(&[pod(uid, "a")]).is_empty(), "{uid} is one pod");
            assert!(returns.note(&[]).is_empty());
        }
        assert_eq!(returns.note(&[pod("a3", "a"), pod("b1", "b")]), ["a3".to_owned()].into());
    }

    #[test]
    fn replicas_come_back_together() {
        let mut returns = RespawnCounter::default();
        let round = |n: usize| -> Vec<Arc<Pod>> { (0..4).map(|i| pod(&format!("{n}-{i}"), "a")).collect() };
        for n in 0..3 {
            assert!(returns.note(&round(n)).is_empty(), "{n}");
        }
        assert_eq!(returns.note(&round(3)).len(), 4);
    }

    #[test]
    fn pods_that_are_ending_or_have_no_owner_do_not_come_back() {
        let mut returns = RespawnCounter::default();
        returns.note(&[]);
        for n in 0..10 {
            let ending = json!({"metadata": {"uid": n.to_string(), "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]}});
            let alone = json!({"metadata": {"uid": format!("alone-{n}")}});
            let pods = [ending, alone].map(|pod| Arc::new(serde_json::from_value(pod).unwrap()));
            assert!(returns.note(&pods).is_empty());
        }
    }

    #[test]
    fn the_reason_is_the_toleration_or_that_there_is_none() {
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
        check(json!([{"operator": "Exists"}]), "tolerates every taint");
        check(json!([{"operator": "Exists", "effect": "NoExecute"}]), "past the scheduler");
        check(both(json!("Exists")), "tolerates the taints");
        check(both(json!("Equal")), "tolerates the taints");
        check(json!([{"key": DRAIN_TAINT, "operator": "Exists"}]), "past the scheduler");
        check(json!([]), "past the scheduler");
        let pod =
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": both(json!("Exists"))}}));
        assert!(
            why(&pod.unwrap(), KUBEVIRT_DRAIN_TAINT).contains("past the scheduler"),
            "the node has another"
        );
    }
}
