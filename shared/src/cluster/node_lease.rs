//! The lease on a node. Node health checkers, remediators and the medik8s operators take `node-NAME` in
//! `medik8s-leases` before they change a node.
//!
//! The fields and the holder are those of the medik8s node-maintenance-operator, so that its maintenances can be taken
//! over. One rule differs: that operator ignores a lease whose `renewTime` is in the future, and so takes it from a
//! holder whose clock is slightly ahead; here it is ignored only if it is more than a minute ahead.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::api::names::{LEASE_HOLDER, LEASE_NAMESPACE};

/// The duration of the lease.
const DURATION: SignedDuration = SignedDuration::from_secs(3600);

/// The lease is renewed when this much of the duration is left.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_secs(1800);

/// The maximum by which the clock of another holder may be ahead.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// The name of a node's lease.
pub fn name(node: &str) -> String {
    format!("node-{node}")
}

/// The node of the lease with this name; none if it is not the lease of a node.
pub fn node(lease: &str) -> Option<&str> {
    lease.strip_prefix("node-")
}

/// Who has the lease on a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// We do.
    Held {
        /// When to renew.
        renew_at: Timestamp,
    },
    /// We do, once this is written.
    Take(LeaseWrite),
    /// Someone else does.
    Foreign(ForeignHolder),
}

/// Another holder of the lease on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignHolder {
    /// The identity of the holder.
    pub holder: String,
    /// When the lease expires unless it is renewed.
    pub until: Timestamp,
}

/// The write that takes or renews the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseWrite {
    /// Creates the lease.
    Create(Box<Lease>),
    /// A merge patch with the resourceVersion: if another program has changed the lease, the API server answers 409.
    Patch(Value),
}

/// Who has `node`, given its lease.
pub fn claim(lease: Option<&Lease>, node: &Node, now: Timestamp) -> Claim {
    let Some(lease) = lease else {
        return Claim::Take(LeaseWrite::Create(Box::new(new(node, now))));
    };
    let due = due(lease);
    if !is_ours(lease) {
        if let Some(until) = valid_until(lease, now) {
            return Claim::Foreign(ForeignHolder { holder: holder(lease).to_owned(), until });
        }
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let mut patch = renewal(lease, node, now);
        patch["spec"]["acquireTime"] = json!(MicroTime(now));
        patch["spec"]["leaseTransitions"] = json!(transitions.saturating_add(1));
        return Claim::Take(LeaseWrite::Patch(patch));
    }
    let owned = lease.metadata.owner_references.iter().flatten().any(|owner| owner.uid == owner_of(node).uid);
    let renew_at = due.and_then(|due| due.checked_sub(RENEWED_BEFORE).ok()).unwrap_or(now);
    if renew_at <= now || !owned {
        return Claim::Take(LeaseWrite::Patch(renewal(lease, node, now)));
    }
    Claim::Held { renew_at }
}

/// Whether the holder is node maintenance.
pub fn is_ours(lease: &Lease) -> bool {
    holder(lease) == LEASE_HOLDER
}

fn new(node: &Node, now: Timestamp) -> Lease {
    let node_name = node.metadata.name.as_deref().unwrap_or_default();
    Lease {
        metadata: ObjectMeta {
            name: Some(name(node_name)),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![owner_of(node)]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(LEASE_HOLDER.to_owned()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }),
    }
}

fn renewal(lease: &Lease, node: &Node, now: Timestamp) -> Value {
    json!({
        "metadata": {
            "resourceVersion": lease.metadata.resource_version,
            "ownerReferences": [owner_of(node)],
        },
        "spec": {
            "holderIdentity": LEASE_HOLDER,
            "leaseDurationSeconds": DURATION.as_secs(),
            "renewTime": MicroTime(now),
        },
    })
}

