//! Which pod replaces which.
//!
//! Kubernetes does not record this. A pod of a StatefulSet keeps its name. Other pods are paired in the order of time: the
//! first that left with the oldest new pod of the same controller, or of another ReplicaSet of the same Deployment, since
//! a surge begins a new one.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::explain::owner::{Owner, OwnerKind};

use crate::objects::node_pod::PodId;
use crate::objects::replacement_pod::{Replica, ReplicaState};

/// A pod of a workload that leaves the node, or has left it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeavingPod<'a> {
    pub(crate) id: &'a PodId,
    /// Since when it leaves; none while nothing makes it leave.
    pub(crate) leaves_since: Option<Timestamp>,
}

/// The replacement of each of these pods of one workload, if there is one. `elsewhere` are the pods of workloads of that
/// name on other nodes, in any order; those from before `since`, when the drain started, replace nothing.
pub(crate) fn replacements<'a>(
    leaving: &[LeavingPod<'_>],
    elsewhere: impl IntoIterator<Item = &'a Arc<Replica>>,
    since: Timestamp,
) -> Vec<Option<&'a Arc<Replica>>> {
    let is_candidate = |replica: &&Arc<Replica>| {
        replica.created >= since
            && matches!(replica.state, ReplicaState::Ready | ReplicaState::Waiting(_))
            && leaving.iter().any(|pod| replaces(replica, pod.id))
    };
    let mut candidates: Vec<&Arc<Replica>> = elsewhere.into_iter().filter(is_candidate).collect();
    candidates.sort_by(|one, other| (one.created, &one.id.name).cmp(&(other.created, &other.id.name)));
    let mut order: Vec<usize> = (0..leaving.len()).filter(|at| leaving[*at].leaves_since.is_some()).collect();
    order.sort_by_key(|at| (leaving[*at].leaves_since, &leaving[*at].id.name));
    let mut found = vec![None; leaving.len()];
    let mut taken: HashSet<&str> = HashSet::new();
    for at in order {
        let replacement = candidates
            .iter()
            .find(|replica| replaces(replica, leaving[at].id) && !taken.contains(replica.id.key.as_str()));
        if let Some(replica) = replacement {
            taken.insert(&replica.id.key);
            found[at] = Some(*replica);
        }
    }
    found
}

/// Whether the new pod can be the replacement of the other one.
fn replaces(replica: &Replica, pod: &PodId) -> bool {
    let new = &replica.id;
    if new.key == pod.key || new.namespace != pod.namespace || new.owner != pod.owner {
        return false;
    }
    match pod.owner.as_ref().map(Owner::kind) {
        Some(OwnerKind::StatefulSet) => new.controller == pod.controller && new.name == pod.name,
        Some(OwnerKind::Deployment) => true,
        _ => new.controller == pod.controller && !pod.controller.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::replacement_pod::WaitsFor;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// `NAME OWNER CONTROLLER`, as in `cart-0 sts/cart s`.
    fn id(text: &str, uid: &str) -> PodId {
        let [name, owner, controller] =
            text.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        let owner = Owner::recorded(&owner);
        PodId { key: uid.to_owned(), namespace: "shop".into(), name, owner, controller }
    }

    const BEGIN: i64 = 100;

    /// Pods with the second since which they leave, and pods elsewhere with the second of their creation.
    #[track_caller]
    fn check(
        leaving: &[(&str, Option<i64>)],
        elsewhere: &[(&str, i64, ReplicaState)],
        expected: &[Option<usize>],
    ) {
        let ids: Vec<PodId> = leaving
            .iter()
            .enumerate()
            .map(|(number, (text, _))| id(text, &format!("old-{number}")))
            .collect();
        let leaving: Vec<LeavingPod<'_>> = leaving
            .iter()
            .zip(&ids)
            .map(|((_, since), id)| LeavingPod { id, leaves_since: since.map(at) })
            .collect();
        let elsewhere: Vec<Arc<Replica>> = elsewhere
            .iter()
            .enumerate()
            .map(|(number, (text, created, state))| {
                let id = Arc::new(id(text, &format!("new-{number}")));
                Arc::new(Replica { id, created: at(*created), node: "n2".into(), state: state.clone() })
            })
            .collect();
        let found = replacements(&leaving, &elsewhere, at(BEGIN));
        let index =
            |replica: &Arc<Replica>| elsewhere.iter().position(|other| other.id.key == replica.id.key);
        let found: Vec<Option<usize>> = found.into_iter().map(|found| found.and_then(index)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn pods_are_paired_with_new_pods_of_their_controller_in_order_of_time() {
        let (ready, waiting) = (ReplicaState::Ready, ReplicaState::Waiting(WaitsFor::Start));
        let (a, b) = ("a rs/x r", "b rs/x r");
        check(
            &[(a, Some(120)), (b, Some(110))],
            &[(a, 121, ready.clone()), (b, 111, waiting.clone())],
            &[Some(0), Some(1)],
        );
        check(&[(a, Some(120)), (b, Some(110))], &[(a, 111, ready.clone())], &[None, Some(0)]);
        // Nothing makes this one leave.
        check(
            &[(a, None), (b, Some(110))],
            &[(a, 105, ready.clone()), (b, 111, ready.clone())],
            &[None, Some(0)],
        );
        // From before the drain; ending; finished; of another controller; another workload.
        check(&[(a, Some(110))], &[("c rs/x r", BEGIN - 1, ready.clone())], &[None]);
        check(&[(a, Some(110))], &[("c rs/x r", BEGIN, ready.clone())], &[Some(0)]);
        check(&[(a, Some(110))], &[("c rs/x r", 111, ReplicaState::Terminating)], &[None]);
        check(&[(a, Some(110))], &[("c rs/x r", 111, ReplicaState::Finished)], &[None]);
        check(&[(a, Some(110))], &[("c rs/x other", 111, ready.clone())], &[None]);
        check(&[(a, Some(110))], &[("c rs/y r", 111, ready.clone())], &[None]);
        // A second replacement, because the first failed.
        check(
            &[(a, Some(110))],
            &[("c rs/x r", 111, ReplicaState::Finished), ("d rs/x r", 130, waiting)],
            &[Some(1)],
        );
        check(&[("bare  ", Some(110))], &[("c  ", 111, ready)], &[None]);
    }

    #[test]
    fn a_pod_of_a_stateful_set_keeps_its_name() {
        let ready = ReplicaState::Ready;
        let (zero, one) = (("cart-0 sts/cart s", Some(110)), ("cart-1 sts/cart s", Some(105)));
        check(&[zero, one], &[("cart-0 sts/cart s", 111, ready.clone())], &[Some(0), None]);
        check(&[zero], &[("cart-0 sts/cart another", 111, ready)], &[None]);
    }

    #[test]
    fn a_surge_replaces_pods_by_those_of_another_replica_set() {
        let ready = ReplicaState::Ready;
        let old = [("front-1-a deploy/front rs1", Some(110)), ("front-1-b deploy/front rs1", Some(112))];
        let new =
            [("front-2-c deploy/front rs2", 111, ready.clone()), ("front-2-d deploy/front rs2", 113, ready)];
        check(&old, &new, &[Some(0), Some(1)]);
    }

    #[test]
    fn a_replacement_is_paired_once() {
        let ready = ReplicaState::Ready;
        let pods: Vec<String> = (0..4).map(|number| format!("p{number} deploy/x r")).collect();
        let leaving: Vec<(&str, Option<i64>)> = pods.iter().map(|pod| (pod.as_str(), Some(110))).collect();
        check(&leaving, &[("n deploy/x r", 111, ready)], &[Some(0), None, None, None]);
    }
}
