//! Respawns: pods that their owner recreates on the same node however often they are evicted, because they tolerate the
//! taints of a node in maintenance or bypass the scheduler. After the third respawn they are blocked.
//!
//! The count is lost when the process ends. That a pod is blocked is in the status.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::api::names::UNSCHEDULABLE_TAINT;
use crate::cluster::node_fit;
use crate::cluster::pod::{self, DrainPod};

/// A pod that has respawned this often is not evicted again.
const MAX_RESPAWNS: u32 = 3;

/// Counts the respawns on one node. Hashes of uids take a tenth of the memory of the uids.
#[derive(Debug, Default)]
pub struct RespawnCounter {
    has_baseline: bool,
    hasher: RandomState,
    pods: HashSet<u64>,
    owners: HashMap<u64, OwnerRespawns>,
}

/// How often the pods of one owner have respawned.
#[derive(Debug, Default)]
struct OwnerRespawns {
    respawns: u32,
    /// The largest number of its pods at one time: several replicas respawn together.
    most: u32,
}

impl RespawnCounter {
    /// Counts the pods on the node, and returns the uids of those that are not to be evicted again.
    pub fn count(&mut self, pods: &[Arc<DrainPod>]) -> HashSet<String> {
        let mut present: HashMap<&str, Vec<&DrainPod>> = HashMap::new();
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            if let Some(owner) = pod::controller(pod) {
                present.entry(owner.uid.as_str()).or_default().push(pod);
            }
        }
        let mut blocked = HashSet::new();
        for (owner, pods) in present {
            let seen = self.owners.entry(self.hasher.hash_one(owner)).or_default();
            seen.most = seen.most.max(u32::try_from(pods.len()).unwrap_or(u32::MAX));
            for pod in &pods {
                let is_new = self.pods.insert(self.hasher.hash_one(pod::uid(pod)));
                seen.respawns += u32::from(is_new && self.has_baseline);
            }
            if seen.respawns > (MAX_RESPAWNS - 1) * seen.most {
                blocked.extend(pods.iter().map(|pod| pod::uid(pod).to_owned()));
            }
        }
        self.has_baseline = true;
        blocked
    }
}

/// Why the pod respawns on a node with this taint and that of a cordon.
pub fn why(pod: &DrainPod, drain_taint: &str) -> String {
    let tolerates = |taint: &str| node_fit::tolerates(&pod.tolerations, &node_fit::taint(taint));
    // Only a toleration without a key tolerates a taint without one.
    let cause = if tolerates("") {
        "it tolerates every taint (a toleration with operator Exists and no key)".to_owned()
    } else if tolerates(drain_taint) && tolerates(UNSCHEDULABLE_TAINT) {
        format!("it tolerates the taints {drain_taint} and {UNSCHEDULABLE_TAINT}")
    } else {
        "its owner assigns it to this node, bypassing the scheduler".to_owned()
    };
    format!("respawned {MAX_RESPAWNS} times and is not evicted again: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT};
    use serde_json::{Value, json};

    fn pod(uid: &str, owner: &str) -> Arc<DrainPod> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"uid": uid, "ownerReferences": [owner]}})).unwrap(),
        )
    }

    #[test]
    fn a_pod_is_blocked_after_its_third_respawn() {
        let mut respawns = RespawnCounter::default();
        assert!(respawns.count(&[pod("a0", "a"), pod("b0", "b")]).is_empty());
        for uid in ["a1", "a2"] {
            assert!(respawns.count(&[pod(uid, "a")]).is_empty(), "{uid}");
            assert!(respawns.count(&[pod(uid, "a")]).is_empty(), "{uid} is one pod");
            assert!(respawns.count(&[]).is_empty());
        }
        assert_eq!(respawns.count(&[pod("a3", "a"), pod("b1", "b")]), ["a3".to_owned()].into());
    }

    #[test]
    fn replicas_respawn_together() {
        let mut respawns = RespawnCounter::default();
        let round =
            |n: usize| -> Vec<Arc<DrainPod>> { (0..4).map(|i| pod(&format!("{n}-{i}"), "a")).collect() };
        for n in 0..3 {
            assert!(respawns.count(&round(n)).is_empty(), "{n}");
        }
        assert_eq!(respawns.count(&round(3)).len(), 4);
    }

    #[test]
    fn terminating_pods_and_pods_without_an_owner_do_not_count() {
        let mut respawns = RespawnCounter::default();
        respawns.count(&[]);
        for n in 0..10 {
            let ending = json!({"metadata": {"uid": n.to_string(), "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]}});
            let alone = json!({"metadata": {"uid": format!("alone-{n}")}});
            let pods = [ending, alone].map(|pod| Arc::new(serde_json::from_value(pod).unwrap()));
            assert!(respawns.count(&pods).is_empty());
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
        check(json!([{"operator": "Exists"}]), "tolerates every taint");
        check(json!([{"operator": "Exists", "effect": "NoExecute"}]), "bypassing the scheduler");
        check(both(json!("Exists")), "tolerates the taints");
        check(both(json!("Equal")), "tolerates the taints");
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