/// The lease is deleted with its owner, the node.
fn owner_of(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// When the lease expires; none if it has expired or is invalid.
fn valid_until(lease: &Lease, now: Timestamp) -> Option<Timestamp> {
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let until = due(lease)?;
    let from_the_future = renewed.duration_since(now) > CLOCK_SKEW;
    (!holder(lease).is_empty() && until > now && !from_the_future).then_some(until)
}

fn due(lease: &Lease) -> Option<Timestamp> {
    let spec = lease.spec.as_ref()?;
    let duration = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
    spec.renew_time.as_ref()?.0.checked_add(duration).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-uid"}})).unwrap()
    }

    fn lease(holder: Option<&str>, renewed: i64, seconds: i32) -> Lease {
        let mut lease = new(&node(), at(renewed));
        lease.metadata.resource_version = Some("7".to_owned());
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = holder.map(str::to_owned);
        spec.lease_duration_seconds = Some(seconds);
        spec.lease_transitions = Some(4);
        lease
    }

    fn taken(claim: Claim) -> LeaseWrite {
        let Claim::Take(write) = claim else { panic!("{claim:?}") };
        write
    }

    #[test]
    fn a_missing_lease_is_created_as_the_medik8s_operators_create_it() {
        let LeaseWrite::Create(lease) = taken(claim(None, &node(), at(0))) else { panic!("not created") };
        let written = serde_json::to_value(lease).unwrap();
        assert_eq!(
            written,
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "node-n1", "namespace": "medik8s-leases",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}],
                },
                "spec": {
                    "holderIdentity": "node-maintenance", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
                    "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            })
        );
    }

    #[test]
    fn our_lease_is_renewed_after_half_of_its_duration() {
        let ours = lease(Some(LEASE_HOLDER), 0, 3600);
        assert_eq!(claim(Some(&ours), &node(), at(1799)), Claim::Held { renew_at: at(1800) });
        let LeaseWrite::Patch(patch) = taken(claim(Some(&ours), &node(), at(1800))) else {
            panic!("created")
        };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["renewTime"], "2026-01-01T00:30:00.000000Z");
        assert!(patch["spec"]["leaseTransitions"].is_null(), "the holder stays");
        let short = lease(Some(LEASE_HOLDER), 0, 600);
        assert!(matches!(claim(Some(&short), &node(), at(0)), Claim::Take(_)), "of another duration");
        let mut orphan = ours;
        orphan.metadata.owner_references = None;
        assert!(matches!(claim(Some(&orphan), &node(), at(0)), Claim::Take(_)), "without its owner");
    }

    #[test]
    fn the_lease_of_another_holder_is_respected_until_it_expires() {
        let foreign = lease(Some("nhc"), 0, 600);
        let held = Claim::Foreign(ForeignHolder { holder: "nhc".to_owned(), until: at(600) });
        for second in [-60, 0, 599] {
            assert_eq!(claim(Some(&foreign), &node(), at(second)), held, "{second}");
        }
        let LeaseWrite::Patch(patch) = taken(claim(Some(&foreign), &node(), at(600))) else {
            panic!("created")
        };
        assert_eq!(
            (&patch["spec"]["holderIdentity"], &patch["spec"]["leaseTransitions"]),
            (&json!(LEASE_HOLDER), &json!(5))
        );
        assert_eq!(patch["spec"]["acquireTime"], patch["spec"]["renewTime"]);
        assert!(matches!(claim(Some(&foreign), &node(), at(-61)), Claim::Take(_)), "from the future");
    }

    #[test]
    fn an_incomplete_lease_is_ignored() {
        let mut nobody = lease(None, 0, 600);
        assert!(matches!(claim(Some(&nobody), &node(), at(0)), Claim::Take(_)));
        nobody.spec = None;
        assert!(matches!(claim(Some(&nobody), &node(), at(0)), Claim::Take(_)));
        let mut endless = lease(Some("nhc"), 0, 600);
        endless.spec.as_mut().unwrap().lease_duration_seconds = None;
        assert!(matches!(claim(Some(&endless), &node(), at(0)), Claim::Take(_)));
    }
}
