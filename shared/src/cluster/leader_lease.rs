//! The lease by which one of several reconcilers leads, and what it says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

/// The name of the lease, in the program's own namespace.
pub const NAME: &str = "nm-reconciler";

/// Who leads, as the lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderLeaseState {
    /// Nobody: the lease was given back, or there is none.
    Released,
    /// Nobody any more: whoever did has not renewed in time.
    Expired,
    /// Somebody.
    Held {
        /// By its own name.
        by: String,
        /// When it last renewed, by its own clock.
        renewed: Timestamp,
        /// Until when, unless it renews.
        until: Timestamp,
    },
}

/// Somebody who leads, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The namespace of the lease.
    pub namespace: String,
    /// The leader's own name.
    pub holder: String,
    /// Until when, unless it renews.
    pub until: Timestamp,
}

/// Who leads at this time by one of these leases, as far as they are leases of this program.
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

/// What the lease says at this time.
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

/// The merge patch that makes the lease vacant. It carries the resourceVersion: if someone was faster, the API server
/// answers 409, and nobody's tenure is ended by what was known of another's.
pub fn release_patch(lease: &Lease) -> Value {
    json!({
        "metadata": {"resourceVersion": lease.metadata.resource_version},
        "spec": {"holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null},
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
    fn a_lease_is_held_until_its_duration_is_over() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let held = |by: &str| LeaderLeaseState::Held { by: by.to_owned(), renewed: at(0), until: at(15) };
        let renewed = at(0).to_string();
        let of = |holder: Value| json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
        for (spec, after, expected) in [
            (of(json!("a")), 0, held("a")),
            (of(json!("a")), 14, held("a")),
            (of(json!("a")), 15, LeaderLeaseState::Expired),
            // client-go gives leases back like this.
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
    fn whoever_holds_a_lease_of_this_name_leads_wherever_that_is() {
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
    fn a_lease_is_vacated_only_as_it_was_seen() {
        assert_eq!(release_patch(&lease(&json!({})))["metadata"]["resourceVersion"], "7");
    }
}
