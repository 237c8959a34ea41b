//! The lease of the leading reconciler.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::{Value, json};

/// The name of the lease, in the reconciler's namespace.
pub const NAME: &str = "nm-reconciler";

/// Who leads, by the lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LeaderLeaseState {
    /// Nobody: the lease was released, or there is none.
    #[default]
    Released,
    /// Nobody: the last leader has not renewed it in time.
    Expired,
    /// A leader.
    Held {
        /// The identity of the leader.
        by: String,
        /// When it last renewed the lease, by its clock.
        renewed: Timestamp,
        /// When the lease expires unless it is renewed.
        until: Timestamp,
    },
}

/// A leader and its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The namespace of the lease.
    pub namespace: String,
    /// The identity of the leader.
    pub holder: String,
    /// When the lease expires unless it is renewed.
    pub until: Timestamp,
}

/// The leader by one of these leases, if it is the lease of a reconciler.
pub fn leader(leases: &[Lease], now: Timestamp) -> Option<Leader> {
    let ours = leases.iter().filter(|lease| lease.metadata.name.as_deref() == Some(NAME));
    ours.into_iter().find_map(|lease| match state(Some(lease), now) {
        LeaderLeaseState::Held { by, until, .. } => {
            let namespace = lease.metadata.namespace.clone().unwrap_or_default();
            Some(Leader { namespace, holder: by, until })
        }
        LeaderLeaseState::Released | LeaderLeaseState::Expired => None,
    })
}

/// The state of the lease.
pub fn state(lease: Option<&Lease>, now: Timestamp) -> LeaderLeaseState {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return LeaderLeaseState::Released };
    let Some(by) = spec.holder_identity.clone() else { return LeaderLeaseState::Released };
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return LeaderLeaseState::Expired;
    };
    let until = renewed.0.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MAX);
    if by.is_empty() || until <= now {
        return LeaderLeaseState::Expired;
    }
    LeaderLeaseState::Held { by, renewed: renewed.0, until }
}

/// The merge patch with which a replica takes a vacant lease. It has the resourceVersion: if the lease has changed since, the
/// API server answers 409, so that one replica only is the leader.
pub fn take_patch(vacant: &Lease, identity: &str, seconds: u64, now: Timestamp) -> Value {
    let transitions = vacant.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    json!({
        "metadata": {"resourceVersion": vacant.metadata.resource_version},
        "spec": {
            "holderIdentity": identity,
            "acquireTime": MicroTime(now),
            "renewTime": MicroTime(now),
            "leaseDurationSeconds": seconds,
            "leaseTransitions": transitions.saturating_add(1),
        },
    })
}

/// The lease of the first leader.
pub fn new(identity: &str, seconds: u64, now: Timestamp) -> Lease {
    let (name, now) = (Some(NAME.to_owned()), Some(MicroTime(now)));
    Lease {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            acquire_time: now.clone(),
            renew_time: now,
            lease_duration_seconds: i32::try_from(seconds).ok(),
            lease_transitions: Some(1),
            ..LeaseSpec::default()
        }),
    }
}

/// The merge patch that releases the lease at that time, which stays as `renewTime`. It has the resourceVersion: if the lease has
/// changed since, the API server answers 409, so that no other leader loses it.
pub fn release_patch(lease: &Lease, now: Timestamp) -> Value {
    let released = MicroTime(now);
    json!({
        "metadata": {"resourceVersion": lease.metadata.resource_version},
        "spec": {"holderIdentity": null, "acquireTime": null, "renewTime": released, "leaseDurationSeconds": null},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: &Value) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": NAME, "resourceVersion": "7"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn a_lease_is_held_until_it_expires() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let held = |by: &str| LeaderLeaseState::Held { by: by.to_owned(), renewed: at(0), until: at(15) };
        let renewed = at(0).to_string();
        let of = |holder: Value| json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
        for (spec, after, expected) in [
            (of(json!("a")), 0, held("a")),
            (of(json!("a")), 14, held("a")),
            (of(json!("a")), 15, LeaderLeaseState::Expired),
            // client-go releases leases like this.
            (of(json!("")), 0, LeaderLeaseState::Expired),
            (of(Value::Null), 0, LeaderLeaseState::Released),
            (json!({"leaseTransitions": 3}), 0, LeaderLeaseState::Released),
            (json!({"holderIdentity": "a"}), 0, LeaderLeaseState::Expired),
            (Value::Null, 0, LeaderLeaseState::Released),
        ] {
            assert_eq!(state(Some(&lease(&spec)), at(after)), expected, "{spec} after {after} s");
        }
        assert_eq!(state(None, at(0)), LeaderLeaseState::Released);
    }

    #[test]
    fn the_holder_of_a_lease_of_this_name_leads_in_any_namespace() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let of = |namespace: &str, name: &str, renewed: i64| -> Lease {
            let renewed = Timestamp::from_second(1_000_000 + renewed).unwrap().to_string();
            let spec = json!({"holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 15});
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}))
                .unwrap()
        };
        let found = |leases: &[Lease]| leader(leases, now).map(|leader| (leader.namespace, leader.holder));
        assert_eq!(found(&[]), None);
        let [ended, other, led] =
            [of("one", NAME, -15), of("one", "another-program", 0), of("two", NAME, -14)];
        assert_eq!(found(&[ended.clone(), other.clone()]), None);
        assert_eq!(found(&[ended, other, led]), Some(("two".to_owned(), "a".to_owned())));
    }

    #[test]
    fn a_lease_is_released_only_at_its_observed_version() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let patch = release_patch(&lease(&json!({})), now);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["renewTime"], "1970-01-12T13:46:40.000000Z");
    }
}
